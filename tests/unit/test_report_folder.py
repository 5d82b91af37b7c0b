from __future__ import annotations

import json
import logging
import pickle
import threading
from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.driver.options import read_options
from spark_kafka_sink.errors import InvalidRecord
from spark_kafka_sink.report import folder as report_folder
from spark_kafka_sink.report import storage as report_storage
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.report.folder import append, prepare_folder, write_failed_task
from spark_kafka_sink.report.storage import LocalFolder, RemoteFolder

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1"}


def report(batch_id):
    return DeliveryReport(batch_id=batch_id)


def batches(folder):
    """The ids in each file."""
    return {
        path.name: [json.loads(line)["batch_id"] for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("*.jsonl"))
    }


def test_reports_are_lines_of_one_file(tmp_path):
    folder = tmp_path / "made" / "reports"
    for batch_id in range(3):
        append(report(batch_id), str(folder))
    assert batches(folder) == {"report-000000001.jsonl": [0, 1, 2]}


def test_a_full_file_is_followed_by_the_next_and_the_oldest_is_deleted(tmp_path, monkeypatch):
    monkeypatch.setattr(report_folder, "_MAX_BYTES_PER_FILE", len(report(0).to_json()) * 2 + 10)
    monkeypatch.setattr(report_folder, "_MAX_FILES", 3)
    for batch_id in range(9):
        append(report(batch_id), str(tmp_path))
    assert list(batches(tmp_path).values()) == [[4, 5], [6, 7], [8]]


def test_files_of_others_stay_untouched(tmp_path):
    (tmp_path / "report-1.txt").write_text("mine")
    append(report(0), f"file://{tmp_path}")
    assert (tmp_path / "report-1.txt").read_text() == "mine"


def failed_task(records):
    return DeliveryReport(
        Counter(a=records),
        Counter(a=9),
        Counter({("a", 0, -192): records}),
        Counter({("a", 1): 1}),
        tasks=1,
        failed_tasks=1,
        possibly_persisted_records=records,
    )


def test_what_failed_tasks_leave_joins_the_report_of_their_micro_batch(tmp_path):
    prepare_folder(str(tmp_path / "reports"))
    folder = str(tmp_path / "reports")
    for batch_id, records in [("7", 3), ("7", 4), ("70", 5)]:
        write_failed_task(failed_task(records), folder, batch_id)
    aborted = DeliveryReport(tasks=4, failed_tasks=3, batch_id=7, outcome="failed")
    aborted.acknowledged_records[("a", 0)] = 2
    written = append(aborted, folder)
    (line,) = (tmp_path / "reports" / "report-000000001.jsonl").read_text().splitlines()
    assert json.loads(line) == written.to_dict()
    assert (written.tasks, written.failed_tasks, written.batch_id, written.outcome) == (
        4,
        3,
        7,
        "failed",
    )
    assert (written.total_sent, written.possibly_persisted_records) == (7, 7)
    assert written.delivered_records() == {"a": 4}
    left = [path.name for path in (tmp_path / "reports" / "failed-tasks").iterdir()]
    assert [name.startswith("task-70-") for name in left] == [True]


def test_what_a_failed_task_of_release_0_3_left_is_counted(tmp_path):
    """An upgrade may end a query in the middle of a micro-batch."""
    counts = {"sent_records": [["a", 5]], "failed_records": [[["a", -1, -152], 3]]}
    counts |= {"acknowledged_records": [[["a", 0], 2]], "dead_letters": [[["", "NULL_TOPIC"], 3]]}
    counts |= {"sent_bytes_by_topic": [["a", 50]], "wait_us": [["rows_wait_ms", 2000]]}
    left = {"ended_at": "2026-11-27T20:56:31.154227+00:00", "query_id": "q", "failed_tasks": 1}
    (tmp_path / "failed-tasks").mkdir()
    file = tmp_path / "failed-tasks" / "task-7-x.json"
    file.write_text(json.dumps({**counts, **left, "round_trip_ms": [0.5, 7.25]}))
    other = DeliveryReport(batch_id=7, query_id="q", round_trip_ms=(0.25, 9.0))
    written = append(other, str(tmp_path)).to_dict()
    assert (written["records"], written["failed_tasks"], written["rows_wait_ms"]) == (2, 1, 2)
    assert written["failed_records_by_error"] == {"DROPPED_BEFORE_SEND": 3}
    assert written["dead_letters_by_topic"] == {"": {"NULL_TOPIC": 3}}
    assert written["round_trip_p99_ms"] == 7.25
    assert not file.exists()


