"""fastavro as the judge of bytes, with decimals and whole values of bytes as Java writes them."""

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


def _is_bytes(schema: Any) -> bool:
    """As a whole value; Confluent's clients write such a value without its length."""
    return schema == "bytes" or (isinstance(schema, dict) and schema["type"] == "bytes")


def avro_bytes(schema: Any, value: Any) -> bytes:
    """A whole value."""
    data = part_bytes(schema, value)
    if not _is_bytes(schema):
        return data
    stream = io.BytesIO(data)
    fastavro.schemaless_reader(stream, fastavro.parse_schema("long"), None)
    return stream.read()


def part_bytes(schema: Any, value: Any) -> bytes:
    """A field, an element, or a branch."""
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def avro_value(schema: Any, data: bytes) -> Any:
    """As of the type alone, without its logical type."""
    if _is_bytes(schema):
        return data
    if isinstance(schema, dict):
        schema = {name: value for name, value in schema.items() if name != "logicalType"}
    return fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(schema), None)
