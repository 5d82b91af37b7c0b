"""Batches that the brokers reject for their size, or because of some of their records."""

from __future__ import annotations

import pyarrow as pa
import pytest
from client_events import reported
from fake_engine import DLQ, FakeEngine, dead_letter_engine

from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import (
    ConfigurationDescription,
    RequestFailed,
    TopicDescription,
)
from spark_kafka_sink.producer.sends import TooLarge

TOO_LARGE = ErrorCode.MSG_SIZE_TOO_LARGE
#: a record's value; ten of these records do not fit into a batch of the client
LARGE = "v" * 120_000
FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED


@pytest.fixture
def engine():
    return FakeEngine()


def sent(engine, *requests):
    """The positions of each request's records, in the order in which the client got them."""
    return [engine.sent(request) for request in requests]


def described(partitions=1, topic="t"):
    return TopicDescription(topic, 0, partitions, tuple(range(partitions)))


def limits(code=0, **settings):
    return ConfigurationDescription("t", code, settings)


def test_the_first_batch_is_alone_and_all_others_follow_once_it_is_accepted(engine):
    first, second = engine.send_values("t", [LARGE] * 10), engine.send_values("t", [LARGE] * 10)
    engine.answer(described())
    assert sent(engine, first, second) == [list(range(8)), []]
    engine.report(first, range(8))
    assert sent(engine, first, second) == [list(range(10)), list(range(10))]
    third = engine.send_values("t", [LARGE] * 10)
    assert engine.sent(third) == list(range(10))
    assert engine.client.asked_configurations == ["t"]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_batch_of_a_topic_that_went_away_says_nothing_about_larger_ones(engine, code):
    lost = engine.send_values("t", [LARGE] * 8)
    engine.answer(described())
    engine.answer(limits(FORBIDDEN))
    engine.report(lost, range(8), code)
    first, second = engine.send_values("t", [LARGE] * 8), engine.send_values("t", [LARGE] * 8)
    engine.answer(described())
    assert sent(engine, first, second) == [list(range(8)), []]


def test_a_record_that_the_client_rejects_says_nothing_about_larger_batches(engine):
    engine.prefetch(["t"])
    engine.answer(described())
    engine.client.rejects[1] = TOO_LARGE
    rejected = engine.send_values("t", [5 * LARGE, "v"])
    engine.answer(limits(FORBIDDEN))
    engine.report(rejected, [1])
    first, second = engine.send_values("t", [LARGE] * 8), engine.send_values("t", [LARGE] * 8)
    assert sent(engine, first, second) == [list(range(8)), []]


def test_nothing_awaits_the_first_batch_once_the_limits_are_known(engine):
    first, second = engine.send_values("t", [LARGE] * 10), engine.send_values("t", [LARGE] * 10)
    engine.answer(described())
    engine.send_due()
    assert engine.client.asked_configurations == ["t"]
    engine.answer(limits(**{"max.message.bytes": "1048588"}))
    assert sent(engine, first, second) == [list(range(10)), list(range(10))]


def test_limits_that_may_not_be_read_are_asked_for_once_and_the_first_batch_is_awaited(engine):
    first, second = engine.send_values("t", [LARGE] * 10), engine.send_values("t", [LARGE] * 10)
    engine.answer(described())
    engine.answer(limits(FORBIDDEN))
    assert sent(engine, first, second) == [list(range(8)), []]
    engine.report(first, range(8))
    assert sent(engine, first, second) == [list(range(10)), list(range(10))]
    assert engine.client.asked_configurations == ["t"]


def test_one_request_asks_for_the_limits_of_all_topics_that_need_them_by_then(engine, monkeypatch):
    requests = []
    monkeypatch.setattr(
        engine.client, "describe_topic_configs", lambda topics, _: requests.append(topics)
    )
    topics = ["t", "u", "v"]
    engine.prefetch(topics)
    for topic in topics:
        engine.send_values(topic, [LARGE] * 2)
    engine.answer(*(described(topic=topic) for topic in topics))
    engine.send_due()
    assert requests == [topics]


