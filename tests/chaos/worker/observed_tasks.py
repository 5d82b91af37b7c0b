"""Logs every attempt, marks its records, and kills it if asked to: in the streams' Python workers,
and in the driver for those streams whose rows it sends.

``CHAOS_FOLDER``: the run's folder, with the log of attempts and the requests to kill.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from pyspark import TaskContext

_FOLDER = Path(os.environ["CHAOS_FOLDER"])
# As in evidence.py, faults.py and query_kinds.py, which workers do not import.
_ATTEMPTS = _FOLDER / "attempts.jsonl"
_ATTEMPT_DIGITS = 16
_TOPIC_PARTITIONS = 3
_SENDING_SECONDS = 0.5
_MAX_FILES = 1024


class _Running(threading.local):
    """The attempt that this thread makes: one at a time."""

    name = ""
    #: what a task left behind when it failed
    report = None


_running = _Running()


def install(task) -> None:
    _log_to_stderr()
    mutant = os.environ.get("CHAOS_MUTANT")
    if mutant:
        from product_mutants import MUTANTS

        MUTANTS[mutant](task)
    write_partition = task.write_partition

    def attempt(batches, options, serializer=None):
        with _attempt(options, lambda: _running.report):
            _running.report = write_partition(batches, options, serializer)
        return _running.report

    def observed(batches, options, serializer=None):
        delay = _request("zombie", options.topic)
        if delay is not None:
            batches = list(batches)
            _start_zombie(float(delay), lambda: attempt(batches, options, serializer))
        report = attempt(_and_die(batches, options.topic), options, serializer)
        if _request("kill-after", options.topic) is not None:
            _die()
        return report

    task.write_partition = observed
    write = task.RowWriter.write

    def observed_write(writer, batches, *check_end):
        if TaskContext.get() is not None:
            return write(writer, batches, *check_end)
        options = writer._options
        with _attempt(options, lambda: writer.report):
            write(writer, _and_die(batches, options.topic), *check_end)
        if _request("kill-after", options.topic) is not None:
            _die()
        return None

    task.RowWriter.write = observed_write


@contextmanager
def _attempt(options, report):
    """Logs the attempt that runs within; ``report``: of what it has done when it has ended."""
    _observe_reports_and_records()
    name = _begin(options)
    try:
        yield
    except BaseException as error:
        outcome, code = type(error).__name__, getattr(error, "code", "")
        _append(name, outcome=outcome, code=code, report=_report_values(report()))
        raise
    _append(name, outcome="acknowledged", report=_report_values(report()))


@cache
def _observe_reports_and_records() -> None:
    from spark_kafka_sink.producer.cache import BorrowedProducer
    from spark_kafka_sink.report import folder as report_folder
    from spark_kafka_sink.transactions.transaction import Transaction

    # Both are below the fingerprint, which must be the same for every attempt.
    for sender in (BorrowedProducer, Transaction):
        send = sender.send
        sender.send = lambda self, records, send=send: send(self, _marked(records))
    send_dead_letters = Transaction.send_dead_letters
    Transaction.send_dead_letters = lambda self, rejected: send_dead_letters(
        self, replace(rejected, records=_marked(rejected.records))
    )
    write_failed_task = report_folder.write_failed_task

    def observed_write(report, folder, batch_id):
        _running.report = report
        write_failed_task(report, folder, batch_id)

    report_folder.write_failed_task = observed_write


def _marked(records):
    """The records, with the attempt's name as the end of every value; nothing else changes."""
    values = records.values
    buffer = values.buffer.copy()
    begins = values.addresses - np.uint64(values.buffer.ctypes.data)
    ends = begins.astype(np.int64) + values.lengths
    name = np.frombuffer(_running.name.encode(), dtype=np.uint8)
    buffer[ends[:, None] + np.arange(-_ATTEMPT_DIGITS, 0)] = name
    moved = replace(values, addresses=begins + np.uint64(buffer.ctypes.data), buffer=buffer)
    return replace(records, values=moved, arrow_batch=(records.arrow_batch, buffer))


def _log_to_stderr() -> None:
    """librdkafka's last words before it aborts the process must not stay in a queue."""
    from spark_kafka_sink.librdkafka import client

    set_value = client.set_value
    client.set_value = lambda conf, name, value: set_value(
        conf, name, "false" if name == "log.queue" else value
    )


def _start_zombie(delay: float, attempt) -> None:
    """Another process makes the same attempt, as if Spark had given it up, or speculates."""
    if os.fork() != 0:
        return
    try:
        pairs = _replace_connections()
        time.sleep(delay)
        attempt()
        del pairs
    finally:
        os._exit(0)


def _replace_connections() -> list[socket.socket]:
    """Close all files: Spark notices the worker's end when its connections are closed.

    In place of each connection comes one that looks the same, open or ended by the other side, for
    whoever asks whether Spark has passed all rows.
    """
    is_open, has_ended = socket.socketpair(), socket.socketpair()
    has_ended[1].close()
    kept = [*is_open, has_ended[0]]
    for file in set(range(3, _MAX_FILES)) - {file.fileno() for file in kept}:
        try:
            is_socket = stat.S_ISSOCK(os.fstat(file).st_mode)
        except OSError:
            continue  # not open
        if is_socket:
            os.dup2((has_ended if _has_ended(file) else is_open)[0].fileno(), file)
        else:
            os.close(file)
    return kept


def _has_ended(file: int) -> bool:
    with socket.socket(fileno=os.dup(file)) as connection:
        try:
            return connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except OSError:
            return False


def _and_die(batches, topic):
    yield from batches
    if _request("kill-before", topic) is not None:
        time.sleep(_SENDING_SECONDS)  # until rows are in the topic, though the task does not know
        _die()


def _die():
    if TaskContext.get() is None:
        # The driver, with its Java, which is in its process group.
        (_FOLDER / "driver-killed").touch()
        os.killpg(0, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _request(what: str, topic: str) -> str | None:
    """The text of a request, which one process takes, or None."""
    path = _FOLDER / f"{what}-{topic}"
    try:
        text = path.read_text()
        path.unlink()
    except FileNotFoundError:
        return None
    return text


def _begin(options) -> str:
    _running.name, _running.report = uuid.uuid4().hex[:_ATTEMPT_DIGITS], None
    from spark_kafka_sink.config.option_table import BATCH_ID
    from spark_kafka_sink.config.producer_options import FROM_DRIVER

    context = TaskContext.get()
    batch = options.values[BATCH_ID]
    if batch is None:
        batch = int(context.getLocalProperty("streaming.sql.batchId"))
    partitions = 0 if options.exactly_once is None else options.exactly_once.partitions
    _append(
        _running.name,
        topic=options.topic,
        run="" if context is None else context.getLocalProperty("spark.jobGroup.id"),
        batch=batch,
        partition=0 if context is None else context.partitionId(),
        partitions=1 if partitions == FROM_DRIVER else partitions,
    )
    return _running.name


def _report_values(report):
    """As evidence.py reads it, with the partitions of dead letters behind those of the topic."""
    return report and {
        "acknowledged": [
            [partition + _TOPIC_PARTITIONS * topic.endswith("-dead-letters"), n]
            for (topic, partition), n in report.acknowledged_records.items()
        ],
        "failed": report.total_failed,
        "possibly_persisted": report.possibly_persisted_records,
        "unsent": report.unsent_records,
    }


def _append(attempt: str, **what) -> None:
    line = json.dumps({"attempt": attempt, "at": time.monotonic(), "pid": os.getpid(), **what})
    file = os.open(_ATTEMPTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)
