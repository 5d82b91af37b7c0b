"""Writes one Spark partition exactly once, as a task does; stops where it is asked to.

Argument: JSON with ``options``, ``batch_id``, ``partition``, ``values``, ``stage`` and ``point``.
At that point it prints the point and waits for a line; at the end it prints ``written`` or the
error's name and text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from unittest.mock import patch

import pyarrow as pa
from spark_worker import connected, run_as_worker

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.records.rejection import Origin
from spark_kafka_sink.spark import task
from spark_kafka_sink.transactions.transaction import Transaction

#: where a task can stop: before or after a step of its own transaction
POINTS = {
    "created": ("initialize", "before"),
    "initialized": ("initialize", "after"),
    "flushed": ("send_offset", "before"),
    "committing": ("commit", "before"),
    "committed": ("commit", "after"),
}
#: or of the transaction that claims the layout
CLAIM_POINTS = {
    "claiming": ("initialize", "before"),
    "claim opened": ("send_offset", "after"),
    "claim settled": ("commit", "before"),
}


def stop_at(point: str) -> None:
    """Make the task stop there, once."""
    is_claim = point in CLAIM_POINTS
    name, when = (CLAIM_POINTS if is_claim else POINTS)[point]
    step = getattr(Transaction, name)
    left = [point]

    def stopping(transaction, *args):
        is_meant = transaction._id.endswith(".layout") == is_claim
        if when == "before" and is_meant and left:
            stop(left.pop())
        step(transaction, *args)
        if when == "after" and is_meant and left:
            stop(left.pop())

    setattr(Transaction, name, stopping)


def stop(point: str) -> None:
    print(point, flush=True)
    sys.stdin.readline()


def write(
    options: dict[str, str],
    batch_id: int,
    partition: int,
    values: Iterable[str],
    stage: str = "a stage",
):
    """What a task does with an Arrow batch for each value; returns its report."""
    batches = (pa.record_batch({"value": pa.array([value])}) for value in values)
    return write_batches(options, batch_id, partition, batches, stage)


def write_batches(
    options: dict[str, str],
    batch_id: int,
    partition: int,
    batches: Iterable[pa.RecordBatch],
    stage: str = "a stage",
):
    """What a task does; returns its report."""
    origin = Origin("a-query", str(batch_id), partition, stage)
    with connected() as (_, rows), patch.object(task, "_origin", lambda _: origin):
        return run_as_worker(lambda: task.write_partition(batches, parse(options)), rows)


if __name__ == "__main__":
    arguments = json.loads(sys.argv[1])
    if arguments["point"]:
        stop_at(arguments["point"])
    try:
        names = "options", "batch_id", "partition", "values", "stage"
        write(*(arguments[name] for name in names))
    except KafkaSinkError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    else:
        print("written", flush=True)
