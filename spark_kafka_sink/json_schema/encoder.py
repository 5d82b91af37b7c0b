"""Arrow column -> JSON as of Spark's to_json: one value per row, in UTF-8, without spaces.

Two things differ: times keep their microseconds, and numbers that JSON does not have are problems.
Each level of a nested type becomes one array of texts, of which the level above is joined; no step
loops over rows in Python.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.encoding import arrow_memory as memory
from spark_kafka_sink.encoding.arrow_memory import binary_scalar
from spark_kafka_sink.encoding.encoded import Encoded, encode_in_parts
from spark_kafka_sink.errors import UnsupportedType
from spark_kafka_sink.json_schema.fit import Fit
from spark_kafka_sink.json_schema.scalars import join, scalar_texts, set_null
from spark_kafka_sink.records.columns import ranges
from spark_kafka_sink.records.rejection import RowProblem

_Texts = Callable[[pa.Array, list[RowProblem]], pa.Array]

_ANY = Fit()
_EMPTY = binary_scalar(b"")
_COMMA = binary_scalar(b",")
_COLON = binary_scalar(b":")
_NULL = binary_scalar(b"null")
_BEGIN, _END = binary_scalar(b"{"), binary_scalar(b"}")


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
        problems: list[RowProblem] = []
        values = self._texts(array, problems)
        if len(prefix):
            values = join(binary_scalar(prefix) if isinstance(prefix, bytes) else prefix, values)
        for problem in problems:
            values = set_null(values, problem.rows)
        return Encoded(values, problems)


def _texts(kind: pa.DataType, path: str, fit: Fit) -> _Texts:
    """What makes the texts (large_binary) of a type. The text of a row with a problem is not used.

    Positions of problems are those of rows in its array.
    """
    if pa.types.is_dictionary(kind):
        decoded = _texts(kind.value_type, path, fit)
        return lambda array, problems: decoded(array.dictionary_decode(), problems)
    if pa.types.is_struct(kind):
        return _objects(kind, path, fit)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _arrays(kind, path, fit)
    if pa.types.is_map(kind):
        return _maps(kind, path, fit)
    texts = scalar_texts(kind)
    if texts is None:
        problem = f"column {path}: {kind}; cast it to string"
        raise UnsupportedType(f"JSON cannot have {problem}", problems=(problem,))
    return lambda array, problems: texts(array, path, problems)


def _objects(kind: pa.DataType, path: str, fit: Fit) -> _Texts:
    names = [field.name for field in kind]
    fields = [
        _texts(field.type, f"{path}.{field.name}", fit.inner.get(field.name, _ANY))
        for field in kind
    ]
    required = [i for i, name in enumerate(names) if name in fit.nulls]
    labels = [json.dumps(name, ensure_ascii=False).encode() + b":" for name in names]

    def texts(array: pa.Array, problems: list[RowProblem]) -> pa.Array:
        # flatten: a field of a null struct is null, so it has no problem.
        columns = [
            field(column, problems) for field, column in zip(fields, array.flatten(), strict=True)
        ]
        for i in required:
            columns[i] = _null_as_text(columns[i])
        objects = _joined_fields(labels, columns, len(array))
        return set_null(objects, ~memory.valid_rows(array)) if array.null_count else objects

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
        parts += [join(begin, column, *end)] if column.null_count else [begin, column]
    if always < 0:
        # With "skip" and a separator, Arrow would leave out rows in which all parts are null.
        fields = _joined(*parts)
        return join(pc.binary_replace_slice(fields, 0, 1, "{"), _END)
    return _joined(_BEGIN, *parts, _END)


def _joined(*parts: pa.Array | pa.Scalar) -> pa.Array:
    """The parts of each row that are not null."""
    return pc.binary_join_element_wise(*parts, _EMPTY, null_handling="replace", null_replacement="")


def _arrays(kind: pa.DataType, path: str, fit: Fit) -> _Texts:
    element = _texts(kind.value_type, f"{path}.element", fit.inner.get("element", _ANY))

    def texts(array: pa.Array, problems: list[RowProblem]) -> pa.Array:
        starts, used = _used(array)
        element_problems: list[RowProblem] = []
        elements = element(_selected(array.values, used), element_problems)
        problems += _row_problems(element_problems, starts)
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
    value = _texts(kind.item_type, f"{path}.value", fit.inner.get("value", _ANY))

    def texts(array: pa.Array, problems: list[RowProblem]) -> pa.Array:
        starts, used = _used(array)
        entry_problems: list[RowProblem] = []
        keys = key(_selected(array.keys, used), entry_problems)
        values = value(_selected(array.items, used), entry_problems)
        problems += _row_problems(entry_problems, starts)
        entries = join(_null_as_text(keys), _COLON, _null_as_text(values))
        return _joined_lists(array, starts, entries, b"{", b"}")

    return texts


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


def _row_problems(
    problems: Sequence[RowProblem], starts: npt.NDArray[np.int64]
) -> list[RowProblem]:
    """Problems of elements as problems of the rows that contain them."""
    return [
        RowProblem(
            np.unique(np.searchsorted(starts, problem.rows, side="right") - 1), problem.reason
        )
        for problem in problems
    ]


def _null_as_text(texts: pa.Array) -> pa.Array:
    return pc.coalesce(texts, _NULL) if texts.null_count else texts


def _joined_lists(
    array: pa.Array, starts: npt.NDArray[np.int64], elements: pa.Array, begin: bytes, end: bytes
) -> pa.Array:
    joined = pc.binary_join(memory.list_array(starts, elements), _COMMA)
    texts = join(binary_scalar(begin), joined, binary_scalar(end))
    return set_null(texts, ~memory.valid_rows(array)) if array.null_count else texts
