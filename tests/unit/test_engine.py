"""What the client reports, what the brokers answer, and what is sent as a result."""

from __future__ import annotations

import pyarrow as pa
import pytest
from client_events import reported
from fake_engine import FakeEngine

from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import (
    BrokerError,
    ConfigurationDescription,
    RequestFailed,
    TopicDescription,
)
from spark_kafka_sink.producer.deliveries import TooLarge


def known(topic="t"):
    return TopicDescription(topic, 0, 2, (0, 1))


def unknown(topic="t"):
    return TopicDescription(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ())


@pytest.fixture
def engine():
    return FakeEngine(**{"kafka.metadata.evict.ms": "60000"})


def send(engine, topic="t", count=3):
    return engine.send_values(topic, ["v"] * count)


def test_records_without_metadata_are_accepted_and_leave_when_it_arrives(engine):
    request = send(engine)
    assert (request.is_accepted, request.enqueued) == (True, 0)
    assert engine.client.requests[0][0] == ["t"]
    engine.answer(known())
    assert request.is_enqueued
    assert not engine.has_buffered_records


def test_records_of_a_topic_with_metadata_leave_at_once(engine):
    send(engine)
    engine.answer(known())
    assert send(engine).is_enqueued
    assert len(engine.client.requests) == 1


def test_records_leave_in_the_order_of_the_sends_even_if_the_queue_was_full(engine):
    first, second = send(engine, count=5), send(engine, count=2)
    engine.client.room = 3
    engine.answer(known())
    third = send(engine, count=1)
    assert third.is_accepted
    assert (first.enqueued, second.enqueued, third.enqueued) == (3, 0, 0)
    engine.client.room = 100
    engine.send_due()
    ids = [request.delivery.delivery_id for request in (first, second, third)]
    expected = [(ids[0], n) for n in range(5)] + [(ids[1], n) for n in range(2)] + [(ids[2], 0)]
    assert engine.client.enqueued == expected


def test_a_full_queue_accepts_the_first_records_of_a_topic_with_metadata(engine):
    send(engine, count=1)
    engine.answer(known())
    engine.client.room = 2
    request = send(engine, count=5)
    assert (request.delivery.accepted, request.is_accepted) == (2, False)
    engine.client.room = 100
    engine.proceed(request)
    assert request.is_accepted


def test_a_record_that_the_client_rejects_fails_alone(engine):
    engine.client.rejects[1] = ErrorCode.MSG_SIZE_TOO_LARGE
    request = send(engine)
    engine.answer(known())
    assert request.delivery.failed == {(-1, ErrorCode.MSG_SIZE_TOO_LARGE): 1}
    engine.report(request.delivery, [0, 1])
    assert request.delivery.is_complete


def test_records_wait_if_metadata_is_lost_again_before_there_is_room(engine):
    request = send(engine, count=5)
    engine.client.room = 0
    engine.answer(known())
    engine.answer(unknown())
    engine.client.room = 100
    engine.send_due()
    assert request.enqueued == 0


def test_the_first_request_opens_its_topics_so_that_the_client_requests_them_while_connecting(
    engine,
):
    send(engine, "t")
    send(engine, "u")
    assert [topics for topics, _ in engine.client.requests] == [["t"], ["u"]]
    assert engine.client.opened == ["t"]


def test_a_missing_topic_with_records_is_opened_so_that_brokers_create_it(engine):
    engine.prefetch([])
    engine.topics.add(["u"])
    send(engine)
    engine.answer(unknown("t"), unknown("u"))
    assert engine.client.opened == ["t"]


def test_a_request_without_an_answer_delegates_the_records_and_extends_the_timeout(engine):
    request = send(engine)
    engine.answer(RequestFailed(ErrorCode.TRANSPORT, ("t",)))
    assert request.is_enqueued
    assert request.messages.partitioned.partitions.tolist() == [-1]
    for _ in range(4):
        engine.clock.now += 2
        engine.send_due()
        engine.answer(RequestFailed(ErrorCode.TRANSPORT, ("t",)))
    assert [timeout for _, timeout in engine.client.requests] == [5, 10, 20, 20, 20]


