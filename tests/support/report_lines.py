"""Made-up reports of micro-batches, as the lines of docs/report_format.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from random import Random
from typing import Any

from spark_kafka_sink.report.batch_figures import BatchFigures
from spark_kafka_sink.report.reading import parse

BEGIN = datetime(2026, 11, 22, 8, tzinfo=timezone.utc)

_FIELDS: dict[str, Any] = {
    "version": 1,
    "query_id": "7d6c4d5e-0000-4000-8000-000000000001",
    "outcome": "delivered",
    "tasks": 4,
    "failed_tasks": 0,
    "records": 10_000,
    "sent_bytes": 10_000_000,
    "records_by_topic": {"orders": 10_000},
    "sent_bytes_by_topic": {"orders": 10_000_000},
    "busiest_partition": "orders-1",
    "busiest_partition_records": 2_600,
    "failed_records_by_topic": {},
    "failed_records_by_error": {},
    "dead_letters_by_topic": {},
    "unsent_records": 0,
    "possibly_persisted_records": 0,
    "retried_requests": 0,
    "task_ms": 4_000,
    "longest_task_ms": 1_000,
    "rows_wait_ms": 0,
    "metadata_wait_ms": 0,
    "buffer_wait_ms": 0,
    "acknowledgement_wait_ms": 0,
    "first_acknowledgement_ms": 12,
    "metadata_requests": 0,
    "buffer_peak_bytes": 16 * 2**20,
    "buffer_memory_bytes": 64 * 2**20,
    "producers_created": 0,
    "producers_reused": 4,
    "round_trip_p50_ms": 1.5,
    "round_trip_p99_ms": 4.5,
    "broker_error": "",
}


def fields(number: int = 0, **changed: Any) -> dict[str, Any]:
    """The micro-batch ``number`` of a stream that begins one every 2 s."""
    ended_at = BEGIN + timedelta(seconds=2 * number + 1)
    text = ended_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {**_FIELDS, "batch_id": number, "ended_at": text, **changed}


def first_release() -> set[str]:
    """The names in every report since the first release."""
    return set(fields())


def line(number: int = 0, **changed: Any) -> bytes:
    return json.dumps(fields(number, **changed)).encode() + b"\n"


def report(number: int = 0, **changed: Any) -> BatchFigures:
    return parse(line(number, **changed))


def write(folder: Path, *numbers: int, file: int = 0) -> Path:
    """Append ordinary reports to a file of the folder; returns the file."""
    path = folder / f"report-{file}.jsonl"
    with path.open("ab") as stream:
        stream.writelines(line(number) for number in numbers)
    return path


def slow_brokers(micro_batches: int = 400) -> Iterator[bytes]:
    """A stream whose brokers are slow for a while; one micro-batch fails in it."""
    random = Random(7)
    for number in range(micro_batches):
        is_slow = 0.5 < number / micro_batches < 0.6
        records = random.randrange(18_000, 24_000)
        shares = {"orders": 0.5, "returns": 0.2, "payments": 0.15, "shipments": 0.1}
        shares |= {"customers.addresses.changes": 0.03, "carts": 0.01, "wishes": 0.01}
        by_topic = {topic: int(share * records) for topic, share in shares.items()}
        rest_ms = random.randrange(900, 1_300)
        buffer_ms = random.randrange(6_000, 9_000) if is_slow else random.randrange(60)
        task_ms = rest_ms + 2_400 + 400 + buffer_ms
        changed: dict[str, Any] = {}
        if number % 61 == 17:
            errors = {"MSG_SIZE_TOO_LARGE": random.randrange(1, 9)}
            changed["dead_letters_by_topic"] = {"orders": errors}
        if number == int(0.55 * micro_batches):
            changed |= {"outcome": "failed", "failed_tasks": 1, "unsent_records": 1_100}
            changed["failed_records_by_topic"] = {"orders": 1_200}
            changed["failed_records_by_error"] = {"_MSG_TIMED_OUT": 1_200}
            changed["broker_error"] = "broker-2:9092: Disconnected"
        yield line(
            number,
            records=sum(by_topic.values()),
            records_by_topic=by_topic,
            sent_bytes=1_000 * sum(by_topic.values()),
            sent_bytes_by_topic={topic: 1_000 * count for topic, count in by_topic.items()},
            task_ms=task_ms,
            longest_task_ms=int(task_ms * random.uniform(0.26, 0.32)),
            rows_wait_ms=2_400,
            metadata_wait_ms=0 if number else 90,
            buffer_wait_ms=buffer_ms,
            acknowledgement_wait_ms=310,
            retried_requests=random.randrange(9) if is_slow else 0,
            buffer_peak_bytes=(63 if is_slow else random.randrange(9, 17)) * 2**20,
            round_trip_p99_ms=380.0 if is_slow else 4.5,
            **changed,
        )
