"""Quotas: brokers that throttle the sink delay their answers, up to the task's deadlines."""

from __future__ import annotations

import re
import subprocess
import time

import psutil
import pytest
from pyspark.errors import StreamingQueryException
from streams import direct, run, stream_of

from spark_kafka_sink.errors import sink_error
from spark_kafka_sink.tools.local_kafka import LocalKafka

BYTES_PER_SECOND = 20_000
SECONDS = 120.0
# So brokers hold answers back for many seconds: a window is as long as a delay may be.
WINDOW = {"quota.window.num": "2", "quota.window.size.seconds": "1"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def kafka():
    with LocalKafka(settings=WINDOW) as kafka:
        # confluent_kafka and kafka-python set no quotas; the broker's own Java has what does.
        command = psutil.Process(kafka.pids[0]).cmdline()
        java = [command[0], "-cp", command[command.index("-cp") + 1], "kafka.admin.ConfigCommand"]
        alter = ["--alter", "--entity-type", "clients", "--entity-default", "--add-config"]
        quota = f"producer_byte_rate={BYTES_PER_SECOND}"
        servers = ["--bootstrap-server", kafka.bootstrap_servers]
        subprocess.run([*java, *servers, *alter, quota], check=True, timeout=SECONDS)
        yield kafka


@pytest.fixture
def several_arrow_batches(spark):
    """In a Spark partition of 1,200 rows."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "500")
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def words(count):
    return [f"{number} {'x' * 990}" for number in range(count)]


def write(spark, kafka, api, folder, rows, **more):
    """Two micro-batches; compressed records would be too small to be throttled."""
    options = {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.compression.type": "none",
        "kafka.max.request.size": "4000",
        **more,
    }
    writer = stream_of(spark, folder / "in", *rows).coalesce(1).writeStream
    writer = direct(writer, api, options)
    run(writer, folder)


def check_that_it_is_complete(spark, kafka, topics, api, folder, **options):
    topic = topics.create()
    batches = [words(100), words(101)[100:]]
    started = time.monotonic()
    write(spark, kafka, api, folder, batches, topic=topic, **options)
    # 100 kB at 20 kB/s; what a window allows at once comes first.
    assert time.monotonic() - started > 100_000 / BYTES_PER_SECOND / 2
    values = [value.decode() for value in topics.read_committed(topic)]
    assert values == [word for batch in batches for word in batch]


def test_a_stream_that_is_throttled_is_slow_and_complete(spark, kafka, topics, tmp_path):
    check_that_it_is_complete(spark, kafka, topics, "foreach_batch", tmp_path)


def test_requests_that_time_out_because_of_quotas_are_repeated(spark, kafka, topics, tmp_path):
    options = {"kafka.request.timeout.ms": "1000", "close.timeout.ms": "60000"}
    check_that_it_is_complete(spark, kafka, topics, "exactly-once", tmp_path, **options)


EXPIRING = {"kafka.delivery.timeout.ms": "3000", "kafka.request.timeout.ms": "2000"}
# It holds one Arrow batch, and brokers delay each request for most of a second.
FULL_BUFFER = {
    "kafka.max.request.size": "50000",
    "kafka.buffer.memory": "1100000",
    "kafka.max.block.ms": "300",
    "kafka.max.block.ms.include.metadata": "false",
}


@pytest.mark.usefixtures("several_arrow_batches")
@pytest.mark.parametrize(
    ("api", "options", "reason"),
    [
        ("format", {"close.timeout.ms": "2000"}, r"DeadlineExceeded: .*close\.timeout\.ms.*quotas"),
        ("exactly-once", EXPIRING, r"DeliveryFailed: .*kafka\.delivery\.timeout\.ms.*quotas"),
        ("foreach_batch", FULL_BUFFER, r"BufferExhausted: .*kafka\.max\.block\.ms.*quotas"),
        (
            "exactly-once",
            {"kafka.transaction.timeout.ms": "5000"},
            r"TransactionTimeout: .*kafka\.transaction\.timeout\.ms=5000",
        ),
    ],
)
def test_throttling_beyond_a_deadline_fails_the_task_by_name(
    spark, kafka, topics, tmp_path, api, options, reason
):
    if api == "exactly-once":
        # If brokers delay the abort for longer than a task waits, they do it themselves.
        options = {"kafka.transaction.timeout.ms": "20000", **options}
    topic = topics.create()
    rows = words(1200)
    started = time.monotonic()
    with pytest.raises(StreamingQueryException) as raised:
        write(spark, kafka, api, tmp_path, [rows], topic=topic, **options)
    assert time.monotonic() - started < SECONDS
    error = sink_error(str(raised.value))
    assert re.match(reason, error)
    values = [value.decode() for value in topics.read_committed(topic)]
    if api == "exactly-once":
        assert values == []
    else:
        delivered = int(re.search(r"(\d+) were delivered", error)[1])
        in_flight = int(re.search(r"(\d+) were in flight", error)[1])
        assert values == rows[: len(values)]
        assert delivered <= len(values) <= delivered + in_flight
