"""What doctor says about the place of reports."""

from __future__ import annotations

import threading

import pytest

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.report.storage import LocalFolder
from spark_kafka_sink.tools.doctor import report_path
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.result import Outcome


def look(folder, seconds=30.0):
    given = {"kafka.bootstrap.servers": "a:1"} | ({"report.path": str(folder)} if folder else {})
    context = CheckContext(given, False, None, Deadline(seconds))
    context.parsed = parse(given)
    (finding,) = report_path.report_path(context)
    return finding


def test_without_the_option_there_is_nothing_to_check():
    assert look(None).outcome is Outcome.SKIPPED


def test_a_file_is_written_and_deleted(tmp_path):
    finding = look(tmp_path)
    assert (finding.outcome, finding.subject) == (Outcome.PASSED, str(tmp_path))
    assert finding.message == "a file was written there and deleted"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_be_created_is_left_to_the_job(tmp_path):
    """It would belong to the wrong user."""
    finding = look(tmp_path / "a" / "reports")
    assert (finding.outcome, "can be created" in finding.message) == (Outcome.PASSED, True)
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_appended_to_are_reported(tmp_path, monkeypatch):
    def refuse(self, name, line):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(LocalFolder, "append_line", refuse)
    finding = look(tmp_path)
    assert finding.outcome is Outcome.PASSED
    assert finding.message.endswith("each report becomes a new file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["file/reports", "file"])
def test_a_place_that_cannot_be_written_to_is_a_warning(tmp_path, folder):
    (tmp_path / "file").touch()
    finding = look(tmp_path / folder)
    assert finding.outcome is Outcome.WARNED  # the job runs all the same
    assert "reports cannot be written there: " in finding.message
    assert "Correct report.path" in finding.advice


def test_storage_that_does_not_answer_is_a_warning(monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(report_path, "try_writing", lambda folder: released.wait(60))
    finding = look("/reports", seconds=0.05)
    released.set()
    assert (finding.outcome, "no end after 0." in finding.message) == (Outcome.WARNED, True)
