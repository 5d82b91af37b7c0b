"""Reads Spark's progress of a query: entries of ``recentProgress``, events of listeners."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def is_micro_batch(progress: Mapping[str, Any]) -> bool:
    """False for the progress of an idle query, which has the id of the next micro-batch."""
    return "addBatch" in progress["durationMs"]


def rows_per_second(progress: Mapping[str, Any]) -> float | None:
    """Rows that Spark processed per second, or None: the first micro-batches may have no rate."""
    rate: float | None = progress.get("processedRowsPerSecond")
    return rate if rate is not None and math.isfinite(rate) else None


def offsets_behind_latest(progress: Mapping[str, Any]) -> dict[str, int]:
    """By source: how far its slowest partition is behind the latest record.

    Only of sources that report it, such as Spark's Kafka source; of sources with the same name, the
    largest.
    """
    behind: dict[str, int] = {}
    for source in progress["sources"]:
        lag = (source.get("metrics") or {}).get("maxOffsetsBehindLatest")
        if lag is not None:
            name = source["description"]
            behind[name] = max(int(lag), behind.get(name, 0))
    return behind
