"""[both] Arrow column -> JSON as of Spark's to_json: one value per row, in UTF-8, without spaces.

Two things differ: times keep their microseconds, and numbers that JSON does not have are problems.
Each level of a nested type becomes one array of texts, of which the level above is joined; no step
loops over rows in Python.
"""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.errors import UnsupportedType
from spark_kafka_sink.records import arrow_memory as memory
from spark_kafka_sink.records.arrow_memory import binary_scalar
from spark_kafka_sink.records.columns import containing_rows, ranges
from spark_kafka_sink.records.rejection import RowProblems
from spark_kafka_sink.schemas.encoded import NO_NULL, NOT_UTF8, Encoded, encode_in_parts
from spark_kafka_sink.schemas.json.fit import Fit

_Texts = Callable[[pa.Array, RowProblems], pa.Array]
#: texts, and the rows (int64[]) without one, with the reason
_Scalars = tuple[pa.Array, list[tuple[npt.NDArray[np.int64], str]]]
_ScalarTexts = Callable[[pa.Array], _Scalars]

_ANY = Fit()
_EMPTY = binary_scalar(b"")
_COMMA = binary_scalar(b",")
_COLON = binary_scalar(b":")
_NULL = binary_scalar(b"null")
_BEGIN, _END = binary_scalar(b"{"), binary_scalar(b"}")
_QUOTE = binary_scalar(b'"')
_UTC_END = binary_scalar(b'Z"')
_POINT_ZERO = binary_scalar(b".0")
_PADDING = memory.bytes_array([b"", b"\0", b"\0\0"])

# The years 0000 to 9999, the only ones in RFC 3339.
_DAYS = (-719_528, 2_932_896)
_US_PER_DAY = 86_400_000_000

_SHORT_ESCAPES = {8: "\\b", 9: "\\t", 10: "\\n", 12: "\\f", 13: "\\r"}


class JsonEncoder:
    """Encodes columns of one Arrow type; ``column`` is their name in problems.

    Accepts the Arrow types in which Spark passes columns, slices, and dictionaries of them. Null
    fields of structs are left out, unless ``fit`` says that the schema requires them; null elements
    of arrays and null values of maps are null. Binary is base64. A timestamp is an RFC 3339
    date-time in UTC, and without an offset if its type has no time zone.
    """

    def __init__(self, arrow_type: pa.DataType, column: str, fit: Fit = _ANY) -> None:
        self._texts = _texts(arrow_type, column, fit)

    def encode(self, array: pa.Array, prefix: bytes | pa.Array = b"") -> Encoded:
        """``prefix`` precedes every value, or that of its row. A null stays null."""
        return encode_in_parts(self._encode, array, prefix)

    def _encode(self, array: pa.Array, prefix: bytes | pa.Array) -> Encoded:
        problems = RowProblems()
        values = self._texts(array, problems)
        if len(prefix):
            values = _join(binary_scalar(prefix) if isinstance(prefix, bytes) else prefix, values)
        for problem in problems:
            values = _set_null(values, problem.rows)
        return Encoded(values, problems)


def _texts(kind: pa.DataType, path: str, fit: Fit) -> _Texts:
    """The function that turns an array of this type into JSON texts (large_binary).

    It adds problems with the positions of their rows in the array; the texts of these are not used.
    """
    texts = _texts_of_one(kind, path, fit)
    if not fit.others:
        return texts
    others = [_texts_of_one(kind, path, other) for other in fit.others]

    def first_allowed(array: pa.Array, problems: RowProblems) -> pa.Array:
        own_problems = RowProblems()
        written = texts(array, own_problems)
        for other in others:
            if not own_problems:
                break
            rows = np.unique(np.concatenate([problem.rows for problem in own_problems]))
            again = RowProblems()
            retried = other(array.take(memory.integer_array(rows)), again)
            is_good = np.ones(len(rows), dtype=bool)
            for problem in again:
                is_good[problem.rows] = False
            written = _replaced(
                written, rows[is_good], retried.filter(memory.boolean_array(is_good))
            )
            own_problems = _without_rows(own_problems, rows[is_good])
        problems += own_problems
        return written

    return first_allowed


def _texts_of_one(kind: pa.DataType, path: str, fit: Fit) -> _Texts:
    if pa.types.is_dictionary(kind):
        decoded = _texts(kind.value_type, path, fit)
        return lambda array, problems: decoded(array.dictionary_decode(), problems)
    if pa.types.is_struct(kind):
        return _objects(kind, path, fit)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _arrays(kind, path, fit)
    if pa.types.is_map(kind):
        return _maps(kind, path, fit)
    scalar_texts = _scalar_texts(kind)
    if scalar_texts is None:
        problem = f"column {path}: {kind}; cast it to string"
        raise UnsupportedType(f"JSON cannot have {problem}", problems=(problem,))

    def scalars(array: pa.Array, problems: RowProblems) -> pa.Array:
        texts, bad = scalar_texts(array)
        for rows, reason in bad:
            problems.add(rows, f"{path}: {reason}")
        return texts

    return scalars


