"""[both] Fingerprint: shows whether two sets of records are equal, regardless of their order."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.records.arrow import ID_HEADERS
from spark_kafka_sink.records.column_table import RECORD_COLUMNS, Column, Kind
from spark_kafka_sink.records.columns import BytesColumn, HeaderColumn, RecordColumns, ranges
from spark_kafka_sink.records.rejection import INVALID_HEADER, NOT_SERIALIZED, RejectedRecords

_ID_NAMES = frozenset(ID_HEADERS.values())

_Words = npt.NDArray[np.uint64]

_CHUNK_BYTES = 128
_CHUNK_WORDS = _CHUNK_BYTES // 8
# Chunks hashed at a time, so that they stay in the processor's cache.
_BLOCK = 2048


def _constants(purpose: str, count: int) -> _Words:
    """Numbers without a pattern, the same in every process; odd, so that no bit is lost."""
    text = hashlib.shake_128(f"spark-kafka-sink {purpose}".encode()).digest(8 * count)
    return np.frombuffer(text, dtype="<u8") | np.uint64(1)


_WORD_FACTORS = _constants("word", _CHUNK_WORDS)
_CHUNK, _LENGTH, _HEADER, _NAME, _SECOND, _MIX_1, _MIX_2 = _constants("parts", 7)
# The output of shake_128 is prefix-stable: a new column keeps the constants of the others.
_COLUMNS = _constants("columns", len(RECORD_COLUMNS))
_HALF = np.uint64(32)
_MODULUS = 2**64

# [n]: a chunk whose first n bytes are kept
_MASKS: _Words = (
    ((np.arange(_CHUNK_BYTES) < np.arange(_CHUNK_BYTES + 1)[:, None]) * 255)
    .astype(np.uint8)
    .view(np.uint64)
)


@dataclass
class Fingerprint:
    """The fingerprint of all records of a task, regardless of their order.

    Two 64-bit sums over the hashes of the records: it detects accidents, not an attacker who
    chooses the records.
    """

    records: int = 0
    _sum: int = 0
    _second_sum: int = 0

    def add(self, records: RecordColumns) -> None:
        """Add records; how they are divided into Arrow batches makes no difference."""
        self._add(record_hashes(records))

    def add_rejected(self, rejected: RejectedRecords) -> None:
        """Add rows that cannot become records; their errors follow from what they contain."""
        self._add(_rejected_hashes(rejected))

    def _add(self, hashes: _Words) -> None:
        self.records += len(hashes)
        self._sum = (self._sum + int(hashes.sum(dtype=np.uint64))) % _MODULUS
        second = _mixed(hashes ^ _SECOND)
        self._second_sum = (self._second_sum + int(second.sum(dtype=np.uint64))) % _MODULUS

    def text(self) -> str:
        """The fingerprint as 32 hexadecimal digits."""
        return f"{self._sum:016x}{self._second_sum:016x}"


def record_hashes(records: RecordColumns) -> _Words:
    """One number per record, from its topic, key, value, partition, timestamp and headers.

    A column that is missing counts like one without any values.
    """
    hashes = np.full(len(records), _text_hash(records.topic.encode()), dtype=np.uint64)
    for column in RECORD_COLUMNS:
        values = getattr(records, column.field)
        if values is not None:
            hashes += _column_hashes(column, values) * _COLUMNS[column.factor]
    return _mixed(hashes)


def _rejected_hashes(rejected: RejectedRecords) -> _Words:
    """The hashes of rejected rows, which differ from those of the same rows as records.

    They leave out the error and the number of the row, which depend on the rows before it.
    """
    records = replace(rejected.records, topic=f"rejected {rejected.topic!r}")
    if rejected.error in NOT_SERIALIZED:  # JSON, without the id of a schema
        keys = records.keys and replace(records.keys, id_bytes=0)
        records = replace(records, values=replace(records.values, id_bytes=0), keys=keys)
    texts, is_unsendable = rejected.headers_json, rejected.has(INVALID_HEADER)
    if texts is None or not is_unsendable.any():
        return record_hashes(records)
    sendable, unsendable = np.flatnonzero(~is_unsendable), np.flatnonzero(is_unsendable)
    text_hashes = [_text_hash(texts[row] or b"") for row in unsendable.tolist()]
    headerless = replace(records.take(unsendable), headers=None)
    hashes = _mixed(record_hashes(headerless) + np.array(text_hashes, dtype=np.uint64) * _HEADER)
    return np.concatenate([record_hashes(records.take(sendable)), hashes])


def _text_hash(text: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")


def _column_hashes(column: Column, values: Any) -> _Words:
    """A number per record; 0 for null."""
    if column.kind is Kind.BYTES:
        return _string_hashes(values)
    if column.kind is Kind.HEADERS:
        return _header_hashes(values)
    numbers: npt.NDArray[np.int64] = values.astype(np.int64)
    numbers -= column.if_null
    return numbers.view(np.uint64)


def _header_hashes(headers: HeaderColumn) -> _Words:
    """A number per record; 0 without headers. Their order within a record counts."""
    names = np.array([_text_hash(name) for name in headers.unique_names], dtype=np.uint64)
    is_id_name = np.array([name in _ID_NAMES for name in headers.unique_names], dtype=bool)
    is_id = is_id_name[headers.names]
    contents = _string_hashes(_nulled(is_id, headers.values)) + _NAME
    if len(names):
        contents += _mixed(names[headers.names])
    hashes = _mixed(contents + headers.places.view(np.uint64) * _HEADER)
    hashes[is_id] = 0  # with or without them, the places of the others are the same
    return _sums(hashes, headers.starts)


def _nulled(rows: npt.NDArray[np.bool_], column: BytesColumn) -> BytesColumn:
    """The column with nulls in those rows, which may be outside of its buffer."""
    if not rows.any():
        return column
    addresses, lengths = (
        np.where(rows, 0, numbers) for numbers in (column.addresses, column.lengths)
    )
    return replace(column, addresses=addresses.astype(np.uint64), lengths=lengths)


def _string_hashes(column: BytesColumn) -> _Words:
    """A number per value; 0 for null.

    Values are hashed in chunks, each with its number, so that all can be gathered.

    The id of a schema is left out: another registry gives the same schema another id. Within a
    chunk the words are multiplied with constants and added (a multilinear hash).
    """
    lengths = np.maximum(column.lengths - column.id_bytes, 0) if column.id_bytes else column.lengths
    if not len(lengths):
        return np.zeros(0, dtype=np.uint64)
    base = np.uint64(column.buffer.ctypes.data) - np.uint64(column.id_bytes)
    offsets = np.where(lengths > 0, column.addresses - base, np.uint64(0)).astype(np.int64)
    counts = (lengths + (_CHUNK_BYTES - 1)) // _CHUNK_BYTES
    _, begins = ranges(offsets, counts)
    chunks = np.empty(begins[-1], dtype=np.uint64)
    memory = _Memory(column.buffer)
    # Which value the chunks of a block begin in; a block may begin in the middle of a value.
    for start in range(0, len(chunks), _BLOCK):
        end = min(start + _BLOCK, len(chunks))
        first = int(np.searchsorted(begins, start, side="right")) - 1
        last = int(np.searchsorted(begins, end, side="left"))
        inside = np.clip(begins[first : last + 1], start, end)
        row = np.repeat(np.arange(first, last), np.diff(inside))
        number = np.arange(start, end) - begins[row]
        consumed = number * _CHUNK_BYTES
        kept = np.minimum(lengths[row] - consumed, _CHUNK_BYTES)
        words = memory.chunks(offsets[row] + consumed)
        partial = np.flatnonzero(kept < _CHUNK_BYTES)
        words[partial] &= _MASKS[kept[partial]]
        # Otherwise a word's highest bit would change only the sum's highest bit, in every word.
        words ^= words >> _HALF
        hashed = np.einsum("ij,j->i", words, _WORD_FACTORS)
        chunks[start:end] = _mixed(hashed + number.view(np.uint64) * _CHUNK)
    hashes = _sums(chunks, begins) + (lengths.view(np.uint64) + np.uint64(1)) * _LENGTH
    hashes = _mixed(hashes)
    hashes[column.addresses == 0] = 0
    return hashes


class _Memory:
    """Chunks that begin anywhere in a buffer, and end in zeros after its end."""

    def __init__(self, buffer: npt.NDArray[np.uint8]) -> None:
        padding = np.zeros(_CHUNK_BYTES, dtype=np.uint8)
        if len(buffer) < _CHUNK_BYTES:
            buffer = np.concatenate([buffer, padding])
        self._last = len(buffer) - _CHUNK_BYTES
        self._inside = _view(buffer)
        self._end = _view(np.concatenate([buffer[self._last :], padding]))

    def chunks(self, offsets: npt.NDArray[np.int64]) -> _Words:
        """The chunks that begin there (uint64[offsets, words])."""
        chunks = self._inside[np.minimum(offsets, self._last)]
        late = np.flatnonzero(offsets > self._last)
        chunks[late] = self._end[offsets[late] - self._last]
        return chunks.view(np.uint64).reshape(len(offsets), _CHUNK_WORDS)


def _view(buffer: npt.NDArray[np.uint8]) -> npt.NDArray[np.void]:
    """The chunk that starts at each byte."""
    shape = (len(buffer) - _CHUNK_BYTES + 1,)
    return np.ndarray(shape, dtype=f"V{_CHUNK_BYTES}", buffer=buffer, strides=(1,))


def _sums(values: _Words, begins: npt.NDArray[np.int64]) -> _Words:
    """The sums of the values from each begin to the next."""
    totals = np.zeros(len(values) + 1, dtype=np.uint64)
    np.cumsum(values, out=totals[1:])
    return totals[begins[1:]] - totals[begins[:-1]]


def _mixed(hashes: _Words) -> _Words:
    """Every bit of a number changes about half of the bits of its result."""
    hashes = hashes ^ (hashes >> _HALF)
    hashes *= _MIX_1
    hashes ^= hashes >> _HALF
    hashes *= _MIX_2
    hashes ^= hashes >> _HALF
    return hashes
