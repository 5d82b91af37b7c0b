"""Keeps the reports of a query's micro-batches in a folder, as lines of JSON."""

from __future__ import annotations

import json
import logging
import re
import uuid
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote, urlsplit

from spark_kafka_sink.producer.delivery_report import DeliveryReport, total

_log = logging.getLogger("spark_kafka_sink")

_NAME = re.compile(r"report-([0-9]{9})\.jsonl")
_MOST_BYTES_PER_FILE = 8 * 1024 * 1024
_MOST_FILES = 16
# Of one line each, where nothing can be appended to a file.
_MOST_OBJECTS = 10_000
_FAILED_TASK = "failed-task"


def local_path(folder: str) -> Path | None:
    """The folder on this machine, or None if it is a URI of other storage."""
    if folder.startswith("file:"):
        return Path(unquote(urlsplit(folder).path))
    return None if "://" in folder else Path(folder)


def create(folder: str) -> None:
    """Create a folder of this machine, so that tasks that fail on it can leave reports there."""
    path = local_path(folder)
    if path is not None:
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            _warn("reports of micro-batches cannot be written", folder, error)


def leave(report: DeliveryReport, folder: str, batch_id: str | None) -> None:
    """Leave a failed task's report for ``append``: Spark passes nothing else to the driver.

    Where the folder is another machine's, nothing is left. A failure is logged as a warning.
    """
    path = local_path(folder)
    if path is not None and not path.is_dir():
        return
    name = f"{_prefix(batch_id)}{uuid.uuid4().hex}.json"
    try:
        _storage(folder).append(name, json.dumps(report.to_plain()).encode())
    except _ERRORS as error:
        _warn("the report of a failed task was not written", folder, error)


def append(report: DeliveryReport, folder: str) -> DeliveryReport:
    """Append the report of a micro-batch to the newest file of the folder, and delete old files.

    Returns it with what failed tasks have left in the folder. ``folder``: a path on this machine,
    or a URI that pyarrow knows, such as ``s3://bucket/reports``
    (``pyarrow.fs.FileSystem.from_uri``). A failure is logged as a warning: no query fails for want
    of a report.
    """
    try:
        storage = _storage(folder)
        sizes = storage.sizes()
        report = _with_left(report, storage, sizes)
        _append(report.to_json().encode() + b"\n", storage, sizes)
    except _ERRORS as error:
        _warn(f"the report of micro-batch {report.batch_id} was not written", folder, error)
    return report


def _with_left(report: DeliveryReport, storage: _Storage, sizes: dict[str, int]) -> DeliveryReport:
    prefix = _prefix(None if report.batch_id is None else str(report.batch_id))
    left = []
    for name in [name for name in sizes if name.startswith(prefix)]:
        try:
            left.append(DeliveryReport.from_plain(json.loads(storage.read(name))))
        except (KeyError, TypeError, ValueError):
            _log.warning("%s, left by a failed task, is cut off: it does not count", name)
        storage.delete(name)
    return report.with_failed_tasks(total(left)) if left else report


def _append(line: bytes, storage: _Storage, sizes: dict[str, int]) -> None:
    names = [_NAME.fullmatch(name) for name in sizes]
    numbered = {int(name[1]): sizes[name[0]] for name in names if name is not None}
    newest = max(numbered, default=0)
    is_full = not newest or numbered[newest] + len(line) > _MOST_BYTES_PER_FILE
    if storage.can_append and not is_full:
        storage.append(_file(newest), line)
        return
    storage.append(_file(newest + 1), line)
    keep = _MOST_FILES if storage.can_append else _MOST_OBJECTS
    for number in sorted(numbered)[: max(0, len(numbered) + 1 - keep)]:
        storage.delete(_file(number))


def _file(number: int) -> str:
    return f"report-{number:09d}.jsonl"


def _prefix(batch_id: str | None) -> str:
    return f"{_FAILED_TASK}-{batch_id or 'batch'}-"


def _warn(what: str, folder: str, error: Exception) -> None:
    _log.warning("%s to %s: %s; check report.path", what, folder, error)


# --- storage --------------------------------------------------------------------------------------

#: of files, of URIs, and of pyarrow without the file system
_ERRORS = (OSError, ValueError, NotImplementedError)


class _Storage(Protocol):
    #: or each file is written once
    can_append: bool

    def sizes(self) -> dict[str, int]:
        """The bytes of each file of the folder, which is created."""

    def append(self, name: str, data: bytes) -> None: ...

    def read(self, name: str) -> bytes: ...

    def delete(self, name: str) -> None: ...


class _Local:
    """Without pyarrow, which would take longer to import than all the rest."""

    can_append = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sizes(self) -> dict[str, int]:
        self._folder.mkdir(parents=True, exist_ok=True)
        return {path.name: path.stat().st_size for path in self._folder.iterdir()}

    def append(self, name: str, data: bytes) -> None:
        with (self._folder / name).open("ab") as stream:
            stream.write(data)

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def delete(self, name: str) -> None:
        (self._folder / name).unlink()


class _Remote:
    can_append = False

    def __init__(self, uri: str) -> None:
        from pyarrow import fs

        self._files, self._folder = fs.FileSystem.from_uri(uri)

    def sizes(self) -> dict[str, int]:
        from pyarrow import fs

        found = self._files.get_file_info(fs.FileSelector(self._folder, allow_not_found=True))
        return {each.base_name: each.size for each in found}

    def append(self, name: str, data: bytes) -> None:
        self._files.create_dir(self._folder, recursive=True)
        with self._files.open_output_stream(f"{self._folder}/{name}") as stream:
            stream.write(data)

    def read(self, name: str) -> bytes:
        with self._files.open_input_stream(f"{self._folder}/{name}") as stream:
            return bytes(stream.read())

    def delete(self, name: str) -> None:
        self._files.delete_file(f"{self._folder}/{name}")


def _storage(folder: str) -> _Storage:
    path = local_path(folder)
    return _Remote(folder) if path is None else _Local(path)
