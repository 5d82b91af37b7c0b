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
_SENDING_SECONDS = 0.5


def install(writer) -> None:
    mutant = os.environ.get("CHAOS_MUTANT")
    if mutant:
        from product_mutants import MUTANTS

        MUTANTS[mutant](writer)
    write_partition = writer.write_partition

    def attempt(batches, options):
        name = _begin(options)
        try:
            report = write_partition(batches, options)
        except BaseException as error:
            _append(name, outcome=type(error).__name__)
            raise
        _append(name, outcome="acknowledged", rows=report.total_sent)
        return report

    def observed(batches, options):
        delay = _request("zombie", options.topic)
        if delay is not None:
            batches = list(batches)
            _start_zombie(float(delay), lambda: attempt(batches, options))
        report = attempt(_and_die(batches, options.topic), options)
        if _request("kill-after", options.topic) is not None:
            os.kill(os.getpid(), signal.SIGKILL)
        return report

    writer.write_partition = observed


def _start_zombie(delay: float, attempt) -> None:
    """Another process makes the same attempt, as if Spark had given it up, or speculates."""
    if os.fork() != 0:
        return
    try:
        # Spark notices the worker's end when its connections are closed.
        os.closerange(3, 1024)
        time.sleep(delay)
        attempt()
    finally:
        os._exit(0)


def _and_die(batches, topic):
    yield from batches
    if _request("kill-before", topic) is not None:
        time.sleep(_SENDING_SECONDS)  # until rows are in the topic, though the task does not know
        os.kill(os.getpid(), signal.SIGKILL)


def _request(what: str, topic: str) -> str | None:
    """The text of a request, which one worker takes, or None."""
    path = _FOLDER / f"{what}-{topic}"
    try:
        text = path.read_text()
        path.unlink()
    except FileNotFoundError:
        return None
    return text


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
