from __future__ import annotations

from dataclasses import replace

import pytest
from fake_clock import FakeClock
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.config.producer_options import MetadataLifetime
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import TopicDescription
from spark_kafka_sink.producer.topic_metadata import (
    TopicMetadata,
    TopicState,
    plan_fetch,
    target_size,
)
from spark_kafka_sink.records.partitioner import TopicPartitions

LIFETIME = MetadataLifetime(max_age_ms=100_000, evict_ms=60_000)
NOW = 1_000_000.0

# --- the plan: KIP-526's rules --------------------------------------------------------------------

STATES = st.builds(
    TopicState,
    last_used=st.just(NOW),
    refreshed_at=st.none() | st.floats(NOW - 200, NOW),
    is_update_requested=st.booleans(),
    error=st.sampled_from([0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
    is_in_flight=st.booleans(),
    retry_at=st.sampled_from([0.0, NOW - 1, NOW + 1]),
)
TABLES = st.dictionaries(st.integers(0, 10_000).map(str), STATES, max_size=80)
IN_USE = {str(number) for number in range(0, 10_000, 2)}


def may_be_requested(state):
    return not state.is_in_flight and state.retry_at <= NOW


def is_urgent(topic, state):
    if state.refreshed_at is None:
        return topic in IN_USE or state.error == 0
    return state.is_update_requested or NOW - state.refreshed_at >= LIFETIME.max_age_seconds


def is_non_urgent(topic, state):
    return not is_urgent(topic, state) and (
        state.refreshed_at is not None and NOW - state.refreshed_at >= LIFETIME.max_age_seconds / 2
    )


def target_of(table):
    return int(target_size(sum(s.refreshed_at is not None for s in table.values()), 60))


@given(TABLES)
def test_no_urgent_topic_is_ever_left_out_and_no_other_is_called_urgent(table):
    plan = plan_fetch(table, IN_USE, NOW, LIFETIME)
    due = {topic for topic, state in table.items() if may_be_requested(state)}
    assert set(plan.urgent) == {topic for topic in due if is_urgent(topic, table[topic])}


@given(TABLES)
def test_the_planned_size_never_exceeds_the_urgent_topics_or_the_target(table):
    plan = plan_fetch(table, IN_USE, NOW, LIFETIME)
    assert len(plan.topics) <= max(len(plan.urgent), target_of(table))


@given(TABLES)
def test_the_others_are_the_oldest_non_urgent_topics(table):
    plan = plan_fetch(table, IN_USE, NOW, LIFETIME)
    aged = [t for t, s in table.items() if may_be_requested(s) and is_non_urgent(t, s)]
    aged.sort(key=lambda topic: (table[topic].refreshed_at, topic))
    assert plan.others == aged[: len(plan.others)]


@given(TABLES)
def test_beside_urgent_topics_the_request_is_filled_up_to_the_target(table):
    plan = plan_fetch(table, IN_USE, NOW, LIFETIME)
    aged = sum(may_be_requested(s) and is_non_urgent(t, s) for t, s in table.items())
    if plan.urgent:
        assert len(plan.others) == min(aged, max(0, target_of(table) - len(plan.urgent)))
    else:
        assert len(plan.others) == (target_of(table) if aged >= target_of(table) else 0)


@given(TABLES)
def test_no_topic_is_requested_twice_at_once(table):
    plan = plan_fetch(table, IN_USE, NOW, LIFETIME)
    assert len(plan.topics) == len(set(plan.topics))
    assert all(may_be_requested(table[topic]) for topic in plan.topics)


@given(TABLES)
def test_planning_changes_nothing(table):
    before = {topic: replace(state) for topic, state in table.items()}
    plan_fetch(table, IN_USE, NOW, LIFETIME)
    assert table == before


def test_aged_topics_wait_until_they_fill_a_request():
    def table(count):
        return {f"{i:02}": TopicState(NOW, refreshed_at=NOW - 60 + i / 10) for i in range(count)}

    assert plan_fetch(table(19), IN_USE, NOW, LIFETIME).topics == []
    assert plan_fetch(table(30), IN_USE, NOW, LIFETIME).topics == [f"{i:02}" for i in range(20)]


def test_the_target_grows_with_the_topics_that_are_cached():
    assert target_size(0, 60) == 20
    assert target_size(12_000, 60) == 20
    assert target_size(24_000, 60) == 40


# --- the table ------------------------------------------------------------------------------------


@pytest.fixture
def clock():
    return FakeClock()


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
        self.evict_idle(self.in_use)
        return self.next_request(self.in_use)

    def answer(self, topic, code=0, count=2, available=(0, 1)):
        answer = TopicDescription(topic, code, 0 if code else count, () if code else available)
        self.update(answer, is_in_use=topic in self.in_use)

    def is_sendable(self, topic):
        return self.partitions(topic) is not None


@pytest.fixture
def topics(clock):
    return Topics(clock)


def test_topics_are_requested_together_and_once(topics):
    topics.add(["b", "a"])
    topics.buffer("c")
    assert topics.due() == ["a", "b", "c"]
    assert topics.due() == []


def test_a_known_topic_is_not_requested(topics):
    topics.add(["a"])
    topics.due()
    topics.answer("a")
    topics.add(["a"])
    topics.buffer("a")
    assert topics.due() == []
    assert topics.is_sendable("a")
    assert topics.first_failure(0) is None


def test_the_budget_runs_from_the_first_record_buffered(topics, clock):
    topics.add(["a"])
    clock.now += 7
    topics.buffer("a")
    clock.now += 2
    topics.buffer("a")
    clock.now += 1
    assert topics.first_failure(3.1) is None
    assert topics.first_failure(3.0) == ("a", 0)


def test_the_longest_wait_comes_first_unless_one_topic_is_named(topics, clock):
    topics.buffer("b")
    clock.now += 1
    topics.buffer("a")
    assert topics.first_failure(0) == ("b", 0)
    assert topics.first_failure(0, "a") == ("a", 0)
    assert topics.first_failure(1, "a") is None
    assert topics.first_failure(0, "c") is None


def test_a_refused_topic_does_not_wait_for_the_budget(topics):
    topics.buffer("b")
    topics.buffer("a")
    topics.due()
    topics.answer("a", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert topics.first_failure(60) == ("a", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert topics.first_failure(60, "b") is None
    topics.complete("a")
    assert topics.first_failure(60) is None


def test_an_answer_ends_the_wait(topics):
    topics.buffer("a")
    topics.answer("a")
    assert topics.first_failure(0) is None


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
    assert topics.first_failure(5) == ("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_missing_topic_that_no_record_waits_for_is_not_requested_again(topics, clock):
    topics.add(["a"])
    assert topics.due() == ["a"]
    topics.answer("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    clock.now += 5
    assert topics.due() == []
    topics.buffer("a")
    clock.now += 1
    assert topics.due() == ["a"]


def test_a_request_without_answer_is_repeated(topics, clock):
    topics.add(["a"])
    assert topics.due() == ["a"]
    assert topics.fail_request(["a"]) == []  # no record awaits it
    assert topics.due() == []
    clock.now += 0.1
    assert topics.due() == ["a"]


def test_nothing_waits_once_the_last_delivery_is_complete(topics):
    topics.buffer("a")
    assert topics.first_failure(0) == ("a", 0)
    topics.complete("a")
    assert topics.first_failure(0) is None


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


def test_a_change_makes_a_topic_urgent_at_once(topics):
    know(topics, "a", "b")
    assert topics.due() == []
    topics.request_update("a")
    assert topics.due() == ["a"]
    topics.answer("a")
    assert topics.due() == []


def test_a_topic_without_records_is_evicted_and_the_next_record_makes_it_urgent(topics, clock):
    know(topics, "a")
    clock.now += 60
    assert topics.due() == []
    assert topics.live() == []
    assert not topics.is_sendable("a")
    topics.buffer("a")
    assert topics.due() == ["a"]


def test_a_topic_in_use_is_never_evicted(topics, clock):
    know(topics, "a")
    topics.buffer("a")
    clock.now += 1000
    topics.due()
    assert topics.live() == ["a"]
    topics.complete("a")
    clock.now += 59
    topics.due()
    assert topics.live() == ["a"]
    clock.now += 1
    topics.due()
    assert topics.live() == []


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
    assert topics.first_failure(5) == ("a", 0)
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
    assert topics.partitions("a") == TopicPartitions(3, (0, 2))
    assert topics.due() == []
    clock.now += 0.1
    assert topics.due() == ["a"]
    topics.answer("a", count=3, available=(0, 1, 2))
    clock.now += 5
    assert topics.due() == []


def test_a_lost_broker_makes_all_topics_urgent(topics):
    know(topics, "a", "b")
    topics.request_update_of_all()
    assert topics.due() == ["a", "b"]


def test_sent_records_wait_for_metadata_when_their_topic_vanishes(topics, clock):
    know(topics, "a")
    topics.buffer("a")
    topics.request_update("a")
    topics.due()
    topics.answer("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    clock.now += 3
    assert topics.first_failure(3) == ("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_acknowledged_records_end_the_wait_only_of_a_delegated_topic(topics):
    topics.buffer("a")
    topics.acknowledged("a")
    assert topics.first_failure(0) == ("a", 0)
    topics.delegate_to_client("a")
    topics.acknowledged("a")
    assert topics.first_failure(0) is None


def test_an_old_error_is_forgotten_when_records_arrive(topics, clock):
    topics.add(["a"])
    topics.due()
    topics.answer("a", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    clock.now += 5
    assert topics.due() == []
    topics.buffer("a")
    assert topics.first_failure(0) == ("a", 0)
    assert topics.due() == ["a"]


# --- racks ----------------------------------------------------------------------------------------


def test_partitions_are_near_if_their_leader_is_in_the_clients_rack():
    topics = TopicMetadata(MetadataLifetime(300_000, 300_000), FakeClock(), rack="a")
    topics.add(["t", "racks are not configured"])
    topics.update(TopicDescription("t", 0, 4, (0, 1, 3), ("a", "b", "a")))
    topics.update(TopicDescription("racks are not configured", 0, 1, (0,), (None,)))
    assert topics.partitions("t").near == {0, 3}
    assert topics.partitions("racks are not configured").near == set()
    acknowledged = {("t", 0): 1, ("t", 1): 2, ("racks are not configured", 0): 4, ("gone", 0): 8}
    assert topics.cross_rack_records(acknowledged) == 6


def test_without_a_rack_nobody_knows_what_crosses_racks():
    topics = TopicMetadata(MetadataLifetime(300_000, 300_000), FakeClock())
    topics.add(["t"])
    topics.update(TopicDescription("t", 0, 1, (0,), ("a",)))
    assert topics.partitions("t").near is None
    assert topics.cross_rack_records({("t", 0): 1}) is None
