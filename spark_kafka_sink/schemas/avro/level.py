"""[both] Level: the bytes of all rows of a struct, or elements of an array, by column.

Every column adds *pieces*: at most eight bytes for each row, in one word (uint64), whose lowest
byte is the first one. numpy writes the words of a piece to the output at once, eight bytes each. A
word's surplus bytes are overwritten by the row's next word, and at the end of a row by writing the
next row's first eight bytes again. Long byte strings are put between the words by
``pyarrow.compute.take``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.arrow_memory import (
    Bytes,
    Mask,
    Offsets,
    binary_array,
    byte_strings,
    exceeds_binary,
    integer_array,
)
from spark_kafka_sink.records.columns import containing_rows
from spark_kafka_sink.records.rejection import RowProblems

Words = npt.NDArray[np.uint64]
Lengths = npt.NDArray[np.int64]


class Piece(NamedTuple):
    """The next bytes of every row: the lowest ``lengths`` (at most ``most``) bytes of ``words``.

    The others are zero. An int stands for the same value in every row.
    """

    words: Words | int
    lengths: Lengths | int
    most: int


def zigzag(numbers: npt.NDArray[np.int64]) -> Words:
    return ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)


def varints(numbers: Words) -> list[Piece]:
    """Each number in base 128, lowest digit first; all bytes but the last have the highest bit."""
    largest = int(numbers.max(initial=0))
    if largest < 1 << 56:
        return [_short_varints(numbers, largest)]
    # Eight digits are one piece, and the one or two above them another.
    upper = numbers >> np.uint64(56)
    lower = numbers & np.uint64((1 << 56) - 1)
    is_long = upper > 0
    words, lengths, _ = _short_varints(lower, (1 << 56) - 1)
    upper_words, upper_lengths, most = _short_varints(upper, int(upper.max()))
    words = np.where(is_long, _spread(lower, (1 << 56) - 1) | np.uint64(_ALL_CONTINUE), words)
    lengths = np.where(is_long, 8, lengths)
    return [Piece(words, lengths, 8), Piece(upper_words, is_long * upper_lengths, most)]


_ALL_CONTINUE = 0x8080808080808080


def _short_varints(numbers: Words, largest: int) -> Piece:
    """Varints of numbers below 2^56."""
    if largest < 1 << 7:
        return Piece(numbers, 1, 1)
    words = _spread(numbers, largest)
    if largest < 1 << 14:
        is_long = (numbers >= np.uint64(1 << 7)).view(np.uint8)
        words |= is_long.astype(np.uint64) << np.uint64(7)
        return Piece(words, is_long.astype(np.int64) + 1, 2)
    # The exponent of the word as a float is the position of its highest bit. Rounding does not
    # carry it into the next byte, since the highest bit of a byte is still zero.
    bits = (words | np.uint64(1)).view(np.int64).astype(np.float64).view(np.int64)
    more = (bits >> 52) - 1023 >> 3
    ones = (np.uint64(1) << (more.view(np.uint64) << np.uint64(3))) - np.uint64(1)
    words |= ones & np.uint64(_ALL_CONTINUE)
    return Piece(words, more + 1, (largest.bit_length() + 6) // 7)


def _spread(numbers: Words, largest: int) -> Words:
    """Each digit of seven bits in a byte of its own."""
    spread = numbers
    if largest >= 1 << 28:
        spread = _parted(spread, 0x000000000FFFFFFF, 0x00FFFFFFF0000000, 4)
    if largest >= 1 << 14:
        spread = _parted(spread, 0x00003FFF00003FFF, 0x0FFFC0000FFFC000, 2)
    return _parted(spread, 0x007F007F007F007F, 0x3F803F803F803F80, 1)


def _parted(numbers: Words, lower: int, upper: int, shift: int) -> Words:
    """Move the bits under ``upper`` up by ``shift``; keep those under ``lower``."""
    raised = (numbers & np.uint64(upper)) << np.uint64(shift)
    raised |= numbers & np.uint64(lower)
    return raised


#: up to this length, byte strings are copied word by word, which is faster
_SHORT = 16


class _Strings(NamedTuple):
    """Long byte strings, after each row's first ``after_pieces``; inactive rows get none."""

    after_pieces: int
    offsets: Offsets
    data: Bytes
    active: Mask | None


