"""Reports that the driver keeps in the folder of the option report.path, in both modes."""

from __future__ import annotations

import json

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from streams import run, stream_of

from spark_kafka_sink import foreach_batch

MODES = ("format", "foreach_batch")
ROWS = 30_000  # three Arrow batches


@pytest.fixture
def write(spark, bootstrap_servers, topics, tmp_path):
    """Run a stream of micro-batches of words; returns the lines of its reports."""
    topic = topics.create(partitions=3)

    def write(mode, *batches, report_path=tmp_path / "reports", on_report=None):
        options = {"kafka.bootstrap.servers": bootstrap_servers, "report.path": str(report_path)}
        name = F.when(F.col("value") != "bad", topic)  # null: InvalidRecord
        rows = stream_of(spark, tmp_path / "in", *batches).withColumn("topic", name)
        if mode == "format":
            writer = rows.writeStream.format("kafka-nb").options(**options)
        else:
            writer = rows.writeStream.foreachBatch(foreach_batch(options, on_report))
        try:
            run(writer, tmp_path)
        finally:
            texts = [file.read_text() for file in (tmp_path / "reports").rglob("*.json*")]
            write.lines = [json.loads(line) for text in texts for line in text.splitlines()]
        return write.lines

    write.topic = topic
    return write


@pytest.mark.parametrize("mode", MODES)
def test_each_micro_batch_has_a_line(write, topics, mode):
    lines = write(mode, ["a"] * 10, ["b"] * 7)
    reports = [(line["batch_id"], line["outcome"], line["records"]) for line in lines]
    assert reports == [(0, "delivered", 10), (1, "delivered", 7)]
    assert {line["query_id"] for line in lines} != {None}
    assert len(topics.read(write.topic)) == 17
    for line in lines:
        waits = [value for name, value in line.items() if name.endswith("_wait_ms")]
        assert sum(waits) <= line["task_ms"] + len(waits)
        assert 0 < line["buffer_peak_bytes"] < line["buffer_memory_bytes"]
        assert line["tasks"] == line["producers_created"] + line["producers_reused"] == 1


@pytest.mark.parametrize("mode", MODES)
def test_a_failed_micro_batch_says_what_is_known_of_its_records(write, topics, mode):
    reports = []
    with pytest.raises(PySparkException, match="null topic"):
        write(mode, ["a"] * ROWS + ["bad"], on_report=reports.append)
    (line,) = write.lines  # includes the failed task's report, whose file is deleted
    assert (line["batch_id"], line["outcome"], line["failed_tasks"]) == (0, "failed", 1)
    failed = sum(line["failed_records_by_topic"].values())
    assert line["records"] + failed == ROWS
    assert line["unsent_records"] + line["possibly_persisted_records"] == failed
    count = len(topics.read(write.topic))
    assert line["records"] <= count <= line["records"] + line["possibly_persisted_records"]
    assert line["query_id"]
    if mode == "foreach_batch":
        assert [report.to_dict() for report in reports] == [line]


@pytest.mark.parametrize("mode", MODES)
def test_a_report_that_cannot_be_written_fails_no_query(write, topics, tmp_path, caplog, mode):
    (tmp_path / "file").touch()
    write(mode, ["a"] * 10, report_path=tmp_path / "file" / "reports")
    assert len(topics.read(write.topic)) == 10
    if mode == "foreach_batch":
        assert "the report of micro-batch 0 was not written" in caplog.text
