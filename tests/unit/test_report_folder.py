from __future__ import annotations

import json
import logging
from collections import Counter

import pytest

from spark_kafka_sink.producer.delivery_report import DeliveryReport
from spark_kafka_sink.spark import report_folder
from spark_kafka_sink.spark.report_folder import append, create, leave


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


def failed_task(records):
    report = DeliveryReport(Counter(a=records), Counter(a=9), tasks=1, failed_tasks=1)
    report.failed_records[("a", 0, -192)] = records
    report.acknowledged_records[("a", 1)] = 1
    report.possibly_persisted_records = records
    return report


def test_what_failed_tasks_leave_joins_the_report_of_their_micro_batch(tmp_path):
    create(str(tmp_path / "reports"))
    folder = str(tmp_path / "reports")
    for batch_id, records in [("7", 3), ("7", 4), ("70", 5)]:
        leave(failed_task(records), folder, batch_id)
    aborted = DeliveryReport(tasks=4, failed_tasks=3, batch_id=7, outcome="failed")
    aborted.acknowledged_records[("a", 0)] = 2
    told = append(aborted, folder)
    (line,) = (tmp_path / "reports" / "report-000000001.jsonl").read_text().splitlines()
    assert json.loads(line) == told.to_dict()
    assert (told.tasks, told.failed_tasks, told.batch_id, told.outcome) == (4, 3, 7, "failed")
    assert (told.total_sent, told.possibly_persisted_records) == (7, 7)
    assert told.delivered_records() == {"a": 4}
    left = [path.name for path in (tmp_path / "reports").glob("failed-task-*")]
    assert [name.startswith("failed-task-70-") for name in left] == [True]


def test_a_repeated_task_that_succeeds_makes_a_delivered_report_of_both_attempts(tmp_path):
    leave(failed_task(3), str(tmp_path), "0")
    told = append(DeliveryReport(Counter(a=3), tasks=1, batch_id=0), str(tmp_path))
    assert (told.outcome, told.tasks, told.failed_tasks, told.total_sent) == ("delivered", 1, 1, 6)


def test_a_task_of_another_machine_leaves_nothing(tmp_path):
    leave(failed_task(3), str(tmp_path / "of the driver"), "0")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", ["", "{", "3", '{"sent_records": 3}', '{"sent_records": [3]}'])
def test_a_file_that_a_killed_task_did_not_finish_is_a_warning(tmp_path, caplog, left):
    (tmp_path / "failed-task-0-x.json").write_text(left)
    append(report(0), str(tmp_path))
    assert "failed-task-0-x.json, left by a failed task, is cut off" in caplog.text
    assert batches(tmp_path) == {"report-000000001.jsonl": [0]}


def test_uris_of_other_storage(tmp_path, monkeypatch):
    """As in an object store: nothing is appended, and each report is a file."""
    monkeypatch.setattr(report_folder, "local_path", lambda folder: None)
    monkeypatch.setattr(report_folder, "_MOST_OBJECTS", 2)
    folder = f"file://{tmp_path}/bucket/reports"
    leave(failed_task(3), folder, "0")
    for batch_id in range(3):
        told = append(report(batch_id), folder)
        assert told.total_failed == (0 if batch_id else 3)
    assert list(batches(tmp_path / "bucket" / "reports").values()) == [[1], [2]]


@pytest.mark.parametrize("folder", ["{file}", "no-such-scheme://bucket/reports"])
def test_a_report_that_cannot_be_written_is_a_warning(tmp_path, caplog, folder):
    (tmp_path / "file").touch()
    append(report(7), folder.format(file=tmp_path / "file"))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "the report of micro-batch 7 was not written" in record.message
    assert "check report.path" in record.message
