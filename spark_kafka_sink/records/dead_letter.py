"""[both] Rejected records -> dead letters: with headers that give reason and origin.

Names of the headers: ``kafka-nb.error``, ``.message``, ``.topic``, ``.partition`` (what the row's
column said), ``.query.id``, ``.batch.id``, ``.task.partition`` and ``.row`` (counted from 0 in its
task). ``.timestamp`` (milliseconds since the epoch) is there only if the dead letter cannot keep
the record's own timestamp, and ``.headers`` (JSON) only if its headers cannot be sent.

A row that was read from a dead letter topic may bring such headers along; its new dead letter has
none of them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.records.column_table import RECORD_COLUMNS, TIMESTAMP, Column, Kept, Kind
from spark_kafka_sink.records.columns import BytesColumn, RecordColumns, appended
from spark_kafka_sink.records.rejection import (
    INVALID_HEADER,
    INVALID_TIMESTAMP,
    NEGATIVE_PARTITION,
    Origin,
    RejectedRecords,
)

PREFIX = "kafka-nb."

_KEPT_NUMBERS = [
    column
    for column in RECORD_COLUMNS
    if column.kept is Kept.AS_HEADER and column.kind is Kind.NUMBERS
]

# Brokers reject later timestamps by default (message.timestamp.after.max.ms, KIP-1030). They may
# reject earlier ones too, or delete the dead letter within minutes, as older than the retention.
_FAR_MS = 3_600_000

_NO_TIMESTAMP = TIMESTAMP.if_null


def dead_letters(
    rejected: RejectedRecords, topic: str, origin: Origin, now_ms: int
) -> list[RecordColumns]:
    """The rejected records as records of ``topic``.

    They keep their timestamps and headers, except for those that cannot be sent. Keys decide the
    partition.
    """
    has_new = _has_new_timestamp(rejected, now_ms)
    has_json = rejected.has(INVALID_HEADER)
    letters = []
    for new, is_json in product((False, True), repeat=2):
        rows = np.flatnonzero((has_new == new) & (has_json == is_json))
        if len(rows):
            letters.append(_dead_letters(rejected.take(rows), topic, origin, new, is_json))
    return letters


def describe(records: RecordColumns) -> str:
    """The first of them, as ``micro-batch 7, partition 3, row 5 of topic t (INVALID_HEADER: ...)``.

    The text is empty if that is no dead letter of ours.
    """
    headers = records.take(np.zeros(1, dtype=np.int64)).headers
    if headers is None:
        return ""
    texts = {}
    added = range(-len(headers.other_buffers), 0)  # the last headers; the others are the row's
    for position, buffer in zip(added, headers.other_buffers, strict=True):
        name = headers.unique_names[headers.names[position]].decode()
        address = int(headers.values.addresses[position])
        start = address - buffer.ctypes.data
        value = bytes(buffer[start : start + int(headers.values.lengths[position])])
        texts[name.removeprefix(PREFIX)] = value.decode(errors="replace") if address else None
    if not texts.keys() >= {"error", "message", "topic", "batch.id", "task.partition", "row"}:
        return ""
    partition = texts["task.partition"]
    origin = Origin(None, texts["batch.id"], None if partition is None else int(partition))
    topic = "" if texts["topic"] is None else f" of topic {texts['topic']}"
    why, *_ = (texts["message"] or "").split(". ")
    return f"{origin.place}, row {texts['row']}{topic} ({texts['error']}: {why})"


def _has_new_timestamp(rejected: RejectedRecords, now_ms: int) -> npt.NDArray[np.bool_]:
    is_invalid = rejected.has(INVALID_TIMESTAMP)
    timestamps = rejected.records.timestamps_ms
    if timestamps is None:
        return is_invalid
    is_near = np.abs(timestamps - now_ms) <= _FAR_MS
    is_new: npt.NDArray[np.bool_] = is_invalid | ~(is_near | (timestamps == _NO_TIMESTAMP))
    return is_new


def _dead_letters(
    rejected: RejectedRecords,
    topic: str,
    origin: Origin,
    has_new_timestamp: bool,
    has_headers_as_json: bool,
) -> RecordColumns:
    records = rejected.records
    timestamps = records.timestamps_ms
    columns: dict[str, Iterable[object]] = {
        "error": [rejected.error],
        "message": [rejected.reason],
        "topic": [rejected.topic],
        **{column.name: _kept_numbers(column, rejected) for column in _KEPT_NUMBERS},
        "query.id": [origin.query_id],
        "batch.id": [origin.batch_id],
        "task.partition": [origin.task_partition],
        "row": records.rows.tolist(),
    }
    if has_new_timestamp and timestamps is not None:
        columns["timestamp"], timestamps = _kept_timestamps(timestamps, rejected), None
    originals = records.headers
    if originals is not None:
        originals = originals.without(_is_about_a_rejection)
        if has_headers_as_json and rejected.headers_json is not None:
            left_out = originals.left_out
            columns["headers"] = [_kept_json(text, left_out) for text in rejected.headers_json]
            originals = originals.appended_only()  # the ids of schemas
    texts = {name: [_encoded(value) for value in column] for name, column in columns.items()}
    names = [(PREFIX + name).encode() for name in columns]
    added = _columns(texts.values())
    return replace(
        records,
        topic=topic,
        timestamps_ms=timestamps,
        headers=appended(originals, names, added, len(records)),
        own_bytes=records.own_bytes + len(added[0].buffer),
        **_no_kept_numbers(),
    )


def _is_about_a_rejection(name: bytes) -> bool:
    return name.startswith(PREFIX.encode())


def _kept_json(text: bytes | None, left_out: Collection[bytes]) -> bytes | None:
    """The headers of a row as JSON, without those that its dead letter does not keep."""

    def is_kept(header: dict[str, str | None] | None) -> bool:
        name = ((header or {}).get("key") or "").encode()
        return not (_is_about_a_rejection(name) or name in left_out)

    return text and json.dumps(list(filter(is_kept, json.loads(text)))).encode()


def _kept_timestamps(
    timestamps: npt.NDArray[np.int64], rejected: RejectedRecords
) -> list[int | None]:
    """0 stands for none, unless the row has it, which is an error of rows."""
    is_null = timestamps == _NO_TIMESTAMP
    if INVALID_TIMESTAMP in rejected.other_errors:
        is_null &= ~rejected.other_errors[INVALID_TIMESTAMP]
    return [None if null else t for null, t in zip(is_null, timestamps.tolist(), strict=True)]


def _no_kept_numbers() -> dict[str, Any]:
    return {column.field: None for column in _KEPT_NUMBERS}


def _kept_numbers(column: Column, rejected: RejectedRecords) -> list[int | None]:
    """-1 stands for no partition, unless the row has it."""
    numbers = getattr(rejected.records, column.field)
    if numbers is None:
        return [None]
    is_null = (numbers == column.if_null) & ~rejected.has(NEGATIVE_PARTITION)
    return [None if null else n for null, n in zip(is_null, numbers.tolist(), strict=True)]


def _encoded(value: object) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else str(value).encode()


def _columns(columns: Iterable[Sequence[bytes | None]]) -> list[BytesColumn]:
    """Columns of texts, all in one buffer."""
    columns = list(columns)
    every = [text for column in columns for text in column]
    buffer = np.frombuffer(b"".join(text or b"" for text in every) + b"\0", dtype=np.uint8)
    lengths = np.array([len(text or b"") for text in every], dtype=np.int64)
    addresses = (buffer.ctypes.data + np.cumsum(lengths) - lengths).astype(np.uint64)
    addresses[[text is None for text in every]] = 0
    ends = np.cumsum([len(column) for column in columns])[:-1]
    parts = zip(np.split(addresses, ends), np.split(lengths, ends), strict=True)
    return [BytesColumn(*part, buffer) for part in parts]
