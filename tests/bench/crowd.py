"""Many workers at once, forked from one process as Spark's daemon forks them; each runs one task.

``Crowd`` starts that process; as a script, this file is that process. It has imported the sink, and
never makes a client. The workers wait at a barrier, and then begin together. Spark's own workers
import the sink after the fork, each on its executor's machine: here all imports would share the
machine's cores, and hide what the brokers cause.
"""

from __future__ import annotations

import ctypes
import json
import logging
import multiprocessing
import os
import pickle
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from spark_worker import connected, run_as_worker

from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.deadline import Deadline

QUERY = "many-producers"
PARTITIONS = 3
_FORK_SECONDS = 120.0
#: more than a task's own waits: kafka.max.block.ms, close.timeout.ms and the end of its clients
_TASK_SECONDS = 240.0
_END_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True)
class Work:
    """The tasks of micro-batches: a worker for each of ``options``, with that partition number.

    A later micro-batch passes each partition on by ``shift`` workers. ``topic``: of the rows'
    column, or "". ``rows_after``: seconds from the barrier to the rows.
    """

    options: Sequence[SinkOptions]
    batch_ids: Sequence[int]
    shift: int = 0
    topic: str = ""
    rows_after: float = 0.0

    def partition(self, worker: int, batch_id: int) -> int:
        number = self.batch_ids.index(batch_id)
        return (worker + number * self.shift) % len(self.options)


@dataclass(frozen=True)
class Done:
    """What one task did: seconds from when it had its rows, MiB, and the error's name or "".

    ``first_acknowledged``: None without one. ``private_mib``: not shared with other workers. Of a
    worker that crashed, only ``error`` is known, its exit code.
    """

    first_acknowledged: float | None
    ended: float
    error: str
    text: str
    cpu_seconds: float
    peak_mib: float
    private_mib: float


class Crowd:
    """Context manager: inside, all workers wait at the barrier; at the end, none is left."""

    def __init__(self, work: Work) -> None:
        self._work = work

    def __enter__(self) -> Crowd:
        self._parent = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        # Its workers end with it, so no wait below is longer than this.
        seconds = len(self._work.batch_ids) * _TASK_SECONDS
        allowed = _FORK_SECONDS + seconds + 2 * _END_SECONDS
        self._timer = threading.Timer(allowed, self._parent.kill)
        self._timer.start()
        try:
            pickle.dump(self._work, self._parent.stdin)
            self._parent.stdin.flush()
            assert self._line() == "waiting"
        except BaseException:
            self.__exit__()
            raise
        return self

    def run(self) -> list[Done]:
        """Let the next micro-batch begin, and wait until all tasks have ended; workers stay."""
        self._parent.stdin.write(b"go\n")
        self._parent.stdin.flush()
        return [Done(**line) for line in json.loads(self._line())]

    def _line(self) -> str:
        return self._parent.stdout.readline().decode().strip()

    def __exit__(self, *error: object) -> None:
        self._parent.stdin.close()
        try:
            self._parent.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._parent.kill()
            self._parent.wait()
        self._timer.cancel()
        self._parent.stdout.close()


# --- the process that forks ----------------------------------------------------------------------


def fork_and_run() -> None:
    _end_with_parent()
    work: Work = pickle.load(sys.stdin.buffer)
    _import_the_sink()
    fork = multiprocessing.get_context("fork")
    barriers = [os.pipe() for _ in work.batch_ids]
    workers, results = [], []
    try:
        for number in range(len(work.options)):
            mine, theirs = fork.Pipe(duplex=False)
            worker = fork.Process(
                target=_worker, args=(work, number, barriers, theirs), daemon=True
            )
            worker.start()
            theirs.close()
            workers.append(worker)
            results.append(mine)
        assert None not in _collect(results, Deadline(_FORK_SECONDS))  # each is at the barrier
        print("waiting", flush=True)
        for _, opener in barriers:
            assert sys.stdin.buffer.readline() == b"go\n"
            os.close(opener)  # all see the end of the pipe at once
            began = time.monotonic()
            done = _collect(results, Deadline(_TASK_SECONDS))
            for number, worker in enumerate(workers):
                if done[number] is None:
                    done[number] = _crashed(worker, time.monotonic() - began)
            print(json.dumps(done), flush=True)
        sys.stdin.buffer.read()  # until the caller has counted what the workers still hold
    finally:
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.join(_END_SECONDS)


