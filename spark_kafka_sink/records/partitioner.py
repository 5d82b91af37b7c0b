"""[both] Chooses partitions as the Java producer does, and groups records by partition."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.records.columns import BytesColumn, RecordColumns

UNASSIGNED = -1

# Java's default of ``batch.size``, after which its partitioner goes on to another partition.
_SHARE_BYTES = 16_384
# The client sends a request for each share, and many small requests cost throughput: with 64
# partitions and sends of 1 MB one after the other, 64 shares cost a quarter of it, 4 nothing. So
# only a send that follows no other one is spread further; many in a row are even all the same.
_MAX_SMALL_SHARES = 16
_MAX_SMALL_SHARES_IN_A_ROW = 4
_LARGE_SHARE_BYTES = 262_144
# What a record without key and headers has beside its value: seven fields of a byte or two.
_RECORD_OVERHEAD_BYTES = 8

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
    """Spreads records without a key over the available partitions: a run of rows to each.

    Like Java's sticky partitioner, which uses one partition until a batch is full. The records of a
    send are divided into equal shares (``share_count``), at most one for each partition; the next
    send begins with another partition. With ``is_rack_aware``, only partitions that are near are
    used, if there are any (KIP-1123).
    """

    def __init__(self, *, is_rack_aware: bool = False) -> None:
        self._is_rack_aware = is_rack_aware
        self._next: dict[str, int] = {}  # per topic, starting at a random number

    def partition(
        self, records: RecordColumns, partitions: TopicPartitions, *, follows_others: bool
    ) -> PartitionedRecords:
        """Group records by partition; if their number is unknown, the client chooses later.

        ``follows_others``: whether records of the same topic are still on their way.
        """
        if not partitions.count:
            return unpartitioned(records)
        choices = np.array(self._choices(partitions), dtype=np.int32)
        first = self._next.get(records.topic, random.randrange(partitions.count))  # noqa: S311
        shares, count = _shares(records, len(choices), follows_others=follows_others)
        # If each partition has got a share, the next send begins with another one all the same.
        self._next[records.topic] = first + (count % len(choices) or 1)
        return group_by_partition(
            records, partitions.count, choices[(first + shares) % len(choices)]
        )

    def _choices(self, partitions: TopicPartitions) -> Sequence[int]:
        if self._is_rack_aware and partitions.near:
            return sorted(partitions.near)
        return partitions.available or range(partitions.count)

    def forget(self, topics: Iterable[str]) -> None:
        """Forget topics that are no longer in use."""
        for topic in topics:
            self._next.pop(topic, None)


def share_count(total_bytes: int, *, follows_others: bool) -> int:
    """Into how many shares a send of as many bytes may be divided; 0 for very few bytes."""
    most = _MAX_SMALL_SHARES_IN_A_ROW if follows_others else _MAX_SMALL_SHARES
    return max(min(total_bytes // _SHARE_BYTES, most), total_bytes // _LARGE_SHARE_BYTES)


def _shares(
    records: RecordColumns, most: int, *, follows_others: bool
) -> tuple[npt.NDArray[np.int64], int]:
    """The share of each record (int64[records], or int64[1] for all), and how many there are.

    The shares contain about the same bytes of records without a key and partition. There are at
    most ``most``.
    """
    sizes = records.values.lengths + _RECORD_OVERHEAD_BYTES
    if records.keys is not None:
        sizes *= records.keys.addresses == 0
    if records.partitions is not None:
        sizes *= records.partitions < 0
    total = int(sizes.sum())
    count = min(most, share_count(total, follows_others=follows_others))
    if count <= 1:
        return np.zeros(1, dtype=np.int64), 1
    return np.minimum((np.cumsum(sizes) - sizes) * count // total, count - 1), count


def group_by_partition(
    records: RecordColumns, partition_count: int, keyless: int | npt.NDArray[np.int32]
) -> PartitionedRecords:
    """Assign a partition to every record and group the records by it.

    The column ``partition`` decides, then the key (murmur2 modulo ``partition_count``). Records
    with neither go to ``keyless``: one partition for all, or one for each record, of which equal
    ones are side by side.
    """
    if not len(records):
        return unpartitioned(records)
    chosen = np.broadcast_to(np.asarray(keyless, dtype=np.int32), len(records))
    order = np.arange(len(records), dtype=np.int64)
    if records.keys is not None and partition_count > 1:
        by_key = (murmur2(records.keys) & _POSITIVE).astype(np.int32) % np.int32(partition_count)
        chosen = np.where(records.keys.addresses == 0, chosen, by_key)
    if records.partitions is not None:
        chosen = np.where(records.partitions < 0, chosen, records.partitions)
    is_grouped = records.partitions is None and (records.keys is None or partition_count == 1)
    if not is_grouped and chosen.min() != chosen.max():
        # numpy radix-sorts 16-bit integers, several times faster than wider ones.
        narrow = chosen.astype(np.uint16) if chosen.max() < 2**16 else chosen
        order = np.argsort(narrow, kind="stable")
        chosen, records = chosen[order], records.take(order)
    edges = np.flatnonzero(chosen[1:] != chosen[:-1]) + 1
    starts = np.concatenate([[0], edges, [len(chosen)]])
    return PartitionedRecords(records, chosen[starts[:-1]], starts, order)


def unpartitioned(records: RecordColumns) -> PartitionedRecords:
    """Records whose topic has an unknown number of partitions: the client chooses later."""
    starts = np.array([0, len(records)], dtype=np.int64)
    positions = np.arange(len(records), dtype=np.int64)
    return PartitionedRecords(records, np.array([UNASSIGNED], dtype=np.int32), starts, positions)


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