def test_limits_below_the_first_batch_hold_all_others_until_it_is_reported_and_sent_again(engine):
    first, second = engine.send_values("t", [LARGE] * 8), engine.send_values("t", [LARGE] * 2)
    engine.answer(described())
    engine.answer(limits(**{"max.message.bytes": "300000"}))
    assert sent(engine, first, second) == [list(range(8)), []]
    engine.report(first, range(8), TOO_LARGE)
    engine.client.positions.clear()
    engine.answer(limits(**{"max.message.bytes": "300000"}))
    for start in range(0, 8, 2):
        part = [start, start + 1]
        assert sent(engine, first, second) == [part, []]
        engine.client.positions.clear()
        engine.report(first, part)
    assert sent(engine, second) == [[0, 1]]


def test_small_batches_are_not_held_up_before_brokers_have_accepted_any(engine):
    engine.prefetch(["t"])
    engine.answer(described())
    assert all(engine.sent(engine.send_values("t", ["v" * 100])) == [0] for _ in range(50))
    assert engine.client.paused_records == 0
    assert engine.client.asked_configurations == []


def test_one_batch_that_is_larger_than_before_leaves_undivided_and_then_all_are_awaited(engine):
    engine.prefetch(["t"])
    engine.answer(described())
    first = engine.send_values("t", [LARGE] * 2)
    assert engine.client.paused_records == 2
    engine.report(first, range(2))
    sends = [engine.send_values("t", ["v" * 100_000]) for _ in range(4)]
    assert sent(engine, *sends) == [[0], [0], [0], []]
    assert engine.client.paused_records == 3
    for send in sends[:3]:
        engine.report(send, [0])
    assert engine.sent(sends[3]) == [0]


@pytest.mark.parametrize(
    ("answer", "parts", "undivided"),
    [
        (limits(**{"max.message.bytes": "300000"}), [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]], 8),
        (limits(ErrorCode.TIMED_OUT), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]], 12),
        (limits(FORBIDDEN), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]], 12),
        (limits(), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]], 12),
    ],
    ids=["known", "no-answer", "forbidden", "not-said"],
)
def test_a_rejected_batch_is_sent_again_in_parts_before_others(engine, answer, parts, undivided):
    request, later = (engine.send_values("t", [LARGE] * count) for count in (10, 2))
    engine.answer(described())
    engine.client.positions.clear()
    engine.report(request, range(8), TOO_LARGE)
    assert engine.client.asked_configurations == ["t"]
    assert sent(engine, request) == [[]]  # they wait for the answer
    engine.client.paused_records = 0
    engine.answer(answer)
    for part in parts:
        assert sent(engine, request, later) == [part, []]
        engine.client.positions.clear()
        engine.report(request, part)
    assert sent(engine, later) == [[0, 1]]
    assert engine.client.paused_records == undivided
    assert engine.client.asked_configurations == ["t"]
    assert engine.sends.first_failed is None


def test_later_batches_of_a_topic_are_small_too_even_if_its_limits_may_not_be_read(engine):
    request = engine.send_values("t", [LARGE] * 8)
    engine.answer(described())
    engine.report(request, range(8), TOO_LARGE)
    engine.answer(limits(FORBIDDEN))
    engine.report(request, range(4), TOO_LARGE)
    for part in ([0, 1], [2, 3], [4, 5], [6, 7]):
        engine.report(request, part)
    later = engine.send_values("t", [LARGE] * 4)
    engine.send_due()
    assert sent(engine, later) == [[0, 1]]
    assert engine.client.asked_configurations == ["t"]


def test_rejected_batches_of_several_partitions_are_sent_again_side_by_side(engine):
    numbers = pa.array([0, 1] * 8, pa.int32())
    request = engine.send_values("t", [LARGE] * 16, partition=numbers)
    engine.answer(described(2))
    engine.client.positions.clear()
    engine.client.unreported["t"] -= 16
    even, odd = tuple(range(0, 16, 2)), tuple(range(1, 16, 2))
    ids = request.send_id
    engine.answer(*(reported(ids, p, TOO_LARGE, 8, at) for p, at in enumerate((even, odd))))
    engine.answer(limits(FORBIDDEN))
    assert sent(engine, request) == [[0, 2, 4, 6, 1, 3, 5, 7]]


UNNAMED = [ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD]


