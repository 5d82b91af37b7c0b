"""[both] Keeps the reports of a query's micro-batches in a folder, as lines of JSON."""

from __future__ import annotations

import json
import logging
import re
import time
import uuid
from collections.abc import Callable, Iterable
from functools import cache, partial
from typing import TypeVar

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.report.delivery_report import DeliveryReport, total
from spark_kafka_sink.report.storage import Folder, LocalFolder, open_folder, try_writing
from spark_kafka_sink.threads import call_all

_log = logging.getLogger("spark_kafka_sink")

T = TypeVar("T")
U = TypeVar("U")

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

    _bounded(create_and_try, None, f"reports of micro-batches cannot be written to {folder}")


def write_failed_task(report: DeliveryReport, folder: str, write_id: str | None) -> None:
    """Write a failed task's report for ``append``: Spark does not pass it to the driver.

    ``write_id``: the id of the micro-batch; outside of a stream, that of the write.
    Writes nothing if the folder does not exist on this machine. Logs a failure as a warning.
    """

    def write() -> None:
        target = open_folder(folder)
        if isinstance(target, LocalFolder) and not target.exists():
            return
        name = f"{_prefix(write_id)}{uuid.uuid4().hex}.json"
        target.write(f"{_FAILED_TASKS}/{name}", json.dumps(report.to_plain()).encode())

    _bounded(write, None, f"the report of a failed task was not written to {folder}")


def append(report: DeliveryReport, folder: str, write_id: str | None = None) -> DeliveryReport:
    """Append the report of a micro-batch to the newest file of the folder, and delete old files.

    Returns it with the reports of failed tasks in the folder. ``folder``: a path on this machine,
    or a URI that pyarrow supports, such as ``s3://bucket/reports``
    (``pyarrow.fs.FileSystem.from_uri``). A failure is logged as a warning: no query fails
    because of a report, or waits for it longer than some seconds. ``write_id``: of a write outside
    of a stream, so that it counts no task of an earlier one whose driver was killed.
    """

    def write() -> tuple[DeliveryReport, Callable[[], None] | None]:
        target = open_folder(folder)
        prefix = _prefix(report.batch_id if write_id is None else write_id)
        failed, read = _failed_task_reports(report, target, prefix)
        complete = report.with_failed_tasks(total(failed)) if failed else report
        line = complete.to_json().encode() + b"\n"
        if isinstance(target, LocalFolder):
            keep = _append_to_newest(line, target)
        else:
            keep = _add_file(line, report.batch_id, target)
        is_clean = not read and keep is None
        return complete, None if is_clean else partial(_delete_old, target, read, keep)

    what = f"the report of micro-batch {report.batch_id} was not written to {folder}"
    complete, delete_old = _bounded(write, (report, None), what)
    if delete_old is not None:
        _bounded(delete_old, None, f"old files were not deleted from {folder}")
    return complete


# --- reports of failed tasks ----------------------------------------------------------------------


def _prefix(write_id: object) -> str:
    return f"task-{'batch' if write_id is None else write_id}-"


def _failed_task_reports(
    report: DeliveryReport, target: Folder, prefix: str
) -> tuple[list[DeliveryReport], list[str]]:
    """The reports of the micro-batch's failed tasks, and the files that are not needed any more.

    Tasks of another query, which used this folder before and was killed, may have written some for
    a micro-batch with the same id. If no task succeeded, the report does not name its query; the
    tasks that failed last do.
    """
    reports: dict[str, DeliveryReport] = {}
    truncated: list[str] = []
    for name in target.names(_FAILED_TASKS):
        if name.startswith(prefix):
            path = f"{_FAILED_TASKS}/{name}"
            try:
                reports[path] = DeliveryReport.from_plain(json.loads(target.read(path)))
            except (KeyError, TypeError, ValueError):
                _log.warning("%s, the report of a failed task, is truncated, and was skipped", name)
                truncated.append(path)
    query_id = report.query_id
    if query_id is None and reports:
        query_id = max(reports.values(), key=lambda failed: failed.ended_at).query_id
    own = {path: failed for path, failed in reports.items() if failed.query_id == query_id}
    return [*own.values()], [*own, *truncated]


# --- files ----------------------------------------------------------------------------------------


def _append_to_newest(line: bytes, target: LocalFolder) -> int | None:
    """Returns how many files to keep, if there is another one."""
    newest = max(_numbers(target), default=0)
    keep = _MAX_FILES
    if newest and target.size(_file(newest)) + len(line) <= _MAX_BYTES_PER_FILE:
        try:
            target.append_line(_file(newest), line)
        # It does not allow appending; if the disk is full, the next write fails too.
        except OSError:
            keep = _MAX_SMALL_FILES
        else:
            return None
    target.write(_file(newest + 1), line)
    return keep


def _add_file(line: bytes, batch_id: int | None, target: Folder) -> int | None:
    """Returns how many files to keep, if it is time to look."""
    # The time is its number, because finding the newest one would need a listing of all files.
    target.write(_file(time.time_ns() // 1000), line)
    is_time = batch_id is None or batch_id % _MICRO_BATCHES_PER_LISTING == 0
    return _MAX_SMALL_FILES if is_time else None


def _delete_old(target: Folder, read: Iterable[str], keep: int | None) -> None:
    for name in read:
        target.delete(name)
    if keep is not None:
        numbers = sorted(_numbers(target))
        for number in numbers[: max(0, len(numbers) - keep)]:
            target.delete(_file(number))


def _numbers(target: Folder) -> list[int]:
    names = (_NAME.fullmatch(name) for name in target.names())
    return [int(name[1]) for name in names if name is not None]


def _file(number: int) -> str:
    return f"report-{number:09d}.jsonl"


def _bounded(work: Callable[[], T], otherwise: U, what: str) -> T | U:
    """The result of ``work``; if it fails or is too slow, logs a warning and returns ``otherwise``.

    Storage fails with errors of many kinds: pyarrow's own are no OSError.
    """
    (call,) = call_all(lambda _: work(), [None], Deadline(_SECONDS))
    if call.error is None:
        return call.value if call.value is not None else otherwise
    advice = "" if isinstance(call.error, KafkaSinkError) else "; check report.path"
    _log.warning("%s: %s%s", what, call.error, advice)
    return otherwise