def _objects(kind: pa.DataType, path: str, fit: Fit) -> _Texts:
    names = [field.name for field in kind]
    fields = [
        _texts(field.type, f"{path}.{field.name}", fit.inner.get(field.name, _ANY))
        for field in kind
    ]
    required = [i for i, name in enumerate(names) if name in fit.nulls]
    never_null = [(i, f"{path}.{name}") for i, name in enumerate(names) if name in fit.no_nulls]
    labels = [json.dumps(name, ensure_ascii=False).encode() + b":" for name in names]

    def texts(array: pa.Array, problems: RowProblems) -> pa.Array:
        # flatten: a field of a null struct is null, so it has no problem.
        arrays = array.flatten()
        columns = [field(column, problems) for field, column in zip(fields, arrays, strict=True)]
        for i, place in never_null:
            _reject_nulls(arrays[i], place, problems, around=array)
        for i in required:
            columns[i] = _null_as_text(columns[i])
        objects = _joined_fields(labels, columns, len(array))
        return _set_null(objects, ~memory.valid_rows(array)) if array.null_count else objects

    return texts


def _joined_fields(labels: Sequence[bytes], columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """The objects of the fields that are not null."""
    if not columns:
        starts = np.arange(rows + 1, dtype=np.int64) * 2
        return memory.binary_array(
            starts, np.frombuffer(b"{}" * rows, dtype=np.uint8), is_large=True
        )
    # Commas precede fields behind one that no object lacks, and follow those before it.
    always = next((i for i, column in enumerate(columns) if not column.null_count), -1)
    parts: list[pa.Array | pa.Scalar] = []
    for i, (label, column) in enumerate(zip(labels, columns, strict=True)):
        begin = binary_scalar(label if i <= always else b"," + label)
        end = [_COMMA] if i < always else []
        parts += [_join(begin, column, *end)] if column.null_count else [begin, column]
    if always < 0:
        # With "skip" and a separator, Arrow would leave out rows in which all parts are null.
        fields = _join_present(*parts)
        return _join(pc.binary_replace_slice(fields, 0, 1, "{"), _END)
    return _join_present(_BEGIN, *parts, _END)


def _join_present(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """The parts of each row that are not null."""
    return pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement="")


def _arrays(kind: pa.DataType, path: str, fit: Fit) -> _Texts:
    element = _inner_texts(kind.value_type, path, "element", fit)

    def texts(array: pa.Array, problems: RowProblems) -> pa.Array:
        starts, used = _used(array)
        element_problems = RowProblems()
        elements = element(_selected(array.values, used), element_problems)
        problems.add_inner(element_problems, starts)
        return _joined_lists(array, starts, _null_as_text(elements), b"[", b"]")

    return texts


def _maps(kind: pa.DataType, path: str, fit: Fit) -> _Texts:
    key_type = kind.key_type
    if pa.types.is_dictionary(key_type):
        key_type = key_type.value_type
    if not (pa.types.is_string(key_type) or pa.types.is_large_string(key_type)):
        problem = f"column {path}: map with {key_type} keys; cast its keys to string"
        raise UnsupportedType(f"JSON cannot have {problem}", problems=(problem,))
    key = _texts(kind.key_type, f"{path}.key", _ANY)
    of_key = fit.of_key
    value = _inner_texts(kind.item_type, path, "value", fit)

    def texts(array: pa.Array, problems: RowProblems) -> pa.Array:
        starts, used = _used(array)
        entry_problems = RowProblems()
        names, items = _selected(array.keys, used), _selected(array.items, used)
        keys = key(names, entry_problems)
        if of_key is None:
            values = value(items, entry_problems)
        else:
            values = _values_by_key(kind.item_type, path, of_key, names, items, entry_problems)
        problems.add_inner(entry_problems, starts)
        for name in sorted(fit.keys):
            has_name = memory.booleans(pc.equal(memory.plain(names), name))
            having = containing_rows(starts, np.flatnonzero(has_name))
            lacking = np.setdiff1d(np.flatnonzero(memory.valid_rows(array)), having)
            problems.add(lacking, f"{path}: the schema requires {name}, the map lacks it")
        entries = _join(_null_as_text(keys), _COLON, _null_as_text(values))
        return _joined_lists(array, starts, entries, b"{", b"}")

    return texts


def _inner_texts(kind: pa.DataType, path: str, name: str, fit: Fit) -> _Texts:
    """The function for the elements of arrays, or the values of maps."""
    place = f"{path}.{name}"
    texts = _texts(kind, place, fit.inner.get(name, _ANY))
    if not fit.no_nulls:
        return texts

    def without_nulls(array: pa.Array, problems: RowProblems) -> pa.Array:
        _reject_nulls(array, place, problems)
        return texts(array, problems)

    return without_nulls


def _values_by_key(
    kind: pa.DataType,
    path: str,
    of_key: Callable[[str], Fit],
    keys: pa.Array,
    items: pa.Array,
    problems: RowProblems,
) -> pa.Array:
    """The texts of a map's values if the schema has rules for keys."""
    keys = keys if pa.types.is_dictionary(keys.type) else keys.dictionary_encode()
    codes = memory.numbers(keys.indices.cast(pa.int32()), np.int32)
    ends, data = memory.byte_strings(keys.dictionary)
    names = [
        data[begin:end].tobytes().decode(errors="replace")
        for begin, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)
    ]
    fits: list[Fit] = []
    code_fits = np.zeros(len(names), dtype=np.int64)
    for code, name in enumerate(names):
        fit = of_key(name)
        if fit.problems:
            rule = fit.problems[0].partition(": ")[2].partition("; ")[0]
            reason = f"{path}: key {name[:100]!r}: {rule}"
            is_bad = codes == code
            if fit.nulls:
                is_bad &= memory.valid_rows(items)
            problems.add(np.flatnonzero(is_bad), reason)
            fit = _ANY
        if fit not in fits:
            fits.append(fit)
        code_fits[code] = fits.index(fit)
    texts = pa.nulls(len(items), pa.large_binary())
    for i, fit in enumerate(fits):
        rows = np.flatnonzero(code_fits[codes] == i)
        own_problems = RowProblems()
        selected = items.take(memory.integer_array(rows))
        written = _inner_texts(kind, path, "value", fit)(selected, own_problems)
        texts = _replaced(texts, rows, written)
        problems += [replace(problem, rows=rows[problem.rows]) for problem in own_problems]
    return texts


