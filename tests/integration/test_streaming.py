"""Streaming queries: output modes, several micro-batches, a restart."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from streams import counts, run, stream_of

import spark_kafka_sink
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import InvalidOption


@pytest.mark.needs_format
def test_append_mode_writes_every_micro_batch(spark, bootstrap_servers, topics, tmp_path):
    topic = topics.create()
    words = stream_of(spark, tmp_path / "in", ["a", "b"], ["c"], ["d", "e", "f"])
    writer = words.writeStream.format("kafka-nb").option("topic", topic)
    query = run(writer.option("kafka.bootstrap.servers", bootstrap_servers), tmp_path)
    assert sorted(r.value for r in topics.read(topic)) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert [p["sink"]["numOutputRows"] for p in query.recentProgress] == [2, 1, 3]


@pytest.mark.needs_format
def test_a_thread_of_ones_own_can_write_once_it_has_registered(spark, bootstrap_servers, topics):
    topic = topics.create()
    writer = spark.range(3).selectExpr("cast(id as string) as value").write.format("kafka-nb")
    writer = writer.option("topic", topic).option("kafka.bootstrap.servers", bootstrap_servers)

    def write():
        spark_kafka_sink.register(spark)
        writer.mode("append").save()

    with ThreadPoolExecutor() as pool:
        pool.submit(write).result(60)
    assert sorted(r.value for r in topics.read(topic)) == [b"0", b"1", b"2"]


@pytest.mark.needs_format
def test_complete_mode_writes_the_full_result_each_time(spark, bootstrap_servers, topics, tmp_path):
    topic = topics.create()
    words = stream_of(spark, tmp_path / "in", ["a", "b"], ["a"])
    writer = counts(words).writeStream.format("kafka-nb").outputMode("complete")
    writer = writer.option("topic", topic).option("kafka.bootstrap.servers", bootstrap_servers)
    run(writer, tmp_path)
    written = sorted((r.key, r.value) for r in topics.read(topic))
    assert written == [(b"a", b"1"), (b"a", b"2"), (b"b", b"1"), (b"b", b"1")]


@pytest.mark.needs_format
def test_update_mode_through_the_format_is_rejected_by_spark(spark, bootstrap_servers, tmp_path):
    words = stream_of(spark, tmp_path / "in", ["a"])
    writer = counts(words).writeStream.format("kafka-nb").outputMode("update").option("topic", "t")
    writer = writer.option("kafka.bootstrap.servers", bootstrap_servers)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match="does not support Update mode"):
        query.awaitTermination(60)


@pytest.mark.needs_format
def test_continuous_processing_commits_no_epoch(spark, bootstrap_servers, topics, tmp_path):
    """Spark passes no rows to Python sinks there, so committed epochs would be lost."""
    rows = spark.readStream.format("rate").option("numPartitions", 1).load()
    writer = rows.selectExpr("string(value) AS value").writeStream.format("kafka-nb")
    writer = writer.option("kafka.bootstrap.servers", bootstrap_servers)
    writer = writer.option("topic", topics.create()).option("checkpointLocation", str(tmp_path))
    query = writer.trigger(continuous="100 milliseconds").start()
    deadline = Deadline(60)
    # Then Spark has tried to commit the first epoch.
    while len(list((tmp_path / "offsets").glob("[0-9]*"))) < 3:
        assert not deadline.expired
        assert query.isActive, query.exception()
        time.sleep(0.1)
    query.stop()
    assert not list((tmp_path / "commits").glob("[0-9]*"))


def test_an_epoch_that_no_task_wrote_is_not_committed():
    pytest.importorskip("pyspark.sql.datasource")
    from spark_kafka_sink.spark.writer import KafkaStreamWriter

    options = parse({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})
    with pytest.raises(InvalidOption, match=r"trigger\(continuous=\.\.\.\) is not supported"):
        KafkaStreamWriter(options).commit([None], 3)