def test_a_request_without_an_answer_changes_nothing_for_the_topics_of_another_one(engine):
    send(engine, "t")
    other = send(engine, "u")
    engine.answer(RequestFailed(ErrorCode.TRANSPORT, ("t",)))
    assert other.enqueued == 0  # not delegated: its own request may still be answered
    engine.clock.now += 10
    engine.send_due()
    assert [topics for topics, _ in engine.client.requests] == [["t"], ["u"], ["t"]]


def test_a_lost_broker_makes_all_metadata_stale(engine):
    send(engine, "t")
    send(engine, "u")
    engine.answer(known("t"), known("u"))
    engine.client.requests.clear()
    engine.answer(BrokerError(ErrorCode.TRANSPORT, "connection reset"))
    assert engine.client.requests[0][0] == ["t", "u"]
    assert engine.deliveries.report.broker_error == "connection reset"


def test_the_reason_why_a_broker_was_lost_is_kept_when_all_are_down(engine):
    engine.answer(BrokerError(ErrorCode.ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert engine.deliveries.report.broker_error == "1/1 brokers are down"
    engine.answer(BrokerError(ErrorCode.TRANSPORT, "connection refused"))
    engine.answer(BrokerError(ErrorCode.ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert engine.deliveries.report.broker_error == "connection refused"


@pytest.mark.parametrize(
    ("code", "is_stale"),
    [(ErrorCode.NOT_LEADER_FOR_PARTITION, True), (ErrorCode.MSG_SIZE_TOO_LARGE, False)],
)
def test_a_failure_that_shows_stale_metadata_fetches_it_again(engine, code, is_stale):
    send(engine)
    request = send(engine)
    engine.answer(known())
    engine.client.requests.clear()
    engine.report(request.delivery, [0, 1, 2], code)
    assert bool(engine.client.requests) == is_stale


def test_a_topic_is_forgotten_after_its_last_records_were_reported(engine):
    request = send(engine)
    engine.answer(known())
    engine.clock.now += 100
    engine.send_due()
    assert engine.topics.live() == ["t"]
    engine.report(request.delivery, [0, 1, 2])
    engine.clock.now += 59
    engine.send_due()
    assert engine.topics.live() == ["t"]
    engine.clock.now += 2
    engine.send_due()
    assert engine.topics.live() == []


def test_records_that_await_metadata_fail_as_unsent_when_all_are_dropped(engine):
    request = send(engine)
    engine.abort()
    assert request.delivery.is_complete
    assert engine.deliveries.report.unsent_records == 3
    assert not engine.has_buffered_records


# --- many topics: what a send costs must not depend on their number -------------------------------


class CountingDict(dict):
    """Counts the entries that are looked through."""

    steps = 0

    def _count(self, entries):
        for entry in entries:
            CountingDict.steps += 1
            yield entry

    def __iter__(self):
        return self._count(super().__iter__())

    def items(self):
        return self._count(super().items())

    def values(self):
        return self._count(super().values())


MANY = [f"topic-{number}" for number in range(300)]
DEAD_LETTERS = {"on.record.error": "dead-letter", "dead.letter.topic": "dlq"}


@pytest.fixture(params=[{}, DEAD_LETTERS], ids=["without-dead-letters", "dead-letters"])
def counted(request, monkeypatch):
    """An engine whose tables of topics count steps."""
    engine = FakeEngine(**request.param)
    for owner in (engine.topics, engine.topics.waits):
        for name, table in vars(owner).items():
            if isinstance(table, dict):
                monkeypatch.setattr(owner, name, CountingDict(table))
    monkeypatch.setattr(CountingDict, "steps", 0)
    return engine


def assert_few_steps():
    assert 0 < CountingDict.steps < 20 * len(MANY)  # one look through all per topic: 90,000


def test_sends_to_many_new_topics_do_not_look_through_all_of_them_each_time(counted):
    counted.prefetch(MANY)
    for topic in MANY:
        send(counted, topic)
        counted.send_due()
    assert_few_steps()


def test_answers_about_many_topics_do_not_look_through_all_of_them_each_time(counted):
    counted.prefetch(MANY)
    for topic in MANY:
        send(counted, topic)
    for topic in MANY:
        counted.know(topic)
    assert not counted.has_buffered_records
    assert_few_steps()


def test_sends_that_await_only_limits_do_not_look_through_all_topics_each_time(counted):
    counted.prefetch(MANY)
    counted.answer(*map(known, MANY))
    for topic in MANY:
        send(counted, topic)
        counted.send_due()
    assert_few_steps()


def test_many_missing_topics_are_not_all_looked_through_with_each_answer(counted):
    counted.prefetch(MANY)
    for topic in MANY:
        send(counted, topic)
    for topic in MANY:
        counted.answer(unknown(topic))
    assert_few_steps()


# --- batches that the brokers reject for their size -----------------------------------------------

TOO_LARGE = ErrorCode.MSG_SIZE_TOO_LARGE
#: a record's value; ten of these records do not fit into a batch of the client
LARGE = "v" * 120_000
FORBIDDEN = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def sent(engine, *requests):
    """The positions of each request's records, in the order in which the client got them."""
    return [
        [at for number, at in engine.client.positions if number == request.delivery.delivery_id]
        for request in requests
    ]


def described(partitions=1):
    return TopicDescription("t", 0, partitions, tuple(range(partitions)))


def limits(code=0, **settings):
    return ConfigurationDescription("t", code, settings)


def test_the_first_batch_is_alone_and_all_others_follow_once_it_is_accepted(engine):
    first, second = engine.send_values("t", [LARGE] * 10), engine.send_values("t", [LARGE] * 10)
    engine.answer(described())
    assert sent(engine, first, second) == [list(range(8)), []]
    engine.report(first.delivery, range(8))
    assert sent(engine, first, second) == [list(range(10)), list(range(10))]
    third = engine.send_values("t", [LARGE] * 10)
    assert third.is_enqueued
    assert engine.client.asked_configurations == ["t"]


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_TOPIC, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
def test_a_batch_of_a_topic_that_went_away_says_nothing_about_larger_ones(engine, code):
    lost = engine.send_values("t", [LARGE] * 8)
    engine.answer(described())
    engine.answer(limits(FORBIDDEN))
    engine.report(lost.delivery, range(8), code)
    first, second = engine.send_values("t", [LARGE] * 8), engine.send_values("t", [LARGE] * 8)
    engine.answer(described())
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
    engine.report(first.delivery, range(8))
    assert sent(engine, first, second) == [list(range(10)), list(range(10))]
    assert engine.client.asked_configurations == ["t"]


def test_one_request_asks_for_the_limits_of_all_topics_that_need_them_by_then(engine, monkeypatch):
    requests = []
    monkeypatch.setattr(
        engine.client, "fetch_topic_configurations", lambda topics, _: requests.append(topics)
    )
    topics = ["t", "u", "v"]
    engine.prefetch(topics)
    for topic in topics:
        engine.send_values(topic, [LARGE] * 2)
    engine.answer(*map(known, topics))
    engine.send_due()
    assert requests == [topics]


def test_limits_below_the_first_batch_hold_all_others_until_it_is_reported_and_sent_again(engine):
    first, second = engine.send_values("t", [LARGE] * 8), engine.send_values("t", [LARGE] * 2)
    engine.answer(described())
    engine.answer(limits(**{"max.message.bytes": "300000"}))
    assert sent(engine, first, second) == [list(range(8)), []]
    engine.report(first.delivery, range(8), TOO_LARGE)
    engine.client.positions.clear()
    engine.answer(limits(**{"max.message.bytes": "300000"}))
    for start in range(0, 8, 2):
        part = [start, start + 1]
        assert sent(engine, first, second) == [part, []]
        engine.client.positions.clear()
        engine.report(first.delivery, part)
    assert sent(engine, second) == [[0, 1]]


def test_small_batches_are_not_held_up_before_brokers_have_accepted_any(engine):
    engine.prefetch(["t"])
    engine.answer(described())
    assert all(engine.send_values("t", ["v" * 100]).is_enqueued for _ in range(50))
    assert engine.client.undivided_records == 0
    assert engine.client.asked_configurations == []


def test_one_batch_that_is_larger_than_before_leaves_undivided_and_then_all_are_awaited(engine):
    engine.prefetch(["t"])
    engine.answer(described())
    first = engine.send_values("t", [LARGE] * 2)
    assert engine.client.undivided_records == 2
    engine.report(first.delivery, range(2))
    sends = [engine.send_values("t", ["v" * 100_000]) for _ in range(4)]
    assert [send.is_enqueued for send in sends] == [True, True, True, False]
    assert engine.client.undivided_records == 3
    for send in sends[:3]:
        engine.report(send.delivery, [0])
    assert sends[3].is_enqueued


@pytest.mark.parametrize(
    ("answer", "parts", "undivided"),
    [
        (limits(**{"max.message.bytes": "300000"}), [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]], 0),
        (limits(ErrorCode.TIMED_OUT), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]], 12),
        (limits(FORBIDDEN), [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]], 12),
    ],
    ids=["known", "no-answer", "forbidden"],
)
def test_a_rejected_batch_is_sent_again_in_parts_and_before_later_records(
    engine, answer, parts, undivided
):
    request, later = (engine.send_values("t", [LARGE] * count) for count in (10, 2))
    engine.answer(described())
    engine.client.positions.clear()
    engine.report(request.delivery, range(8), TOO_LARGE)
    assert engine.client.asked_configurations == ["t"]
    assert sent(engine, request) == [[]]  # they wait for the answer
    engine.client.undivided_records = 0
    engine.answer(answer)
    for part in parts:
        assert sent(engine, request, later) == [part, []]
        engine.client.positions.clear()
        engine.report(request.delivery, part)
    assert sent(engine, later) == [[0, 1]]
    assert engine.client.undivided_records == undivided
    assert engine.client.asked_configurations == ["t"]
    assert engine.deliveries.first_failed is None


