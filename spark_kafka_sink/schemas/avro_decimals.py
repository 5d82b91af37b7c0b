"""Decimals as big-endian two's complement, of whole columns."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.schemas.avro_level import Lengths, Piece, Words

_Signed = npt.NDArray[np.int64]


def magnitudes(lower: Words, upper: _Signed) -> tuple[Words, Words]:
    """The lower and the upper half of the absolute values."""
    is_negative = upper < 0
    if not is_negative.any():
        return lower, upper.view(np.uint64)
    flips = np.where(is_negative, np.uint64(2**64 - 1), np.uint64(0))
    small = (lower ^ flips) + is_negative
    large = (upper.view(np.uint64) ^ flips) + (is_negative & (lower == 0))
    return small, large


def exceeds(lower: Words, upper: Words, limit: int) -> npt.NDArray[np.bool_]:
    """Where a magnitude is ``limit`` or more."""
    high, low = np.uint64(limit >> 64), np.uint64(limit & (2**64 - 1))
    is_over: npt.NDArray[np.bool_] = (upper > high) | ((upper == high) & (lower >= low))
    return is_over


def byte_lengths(lower: Words, upper: _Signed) -> Lengths:
    """How many bytes each number needs, with its sign."""
    # A negative number needs as many as its complement: one byte for -128, as for 127.
    flips = (upper >> 63).view(np.uint64)
    bits = _bit_lengths(lower ^ flips)
    large = upper.view(np.uint64) ^ flips
    if large.any():
        bits = np.where(large > 0, 64 + _bit_lengths(large), bits)
    lengths: Lengths = (bits >> 3) + 1
    return lengths


def _bit_lengths(numbers: Words) -> Lengths:
    # Without the bit behind the highest one, a number is not rounded up to the next power of two.
    floats = (numbers & ~(numbers >> np.uint64(1))).astype(np.float64)
    lengths: Lengths = np.maximum((floats.view(np.int64) >> 52) - 1022, 0)
    return lengths


def big_endian(lower: Words, upper: _Signed, lengths: Lengths | int, most: int) -> list[Piece]:
    """The lowest ``lengths`` (at most ``most``) bytes of each value, the highest byte first."""
    pieces = []
    if most > 16:
        sign = (upper >> 63).view(np.uint64)
        for start in range(0, most - 16, 8):
            size = min(most - 16 - start, 8)
            pieces.append(Piece(sign & np.uint64((1 << 8 * size) - 1), size, size))
        lengths, most = 16, 16
    if most <= 8:
        shift = np.asarray(64 - 8 * lengths, dtype=np.int64).view(np.uint64)
        return [*pieces, Piece((lower << shift).byteswap(), lengths, most)]
    shift = np.asarray(128 - 8 * lengths, dtype=np.int64).view(np.uint64)
    # A shift by 64 or more, and one by a negative number (which is a large one here), leaves 0.
    word = np.uint64(64)
    first = (upper.view(np.uint64) << shift) | (lower >> (word - shift)) | (lower << (shift - word))
    second = lower << shift
    in_first = 8 if isinstance(lengths, int) else np.minimum(lengths, 8)
    return [
        *pieces,
        Piece(first.byteswap(), in_first, 8),
        Piece(second.byteswap(), lengths - in_first, most - 8),
    ]