def _reject_nulls(
    array: pa.Array, path: str, problems: RowProblems, around: pa.Array | None = None
) -> None:
    """Add the rows with a null, unless what is ``around`` is null there."""
    if not array.null_count:
        return
    is_null = ~memory.valid_rows(array)
    rows = np.flatnonzero(is_null if around is None else is_null & memory.valid_rows(around))
    problems.add(rows, f"{path}: {NO_NULL}")


def _without_rows(problems: RowProblems, rows: npt.NDArray[np.int64]) -> RowProblems:
    kept = RowProblems()
    for problem in problems:
        kept.add(np.setdiff1d(problem.rows, rows), problem.reason, problem.error)
    return kept


def _replaced(texts: pa.Array, rows: npt.NDArray[np.int64], others: pa.Array) -> pa.Array:
    """The texts with others in those rows (ascending)."""
    is_other = np.zeros(len(texts), dtype=bool)
    is_other[rows] = True
    return pc.replace_with_mask(texts, memory.boolean_array(is_other), others)


def _used(array: pa.Array) -> tuple[npt.NDArray[np.int64], slice | npt.NDArray[np.int64]]:
    """Where each row's elements begin among those of all rows, and the positions of those elements.

    A null list may have a non-empty range of elements, which are not used.
    """
    starts = memory.list_offsets(array)
    if array.null_count == 0:
        return starts - starts[0], slice(int(starts[0]), int(starts[-1]))
    used, begins = ranges(starts[:-1], np.diff(starts) * memory.valid_rows(array))
    return begins, used


def _selected(values: pa.Array, used: slice | npt.NDArray[np.int64]) -> pa.Array:
    if isinstance(used, slice):
        return values.slice(used.start, used.stop - used.start)
    return values.take(memory.integer_array(used))


def _null_as_text(texts: pa.Array) -> pa.Array:
    return pc.coalesce(texts, _NULL) if texts.null_count else texts


def _joined_lists(
    array: pa.Array, starts: npt.NDArray[np.int64], elements: pa.Array, begin: bytes, end: bytes
) -> pa.Array:
    joined = pc.binary_join(memory.list_array(starts, elements), _COMMA)
    texts = _join(binary_scalar(begin), joined, binary_scalar(end))
    return _set_null(texts, ~memory.valid_rows(array)) if array.null_count else texts


# Scalars: the text of a row without one is null, as is that of a null.


def _scalar_texts(kind: pa.DataType) -> _ScalarTexts | None:
    """The function for that type; None: it is not a scalar, or it is not supported."""
    for is_kind, texts in _SCALARS:
        if is_kind(kind):
            return texts
    return None


