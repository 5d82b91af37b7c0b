"""Does what the encoder writes of a column fit a JSON Schema that was given?"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

from spark_kafka_sink.errors import SchemaMismatch
from spark_kafka_sink.schemas.json_derived import json_type, type_name

_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_NO_NULL = (
    "the schema requires a value, the column has it nullable; replace nulls, for instance with "
    "coalesce, or allow null in the schema"
)


class Fit(NamedTuple):
    """``nulls``: the fields of a struct whose nulls are written. ``inner``: of the types inside."""

    problems: Sequence[str] = ()
    nulls: frozenset[str] = frozenset()
    inner: Mapping[str, Fit] = {}


def check_fit(schema: str, spark_type: Any, column: str) -> Fit:
    """Raise SchemaMismatch, with every problem, if the type (``DataType.jsonValue()``) cannot fit.

    Compared are types, required and closed properties, and nulls, through references inside the
    schema, allOf, anyOf and oneOf (as anyOf); no rules for values, such as enum, format or tuples.
    """
    try:
        root = json.loads(schema)
        fit = _fit(root, [root], spark_type, f"column {column}")
    except (AttributeError, RecursionError, TypeError, ValueError) as error:
        fit = Fit([f"it cannot be read: {error}"])
    if fit.problems:
        text = f"column {column} does not fit its JSON Schema: {'; '.join(fit.problems)}"
        raise SchemaMismatch(text, problems=tuple(fit.problems))
    return fit


def _fit(root: Any, schemas: Sequence[Any], kind: Any, path: str) -> Fit:
    """The result of all schemas together, for values that are not null."""
    parts = [part for schema in schemas for part in _parts(root, schema)]
    for i, part in enumerate(parts):
        for keyword in [name for name in ("anyOf", "oneOf") if name in part]:
            parts[i] = {name: value for name, value in part.items() if name != keyword}
            branches = part[keyword]
            not_null = [schema for schema in branches if schema != {"type": "null"}]
            fits = [_fit(root, [*parts, schema], kind, path) for schema in not_null or branches]
            all_problems = [problem for fit in fits for problem in fit.problems]
            return next((fit for fit in fits if not fit.problems), Fit(all_problems))
    kind_name, written = type_name(kind), json_type(kind)
    has = written if kind_name == written else f"{kind_name} ({written})"
    for part in parts:
        if written not in part["type"] and not (written == "integer" and "number" in part["type"]):
            allows = " or ".join(part["type"]) or "nothing"
            return Fit([f"{path}: the schema allows {allows}, the column has {has}"])
    required = {name for part in parts for name in part.get("required", ())}
    problems, nulls, inner = list[str](), set[str](), dict[str, Fit]()
    for name, inner_type, is_nullable, inner_schemas in _inner(kind, parts):
        inner[name] = _fit(root, inner_schemas, inner_type, f"{path}.{name}")
        problems += inner[name].problems
        if is_nullable and (name in required or kind_name != "struct"):
            nulls.add(name)
            if not all(map(partial(_accepts_null, root), inner_schemas)):
                problems.append(f"{path}.{name}: {_NO_NULL}")
    if kind_name == "struct":
        missing = sorted(required - inner.keys())
        problems += [f"{path}: the schema requires {name}, the column lacks it" for name in missing]
    return Fit(problems, frozenset(nulls), inner)


def _parts(root: Any, schema: Any) -> Iterator[dict[str, Any]]:
    """The schema, what it refers to and what it has in allOf: all of them apply."""
    part = ({} if schema else {"type": []}) if isinstance(schema, bool) else dict(schema)
    reference, others = part.pop("$ref", "another document"), part.pop("allOf", [])
    part = {"type": _TYPES, "properties": {}, "additionalProperties": True, **part}
    if isinstance(part["type"], str):
        part["type"] = [part["type"]]
    if "patternProperties" in part:
        part["additionalProperties"] = True
    yield part
    document, *names = unquote(reference).split("/")
    target = root if document == "#" else True  # another document accepts everything
    for name in (name.replace("~1", "/").replace("~0", "~") for name in names):
        target = target.get(name, True) if isinstance(target, dict) else True
    for other in [target, *others]:
        if other is not True:
            yield from _parts(root, other)


def _inner(kind: Any, parts: Sequence[Any]) -> Iterator[tuple[str, Any, bool, list[Any]]]:
    """The types inside: for each the name, the type, whether it is nullable, and the schemas."""
    if type_name(kind) == "array":
        items = [True if "prefixItems" in part else part.get("items", True) for part in parts]
        items = [isinstance(schema, list) or schema for schema in items]
        yield "element", kind["elementType"], kind["containsNull"], items
    elif type_name(kind) == "map":  # which of the properties it has depends on values
        values = [True if part["properties"] else part["additionalProperties"] for part in parts]
        yield "value", kind["valueType"], kind["valueContainsNull"], values
    elif type_name(kind) == "struct":
        for name, field in ((field["name"], field) for field in kind["fields"]):
            own = [part["properties"].get(name, part["additionalProperties"]) for part in parts]
            yield name, field["type"], field["nullable"], own


def _accepts_null(root: Any, schema: Any) -> bool:
    accepts = partial(_accepts_null, root)
    return schema is True or all(
        "null" in part["type"]
        and None in part.get("enum", [part.get("const")])
        and any(map(accepts, part.get("anyOf", [True])))
        and sum(map(accepts, part.get("oneOf", [True]))) == 1
        and not accepts(part.get("not", False))
        for part in _parts(root, schema)
    )
