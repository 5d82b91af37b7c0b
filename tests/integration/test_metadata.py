"""Metadata that changes under a running query: leaders move, topics come back, partitions grow."""

from __future__ import annotations

import signal
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from local_cluster import LocalCluster
from pyspark.sql import functions as F
from topics import Topics

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.tools.local_servers.processes import send_signal

ROWS = 100_000


@pytest.fixture
def three_brokers():
    with LocalCluster(brokers=3) as kafka:
        topics = Topics(kafka.bootstrap_servers)
        yield kafka, topics


def test_a_leader_that_moves_mid_stream_loses_no_record_and_fails_no_task(spark, three_brokers):
    """Spark runs every task only once here, so that a failed attempt would fail the query."""

    def slowly(batches):  # so that the stream lasts some seconds
        for batch in batches:
            time.sleep(0.05)
            yield batch

    kafka, topics = three_brokers
    topic = topics.create(partitions=6, replicas=3)
    rows = spark.range(ROWS, numPartitions=2).select(F.col("id").cast("string").alias("value"))
    rows = rows.mapInArrow(slowly, "value string")
    writer = rows.write.format("kafka-nb").mode("append").options(
        **{"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
    )  # fmt: skip

    def stop_a_leader():
        topics.wait_for_rows(topic)
        leader = topics.leaders(topic)[0]
        send_signal(kafka.pids[leader - 1], signal.SIGTERM)
        return leader

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    with ThreadPoolExecutor() as pool:
        stopped = pool.submit(stop_a_leader)
        try:
            writer.save()
        finally:
            spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert topics.leaders(topic)[0] not in (stopped.result(), -1)
    counts = Counter(record.value for record in topics.read(topic))
    assert counts == Counter(str(i).encode() for i in range(ROWS))


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


def test_a_topic_deleted_and_created_again_during_a_query_is_written_again(
    query, bootstrap_servers, topics
):
    topic = topics.create(partitions=2)
    query(bootstrap_servers, topic)
    query.write("before")
    assert {r.value for r in topics.read(topic)} == {b"before"}
    topics.delete(topic)
    topics.create(partitions=3, name=topic)
    query.write("after")
    query.write("later")
    assert Counter(r.value for r in topics.read(topic)) == {b"after": 100, b"later": 100}


def test_added_partitions_are_used_within_the_maximum_age_of_metadata(
    query, bootstrap_servers, topics
):
    topic = topics.create(partitions=1)
    query(bootstrap_servers, topic, **{"kafka.metadata.max.age.ms": "2000"})
    query.write("before")
    topics.add_partitions(topic, 4)
    deadline, number = Deadline(2 + 5), 0
    while {r.partition for r in topics.read(topic)} != {0, 1, 2, 3}:
        assert not deadline.expired
        number += 1
        query.write(f"after-{number}")
    assert Counter(r.value for r in topics.read(topic))[f"after-{number}".encode()] == 100
