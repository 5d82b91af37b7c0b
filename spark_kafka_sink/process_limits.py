"""[both] The limits on this process's memory and threads: errors name the one it reaches."""

from __future__ import annotations

import math
import resource
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from spark_kafka_sink.errors import LimitReached

_MIB = 1 << 20
# A thread reserves its stack, 8 MiB in most systems, and some memory besides.
_THREAD_BYTES = 16 * _MIB
_NOT_LOADED = "failed to map segment"  # of a module in C; the loader's text
_PIDS_MAX = ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max")


def free_address_space() -> float:
    """How many bytes this process may still reserve; infinite without a limit."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return math.inf if limit == resource.RLIM_INFINITY else limit - _address_space()


def memory_limit_reached(problem: str) -> LimitReached:
    """For a process whose address space is limited."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return LimitReached(
        f"this Python process may reserve no more memory ({problem}): {_address_space() // _MIB} "
        f"of {limit // _MIB} MiB are reserved. Raise or remove the limit: in a task "
        "spark.executor.pyspark.memory, which is divided by the executor's cores; on the driver "
        "spark.sql.planner.pythonExecution.memory; or ulimit -v"
    )


@contextmanager
def explaining_memory_errors() -> Iterator[None]:
    """Raises LimitReached for memory that is denied while the address space is limited."""
    try:
        yield
    except (MemoryError, ImportError) as error:
        if (denied := denied_memory(error)) is None:
            raise
        raise denied from None


def denied_memory(error: Exception) -> LimitReached | None:
    """The error to raise if that one is for memory, and the address space is limited."""
    is_denied = isinstance(error, MemoryError) or (
        isinstance(error, (ImportError, OSError)) and _NOT_LOADED in str(error)
    )
    if not is_denied or free_address_space() == math.inf:
        return None
    return memory_limit_reached(str(error) or type(error).__name__)


def thread_limit_reached(problem: str) -> LimitReached:
    """The error for a thread that did not start, perhaps for lack of memory."""
    if free_address_space() < _THREAD_BYTES:
        return memory_limit_reached(problem)
    limits = []
    user_limit = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if user_limit != resource.RLIM_INFINITY:
        limits.append(f"{user_limit} for its user (ulimit -u)")
    for path in _PIDS_MAX:
        with suppress(OSError, ValueError):  # which is "max" without a limit
            limits.append(f"{int(Path(path).read_text())} for its container (pids.max)")
    return LimitReached(
        f"this Python process may start no more threads ({problem}). Raise the limit on processes "
        f"and threads that is reached: {', '.join(limits) or 'that of the machine'}"
    )


def _address_space() -> int:
    """The bytes in use; 0 where only the limit is known."""
    with suppress(OSError):
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    return 0
