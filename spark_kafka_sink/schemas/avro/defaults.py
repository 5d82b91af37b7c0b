"""[both] The default of a schema's field, as Avro encodes it in every row."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from spark_kafka_sink.schemas.avro.schema import Array, Enum, Fixed, Node, Primitive, Record, Union


def encoded_default(node: Node, value: Any) -> bytes:
    """The bytes of a default, given as the value of its JSON. Raises ValueError if it is none."""
    if isinstance(node, Primitive):
        return _primitive(node, value)
    if isinstance(node, Union):
        return _union(node, value)
    if isinstance(node, Record):
        return _record(node, value)
    if isinstance(node, Enum | Fixed):
        return _named(node, value)
    if not isinstance(value, list if isinstance(node, Array) else dict):
        raise _no_default(node, value)
    if isinstance(node, Array):
        return _block([encoded_default(node.items, item) for item in value])
    return _block([_text(key) + encoded_default(node.values, value[key]) for key in value])


def long_bytes(number: int) -> bytes:
    """A number as Avro's int or long."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    digits = bytearray()
    while rest > 0x7F:
        digits.append(rest & 0x7F | 0x80)
        rest >>= 7
    digits.append(rest)
    return bytes(digits)


def _text(text: str) -> bytes:
    data = text.encode()
    return long_bytes(len(data)) + data


def _block(items: list[bytes]) -> bytes:
    return b"".join([long_bytes(len(items)), *items, b"\0"]) if items else b"\0"


def _is_bytes(value: Any) -> bool:
    """Whether a default is text whose characters stand for bytes."""
    return isinstance(value, str) and max(value, default="") <= "\xff"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_integer(value: Any, bits: int) -> bool:
    limit = 1 << bits - 1
    return isinstance(value, int) and not isinstance(value, bool) and -limit <= value < limit


_Encoding = tuple[Callable[[Any], bool], Callable[[Any], bytes]]

_PRIMITIVES: dict[str, _Encoding] = {
    "null": (lambda value: value is None, lambda _: b""),
    "boolean": (lambda value: isinstance(value, bool), lambda value: b"\1" if value else b"\0"),
    "int": (lambda value: _is_integer(value, 32), long_bytes),
    "long": (lambda value: _is_integer(value, 64), long_bytes),
    "float": (_is_number, lambda value: struct.pack("<f", value)),
    "double": (_is_number, lambda value: struct.pack("<d", value)),
    "string": (lambda value: isinstance(value, str), _text),
    "bytes": (
        _is_bytes,
        lambda value: long_bytes(len(value)) + value.encode("latin-1"),
    ),
}


def _primitive(node: Primitive, value: Any) -> bytes:
    is_allowed, encode = _PRIMITIVES[node.type]
    if not is_allowed(value):
        raise _no_default(node, value)
    try:
        return encode(value)
    except (OverflowError, struct.error):  # a number too large for float or double
        raise _no_default(node, value) from None


def _named(node: Enum | Fixed, value: Any) -> bytes:
    if isinstance(node, Enum) and value in node.symbols:
        return long_bytes(node.symbols.index(value))
    if isinstance(node, Fixed) and _is_bytes(value) and len(value) == node.size:
        return bytes(value, "latin-1")
    raise _no_default(node, value)


def _union(node: Union, value: Any) -> bytes:
    for i, branch in enumerate(node.branches):
        try:
            return long_bytes(i) + encoded_default(branch, value)
        except ValueError:
            continue
    raise _no_default(node, value)


def _record(node: Record, value: Any) -> bytes:
    if not isinstance(value, dict):
        raise _no_default(node, value)
    parts = []
    for field in node.fields:
        if field.name not in value and not field.has_default:
            raise _no_default(node, value)
        parts.append(encoded_default(field.type, value.get(field.name, field.default)))
    return b"".join(parts)


def _no_default(node: Node, value: Any) -> ValueError:
    return ValueError(f"{repr(value)[:300]} is no default of {node}")
