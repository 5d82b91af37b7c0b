"""Keeps the reports of a query's micro-batches in a folder, as lines of JSON."""

from __future__ import annotations

import logging
import re

from pyarrow import fs

from spark_kafka_sink.producer.delivery_report import DeliveryReport

_log = logging.getLogger("spark_kafka_sink")

_NAME = re.compile(r"report-([0-9]{9})\.jsonl")
_MOST_BYTES_PER_FILE = 8 * 1024 * 1024
_MOST_FILES = 16
# Of one line each, where nothing can be appended to a file.
_MOST_OBJECTS = 10_000


def append(report: DeliveryReport, folder: str) -> None:
    """Append the report to the newest file of the folder, and delete the oldest if it gets large.

    ``folder``: a path on this machine, or a URI that pyarrow knows, such as ``s3://bucket/reports``
    (``pyarrow.fs.FileSystem.from_uri``). A failure is logged as a warning: no query fails for want
    of a report.
    """
    try:
        _append(report.to_json().encode() + b"\n", folder)
    except (OSError, ValueError, NotImplementedError) as error:
        _log.warning(
            "the report of micro-batch %s was not written to %s: %s; check report.path",
            report.batch_id,
            folder,
            error,
        )


def _append(line: bytes, folder: str) -> None:
    files, path = fs.FileSystem.from_uri(folder)
    files.create_dir(path, recursive=True)
    numbered = _numbered(files, path)
    newest = max(numbered, default=0)
    is_local = isinstance(files, fs.LocalFileSystem)
    if is_local and newest and numbered[newest] + len(line) <= _MOST_BYTES_PER_FILE:
        with files.open_append_stream(_file(path, newest)) as stream:
            stream.write(line)
        return
    with files.open_output_stream(_file(path, newest + 1)) as stream:
        stream.write(line)
    keep = _MOST_FILES if is_local else _MOST_OBJECTS
    for number in sorted(numbered)[: max(0, len(numbered) + 1 - keep)]:
        files.delete_file(_file(path, number))


def _numbered(files: fs.FileSystem, path: str) -> dict[int, int]:
    """The bytes of each file of ours, by its number."""
    found = files.get_file_info(fs.FileSelector(path))
    names = ((_NAME.fullmatch(each.base_name), each.size) for each in found)
    return {int(name[1]): size for name, size in names if name is not None}


def _file(path: str, number: int) -> str:
    return f"{path}/report-{number:09d}.jsonl"
