"""The same on every broker: make test-brokers."""

from __future__ import annotations

import json
import random
from base64 import b64encode

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from restarted_stream import EXACTLY_ONCE, FORMAT, RestartedStream
from streams import run, stream_of
from topics import Record

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.__main__ import main
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.errors import DeliveryFailed
from spark_kafka_sink.spark.writer import write_partition

pytestmark = pytest.mark.slow

SCHEMA = """
    key string, value string, headers array<struct<key: string, value: binary>>, topic string,
    partition int, timestamp_ms bigint
"""
AT_MS = 1_700_000_000_000
FUTURE_MS = 4_000_000_000_000


@pytest.fixture
def options(broker):
    return {"kafka.bootstrap.servers": broker.bootstrap_servers}


@pytest.fixture(params=["format", "foreach_batch"])
def write(request, options, tmp_path):
    """Runs the micro-batches of a stream that are left, from the same checkpoint each time."""

    def write(rows, **added):
        every = options | {name.replace("_", "."): value for name, value in added.items()}
        if request.param == "format":
            return run(rows.writeStream.format("kafka-nb").options(**every), tmp_path)
        return run(rows.writeStream.foreachBatch(foreach_batch(every)), tmp_path)

    return write


def stream_of_rows(spark, folder, *batches):
    """A micro-batch of one task for each list of rows, which are values by column."""
    lines = stream_of(spark, folder, *([json.dumps(row) for row in batch] for batch in batches))
    rows = lines.select(F.from_json("value", SCHEMA).alias("row")).select("row.*")
    return (
        rows.withColumn("at", F.timestamp_millis("timestamp_ms")).drop("timestamp_ms").coalesce(1)
    )


def row_of(record):
    """The row that becomes this record."""

    def text(data, encode=bytes):
        return None if data is None else encode(data).decode()

    return {
        "key": text(record.key),
        "value": text(record.value),
        "headers": [{"key": k, "value": text(v, b64encode)} for k, v in record.headers] or None,
        "topic": record.topic,
        "partition": record.partition,
        "timestamp_ms": record.timestamp_ms,
    }


def values(records):
    return [record.value.decode() for record in records]


