"""The clients that read and write offsets, and that no task uses at the moment."""

from __future__ import annotations

from spark_kafka_sink.transactions import offset_calls


def close_idle_offsets() -> None:
    """Close this process's: they would keep looking for a broker that has gone."""
    offset_calls._idle_offsets().close(1.0)
