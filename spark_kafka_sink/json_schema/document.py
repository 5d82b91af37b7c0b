"""A JSON Schema as it was given: its text, its shape, and its references."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import unquote

from spark_kafka_sink.errors import SchemaMismatch

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")

# From these drafts on, keywords beside $ref apply too.
_NEWER_DRAFT = re.compile(r"json-schema\.org/draft/20\d\d-\d\d/")


class Document:
    """A JSON Schema whose keywords have values of the right kind, as far as we read them.

    Raises SchemaMismatch if it is not one; ``column`` is the one that it is for.
    """

    def __init__(self, text: str, column: str) -> None:
        try:
            self.root: Any = json.loads(text)
            problems = list(_shape_problems(self.root, "#"))
        except (ValueError, RecursionError) as error:
            problem = f"it is not JSON: {error}"
            raise _not_a_schema(column, [problem]) from None
        if problems:
            raise _not_a_schema(column, problems)
        draft = self.root.get("$schema", "") if isinstance(self.root, dict) else ""
        self.siblings_apply = bool(_NEWER_DRAFT.search(draft))

    def resolve(self, reference: str) -> Any:
        """The schema to which a reference inside this document leads; None: there is none.

        References to other documents and to anchors accept everything: they are not followed.
        """
        if reference != "#" and not reference.startswith("#/"):
            return True
        found = self.root
        for part in reference.split("/")[1:]:
            name = unquote(part).replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and name.isdecimal() and int(name) < len(found):
                found = found[int(name)]
            elif isinstance(found, dict) and name in found:
                found = found[name]
            else:
                return None
        is_schema = isinstance(found, dict | bool) and not list(_shape_problems(found, "#"))
        return found if is_schema else None


def _not_a_schema(column: str, problems: list[str]) -> SchemaMismatch:
    return SchemaMismatch(
        f"the schema of column {column} is not a JSON Schema: " + "; ".join(problems),
        problems=tuple(problems),
    )


def _shape_problems(schema: Any, pointer: str) -> Iterator[str]:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        yield f"{pointer} is neither an object nor a boolean"
        return
    for keyword, value in schema.items():
        at = f"{pointer}/{keyword}"
        if keyword in _SHAPES:
            is_right, wanted = _SHAPES[keyword]
            if not is_right(value):
                yield f"{at} is not {wanted}"
                continue
        for name, inner in _subschemas(keyword, value):
            yield from _shape_problems(inner, f"{at}{name}")


def _subschemas(keyword: str, value: Any) -> Iterator[tuple[str, Any]]:
    """The schemas in a keyword's value, and where they are in it."""
    if keyword in _OF_NAMES:
        yield from ((f"/{name}", inner) for name, inner in value.items())
    elif keyword in _LISTS or (keyword == "items" and isinstance(value, list)):
        yield from ((f"/{i}", inner) for i, inner in enumerate(value))
    elif keyword in {"additionalProperties", "items"}:
        yield "", value


def _is_types(value: Any) -> bool:
    names = value if isinstance(value, list) else [value]
    return bool(names) and all(isinstance(name, str) and name in TYPES for name in names)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _kind(kind: type, wanted: str) -> tuple[Callable[[Any], bool], str]:
    return (lambda value: isinstance(value, kind)), wanted


_OF_NAMES = ("$defs", "definitions", "patternProperties", "properties")
_LISTS = ("allOf", "anyOf", "oneOf")

_SHAPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    **{keyword: _kind(dict, "an object of schemas") for keyword in _OF_NAMES},
    **{
        keyword: ((lambda value: isinstance(value, list) and len(value) > 0), "a list of schemas")
        for keyword in _LISTS
    },
    "$ref": _kind(str, "a string"),
    "$schema": _kind(str, "a string"),
    "format": _kind(str, "a string"),
    "required": (_is_names, "a list of names"),
    "type": (_is_types, "a type, or a list of types: " + ", ".join(TYPES)),
}
