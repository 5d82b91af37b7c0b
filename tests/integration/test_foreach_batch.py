"""foreach_batch: update mode, reports in the user's process, errors before any row moves."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter

import pytest
from pyspark.sql import functions as F
from streams import counts, run, stream_of

from spark_kafka_sink import InvalidOption, foreach_batch

SPARK_SECONDS = 20.0  # for what Spark itself does around a micro-batch, on a very busy machine
NOBODY = "127.0.0.1:1"


def fail(writer, tmp_path):
    """Run a query that fails; returns the text of its error."""
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(Exception) as raised:  # noqa: PT011 - the tests are about its text
        query.awaitTermination(60)
    return str(raised.value)


def test_update_mode_writes_what_changed(spark, bootstrap_servers, topics, tmp_path):
    topic = topics.create()
    words = stream_of(spark, tmp_path / "in", ["a", "b"], ["a"])
    sink = foreach_batch({"kafka.bootstrap.servers": bootstrap_servers, "topic": topic})
    run(counts(words).writeStream.outputMode("update").foreachBatch(sink), tmp_path)
    written = sorted((r.key, r.value) for r in topics.read(topic))
    assert written == [(b"a", b"1"), (b"a", b"2"), (b"b", b"1")]


def test_every_micro_batch_is_reported_and_logged_in_the_users_process(
    spark, bootstrap_servers, topics, tmp_path, caplog
):
    first, second = topics.create(partitions=3), topics.create()
    batches = [["1"] * 300 + ["2"] * 20, ["none"], ["2"] * 5]
    words = stream_of(spark, tmp_path / "in", *batches).where("value != 'none'")
    name = F.when(F.col("value") == "1", first).otherwise(second)
    reports = []
    sink = foreach_batch({"kafka.bootstrap.servers": bootstrap_servers}, reports.append)
    rows = words.repartition(4).withColumn("topic", name)
    with caplog.at_level(logging.INFO, "spark_kafka_sink"):
        run(rows.writeStream.foreachBatch(sink), tmp_path)
    delivered = [(report.batch_id, report.delivered_records()) for report in reports]
    expected = [{first: 300, second: 20}, {}, {second: 5}]
    assert delivered == list(enumerate(expected))
    assert [report.sent_bytes for report in reports] == [320, 0, 5]
    assert Counter(record.topic for record in topics.read(first, second)) == {
        first: 300,
        second: 25,
    }
    logged = [r.getMessage() for r in caplog.records if r.name == "spark_kafka_sink"]
    assert logged == [f"micro-batch {i} delivered: {r.to_json()}" for i, r in enumerate(reports)]


def test_a_frame_without_partitions_is_reported_as_empty(spark, bootstrap_servers, topics):
    topic, reports = topics.create(), []
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic}
    foreach_batch(options, reports.append)(spark.createDataFrame([], "value string"), 7)
    assert [(report.batch_id, report.total_sent) for report in reports] == [(7, 0)]


# --- failures -------------------------------------------------------------------------------------


def test_a_wrong_option_is_raised_where_the_user_wrote_it():
    with pytest.raises(InvalidOption, match=r"kafka\.linger\.ms='soon' is invalid; allowed: 0"):
        foreach_batch({"kafka.bootstrap.servers": NOBODY, "kafka.linger.ms": "soon"})


def test_a_refused_port_fails_every_first_micro_batch_in_seconds(spark, tmp_path, monkeypatch):
    folder = tmp_path / "of the machine, not of the application"
    folder.mkdir()
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(folder))
    words = stream_of(spark, tmp_path / "in", ["a"])
    for _ in range(2):
        sink = foreach_batch({"kafka.bootstrap.servers": NOBODY, "topic": "t"})
        started = time.monotonic()
        message = fail(words.writeStream.foreachBatch(sink), tmp_path)
        took = time.monotonic() - started
        said = rf"BrokerUnavailable: no broker answered at {NOBODY} within ([\d.]+) s"
        assert 3 <= float(re.search(said, message)[1]) <= took < 3 + SPARK_SECONDS
    assert list(folder.iterdir()) == []


def test_an_error_of_on_report_fails_the_query_and_a_restart_sends_the_micro_batch_again(
    spark, bootstrap_servers, topics, tmp_path
):
    topic = topics.create()
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic}
    words = stream_of(spark, tmp_path / "in", ["a"])

    def alert(report):
        raise LookupError(f"nobody listens to {report.total_sent}")

    sink = foreach_batch(options, alert)
    assert "nobody listens to 1" in fail(words.writeStream.foreachBatch(sink), tmp_path)
    run(words.writeStream.foreachBatch(foreach_batch(options)), tmp_path)
    assert [r.value for r in topics.read(topic)] == [b"a", b"a"]
