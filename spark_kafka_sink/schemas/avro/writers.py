"""[both] What writes an Arrow column of one type as an Avro type: all rows at once.

``write(level, array, active)`` adds the bytes of the active rows (None: all), which are not null.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records import arrow_memory as memory
from spark_kafka_sink.records.arrow_memory import Mask
from spark_kafka_sink.schemas.avro.defaults import long_bytes
from spark_kafka_sink.schemas.avro.level import Lengths, Level, Piece, Words, zigzag
from spark_kafka_sink.schemas.encoded import NO_NULL, NOT_UTF8

#: rows whose reason names their own value; the others of a column share one
_NAMED_VALUES = 20
_INT = 2**31

_Signed = npt.NDArray[np.int64]


class Writer(Protocol):
    def write(self, level: Level, array: pa.Array, active: Mask | None) -> None: ...


def _both(first: Mask | None, second: Mask | None) -> Mask | None:
    if first is None:
        return second
    return first if second is None else first & second


def _reject(
    level: Level, is_bad: Mask, active: Mask | None, reason: Callable[[int], str]
) -> Mask | None:
    """Reject active rows, with the reason of each; returns the other active ones.

    If there are very many rows, most get the same reason.
    """
    if active is not None:
        is_bad = is_bad & active
    rows = np.flatnonzero(is_bad)
    if not len(rows):
        return active
    by_reason: dict[str, list[int]] = {}
    for row in rows[:_NAMED_VALUES].tolist():
        by_reason.setdefault(reason(row), []).append(row)
    for text, same_reason in by_reason.items():
        level.reject(np.array(same_reason, dtype=np.int64), text)
    if len(rows) > _NAMED_VALUES:
        text = reason(int(rows[_NAMED_VALUES]))
        level.reject(rows[_NAMED_VALUES:], f"{text} (this value, or a similar one)")
    return _both(active, ~is_bad)


def _numbers_or_zero(array: pa.Array, dtype: npt.DTypeLike, active: Mask | None) -> Lengths:
    """Integers, with 0 in rows that are not active: what is there may be large."""
    values: Lengths = memory.numbers(array, dtype).astype(np.int64, copy=False)
    return values if active is None else values * active


@dataclass(frozen=True)
class Nothing:
    """Null, which has no bytes; also a field that does not fit: its schema is never written."""

    def write(self, level: Level, array: pa.Array, active: Mask | None) -> None:
        pass


@dataclass(frozen=True)
class Constant:
    """A field that the column does not have: its default."""

    data: bytes

    def write(self, level: Level, _array: pa.Array, active: Mask | None) -> None:
        level.add_constant(self.data, active)


@dataclass(frozen=True)
class Required:
    """A value that must not be null, after ``prefix``, the index of a union's branch.

    ``is_nullable``: whether the column's type allows null.
    """

    path: str
    inner: Writer
    prefix: bytes = b""
    is_nullable: bool = True

    def write(self, level: Level, array: pa.Array, active: Mask | None) -> None:
        valid = memory.validity(array)
        if valid is not None:
            is_bad = ~valid if active is None else active & ~valid
            level.reject(np.flatnonzero(is_bad), f"{self.path}: {NO_NULL}")
            active = _both(active, valid)
        if self.prefix:
            level.add_constant(self.prefix, active)
        self.inner.write(level, array, active)


@dataclass(frozen=True)
class Nullable:
    """A union of null, whose index is ``null``, and others, of which ``branch`` is written."""

    null: int
    branch: int
    inner: Writer

    def write(self, level: Level, array: pa.Array, active: Mask | None) -> None:
        valid = memory.validity(array)
        if valid is None:
            level.add_constant(long_bytes(self.branch), active)
        else:
            numbers = np.where(valid, np.uint64(2 * self.branch), np.uint64(2 * self.null))
            level.add_varints(numbers, active)
        self.inner.write(level, array, _both(active, valid))


@dataclass(frozen=True)
class Members:
    """A union of several types, as a struct with a field for each: the one that is not null.

    ``null``: the index of null, if the union has it. ``members``: the index and writer of each.
    """

    path: str
    null: int | None
    members: Sequence[tuple[int, Writer]]

    def write(self, level: Level, array: pa.Array, active: Mask | None) -> None:
        active = np.ones(len(array), dtype=bool) if active is None else active
        exists = memory.valid_rows(array) & active
        valid = [memory.valid_rows(array.field(i)) & exists for i in range(len(self.members))]
        counts = np.sum(valid, axis=0)
        several = f"{self.path}: several members are not null, but a union has one value"
        level.reject(np.flatnonzero(counts > 1), several)
        if self.null is None:
            level.reject(np.flatnonzero(active & (counts == 0)), f"{self.path}: {NO_NULL}")
        numbers = np.full(len(array), 2 * (self.null or 0), dtype=np.uint64)
        for is_member, (branch, _) in zip(valid, self.members, strict=True):
            numbers[is_member] = 2 * branch
        level.add_varints(numbers, active)
        for i, (_, writer) in enumerate(self.members):
            writer.write(level, array.field(i), valid[i])


@dataclass(frozen=True)
class Boolean:
    def write(self, level: Level, array: pa.Array, active: Mask | None) -> None:
        level.add(Piece(memory.booleans(array).astype(np.uint64), 1, 1), active)


@dataclass(frozen=True)
class Integer:
    """Integers, dates and timestamps as int or long.

    ``ticks``: how many units of the column are one of the schema (1000: microseconds to
    milliseconds).
    """

    path: str
    dtype: str
    is_int: bool = False
    ticks: int = 1

    def write(self, level: Level, array: pa.Array, active: Mask | None) -> None:
        values = _numbers_or_zero(array, self.dtype, active)
        if self.is_int:
            is_bad = (values < -_INT) | (values >= _INT)
            rule = "is outside the range of int"
            _reject(level, is_bad, active, lambda row: f"{self.path}: {values[row]} {rule}")
        if self.ticks > 1:
            values = values // self.ticks
        level.add_varints(zigzag(values), active)


@dataclass(frozen=True)
class Float:
    """Numbers as float (``size`` 4) or double (8)."""

    dtype: str
    size: int

    def write(self, level: Level, array: pa.Array, active: Mask | None) -> None:
        values = memory.numbers(array, self.dtype).astype(f"<f{self.size}", copy=False)
        words = values.view(f"<u{self.size}").astype(np.uint64, copy=False)
        level.add(Piece(words, self.size, self.size), active)


@dataclass(frozen=True)
class Bytes:
    """Binaries, or strings, after their length unless not ``has_length``."""

    is_text_as_bytes: bool = False
    has_length: bool = True

    def write(self, level: Level, array: pa.Array, active: Mask | None) -> None:
        offsets, data = memory.byte_strings(memory.plain(array))
        lengths = np.diff(offsets)
        if active is not None:
            lengths *= active
        if self.has_length:
            level.add_varints(zigzag(lengths), active)
        level.add_strings(offsets, data, active)


@dataclass(frozen=True)
class Text:
    """Strings with their length."""

    path: str

    def write(self, level: Level, array: pa.Array, active: Mask | None) -> None:
        texts = memory.plain(array)
        rows = memory.rows_without_utf8(texts)
        if active is not None:
            rows = rows[active[rows]]
        level.reject(rows, f"{self.path}: {NOT_UTF8}")
        Bytes().write(level, texts, active)


@dataclass(frozen=True)
class FixedBytes:
    path: str
    size: int

    def write(self, level: Level, array: pa.Array, active: Mask | None) -> None:
        offsets, data = memory.byte_strings(memory.plain(array))
        lengths = np.diff(offsets)
        rule = f"bytes, but the schema requires {self.size}"
        active = _reject(
            level, lengths != self.size, active, lambda row: f"{self.path}: {lengths[row]} {rule}"
        )
        level.add_strings(offsets, data, active)


@dataclass(frozen=True)
class Symbols:
    """Strings as an enum."""

    path: str
    name: str
    symbols: tuple[str, ...]

    def write(self, level: Level, array: pa.Array, active: Mask | None) -> None:
        import pyarrow.compute as pc

        texts = memory.plain(array)
        indices = pc.index_in(texts, value_set=memory.text_array(self.symbols, texts.type))
        is_bad = memory.booleans(indices.is_null())
        rule = f"is no symbol of the enum {self.name}"
        active = _reject(
            level,
            is_bad,
            active,
            lambda row: f"{self.path}: {_text(texts, row)[:300]!r} {rule}",
        )
        level.add_varints(zigzag(_numbers_or_zero(indices, np.int32, active)), active)


def _text(texts: pa.Array, row: int) -> str:
    """A text, even if it is not UTF-8, which Spark's cast from binary does not check."""
    return bytes(texts[row].as_buffer()).decode(errors="backslashreplace")