def _join(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """The parts of each row, one after another; null if one is."""
    return pc.binary_join_element_wise(*parts, _EMPTY)


def _set_null(texts: pa.Array, rows: npt.NDArray[Any]) -> pa.Array:
    """The texts with nulls in those rows (a mask or positions)."""
    valid = memory.valid_rows(texts).copy()
    valid[rows] = False
    ends, data = memory.byte_strings(texts)
    return memory.binary_array(ends, data, valid=valid, is_large=True)


def _plain(array: pa.Array) -> _Scalars:
    """Integers, decimals and booleans: Arrow writes them as JSON does."""
    return _binary(array.cast(pa.large_string())), []


def _floats(array: pa.Array) -> _Scalars:
    """The shortest texts that are read as the same number."""
    values = memory.numbers(array, np.float32 if array.type.bit_width == 32 else np.float64)
    texts = array.cast(pa.large_string())
    if bool((values == np.trunc(values)).any()):
        # Without a point or an exponent, readers would take 1 for an integer and lose -0's sign.
        has_mark = pc.or_(pc.match_substring(texts, "."), pc.match_substring(texts, "e"))
        texts = _join(_binary(texts), pc.if_else(has_mark, _EMPTY, _POINT_ZERO))
    else:
        texts = _binary(texts)
    if bool(np.isfinite(values).all()):
        return texts, []
    valid = memory.valid_rows(array)
    bad = [
        (np.flatnonzero(is_bad & valid), f"{name} has no JSON number; filter or replace it")
        for name, is_bad in (("NaN", np.isnan(values)), ("Infinity", np.isinf(values)))
    ]
    return _set_null(texts, ~np.isfinite(values)), bad


def _strings(array: pa.Array) -> _Scalars:
    # The data may have any bytes where a row is null. The functions below work on bytes.
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
    texts = _join(_QUOTE, _binary(texts), _QUOTE)
    if not len(bad_rows):
        return texts, []
    return _set_null(texts, bad_rows), [(bad_rows, NOT_UTF8)]


def _binaries(array: pa.Array) -> _Scalars:
    # If each row is whole groups of three bytes, the base64 of all rows is that of each row.
    valid = memory.valid_rows(array)
    ends, _ = memory.byte_strings(array)
    missing = -np.diff(ends) % 3 * valid
    padded = _join(array.cast(pa.large_binary()), _PADDING.take(memory.integer_array(missing)))
    ends, data = memory.byte_strings(padded)
    digits = bytearray(b2a_base64(data[ends[0] : ends[-1]].data, newline=False))
    texts = np.frombuffer(digits, dtype=np.uint8)
    ends = (ends - ends[0]) // 3 * 4
    texts[ends[1:][missing > 0] - 1] = ord("=")
    texts[ends[1:][missing > 1] - 2] = ord("=")
    return _join(_QUOTE, memory.binary_array(ends, texts, valid=valid, is_large=True), _QUOTE), []


def _dates(array: pa.Array) -> _Scalars:
    texts = _join(_QUOTE, _binary(array.cast(pa.large_string())), _QUOTE)
    return _check_years(texts, array, memory.numbers(array, np.int32), 1)


def _timestamps(array: pa.Array) -> _Scalars:
    """Texts of instants in UTC, or without a time zone of dates and times without an offset.

    Trailing zeros of the fraction of a second are left out.
    """
    texts = array.view(pa.timestamp("us")).cast(pa.large_string())
    texts = pc.binary_replace_slice(texts, 10, 11, "T")
    texts = pc.ascii_rtrim(pc.ascii_rtrim(texts, "0"), ".")
    texts = _join(_QUOTE, _binary(texts), _QUOTE if array.type.tz is None else _UTC_END)
    return _check_years(texts, array, memory.numbers(array, np.int64), _US_PER_DAY)


def _check_years(
    texts: pa.Array, array: pa.Array, ticks: npt.NDArray[Any], per_day: int
) -> _Scalars:
    first, last = _DAYS
    is_outside = (ticks < first * per_day) | (ticks >= (last + 1) * per_day)
    if not bool(is_outside.any()):
        return texts, []
    rows = np.flatnonzero(is_outside & memory.valid_rows(array))
    reason = "a year outside 0000 to 9999, which RFC 3339 lacks; filter or replace it"
    return _set_null(texts, is_outside), [(rows, reason)]


def _is_spark_timestamp(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "us")


def _binary(texts: pa.Array) -> pa.Array:
    return texts.cast(pa.large_binary())


_SCALARS: tuple[tuple[Callable[[pa.DataType], bool], _ScalarTexts], ...] = (
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
    (_is_spark_timestamp, _timestamps),
)
