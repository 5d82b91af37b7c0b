"""Records read back from their columns of addresses, as plain Python values."""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

from spark_kafka_sink.records.columns import BytesColumn, RecordColumns


class Row(NamedTuple):
    """A record as plain Python values; the defaults stand for a null or missing column."""

    value: bytes | None
    key: bytes | None = None
    partition: int = -1
    timestamp_ms: int = 0
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


def read_bytes(column: BytesColumn) -> list[bytes | None]:
    return [
        ctypes.string_at(address, length) if address else None
        for address, length in zip(column.addresses.tolist(), column.lengths.tolist(), strict=True)
    ]


def read(records: RecordColumns) -> list[Row]:
    count = len(records)
    headers: list[Any] = [()] * count
    if records.headers is not None:
        names = [records.headers.unique_names[i] for i in records.headers.names]
        pairs = list(zip(names, read_bytes(records.headers.values), strict=True))
        starts = records.headers.starts.tolist()
        headers = [tuple(pairs[starts[i] : starts[i + 1]]) for i in range(count)]
    columns = [
        read_bytes(records.values),
        [None] * count if records.keys is None else read_bytes(records.keys),
        [-1] * count if records.partitions is None else records.partitions.tolist(),
        [0] * count if records.timestamps_ms is None else records.timestamps_ms.tolist(),
        headers,
    ]
    return [Row(*cells) for cells in zip(*columns, strict=True)]
