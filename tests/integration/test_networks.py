"""Connections that fall silent, as behind a load balancer, and brokers whose answers are late."""

from __future__ import annotations

import time

import exactly_once_task
import psutil
import pyarrow as pa
import pytest
import streams

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.errors import DeadlineExceeded
from spark_kafka_sink.producer.cache import process_cache
from spark_kafka_sink.spark.micro_batch import write_batch_marker
from spark_kafka_sink.spark.task import write_partition

SHORT = {"kafka.socket.timeout.ms": "1000"}
DEFAULTS: dict[str, str] = {}
ROWS = 500


@pytest.fixture(autouse=True)
def new_producer(proxy):
    yield
    proxy.delay_seconds = proxy.produce_delay_seconds = 0.0
    process_cache().close(5)


@pytest.fixture
def options(proxied):
    """Options of an at-least-once task."""
    return {"kafka.bootstrap.servers": proxied.bootstrap_servers, "topic": proxied.create()}


@pytest.fixture
def exactly_once(options):
    return options | streams.exactly_once(options["topic"])


def batches(*names):
    for name in names:
        yield pa.record_batch({"value": [f"{name} {number}" for number in range(ROWS)]})


def silent_connections(proxy):
    """Make those silent that this process has now."""
    connections = psutil.Process().net_connections("tcp")
    to_proxy = [
        connection
        for connection in connections
        if connection.raddr and connection.raddr.port == proxy.port
    ]
    return proxy.silent(to={connection.laddr.port for connection in to_proxy}.__contains__)


def values(batches):
    return [value for batch in batches for value in batch["value"].to_pylist()]


def values_in(topics, topic):
    return [record.value.decode() for record in topics.read(topic)]


# --- connections that fall silent -----------------------------------------------------------------


@pytest.mark.parametrize(
    "settings", [SHORT, pytest.param(DEFAULTS, marks=pytest.mark.slow)], ids=["short", "defaults"]
)
def test_a_task_after_silent_connections_writes_records_once(proxy, proxied, options, settings):
    sink_options = parse(options | settings)
    write_partition(batches("before"), sink_options)
    started = time.monotonic()
    with silent_connections(proxy):
        write_partition(batches("after"), sink_options)
    assert time.monotonic() - started < 25
    assert values_in(proxied, options["topic"]) == values(batches("before", "after"))


def test_a_new_topic_needs_no_connection_that_has_not_fallen_silent(proxy, proxied, options):
    write_partition(batches("before"), parse(options | SHORT))
    options["topic"] = proxied.create()
    with silent_connections(proxy):
        write_partition(batches("after"), parse(options | SHORT))
    assert values_in(proxied, options["topic"]) == values(batches("after"))


def test_records_in_flight_when_connections_fall_silent_are_written_once(proxy, proxied, options):
    names = [str(number) for number in range(50)]

    def rows(silence):
        for number, batch in enumerate(batches(*names)):
            if number == len(names) // 2:
                silence.__enter__()
            yield batch

    sink_options = parse(
        options | SHORT | {"kafka.batch.num.messages": "100", "kafka.linger.ms": "0"}
    )
    write_partition(batches("before"), sink_options)
    silence = silent_connections(proxy)
    write_partition(rows(silence), sink_options)
    silence.__exit__(None, None, None)
    assert values_in(proxied, options["topic"]) == values(batches("before", *names))


def test_an_exactly_once_task_survives_silence_of_all_connections(proxy, proxied, exactly_once):
    options = exactly_once | SHORT
    exactly_once_task.write_batches(options, 0, 0, batches("before"))
    write_batch_marker(parse(options), "a-query", 0, 1)
    silences = []

    def rows():
        yield from batches("first")
        silences.append(silent_connections(proxy))
        silences[0].__enter__()
        yield from batches("second")

    exactly_once_task.write_batches(options, 1, 0, rows())
    silences[0].__exit__(None, None, None)
    read = [value.decode() for value in proxied.read_committed(options["topic"])]
    assert read == values(batches("before", "first", "second"))


def test_silence_beyond_the_deadline_fails_only_this_task_and_by_name(proxy, proxied, options):
    sink_options = parse(options | SHORT | {"close.timeout.ms": "2000"})
    write_partition(batches("before"), parse(options | SHORT))
    with proxy.silent(), pytest.raises(DeadlineExceeded, match=r"close\.timeout\.ms"):
        write_partition(batches("meanwhile"), sink_options)
    write_partition(batches("after"), parse(options))
    read = values_in(proxied, options["topic"])
    assert [value for value in read if "meanwhile" not in value] == values(
        batches("before", "after")
    )


# --- answers that are late ------------------------------------------------------------------------

ONE = pa.record_batch({"value": ["late"]})  # so one request: the delays of several add up


@pytest.mark.slow
@pytest.mark.parametrize(
    ("delayed", "seconds"), [("delay_seconds", 5.0), ("produce_delay_seconds", 10.0)]
)
def test_a_late_answer_fails_no_task_and_repeats_nothing(proxy, proxied, options, seconds, delayed):
    sink_options = parse(options)
    write_partition(batches("before"), sink_options)
    setattr(proxy, delayed, seconds)
    write_partition([ONE], sink_options)
    proxy.delay_seconds = proxy.produce_delay_seconds = 0.0
    assert values_in(proxied, options["topic"]) == [*values(batches("before")), "late"]


def test_answers_after_a_requests_timeout_fail_the_task_and_repeat_nothing(proxy, proxied, options):
    sink_options = parse(options | SHORT | {"close.timeout.ms": "4000"})
    write_partition(batches("before"), sink_options)
    proxy.produce_delay_seconds = 3.0  # the client looks at its requests once a second
    with pytest.raises(
        DeadlineExceeded, match=r"set kafka\.request\.timeout\.ms .* 1 were in flight"
    ):
        write_partition([ONE], sink_options)
    proxy.produce_delay_seconds = 0.0
    assert values_in(proxied, options["topic"]) == [*values(batches("before")), "late"]
