"""The C library's memory, and whether there is enough for a client."""

from __future__ import annotations

import math

from spark_kafka_sink.librdkafka import _prototypes as c
from spark_kafka_sink.process_limits import free_address_space, memory_limit_reached

_M_ARENA_MAX = -8
_ARENAS = 2
# Of three brokers: the stacks of six threads, 8 MiB each, and its own memory.
_CLIENT_BYTES = 64 << 20


def release_freed_memory() -> None:
    """Return unused memory to the system (glibc's ``malloc_trim``; does nothing elsewhere)."""
    if c.malloc_trim is not None:
        c.malloc_trim(0)


def require_memory_for_client() -> None:
    """Raise LimitReached if the limit on address space leaves no room for a client.

    librdkafka would abort the process. Under such a limit, threads share two of glibc's arenas:
    each reserves 64 MiB or more, and by default every thread gets its own.
    """
    if free_address_space() == math.inf:
        return
    if c.mallopt is not None:
        c.mallopt(_M_ARENA_MAX, _ARENAS)
    if free_address_space() < _CLIENT_BYTES:
        raise memory_limit_reached("there is no room for a Kafka client")
