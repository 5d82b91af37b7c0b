"""What the client reports, what the brokers answer, and what is sent as a result."""

from __future__ import annotations

import pyarrow as pa
import pytest
from client_events import reported
from fake_client import FakeClient
from fake_clock import FakeClock

from spark_kafka_sink.config.producer_options import ClientSettings, MetadataLifetime
from spark_kafka_sink.connection.oauth_token import TokenFunction
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import (
    BrokerError,
    RequestFailed,
    TopicDescription,
)
from spark_kafka_sink.producer.deliveries import IncompleteDeliveries
from spark_kafka_sink.producer.event_handler import EventHandler
from spark_kafka_sink.producer.send_buffer import SendBuffer, Sending
from spark_kafka_sink.producer.topic_metadata import TopicMetadata
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.partitioner import Partitioner


class Engine:
    """A producer without its waits, on a fake client."""

    def __init__(self):
        self.clock = FakeClock()
        self.client = FakeClient()
        self.deliveries = IncompleteDeliveries(2**20)
        self.topics = TopicMetadata(MetadataLifetime(300_000, 60_000), self.clock)
        self.buffer = SendBuffer(self.client, self.topics, Partitioner())
        self.tokens = TokenFunction(ClientSettings(()))
        self.events = EventHandler(
            self.client, self.deliveries, self.topics, self.buffer, self.tokens
        )

    def send(self, topic="t", count=3):
        (records,) = split_by_topic(pa.record_batch({"value": ["v"] * count}), topic).records
        sending = Sending(self.deliveries.begin(topic), records)
        self.topics.await_metadata(topic)
        self.events.fetch_metadata()
        assert self.deliveries.admit(sending.delivery, records)
        self.events.apply_failures(self.buffer.put(sending))
        if sending.is_accepted:
            self.events.seal(sending.delivery, records.total_bytes)
        return sending

    def tell(self, *events):
        self.client.events += events
        self.events.handle(0.0)

    def report(self, sending, code=0, count=3, partition=0):
        self.tell(reported(sending.delivery.delivery_id, partition, code, count))


def known(topic="t"):
    return TopicDescription(topic, 0, 2, (0, 1))


def unknown(topic="t"):
    return TopicDescription(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0, ())


@pytest.fixture
def engine():
    return Engine()


def test_records_without_metadata_are_accepted_and_leave_when_it_arrives(engine):
    sending = engine.send()
    assert (sending.is_accepted, sending.enqueued) == (True, 0)
    assert engine.client.requests[0][0] == ["t"]
    engine.tell(known())
    assert sending.is_enqueued
    assert not engine.buffer.is_holding


def test_records_of_a_topic_with_metadata_leave_at_once(engine):
    engine.send()
    engine.tell(known())
    assert engine.send().is_enqueued
    assert len(engine.client.requests) == 1


def test_records_leave_in_the_order_of_the_sends_even_if_the_queue_was_full(engine):
    first, second = engine.send(count=5), engine.send(count=2)
    engine.client.room = 3
    engine.tell(known())
    third = engine.send(count=1)
    assert third.is_accepted
    assert (first.enqueued, second.enqueued, third.enqueued) == (3, 0, 0)
    engine.client.room = 100
    engine.events.handle(0.0)
    ids = [sending.delivery.delivery_id for sending in (first, second, third)]
    expected = [(ids[0], n) for n in range(5)] + [(ids[1], n) for n in range(2)] + [(ids[2], 0)]
    assert engine.client.enqueued == expected


def test_a_full_queue_accepts_the_first_records_of_a_topic_with_metadata(engine):
    engine.send(count=1)
    engine.tell(known())
    engine.client.room = 2
    sending = engine.send(count=5)
    assert (sending.delivery.accepted, sending.is_accepted) == (2, False)
    engine.client.room = 100
    engine.events.apply_failures(engine.buffer.put(sending))
    assert sending.is_accepted


def test_a_record_that_the_client_rejects_fails_alone(engine):
    engine.client.rejects[1] = ErrorCode.MSG_SIZE_TOO_LARGE
    sending = engine.send()
    engine.tell(known())
    assert sending.delivery.failed == {(-1, ErrorCode.MSG_SIZE_TOO_LARGE): 1}
    engine.report(sending, count=2)
    assert sending.delivery.is_complete


