"""The tests' own reader tolerates transient errors while leaders move."""

from __future__ import annotations

from threading import Timer

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from topics import Topics

FETCH, LIST_OFFSETS = 1, 2
NOT_LEADER = KafkaError.NOT_LEADER_FOR_PARTITION
PASSING = [
    NOT_LEADER,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
]


@pytest.fixture
def topics(cluster):
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for value in (b"a", b"b"):
        producer.produce("t", value, partition=0)
    assert producer.flush(10) == 0
    return Topics(cluster.bootstrap_servers, patience_seconds=10)


@pytest.fixture
def later():
    """Run something in half a second, while the test waits for its effect."""
    timers = []

    def run(action, *arguments):
        timers.append(Timer(0.5, action, arguments))
        timers[-1].start()

    yield run
    for timer in timers:
        timer.join(5)


def values(topics):
    return [record.value for record in topics.read("t")]


@pytest.mark.parametrize("code", PASSING)
def test_offsets_are_requested_again_after_a_transient_error(cluster, topics, code):
    cluster.push_errors(LIST_OFFSETS, [code] * 3)
    assert values(topics) == [b"a", b"b"]


@pytest.mark.parametrize("code", [NOT_LEADER, KafkaError.UNKNOWN_TOPIC_OR_PART])
def test_records_are_fetched_again_after_a_transient_error(cluster, topics, code):
    cluster.push_errors(FETCH, [code])
    assert values(topics) == [b"a", b"b"]


def test_the_wait_for_records_tolerates_transient_errors_too(cluster, topics):
    cluster.push_errors(LIST_OFFSETS, [NOT_LEADER] * 3)
    topics.wait_for_rows("t")


def test_a_topic_that_its_brokers_do_not_know_yet_is_read_once_they_do(cluster, topics, later):
    cluster.set_topic_error("t", KafkaError.UNKNOWN_TOPIC_OR_PART)
    later(cluster.set_topic_error, "t", 0)
    assert values(topics) == [b"a", b"b"]


def test_a_partition_without_a_leader_is_read_once_it_has_one(cluster, topics, later):
    cluster.set_leader("t", 0, -1)
    later(cluster.set_leader, "t", 0, 1)
    assert topics.leaders("t") == [1]
    assert values(topics) == [b"a", b"b"]


def test_patience_ends_with_the_last_error(cluster):
    topics = Topics(cluster.bootstrap_servers, patience_seconds=0.5)
    cluster.set_leader("t", 0, -1)
    for reading in (topics.leaders, topics.read, topics.wait_for_rows):
        with pytest.raises(
            KafkaException, match=r"LEADER_NOT_AVAILABLE|_TIMED_OUT|_UNKNOWN_PARTITION"
        ):
            reading("t")


def test_a_permanent_error_is_raised_at_once(cluster, topics):
    cluster.set_topic_error("t", KafkaError.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        topics.read("t")
