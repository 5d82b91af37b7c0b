"""The message for a column that does not fit an Avro type: both types, and what to do."""

from __future__ import annotations

import pyarrow as pa

from spark_kafka_sink.records.arrow_memory import plain_type
from spark_kafka_sink.schemas.avro_schema import Enum, Fixed, Node, Primitive, Union


def mismatch(node: Node, arrow_type: pa.DataType, path: str) -> str:
    has = _spark_name(arrow_type)
    return (
        f"{path}: the schema wants {node}, the column has {has}; {_advice(node, arrow_type, path)}"
    )


_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.null(): "void",
    pa.duration("us"): "interval",
    pa.time64("ns"): "time",
}
_MAX_DIGITS = 38


def _spark_name(arrow_type: pa.DataType) -> str:
    """What Spark calls the type; Arrow's name if Spark does not have it."""
    arrow_type = plain_type(arrow_type)
    if pa.types.is_timestamp(arrow_type):
        return "timestamp_ntz" if arrow_type.tz is None else "timestamp"
    if pa.types.is_decimal128(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if pa.types.is_map(arrow_type):
        return f"map with keys of type {_spark_name(arrow_type.key_type)}"
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return "array"
    return "struct" if pa.types.is_struct(arrow_type) else _NAMES.get(arrow_type, str(arrow_type))


_NUMBERS = frozenset({"byte", "short", "int", "long", "float", "double", "decimal"})
_SCALARS = _NUMBERS | {"boolean", "string"}
_TIMES = frozenset({"date", "timestamp", "timestamp_ntz", "string"})

#: (logical) type -> the Spark type that fits, and those which Spark casts to it without a change of
#: their meaning: between times and numbers, a cast counts seconds
_CASTS = {
    "boolean": ("boolean", _SCALARS),
    "int": ("int", _SCALARS),
    "long": ("long", _SCALARS),
    "float": ("float", _SCALARS),
    "double": ("double", _SCALARS),
    "decimal": ("decimal", _SCALARS),
    "string": ("string", _SCALARS | _TIMES | {"binary", "time", "interval"}),
    "fixed": ("binary", frozenset({"string"})),
    "date": ("date", _TIMES),
    "time-millis": ("int", _NUMBERS),
    "time-micros": ("long", _NUMBERS),
    "timestamp-millis": ("timestamp", _TIMES),
    "timestamp-micros": ("timestamp", _TIMES),
    "local-timestamp-millis": ("timestamp_ntz", _TIMES),
    "local-timestamp-micros": ("timestamp_ntz", _TIMES),
}
_BY_UNIT = "timestamp_seconds({0}), timestamp_millis({0}) or timestamp_micros({0})"

#: (Spark type, (logical) type) -> what converts a column where a cast does not
_CONVERSIONS = {
    ("date", "long"): "unix_date({0})",
    ("timestamp", "timestamp-nanos"): "unix_micros({0}) * 1000",
    ("string", "uuid"): "unhex(replace({0}, '-', ''))",
    **{(number, "date"): "date_from_unix_date(int({0}))" for number in _NUMBERS},
    **{
        (number, f"timestamp-{unit}"): _BY_UNIT if is_whole else "timestamp_seconds({0})"
        for unit in ("millis", "micros")
        for numbers, is_whole in (
            (("byte", "short", "int"), True),
            (("float", "double", "decimal"), False),
        )
        for number in numbers
    },
}


def _advice(node: Node, arrow_type: pa.DataType, path: str) -> str:
    if isinstance(node, Union) and pa.types.is_struct(arrow_type):
        last = len(node.branches) - (1 if node.null is None else 2)
        return f"name its fields member0 to member{last}, one for each type, or change the schema"
    kind = _kind(node)
    has = _spark_name(arrow_type).partition("(")[0]
    if expression := _CONVERSIONS.get((has, kind)):
        name = path.rpartition(".")[2]
        return f"convert it with {expression.format(name)}, or change the schema"
    wanted, castable = _CASTS.get(kind, ("", frozenset()))
    if isinstance(node, Primitive | Fixed) and kind == "decimal":
        wanted = f"decimal({node.precision},{node.scale})"
        has = "" if node.precision > _MAX_DIGITS or wanted == _spark_name(arrow_type) else has
    if has in castable:
        return f"cast it to {wanted}, or change the schema"
    return "change the column or the schema"


def _kind(node: Node) -> str:
    if isinstance(node, Primitive):
        return node.logical_type or node.type
    if isinstance(node, Fixed):
        return node.logical_type or "fixed"
    return "string" if isinstance(node, Enum) else ""