def test_records_wait_if_metadata_is_lost_again_before_there_is_room(engine):
    sending = engine.send(count=5)
    engine.client.room = 0
    engine.tell(known())
    engine.tell(unknown())
    engine.client.room = 100
    engine.events.handle(0.0)
    assert sending.enqueued == 0


def test_the_first_request_opens_its_topics_so_that_the_client_requests_them_while_connecting(
    engine,
):
    engine.send("t")
    engine.send("u")
    assert [topics for topics, _ in engine.client.requests] == [["t"], ["u"]]
    assert engine.client.opened == ["t"]


def test_a_missing_topic_with_records_is_opened_so_that_brokers_create_it(engine):
    engine.events.connect()
    engine.topics.add(["u"])
    engine.send()
    engine.tell(unknown("t"), unknown("u"))
    assert engine.client.opened == ["t"]


def test_a_request_without_an_answer_delegates_the_records_and_extends_the_timeout(engine):
    sending = engine.send()
    engine.tell(RequestFailed(ErrorCode.TRANSPORT, ("t",)))
    assert sending.is_enqueued
    assert sending.messages.partitioned.partitions.tolist() == [-1]
    for _ in range(4):
        engine.clock.now += 2
        engine.events.handle(0.0)
        engine.tell(RequestFailed(ErrorCode.TRANSPORT, ("t",)))
    assert [timeout for _, timeout in engine.client.requests] == [5, 10, 20, 20, 20]


def test_a_request_without_an_answer_changes_nothing_for_the_topics_of_another_one(engine):
    engine.send("t")
    other = engine.send("u")
    engine.tell(RequestFailed(ErrorCode.TRANSPORT, ("t",)))
    assert other.enqueued == 0  # not delegated: its own request may still be answered
    engine.clock.now += 10
    engine.events.handle(0.0)
    assert [topics for topics, _ in engine.client.requests] == [["t"], ["u"], ["t"]]


def test_a_lost_broker_makes_all_metadata_stale(engine):
    engine.send("t")
    engine.send("u")
    engine.tell(known("t"), known("u"))
    engine.client.requests.clear()
    engine.tell(BrokerError(ErrorCode.TRANSPORT, "connection reset"))
    assert engine.client.requests[0][0] == ["t", "u"]
    assert engine.deliveries.report.broker_error == "connection reset"


def test_the_reason_why_a_broker_was_lost_is_kept_when_all_are_down(engine):
    engine.tell(BrokerError(ErrorCode.ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert engine.deliveries.report.broker_error == "1/1 brokers are down"
    engine.tell(BrokerError(ErrorCode.TRANSPORT, "connection refused"))
    engine.tell(BrokerError(ErrorCode.ALL_BROKERS_DOWN, "1/1 brokers are down"))
    assert engine.deliveries.report.broker_error == "connection refused"


@pytest.mark.parametrize(
    ("code", "is_stale"),
    [(ErrorCode.NOT_LEADER_FOR_PARTITION, True), (ErrorCode.MSG_SIZE_TOO_LARGE, False)],
)
def test_a_failure_that_shows_stale_metadata_fetches_it_again(engine, code, is_stale):
    engine.send()
    sending = engine.send()
    engine.tell(known())
    engine.client.requests.clear()
    engine.report(sending, code)
    assert bool(engine.client.requests) == is_stale


def test_a_topic_is_forgotten_after_its_last_records_were_reported(engine):
    sending = engine.send()
    engine.tell(known())
    engine.clock.now += 100
    engine.events.handle(0.0)
    assert engine.topics.live() == ["t"]
    engine.report(sending)
    engine.clock.now += 59
    engine.events.handle(0.0)
    assert engine.topics.live() == ["t"]
    engine.clock.now += 2
    engine.events.handle(0.0)
    assert engine.topics.live() == []


def test_records_that_await_metadata_fail_as_unsent_when_all_are_dropped(engine):
    sending = engine.send()
    engine.events.apply_failures(engine.buffer.fail_all())
    assert sending.delivery.is_complete
    assert engine.deliveries.report.unsent_records == 3
    assert not engine.buffer.is_holding


def test_a_login_that_brokers_refuse_discards_the_token(engine, monkeypatch):
    discarded = []
    monkeypatch.setattr(engine.tokens, "discard", lambda: discarded.append(1))
    engine.tell(BrokerError(ErrorCode.TRANSPORT, "connection refused"))
    assert discarded == []
    engine.tell(BrokerError(ErrorCode.AUTHENTICATION, "invalid token"))
    assert discarded == [1]
