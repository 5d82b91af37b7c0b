from __future__ import annotations

import pytest
from fake_clock import FakeClock

from spark_kafka_sink.config.producer_options import MetadataLifetime
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import TopicDescription
from spark_kafka_sink.producer.topic_metadata import TopicMetadata
from spark_kafka_sink.records.partitioner import TopicPartitions

LIFETIME = MetadataLifetime(max_age_ms=100_000, evict_ms=60_000)

# --- the table ------------------------------------------------------------------------------------


class Topics(TopicMetadata):
    """The table, and which topics have incomplete deliveries."""

    def __init__(self, clock):
        super().__init__(LIFETIME, clock)
        self.in_use = set()

    def buffer(self, topic):
        self.in_use.add(topic)
        self.await_metadata(topic)

    def complete(self, topic):
        self.in_use.remove(topic)
        self.release(topic)

    def due(self):
        return self.scan(self.in_use).due

    def answer(self, topic, code=0, count=2, available=(0, 1)):
        answer = TopicDescription(topic, code, 0 if code else count, () if code else available)
        self.update(answer, is_in_use=topic in self.in_use)

    def is_sendable(self, topic):
        return self.sendable(topic) is not None


@pytest.fixture
def topics(clock):
    return Topics(clock)


def test_topics_are_requested_together_and_once(topics):
    topics.add(["b", "a"])
    topics.buffer("c")
    assert topics.due() == ["a", "b", "c"]
    assert topics.due() == []


def test_the_budget_runs_from_the_first_record_buffered(topics, clock):
    topics.add(["a"])
    clock.now += 7
    topics.buffer("a")
    clock.now += 2
    topics.buffer("a")
    clock.now += 1
    assert topics.waits.first_failure(3.1) is None
    assert topics.waits.first_failure(3.0) == ("a", 0)


def test_the_longest_wait_comes_first_unless_one_topic_is_named(topics, clock):
    topics.buffer("b")
    clock.now += 1
    topics.buffer("a")
    assert topics.waits.first_failure(0) == ("b", 0)
    assert topics.waits.first_failure(0, "a") == ("a", 0)
    assert topics.waits.first_failure(1, "a") is None
    assert topics.waits.first_failure(0, "c") is None


def test_a_forbidden_topic_does_not_wait_for_the_budget(topics):
    topics.buffer("b")
    topics.buffer("a")
    topics.due()
    topics.answer("a", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert topics.waits.first_failure(60) == ("a", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert topics.waits.first_failure(60, "b") is None
    topics.complete("a")
    assert topics.waits.first_failure(60) is None


def test_an_answer_ends_the_wait(topics):
    topics.buffer("a")
    topics.answer("a")
    assert topics.waits.first_failure(0) is None


def test_a_missing_topic_keeps_waiting_and_is_requested_less_and_less_often(topics, clock):
    topics.buffer("a")
    pauses = []
    for _ in range(6):
        assert topics.due() == ["a"]
        topics.answer("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        started = clock.now
        while not (due := topics.due()):
            clock.now += 0.05
        assert due == ["a"]
        topics.answer("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        pauses.append(clock.now - started)
        clock.now += 10
    assert pauses == pytest.approx([0.1, 0.4, 1.0, 1.0, 1.0, 1.0], abs=0.06)
    assert topics.waits.first_failure(5) == ("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_missing_topic_that_no_record_waits_for_is_not_requested_again(topics, clock):
    topics.add(["a"])
    assert topics.due() == ["a"]
    topics.answer("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    clock.now += 5
    assert topics.due() == []
    topics.buffer("a")
    clock.now += 1
    assert topics.due() == ["a"]


def know(topics, *names):
    topics.add(names)
    topics.due()
    for name in names:
        topics.answer(name)


def test_metadata_is_fetched_again_at_its_maximum_age(topics, clock):
    know(topics, "a")
    for _ in range(9):
        clock.now += 11
        topics.add(["a"])
        assert topics.due() == []
    clock.now += 1
    assert topics.due() == ["a"]
    assert topics.is_sendable("a")


def test_an_answer_about_an_evicted_topic_is_ignored(topics, clock):
    topics.add(["a"])
    topics.due()
    clock.now += 60
    topics.due()
    topics.answer("a")
    assert topics.live() == []


def test_a_delegated_topic_is_sendable_but_its_budget_runs(topics, clock):
    topics.buffer("a")
    topics.due()
    topics.fail_request(["a"])
    topics.delegate_to_client("a")
    assert topics.is_sendable("a")
    clock.now += 5
    assert topics.waits.first_failure(5) == ("a", 0)
    assert topics.due() == ["a"]
    topics.answer("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert topics.is_sendable("a")
    topics.answer("a")
    topics.add(["a"])
    assert topics.is_sendable("a")


def test_a_topic_with_a_leaderless_partition_is_requested_again_but_sendable(topics, clock):
    topics.buffer("a")
    topics.due()
    topics.answer("a", count=3, available=(0, 2))
    assert topics.is_sendable("a")
    assert topics.sendable("a").partitions == TopicPartitions(3, (0, 2))
    assert topics.due() == []
    clock.now += 0.1
    assert topics.due() == ["a"]
    topics.answer("a", count=3, available=(0, 1, 2))
    clock.now += 5
    assert topics.due() == []


def test_sent_records_wait_for_metadata_when_their_topic_vanishes(topics, clock):
    know(topics, "a")
    topics.buffer("a")
    topics.request_update("a")
    topics.due()
    topics.answer("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    clock.now += 3
    assert topics.waits.first_failure(3) == ("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_acknowledged_records_end_the_wait_only_of_a_delegated_topic(topics):
    topics.buffer("a")
    topics.on_acknowledged("a")
    assert topics.waits.first_failure(0) == ("a", 0)
    topics.delegate_to_client("a")
    topics.on_acknowledged("a")
    assert topics.waits.first_failure(0) is None


def test_an_old_error_is_forgotten_when_records_arrive(topics, clock):
    topics.add(["a"])
    topics.due()
    topics.answer("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    clock.now += 5
    assert topics.due() == []
    topics.buffer("a")
    assert topics.waits.first_failure(0) == ("a", 0)
    assert topics.due() == ["a"]


# --- racks ----------------------------------------------------------------------------------------


def test_partitions_are_near_if_their_leader_is_in_the_clients_rack():
    topics = TopicMetadata(MetadataLifetime(300_000, 300_000), FakeClock(), rack="a")
    topics.add(["t", "racks are not configured"])
    topics.update(TopicDescription("t", 0, 4, (0, 1, 3), ("a", "b", "a")))
    topics.update(TopicDescription("racks are not configured", 0, 1, (0,), (None,)))
    assert topics.sendable("t").partitions.near == {0, 3}
    assert topics.sendable("racks are not configured").partitions.near is None
    acknowledged = {("t", 0): 1, ("t", 1): 2, ("racks are not configured", 0): 4, ("gone", 0): 8}
    assert topics.cross_rack_records(acknowledged) == 2


def test_without_a_rack_nobody_knows_what_crosses_racks():
    topics = TopicMetadata(MetadataLifetime(300_000, 300_000), FakeClock())
    topics.add(["t"])
    topics.update(TopicDescription("t", 0, 1, (0,), ("a",)))
    assert topics.sendable("t").partitions.near is None
    assert topics.cross_rack_records({("t", 0): 1}) is None
