from __future__ import annotations

from dataclasses import replace

import pytest
from fake_clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.config.producer_options import MetadataLifetime
from spark_kafka_sink.producer.topic_metadata import (
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    TopicMetadata,
    TopicState,
    plan_fetch,
    target_size,
)

LIFETIME = MetadataLifetime(max_age_ms=100_000, evict_ms=60_000)
NOW = 1_000_000.0

# --- the plan: KIP-526's rules --------------------------------------------------------------------

STATES = st.builds(
    TopicState,
    last_used=st.just(NOW),
    refreshed_at=st.none() | st.floats(NOW - 200, NOW),
    is_changed=st.booleans(),
    open_sends=st.integers(0, 2),
    code=st.sampled_from([0, UNKNOWN_TOPIC_OR_PARTITION]),
    is_asked=st.booleans(),
    ask_at=st.sampled_from([0.0, NOW - 1, NOW + 1]),
)
TABLES = st.dictionaries(st.integers(0, 10_000).map(str), STATES, max_size=80)


def may_be_asked(state):
    return not state.is_asked and state.ask_at <= NOW


def is_urgent(state):
    if state.refreshed_at is None:
        return state.open_sends > 0 or state.code == 0
    return state.is_changed or NOW - state.refreshed_at >= LIFETIME.max_age_seconds


def is_non_urgent(state):
    return not is_urgent(state) and (
        state.refreshed_at is not None and NOW - state.refreshed_at >= LIFETIME.max_age_seconds / 2
    )


def target_of(table):
    return int(target_size(sum(s.refreshed_at is not None for s in table.values()), 60))


@given(TABLES)
def test_no_urgent_topic_is_ever_left_out_and_no_other_is_called_urgent(table):
    plan = plan_fetch(table, NOW, LIFETIME)
    asked = {topic for topic, state in table.items() if may_be_asked(state)}
    assert set(plan.urgent) == {topic for topic in asked if is_urgent(table[topic])}


@given(TABLES)
def test_the_planned_size_never_exceeds_the_urgent_topics_or_the_target(table):
    plan = plan_fetch(table, NOW, LIFETIME)
    assert len(plan.topics) <= max(len(plan.urgent), target_of(table))


@given(TABLES)
def test_the_others_are_the_oldest_non_urgent_topics(table):
    plan = plan_fetch(table, NOW, LIFETIME)
    aged = [t for t, state in table.items() if may_be_asked(state) and is_non_urgent(state)]
    aged.sort(key=lambda topic: (table[topic].refreshed_at, topic))
    assert plan.others == aged[: len(plan.others)]


@given(TABLES)
def test_beside_urgent_topics_the_request_is_filled_up_to_the_target(table):
    plan = plan_fetch(table, NOW, LIFETIME)
    aged = sum(may_be_asked(s) and is_non_urgent(s) for s in table.values())
    if plan.urgent:
        assert len(plan.others) == min(aged, max(0, target_of(table) - len(plan.urgent)))
    else:
        assert len(plan.others) == (target_of(table) if aged >= target_of(table) else 0)


@given(TABLES)
def test_no_topic_is_asked_for_twice_at_once(table):
    plan = plan_fetch(table, NOW, LIFETIME)
    assert len(plan.topics) == len(set(plan.topics))
    assert all(may_be_asked(table[topic]) for topic in plan.topics)


@given(TABLES)
def test_planning_changes_nothing(table):
    before = {topic: replace(state) for topic, state in table.items()}
    plan_fetch(table, NOW, LIFETIME)
    assert table == before


def test_aged_topics_wait_until_they_fill_a_request():
    def table(count):
        return {f"{i:02}": TopicState(NOW, refreshed_at=NOW - 60 + i / 10) for i in range(count)}

    assert plan_fetch(table(19), NOW, LIFETIME).topics == []
    assert plan_fetch(table(30), NOW, LIFETIME).topics == [f"{i:02}" for i in range(20)]


def test_the_target_grows_with_the_topics_that_are_cached():
    assert target_size(0, 60) == 20
    assert target_size(12_000, 60) == 20
    assert target_size(24_000, 60) == 40


# --- the table ------------------------------------------------------------------------------------


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def topics(clock):
    return TopicMetadata(LIFETIME, clock)


