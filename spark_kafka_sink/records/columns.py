"""[both] RecordColumns: the records of one topic as columns of addresses, ready to be sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.records.column_table import RECORD_COLUMNS


@dataclass(frozen=True)
class BytesColumn:
    """Byte strings inside one Arrow buffer.

    ``addresses`` (uint64[records], 0 for null), ``lengths`` (int64[records], bytes) and ``buffer``
    (uint8[bytes]), in which the fingerprint reads all non-empty strings, except for those that
    ``appended`` adds. ``RecordColumns.arrow_batch`` keeps it alive. The first ``id_bytes`` of each
    string are the id of its schema, which a registry chooses; the fingerprint leaves it out.
    """

    addresses: npt.NDArray[np.uint64]
    lengths: npt.NDArray[np.int64]
    buffer: npt.NDArray[np.uint8]
    id_bytes: int = 0

    def take(self, indices: npt.NDArray[np.int64]) -> BytesColumn:
        return replace(self, addresses=self.addresses[indices], lengths=self.lengths[indices])

    def __len__(self) -> int:
        return len(self.addresses)


@dataclass(frozen=True)
class HeaderColumn:
    """Zero or more headers per record: those of record i are ``starts[i]:starts[i + 1]``.

    ``names`` (per header, an index into ``unique_names``), ``values`` (null allowed).
    ``other_buffers`` has an entry for each header that was appended to every record, at its end: it
    keeps the memory of these values alive. ``left_out``: names of headers that rows have and their
    records do not have; ``own_places`` (per header): its place among all headers of its row; None
    if none is left out.
    """

    starts: npt.NDArray[np.int64]
    names: npt.NDArray[np.int64]
    unique_names: Sequence[bytes]
    values: BytesColumn
    other_buffers: tuple[npt.NDArray[np.uint8], ...] = ()
    left_out: frozenset[bytes] = frozenset()
    own_places: npt.NDArray[np.int64] | None = None

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """Per header its place, from 0, among all headers of its row."""
        if self.own_places is not None:
            return self.own_places
        return np.arange(len(self.names)) - np.repeat(self.starts[:-1], np.diff(self.starts))

    def without(self, is_left_out: Callable[[bytes], bool]) -> HeaderColumn:
        """The headers without those of such names."""
        left_out = [is_left_out(name) for name in self.unique_names]
        if not any(left_out):
            return self
        is_kept = ~np.array(left_out)[self.names]
        starts = np.concatenate([[0], np.cumsum(is_kept)])[self.starts]
        return replace(
            self._select(np.flatnonzero(is_kept), starts),
            left_out=self.left_out.union(filter(is_left_out, self.unique_names)),
            own_places=self.places[is_kept],
        )

    def appended_only(self) -> HeaderColumn:
        """The appended headers, without those that the records had before."""
        ends, width = self.starts[1:], len(self.other_buffers)
        kept, starts = ranges(ends - width, np.full(len(ends), width))
        return self._select(kept, starts)

    def take(self, indices: npt.NDArray[np.int64]) -> HeaderColumn:
        counts = self.starts[1:] - self.starts[:-1]
        headers, starts = ranges(self.starts[:-1][indices], counts[indices])
        return self._select(headers, starts)

    def _select(
        self, headers: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]
    ) -> HeaderColumn:
        return replace(
            self,
            starts=starts,
            names=self.names[headers],
            values=self.values.take(headers),
            own_places=None if self.own_places is None else self.own_places[headers],
        )


@dataclass(frozen=True)
class RecordColumns:
    """Records of one topic, in the order of their rows in the Arrow batch.

    A field for each of ``RECORD_COLUMNS``, whose ``take`` selects; None if there is no such column,
    which for ``keys`` means that all are null. ``partitions`` (int32[records], -1: let the
    partitioner choose), ``timestamps_ms`` (int64[records], since the epoch, 0: the time of
    sending). ``rows`` (int64[records]) are the numbers of their rows. ``arrow_batch``, of
    ``arrow_batch_bytes``, keeps the memory alive that the columns point into. ``own_bytes``: the
    memory that only these records' headers use, such as those of dead letters; it counts, too.
    """

    topic: str
    values: BytesColumn
    keys: BytesColumn | None
    partitions: npt.NDArray[np.int32] | None
    timestamps_ms: npt.NDArray[np.int64] | None
    headers: HeaderColumn | None
    rows: npt.NDArray[np.int64]
    arrow_batch: object
    arrow_batch_bytes: int
    own_bytes: int = 0

    def __len__(self) -> int:
        return len(self.values)

    @property
    def total_bytes(self) -> int:
        """Bytes of all keys and values."""
        return int(self.values.lengths.sum()) + (
            int(self.keys.lengths.sum()) if self.keys is not None else 0
        )

    def take(self, indices: npt.NDArray[np.int64]) -> RecordColumns:
        selected: dict[str, Any] = {"rows": self.rows[indices]}
        for column in RECORD_COLUMNS:
            values = getattr(self, column.field)
            if values is not None:
                selected[column.field] = values.take(indices)
        return replace(self, **selected)


def appended(
    originals: HeaderColumn | None,
    names: Sequence[bytes],
    added: Sequence[BytesColumn],
    count: int,
) -> HeaderColumn:
    """Each record's original headers and one of each added column; of length 1: for all records."""
    if originals is None:
        nothing = np.zeros(0, dtype=np.int64)
        empty = BytesColumn(nothing.view(np.uint64), nothing, added[0].buffer)
        originals = HeaderColumn(np.zeros(count + 1, dtype=np.int64), nothing, [], empty)
    width = len(added)
    starts = originals.starts + width * np.arange(count + 1)
    codes = np.empty(int(starts[-1]), dtype=np.int64)
    addresses, lengths = np.empty(len(codes), dtype=np.uint64), np.empty_like(codes)
    counts = np.diff(originals.starts)
    kept = np.arange(len(originals.names)) + np.repeat(width * np.arange(count), counts)
    codes[kept] = originals.names
    addresses[kept], lengths[kept] = originals.values.addresses, originals.values.lengths
    places = None
    if originals.own_places is not None:
        places = np.zeros_like(codes)  # no row has what is added
        places[kept] = originals.own_places
    for position, column in enumerate(added):
        slots: npt.NDArray[np.int64] = starts[1:] - width + position
        codes[slots] = len(originals.unique_names) + position
        addresses[slots], lengths[slots] = column.addresses, column.lengths
    return HeaderColumn(
        starts,
        codes,
        [*originals.unique_names, *names],
        # A fingerprint reads this buffer, and omits what was added: the ids of schemas.
        BytesColumn(addresses, lengths, originals.values.buffer),
        (*originals.other_buffers, *(column.buffer for column in added)),
        originals.left_out,
        places,
    )


def ranges(
    starts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The indices of all ranges, one range after another, and where each range begins among them.

    ``ranges([5, 9], [2, 1])`` is ``([5, 6, 9], [0, 2, 3])``.
    """
    ends = np.cumsum(counts, dtype=np.int64)
    begins = np.concatenate([np.zeros(1, dtype=np.int64), ends])
    numbers = np.repeat(starts - begins[:-1], counts) + np.arange(begins[-1], dtype=np.int64)
    return numbers, begins


def containing_rows(
    starts: npt.NDArray[np.int64], elements: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """The rows, ascending, whose ranges contain these elements. ``starts``: where they begin."""
    rows: npt.NDArray[np.int64] = np.unique(np.searchsorted(starts, elements, side="right") - 1)
    return rows


def is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True