@pytest.mark.parametrize("code", UNNAMED)
def test_a_batch_with_a_bad_record_is_halved_until_that_record_fails_alone(engine, code):
    request = engine.send_values("t", ["v"] * 4)
    engine.answer(described())
    for rejected in ([0, 1, 2, 3], [0, 1], [1]):
        engine.report(request, rejected, code)
        engine.answer(limits(FORBIDDEN))
        if rejected == [0, 1]:
            engine.report(request, [0])
    assert request.failed == {(0, code): 1}


def test_a_record_that_is_too_large_for_known_limits_fails_without_being_sent(engine):
    request = engine.send_values("t", [LARGE] * 8)
    engine.answer(described())
    engine.report(request, range(8), TOO_LARGE)
    engine.answer(limits(**{"max.message.bytes": "300000"}))
    for first in range(0, 8, 2):
        engine.report(request, [first, first + 1])
    bad = engine.send_values("t", ["a", 3 * LARGE])
    engine.send_due()
    assert sent(engine, bad) == [[0]]
    assert bad.failed == {(0, TOO_LARGE): 1}
    size = 360_072  # value, 11 bytes of the record, 61 of the batch
    assert bad.too_large == TooLarge(1, size, "max.message.bytes", 300_000, is_batch=False)


@pytest.fixture
def transactional():
    return FakeEngine(transaction="an-id")


def test_a_transaction_knows_the_limits_before_it_sends(transactional):
    engine = transactional
    request = engine.send_values("t", [LARGE] * 4)
    engine.answer(described())
    assert sent(engine, request) == [[]]
    engine.answer(limits(**{"max.message.bytes": "300000"}))
    assert sent(engine, request) == [[0, 1]]
    engine.report(request, [0, 1])
    assert sent(engine, request) == [[0, 1, 2, 3]]


@pytest.mark.parametrize("answer", [limits(FORBIDDEN), limits()])
def test_a_rejected_batch_of_a_transaction_is_not_sent_again(transactional, answer):
    engine = transactional
    request = engine.send_values("t", [LARGE] * 4)
    engine.answer(described(), answer)
    engine.report(request, range(4), TOO_LARGE)
    assert request.failed == {(0, TOO_LARGE): 4}
    assert request.too_large.limit_bytes is None
    assert request.too_large.is_batch


def rejected_together(engine, *value_bytes, code):
    """Sends of one record, which the client has put into one batch that brokers reject."""
    engine.prefetch(["t"])
    engine.answer(described())
    sends = [engine.send_values("t", ["v" * size]) for size in value_bytes]
    engine.client.positions.clear()
    engine.client.unreported["t"] -= len(sends)
    engine.answer(*(reported(s.send_id, 0, code, 1, (0,)) for s in sends))
    return sends


@pytest.mark.parametrize("code", [TOO_LARGE, *UNNAMED])
@pytest.mark.parametrize("answer", [limits(FORBIDDEN), limits(**{"max.message.bytes": "100000"})])
def test_the_only_record_of_its_send_in_a_rejected_batch_is_sent_again_alone(engine, code, answer):
    """The client fills a batch with several sends."""
    small, large = rejected_together(engine, 10_000, 95_000, code=code)
    engine.answer(answer)
    assert sent(engine, small, large) == [[0], []]
    engine.report(small, [0])
    assert sent(engine, small, large) == [[0], [0]]
    engine.report(large, [0], code)
    assert small.failed == {}
    assert large.failed == {(0, code): 1}


def test_a_small_share_of_a_rejected_batch_does_not_keep_later_batches_small(engine):
    """Nobody may read the topic's limits, so only the batch that was rejected hints at them."""
    small, large = rejected_together(engine, 100, 95_000, code=TOO_LARGE)
    engine.answer(limits(FORBIDDEN))
    engine.report(small, [0])
    engine.report(large, [0], TOO_LARGE)
    later = engine.send_values("t", ["v" * 100] * 100)
    assert sent(engine, later) == [list(range(100))]


# --- with a topic for dead letters ----------------------------------------------------------------


DELEGATED = RequestFailed(ErrorCode.TRANSPORT, ("t",))


