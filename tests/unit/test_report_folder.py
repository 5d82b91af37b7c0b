from __future__ import annotations

import json
import logging

import pytest

from spark_kafka_sink.producer.delivery_report import DeliveryReport
from spark_kafka_sink.spark import report_folder
from spark_kafka_sink.spark.report_folder import append


def report(batch_id):
    return DeliveryReport(batch_id=batch_id)


def batches(folder):
    """The ids in each file."""
    return {
        path.name: [json.loads(line)["batch_id"] for line in path.read_text().splitlines()]
        for path in sorted(folder.iterdir())
    }


def test_reports_are_lines_of_one_file(tmp_path):
    folder = tmp_path / "made" / "reports"
    for batch_id in range(3):
        append(report(batch_id), str(folder))
    assert batches(folder) == {"report-000000001.jsonl": [0, 1, 2]}


def test_a_full_file_is_followed_by_the_next_and_the_oldest_is_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(report_folder, "_MOST_BYTES_PER_FILE", len(report(0).to_json()) * 2 + 10)
    monkeypatch.setattr(report_folder, "_MOST_FILES", 3)
    for batch_id in range(9):
        append(report(batch_id), str(tmp_path))
    assert list(batches(tmp_path).values()) == [[4, 5], [6, 7], [8]]


def test_files_of_others_stay_untouched(tmp_path):
    (tmp_path / "report-1.txt").write_text("mine")
    append(report(0), f"file://{tmp_path}")
    assert (tmp_path / "report-1.txt").read_text() == "mine"


@pytest.mark.parametrize("folder", ["{file}", "no-such-scheme://bucket/reports", "relative"])
def test_a_report_that_cannot_be_written_is_a_warning(tmp_path, caplog, folder):
    (tmp_path / "file").touch()
    append(report(7), folder.format(file=tmp_path / "file"))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "the report of micro-batch 7 was not written" in record.message
    assert "check report.path" in record.message
