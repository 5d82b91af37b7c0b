"""In the streams' Python workers: logs every attempt, and kills its process if asked to.

``CHAOS_FOLDER``: the run's folder, with the log of attempts and the requests to kill.
"""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from pathlib import Path

from pyspark import TaskContext

_FOLDER = Path(os.environ["CHAOS_FOLDER"])
# The names of files are those of evidence.py and faults.py, which workers do not import.
_ATTEMPTS = _FOLDER / "attempts.jsonl"


def install(writer) -> None:
    write_partition = writer.write_partition

    def observed(batches, options):
        attempt = _begin(options)
        try:
            report = write_partition(_and_die(attempt, batches, options.topic), options)
        except BaseException as error:
            _append(attempt, outcome=type(error).__name__)
            raise
        _append(attempt, outcome="acknowledged", rows=report.total_sent)
        _die_if_asked("after", options.topic)
        return report

    writer.write_partition = observed


def _and_die(attempt, batches, topic):
    yield from batches
    # All rows have been sent; some or all of them are not acknowledged yet.
    _die_if_asked("before", topic)


def _die_if_asked(moment: str, topic: str) -> None:
    try:
        (_FOLDER / f"kill-{moment}-{topic}").unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def _begin(options) -> str:
    attempt = uuid.uuid4().hex
    context = TaskContext.get()
    batch = options.batch_id
    if batch is None:
        batch = int(context.getLocalProperty("streaming.sql.batchId"))
    _append(attempt, topic=options.topic, batch=batch, partition=context.partitionId())
    return attempt


def _append(attempt: str, **what) -> None:
    line = json.dumps({"attempt": attempt, "at": time.monotonic(), "pid": os.getpid(), **what})
    file = os.open(_ATTEMPTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)
