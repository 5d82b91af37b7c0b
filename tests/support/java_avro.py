"""fastavro as the judge of bytes, with decimals as Java writes them."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import fastavro
import fastavro.write


def _decimal_bytes(value: Decimal | bytes, schema: Any) -> bytes:
    """In as few bytes as possible; fastavro takes two for -128."""
    if isinstance(value, bytes):
        return value
    sign, digits, exponent = value.as_tuple()
    number = int("".join(map(str, digits))) * 10 ** (schema.get("scale", 0) + int(exponent))
    number = -number if sign else number
    size = (~number if sign else number).bit_length() // 8 + 1
    return number.to_bytes(size, "big", signed=True)


fastavro.write.LOGICAL_WRITERS["bytes-decimal"] = _decimal_bytes


def avro_bytes(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def avro_value(schema: Any, data: bytes) -> Any:
    """As of the type alone, without its logical type."""
    if isinstance(schema, dict):
        schema = {name: value for name, value in schema.items() if name != "logicalType"}
    return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(schema), None)