class Level:
    """Collects the pieces of ``rows`` rows; ``finish`` joins them into bytes.

    ``parent``, for the elements of an array: the level of the arrays, and where each array begins
    here (and the last one's end). It serves to reject the containing rows; the caller adds the
    bytes of ``finish`` to the parent as strings (``writers``).

    Masks say which rows a piece belongs to; None: to all.
    """

    def __init__(self, rows: int, parent: tuple[Level, Offsets] | None = None) -> None:
        self.rows = rows
        self._parent = parent
        self._pieces: list[Piece] = []
        self._strings: list[_Strings] = []
        self.problems: RowProblems = RowProblems() if parent is None else parent[0].problems

    def reject(self, rows: npt.NDArray[np.int64], reason: str) -> None:
        """Add the problem of these rows (ascending), if there are any: they cannot be encoded."""
        level = self
        while level._parent is not None:
            level, offsets = level._parent
            rows = containing_rows(offsets, rows)
        self.problems.add(rows, reason)

    def add(self, piece: Piece, active: Mask | None = None) -> None:
        """Add the next bytes of all active rows."""
        if active is not None:
            piece = _masked(piece, active)
        # Only the last piece can be joined, and only if no string comes after it.
        if self._pieces and (
            not self._strings or self._strings[-1].after_pieces < len(self._pieces)
        ):
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
        """Add a varint to each active row.

        The numbers of inactive rows should be 0: the largest number of all rows decides how many
        pieces are written.
        """
        for piece in varints(numbers):
            self.add(piece, active)

    def add_strings(self, offsets: Offsets, data: Bytes, active: Mask | None = None) -> None:
        """Add ``data[offsets[i]:offsets[i + 1]]`` to each active row i."""
        lengths = np.diff(offsets)
        if active is not None:
            lengths *= active
        longest = int(lengths.max(initial=0))
        if longest > _SHORT:
            if not self._pieces:
                self._pieces.append(Piece(0, 0, 0))
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
        data, cuts = self._words_data()
        if self._strings:
            return self._insert_strings(data, cuts)
        return data, np.append(cuts[:, 0], len(data))

    def _words_data(self) -> tuple[Bytes, npt.NDArray[np.int64]]:
        """The words' bytes; in them, where each row begins, and where its long strings belong."""
        lengths = np.zeros(self.rows, dtype=np.int64)
        for piece in self._pieces:
            lengths += piece.lengths
        ends = np.cumsum(lengths)
        size = int(ends[-1]) if self.rows else 0
        data = np.empty(size + 8, dtype=np.uint8)
        view = _words_at_every_byte(data)
        starts = ends - lengths
        positions = starts.copy()
        cuts = [starts]
        for i, piece in enumerate(self._pieces, 1):
            view[positions] = piece.words
            positions += piece.lengths
            cuts += [positions.copy() for strings in self._strings if strings.after_pieces == i]
        # The surplus bytes of a row's last words have overwritten the first eight bytes of the next
        # rows. Those are written again in the order of the rows: where two overlap, the later wins.
        view[starts] = self._first_words()
        return data[:size], np.stack(cuts, axis=1)

    def _first_words(self) -> Words:
        """The first eight bytes of each row, or all of them."""
        words = np.zeros(self.rows, dtype=np.uint64)
        lengths = np.zeros(self.rows, dtype=np.int64)
        for piece in self._pieces:
            # In numpy, unlike C, a shift by 64 or more gives 0.
            shift = lengths.view(np.uint64) << np.uint64(3)
            words |= np.left_shift(piece.words, shift, dtype=np.uint64)
            lengths += piece.lengths
            if self.rows and int(lengths.min()) >= 8:
                break
        return words

    def _insert_strings(self, data: Bytes, cuts: npt.NDArray[np.int64]) -> tuple[Bytes, Offsets]:
        """Put the long strings between the words."""
        import pyarrow.compute as pc

        # The parts of all rows: their words, one empty part, and the strings of each column.
        empty = cuts.size
        first = empty + 1
        order = np.empty((self.rows, 2 * len(self._strings) + 1), dtype=np.int64)
        order[:, ::2] = np.arange(empty, dtype=np.int64).reshape(cuts.shape)
        for i, strings in enumerate(self._strings):
            indices = np.arange(first, first + self.rows, dtype=np.int64)
            order[:, 2 * i + 1] = (
                indices if strings.active is None else np.where(strings.active, indices, empty)
            )
            first += self.rows
        size = len(data) + sum(
            int(strings.offsets[-1] - strings.offsets[0]) for strings in self._strings
        )
        ends = np.append(cuts.ravel(), np.full(2, len(data), dtype=np.int64))
        is_large = exceeds_binary(size)
        parts = [binary_array(ends, data, is_large=is_large)]
        for strings in self._strings:
            begin = int(strings.offsets[0])
            used = strings.data[begin : int(strings.offsets[-1])]
            parts.append(binary_array(strings.offsets - begin, used, is_large=is_large))
        taken = pc.take(pa.concat_arrays(parts), integer_array(order), boundscheck=False)
        offsets, joined = byte_strings(taken)
        offsets = offsets[:: order.shape[1]]
        return joined[: offsets[-1]], offsets


def _words_at_every_byte(data: Bytes) -> Words:
    """The eight bytes from each byte on, as a word that is a view."""
    return np.ndarray((len(data) - 7,), dtype="<u8", buffer=data, strides=(1,))


def _masked(piece: Piece, active: Mask) -> Piece:
    words: Words = np.multiply(active, piece.words, dtype=np.uint64)
    return Piece(words, np.multiply(active, piece.lengths, dtype=np.int64), piece.most)


def _joined(first: Piece, second: Piece) -> Piece:
    """Both as one piece of at most eight bytes."""
    lengths, most = first.lengths + second.lengths, first.most + second.most
    if (
        isinstance(first.words, int)
        and isinstance(second.words, int)
        and isinstance(first.lengths, int)
    ):
        return Piece(first.words | second.words << 8 * first.lengths, lengths, most)
    shift: Words = np.left_shift(first.lengths, 3, dtype=np.uint64, casting="unsafe")
    words: Words = np.left_shift(second.words, shift, dtype=np.uint64)
    words = np.bitwise_or(words, first.words, dtype=np.uint64)
    return Piece(words, lengths, most)


def _cut(words: Words, lengths: Lengths) -> Words:
    """Each word without the bytes behind its length."""
    ones = np.uint64(1) << (lengths.view(np.uint64) << np.uint64(3))
    ones -= np.uint64(1)
    ones &= words
    return ones
