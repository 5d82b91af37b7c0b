"""Which records become dead letters, and what becomes of those, on a fake client."""

from __future__ import annotations

import re

import pytest
from fake_engine import DLQ, dead_letter_engine

from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import FailedRecords, TopicDescription


@pytest.fixture
def engine():
    return dead_letter_engine()


def test_a_rejected_record_becomes_a_dead_letter_and_the_delivery_is_complete(engine):
    engine.know("t", DLQ)
    delivery = engine.send_values("t", ["a", "b", "c"])
    engine.know("t", DLQ)
    engine.report(delivery, [1], ErrorCode.INVALID_RECORD, is_named=True)
    engine.know(DLQ)
    engine.report(delivery, [0, 2])
    assert delivery.is_complete
    assert engine.dead == {("t", "INVALID_RECORD"): 1}
    assert engine.sends.first_failed is None
    assert engine.sends.topics == {DLQ: 1}  # not acknowledged yet


def test_dead_letters_add_only_their_own_bytes_to_the_buffer(engine):
    letters, record_bytes = 20, 600_000
    delivery = engine.send_values("t", ["v" * record_bytes] * (letters + 1))
    engine.know("t", DLQ, max_message_bytes="1048588")
    for position in range(letters):  # each alone, as a broker reports them
        engine.report(delivery, [position], ErrorCode.INVALID_RECORD, is_named=True)
    peak = engine.sends.report.buffer_peak_bytes
    batch = (letters + 1) * record_bytes
    assert batch < peak < batch + 100_000
    engine.report(delivery, [letters])
    engine.know(DLQ, max_message_bytes="1048588")
    for number, position in engine.client.positions[letters + 1 :]:
        engine.report(engine.sends.find(number), [position])
    assert not engine.sends
    engine.send_values("t", ["v" * record_bytes] * letters)
    assert engine.sends.report.buffer_peak_bytes == peak  # all of it was given back


def test_a_forbidden_topic_gives_dead_letters_at_once(engine):
    engine.send_values("t", ["a", "b"])
    engine.answer(TopicDescription("t", ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0, ()))
    assert engine.dead == {("t", "TOPIC_AUTHORIZATION_FAILED"): 2}


def test_a_rejected_dead_letter_is_a_failure(engine):
    delivery = engine.send_values("t", ["a"])
    engine.know("t", DLQ)
    engine.report(delivery, [0], ErrorCode.INVALID_RECORD, is_named=True)
    engine.know(DLQ)
    (dead_letter,) = (number for number, _ in engine.client.positions if number != delivery.send_id)
    delivery_found = engine.sends.find(dead_letter)
    engine.report(delivery_found, [0], ErrorCode.MSG_SIZE_TOO_LARGE)
    engine.know(DLQ)
    engine.report(delivery_found, [0], ErrorCode.MSG_SIZE_TOO_LARGE)  # as a retry of its own
    assert engine.sends.first_failed is delivery_found
    said = r"outside Spark, row 0 of topic t \(INVALID_RECORD: topic t partition 0: .*"
    assert re.fullmatch(said, delivery_found.dead_letter)


def test_a_rejected_record_of_the_topic_for_dead_letters_that_is_none_is_not_called_one(engine):
    engine.know(DLQ)
    delivery = engine.send_values(DLQ, ["a"])
    engine.report(delivery, [0], ErrorCode.INVALID_RECORD, is_named=True)
    engine.know(DLQ)
    engine.report(delivery, [0], ErrorCode.INVALID_RECORD, is_named=True)
    assert engine.sends.first_failed is delivery
    assert delivery.dead_letter == ""


def test_other_errors_stay_failures(engine):
    delivery = engine.send_values("t", ["a"])
    engine.know("t", DLQ)
    engine.client.unreported["t"] -= 1
    timed_out = ErrorCode.REQUEST_TIMED_OUT
    engine.answer(FailedRecords(delivery.send_id, 0, timed_out, True, 1))
    assert engine.sends.first_failed is delivery
    assert engine.dead == {}


def test_bytes_of_dead_letters_do_not_count_as_sent(engine):
    engine.know("t", DLQ)
    delivery = engine.send_values("t", ["aaa", "bb", "c"])
    engine.know("t", DLQ)
    assert engine.sends.report.sent_bytes_by_topic["t"] == 6
    engine.report(delivery, [1], ErrorCode.INVALID_RECORD, is_named=True)
    assert engine.sends.report.sent_bytes_by_topic["t"] == 4


# --- in a transaction ----------------------------------------------------------------------------


@pytest.fixture
def transactional():
    engine = dead_letter_engine(transaction="an-id")
    engine.prefetch(["t", DLQ])
    engine.know(DLQ)
    return engine


@pytest.mark.parametrize("code", [ErrorCode.INVALID_RECORD, ErrorCode.UNKNOWN_TOPIC])
def test_a_transaction_does_not_survive_what_is_rejected_later(transactional, code):
    engine = transactional
    engine.know("t")
    delivery = engine.send_values("t", ["a", "b"])
    assert engine.sent(delivery) == [0, 1]
    engine.report(delivery, [0, 1], code)
    assert delivery.failed == {(0, code): 2}
    assert engine.dead == {}
