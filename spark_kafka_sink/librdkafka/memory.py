"""Returns unused memory of the C library to the system."""

from __future__ import annotations

from spark_kafka_sink.librdkafka import _prototypes as c


def release_freed_memory() -> None:
    """Return unused memory to the system (glibc's ``malloc_trim``; does nothing elsewhere)."""
    if c.malloc_trim is not None:
        c.malloc_trim(0)
