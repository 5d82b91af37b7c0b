"""The producer's waits are bounded, its failures named, its order kept."""

from __future__ import annotations

import time

import pyarrow as pa
import pytest
from mock_reader import read

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import BufferExhausted, DeadlineExceeded, DeliveryFailed
from spark_kafka_sink.librdkafka.mock_cluster import PRODUCE
from spark_kafka_sink.producer import NonBlockingProducer

TOPIC_AUTHORIZATION_FAILED = 29
SLACK_SECONDS = 1.0


@pytest.fixture
def producer(options):
    made = []

    def make(buffer_memory_bytes=64 * 1024 * 1024, **settings):
        client = options(**settings).client
        made.append(NonBlockingProducer(client, buffer_memory_bytes))
        return made[-1]

    yield make
    for each in made:
        assert each.close(Deadline(5))


def test_flush_reports_rows_and_bytes_by_topic_and_begins_anew(producer, records, cluster):
    p = producer()
    p.send(records(["aa", "b"], key=pa.array(["k", None])), max_block_seconds=1)
    p.send(records(["c"], topic="u"), max_block_seconds=1)
    report = p.flush(Deadline(10))
    assert report.sent_rows == {"t": 2, "u": 1}
    assert report.sent_bytes == 5
    assert report.total_failed == 0
    assert p.flush(Deadline(0)).total_sent == 0
    assert [m.value() for m in read(cluster.bootstrap_servers, "t", 2)] == [b"aa", b"b"]


def test_send_waits_while_the_buffer_is_full_and_keeps_the_order(producer, records, cluster):
    p = producer(buffer_memory_bytes=256 * 1024)
    values = [f"{i:06}" for i in range(20_000)]
    p.send(records(values), max_block_seconds=5)
    p.flush(Deadline(10))
    messages = read(cluster.bootstrap_servers, "t", len(values))
    assert [m.value().decode() for m in messages] == values


@pytest.mark.parametrize("max_block_seconds", [0.0, 0.3])
def test_send_gives_up_when_the_buffer_stays_full(producer, records, max_block_seconds):
    p = producer(buffer_memory_bytes=256 * 1024, kafka_bootstrap_servers="127.0.0.1:1")
    started = time.monotonic()
    with pytest.raises(BufferExhausted, match=r"kafka\.max\.block\.ms=.*1024 rows wait"):
        p.send(records(["v"] * 2000), max_block_seconds)
    assert max_block_seconds <= time.monotonic() - started < max_block_seconds + SLACK_SECONDS


def test_flush_ends_at_the_deadline_and_says_what_is_left_and_why(producer, records):
    p = producer(kafka_bootstrap_servers="127.0.0.1:1")
    p.send(records(["v"] * 7), max_block_seconds=1)
    p.send(records(["v"] * 3, topic="u"), max_block_seconds=1)
    started = time.monotonic()
    with pytest.raises(DeadlineExceeded) as raised:
        p.flush(Deadline(0.5))
    assert 0.5 <= time.monotonic() - started < 0.5 + SLACK_SECONDS
    message = str(raised.value)
    assert "Connection refused" in message
    assert "Of 10 rows 0 were delivered, 0 failed, 10 were not sent" in message
    assert "(t: 7, u: 3)" in message


def test_rows_in_flight_at_the_deadline_may_have_arrived_and_are_told_apart(
    producer, records, cluster
):
    p = producer(kafka_linger_ms="0")
    p.send(records(["first"]), max_block_seconds=1)
    p.flush(Deadline(10))
    cluster.set_round_trip(1, 5000)
    p.send(records(["second"]), max_block_seconds=1)
    with pytest.raises(DeadlineExceeded, match="0 were not sent, 1 were in flight and may have"):
        p.flush(Deadline(0.5))


def test_a_refused_row_fails_the_flush_at_once(producer, records, cluster):
    cluster.push_errors(PRODUCE, [TOPIC_AUTHORIZATION_FAILED])
    p = producer(kafka_linger_ms="500")  # so that the rows make one request
    p.send(records(["v"] * 5), max_block_seconds=1)
    started = time.monotonic()
    with pytest.raises(DeliveryFailed) as raised:
        p.flush(Deadline(30))
    assert time.monotonic() - started < 10
    error = raised.value
    assert (error.topic, error.partition) == ("t", 0)
    assert error.code == "TOPIC_AUTHORIZATION_FAILED"
    assert (error.delivered_rows, error.failed_rows) == (0, 5)
    assert "topic t partition 0" in str(error)


def test_a_refused_row_fails_the_next_send_too(producer, records, cluster):
    cluster.push_errors(PRODUCE, [TOPIC_AUTHORIZATION_FAILED])
    p = producer(kafka_linger_ms="0")
    p.send(records(["v"]), max_block_seconds=1)
    deadline = Deadline(10)

    def send_on():
        while not deadline.expired:
            p.send(records(["w"]), max_block_seconds=1)

    with pytest.raises(DeliveryFailed):
        send_on()


def test_close_with_rows_left_returns_by_its_deadline(options, records):
    settings = options(kafka_bootstrap_servers="127.0.0.1:1").client
    p = NonBlockingProducer(settings, 64 * 1024 * 1024)
    p.send(records(["v"] * 1000), max_block_seconds=1)
    started = time.monotonic()
    assert p.close(Deadline(2))
    assert time.monotonic() - started < 2 + SLACK_SECONDS
