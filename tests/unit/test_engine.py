"""What the client reports, what the brokers answer, and what is sent as a result."""

from __future__ import annotations

import pyarrow as pa
import pytest
from client_events import reported
from fake_engine import DEAD_LETTERS, DLQ, FakeEngine, dead_letter_engine

from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import BrokerError, RequestFailed, TopicDescription
from spark_kafka_sink.records.arrow import split_by_topic


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
    assert engine.sent(request) == []
    assert engine.client.requests[0][0] == ["t"]
    engine.answer(known())
    assert engine.sent(request) == [0, 1, 2]
    assert not engine.has_waiting_records


def test_records_of_a_topic_with_metadata_leave_at_once(engine):
    send(engine)
    engine.answer(known())
    assert engine.sent(send(engine)) == [0, 1, 2]
    assert len(engine.client.requests) == 1


def test_records_that_waited_for_metadata_leave_in_the_order_of_the_sends(engine):
    first, second = send(engine, count=5), send(engine, count=2)
    engine.answer(known())
    third = send(engine, count=1)
    ids = [request.send_id for request in (first, second, third)]
    expected = [(ids[0], n) for n in range(5)] + [(ids[1], n) for n in range(2)] + [(ids[2], 0)]
    assert engine.client.positions == expected


def test_a_send_is_accepted_whole_or_not_at_all():
    engine = FakeEngine(**{"kafka.buffer.memory": str(2**20)})
    (large,) = split_by_topic(pa.record_batch({"value": ["v" * 700_000]}), "t").records
    (other,) = split_by_topic(pa.record_batch({"value": ["v" * 200_000] * 2}), "t").records
    first = engine.send(large)
    engine.answer(known())
    assert engine.send(other) is None
    assert sum(engine.sends.report.sent_records.values()) == 1
    engine.report(first, [0])
    second = engine.send(other)
    assert engine.sent(second) == [0, 1]


def test_the_metadata_of_a_topic_is_requested_while_its_records_wait_for_room():
    engine = FakeEngine(**{"kafka.buffer.memory": str(2**20)})
    engine.send_values("t", ["v" * 700_000])
    (other,) = split_by_topic(pa.record_batch({"value": ["v" * 700_000]}), "u").records
    assert engine.send(other) is None
    engine.send_due()
    assert [topics for topics, _ in engine.client.requests] == [["t"], ["u"]]


def test_a_record_that_the_client_rejects_fails_alone(engine):
    engine.client.rejects[1] = ErrorCode.MSG_SIZE_TOO_LARGE
    request = send(engine)
    engine.answer(known())
    assert request.failed == {(-1, ErrorCode.MSG_SIZE_TOO_LARGE): 1}
    engine.report(request, [0, 1])
    assert request.is_complete


@pytest.mark.parametrize("new", [FakeEngine, dead_letter_engine])
def test_a_fatal_error_of_the_client_is_named_before_its_event_is_read(new):
    engine = new()
    text = "Failed to acquire idempotence PID: Broker: Cluster authorization failed"
    engine.client.fatal = BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)
    engine.client.rejects[1] = ErrorCode.FATAL
    rejected = send(engine)
    engine.know("t")
    error = str(engine.send_failure(rejected))
    assert "Cluster authorization failed" in error
    assert "IdempotentWrite" in error
    assert engine.dead == {}


def test_the_first_request_opens_its_topics_so_that_the_client_asks_when_it_connects(engine):
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
    send(engine)
    engine.answer(RequestFailed(ErrorCode.TRANSPORT, ("t",)))
    (passed,) = engine.client.enqueued
    assert passed.partitions.tolist() == [-1]
    for _ in range(4):
        engine.clock.now += 2
        engine.send_due()
        engine.answer(RequestFailed(ErrorCode.TRANSPORT, ("t",)))
    assert [timeout for _, timeout in engine.client.requests] == [5, 10, 20, 20, 20]


def test_a_request_without_an_answer_changes_nothing_for_the_topics_of_another_one(engine):
    send(engine, "t")
    other = send(engine, "u")
    engine.answer(RequestFailed(ErrorCode.TRANSPORT, ("t",)))
    assert engine.sent(other) == []  # not delegated: its own request may still be answered
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
    assert engine.sends.report.broker_error == "connection reset"


def test_the_reason_why_a_broker_was_lost_is_kept_when_all_are_down(engine):
    engine.answer(BrokerError(ErrorCode.ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert engine.sends.report.broker_error == "1/1 brokers are down"
    engine.answer(BrokerError(ErrorCode.TRANSPORT, "connection refused"))
    engine.answer(BrokerError(ErrorCode.ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert engine.sends.report.broker_error == "connection refused"


@pytest.mark.parametrize(
    ("code", "is_stale"),
    [(ErrorCode.NOT_LEADER_FOR_PARTITION, True), (ErrorCode.MSG_SIZE_TOO_LARGE, False)],
)
def test_a_failure_that_shows_stale_metadata_fetches_it_again(engine, code, is_stale):
    send(engine)
    request = send(engine)
    engine.answer(known())
    engine.client.requests.clear()
    engine.report(request, [0, 1, 2], code)
    assert bool(engine.client.requests) == is_stale


def test_a_topic_is_forgotten_after_its_last_records_were_reported(engine):
    request = send(engine)
    engine.answer(known())
    engine.clock.now += 100
    engine.send_due()
    assert engine.topics.live() == ["t"]
    engine.report(request, [0, 1, 2])
    engine.clock.now += 59
    engine.send_due()
    assert engine.topics.live() == ["t"]
    engine.clock.now += 2
    engine.send_due()
    assert engine.topics.live() == []


def test_records_that_await_metadata_fail_as_unsent_when_all_are_dropped(engine):
    request = send(engine)
    engine.abort()
    assert request.is_complete
    assert engine.sends.report.unsent_records == 3
    assert not engine.has_waiting_records


# --- many topics: what a send costs must not depend on their number -------------------------------


def test_an_empty_send_is_complete_at_once_even_if_its_topic_is_missing(engine):
    (records,) = split_by_topic(pa.record_batch({"value": pa.array([], pa.string())}), "t").records
    request = engine.send(records)
    engine.answer(unknown())
    assert request.is_complete
    assert not engine.has_waiting_records
    assert not engine.sends


def test_a_dead_letter_of_a_rejection_reported_during_the_end_counts_as_never_sent():
    engine = dead_letter_engine()
    delivery = engine.send_values("t", ["a"])
    engine.know("t", DLQ)
    assert engine.sent(delivery) == [0]
    engine.abort()
    engine.on_events([reported(delivery.send_id, 0, ErrorCode.INVALID_RECORD, 1, (0,))])
    engine.fail_unreported()
    report = engine.sends.collect_report()
    assert (report.unsent_records, report.possibly_persisted_records) == (1, 0)
    assert not engine.sends


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
    assert not counted.has_waiting_records
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
