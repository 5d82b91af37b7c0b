"""[both] Which names Kafka allows for topics, and Avro has or allows for its types and fields."""

from __future__ import annotations

import re
from typing import Any

#: the names of Avro's types that are not defined in a schema
AVRO_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_AVRO_NAME = re.compile(r"[^\W\d]\w*")


def is_topic_name(name: str) -> bool:
    return bool(_TOPIC_NAME.fullmatch(name)) and name not in (".", "..")


def topic_name_rule(name: str) -> str:
    """A sentence that says why ``name`` is invalid."""
    return (
        f"{name[:300]!r} is not a valid topic name: allowed are 1 to 249 letters, digits, `.`, `_` "
        "and `-`, but not `.` or `..` alone"
    )


def is_avro_name(name: Any) -> bool:
    """Whether Java's Avro accepts the name, with letters of any alphabet."""
    return isinstance(name, str) and _AVRO_NAME.fullmatch(name) is not None


def is_portable_avro_name(name: str) -> bool:
    """Whether Avro's specification allows the name, and so all its libraries accept it."""
    return is_avro_name(name) and name.isascii()


def is_full_avro_name(name: str) -> bool:
    """Whether it is a name, with or without a namespace in front."""
    return all(map(is_avro_name, name.split(".")))


def portable_avro_name(name: str) -> str:
    """A similar name that is portable."""
    replaced = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return replaced if is_portable_avro_name(replaced) else f"_{replaced}"
