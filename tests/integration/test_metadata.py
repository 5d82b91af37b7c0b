"""Metadata that changes under a running query: topics come back, partitions grow."""

from __future__ import annotations

import time
from collections import Counter

import pyarrow as pa
import pytest
from waiting import wait_until

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.producer import topic_metadata
from spark_kafka_sink.producer.cache import process_cache
from spark_kafka_sink.spark.task import write_partition

FEW = 5  # micro-batches


@pytest.fixture
def query(spark, tmp_path):
    """A stream of text files to a topic; ``query.write(text)`` is one micro-batch."""
    source = tmp_path / "source"
    source.mkdir()
    lines = spark.readStream.schema("value string").format("text").load(str(source))
    # Every line a hundred times, with keys that spread over all partitions.
    rows = lines.crossJoin(spark.range(100)).selectExpr("value", "cast(id as string) as key")
    started = []

    def start(servers, topic, **options):
        writer = rows.writeStream.format("kafka-nb").options(
            **{
                "kafka.bootstrap.servers": servers,
                "topic": topic,
                "checkpointLocation": str(tmp_path / "checkpoint"),
                **options,
            }
        )
        started.append(writer.start())
        return started[0]

    def write(text):
        part = tmp_path / "part"
        part.write_text(text)
        part.rename(source / f"{text}.txt")
        started[0].processAllAvailable()

    start.write = write
    yield start
    for query in started:
        query.stop()


def test_a_topic_that_was_deleted_and_created_is_written_again(query, bootstrap_servers, topics):
    topic = topics.create(partitions=2)
    query(bootstrap_servers, topic)
    query.write("before")
    assert {r.value for r in topics.read(topic)} == {b"before"}
    topics.delete(topic)
    topics.create(partitions=3, name=topic)
    query.write("after")
    query.write("later")
    assert Counter(r.value for r in topics.read(topic)) == {b"after": 100, b"later": 100}


def test_added_partitions_are_used_within_the_age_of_metadata(query, bootstrap_servers, topics):
    topic = topics.create(partitions=1)
    query(bootstrap_servers, topic, **{"kafka.metadata.max.age.ms": "2000"})
    query.write("before")
    topics.add_partitions(topic, 4)
    time.sleep(2)
    number = 0
    while {r.partition for r in topics.read(topic)} != {0, 1, 2, 3}:
        assert number < FEW  # the first one requests the metadata
        number += 1
        query.write(f"after-{number}")
    assert Counter(r.value for r in topics.read(topic))[f"after-{number}".encode()] == 100


@pytest.mark.parametrize("mode", ["fail", "dead-letter"])
def test_added_partitions_are_used_at_once_by_rows_that_name_them(
    bootstrap_servers, topics, monkeypatch, mode
):
    monkeypatch.setattr(topic_metadata, "RECENT_SECONDS", 1.0)
    topic = topics.create(partitions=1)
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic}
    if mode == "dead-letter":
        options |= {"on.record.error": mode, "dead.letter.topic": topics.create()}

    def write(*partitions):
        values = [b"%d" % number for number in range(len(partitions))]
        rows = pa.record_batch({"value": values, "partition": pa.array(partitions, pa.int32())})
        return write_partition([rows], parse(options))

    try:
        write(0)
        topics.add_partitions(topic, 4)
        wait_until(lambda: len(topics.leaders(topic)) == 4)
        time.sleep(1.1)  # what the producer knows is no longer recent
        report = write(3, 0, 2, 3)
    finally:
        process_cache().close(5)
    assert report.dead_letters == {}
    written = [(r.partition, r.value) for r in topics.read(topic)]
    assert written == [(0, b"0"), (0, b"1"), (2, b"2"), (3, b"0"), (3, b"3")]