@dataclass(frozen=True)
class Decimal:
    """Decimals with ``size`` bytes; 0: as many as needed, after their length if ``has_length``.

    ``digits``: the most that a value may have, in the column's scale; None: any value fits.
    ``rule``: what is said of one with more. ``scale``: that of the schema, if it is not the
    column's.
    """

    path: str
    size: int
    digits: int | None = None
    scale: int | None = None
    rule: str = ""
    has_length: bool = True

    def write(self, level: Level, array: pa.Array, active: Mask | None) -> None:
        if self.digits is not None:
            small, large = _magnitudes(*memory.decimal_words(array))
            is_bad = _exceeds(small, large, 10**self.digits)
            active = _reject(
                level, is_bad, active, lambda row: f"{self.path}: {array[row].as_py()} {self.rule}"
            )
        if self.scale is not None:
            array = _rescaled(array, self.scale, active)
        lower, upper = memory.decimal_words(array)
        if active is not None:
            lower, upper = lower * active, upper * active
        if self.size:
            pieces = _big_endian(lower, upper, self.size, self.size)
        else:
            lengths = _byte_lengths(lower, upper)
            if self.has_length:
                level.add_varints(zigzag(lengths), active)
            pieces = _big_endian(lower, upper, lengths, int(lengths.max(initial=1)))
        for piece in pieces:
            level.add(piece, active)


