"""The plan of metadata requests follows KIP-526's rules."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.config.producer_options import MetadataLifetime
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.producer.metadata_plan import (
    Metadata,
    MetadataRequest,
    NoMetadata,
    TopicError,
    TopicState,
    plan_fetch,
    target_size,
)
from spark_kafka_sink.records.partitioner import TopicPartitions

LIFETIME = MetadataLifetime(max_age_ms=100_000, evict_ms=60_000)
NOW = 1_000_000.0
PARTITIONS = TopicPartitions(1, (0,))

STATES = st.builds(
    TopicState,
    last_used=st.just(NOW),
    metadata=st.just(NoMetadata())
    | st.just(TopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    | st.builds(
        Metadata,
        partitions=st.just(PARTITIONS),
        refreshed_at=st.floats(NOW - 200, NOW),
        is_stale=st.booleans(),
    ),
    request=st.builds(
        MetadataRequest,
        is_in_flight=st.booleans(),
        retry_at=st.sampled_from([0.0, NOW - 1, NOW + 1]),
    ),
)
TABLES = st.dictionaries(st.integers(0, 10_000).map(str), STATES, max_size=80)
IN_USE = {str(number) for number in range(0, 10_000, 2)}


def may_be_requested(state):
    return not state.request.is_in_flight and state.request.retry_at <= NOW


def age_of(state):
    return NOW - state.metadata.refreshed_at


def is_urgent(topic, state):
    if not isinstance(state.metadata, Metadata):
        return topic in IN_USE or isinstance(state.metadata, NoMetadata)
    return state.metadata.is_stale or age_of(state) >= LIFETIME.max_age_seconds


def is_non_urgent(topic, state):
    return not is_urgent(topic, state) and (
        isinstance(state.metadata, Metadata) and age_of(state) >= LIFETIME.max_age_seconds / 2
    )


def target_of(table):
    return int(target_size(sum(isinstance(s.metadata, Metadata) for s in table.values()), 60))


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
    aged.sort(key=lambda topic: (table[topic].metadata.refreshed_at, topic))
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
        return {
            f"{i:02}": TopicState(NOW, Metadata(PARTITIONS, NOW - 60 + i / 10))
            for i in range(count)
        }

    assert plan_fetch(table(19), IN_USE, NOW, LIFETIME).topics == []
    assert plan_fetch(table(30), IN_USE, NOW, LIFETIME).topics == [f"{i:02}" for i in range(20)]


def test_the_target_grows_with_the_topics_that_are_cached():
    assert target_size(0, 60) == 20
    assert target_size(12_000, 60) == 20
    assert target_size(24_000, 60) == 40
