"""Streams that are slow on purpose: the terminal's summary and the page say what takes the time."""

from __future__ import annotations

import html
import re
import time

import pytest
from pyspark.sql import functions as F
from streams import run, stream_of

from spark_kafka_sink.__main__ import main

SLOW_SECONDS = 1.5
PARTITIONS = 4
ROWS = 2_000


@pytest.fixture
def explain(spark, proxied, tmp_path, capsys):
    """Write a micro-batch of a DataFrame with keys; returns what is said about its slowness."""

    def explain(change=lambda rows: rows, **options):
        topic = proxied.create(partitions=PARTITIONS)
        rows = stream_of(spark, tmp_path / "in", [str(number) for number in range(ROWS)])
        rows = rows.repartition(2).withColumnRenamed("value", "key")
        rows = change(rows.withColumn("value", F.col("key")))
        writer = rows.writeStream.format("kafka-nb").option("topic", topic)
        writer = writer.option("kafka.bootstrap.servers", proxied.bootstrap_servers)
        folder = tmp_path / "reports"
        run(writer.options(**options).option("report.path", str(folder)), tmp_path)
        page = tmp_path / "page.html"
        assert main(["report", str(folder), "--html", str(page)]) == 0
        said = " ".join(re.sub("[│|]", " ", capsys.readouterr().out).split())
        on_page = " ".join(html.unescape(re.sub("<[^>]*>", "", page.read_text())).split())
        return said, on_page

    return explain


def assert_both_say(texts, sentence):
    for text in texts:
        assert re.search(sentence, text), text


def test_a_slow_broker(explain, proxy):
    proxy.produce_delay_seconds = SLOW_SECONDS
    assert_both_say(explain(), r"Waiting for acknowledgements takes \d+ % of the tasks' time")


def test_a_small_buffer(explain, proxy, spark):
    proxy.produce_delay_seconds = SLOW_SECONDS / 4
    small = {"kafka.buffer.memory": str(2**20)}
    # A batch is accepted whole if there is room at its beginning.
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    try:
        texts = explain(lambda rows: rows.withColumn("value", F.repeat("value", 1000)), **small)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert_both_say(texts, r"Waiting for room in the buffer takes \d+ % of the tasks' time")


def test_a_slow_source(explain):
    @F.udf("string")
    def slowly(value):
        time.sleep(4 * SLOW_SECONDS / ROWS)
        return value

    texts = explain(lambda rows: rows.withColumn("value", slowly("value")))
    assert_both_say(texts, "Waiting for rows from Spark takes .* not for Kafka")


def test_slow_metadata(explain, proxy):
    proxy.metadata_delay_seconds = SLOW_SECONDS
    texts = explain(**{"kafka.client.id": "new"})  # no producer of an earlier test
    assert_both_say(texts, r"Waiting for metadata takes \d+ % of the tasks' time")
