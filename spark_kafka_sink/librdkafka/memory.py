"""Memory that the C library keeps although nothing uses it."""

from __future__ import annotations

from spark_kafka_sink.librdkafka import _prototypes as c


def release_freed_memory() -> None:
    """Return unused memory to the system (glibc's ``malloc_trim``; elsewhere nothing)."""
    if c.malloc_trim is not None:
        c.malloc_trim(0)