def _rescaled(array: pa.Array, scale: int, active: Mask | None) -> pa.Array:
    import pyarrow.compute as pc

    if active is not None:
        array = pc.if_else(memory.boolean_array(active), array, pa.nulls(1, array.type)[0])
    return array.cast(pa.decimal128(38, scale))


# Decimals as big-endian two's complement, of whole columns.


def _magnitudes(lower: Words, upper: _Signed) -> tuple[Words, Words]:
    """The lower and the upper half of the absolute values."""
    is_negative = upper < 0
    if not is_negative.any():
        return lower, upper.view(np.uint64)
    flips = np.where(is_negative, np.uint64(2**64 - 1), np.uint64(0))
    small = (lower ^ flips) + is_negative
    large = (upper.view(np.uint64) ^ flips) + (is_negative & (lower == 0))
    return small, large


def _exceeds(lower: Words, upper: Words, limit: int) -> npt.NDArray[np.bool_]:
    """Where a magnitude is ``limit`` or more."""
    high, low = np.uint64(limit >> 64), np.uint64(limit & (2**64 - 1))
    is_over: npt.NDArray[np.bool_] = (upper > high) | ((upper == high) & (lower >= low))
    return is_over


def _byte_lengths(lower: Words, upper: _Signed) -> Lengths:
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


def _big_endian(lower: Words, upper: _Signed, lengths: Lengths | int, most: int) -> list[Piece]:
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
    # In numpy a shift by 64 or more gives 0; a negative number is a large one here.
    word = np.uint64(64)
    first = (upper.view(np.uint64) << shift) | (lower >> (word - shift)) | (lower << (shift - word))
    second = lower << shift
    in_first = 8 if isinstance(lengths, int) else np.minimum(lengths, 8)
    return [
        *pieces,
        Piece(first.byteswap(), in_first, 8),
        Piece(second.byteswap(), lengths - in_first, most - 8),
    ]


@dataclass(frozen=True)
class Structs:
    """Structs as records. ``fields``: each with its position in the struct; None if it has none."""

    fields: Sequence[tuple[int | None, Writer]]

    def write(self, level: Level, array: pa.Array, active: Mask | None) -> None:
        for position, writer in self.fields:
            writer.write(level, array if position is None else array.field(position), active)


@dataclass(frozen=True)
class Lists:
    """Lists as arrays, and maps. ``parts``: of each element, by their position in a map's entry."""

    parts: Sequence[tuple[int | None, Writer]]

    def write(self, level: Level, array: pa.Array, active: Mask | None) -> None:
        offsets = memory.list_offsets(array)
        begin = int(offsets[0])
        elements = array.values.slice(begin, int(offsets[-1]) - begin)
        offsets -= begin
        counts = np.diff(offsets)
        active_elements = None
        if active is not None:
            active_elements = np.repeat(active, counts)
            counts *= active
        below = Level(len(elements), (level, offsets))
        for position, writer in self.parts:
            part = elements if position is None else elements.field(position)
            writer.write(below, part, active_elements)
        data, bounds = below.finish()
        level.add_varints(zigzag(counts), active)
        level.add_strings(bounds[offsets], data)
        # A list that is not empty ends with a block of 0 elements.
        is_any = (counts > 0).astype(np.int64)
        level.add(Piece(0, is_any, 1))
