"""Suspends a process, as if its machine had stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spark_kafka_sink.deadline import Deadline

_SECONDS = 30.0


@contextmanager
def suspended(pid: int) -> Iterator[None]:
    """Inside the block, no thread of the process runs. The signal alone returns before that."""
    os.kill(pid, signal.SIGSTOP)
    deadline = Deadline(_SECONDS)
    try:
        while not all(state == "T" for state in _states(pid)):
            assert not deadline.expired, f"process {pid} still runs"
            time.sleep(0.01)  # there is no event when another process's thread stops
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _states(pid: int) -> list[str]:
    """A letter for each of its threads."""
    states = []
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has ended
            states.append(path.read_text().rpartition(")")[2].split()[0])
    return states
