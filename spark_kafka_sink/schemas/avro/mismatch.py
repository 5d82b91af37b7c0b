"""[both] The message for a column that does not fit an Avro type: both types, and what to do."""

from __future__ import annotations

import pyarrow as pa

from spark_kafka_sink.records.arrow_memory import plain_type
from spark_kafka_sink.schemas.avro.schema import (
    Array,
    Enum,
    Fixed,
    Map,
    Node,
    Primitive,
    Record,
    Union,
)
from spark_kafka_sink.schemas.conversions import LEVELS, conversion, remedy, struct_type


def mismatch(node: Node, arrow_type: pa.DataType, path: str, expression: str | None = None) -> str:
    """``expression``: what converts the field ``{0}``; None: what the table of conversions has."""
    has = _spark_name(arrow_type)
    if expression is None and isinstance(node, Union) and pa.types.is_struct(arrow_type):
        last = len(node.branches) - (1 if node.null is None else 2)
        advice = f"name its fields member0 to member{last}, one for each type, in the order of the "
        advice += "types, or change the schema"
    else:
        advice = remedy(path, expression or _conversion(node, has))
    return f"{path}: the schema wants {node}, the column has {has}; {advice}"


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


def _conversion(node: Node, has: str) -> str | None:
    if isinstance(node, Union):
        # A text loses nothing.
        branches = sorted(node.branches, key=lambda branch: _kind(branch) != "string")
        return next(filter(None, (_conversion(branch, has) for branch in branches)), None)
    if isinstance(node, Primitive | Fixed) and node.logical_type == "decimal":
        wanted = f"decimal({node.precision},{node.scale})"
        is_possible = node.precision <= _MAX_DIGITS and wanted != has
        return conversion(has, "decimal", wanted) if is_possible else None
    return conversion(has, _kind(node), _spark_type(node) or "")


def _kind(node: Node) -> str:
    """What the table of conversions calls the type."""
    if isinstance(node, Primitive):
        return node.logical_type or node.type
    if isinstance(node, Fixed):
        return node.logical_type or "fixed"
    return {Enum: "string", Array: "array", Map: "map", Record: "record"}.get(type(node), "")


_SPARK_TYPES = {
    **dict.fromkeys(("boolean", "int", "float", "double", "string", "date"), ""),
    "long": "bigint",
    "bytes": "binary",
    "fixed": "binary",
    **dict.fromkeys(("timestamp-millis", "timestamp-micros"), "timestamp"),
    **dict.fromkeys(("local-timestamp-millis", "local-timestamp-micros"), "timestamp_ntz"),
}


def _spark_type(node: Node, levels: int = LEVELS) -> str | None:
    """A Spark type that fits; None: not every schema has one, nor those with very many levels."""
    if levels == 0:
        return None
    if isinstance(node, Array):
        inner = _spark_type(node.items, levels - 1)
        return inner and f"array<{inner}>"
    if isinstance(node, Map):
        inner = _spark_type(node.values, levels - 1)
        return inner and f"map<string,{inner}>"
    if isinstance(node, Record):
        fields = {field.name: _spark_type(field.type, levels - 1) for field in node.fields}
        return struct_type(fields)
    if isinstance(node, Union):
        others = [branch for i, branch in enumerate(node.branches) if i != node.null]
        return _spark_type(others[0], levels) if len(others) == 1 else None
    kind = _kind(node)
    return _SPARK_TYPES[kind] or kind if kind in _SPARK_TYPES else None
