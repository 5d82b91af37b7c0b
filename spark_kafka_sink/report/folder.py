"""[both] Keeps the reports of a query's micro-batches in a folder, as lines of JSON."""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Callable
from functools import cache
from typing import TypeVar

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.report.delivery_report import DeliveryReport, total
from spark_kafka_sink.report.storage import Folder, LocalFolder, open_folder, try_writing
from spark_kafka_sink.threads import call_all

_log = logging.getLogger("spark_kafka_sink")

T = TypeVar("T")

_NAME = re.compile(r"report-([0-9]{9,})\.jsonl")
_MAX_BYTES_PER_FILE = 8 * 1024 * 1024
_MAX_FILES = 16
# Where nothing can be appended to a file, each has one line.
_MAX_SMALL_FILES = 10_000
# Listing all of them needs a request per thousand.
_MICRO_BATCHES_PER_LISTING = 100
_FAILED_TASKS = "failed-tasks"
# Storage that does not answer must not delay the query for long.
_SECONDS = 10.0


@cache
def prepare_folder(folder: str) -> None:
    """Create a folder of this machine and try to write there; on the driver, once in a process.

    Tasks that fail on this machine write their reports only to a folder that exists. If nothing can
    be written, a warning says so.
    """

    def create_and_try() -> None:
        target = open_folder(folder)
        if isinstance(target, LocalFolder):
            target.create()
        try_writing(folder)

    _bounded(create_and_try, None, "reports of micro-batches cannot be written", folder)


def write_failed_task(report: DeliveryReport, folder: str, batch_id: str | None) -> None:
    """Write a failed task's report for ``append``: Spark does not pass it to the driver.

    Writes nothing if the folder does not exist on this machine. Logs a failure as a warning.
    """

    def write() -> None:
        target = open_folder(folder)
        if isinstance(target, LocalFolder) and not target.exists():
            return
        name = f"{_prefix(batch_id)}{uuid.uuid4().hex}.json"
        target.write(f"{_FAILED_TASKS}/{name}", json.dumps(report.to_plain()).encode())

    _bounded(write, None, "the report of a failed task was not written", folder)


def append(report: DeliveryReport, folder: str) -> DeliveryReport:
    """Append the report of a micro-batch to the newest file of the folder, and delete old files.

    Returns it with the reports of failed tasks in the folder. ``folder``: a path on this machine,
    or a URI that pyarrow supports, such as ``s3://bucket/reports``
    (``pyarrow.fs.FileSystem.from_uri``). A failure is logged as a warning: no query fails
    because of a report, or waits for it longer than some seconds.
    """

    def write() -> DeliveryReport:
        target = open_folder(folder)
        failed = _failed_task_reports(report, target)
        complete = report.with_failed_tasks(total(failed.values())) if failed else report
        line = complete.to_json().encode() + b"\n"
        if isinstance(target, LocalFolder):
            _append_to_newest(line, target)
        else:
            _add_file(line, report.batch_id, target)
        for name in failed:
            target.delete(name)
        return complete

    what = f"the report of micro-batch {report.batch_id} was not written"
    return _bounded(write, report, what, folder)


# --- reports of failed tasks ----------------------------------------------------------------------


def _prefix(batch_id: object) -> str:
    return f"task-{'batch' if batch_id is None else batch_id}-"


def _failed_task_reports(report: DeliveryReport, target: Folder) -> dict[str, DeliveryReport]:
    """The reports of the micro-batch's failed tasks, by file.

    Tasks of another query, which used this folder before and was killed, may have written some for
    a micro-batch with the same id. If no task succeeded, the report does not name its query; the
    tasks that failed last do.
    """
    prefix = _prefix(report.batch_id)
    reports: dict[str, DeliveryReport] = {}
    for name in target.names(_FAILED_TASKS):
        if name.startswith(prefix):
            path = f"{_FAILED_TASKS}/{name}"
            try:
                reports[path] = DeliveryReport.from_plain(json.loads(target.read(path)))
            except (KeyError, TypeError, ValueError):
                _log.warning("%s, the report of a failed task, is truncated, and was skipped", name)
                target.delete(path)
    query_id = report.query_id
    if query_id is None and reports:
        query_id = max(reports.values(), key=lambda failed: failed.ended_at).query_id
    return {path: failed for path, failed in reports.items() if failed.query_id == query_id}


# --- files ----------------------------------------------------------------------------------------


def _append_to_newest(line: bytes, target: LocalFolder) -> None:
    numbers = _numbers(target)
    newest = max(numbers, default=0)
    keep = _MAX_FILES
    if newest and target.size(_file(newest)) + len(line) <= _MAX_BYTES_PER_FILE:
        try:
            target.append_line(_file(newest), line)
        # It does not allow appending; if the disk is full, the next write fails too.
        except OSError:
            keep = _MAX_SMALL_FILES
        else:
            return
    target.write(_file(newest + 1), line)
    _delete_oldest(target, [*numbers, newest + 1], keep)


def _add_file(line: bytes, batch_id: int | None, target: Folder) -> None:
    # The time is its number, because finding the newest one would need a listing of all files.
    target.write(_file(time.time_ns() // 1000), line)
    if batch_id is None or batch_id % _MICRO_BATCHES_PER_LISTING == 0:
        _delete_oldest(target, _numbers(target), _MAX_SMALL_FILES)


def _delete_oldest(target: Folder, numbers: list[int], keep: int) -> None:
    for number in sorted(numbers)[: max(0, len(numbers) - keep)]:
        target.delete(_file(number))


def _numbers(target: Folder) -> list[int]:
    names = (_NAME.fullmatch(name) for name in target.names())
    return [int(name[1]) for name in names if name is not None]


def _file(number: int) -> str:
    return f"report-{number:09d}.jsonl"


def _bounded(work: Callable[[], T], otherwise: T, what: str, folder: str) -> T:
    """The result of ``work``; if it fails or is too slow, logs a warning and returns ``otherwise``.

    Storage fails with errors of many kinds: pyarrow's own are no OSError.
    """
    (call,) = call_all(lambda _: work(), [None], Deadline(_SECONDS))
    if call.error is None:
        return call.value if call.value is not None else otherwise
    advice = "" if isinstance(call.error, KafkaSinkError) else "; check report.path"
    _log.warning("%s to %s: %s%s", what, folder, call.error, advice)
    return otherwise