def _end_with_parent() -> None:
    """Let Linux kill this process when the one that started it ends, however that ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _import_the_sink() -> None:
    """What a task imports when it first needs it."""
    import pyarrow as pa

    from spark_kafka_sink.producer import cache  # noqa: F401
    from spark_kafka_sink.records import arrow, rejection  # noqa: F401
    from spark_kafka_sink.spark import task  # noqa: F401
    from spark_kafka_sink.transactions import partition  # noqa: F401

    # pyarrow imports pandas with its first array.
    pa.array([""])


def _collect(connections: Sequence[Connection], deadline: Deadline) -> list[Any]:
    """One message of each worker, in their order; None if it has ended without one."""
    answers: dict[Connection, Any] = {}
    while len(answers) < len(connections):
        missing = [connection for connection in connections if connection not in answers]
        ready = wait(missing, deadline.remaining())
        if not ready:
            raise TimeoutError(f"{len(missing)} of {len(connections)} workers do not answer")
        answers.update((connection, _message(connection)) for connection in ready)
    return [answers[connection] for connection in connections]


def _message(connection: Connection) -> Any:
    try:
        return connection.recv()
    except EOFError:
        return None


def _crashed(worker: BaseProcess, seconds: float) -> dict[str, Any]:
    worker.join(_END_SECONDS)
    return asdict(Done(None, seconds, f"exit code {worker.exitcode}", "", 0.0, 0.0, 0.0))


# --- a worker ------------------------------------------------------------------------------------


def _worker(
    work: Work, number: int, barriers: Sequence[tuple[int, int]], result: Connection
) -> None:
    _end_with_parent()
    for _, opener in barriers:
        os.close(opener)  # or the pipe would not end
    # Many of them would print the client's warnings, which say what it retries.
    logging.disable(logging.WARNING)
    acknowledged = _note_acknowledgements()
    result.send("waiting")
    for batch_id, (barrier, _) in zip(work.batch_ids, barriers, strict=True):
        os.read(barrier, 1)
        acknowledged.clear()
        partition = work.partition(number, batch_id)
        result.send(_run_task(work, work.options[number], batch_id, partition, acknowledged))
    time.sleep(_TASK_SECONDS + _END_SECONDS)  # with its producer, until it is killed


def _run_task(
    work: Work,
    options: SinkOptions,
    batch_id: int,
    partition: int,
    acknowledged: Sequence[float],
) -> dict[str, Any]:
    import pyarrow as pa

    from spark_kafka_sink.errors import KafkaSinkError
    from spark_kafka_sink.records.rejection import Origin
    from spark_kafka_sink.spark import task

    task._origin = lambda _: Origin(QUERY, str(batch_id), partition)
    columns = {
        "value": pa.array([f"{batch_id}-{partition}"] * PARTITIONS),
        "partition": pa.array(range(PARTITIONS), pa.int32()),
    }
    if work.topic:
        columns["topic"] = pa.array([work.topic] * PARTITIONS)
    rows = pa.record_batch(columns)

    def batches() -> Iterator[pa.RecordBatch]:
        time.sleep(work.rows_after)
        yield rows

    before = _cpu_seconds()
    began = time.monotonic()
    error, text = "", ""
    try:
        with connected() as (_, connection):
            run_as_worker(lambda: task.write_partition(batches(), options), connection)
    except KafkaSinkError as failure:
        error, text = type(failure).__name__, str(failure)
    ended = time.monotonic()
    # A task of exactly-once reads the ledger before its rows.
    since = began + work.rows_after
    return {
        "first_acknowledged": acknowledged[0] - since if acknowledged else None,
        "ended": ended - since,
        "error": error,
        "text": text,
        "cpu_seconds": _cpu_seconds() - before,
        **_memory_mib(),
    }


def _note_acknowledgements() -> list[float]:
    """A list that gets the time of the first acknowledgement that this process reads."""
    from spark_kafka_sink.librdkafka import client
    from spark_kafka_sink.librdkafka.events import AcknowledgedRecords

    times: list[float] = []
    read_reports = client.read_reports

    def noting(events, **arguments):
        reports = read_reports(events, **arguments)
        if not times and any(isinstance(report, AcknowledgedRecords) for report in reports):
            times.append(time.monotonic())
        return reports

    client.read_reports = noting
    return times


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory_mib() -> dict[str, float]:
    kibibytes: Counter[str] = Counter()
    for name in ("status", "smaps_rollup"):
        for line in Path(f"/proc/self/{name}").read_text(encoding="utf-8").splitlines():
            key, _, value = line.partition(":")
            if value.endswith(" kB"):
                kibibytes[key] += int(value.split()[0])
    private = kibibytes["Private_Clean"] + kibibytes["Private_Dirty"]
    return {"peak_mib": kibibytes["VmHWM"] / 1024, "private_mib": private / 1024}


if __name__ == "__main__":
    fork_and_run()
