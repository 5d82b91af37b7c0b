"""The clients of this process that no task uses at the moment."""

from __future__ import annotations

from spark_kafka_sink.producer.cache import process_cache
from spark_kafka_sink.transactions import offset_calls


def close_idle_clients() -> None:
    """Close producers, and readers of offsets: they would keep looking for a broker that has gone.

    What they log would reach a later test.
    """
    process_cache().close(5)
    offset_calls._idle_offsets().close(1.0)
