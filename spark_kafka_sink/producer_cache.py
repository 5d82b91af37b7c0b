"""One live producer per process and configuration, leased to one task at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.options import SinkOptions
from spark_kafka_sink.producer import NonBlockingProducer

_DISCARD_SECONDS = 1.0

# Spark forks its Python workers, and threads do not survive a fork: a producer belongs to the
# process that made it. A leased producer is not in here.
_idle: dict[tuple[int, SinkOptions], NonBlockingProducer] = {}


@contextmanager
def lease(options: SinkOptions) -> Iterator[NonBlockingProducer]:
    """A producer for one task, with nothing in its buffer; back in the cache afterwards.

    If the task fails its producer is closed and forgotten, so that nothing of it is sent later.
    """
    key = os.getpid(), options
    producer = _idle.pop(key, None) or NonBlockingProducer(
        options.client, options.buffer_memory_bytes
    )
    try:
        yield producer
    except BaseException:
        producer.close(Deadline(_DISCARD_SECONDS))
        raise
    _idle[key] = producer
