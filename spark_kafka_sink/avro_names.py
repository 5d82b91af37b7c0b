"""Which names Avro allows."""

from __future__ import annotations

import re
from typing import Any

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def is_name(name: Any) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def is_full_name(name: str) -> bool:
    """Whether it is a name, with or without a namespace in front."""
    return all(map(is_name, name.split(".")))


def allowed_name(name: str) -> str:
    """A similar name that Avro allows."""
    replaced = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return replaced if is_name(replaced) else f"_{replaced}"
