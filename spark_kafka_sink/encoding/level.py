"""Level: the bytes of all rows of a struct, or of all elements of an array, built column by column.

Every column adds *pieces*: at most eight bytes for each row, in one word. All words are written to
the output in one numpy assignment, row by row, eight bytes each; what a word has too many is
overwritten by the next one. Long byte strings are put between the words by ``pyarrow.compute.take``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.encoding.arrow_memory import Bytes, Mask, Offsets, binary_array, integer_array
from spark_kafka_sink.encoding.encoded import RowProblem
from spark_kafka_sink.encoding.varint import Lengths, Piece, Words, varints

#: up to this length, byte strings are copied word by word, which is faster
_SHORT = 32
_MAX_INT32 = 2**31 - 1


class _Strings:
    """Long byte strings after the first ``words`` words of each row; none where not active."""

    def __init__(self, words: int, offsets: Offsets, data: Bytes, active: Mask | None) -> None:
        self.words = words
        self.offsets = offsets
        self.data = data
        self.active = active


class Level:
    """``rows`` rows, whose bytes ``finish`` returns.

    ``parent``: the level whose rows contain these, and the range of each of its rows (its begin,
    and the last one's end). Masks say which rows a piece belongs to; None: to all.
    """

    def __init__(self, rows: int, parent: tuple[Level, Offsets] | None = None) -> None:
        self.rows = rows
        self._parent = parent
        self._pieces: list[Piece] = []
        self._strings: list[_Strings] = []
        self.problems: list[RowProblem] = [] if parent is None else parent[0].problems

    def refuse(self, rows: npt.NDArray[np.int64], reason: str) -> None:
        """These rows (ascending) cannot be encoded."""
        level = self
        while level._parent is not None:
            level, offsets = level._parent
            rows = np.unique(np.searchsorted(offsets, rows, side="right") - 1)
        self.problems.append(RowProblem(rows, reason))

    def add(self, piece: Piece, active: Mask | None = None) -> None:
        """Add the next bytes of all active rows."""
        if active is not None:
            piece = _masked(piece, active)
        if self._pieces and (not self._strings or self._strings[-1].words < len(self._pieces)):
            last = self._pieces[-1]
            if last.most + piece.most <= 8:
                self._pieces[-1] = _joined(last, piece)
                return
        self._pieces.append(piece)

    def add_constant(self, data: bytes, active: Mask | None = None) -> None:
        for start in range(0, len(data), 8):
            part = data[start : start + 8]
            self.add(Piece(int.from_bytes(part, "little"), len(part), len(part)), active)

    def add_varints(self, numbers: Words, active: Mask | None = None) -> None:
        """Add a varint to each active row; a number that is not of an active row must be small."""
        for piece in varints(numbers):
            self.add(piece, active)

    def add_strings(self, offsets: Offsets, data: Bytes, active: Mask | None = None) -> None:
        """Add ``data[offsets[i]:offsets[i + 1]]`` to each active row i."""
        lengths = np.diff(offsets)
        if active is not None:
            lengths *= active
        longest = int(lengths.max(initial=0))
        if longest > _SHORT:
            self._strings.append(_Strings(len(self._pieces), offsets, data, active))
            return
        first = int(offsets[0])
        size = int(offsets[-1]) - first
        padded = np.zeros(size + 8 + longest, dtype=np.uint8)
        padded[:size] = data[first : first + size]
        view = _words_at_every_byte(padded)
        starts = offsets[:-1] - first
        for position in range(0, longest, 8):
            words = view[starts + position if position else starts]
            rest = lengths - position if position else lengths
            most = min(longest - position, 8)
            here = np.clip(rest, 0, 8) if longest > 8 else rest
            self.add(Piece(_cut(words, here), here, most))

    def finish(self) -> tuple[Bytes, Offsets]:
        """The rows' bytes one after another; where each begins, and the last one's end."""
        if not self._pieces:
            self._pieces.append(Piece(0, 0, 0))
        lengths = np.empty((self.rows, len(self._pieces)), dtype=np.int64)
        words = np.empty((self.rows, len(self._pieces)), dtype=np.uint64)
        for i, piece in enumerate(self._pieces):
            lengths[:, i] = piece.lengths
            words[:, i] = piece.words
        offsets = np.zeros(lengths.size + 1, dtype=np.int64)
        np.cumsum(lengths.ravel(), out=offsets[1:])
        data = np.empty(int(offsets[-1]) + 8, dtype=np.uint8)
        # Assigned one after another: where two overlap, the later one stays.
        _words_at_every_byte(data)[offsets[:-1]] = words.ravel()
        data = data[:-8]
        if self._strings:
            return self._with_strings(data, offsets)
        return data, offsets[:: len(self._pieces)]

    def _with_strings(self, data: Bytes, offsets: Offsets) -> tuple[Bytes, Offsets]:
        """Put the long strings between the words, whose memory is given."""
        import pyarrow.compute as pc

        row_starts = np.arange(self.rows, dtype=np.int64) * len(self._pieces)
        count = len(self._strings) + 1
        bounds = np.empty((self.rows, count), dtype=np.int64)
        bounds[:, 0] = offsets[row_starts]
        order = np.empty((self.rows, 2 * count - 1), dtype=np.int64)
        pieces = np.arange(self.rows * count, dtype=np.int64).reshape(self.rows, count)
        order[:, ::2] = pieces
        size = len(data)
        empty = self.rows * count
        first = empty + 1
        for i, strings in enumerate(self._strings):
            bounds[:, i + 1] = offsets[row_starts + strings.words]
            indices = np.arange(first, first + self.rows, dtype=np.int64)
            if strings.active is not None:
                indices[~strings.active] = empty
            order[:, 2 * i + 1] = indices
            first += self.rows
            size += int(strings.offsets[-1] - strings.offsets[0])
        is_large = size > _MAX_INT32
        total = np.int64(len(data))
        cut = binary_array(np.append(bounds.ravel(), [total, total]), data, is_large=is_large)
        parts = [cut]
        for strings in self._strings:
            begin = int(strings.offsets[0])
            used = strings.data[begin : int(strings.offsets[-1])]
            parts.append(binary_array(strings.offsets - begin, used, is_large=is_large))
        taken = pc.take(pa.concat_arrays(parts), integer_array(order), boundscheck=False)
        _, offset_buffer, data_buffer = taken.buffers()
        ends = np.frombuffer(offset_buffer, dtype=np.int64 if is_large else np.int32)
        ends = ends[: order.size + 1 : order.shape[1]].astype(np.int64)
        return np.frombuffer(data_buffer, dtype=np.uint8)[: ends[-1]], ends


def _words_at_every_byte(data: Bytes) -> Words:
    """The eight bytes from each byte on, as a word that is a view."""
    return np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))


def _masked(piece: Piece, active: Mask) -> Piece:
    return Piece(
        active * np.asarray(piece.words, dtype=np.uint64), active * piece.lengths, piece.most
    )


def _joined(first: Piece, second: Piece) -> Piece:
    """Both as one piece of at most eight bytes."""
    if isinstance(first.lengths, int):
        shift = np.asarray(8 * first.lengths, dtype=np.uint64)
    else:
        shift = first.lengths.view(np.uint64) << np.uint64(3)
    words = np.left_shift(np.asarray(second.words, dtype=np.uint64), shift)
    words |= np.asarray(first.words, dtype=np.uint64)
    return Piece(words, first.lengths + second.lengths, first.most + second.most)


def _cut(words: Words, lengths: Lengths) -> Words:
    """Each word without the bytes behind its length."""
    ones = np.uint64(1) << (lengths.view(np.uint64) << np.uint64(3))
    ones -= np.uint64(1)
    ones &= words
    return ones