def test_a_repeated_task_that_succeeds_makes_a_delivered_report_of_both_attempts(tmp_path):
    write_failed_task(failed_task(3), str(tmp_path), "0")
    written = append(DeliveryReport(Counter(a=3), tasks=1, batch_id=0), str(tmp_path))
    assert (written.outcome, written.tasks, written.failed_tasks, written.total_sent) == (
        "delivered",
        1,
        1,
        6,
    )


@pytest.mark.parametrize("outcome", ["delivered", "failed"])
def test_failed_attempts_of_one_task_are_not_several_tasks(tmp_path, outcome):
    for _ in range(3):
        write_failed_task(failed_task(1), str(tmp_path), "0")
    written = append(DeliveryReport(tasks=1, batch_id=0, outcome=outcome), str(tmp_path))
    assert (written.tasks, written.failed_tasks) == (1, 3)


def test_a_task_of_another_machine_leaves_nothing(tmp_path):
    write_failed_task(failed_task(3), str(tmp_path / "of the driver"), "0")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("left", ["", "{", "3", '{"sent_records": 3}', '{"sent_records": [3]}'])
def test_a_file_that_a_killed_task_did_not_finish_is_a_warning(tmp_path, caplog, left):
    (tmp_path / "failed-tasks").mkdir()
    (tmp_path / "failed-tasks" / "task-0-x.json").write_text(left)
    append(report(0), str(tmp_path))
    assert "task-0-x.json, the report of a failed task, is truncated" in caplog.text
    assert batches(tmp_path) == {"report-000000001.jsonl": [0]}
    assert list((tmp_path / "failed-tasks").iterdir()) == []


@pytest.mark.parametrize("task_succeeded", [True, False])
def test_what_another_query_left_in_the_folder_is_not_counted(tmp_path, task_succeeded):
    """Its driver was killed in its own micro-batch 7."""
    now = datetime.now(timezone.utc)
    for query_id, records, age in [("earlier", 100, timedelta(1)), ("this", 3, timedelta(0))]:
        task = replace(failed_task(records), query_id=query_id, ended_at=now - age)
        write_failed_task(task, str(tmp_path), "7")
    query_id = "this" if task_succeeded else None  # only a task's report names the query
    written = append(DeliveryReport(batch_id=7, query_id=query_id, outcome="failed"), str(tmp_path))
    assert (written.total_failed, written.query_id) == (3, "this")


def test_a_batch_does_not_count_the_tasks_of_an_earlier_one_whose_driver_was_killed(tmp_path):
    killed, writes = [read_options(OPTIONS).with_write_id().write_id for _ in range(2)]
    write_failed_task(failed_task(100), str(tmp_path), killed)
    write_failed_task(failed_task(3), str(tmp_path), writes)
    written = append(DeliveryReport(tasks=1), str(tmp_path), writes)
    assert (written.total_failed, written.failed_tasks) == (3, 1)


@pytest.mark.needs_format
@pytest.mark.parametrize("ends", ["commit", "abort"])
def test_a_batch_write_counts_its_own_failed_tasks(tmp_path, ends):
    """Its writer is pickled for the tasks, and for the driver's commit."""
    from spark_kafka_sink.spark.writer import KafkaBatchWriter

    options = read_options(OPTIONS | {"report.path": str(tmp_path), "batch.id": "7"})
    killed, writer = (pickle.dumps(KafkaBatchWriter(options)) for _ in range(2))
    row = pa.record_batch({"value": ["v"], "topic": pa.array([None], pa.string())})
    for pickled in (killed, killed, writer):
        with pytest.raises(InvalidRecord):
            pickle.loads(pickled).write(iter([row]))
    getattr(pickle.loads(writer), ends)([])
    (line,) = (tmp_path / "report-000000001.jsonl").read_text().splitlines()
    assert json.loads(line)["failed_tasks"] == 1
    assert len([*(tmp_path / "failed-tasks").iterdir()]) == 2


