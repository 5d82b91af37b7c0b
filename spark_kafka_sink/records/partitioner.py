"""Chooses partitions as the Java producer does, and groups records by partition."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.records.columns import BytesColumn, RecordColumns

UNASSIGNED = -1

_SEED = np.uint32(0x9747B28C)
_M = np.uint32(0x5BD1E995)
_POSITIVE = np.uint32(0x7FFFFFFF)
_FEW_KEYS = 100
_LONG_KEY_WORDS = 64


@dataclass(frozen=True)
class TopicPartitions:
    """How many partitions a topic has, and which of them have a leader (``available``).

    ``near``: those whose leader is in the client's own rack; None if the client or the leaders have
    none.
    """

    count: int
    available: tuple[int, ...]
    near: frozenset[int] | None = None


#: for a topic whose partitions only the client can find out
UNKNOWN_PARTITIONS = TopicPartitions(0, ())


@dataclass(frozen=True)
class PartitionedRecords:
    """Records grouped by partition: ``starts[i]:starts[i + 1]`` are those of ``partitions[i]``.

    Within a partition they keep their order. Partition -1: the client chooses, per record.
    ``positions`` (int64[records]): where each record was in the send, before the grouping.
    """

    records: RecordColumns
    partitions: npt.NDArray[np.int32]
    starts: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]

    def take(self, indices: npt.NDArray[np.int64]) -> PartitionedRecords:
        """Some of these records, in ascending order."""
        group_indices = np.repeat(np.arange(len(self.partitions)), np.diff(self.starts))[indices]
        groups, firsts = np.unique(group_indices, return_index=True)
        return PartitionedRecords(
            self.records.take(indices),
            self.partitions[groups],
            np.append(firsts, len(indices)),
            self.positions[indices],
        )


class Partitioner:
    """Spreads records without a key over the available partitions: one partition per send.

    Like Java's sticky partitioner, which uses one partition until a batch is full. With
    ``is_rack_aware``, only over those that are near, if there are any (KIP-1123).
    """

    def __init__(self, *, is_rack_aware: bool = False) -> None:
        self._is_rack_aware = is_rack_aware
        self._sends: dict[str, int] = {}  # per topic, starting at a random number

    def partition(self, records: RecordColumns, partitions: TopicPartitions) -> PartitionedRecords:
        """Group records by partition; if their number is unknown, the client chooses later."""
        if not partitions.count:
            return unpartitioned(records)
        choices = self._choices(partitions)
        sends = self._sends.get(records.topic, random.randrange(partitions.count))  # noqa: S311
        self._sends[records.topic] = sends + 1
        return group_by_partition(records, partitions.count, choices[sends % len(choices)])

    def _choices(self, partitions: TopicPartitions) -> Sequence[int]:
        if self._is_rack_aware and partitions.near:
            return sorted(partitions.near)
        return partitions.available or range(partitions.count)

    def forget(self, topics: Iterable[str]) -> None:
        """Forget topics that are no longer in use."""
        for topic in topics:
            self._sends.pop(topic, None)


def group_by_partition(
    records: RecordColumns, partition_count: int, sticky_partition: int
) -> PartitionedRecords:
    """Assign a partition to every record and sort the records by it.

    The column ``partition`` decides, then the key (murmur2 modulo ``partition_count``). Records
    with neither go to ``sticky_partition``.
    """
    if records.partitions is None and (records.keys is None or partition_count == 1):
        return _one_group(records, sticky_partition)
    if records.keys is None:
        chosen = np.full(len(records), sticky_partition, dtype=np.int32)
    else:
        hashes = (murmur2(records.keys) & _POSITIVE).astype(np.int32)
        chosen = hashes % np.int32(partition_count)
        chosen[records.keys.addresses == 0] = sticky_partition
    if records.partitions is not None:
        chosen = np.where(records.partitions < 0, chosen, records.partitions)
    if len(chosen) == 0 or chosen.min() == chosen.max():
        return _one_group(records, int(chosen[0]) if len(chosen) else sticky_partition)
    # numpy radix-sorts 16-bit integers, several times faster than wider ones.
    narrow = chosen.astype(np.uint16) if chosen.max() < 2**16 else chosen
    order = np.argsort(narrow, kind="stable")
    ordered = chosen[order]
    edges = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    starts = np.concatenate([[0], edges, [len(ordered)]])
    return PartitionedRecords(records.take(order), ordered[starts[:-1]], starts, order)


def unpartitioned(records: RecordColumns) -> PartitionedRecords:
    """Records whose topic has an unknown number of partitions: the client chooses later."""
    return _one_group(records, UNASSIGNED)


def _one_group(records: RecordColumns, partition: int) -> PartitionedRecords:
    starts = np.array([0, len(records)], dtype=np.int64)
    positions = np.arange(len(records), dtype=np.int64)
    return PartitionedRecords(records, np.array([partition], dtype=np.int32), starts, positions)


def murmur2(keys: BytesColumn) -> npt.NDArray[np.uint32]:
    """Java's hash of every key (``Utils.murmur2``); a null key hashes like an empty one.

    Processes four bytes of all keys at a time, or the rest of a few long keys one by one; equals
    ``rd_kafka_msg_partitioner_murmur2``.
    """
    lengths = keys.lengths
    hashes = _SEED ^ lengths.astype(np.uint32)
    if len(lengths) == 0 or not lengths.any():
        return _finished(hashes)
    memory = keys.buffer
    offsets = (keys.addresses - np.uint64(memory.ctypes.data)).astype(np.int64)
    offsets[lengths == 0] = 0  # empty and null keys need not lie in the buffer
    # A view of the four bytes that start at each offset.
    words: npt.NDArray[np.uint32] = np.ndarray(
        (max(0, len(memory) - 3),), dtype="<u4", buffer=memory, strides=(1,)
    )
    whole = lengths >> 2
    common_words = int(whole.min())
    if len(lengths) <= _FEW_KEYS:
        common_words = min(common_words, _LONG_KEY_WORDS)
    for number in range(common_words):
        hashes = (hashes * _M) ^ _mixed(words[offsets + 4 * number])
    rows, shortest = np.arange(len(lengths)), common_words
    for number in range(common_words, int(whole.max())):
        if number >= shortest:  # some keys have no more whole words
            rows = rows[whole[rows] > number]
            shortest = int(whole[rows].min())
        if number >= _LONG_KEY_WORDS and len(rows) <= _FEW_KEYS:
            for row in rows.tolist():
                end = offsets[row] + 4 * whole[row]
                hashes[row] = _hash_words(hashes[row], words[offsets[row] + 4 * number : end : 4])
            break
        hashes[rows] = (hashes[rows] * _M) ^ _mixed(words[offsets[rows] + 4 * number])
    rest = lengths & 3
    rows = np.flatnonzero(rest)
    if len(rows):
        rest, tails = rest[rows], offsets[rows] + 4 * whole[rows]
        ends = hashes[rows]
        for number in (2, 1, 0):
            has = np.flatnonzero(rest > number)
            ends[has] ^= memory[tails[has] + number].astype(np.uint32) << np.uint32(8 * number)
        hashes[rows] = ends * _M
    return _finished(hashes)


def _hash_words(start: np.uint32, words: npt.NDArray[np.uint32]) -> int:
    """The hash of one key after those words."""
    result, factor = int(start), int(_M)
    for word in _mixed(words).tolist():
        result = (result * factor & 0xFFFFFFFF) ^ word
    return result


def _mixed(words: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    words = words * _M
    words ^= words >> np.uint32(24)
    words *= _M
    return words


def _finished(hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    hashes ^= hashes >> np.uint32(15)
    return hashes
