"""Which writer writes which Arrow type as which Avro type; every field that does not fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from spark_kafka_sink.avro import writers
from spark_kafka_sink.avro.branches import best
from spark_kafka_sink.avro.defaults import encoded_default, long_bytes
from spark_kafka_sink.avro.fields import match_fields
from spark_kafka_sink.avro.parsed import (
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Node,
    Primitive,
    Record,
    Union,
)
from spark_kafka_sink.avro.type_names import advice, spark_name
from spark_kafka_sink.avro.writers import Writer
from spark_kafka_sink.encoding.arrow_memory import plain_type

_INTEGERS = {pa.int8(): "i1", pa.int16(): "i2", pa.int32(): "i4", pa.int64(): "i8"}


def compile_writer(
    node: Node, arrow_type: pa.DataType, path: str, problems: list[str], *, is_nullable: bool = True
) -> Writer:
    """The writer of a value that may be null. Adds a sentence for each field that does not fit.

    ``is_nullable``: whether the column's type allows null. Null is checked in any case.
    """
    if isinstance(node, Primitive) and node.type == "null" and pa.types.is_null(arrow_type):
        return writers.Nothing()
    if not isinstance(node, Union):
        inner = _writer(node, arrow_type, path, problems)
        return writers.Required(path, inner, is_nullable=is_nullable)
    null = node.null
    if pa.types.is_null(arrow_type) and null is not None:
        return writers.Constant(long_bytes(null))
    others = [(i, branch) for i, branch in enumerate(node.branches) if i != null]
    if _has_members(arrow_type, len(others)):
        members = [
            (i, _writer(branch, field.type, f"{path}.{field.name}", problems))
            for (i, branch), field in zip(others, arrow_type, strict=True)
        ]
        return writers.Members(path, null, members)
    branch, inner = _branch(node, others, arrow_type, path, problems)
    if null is None:
        return writers.Required(path, inner, long_bytes(branch), is_nullable)
    return writers.Nullable(null, branch, inner)


def _has_members(arrow_type: pa.DataType, count: int) -> bool:
    """Whether it is what Spark's ``from_avro`` makes of a union: a field for each branch."""
    if count < 2 or not pa.types.is_struct(arrow_type):
        return False
    return [field.name for field in arrow_type] == [f"member{i}" for i in range(count)]


def _branch(
    node: Union,
    others: list[tuple[int, Node]],
    arrow_type: pa.DataType,
    path: str,
    problems: list[str],
) -> tuple[int, Writer]:
    """The branch that fits best, and its writer. ``others``: all but null, with their indices."""
    if len(others) == 1:
        index, branch = others[0]
        return index, _writer(branch, arrow_type, path, problems)
    fitting = []
    for index, branch in others:
        found: list[str] = []
        writer = _writer(branch, arrow_type, path, found)
        if not found:
            fitting.append((index, writer))
    if not fitting:
        problems.append(_mismatch(node, arrow_type, path))
        return 0, writers.Nothing()
    return best(fitting)


def _writer(node: Node, arrow_type: pa.DataType, path: str, problems: list[str]) -> Writer:
    """The writer of values that are not null."""
    arrow_type = plain_type(arrow_type)
    if isinstance(node, Record | Array | Map):
        writer = _nested(node, arrow_type, path, problems)
    elif isinstance(node, Enum):
        is_text = arrow_type == pa.string()
        writer = writers.Symbols(path, node.name, tuple(node.symbols)) if is_text else None
    elif isinstance(node, Fixed):
        writer = _fixed(node, arrow_type, path)
    elif isinstance(node, Primitive):
        writer = _PRIMITIVES[node.type](node, arrow_type, path)
    else:
        writer = None  # a union in a union, which no schema has
    if writer is None:
        problems.append(_mismatch(node, arrow_type, path))
        return writers.Nothing()
    return writer


def _nested(
    node: Record | Array | Map, arrow_type: pa.DataType, path: str, problems: list[str]
) -> Writer | None:
    if isinstance(node, Record):
        is_struct = pa.types.is_struct(arrow_type)
        return _record(node, arrow_type, path, problems) if is_struct else None
    if isinstance(node, Array):
        if not pa.types.is_list(arrow_type) and not pa.types.is_large_list(arrow_type):
            return None
        element = _of_field(node.items, arrow_type.value_field, f"{path}.element", problems)
        return writers.Lists([(None, element)])
    if not pa.types.is_map(arrow_type) or plain_type(arrow_type.key_type) != pa.string():
        return None
    key = writers.Required(f"{path}.key", writers.Text(f"{path}.key"), is_nullable=False)
    value = _of_field(node.values, arrow_type.item_field, f"{path}.value", problems)
    return writers.Lists([(0, key), (1, value)])


def _of_field(node: Node, field: pa.Field, path: str, problems: list[str]) -> Writer:
    return compile_writer(node, field.type, path, problems, is_nullable=field.nullable)