def test_each_call_of_foreach_batch_outside_of_a_stream_is_a_write_of_its_own(monkeypatch):
    tasks = []
    frame = SimpleNamespace(
        schema=StructType([StructField("value", StringType())]),
        sparkSession=SimpleNamespace(conf=SimpleNamespace(get=lambda name, default: default)),
        mapInArrow=lambda task, schema: tasks.append(task) or SimpleNamespace(collect=list),
    )
    write = foreach_batch(OPTIONS | {"topic": "t", "preflight": "false"})
    for batch_id in (None, None, 7):
        write(frame, batch_id)
    monkeypatch.setenv("SPARK_CONNECT_LOCAL_URL", "sc://here")  # in a stream, under Connect
    write(frame, 7)
    *ids, in_stream = [task.options.write_id for task in tasks]
    assert len({*ids, None}) == 4
    assert in_stream is None


# --- other storage --------------------------------------------------------------------------------


@pytest.fixture
def object_store(tmp_path, monkeypatch):
    """A folder in which nothing is appended, with the listings that were made of it."""
    monkeypatch.setattr(report_storage, "local_path", lambda folder: None)
    listed = []

    class Listed(RemoteFolder):
        def names(self, subfolder=""):
            listed.append(subfolder)
            return super().names(subfolder)

    monkeypatch.setattr(report_storage, "RemoteFolder", Listed)
    return f"file://{tmp_path}/bucket/reports", tmp_path / "bucket" / "reports", listed


def test_each_report_in_an_object_store_is_a_file(object_store):
    uri, folder, _ = object_store
    write_failed_task(failed_task(3), uri, "0")
    for batch_id in range(3):
        written = append(report(batch_id), uri)
        assert written.total_failed == (0 if batch_id else 3)
    assert list(batches(folder).values()) == [[0], [1], [2]]


def test_an_object_store_is_listed_now_and_then_to_delete_the_oldest(object_store, monkeypatch):
    monkeypatch.setattr(report_folder, "_MAX_SMALL_FILES", 2)
    uri, folder, listed = object_store
    for batch_id in range(1, 100):
        append(report(batch_id), uri)
    assert set(listed) == {"failed-tasks"}
    append(report(100), uri)
    assert listed.count("") == 1
    assert list(batches(folder).values()) == [[99], [100]]


def test_storage_that_does_not_answer_holds_nothing_up(monkeypatch, caplog):
    released = threading.Event()
    monkeypatch.setattr(report_folder, "_SECONDS", 0.05)
    monkeypatch.setattr(report_folder, "open_folder", lambda folder: released.wait(60))
    written = report(7)
    try:
        assert append(written, "s3://bucket/reports") is written
        write_failed_task(written, "s3://bucket/reports", "7")
        prepare_folder("s3://bucket/hanging")
    finally:
        released.set()
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 3
    assert "the report of micro-batch 7 was not written" in caplog.records[0].message
    assert "no end after 0." in caplog.records[0].message


@pytest.mark.parametrize("error", [pa.lib.ArrowException("Azure"), RuntimeError("any")])
def test_no_error_of_the_storage_reaches_the_query(monkeypatch, caplog, error):
    def fail(folder):
        raise error

    monkeypatch.setattr(report_folder, "open_folder", fail)
    written = report(7)
    assert append(written, "abfss://c@a.dfs.core.windows.net/r") is written
    write_failed_task(written, "abfss://c@a.dfs.core.windows.net/r", "7")
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2


def test_storage_is_tried_once_before_the_tasks(tmp_path, caplog):
    (tmp_path / "file").touch()
    for _ in range(2):
        prepare_folder(str(tmp_path / "file" / "reports"))
    (record,) = caplog.records
    assert "reports of micro-batches cannot be written" in record.message
    prepare_folder(str(tmp_path / "reports"))
    assert list((tmp_path / "reports").iterdir()) == []


