from __future__ import annotations

import pytest
from fake_clock import FakeClock

from spark_kafka_sink.topic_metadata import TopicMetadata

UNKNOWN_TOPIC = 3


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def topics(clock):
    return TopicMetadata(clock)


def test_topics_are_asked_for_together_and_once(topics):
    topics.mention(["b", "a"])
    topics.buffered("c")
    assert topics.take_due() == ["a", "b", "c"]
    assert topics.take_due() == []


def test_a_known_topic_is_not_asked_for(topics):
    topics.answered("a", 0)
    topics.mention(["a"])
    topics.buffered("a")
    assert topics.take_due() == []
    assert topics.is_known("a")
    assert topics.waiting() == []


def test_the_budget_runs_from_the_first_row_buffered(topics, clock):
    topics.mention(["a"])
    clock.now += 7
    topics.buffered("a")
    clock.now += 2
    topics.buffered("a")
    clock.now += 1
    assert topics.waiting() == [("a", 3.0, 0)]


def test_the_longest_wait_comes_first(topics, clock):
    topics.buffered("b")
    clock.now += 1
    topics.buffered("a")
    assert [topic for topic, _, _ in topics.waiting()] == ["b", "a"]


def test_an_answer_ends_the_wait(topics):
    topics.buffered("a")
    topics.answered("a", 0)
    assert topics.waiting() == []


def test_a_missing_topic_waits_on_and_is_asked_for_ever_more_rarely(topics, clock):
    topics.buffered("a")
    pauses = []
    for _ in range(6):
        assert topics.take_due() == ["a"]
        topics.answered("a", UNKNOWN_TOPIC)
        started = clock.now
        while not (due := topics.take_due()):
            clock.now += 0.05
        assert due == ["a"]
        topics.answered("a", UNKNOWN_TOPIC)
        pauses.append(clock.now - started)
        clock.now += 10
    assert pauses == pytest.approx([0.1, 0.4, 1.0, 1.0, 1.0, 1.0], abs=0.06)
    assert topics.waiting()[0][2] == UNKNOWN_TOPIC


def test_a_request_without_answer_is_repeated(topics, clock):
    topics.mention(["a"])
    assert topics.take_due() == ["a"]
    topics.unanswered()
    assert topics.take_due() == []
    clock.now += 0.1
    assert topics.take_due() == ["a"]


def test_nothing_waits_once_all_rows_are_settled(topics):
    topics.buffered("a")
    topics.settled()
    assert topics.waiting() == []