def test_later_batches_of_a_topic_are_small_too_even_if_its_limits_may_not_be_read(engine):
    request = engine.send_values("t", [LARGE] * 8)
    engine.answer(described())
    engine.report(request.delivery, range(8), TOO_LARGE)
    engine.answer(limits(FORBIDDEN))
    engine.report(request.delivery, range(4), TOO_LARGE)
    for part in ([0, 1], [2, 3], [4, 5], [6, 7]):
        engine.report(request.delivery, part)
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
    ids = request.delivery.delivery_id
    engine.answer(*(reported(ids, p, TOO_LARGE, 8, at) for p, at in enumerate((even, odd))))
    engine.answer(limits(FORBIDDEN))
    assert sent(engine, request) == [[0, 2, 4, 6, 1, 3, 5, 7]]


def test_a_batch_with_a_bad_timestamp_is_halved_until_that_record_fails_alone(engine):
    request = send(engine, count=4)
    engine.answer(described())
    for rejected in ([0, 1, 2, 3], [0, 1], [1]):
        engine.report(request.delivery, rejected, ErrorCode.INVALID_TIMESTAMP)
        engine.answer(limits(FORBIDDEN))
        if rejected == [0, 1]:
            engine.report(request.delivery, [0])
    assert request.delivery.failed == {(0, ErrorCode.INVALID_TIMESTAMP): 1}