def test_topics_are_asked_for_together_and_once(topics):
    topics.mention(["b", "a"])
    topics.buffered("c")
    assert topics.take_due() == ["a", "b", "c"]
    assert topics.take_due() == []


def test_a_known_topic_is_not_asked_for(topics):
    topics.mention(["a"])
    topics.take_due()
    topics.answered("a", 0, 2, (0, 1))
    topics.mention(["a"])
    topics.buffered("a")
    assert topics.take_due() == []
    assert topics.may_leave("a")
    assert topics.in_vain(0) is None


def test_the_budget_runs_from_the_first_row_buffered(topics, clock):
    topics.mention(["a"])
    clock.now += 7
    topics.buffered("a")
    clock.now += 2
    topics.buffered("a")
    clock.now += 1
    assert topics.in_vain(3.1) is None
    assert topics.in_vain(3.0) == ("a", 0)


def test_the_longest_wait_comes_first_unless_one_topic_is_asked_about(topics, clock):
    topics.buffered("b")
    clock.now += 1
    topics.buffered("a")
    assert topics.in_vain(0) == ("b", 0)
    assert topics.in_vain(0, "a") == ("a", 0)
    assert topics.in_vain(1, "a") is None
    assert topics.in_vain(0, "c") is None


def test_a_refused_topic_does_not_wait_for_the_budget(topics):
    topics.buffered("b")
    topics.buffered("a")
    topics.take_due()
    topics.answered("a", TOPIC_AUTHORIZATION_FAILED)
    assert topics.in_vain(60) == ("a", TOPIC_AUTHORIZATION_FAILED)
    assert topics.in_vain(60, "b") is None
    topics.settled("a")
    assert topics.in_vain(60) is None


def test_an_answer_ends_the_wait(topics):
    topics.buffered("a")
    topics.answered("a", 0, 2, (0, 1))
    assert topics.in_vain(0) is None


def test_a_missing_topic_waits_on_and_is_asked_for_ever_more_rarely(topics, clock):
    topics.buffered("a")
    pauses = []
    for _ in range(6):
        assert topics.take_due() == ["a"]
        topics.answered("a", UNKNOWN_TOPIC_OR_PARTITION)
        started = clock.now
        while not (due := topics.take_due()):
            clock.now += 0.05
        assert due == ["a"]
        topics.answered("a", UNKNOWN_TOPIC_OR_PARTITION)
        pauses.append(clock.now - started)
        clock.now += 10
    assert pauses == pytest.approx([0.1, 0.4, 1.0, 1.0, 1.0, 1.0], abs=0.06)
    assert topics.in_vain(5) == ("a", UNKNOWN_TOPIC_OR_PARTITION)


def test_a_missing_topic_that_no_row_waits_for_is_not_asked_for_again(topics, clock):
    topics.mention(["a"])
    assert topics.take_due() == ["a"]
    topics.answered("a", UNKNOWN_TOPIC_OR_PARTITION)
    clock.now += 5
    assert topics.take_due() == []
    topics.buffered("a")
    clock.now += 1
    assert topics.take_due() == ["a"]


def test_a_request_without_answer_is_repeated(topics, clock):
    topics.mention(["a"])
    assert topics.take_due() == ["a"]
    assert topics.unanswered() == ["a"]
    assert topics.take_due() == []
    clock.now += 0.1
    assert topics.take_due() == ["a"]


def test_nothing_waits_once_all_sends_are_settled(topics):
    topics.buffered("a")
    topics.buffered("a")
    topics.settled("a")
    assert topics.in_vain(0) == ("a", 0)
    topics.settled("a")
    assert topics.in_vain(0) is None


def know(topics, *names):
    topics.mention(names)
    topics.take_due()
    for name in names:
        topics.answered(name, 0, 2, (0, 1))


def test_metadata_is_fetched_again_at_its_greatest_age(topics, clock):
    know(topics, "a")
    for _ in range(9):
        clock.now += 11
        topics.mention(["a"])
        assert topics.take_due() == []
    clock.now += 1
    assert topics.take_due() == ["a"]
    assert topics.may_leave("a")


def test_a_change_makes_a_topic_urgent_at_once(topics):
    know(topics, "a", "b")
    assert topics.take_due() == []
    topics.changed("a")
    assert topics.take_due() == ["a"]
    topics.answered("a", 0, 2, (0, 1))
    assert topics.take_due() == []