def test_rows_arrive_with_all_columns(spark, topics, write, tmp_path):
    names = [topics.create(3), topics.create(3)]
    headers = ((), (("h", b"\x00\xff"),), (("h", b"1"), ("h", None), ("i", b"")))
    records = [
        Record(
            topic=names[number // 3 % 2],
            partition=number % 3,
            offset=number // 6,
            key=[None, b"", b"key %d" % number][number % 5 % 3],
            value=None if number % 7 == 0 else b"value %d" % number,
            headers=headers[number % 4 % 3],
            timestamp_ms=AT_MS + number,
        )
        for number in range(6_000)
    ]
    rows = [row_of(record) for record in records]
    write(stream_of_rows(spark, tmp_path / "in", rows[:4_000], rows[4_000:]), timestamp_column="at")
    assert topics.read(*names) == sorted(records)


def test_a_restarted_query_continues_where_it_stopped(spark, topics, write, tmp_path):
    topic = topics.create()
    write(stream_of(spark, tmp_path / "in", ["a", "b"], ["c"]), topic=topic)
    write(stream_of(spark, tmp_path / "in", ["d"]), topic=topic)
    assert values(topics.read(topic)) == ["a", "b", "c", "d"]


def test_rows_go_to_the_topics_of_their_column_in_order(spark, topics, write, tmp_path):
    names = [topics.create() for _ in range(20)]
    rows = [{"topic": names[number % 20], "value": f"{number}"} for number in range(10_000)]
    write(stream_of_rows(spark, tmp_path / "in", rows))
    for number, name in enumerate(names):
        assert values(topics.read(name)) == [f"{n}" for n in range(number, 10_000, 20)]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_too_large_without_compression_is_stored_with_it(topics, options, compression):
    topic = topics.create(1, {"max.message.bytes": "5000"})
    row = "x" * 20_000
    sink_options = parse(options | {"topic": topic, "kafka.compression.type": compression})
    batch = pa.record_batch({"value": [row]})
    if compression == "none":
        with pytest.raises(DeliveryFailed, match=r"Raise the topic's max\.message\.bytes"):
            write_partition([batch], sink_options)
    else:
        write_partition([batch], sink_options)
        assert values(topics.read(topic)) == [row]


def test_exactly_once_with_failures_restarts_and_more_partitions(spark, topics, write, tmp_path):
    topic = topics.create(2)
    batches = [[f"{batch}-{number:03}" for number in range(1_000)] for batch in range(3)]

    def stored():
        return sorted(value.decode() for value in topics.read_committed(topic))

    def run_with(partitions, *added, value="value"):
        rows = stream_of(spark, tmp_path / "in", *added).repartition(partitions, "value")
        options = {"delivery.guarantee": "exactly-once", "exactly.once.partitions": partitions}
        write(rows.selectExpr(f"{value} AS value"), topic=topic, **options)

    failing = "IF(value = '1-500', raise_error('the upstream failed'), value)"
    with pytest.raises(StreamingQueryException, match="the upstream failed"):
        run_with(2, *batches[:2], value=failing)
    # The other task of micro-batch 1 may have committed.
    assert stored()[:1_000] == batches[0]
    assert len(stored()) < 2_000
    run_with(2)
    assert stored() == [*batches[0], *batches[1]]
    run_with(3, batches[2])
    assert stored() == [*batches[0], *batches[1], *batches[2]]


def test_rejected_rows_are_dead_letters_others_keep_order(spark, broker, topics, write, tmp_path):
    config = {"cleanup.policy": "compact", "max.message.bytes": "100000"}
    if broker.kind.timestamp_limit:
        config[broker.kind.timestamp_limit] = "3600000"
    topic, letters = topics.create(1, config), topics.create(1)
    faults = {
        "NULL_TOPIC": {"topic": None},
        "UNKNOWN_TOPIC_OR_PART": {"topic": "missing"},
        "_UNKNOWN_PARTITION": {"partition": 9},
        "MSG_SIZE_TOO_LARGE": {"size": 200_000},
    }
    if broker.kind.requires_keys:
        faults["INVALID_RECORD"] = {"key": None}
    if broker.kind.timestamp_limit:
        faults["INVALID_TIMESTAMP"] = {"timestamp_ms": FUTURE_MS}
    pick = random.Random(0)
    rows, good, rejections = [], [], {}
    for number in range(20_000):
        row = {"key": f"{number}", "value": f"{number}", "topic": topic}
        rows.append(row)
        if number % 100 == 50:
            rejections[row["value"]] = error = pick.choice(sorted(faults))
            row |= faults[error]
            row["value"] += "x" * row.pop("size", 0)
        else:
            good.append(row["value"])
    write(
        stream_of_rows(spark, tmp_path / "in", rows[:5_000], rows[5_000:]),
        on_record_error="dead-letter",
        dead_letter_topic=letters,
        timestamp_column="at",
    )
    assert values(topics.read(topic)) == good
    errors = {
        letter.value.decode().rstrip("x"): dict(letter.headers)["kafka-nb.error"].decode()
        for letter in topics.read(letters)
    }
    assert errors == rejections


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_doctor_finds_only_that_there_is_one_broker(topics, options, capsys, guarantee):
    sink_options = options | {"topic": topics.create(2), "delivery.guarantee": guarantee}
    words = [f"--option={name}={value}" for name, value in sink_options.items()]
    assert main(["doctor", "--write-test-record", *words]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    outcomes = {words[1]: words[0] for words in lines if words[0] in {"passed", "warned"}}
    expected = {"test_record": "passed", "in_sync_replicas": "warned"}
    if guarantee == "exactly-once":
        expected |= {"transaction": "passed", "coordinators": "warned"}
    assert expected.items() <= outcomes.items()
    assert list(outcomes.values()).count("warned") == list(expected.values()).count("warned")


@pytest.mark.parametrize("api", [FORMAT, EXACTLY_ONCE])
def test_a_broker_that_is_killed_is_an_error_in_time_and_the_query_can_go_on(
    spark, broker, topics, options, tmp_path, api
):
    topic = topics.create()
    sink_options = options | {
        "topic": topic,
        "kafka.max.block.ms": "5000",
        "close.timeout.ms": "5000",
    }
    stream = RestartedStream(spark, tmp_path, api)
    try:
        stream.start(sink_options)
        stream.write("a")
        broker.kill()
        error = stream.error(lambda: stream.write("b"))
        broker.restart()
        stream.start(sink_options)
        stream.write("c")
    finally:
        stream.stop()
    name, _, message = error.partition(": ")
    assert name in {"DeadlineExceeded", "MetadataTimeout"}
    assert "5 s" in message
    assert [value.decode() for value in topics.read_committed(topic)] == ["a", "b", "c"]