def test_a_record_that_is_too_large_for_known_limits_fails_without_being_sent(engine):
    request = engine.send_values("t", [LARGE] * 8)
    engine.answer(described())
    engine.report(request.delivery, range(8), TOO_LARGE)
    engine.answer(limits(**{"max.message.bytes": "300000"}))
    for first in range(0, 8, 2):
        engine.report(request.delivery, [first, first + 1])
    bad = engine.send_values("t", ["a", 3 * LARGE])
    engine.send_due()
    assert sent(engine, bad) == [[0]]
    assert bad.delivery.failed == {(0, TOO_LARGE): 1}
    size = 360_072  # value, 11 bytes of the record, 61 of the batch
    assert bad.delivery.too_large == TooLarge(1, size, 300_000, is_batch=False)


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
    engine.report(request.delivery, [0, 1])
    assert sent(engine, request) == [[0, 1, 2, 3]]


def test_a_rejected_batch_of_a_transaction_is_not_sent_again(transactional):
    engine = transactional
    request = engine.send_values("t", [LARGE] * 4)
    engine.answer(described(), limits(FORBIDDEN))
    engine.report(request.delivery, range(4), TOO_LARGE)
    assert request.delivery.failed == {(0, TOO_LARGE): 4}
    assert request.delivery.too_large.limit_bytes is None
    assert request.delivery.too_large.is_batch