# --- files that cannot be appended to, or are truncated -------------------------------------------


def test_where_files_cannot_be_appended_to_each_report_is_a_file(tmp_path, monkeypatch, caplog):
    """As in volumes of Databricks."""

    def reject(self, name, line):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(LocalFolder, "append_line", reject)
    monkeypatch.setattr(report_folder, "_MAX_SMALL_FILES", 3)
    for batch_id in range(5):
        append(report(batch_id), str(tmp_path))
    assert list(batches(tmp_path).values()) == [[2], [3], [4]]
    assert caplog.records == []


def test_a_report_behind_a_line_that_was_cut_off_is_a_line_of_its_own(tmp_path):
    append(report(0), str(tmp_path))
    (file,) = tmp_path.glob("*.jsonl")
    with file.open("a") as stream:
        stream.write('{"version": 1, "batch')  # a driver that was killed
    append(report(1), str(tmp_path))
    first, cut, second = file.read_text().splitlines()
    assert [json.loads(line)["batch_id"] for line in (first, second)] == [0, 1]
    assert cut == '{"version": 1, "batch'


def test_a_full_disk_is_a_warning(tmp_path, monkeypatch, caplog):
    append(report(0), str(tmp_path))

    def reject(self, *_):
        raise OSError(28, "No space left on device")

    def create_and_reject(path, data):
        path.touch()
        reject(path)

    monkeypatch.setattr(LocalFolder, "append_line", reject)
    monkeypatch.setattr(Path, "write_bytes", create_and_reject)
    append(report(1), str(tmp_path))
    assert "No space left" in caplog.text
    assert list(batches(tmp_path).values()) == [[0]]  # and no empty file, which would be the newest


@pytest.mark.parametrize("deletes", ["what a failed task left", "the oldest report"])
def test_a_report_is_written_even_if_old_files_are_not_deleted(
    tmp_path, monkeypatch, caplog, deletes
):
    def refuse(self, name):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(LocalFolder, "delete", refuse)
    if deletes == "the oldest report":
        monkeypatch.setattr(report_folder, "_MAX_BYTES_PER_FILE", 10)
        monkeypatch.setattr(report_folder, "_MAX_FILES", 1)
        append(report(6), str(tmp_path))
    write_failed_task(failed_task(3), str(tmp_path), "7")
    (tmp_path / "failed-tasks" / "task-7-cut.json").write_text("{")
    assert append(report(7), str(tmp_path)).total_failed == 3
    assert [*batches(tmp_path).values()][-1] == [7]
    said = caplog.messages[-1]
    assert said.startswith(f"old files were not deleted from {tmp_path}: [Errno 13] Permission")
    assert "was not written" not in caplog.text


@pytest.mark.parametrize("exists", [True, False])
def test_a_trial_leaves_nothing(tmp_path, exists):
    folder = tmp_path / "a" / "reports"
    if exists:
        folder.mkdir(parents=True)
    assert report_storage.try_writing(str(folder))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert folder.exists() == exists


@pytest.mark.parametrize("folder", ["{file}", "no-such-scheme://bucket/reports"])
def test_a_report_that_cannot_be_written_is_a_warning(tmp_path, caplog, folder):
    (tmp_path / "file").touch()
    append(report(7), folder.format(file=tmp_path / "file"))
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "the report of micro-batch 7 was not written" in record.message
    assert "check report.path" in record.message


def test_hadoops_client_that_cannot_be_loaded_is_not_the_options_fault(monkeypatch, caplog):
    class FileSystem:
        @staticmethod
        def from_uri(uri):
            raise OSError("Unable to load libjvm\ndlopen(/usr/lib/jvm/libjvm.so) failed")

    monkeypatch.setattr("pyarrow.fs.FileSystem", FileSystem)
    append(report(0), "hdfs://namenode/reports")
    (line,) = caplog.messages
    assert "Unable to load libjvm dlopen" in line
    assert "Set the environment variables JAVA_HOME" in line
    assert "check report.path" not in line