def _mismatch(node: Node, arrow_type: pa.DataType, path: str) -> str:
    has = spark_name(arrow_type)
    return (
        f"{path}: the schema wants {node}, the column has {has}; {advice(node, arrow_type, path)}"
    )


def _record(node: Record, arrow_type: pa.DataType, path: str, problems: list[str]) -> Writer:
    names = [arrow_type.field(i).name for i in range(arrow_type.num_fields)]
    fields: list[tuple[int | None, Writer]] = []
    for field, position in match_fields(node, names, path, problems):
        inner = f"{path}.{field.name}"
        if position is None:
            fields.append((None, _default(field, inner, problems)))
        else:
            column = arrow_type.field(position)
            inner = f"{path}.{column.name}"
            fields.append((position, _of_field(field.type, column, inner, problems)))
    return writers.Record(fields)


def _default(field: Field, path: str, problems: list[str]) -> Writer:
    try:
        return writers.Constant(encoded_default(field.type, field.default))
    except ValueError as error:
        problem = str(error)
    except RecursionError:
        problem = "it contains itself, or is nested too deeply"
    problems.append(f"{path}: the schema's default is invalid: {problem}; correct the schema")
    return writers.Nothing()


def _boolean(_node: Primitive, arrow_type: pa.DataType, _path: str) -> Writer | None:
    return writers.Boolean() if arrow_type == pa.bool_() else None


def _int(node: Primitive, arrow_type: pa.DataType, path: str) -> Writer | None:
    if arrow_type == pa.date32():
        return writers.Integer(path, "i4")
    dtype = _INTEGERS.get(arrow_type)
    if dtype is None or (dtype == "i8" and node.logical_type == "date"):
        return None
    return writers.Integer(path, dtype, is_int=dtype == "i8")


def _long(node: Primitive, arrow_type: pa.DataType, path: str) -> Writer | None:
    """As Spark's ``to_avro``: a long is written as it is, whatever the logical type says."""
    if arrow_type in {pa.int64(), pa.duration("us")}:
        return writers.Integer(path, "i8")
    kind = node.logical_type
    if arrow_type in _INTEGERS and kind in {None, "time-micros"}:
        return writers.Integer(path, _INTEGERS[arrow_type])
    if arrow_type == pa.time64("ns") and kind == "time-micros":
        return writers.Integer(path, "i8", ticks=1000)
    if not pa.types.is_timestamp(arrow_type) or arrow_type.unit != "us":
        return None
    prefix = "local-timestamp-" if arrow_type.tz is None else "timestamp-"
    ticks = {None: 1000, f"{prefix}millis": 1000, f"{prefix}micros": 1}.get(kind)
    return None if ticks is None else writers.Integer(path, "i8", ticks=ticks)


def _float(_node: Primitive, arrow_type: pa.DataType, _path: str) -> Writer | None:
    return writers.Float("f4", 4) if arrow_type == pa.float32() else None


def _double(_node: Primitive, arrow_type: pa.DataType, _path: str) -> Writer | None:
    if arrow_type == pa.int64():
        return None
    dtype = {pa.float32(): "f4", pa.float64(): "f8"}.get(arrow_type, _INTEGERS.get(arrow_type))
    return None if dtype is None else writers.Float(dtype, 8)


def _is_binary(arrow_type: pa.DataType) -> bool:
    return bool(arrow_type == pa.binary() or pa.types.is_fixed_size_binary(arrow_type))


def _bytes(node: Primitive, arrow_type: pa.DataType, path: str) -> Writer | None:
    if _is_binary(arrow_type):
        return writers.Bytes()
    if node.logical_type == "decimal":
        return _decimal(node, arrow_type, path, 0)
    return writers.Bytes(is_text_as_bytes=True) if arrow_type == pa.string() else None


def _string(_node: Primitive, arrow_type: pa.DataType, path: str) -> Writer | None:
    return writers.Text(path) if arrow_type == pa.string() else None


def _fixed(node: Fixed, arrow_type: pa.DataType, path: str) -> Writer | None:
    if _is_binary(arrow_type):
        return writers.FixedBytes(path, node.size)
    is_decimal = node.logical_type == "decimal"
    return _decimal(node, arrow_type, path, node.size) if is_decimal else None


def _decimal(
    node: Primitive | Fixed, arrow_type: pa.DataType, path: str, size: int
) -> Writer | None:
    if not pa.types.is_decimal128(arrow_type) or arrow_type.scale > node.scale:
        return None
    # In the column's scale; a rescaled value still has to fit the 38 digits of Arrow.
    digits = min(node.precision, 38) - node.scale + arrow_type.scale
    scale = node.scale if node.scale > arrow_type.scale else None
    if digits < 0:
        return None
    return writers.Decimal(path, size, digits if digits < arrow_type.precision else None, scale)


_PRIMITIVES: dict[str, Callable[[Any, pa.DataType, str], Writer | None]] = {
    "null": lambda *_: None,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}
