"""Topics that one answer or the client calls missing: what waits, what is sent again, what ends."""

from __future__ import annotations

import pyarrow as pa
import pytest
from fake_engine import DLQ, FakeEngine, dead_letter_engine

from spark_kafka_sink.config.producer_options import MISSING_TOPIC_SECONDS
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import (
    ConfigurationDescription,
    FailedRecords,
    RequestFailed,
    TopicDescription,
)
from spark_kafka_sink.producer.topic_metadata import RECENT_SECONDS


@pytest.fixture
def engine():
    return dead_letter_engine()


MISSING = TopicDescription("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ())
PRESENT = TopicDescription("t", 0, 1, (0,))
DROPPED = [
    ErrorCode.UNKNOWN_PARTITION,
    ErrorCode.UNKNOWN_TOPIC,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
]


def test_a_topic_is_missing_only_after_a_while(engine):
    engine.send_values("t", ["a"])
    engine.answer(MISSING)
    engine.clock.now += MISSING_TOPIC_SECONDS - 0.1
    engine.answer(MISSING)
    assert engine.dead == {}
    engine.clock.now += 0.1
    engine.answer(MISSING)
    assert engine.dead == {("t", "UNKNOWN_TOPIC_OR_PART"): 1}


def test_one_answer_and_then_silence_do_not_make_a_topic_missing_but_use_up_its_budget(engine):
    engine.send_values("t", ["a"])
    engine.answer(MISSING)
    engine.clock.now += 0.2
    engine.send_due()  # sends the next request
    engine.clock.now += MISSING_TOPIC_SECONDS
    engine.send_due()
    assert engine.dead == {}
    assert engine.topics.waits.first_failure(0.5) is None  # its answer is still due
    engine.answer(RequestFailed(ErrorCode.TIMED_OUT, ("t",)))
    assert engine.topics.waits.first_failure(0.5) == ("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_a_topic_that_was_missing_long_enough_is_asked_for_once_more(engine):
    engine.send_values("t", ["a"])
    engine.answer(MISSING)
    engine.clock.now += MISSING_TOPIC_SECONDS
    engine.answer(MISSING)
    second = engine.send_values("t", ["b"])
    assert not second.dead_letters
    engine.answer(MISSING)
    assert engine.dead == {("t", "UNKNOWN_TOPIC_OR_PART"): 2}
    third = engine.send_values("t", ["c"])
    engine.know("t")
    assert engine.sent(third) == [0]


def test_topics_that_become_dead_letters_are_no_failure_of_the_task(engine):
    engine.send_values("t", ["a"])
    engine.answer(MISSING)
    engine.clock.now += 1
    assert engine.topics.waits.first_failure(0.5) is None
    engine.send_values("silent", ["a"])
    engine.clock.now += 1
    assert engine.topics.waits.first_failure(0.5) == ("silent", 0)


def test_a_missing_topic_for_dead_letters_is_one(engine):
    engine.send_values("t", ["a"])
    engine.answer(TopicDescription("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0, ()))
    engine.answer(TopicDescription(DLQ, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ()))
    engine.clock.now += 1
    assert engine.topics.waits.first_failure(0.5) == (DLQ, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


@pytest.mark.parametrize("code", DROPPED)
def test_records_that_the_client_drops_for_one_answer_are_sent_before_later_ones(engine, code):
    first, second = engine.send_values("t", ["a", "b", "c"]), engine.send_values("t", ["d"])
    engine.know("t", DLQ)
    engine.answer(MISSING)
    engine.report(second, [0], code)
    engine.report(first, [1, 2], code)
    later = engine.send_values("t", ["e"])
    engine.report(first, [0])  # was on its way to a broker
    engine.client.positions.clear()
    engine.answer(PRESENT)
    for delivery, positions in ((first, [1, 2]), (second, [0]), (later, [0])):
        assert engine.sent(delivery) == positions
        engine.report(delivery, positions)
    assert [engine.sends.find(request.send_id) for request in (first, second, later)] == [None] * 3
    assert engine.dead == {}


def test_records_that_the_client_drops_wait_for_an_answer_from_afterwards(engine):
    delivery = engine.send_values("t", ["a"])
    engine.know("t", DLQ)
    engine.client.positions.clear()
    engine.report(delivery, [0], ErrorCode.UNKNOWN_PARTITION)
    assert engine.sent(delivery) == []
    before = len(engine.client.requests)
    engine.clock.now += 1
    engine.send_due()
    assert engine.client.requests[before:] == [(["t"], 5.0)]
    engine.answer(PRESENT)
    assert engine.sent(delivery) == [0]


def test_records_that_the_client_drops_become_dead_letters_once_the_topic_is_missing(engine):
    delivery = engine.send_values("t", ["a"])
    engine.know("t", DLQ)
    engine.report(delivery, [0], ErrorCode.UNKNOWN_PARTITION)
    engine.answer(MISSING)
    assert engine.dead == {}
    engine.clock.now += MISSING_TOPIC_SECONDS
    engine.answer(MISSING)
    assert engine.dead == {("t", "UNKNOWN_TOPIC_OR_PART"): 1}


def test_a_record_that_may_be_stored_neither_becomes_a_dead_letter_nor_is_sent_again(engine):
    delivery = engine.send_values("t", ["a"])
    engine.know("t", DLQ)
    engine.client.unreported["t"] -= 1
    engine.answer(FailedRecords(delivery.send_id, 0, ErrorCode.UNKNOWN_PARTITION, True, 1, (0,)))
    assert engine.sends.first_failed is delivery
    assert engine.dead == {}


@pytest.mark.parametrize("is_delegated", [True, False])
def test_records_that_the_client_rejects_for_one_answer_wait_for_the_next_one(engine, is_delegated):
    """The client calls a topic missing for some seconds after an answer that it is there."""
    delivery = engine.send_values("t", ["a"])
    engine.client.rejects[delivery.send_id] = ErrorCode.UNKNOWN_TOPIC
    if is_delegated:
        engine.answer(RequestFailed(ErrorCode.TIMED_OUT, ("t",)))
    else:
        engine.know("t", DLQ)
    engine.send_due()
    assert engine.sent(delivery) == [0]  # not again without an answer
    engine.client.rejects.clear()
    engine.know("t")
    assert engine.sent(delivery) == [0, 0]
    assert engine.dead == {}


def test_records_behind_those_that_the_client_rejects_wait_too(engine):
    """It may accept them a moment later."""
    first, second = engine.send_values("t", ["a"]), engine.send_values("t", ["b"])
    engine.client.rejects[first.send_id] = ErrorCode.UNKNOWN_TOPIC
    engine.know("t", DLQ)
    assert (engine.sent(first), engine.sent(second)) == ([0], [])


def test_a_chosen_partition_that_the_topic_does_not_have_gives_a_dead_letter_at_once(engine):
    delivery = engine.send_values("t", ["a"], partition=pa.array([9], pa.int32()))
    engine.client.rejects[delivery.send_id] = ErrorCode.UNKNOWN_PARTITION
    engine.know("t", DLQ)
    assert engine.dead == {("t", "_UNKNOWN_PARTITION"): 1}


def warm(engine):
    """What the engine knows of a topic with six partitions is no longer recent."""
    engine.prefetch(["t", DLQ])
    engine.know("t", DLQ, partitions=6)
    engine.clock.now += RECENT_SECONDS + 1
    return len(engine.client.requests)


@pytest.mark.parametrize("transaction", [None, "an-id"])
@pytest.mark.parametrize("new", [FakeEngine, dead_letter_engine])
def test_a_chosen_partition_may_have_been_added_since_the_latest_answer(new, transaction):
    engine = new(transaction)
    before = warm(engine)
    first = engine.send_values("t", ["a", "b"], partition=pa.array([9, 0], pa.int32()))
    second = engine.send_values("t", ["c"], partition=pa.array([9], pa.int32()))
    assert engine.client.requests[before:] == [(["t"], 5.0)]
    assert engine.client.positions == []
    engine.know("t", partitions=12)
    assert (engine.sent(first), engine.sent(second)) == ([1, 0], [0])
    assert [group.partitions.tolist() for group in engine.client.enqueued] == [[0, 9], [9]]


def test_a_chosen_partition_that_a_recent_answer_lacks_is_the_rows_mistake(engine):
    warm(engine)
    first = engine.send_values("t", ["a"], partition=pa.array([9], pa.int32()))
    engine.client.rejects = dict.fromkeys((1, 3), ErrorCode.UNKNOWN_PARTITION)  # 2: the dead letter
    engine.know("t", partitions=6)
    engine.clock.now += RECENT_SECONDS
    second = engine.send_values("t", ["b"], partition=pa.array([9], pa.int32()))
    assert (engine.sent(first), engine.sent(second)) == ([0], [0])
    assert engine.dead == {("t", "_UNKNOWN_PARTITION"): 2}


def test_without_an_answer_the_client_finds_out_whether_there_is_a_chosen_partition(engine):
    warm(engine)
    delivery = engine.send_values("t", ["a"], partition=pa.array([9], pa.int32()))
    engine.client.rejects[delivery.send_id] = ErrorCode.UNKNOWN_PARTITION
    engine.answer(RequestFailed(ErrorCode.TIMED_OUT, ("t",)))
    assert engine.sent(delivery) == [0]
    assert engine.dead == {("t", "_UNKNOWN_PARTITION"): 1}


def test_only_the_records_whose_partition_was_chosen_become_dead_letters(engine):
    partition = pa.array([None, 9, None, 9], pa.int32())
    delivery = engine.send_values("t", ["a", "b", "c", "d"], partition=partition)
    engine.client.rejects[delivery.send_id] = ErrorCode.UNKNOWN_PARTITION
    engine.client.rejects_all = True
    engine.know("t", DLQ)
    assert engine.dead == {("t", "_UNKNOWN_PARTITION"): 2}
    engine.client.rejects.clear()
    engine.client.unreported.clear()
    engine.client.positions.clear()
    engine.know("t")
    assert engine.sent(delivery) == [0, 2]
    engine.report(delivery, [0, 2])
    assert delivery.is_complete


@pytest.mark.parametrize("columns", [{}, {"partition": pa.array([None, 20], pa.int32())}])
def test_records_of_a_topic_that_has_fewer_partitions_now_are_sent_again(engine, columns):
    """Its metadata is from before it was created again."""
    delivery = engine.send_values("t", ["a", "b"], key=pa.array(["k", "k"]), **columns)
    engine.client.rejects[delivery.send_id] = ErrorCode.UNKNOWN_PARTITION
    engine.know("t", DLQ, partitions=12)
    engine.client.rejects.clear()
    engine.client.unreported.clear()  # the retry waits for the report on the other record
    engine.know("t", DLQ, partitions=6)
    assert (engine.sent(delivery), engine.dead) == ([0, 1, 0], {})
    engine.report(delivery, [0, 1])
    assert delivery.is_complete


def test_records_of_a_missing_topic_do_not_hold_up_those_of_others(engine):
    missing, other = engine.send_values("t", ["a", "b"]), engine.send_values("u", ["c"])
    engine.client.rejects[missing.send_id] = ErrorCode.UNKNOWN_TOPIC
    engine.client.rejects_all = True
    engine.answer(
        *(TopicDescription(topic, 0, 1, (0,)) for topic in ("t", "u")),
        *(ConfigurationDescription(topic, 0, {}) for topic in ("t", "u")),
    )
    assert (engine.sent(missing), engine.sent(other)) == ([0, 1], [0])
