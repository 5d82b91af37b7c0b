"""KafkaSinkListener in real sessions: what it reports is what is in Kafka."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections import Counter
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pyspark.sql import functions as F
from streams import run, stream_of
from waiting import wait_until

from spark_kafka_sink import KafkaSinkListener, foreach_batch

APP = Path(__file__).parent.parent / "support" / "listener_app.py"
SECONDS = 60.0  # for Spark's events, which arrive later than the query ends


@pytest.fixture
def listen(spark):
    """Add a listener to the session for the time of the test."""
    added = []

    def listen(listener):
        spark.streams.addListener(listener)
        added.append(listener)
        return listener

    yield listen
    for listener in added:
        spark.streams.removeListener(listener)


def wait_for_end(listener):
    def has_ended():
        return values(scrape(listener), "spark_streaming_query_active") == {None: 0}

    wait_until(has_ended, SECONDS)  # there is no event when Spark has called its listeners


def scrape(listener):
    with (
        listener.serve_metrics(0) as server,
        urllib.request.urlopen(server.url, timeout=SECONDS) as answer,
    ):
        return list(text_string_to_metric_families(answer.read().decode()))


def values(families, name, label=None):
    """The values of a metric, by a label or altogether."""
    totals = Counter()
    for sample in (sample for family in families for sample in family.samples):
        if sample.name == name:
            totals[sample.labels[label] if label else None] += sample.value
    return dict(totals)


def check(listener, topics, first, second):
    """Three micro-batches, with 300 and 20, no, and 5 records for the two topics."""
    assert {query for query, _ in listener._values()} == {"orders"}
    written = topics.read(first, second)
    scraped = scrape(listener)
    assert values(scraped, "kafka_producer_record_send_total", "topic") == Counter(
        record.topic for record in written
    )
    sent_bytes = values(scraped, "kafka_producer_byte_total")[None]
    assert sent_bytes == sum(len(record.value) for record in written)
    assert sum(values(scraped, "kafka_producer_record_error_total").values()) == 0
    assert values(scraped, "spark_streaming_input_rows_total") == {None: 326}
    outcomes = values(scraped, "spark_kafka_sink_micro_batches_total", "outcome")
    assert outcomes == {"delivered": 3, "failed": 0}
    age = time.time() - values(scraped, "spark_kafka_sink_last_delivery_timestamp_seconds")[None]
    assert 0 <= age < 600
    tasks = values(scraped, "spark_kafka_sink_tasks_total")[None]
    producers = values(scraped, "spark_kafka_sink_producers_created_total")[None]
    producers += values(scraped, "spark_kafka_sink_producers_reused_total")[None]
    assert tasks == producers > 0


@pytest.fixture
def words(spark, topics, tmp_path):
    """The stream of ``check``, and its topics."""
    first, second = topics.create(partitions=3), topics.create()
    batches = [["1"] * 300 + ["2"] * 20, ["none"], ["2"] * 5]
    lines = stream_of(spark, tmp_path / "in", *batches).where("value != 'none'")
    name = F.when(F.col("value") == "1", first).otherwise(second)
    return lines.repartition(2).withColumn("topic", name), first, second


def test_progress_is_joined_with_foreach_batch(listen, words, bootstrap_servers, topics, tmp_path):
    rows, first, second = words
    listener = listen(KafkaSinkListener())
    sink = foreach_batch({"kafka.bootstrap.servers": bootstrap_servers}, listener.on_report)
    run(rows.writeStream.queryName("orders").foreachBatch(sink), tmp_path)
    wait_for_end(listener)
    check(listener, topics, first, second)


def test_progress_is_joined_with_the_reports_of_the_format(
    listen, words, bootstrap_servers, topics, tmp_path
):
    rows, first, second = words
    folder = tmp_path / "reports"
    listener = listen(KafkaSinkListener(report_path=folder))
    writer = rows.writeStream.format("kafka-nb").queryName("orders")
    writer = writer.option("kafka.bootstrap.servers", bootstrap_servers)
    run(writer.option("report.path", str(folder)), tmp_path)
    wait_for_end(listener)
    check(listener, topics, first, second)


def test_a_micro_batch_that_fails_is_told(spark, listen, bootstrap_servers, topics, tmp_path):
    topic, folder = topics.create(), tmp_path / "reports"
    listener = listen(KafkaSinkListener(folder))
    lines = stream_of(spark, tmp_path / "in", ["good"], ["bad"])
    name = F.when(F.col("value") == "good", topic)  # null for others: InvalidRecord
    writer = lines.withColumn("topic", name).writeStream.format("kafka-nb").queryName("orders")
    writer = writer.option("kafka.bootstrap.servers", bootstrap_servers)
    writer = writer.option("report.path", str(folder)).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception, match="null topic"):
        query.awaitTermination(60)
    wait_for_end(listener)
    scraped = scrape(listener)
    outcomes = values(scraped, "spark_kafka_sink_micro_batches_total", "outcome")
    assert outcomes == {"delivered": 1, "failed": 1}
    assert values(scraped, "spark_streaming_query_failures_total") == {None: 1}
    assert values(scraped, "spark_streaming_query_active") == {None: 0}


def test_the_lag_of_a_kafka_source_is_told(spark, listen, bootstrap_servers, topics, tmp_path):
    source, target = topics.create(), topics.create()
    options = {"kafka.bootstrap.servers": bootstrap_servers}
    lines = spark.range(30).selectExpr("string(id) AS value")
    writer = lines.write.format("kafka-nb").options(**options).option("topic", source)
    writer.mode("append").save()
    reader = spark.readStream.format("kafka").options(**options).option("subscribe", source)
    reader = reader.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 10)
    listener = listen(KafkaSinkListener())
    sink = foreach_batch({**options, "topic": target}, listener.on_report)
    rows = reader.load().select("value")
    run(rows.writeStream.queryName("orders").foreachBatch(sink), tmp_path)
    wait_for_end(listener)
    scraped = scrape(listener)
    assert values(scraped, "spark_streaming_max_offsets_behind_latest") == {None: 0}
    assert values(scraped, "kafka_producer_record_send_total", "topic") == {target: 30}


@pytest.mark.slow
@pytest.mark.timeout(360)
def test_a_listener_under_connect_reads_the_servers_reports(bootstrap_servers, topics, tmp_path):
    topic = topics.create()
    command = [sys.executable, str(APP), bootstrap_servers, topic, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=340, check=False)
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout.splitlines()[-1])
    assert shown["records"] == {"format": 3, "foreach_batch": 3}
    assert "set the option report.path" in shown["rejection"]
    assert len(topics.read(topic)) == 6
