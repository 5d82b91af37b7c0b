"""Writes one Spark partition exactly once, as a task does; stops where it is told to.

Argument: JSON with ``options``, ``batch_id``, ``partition``, ``values`` and ``point``. At that
point it prints the point and waits for a line; at the end it prints ``written`` or the error's name
and text.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable

import pyarrow as pa
from spark_worker import connected, run_as_worker

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.librdkafka import transaction_calls
from spark_kafka_sink.records.dead_letter import Origin
from spark_kafka_sink.spark import writer

#: where a task can stop: before or after one of librdkafka's calls
POINTS = {
    "created": ("init_transactions", "before"),
    "initialized": ("init_transactions", "after"),
    "flushed": ("send_offset", "before"),
    "committing": ("commit_transaction", "before"),
    "committed": ("commit_transaction", "after"),
}


def stop_at(point: str) -> None:
    """Make the task stop there, once."""
    name, when = POINTS[point]
    call = getattr(transaction_calls, name)
    left = [point]

    def stopping(*args):
        if when == "before" and left:
            stop(left.pop())
        failure = call(*args)
        if when == "after" and left and failure is None:
            stop(left.pop())
        return failure

    setattr(transaction_calls, name, stopping)


def stop(point: str) -> None:
    print(point, flush=True)
    sys.stdin.readline()


def write(options: dict[str, str], batch_id: int, partition: int, values: Iterable[str]):
    """What a task does; returns its report."""
    writer._origin = lambda _: Origin("a-query", str(batch_id), partition)
    batches = (pa.record_batch({"value": pa.array([value])}) for value in values)
    with connected() as (_, rows):
        return run_as_worker(lambda: writer.write_partition(batches, parse(options)), rows)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if given["point"]:
        stop_at(given["point"])
    try:
        write(given["options"], given["batch_id"], given["partition"], given["values"])
    except KafkaSinkError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
    else:
        print("written", flush=True)
