"""Made-up reports of micro-batches, as the lines of docs/report_format.md."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from spark_kafka_sink.reports.reading import Report, parse

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


def line(number: int = 0, **changed: Any) -> bytes:
    return json.dumps(fields(number, **changed)).encode() + b"\n"


def report(number: int = 0, **changed: Any) -> Report:
    return parse(line(number, **changed))


def write(folder: Path, *numbers: int, file: int = 0) -> Path:
    """Append ordinary reports to a file of the folder; returns the file."""
    path = folder / f"report-{file}.jsonl"
    with path.open("ab") as stream:
        stream.writelines(line(number) for number in numbers)
    return path
