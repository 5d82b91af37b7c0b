"""Arrow array of scalars -> their JSON texts, as large_binary.

Each function is given the path of the field, and adds rows without a JSON text to the problems;
their text is null, as is that of a null.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.encoding import arrow_memory as memory
from spark_kafka_sink.encoding.arrow_memory import binary_scalar
from spark_kafka_sink.encoding.encoded import NOT_UTF8
from spark_kafka_sink.records.rejection import RowProblem

#: (array, path, problems) -> texts
Texts = Callable[[pa.Array, str, list[RowProblem]], pa.Array]

_EMPTY = binary_scalar(b"")
_QUOTE = binary_scalar(b'"')
_UTC_END = binary_scalar(b'Z"')
_POINT_ZERO = binary_scalar(b".0")
_PADDING = memory.bytes_array([b"", b"\0", b"\0\0"])

# The years 0000 to 9999, the only ones in RFC 3339.
_DAYS = (-719_528, 2_932_896)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}

_SHORT_ESCAPES = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}


def scalar_texts(kind: pa.DataType) -> Texts | None:
    """The function for that type; None: it is not a scalar, or it is not supported."""
    for is_kind, texts in _TEXTS:
        if is_kind(kind):
            return texts
    return None


def join(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """The parts of each row, one after another; null if one is."""
    return pc.binary_join_element_wise(*parts, _EMPTY)


def set_null(texts: pa.Array, rows: npt.NDArray[Any]) -> pa.Array:
    """The texts with nulls in those rows (a mask or positions)."""
    valid = memory.valid_rows(texts).copy()
    valid[rows] = False
    ends, data = memory.byte_strings(texts)
    return memory.binary_array(ends, data, valid=valid, is_large=True)


def _plain(array: pa.Array, path: str, problems: list[RowProblem]) -> pa.Array:  # noqa: ARG001
    """Integers, decimals and booleans: Arrow writes them as JSON does."""
    return _binary(array.cast(pa.large_string()))


def _floats(array: pa.Array, path: str, problems: list[RowProblem]) -> pa.Array:
    """The shortest texts that are read as the same number."""
    values = memory.numbers(array, np.float32 if array.type.bit_width == 32 else np.float64)
    texts = array.cast(pa.large_string())
    if bool((values == np.trunc(values)).any()):
        # Without a point or an exponent, readers would take 1 for an integer and lose -0's sign.
        has_mark = pc.or_(pc.match_substring(texts, "."), pc.match_substring(texts, "e"))
        texts = join(_binary(texts), pc.if_else(has_mark, _EMPTY, _POINT_ZERO))
    else:
        texts = _binary(texts)
    if bool(np.isfinite(values).all()):
        return texts
    valid = memory.valid_rows(array)
    for name, is_bad in (("NaN", np.isnan(values)), ("Infinity", np.isinf(values))):
        rows = np.flatnonzero(is_bad & valid)
        if len(rows):
            reason = f"{path}: {name} has no JSON number; filter or replace it"
            problems.append(RowProblem(rows, reason))
    return set_null(texts, ~np.isfinite(values))


def _strings(array: pa.Array, path: str, problems: list[RowProblem]) -> pa.Array:
    # Of nulls, too, any bytes may be in the data. The functions below work on bytes.
    texts = array.cast(pa.large_string())
    bad_rows = memory.rows_without_utf8(texts)
    ends, data = memory.byte_strings(texts)
    data = data[ends[0] : ends[-1]]
    if bool((data == ord("\\")).any()):
        texts = pc.replace_substring(texts, "\\", "\\\\")
    if bool((data == ord('"')).any()):
        texts = pc.replace_substring(texts, '"', '\\"')
    if int(data.min(initial=ord(" "))) < ord(" "):
        for code in np.unique(data[data < ord(" ")]).tolist():
            escape = _SHORT_ESCAPES.get(code, f"\\u{code:04x}")
            texts = pc.replace_substring(texts, chr(code), escape)
    texts = join(_QUOTE, _binary(texts), _QUOTE)
    if not len(bad_rows):
        return texts
    problems.append(RowProblem(bad_rows, f"{path}: {NOT_UTF8}"))
    return set_null(texts, bad_rows)


def _binaries(array: pa.Array, path: str, problems: list[RowProblem]) -> pa.Array:  # noqa: ARG001
    # As whole groups of three bytes, the base64 of all rows is that of each row.
    valid = memory.valid_rows(array)
    ends, _ = memory.byte_strings(array)
    missing = -np.diff(ends) % 3 * valid
    padded = join(array.cast(pa.large_binary()), _PADDING.take(memory.integer_array(missing)))
    ends, data = memory.byte_strings(padded)
    digits = bytearray(b2a_base64(data[ends[0] : ends[-1]].data, newline=False))
    texts = np.frombuffer(digits, dtype=np.uint8)
    ends = (ends - ends[0]) // 3 * 4
    texts[ends[1:][missing > 0] - 1] = ord("=")
    texts[ends[1:][missing > 1] - 2] = ord("=")
    return join(_QUOTE, memory.binary_array(ends, texts, valid=valid, is_large=True), _QUOTE)


def _dates(array: pa.Array, path: str, problems: list[RowProblem]) -> pa.Array:
    texts = join(_QUOTE, _binary(array.cast(pa.large_string())), _QUOTE)
    return _check_years(texts, array, memory.numbers(array, np.int32), 1, path, problems)


def _timestamps(array: pa.Array, path: str, problems: list[RowProblem]) -> pa.Array:
    """With a time zone, the instant in UTC; without one, the date and time without an offset.

    With as many digits of a second as are not zero.
    """
    unit = array.type.unit
    texts = array.view(pa.timestamp(unit)).cast(pa.large_string())
    texts = pc.binary_replace_slice(texts, 10, 11, "T")
    if unit != "s":
        texts = pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")
    texts = join(_QUOTE, _binary(texts), _QUOTE if array.type.tz is None else _UTC_END)
    per_day = 86_400 * _PER_SECOND[unit]
    return _check_years(texts, array, memory.numbers(array, np.int64), per_day, path, problems)


def _check_years(
    texts: pa.Array,
    array: pa.Array,
    ticks: npt.NDArray[Any],
    per_day: int,
    path: str,
    problems: list[RowProblem],
) -> pa.Array:
    if per_day > 86_400 * 1_000_000:  # int64 has no nanoseconds outside these years
        return texts
    first, last = _DAYS
    is_outside = (ticks < first * per_day) | (ticks >= (last + 1) * per_day)
    if not bool(is_outside.any()):
        return texts
    rows = np.flatnonzero(is_outside & memory.valid_rows(array))
    if len(rows):
        reason = f"{path}: a year outside 0000 to 9999, which RFC 3339 lacks; filter or replace it"
        problems.append(RowProblem(rows, reason))
    return set_null(texts, is_outside)


def _binary(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.large_binary())


_TEXTS: tuple[tuple[Callable[[pa.DataType], bool], Texts], ...] = (
    (pa.types.is_integer, _plain),
    (pa.types.is_boolean, _plain),
    (pa.types.is_decimal, _plain),
    (pa.types.is_float32, _floats),
    (pa.types.is_float64, _floats),
    (pa.types.is_string, _strings),
    (pa.types.is_large_string, _strings),
    (pa.types.is_binary, _binaries),
    (pa.types.is_large_binary, _binaries),
    (pa.types.is_date32, _dates),
    (pa.types.is_timestamp, _timestamps),
)
