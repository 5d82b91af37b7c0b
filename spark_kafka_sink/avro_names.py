"""Which names Avro allows."""

from __future__ import annotations

import re
from typing import Any

_NAME = re.compile(r"[^\W\d]\w*")


def is_name(name: Any) -> bool:
    """Whether Java's Avro accepts the name, with letters of any alphabet."""
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def is_portable_name(name: str) -> bool:
    """Whether Avro's specification allows the name, and so all its libraries accept it."""
    return is_name(name) and name.isascii()


def is_full_name(name: str) -> bool:
    """Whether it is a name, with or without a namespace in front."""
    return all(map(is_name, name.split(".")))


def allowed_name(name: str) -> str:
    """A similar name that is portable."""
    replaced = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return replaced if is_portable_name(replaced) else f"_{replaced}"
