"""Words for messages: Arrow types as Spark calls them, and what makes a column fit a schema."""

from __future__ import annotations

import pyarrow as pa

from spark_kafka_sink.avro.parsed import Enum, Fixed, Node, Primitive
from spark_kafka_sink.encoding.arrow_memory import plain_type

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
}


def spark_name(arrow_type: pa.DataType) -> str:
    """What Spark calls the type; Arrow's name if Spark does not have it."""
    arrow_type = plain_type(arrow_type)
    if pa.types.is_timestamp(arrow_type):
        return "timestamp_ntz" if arrow_type.tz is None else "timestamp"
    if pa.types.is_decimal128(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if pa.types.is_map(arrow_type):
        return f"map with keys of type {spark_name(arrow_type.key_type)}"
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return "array"
    return "struct" if pa.types.is_struct(arrow_type) else _NAMES.get(arrow_type, str(arrow_type))


def advice(node: Node, arrow_type: pa.DataType) -> str:
    """What to do if a column does not fit."""
    wanted = _spark_type(node)
    if wanted is None or pa.types.is_nested(arrow_type) or wanted == spark_name(arrow_type):
        return "change the column or the schema"
    return f"cast it to {wanted}, or change the schema"


def _spark_type(node: Node) -> str | None:
    """The Spark type to which a column may be cast; None: there is none."""
    if isinstance(node, Primitive | Fixed):
        if node.logical_type == "decimal":
            return f"decimal({node.precision},{node.scale})" if node.precision <= 38 else None
        base = node.type if isinstance(node, Primitive) else "fixed"
        return _SPARK_TYPES.get(node.logical_type or base)
    return "string" if isinstance(node, Enum) else None


_SPARK_TYPES = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "binary",
    "fixed": "binary",
    "string": "string",
    "date": "date",
    "time-millis": "int",
    "time-micros": "long",
    "timestamp-millis": "timestamp",
    "timestamp-micros": "timestamp",
    "local-timestamp-millis": "timestamp_ntz",
    "local-timestamp-micros": "timestamp_ntz",
}
