"""Varints of whole columns, as words: up to eight bytes of a row in one uint64.

The first byte of a row is the word's lowest, as it will be in little-endian memory.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

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
    # Eight digits, and the one or two above them.
    upper = numbers >> np.uint64(56)
    lower = numbers & np.uint64((1 << 56) - 1)
    is_long = upper > 0
    words, lengths, _ = _short_varints(lower, (1 << 56) - 1)
    upper_words, upper_lengths, most = _short_varints(upper, int(upper.max()))
    words = np.where(is_long, _spread(lower, 1 << 55) | np.uint64(_ALL_CONTINUE), words)
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
    raised = (numbers & np.uint64(upper)) << np.uint64(shift)
    raised |= numbers & np.uint64(lower)
    return raised