def test_a_delegated_topic_gets_no_batch_larger_than_was_accepted_before(engine):
    """Its partitions cannot be held, so the client may divide what it has."""
    first, second = engine.send_values("t", ["v" * 6_000] * 4), engine.send_values("t", [LARGE])
    engine.answer(DELEGATED)
    assert sent(engine, first, second) == [[0, 1], []]
    engine.report(first, [0, 1])
    assert sent(engine, first, second) == [[0, 1, 2, 3], []]
    engine.report(first, [2, 3])
    assert sent(engine, first, second) == [[0, 1, 2, 3], [0]]
    assert not engine.client.paused_records


def test_what_a_delegated_topic_still_has_to_send_is_checked_once_there_are_partitions():
    """With limits that are known by then, no bad record costs the order of the good ones."""
    engine = dead_letter_engine(**{"kafka.max.request.size": "300000"})
    values = ["v" * 400_000, "v" * 6_000, "v" * 6_000, LARGE, "v" * 200_000, "v" * 7_000]
    columns = {"partition": pa.array([0, 1, 0, 1, 0, 1], pa.int32())}
    request = engine.send_values("t", values, **columns)
    engine.answer(DELEGATED)
    assert engine.sent(request) == [1, 2]
    engine.know("t", partitions=2, max_message_bytes="150000")
    engine.report(request, [2], partition=0)
    engine.report(request, [1], partition=1)
    assert engine.sent(request) == [1, 2, 3, 5]
    assert engine.dead == {("t", "MSG_SIZE_TOO_LARGE"): 2}
    engine.report(request, [3, 5], partition=1)
    assert request.outstanding == 0


def test_a_record_that_was_too_large_alone_says_nothing_about_larger_batches():
    engine = dead_letter_engine()
    large = engine.send_values("t", ["v" * 600_000])
    engine.answer(TopicDescription("t", 0, 1, (0,)))
    engine.answer(ConfigurationDescription("t", ErrorCode.REQUEST_TIMED_OUT, {}))
    engine.report(large, [0], ErrorCode.MSG_SIZE_TOO_LARGE)
    engine.answer(ConfigurationDescription("t", ErrorCode.REQUEST_TIMED_OUT, {}))
    engine.report(large, [0], ErrorCode.MSG_SIZE_TOO_LARGE)  # as a resend of its own
    engine.know(DLQ)
    assert engine.dead == {("t", "MSG_SIZE_TOO_LARGE"): 1}
    engine.client.positions.clear()
    batch, later = (
        engine.send_values("t", ["v" * 600_000]),
        engine.send_values("t", ["v" * 500_000]),
    )
    assert (engine.sent(batch), engine.sent(later)) == ([0], [])
    engine.report(batch, [0])
    assert engine.sent(later) == [0]


@pytest.mark.parametrize(("code", "error"), [(code, code.name) for code in UNNAMED])
def test_the_good_records_of_a_rejected_batch_are_sent_again_before_later_ones(code, error):
    """The bad one is not: brokers name it."""
    engine = dead_letter_engine()
    first = engine.send_values("t", ["a", "b", "c"])
    engine.know("t", DLQ)
    engine.report(first, [1], code, is_named=True)
    engine.report(first, [0, 2], ErrorCode.INVALID_DIFFERENT_RECORD)
    later = engine.send_values("t", ["d"])
    engine.know("t")  # its limits were requested again
    assert engine.sent(first) == [0, 1, 2, 0, 2]
    assert engine.sent(later) == []
    engine.report(first, [0, 2])
    assert engine.sent(later) == [0]
    assert engine.dead == {("t", error): 1}


def test_records_are_sent_again_in_the_order_of_their_sends():
    engine = dead_letter_engine()
    first, second = engine.send_values("t", ["a", "b"]), engine.send_values("t", ["c"])
    engine.know("t", DLQ)
    # Two batches were in flight; the later one is reported first.
    engine.report(second, [0], ErrorCode.INVALID_DIFFERENT_RECORD)
    engine.report(first, [0, 1], ErrorCode.INVALID_DIFFERENT_RECORD)
    engine.client.positions.clear()
    engine.know("t")
    assert (engine.sent(first), engine.sent(second)) == ([0, 1], [])
    engine.report(first, [0, 1])
    assert engine.sent(second) == [0]
