"""[both] How many bytes records have in Kafka's record batches (magic 2), uncompressed."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.records.columns import BytesColumn, RecordColumns
from spark_kafka_sink.records.partitioner import PartitionedRecords

#: the size of a batch without records
BATCH_OVERHEAD_BYTES = 61
# A record that is not the first of its batch may need so many bytes more, for larger deltas of
# offset and timestamp.
_LATER_RECORD_BYTES = 12
_MAX_RECORD_OVERHEAD_BYTES = 4 + 3 * 5  # attributes, deltas and number of headers; three lengths
_MIN_RECORD_OVERHEAD_BYTES = 4 + 3 * 1


def record_bytes(records: RecordColumns) -> npt.NDArray[np.int64]:
    """The size of every record (int64[records]) as the first one of its batch."""
    bodies = 3 + _field_bytes(records.values)  # attributes, timestamp delta, offset delta
    bodies += 1 if records.keys is None else _field_bytes(records.keys)
    headers = records.headers
    if headers is None:
        bodies += 1
    else:
        counts = np.diff(headers.starts)
        names = np.array([len(name) for name in headers.unique_names], dtype=np.int64)
        names += _varint_bytes(names)
        sizes = _field_bytes(headers.values)
        sizes += names[headers.names] if len(names) else 0
        totals = np.concatenate([[0], np.cumsum(sizes)])[headers.starts]
        bodies += _varint_bytes(counts) + np.diff(totals)
    return bodies + _varint_bytes(bodies)


def are_small(records: RecordColumns, limit: int) -> bool:
    """Whether each record alone fits into a batch of that size; often much quicker to know."""
    if records.headers is not None or not len(records):
        return False
    return _largest_body(records) + BATCH_OVERHEAD_BYTES + _MAX_RECORD_OVERHEAD_BYTES <= limit


def largest_partition_bytes(partitioned: PartitionedRecords, limit: int) -> int:
    """The largest of ``partition_bytes``, or a quicker bound of it that is within ``limit``."""
    records = partitioned.records
    if records.headers is None:
        largest = _largest_body(records) + _MAX_RECORD_OVERHEAD_BYTES + _LATER_RECORD_BYTES
        most = BATCH_OVERHEAD_BYTES + int(np.diff(partitioned.starts).max()) * largest
        if most <= limit:
            return most
    return int(partition_bytes(partitioned).max())


def _largest_body(records: RecordColumns) -> int:
    """An upper limit of the bytes of a key and its value."""
    largest = int(records.values.lengths.max())
    return largest if records.keys is None else largest + int(records.keys.lengths.max())


def batch_bytes(records: RecordColumns) -> int:
    """The size of a batch of all these records, or a little more."""
    sizes = record_bytes(records) + _LATER_RECORD_BYTES
    return BATCH_OVERHEAD_BYTES + int(sizes.sum())


def partition_bytes(partitioned: PartitionedRecords) -> npt.NDArray[np.int64]:
    """The size of one batch for each partition (int64[partitions]), or a little more."""
    ends = np.cumsum(record_bytes(partitioned.records) + _LATER_RECORD_BYTES)
    return BATCH_OVERHEAD_BYTES + np.diff(np.append(0, ends)[partitioned.starts])


def least_partition_bytes(partitioned: PartitionedRecords) -> npt.NDArray[np.int64]:
    """A lower limit of ``partition_bytes``, which is quicker to compute."""
    records = partitioned.records
    sizes = records.values.lengths + _MIN_RECORD_OVERHEAD_BYTES
    if records.keys is not None:
        sizes += records.keys.lengths
    return BATCH_OVERHEAD_BYTES + np.diff(np.append(0, np.cumsum(sizes))[partitioned.starts])


def largest_bytes(records: RecordColumns) -> int:
    """The size of the largest record in a batch of its own."""
    return BATCH_OVERHEAD_BYTES + int(record_bytes(records).max())


def split_to_fit(
    partitioned: PartitionedRecords, max_batch_bytes: int
) -> list[tuple[PartitionedRecords, int]]:
    """Parts with at most one batch of that size per partition; a too large record is alone.

    Each comes with the size of its largest batch, which is at most that size.
    """
    most = largest_partition_bytes(partitioned, max_batch_bytes)
    if most <= max_batch_bytes:
        return [(partitioned, most)]
    sizes = record_bytes(partitioned.records) + _LATER_RECORD_BYTES
    part_of = np.empty(len(sizes), dtype=np.int64)
    largest: defaultdict[int, int] = defaultdict(int)
    for start, end in zip(partitioned.starts[:-1], partitioned.starts[1:], strict=True):
        ends = np.cumsum(sizes[start:end])
        part, first, room = 0, 0, max_batch_bytes - BATCH_OVERHEAD_BYTES
        while first < end - start:
            sent = ends[first - 1] if first else 0
            after = max(first + 1, int(np.searchsorted(ends, sent + room, side="right")))
            part_of[start + first : start + after] = part
            size = int(ends[after - 1] - sent) + BATCH_OVERHEAD_BYTES
            largest[part] = max(largest[part], min(size, max_batch_bytes))
            part, first = part + 1, after
    if len(largest) == 1:
        return [(partitioned, largest[0])]
    return [(partitioned.take(np.flatnonzero(part_of == part)), largest[part]) for part in largest]


def _field_bytes(column: BytesColumn) -> npt.NDArray[np.int64]:
    # The length of null is -1, one byte like 0.
    return column.lengths + _varint_bytes(column.lengths)


def _varint_bytes(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bytes of each number as a zigzag varint; none is negative."""
    # A byte has 7 bits, one of them all for the sign.
    return 1 + np.searchsorted([1 << 6, 1 << 13, 1 << 20, 1 << 27], numbers, side="right")
