"""Turns errors of the operating system into LocalKafkaError with advice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from spark_kafka_sink.errors import LocalKafkaError


@contextmanager
def explained(advice: str) -> Iterator[None]:
    """Raise any OSError of the block as LocalKafkaError, followed by ``advice``."""
    try:
        yield
    except OSError as error:
        raise LocalKafkaError(f"{error}. {advice}") from error