def test_a_topic_without_rows_is_forgotten_and_the_next_row_makes_it_urgent(topics, clock):
    know(topics, "a")
    clock.now += 60
    assert topics.take_due() == []
    assert topics.live() == []
    assert not topics.may_leave("a")
    topics.buffered("a")
    assert topics.take_due() == ["a"]


def test_a_topic_in_use_is_never_forgotten(topics, clock):
    know(topics, "a")
    topics.buffered("a")
    clock.now += 1000
    topics.take_due()
    assert topics.live() == ["a"]
    topics.settled("a")
    clock.now += 59
    topics.take_due()
    assert topics.live() == ["a"]
    clock.now += 1
    topics.take_due()
    assert topics.live() == []


def test_an_answer_about_a_forgotten_topic_is_ignored(topics, clock):
    topics.mention(["a"])
    topics.take_due()
    clock.now += 60
    topics.take_due()
    topics.answered("a", 0, 2, (0, 1))
    assert topics.live() == []


def test_a_client_is_overgrown_once_most_and_many_of_its_topics_are_forgotten(topics, clock):
    know(topics, *(f"old-{i}" for i in range(101)))
    clock.now += 60
    know(topics, *(f"new-{i}" for i in range(101)))
    assert not topics.is_overgrown
    topics.mention(["old-0"])  # not forgotten any more: 100 are
    assert not topics.is_overgrown
    clock.now += 60
    know(topics, "newest")
    assert topics.is_overgrown


def test_a_hundred_forgotten_topics_do_not_make_a_client_overgrown(topics, clock):
    know(topics, *(f"old-{i}" for i in range(100)))
    clock.now += 60
    know(topics, "new")
    assert not topics.is_overgrown


def test_a_topic_left_to_the_client_need_not_be_held_but_its_budget_runs(topics, clock):
    topics.buffered("a")
    topics.take_due()
    topics.unanswered()
    topics.entrust("a")
    assert topics.may_leave("a")
    clock.now += 5
    assert topics.in_vain(5) == ("a", 0)
    assert topics.take_due() == ["a"]
    topics.answered("a", UNKNOWN_TOPIC_OR_PARTITION)
    assert topics.may_leave("a")
    topics.answered("a", 0, 2, (0, 1))
    topics.mention(["a"])
    assert topics.may_leave("a")


def test_a_topic_with_a_partition_without_leader_is_asked_for_again_and_may_leave(topics, clock):
    topics.buffered("a")
    topics.take_due()
    topics.answered("a", 0, 3, (0, 2))
    assert topics.may_leave("a")
    assert topics.available_partitions("a") == (0, 2)
    assert topics.take_due() == []
    clock.now += 0.1
    assert topics.take_due() == ["a"]
    topics.answered("a", 0, 3, (0, 1, 2))
    clock.now += 5
    assert topics.take_due() == []


def test_a_lost_broker_makes_all_topics_urgent(topics):
    know(topics, "a", "b")
    topics.all_changed()
    assert topics.take_due() == ["a", "b"]


def test_rows_on_their_way_wait_when_their_topic_vanishes(topics, clock):
    know(topics, "a")
    topics.buffered("a")
    topics.changed("a")
    topics.take_due()
    topics.answered("a", UNKNOWN_TOPIC_OR_PARTITION)
    clock.now += 3
    assert topics.in_vain(3) == ("a", UNKNOWN_TOPIC_OR_PARTITION)


def test_acknowledged_rows_end_the_wait_only_of_a_topic_left_to_the_client(topics):
    topics.buffered("a")
    topics.arrived("a")
    assert topics.in_vain(0) == ("a", 0)
    topics.entrust("a")
    topics.arrived("a")
    assert topics.in_vain(0) is None


def test_an_old_error_is_forgotten_when_rows_come(topics, clock):
    topics.mention(["a"])
    topics.take_due()
    topics.answered("a", UNKNOWN_TOPIC_OR_PARTITION)
    clock.now += 5
    assert topics.take_due() == []
    topics.buffered("a")
    assert topics.in_vain(0) == ("a", 0)
    assert topics.take_due() == ["a"]
