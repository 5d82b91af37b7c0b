"""The producer's waits are bounded, its failures named, its order kept."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from black_hole import black_hole
from mock_cluster import CONTROLLER, PRODUCE
from mock_reader import read
from waiting import wait_until

from spark_kafka_sink.config import added_settings
from spark_kafka_sink.config.producer_options import BlockBudget
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import (
    BufferExhausted,
    DeadlineExceeded,
    DeliveryFailed,
    InvalidOption,
    MetadataTimeout,
    ProducerClosed,
    TopicUnavailable,
)
from spark_kafka_sink.librdkafka import log_lines
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.error_codes import ErrorCode, error_name
from spark_kafka_sink.librdkafka.events import AcknowledgedRecords
from spark_kafka_sink.producer import topic_metadata
from spark_kafka_sink.producer.producer import NonBlockingProducer
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.rejection import UNKNOWN_ORIGIN

SLACK_SECONDS = 5.0  # for a busy machine; what is broken waits for 10 s and more
NOT_ENOUGH_REPLICAS = 19
REFUSED = "127.0.0.1:1"


def block_budget(max_block_ms=60_000, includes_metadata=True, max_block_metadata_ms=60_000):
    return BlockBudget(max_block_ms, includes_metadata, max_block_metadata_ms)


@contextmanager
def ending_within(seconds, at_least=0.0):
    started = time.monotonic()
    yield
    assert at_least <= time.monotonic() - started < seconds + SLACK_SECONDS


@pytest.fixture
def waits(monkeypatch):
    """For how many seconds clients wait for their events, each time that they do."""
    waits, poll = [], Client.poll

    def note_and_poll(client, seconds=0.0):
        if seconds:
            waits.append(seconds)
        return poll(client, seconds)

    monkeypatch.setattr(Client, "poll", note_and_poll)
    return waits


def is_open(producer):
    try:
        producer.prefetch([])
    except ProducerClosed:
        return False
    return True


def test_flush_reports_records_and_bytes_by_topic_and_begins_again(producer, records, cluster):
    p = producer()
    p.send(records(["aa", "b"], key=pa.array(["k", None])))
    p.send(records(["c"], topic="u"))
    p.flush(10)
    report = p.collect_report()
    assert report.sent_records == {"t": 2, "u": 1}
    assert report.sent_bytes == 5
    assert report.total_failed == 0
    p.flush(0)
    assert p.collect_report().total_sent == 0
    assert [m.value() for m in read(cluster.bootstrap_servers, "t", 2)] == [b"aa", b"b"]


def test_send_waits_while_the_buffer_is_full_and_keeps_the_order(producer, records, cluster):
    p = producer(buffer_memory_bytes=256 * 1024)
    values = [f"{i:06}" for i in range(20_000)]
    p.send(records(values))
    p.flush(10)
    messages = read(cluster.bootstrap_servers, "t", len(values))
    assert [m.value().decode() for m in messages] == values


@pytest.mark.parametrize(
    "code", [ErrorCode.NOT_LEADER_FOR_PARTITION, ErrorCode.REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS]
)
def test_later_records_do_not_acknowledge_earlier_ones(producer, records, cluster, code):
    """A new leader may reject the first requests of a producer, and accept those behind them."""
    p = producer(client={"enable.idempotence": "true", "batch.num.messages": "1"})
    p.send(records(["first"]))
    p.flush(10)
    p.collect_report()
    cluster.set_round_trip(1, 300)  # so that the three are in flight together
    cluster.push_errors(PRODUCE, [code])

    def send_all():
        p.send(records(["a", "b", "c"]))  # which reads reports that have already arrived
        p.flush(10)

    with pytest.raises(DeliveryFailed, match="but not those before them") as raised:
        send_all()
    assert raised.value.code == "_INCONSISTENT"
    assert p.close(5)
    report = p.collect_report()
    assert report.acknowledged_records == {("t", 0): 2}
    assert report.failed_records == {("t", 0, ErrorCode.INCONSISTENT): 1}
    assert report.possibly_persisted_records == 1
    assert [m.value() for m in read(cluster.bootstrap_servers, "t", 3)] == [b"first", b"b", b"c"]


def test_without_acknowledgements_records_need_no_offset(producer, records, cluster):
    p = producer(kafka_acks="0")
    p.send(records(["a", "b"]))
    p.flush(10)
    assert p.collect_report().acknowledged_records == {("t", 0): 2}
    assert [m.value() for m in read(cluster.bootstrap_servers, "t", 2)] == [b"a", b"b"]


def test_topics_of_one_batch_do_not_wait_for_each_other_however_large_it_is(producer, cluster):
    cluster.set_topic_error("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    p = producer(2**20, block_budget(max_block_ms=0, includes_metadata=False))
    columns = {"value": ["a", "b"], "topic": ["missing", "t"], "ignored": ["i" * 2**20, ""]}
    missing, there = [
        p.send(rows) for rows in split_by_topic(pa.record_batch(columns), None).records
    ]
    there.result(10)
    assert not missing.done()


def test_a_buffer_full_of_records_without_metadata_names_their_topic(producer, records, cluster):
    cluster.set_topic_error("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    p = producer(2**20, block_budget(max_block_ms=3000))
    p.send(records(["a"], topic="missing", ignored=pa.array(["i" * 2**20])))
    with pytest.raises(TopicUnavailable, match="missing"):
        p.send(records(["b"]))


@pytest.mark.parametrize(
    ("max_block_ms", "seconds", "code", "error"),
    [
        (60_000, 1, ErrorCode.LEADER_NOT_AVAILABLE, DeadlineExceeded),
        (3000, 10, 38, TopicUnavailable),
    ],
    ids=["flush", "metadata"],
)
def test_the_brokers_last_answer_about_a_topic_is_named(
    producer, records, cluster, max_block_ms, seconds, code, error
):
    cluster.set_topic_error("new", code)
    p = producer(2**20, block_budget(max_block_ms))
    p.send(records(["a"], topic="new"))
    with pytest.raises(error, match=rf"topic new.* \({error_name(code)}\)"):
        p.flush(seconds)


def test_the_wait_for_room_restarts_when_records_are_acknowledged(producer, records, cluster):
    one_by_one = {
        "kafka_batch_num_messages": "1",
        "kafka_max_in_flight_requests_per_connection": "1",
        "kafka_retries": "0",
    }
    p = producer(2**20, block_budget(max_block_ms=800, includes_metadata=False), **one_by_one)
    p.send(records(["first"]))
    p.flush(10)
    cluster.set_round_trip(1, 500)
    large = {"ignored": pa.array(["i" * 700_000] + [""] * 3)}
    p.send(records(list("abcd"), **large))
    started = time.monotonic()
    p.send(records(list("efgh"), **large))
    assert time.monotonic() - started > 1.5
    p.flush(10)


def test_records_do_not_linger_while_others_wait_for_room(producer, records):
    p = producer(2**20, block_budget(max_block_ms=10_000), kafka_linger_ms="60000")
    for letter in "abcd":
        p.send(records([letter * 400_000]))
    p.flush(10)


def test_a_first_batch_does_not_linger_while_others_wait_for_its_report(producer, records):
    p = producer(kafka_linger_ms="60000")
    sends = [p.send(records(["v" * 1000] * 500, key=pa.array(["k"] * 500))) for _ in range(3)]
    wait_until(lambda: p.poll() or sends[0].send.is_complete)
    p.flush(10)


def test_flush_reads_the_next_reports_at_once_while_reports_arrive(
    producer, records, cluster, monkeypatch
):
    calls, flush, poll = [], Client.flush, Client.poll

    def note_and_flush(client, seconds):
        calls.append("flush")
        flush(client, seconds)

    def poll_and_note(client, seconds=0.0):
        events = list(poll(client, seconds))
        calls.extend([type(event) for event in events] or [None])
        return events

    p = producer(kafka_linger_ms="0")
    for number in range(20):
        p.send(records(["v"], topic=f"t{number}"))
    p.flush(10)
    cluster.set_round_trip(1, 2000)  # so that all are acknowledged during the flush
    for number in range(20):
        p.send(records(["v"], topic=f"t{number}"))
    monkeypatch.setattr(Client, "flush", note_and_flush)
    monkeypatch.setattr(Client, "poll", poll_and_note)
    p.flush(10)
    assert AcknowledgedRecords in calls
    assert (AcknowledgedRecords, "flush") not in pairwise(calls)


@pytest.mark.parametrize("max_block_seconds", [0.0, 0.3])
def test_send_gives_up_when_the_buffer_stays_full(producer, records, max_block_seconds):
    budget = block_budget(int(max_block_seconds * 1000), False, 60_000)
    p = producer(256 * 1024, budget, kafka_bootstrap_servers=REFUSED)
    p.send(records(["v"] * 500))
    exhausted = pytest.raises(BufferExhausted, match=r"kafka\.max\.block\.ms")
    with ending_within(max_block_seconds, at_least=max_block_seconds), exhausted:
        p.send(records(["v"] * 1000))
    assert p.collect_report().total_sent == 500


def test_flush_ends_at_the_deadline_and_says_what_is_left_and_why(producer, records):
    p = producer(kafka_bootstrap_servers=REFUSED)
    p.send(records(["v"] * 7))
    p.send(records(["v"] * 3, topic="u"))
    late = pytest.raises(DeadlineExceeded, match="Connection refused")
    with ending_within(0.5, at_least=0.5), late:
        p.flush(0.5)
    p.close(0)
    counts = p.collect_report().counts()
    assert "Of 10 records, 0 were delivered, 0 failed, 10 were not sent" in counts
    assert "(t: 7, u: 3)" in counts


def test_records_in_flight_at_the_deadline_count_as_possibly_arrived(producer, records, cluster):
    p = producer(kafka_linger_ms="0")
    p.send(records(["first"]))
    p.flush(10)
    cluster.set_round_trip(1, 5000)
    p.send(records(["second"]))
    with pytest.raises(DeadlineExceeded):
        p.flush(0.5)
    p.close(0)
    assert "0 were not sent, 1 were in flight and may have arrived" in p.collect_report().counts()


def test_a_rejected_record_fails_the_flush_at_once(producer, records, cluster):
    cluster.push_errors(PRODUCE, [ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    p = producer(kafka_linger_ms="500")  # so that the records make one request
    p.send(records(["v"] * 5))
    started = time.monotonic()
    with pytest.raises(DeliveryFailed) as raised:
        p.flush(30)
    assert time.monotonic() - started < 10
    error = raised.value
    assert (error.topic, error.partition) == ("t", 0)
    assert error.code == "TOPIC_AUTHORIZATION_FAILED"
    assert p.collect_report().total_failed == 5
    assert "topic t partition 0" in str(error)


# in a batch with others, perhaps, and again as a retry
REJECTED_ALONE = [ErrorCode.MSG_SIZE_TOO_LARGE] * 2


def test_a_rejected_record_fails_the_next_send_too(producer, records, cluster):
    cluster.push_errors(PRODUCE, REJECTED_ALONE * 50)
    p = producer(kafka_linger_ms="0")
    p.send(records(["v"]))
    deadline = Deadline(10)

    def send_on():
        while not deadline.expired:
            p.send(records(["w"]))

    with pytest.raises(DeliveryFailed):
        send_on()


def test_what_is_to_be_sent_after_a_rejection_needs_no_call_of_the_task(producer, records, cluster):
    """First the record, since others of its batch may be bad; then its dead letter."""
    p = producer(on_record_error="dead-letter", dead_letter_topic="dead")
    p.send(records(["good"]))
    p.flush(10)
    cluster.push_errors(PRODUCE, REJECTED_ALONE)
    cluster.set_round_trip(1, 200)  # so that only the poller reads the report
    p.send(records(["bad"]))
    wait_until(lambda: p.read_events() or p.is_idle)
    assert p.collect_report().dead_letters == {("t", "MSG_SIZE_TOO_LARGE"): 1}


def test_close_with_records_left_returns_by_its_deadline(new_producer, records):
    p = new_producer(kafka_bootstrap_servers=REFUSED)
    p.send(records(["v"] * 1000))
    with ending_within(0.5):
        assert p.close(0.5)


# --- KIP-286: send returns a handle and never waits for metadata ----------------------------------

SHORT = block_budget(max_block_ms=1000, includes_metadata=False, max_block_metadata_ms=500)


def test_a_delivery_is_done_once_its_records_are_acknowledged(producer, records):
    p = producer()
    sent = p.send(records(["a", "b"]))
    sent.result(10)
    assert sent.done()
    assert not sent.send.failed
    assert sent.send.acknowledged == 2


def test_a_delivery_becomes_done_even_if_nothing_more_is_sent(producer, records):
    sent = producer().send(records(["a"]))
    wait_until(sent.done)
    assert sent.send.acknowledged == 1


def test_each_send_counts_its_own_failures(producer, records, cluster):
    cluster.push_errors(PRODUCE, REJECTED_ALONE)
    p = producer(kafka_linger_ms="500")
    bad = p.send(records(["v"]))
    with pytest.raises(DeliveryFailed, match="MSG_SIZE_TOO_LARGE"):
        bad.result(10)
    p.collect_report()  # the next send would raise it, too
    good = p.send(records(["w"] * 3))
    good.result(10)
    assert bad.send.failed == {(0, ErrorCode.MSG_SIZE_TOO_LARGE): 1}
    assert good.send.acknowledged == 3


def test_a_topic_that_the_client_finds_forbidden_is_reported_so(producer, records, cluster):
    cluster.set_topic_error("forbidden", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    p = producer()
    sent = p.send(records(["v"], topic="forbidden"))
    with pytest.raises(TopicUnavailable, match=r"topic forbidden: .* Grant this user permission"):
        sent.result(10)


def test_records_leave_when_metadata_arrives_even_if_no_more_are_sent(producer, records, cluster):
    cluster.set_down(1)
    p = producer(kafka_reconnect_backoff_max_ms="100")
    sent = p.send(records(["v"] * 10))
    wait_until(lambda: p.collect_report().broker_error or sent.done())
    assert not sent.done()
    cluster.set_up(1)
    sent.result(20)
    assert sent.send.acknowledged == 10


def test_records_leave_when_metadata_arrives_even_if_nobody_calls(producer, records, cluster):
    cluster.set_down(1)
    p = producer(kafka_reconnect_backoff_max_ms="100")
    p.send(records(["v"] * 10))
    cluster.set_up(1)
    assert len(read(cluster.bootstrap_servers, "t", 10)) == 10
    p.flush(10)


def test_records_awaiting_metadata_keep_their_order(producer, records, cluster):
    cluster.create_topic("late")
    cluster.set_topic_error("late", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    p = producer(buffer_memory_bytes=256 * 1024)
    values = [f"{i:05}" for i in range(3000)]
    for first in range(0, 3000, 100):
        if first == 500:
            cluster.set_topic_error("late", 0)
        p.send(records(values[first : first + 100], topic="late"))
    p.flush(20)
    messages = read(cluster.bootstrap_servers, "late", 3000)
    assert [m.value().decode() for m in messages] == values


def test_a_silent_broker_does_not_delay_what_others_accept(producer, records, cluster, monkeypatch):
    monkeypatch.setattr(topic_metadata, "_FIRST_REQUEST_SECONDS", 1.0)
    cluster.set_round_trip(CONTROLLER, 3_600_000)
    p = producer()
    sent = p.send(records(["v"] * 10))
    p.send(records(["w"] * 10))
    sent.result(20)
    p.flush(20)
    p.send(records(["x"] * 10)).result(5)
    values = [m.value() for m in read(cluster.bootstrap_servers, "t", 30)]
    assert values == [b"v"] * 10 + [b"w"] * 10 + [b"x"] * 10


def test_a_large_send_without_keys_reaches_all_partitions_evenly(producer, records, cluster):
    cluster.create_topic("four", partitions=4)
    p = producer()
    p.send(records(["v" * 100] * 9000, topic="four"))
    p.flush(20)
    messages = read(cluster.bootstrap_servers, "four", 9000, 4)
    assert Counter(m.partition() for m in messages) == dict.fromkeys(range(4), 2250)


def test_small_sends_without_keys_spread_evenly_one_partition_per_send(producer, records, cluster):
    cluster.create_topic("four", partitions=4)
    p = producer()
    for _ in range(40):
        p.send(records(["v"] * 10, topic="four"))
        p.flush(10)
    counts = Counter(m.partition() for m in read(cluster.bootstrap_servers, "four", 400, 4))
    assert counts == {0: 100, 1: 100, 2: 100, 3: 100}


def test_records_without_a_key_avoid_partitions_without_a_leader(producer, records, cluster):
    cluster.create_topic("three", partitions=3)
    cluster.set_leader("three", 1, -1)
    p = producer()
    for _ in range(6):
        p.send(records(["v"] * 10, topic="three"))
        p.flush(10)
    counts = Counter(m.partition() for m in read(cluster.bootstrap_servers, "three", 60, 3))
    assert counts == {0: 30, 2: 30}


@pytest.mark.parametrize("waiting_in", ["result", "flush"])
def test_records_without_metadata_fail_in_time_with_their_topic(producer, records, waiting_in):
    p = producer(budget=SHORT, kafka_bootstrap_servers=REFUSED)
    late = pytest.raises(MetadataTimeout, match=r"never within 0\.5 s .*metadata\.ms")
    with ending_within(0.5, at_least=0.5), late as raised:
        sent = p.send(records(["v"], topic="never"))
        {"result": sent.result, "flush": p.flush}[waiting_in](10)
    assert raised.value.topic == "never"


def test_a_shared_budget_bounds_buffer_and_metadata_together(producer, records):
    budget = block_budget(max_block_ms=4000, includes_metadata=True)
    p = producer(256 * 1024, budget, kafka_bootstrap_servers=REFUSED)
    p.send(records(["v"] * 500))
    late = pytest.raises(MetadataTimeout, match=r"kafka\.max\.block\.ms\)")
    with ending_within(4), late:
        p.send(records(["v"] * 1000))


def test_a_send_for_which_there_was_no_room_can_be_repeated(producer, records, cluster):
    p = producer(1_200_000, block_budget(max_block_ms=0, includes_metadata=False))
    first, second = ([letter * 600_000] for letter in "ab")
    cluster.set_round_trip(1, 300)
    p.send(records(first))
    with pytest.raises(BufferExhausted):
        p.send(records(second))
    p.flush(10)
    p.send(records(second)).result(10)
    messages = read(cluster.bootstrap_servers, "t", 2)
    assert [m.value().decode() for m in messages] == [*first, *second]


def test_a_cold_producer_that_never_waits_for_room_still_delivers(producer, records, cluster):
    p = producer(budget=block_budget(0, True, 60_000))
    for number in range(3):
        p.send(records([str(number)]))
    p.flush(10)
    assert len(read(cluster.bootstrap_servers, "t", 3)) == 3


def test_a_budget_of_an_hour_does_not_overflow(producer, records):
    """librdkafka multiplies its own limit by 1000 in 32 bits; our budget must not overflow it."""
    p = producer(budget=block_budget(3_600_000, True, 60_000))
    p.send(records(["v"])).result(10)


@pytest.mark.parametrize("propagation_ms", ["1000", None])
def test_a_topic_that_vanishes_for_a_while_fails_no_record_within_the_budget(
    producer, records, cluster, propagation_ms
):
    """Once a topic is older than librdkafka's own limit, librdkafka fails what is queued."""
    short = {"topic.metadata.propagation.max.ms": propagation_ms}
    p = producer(client=short if propagation_ms else {}, kafka_linger_ms="60000")
    p.send(records(["first"]))
    p.flush(10)
    time.sleep(1.2)  # the age of the topic
    sent = p.send(records(["queued"] * 20))
    cluster.set_topic_error("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    p._engine.topics.request_update("t")
    p.poll()
    # On a busy machine, our answer may arrive some time before librdkafka acts on it.
    wait_until(
        lambda: (
            p.poll()
            or (sent.send.failed if propagation_ms else p._engine.topics.waits.first_failure(0))
        )
    )
    cluster.set_topic_error("t", 0)
    with pytest.raises(DeliveryFailed) if propagation_ms else nullcontext():
        p.flush(20)
    assert bool(sent.send.failed) == bool(propagation_ms)


@pytest.mark.parametrize(("grace_seconds", "has_timestamps"), [(0.0, True), (0.5, False)])
def test_with_dead_letters_the_records_of_a_topic_that_vanishes_for_a_while_keep_their_order(
    producer, records, cluster, monkeypatch, grace_seconds, has_timestamps
):
    """The client drops them if the topic is older than the grace, and rejects more that long."""
    monkeypatch.setattr(added_settings, "MISSING_TOPIC_SECONDS", grace_seconds)
    cluster.create_topic("two", partitions=2)
    p = producer(kafka_linger_ms="60000", on_record_error="dead-letter", dead_letter_topic="dead")

    def some(values):
        times = pa.array([1_000_000] * len(values), pa.timestamp("us"))
        columns = {"timestamp": times} if has_timestamps else {}
        return records(values, topic="two", key=pa.array([v[-1] for v in values]), **columns)

    values = [f"{number:03}" for number in range(100)]
    p.send(some(values[:10]))
    p.flush(20)
    time.sleep(grace_seconds)  # the age of the topic
    p.send(some(values[10:40]))
    p.send(some(values[40:70]))
    cluster.set_topic_error("two", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    p._engine.topics.request_update("two")
    wait_until(lambda: p.poll() or p._engine.has_waiting_records)
    p.send(some(values[70:]))
    cluster.set_topic_error("two", 0)
    p.flush(20)
    report = p.collect_report()
    assert (dict(report.dead_letters), report.total_failed) == ({}, 0)
    read_values = [m.value().decode() for m in read(cluster.bootstrap_servers, "two", 100, 2)]
    for digit in "0123456789":
        assert [v for v in read_values if v[-1] == digit] == values[int(digit) :: 10]


def test_a_send_that_waits_for_room_ends_when_records_fail(producer, records, cluster):
    p = producer(2**20, block_budget(60_000, False, 60_000), kafka_linger_ms="200")
    p.send(records(["first"])).result(10)
    cluster.push_errors(PRODUCE, REJECTED_ALONE)
    p.send(records(["a"], ignored=pa.array(["i" * 700_000])))
    cluster.set_round_trip(1, 300)

    def send_on():
        for _ in range(3):
            p.send(records(["b"], ignored=pa.array(["i" * 700_000])))

    with pytest.raises(DeliveryFailed, match="MSG_SIZE_TOO_LARGE"):
        send_on()


# --- KIP-15: close and flush are bounded ----------------------------------------------------------


def test_a_negative_timeout_is_an_error(producer):
    p = producer()
    with pytest.raises(ValueError, match="0 or more"):
        p.close(-1)
    with pytest.raises(ValueError, match="0 or more"):
        p.flush(-1)


def test_close_sends_what_can_be_sent_in_time(new_producer, records, cluster):
    p = new_producer(kafka_linger_ms="60000")
    sent = p.send(records(["v"] * 100))
    assert p.close(10)
    assert sent.send.acknowledged == 100
    assert len(read(cluster.bootstrap_servers, "t", 100)) == 100


def test_close_zero_fails_all_that_is_left_exactly_once(new_producer, records):
    p = new_producer(kafka_bootstrap_servers=REFUSED)
    sends = [p.send(records(["v"] * 1000, topic=topic)) for topic in ("a", "b")]
    with ending_within(0):
        assert p.close(0)
    assert [sent.send.total_failed for sent in sends] == [1000, 1000]
    assert all(sent.done() for sent in sends)
    assert p.collect_report().unsent_records == 2000


def test_close_twice_does_nothing_more(new_producer, records):
    p = new_producer(kafka_bootstrap_servers=REFUSED)
    p.send(records(["v"]))
    assert p.close(0)
    assert p.close(30)
    assert p.collect_report().total_failed == 1


def test_a_closed_producer_accepts_no_records(new_producer, records):
    p = new_producer()
    p.close(0)
    for use in (lambda: p.send(records(["v"])), lambda: p.flush(1), lambda: p.prefetch(["t"])):
        with pytest.raises(ProducerClosed):
            use()


@pytest.fixture
def nowhere():
    with black_hole() as address:
        yield {
            "refused": REFUSED,
            "unresolvable": "no-such-host.invalid:9092",
            "black-holed": address,
        }


OWN_METADATA_BUDGET = block_budget(60_000, False, 60_000)


@pytest.mark.parametrize("waiting_in", ["flush", "send", "result"])
@pytest.mark.parametrize("timeout_seconds", [0.0, 0.2])
def test_close_from_another_thread_is_in_time_and_wakes_waiting_threads(
    new_producer, records, nowhere, waits, waiting_in, timeout_seconds
):
    address = nowhere["black-holed"]
    for _ in range(10):
        p = new_producer(256 * 1024, OWN_METADATA_BUDGET, kafka_bootstrap_servers=address)
        sent = p.send(records(["v"] * 1000))
        wait = {
            "flush": lambda p=p: p.flush(60),
            "send": lambda p=p: p.send(records(["w"] * 1000)),
            "result": lambda sent=sent: sent.result(60),
        }[waiting_in]
        waits.clear()
        with ThreadPoolExecutor() as pool:
            waiting = pool.submit(wait)
            wait_until(lambda: waits)
            with ending_within(timeout_seconds):
                assert p.close(timeout_seconds)
            with pytest.raises(ProducerClosed):
                waiting.result(10)
        assert sent.send.total_failed == 1000


def test_a_flush_in_another_thread_succeeds_if_close_still_sends_all(new_producer, records):
    p = new_producer(kafka_linger_ms="60000")
    p.send(records(["v"] * 100))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(p.flush, 60)
        assert p.close(10)
        waiting.result(10)


def test_two_threads_may_close_at_once_and_the_shorter_timeout_wins(new_producer, records, nowhere):
    p = new_producer(kafka_bootstrap_servers=nowhere["black-holed"])
    p.send(records(["v"] * 100))
    with ThreadPoolExecutor() as pool:
        patient = pool.submit(p.close, 60)
        wait_until(lambda: not is_open(p))
        assert p.close(0)
        assert patient.result(SLACK_SECONDS)


def test_result_says_that_the_producer_was_closed_unless_the_records_failed_before(
    new_producer, records, cluster
):
    cluster.push_errors(PRODUCE, REJECTED_ALONE)
    cluster.set_topic_error("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    p = new_producer(kafka_linger_ms="500")
    unsent = p.send(records(["w"], topic="missing"))
    rejected = p.send(records(["v"]))
    wait_until(rejected.done)
    assert p.close(0)
    with pytest.raises(DeliveryFailed, match="MSG_SIZE_TOO_LARGE"):
        rejected.result(0)
    with pytest.raises(ProducerClosed):
        unsent.result(0)


def test_a_producer_that_cannot_be_created_frees_its_client(options, monkeypatch):
    made = options(client_rack_variable="RACK").producer
    freed, close = [], Client.close
    monkeypatch.setattr(Client, "close", lambda *arguments: freed.append(close(*arguments)))
    monkeypatch.delenv("RACK", raising=False)
    with pytest.raises(InvalidOption, match="RACK"):
        NonBlockingProducer(made)
    assert freed == [True]


@pytest.mark.parametrize("waiting_in", ["flush", "send"])
def test_a_log_handler_cannot_wait_for_events_of_its_own_thread(producer, records, waiting_in):
    p = producer(kafka_bootstrap_servers=REFUSED)
    use = {"flush": lambda: p.flush(1), "send": lambda: p.send(records(["w"]))}[waiting_in]
    raised = []

    class Using(logging.Handler):
        def emit(self, record):
            try:
                use()
            except RuntimeError as error:
                raised.append(str(error))

    with handling(Using()):
        p.send(records(["v"]))
        wait_until(lambda: p.poll() or raised)
    assert "from a handler of its own events" in raised[0]


def test_reports_that_were_read_before_a_handler_closed_still_count(new_producer, records, cluster):
    """One poll reads the report, then the log line."""
    p = new_producer(kafka_linger_ms="0", kafka_debug="msg")
    sent, closed = p.send(records(["v"] * 10)), []

    class Closing(logging.Handler):
        def emit(self, record):
            if sent.send.acknowledged and not closed:
                closed.append(True)
                p.close(0)

    log = logging.getLogger("spark_kafka_sink.librdkafka")
    log.setLevel(logging.DEBUG)
    try:
        with handling(Closing()):
            sent.result(10)
    finally:
        log.setLevel(logging.NOTSET)
    p.close(0)
    assert p.collect_report().possibly_persisted_records == 0


def test_reports_count_even_if_the_client_stalls_during_the_abort(
    new_producer, records, cluster, monkeypatch
):
    purge, p = Client.purge, new_producer()
    p.send(records(["v"])).result(10)  # so that the client itself accepts the next record
    cluster.set_down(1)
    p.send(records(["w"]))

    def stall(client):
        purge(client)
        time.sleep(1.0)  # more than an abort waits for reports

    monkeypatch.setattr(Client, "purge", stall)
    p.close(0)
    report = p.collect_report()
    assert report.unsent_records == 1
    assert report.possibly_persisted_records == 0


def test_a_handler_that_raises_in_an_abort_keeps_no_thread_out(new_producer, records, monkeypatch):
    p = new_producer(kafka_bootstrap_servers=REFUSED)
    p._engine.sends.admit_unbounded(records(["v"]))  # the abort waits for its report

    def close_while_handling_an_event():
        with p.exclusive_client():
            p.close(0)

    with monkeypatch.context() as patch:
        patch.setattr(Client, "poll", lambda *_: (_ for _ in ()).throw(KeyError))
        with pytest.raises(KeyError):
            close_while_handling_an_event()
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(p.close, 0).result(10)


@pytest.mark.parametrize(
    "call", [lambda p: p.begin_task(UNKNOWN_ORIGIN), lambda p: p.collect_report()]
)
def test_a_task_begins_and_reports_while_no_other_thread_uses_the_producer(producer, call):
    p = producer()
    with ThreadPoolExecutor(1) as pool:
        with p.exclusive_client():
            called = pool.submit(call, p)
            wait_until(lambda: p._lifecycle._requests)
            assert not called.done()
        called.result(10)


@contextmanager
def handling(handler):
    """The handler gets the client's log lines."""
    logger = logging.getLogger("spark_kafka_sink.librdkafka")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("waiting_in", ["result", "send"])
def test_close_while_an_event_is_handled_logs_an_error_and_acts_as_close_zero(
    new_producer, records, caplog, monkeypatch, waiting_in
):
    monkeypatch.setattr(log_lines, "_INTERVAL_SECONDS", 0.1)
    p = new_producer(2**20, kafka_bootstrap_servers=REFUSED)
    sent = p.send(records(["v"] * 10, ignored=pa.array(["i" * 110_000] * 10)))
    waits = {
        "result": lambda: sent.result(10),
        "send": lambda: p.send(records(["there is no room for this"])),
    }[waiting_in]
    took = []

    class Closing(logging.Handler):
        def emit(self, record):
            if not took:
                started = time.monotonic()
                took.append(None)
                p.close(30)
                took[0] = time.monotonic() - started

    with handling(Closing()):
        with pytest.raises(ProducerClosed):
            waits()
        p.close(1)  # the handler may run in the background thread, which then releases access
    assert took[0] < SLACK_SECONDS
    assert "acting as close(0)" in caplog.text
    assert sent.send.total_failed == 10


@pytest.mark.parametrize("kind", ["refused", "unresolvable", "black-holed"])
@pytest.mark.parametrize("timeout_seconds", [0.0, 1.0])
def test_close_is_bounded_whatever_is_wrong_with_the_broker(
    new_producer, records, nowhere, kind, timeout_seconds
):
    p = new_producer(kafka_bootstrap_servers=nowhere[kind])
    sent = p.send(records(["v"] * 100))
    with ending_within(timeout_seconds):
        p.close(timeout_seconds)
    assert sent.send.total_failed == 100


def test_close_is_bounded_when_the_resolver_hangs(new_producer, records, resolver):
    p = new_producer(kafka_bootstrap_servers="example.invalid:9092")
    with resolver.hanging():
        sent = p.send(records(["v"] * 100))
        with ending_within(1):
            assert not p.close(1)  # a thread still runs, and the caller learns it
        assert sent.send.total_failed == 100


def test_two_hundred_open_close_cycles_leave_nothing_behind(new_producer, records):
    def cycle():
        p = new_producer()
        # As many bytes as pause their partition.
        p.send(records(["v" * 200] * 100))
        assert p.close(10)

    def threads_and_files():
        return len([*Path("/proc/self/task").iterdir()]), len([*Path("/proc/self/fd").iterdir()])

    def resident_mib():
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    for _ in range(20):
        cycle()
    before, before_mib = threads_and_files(), resident_mib()
    for _ in range(200):
        cycle()
    after = threads_and_files()
    assert after[0] <= before[0] + 2
    assert after[1] <= before[1] + 2
    assert resident_mib() < before_mib + 20


# --- in flight ------------------------------------------------------------------------------------


def test_without_idempotence_retries_reorder_even_one_request_at_a_time(producer, records, cluster):
    """Why that is rejected: librdkafka sends the next request before it retries the failed one."""
    p = producer(
        client={"max.in.flight.requests.per.connection": "1"},
        kafka_linger_ms="0",
        kafka_batch_num_messages="10",
        kafka_retry_backoff_ms="20",
    )
    p.send(records(["-1"]))
    p.flush(10)
    retriable = ErrorCode.REQUEST_TIMED_OUT
    cluster.push_errors(PRODUCE, [0, retriable, 0, 0, retriable])
    p.send(records([str(i) for i in range(500)]))
    p.flush(20)
    order = [int(m.value()) for m in read(cluster.bootstrap_servers, "t", 501)]
    assert sorted(order) == list(range(-1, 500))
    assert order != sorted(order)


def test_a_flush_waits_briefly_at_first(producer, records, waits):
    """Those of a transaction leave in the second round, when its partitions are part of it."""
    made = producer(kafka_bootstrap_servers=REFUSED)
    made.send(records(["v"]))
    with pytest.raises(DeadlineExceeded):
        made.flush(3)
    assert waits[:6] == pytest.approx([0.001, 0.002, 0.004, 0.008, 0.016, 0.02])
