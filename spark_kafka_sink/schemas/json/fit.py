"""[both] Does what the encoder writes of a column fit a JSON Schema that was given?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

from spark_kafka_sink.errors import SchemaMismatch
from spark_kafka_sink.schemas.conversions import (
    LEVELS,
    Element,
    MapValue,
    conversion,
    inner_path,
    remedy,
    struct_type,
)
from spark_kafka_sink.schemas.json.derived import json_type, type_name
from spark_kafka_sink.schemas.json.tree import (
    TYPES,
    Located,
    Part,
    accepts,
    combinations,
    document,
    parts_of,
)

_NAMES = "propertyNames"
#: how many rows may choose among, and how many are tried: several anyOf in one allOf multiply
_MAX_ALTERNATIVES, _MAX_COMBINATIONS = 64, 4096
#: how many keys of a map are remembered, if the schema has rules for keys
_CACHED_KEYS = 4096
_SPARK_TYPES = {
    "boolean": "boolean",
    "integer": "bigint",
    "number": "double",
    "string": "string",
}


class Fit(NamedTuple):
    """What the rows of a type may have.

    ``nulls``: the types inside whose nulls are written; ``no_nulls``: those of which a null is not
    valid. ``inner``: the fits of the types inside. ``keys``: what a map must have. ``of_key`` gives
    the fit of a map's entries with a key, if the schema has rules for keys. ``others``: the fits
    for rows that this one does not allow.
    """

    problems: Sequence[str] = ()
    nulls: frozenset[str] = frozenset()
    no_nulls: frozenset[str] = frozenset()
    inner: Mapping[str, Fit] = {}
    keys: frozenset[str] = frozenset()
    of_key: Callable[[str], Fit] | None = None
    others: Sequence[Fit] = ()

    @property
    def allows_all(self) -> bool:
        """Whether no row can break the rules that are compared."""
        rejects = self.problems or self.no_nulls or self.keys or self.of_key
        return not rejects and all(fit.allows_all for fit in self.inner.values())


def check_fit(schema: str, spark_type: Any, column: str) -> Fit:
    """Raise SchemaMismatch, with every problem, if the type (``DataType.jsonValue()``) cannot fit.

    Compared are types, required and closed properties, and nulls, through references inside the
    schema, allOf, anyOf and oneOf (as anyOf); no rules for values, such as enum, format or tuples.
    """
    try:
        fit = _fit([document(schema)], spark_type, f"column {column}")
    except RecursionError:
        fit = Fit(["it cannot be read: it is nested too deeply, or refers to itself"])
    except ValueError as error:
        fit = Fit([f"it cannot be read: {error}"])
    if fit.problems:
        text = f"column {column} does not fit its JSON Schema: {'; '.join(fit.problems)}"
        raise SchemaMismatch(text, problems=tuple(fit.problems))
    return fit


def _fit(schemas: Sequence[Located], kind: Any, path: str) -> Fit:
    """The result of all schemas together, for values that are not null."""
    fits: list[Fit] = []
    problems: dict[str, None] = {}
    for parts in islice(combinations([[schema] for schema in schemas]), _MAX_COMBINATIONS):
        fit = _fit_one(parts, kind, path)
        if fit.allows_all:
            return fit
        problems.update(dict.fromkeys(fit.problems))
        if not fit.problems and fit not in fits:
            fits.append(fit)
        if len(fits) == _MAX_ALTERNATIVES:
            break
    if not fits:
        return Fit(tuple(problems) or (f"{path}: the schema has no alternatives",))
    return fits[0]._replace(others=fits[1:])


def _fit_one(trees: Sequence[Part], kind: Any, path: str) -> Fit:
    parts = [part for tree in trees for part in tree.all()]
    kind_name, written = type_name(kind), json_type(kind)
    for part in parts:
        types = part.keywords.get("type", TYPES)
        types = [types] if isinstance(types, str) else types
        if written not in types and not (written == "integer" and "number" in types):
            return Fit([_mismatch(types, kind, path, part)])
    if kind_name == "array":
        items = [
            part.scope.at(part.keywords["items"])
            for part in parts
            if "items" in part.keywords
            and "prefixItems" not in part.keywords
            and not isinstance(part.keywords["items"], list)
        ]
        types = {"element": (kind["elementType"], kind["containsNull"], items)}
        return _inside(types, path, Element)
    if kind_name == "map":
        return _fit_map(trees, parts, kind, path)
    return _fit_struct(trees, parts, kind, path) if kind_name == "struct" else Fit()


def _mismatch(types: Sequence[Any], kind: Any, path: str, part: Part) -> str:
    kind_name, written = type_name(kind), json_type(kind)
    has = kind_name if kind_name == written else f"{kind_name} ({written})"
    allows = " or ".join(map(str, types)) or "nothing"
    if types:
        words = map(str, types)
        possible = (conversion(kind_name, word, _spark_type(part, word) or "") for word in words)
        advice = remedy(path, next(filter(None, possible), None))
    else:
        advice = "drop it from the column, or add it to the schema"
    return f"{path}: the schema allows {allows}, the column has {has}; {advice}"


def _spark_type(part: Part, wanted: Any, levels: int = LEVELS) -> str | None:
    """A Spark type that fits a type of JSON; None: there is none, or it has very many levels."""
    if levels == 0 or wanted not in ("array", "object"):
        return _SPARK_TYPES.get(wanted)

    def inner(schema: Any) -> str | None:
        with suppress(RecursionError, ValueError):  # a tuple, or what cannot be read
            tree = next(parts_of(part.scope.at(schema)), None)
            for inside in tree.all() if tree else ():
                types = inside.keywords.get("type", ())
                for word in (types,) if isinstance(types, str) else types:
                    if word != "null":
                        return _spark_type(inside, word, levels - 1)
        return None

    if wanted == "array":
        items = inner(part.keywords.get("items", True))
        return items and f"array<{items}>"
    properties = part.keywords.get("properties", {})
    if not properties:
        values = inner(part.keywords.get("additionalProperties", True))
        return values and f"map<string,{values}>"
    return struct_type({name: inner(schema) for name, schema in properties.items()})


def _fit_map(trees: Sequence[Part], parts: Sequence[Part], kind: Any, path: str) -> Fit:
    def of_key(key: str | None) -> Fit:
        if key is not None and (problems := _name_problems(parts, key, f"{path}.value")):
            return Fit(problems)
        schemas = [schema for tree in trees for schema in tree.properties(key)]
        types = {"value": (kind["valueType"], kind["valueContainsNull"], schemas)}
        return _inside(types, path, MapValue)

    has_patterns = any(
        keyword in part.keywords for part in parts for keyword in ("patternProperties", _NAMES)
    )
    names = {name for part in parts for name in part.keywords.get("properties", ())}
    others, required = of_key(None), frozenset(_required(parts))
    is_of_names = has_patterns or any(not of_key(name).problems for name in names)
    if not is_of_names and (others.problems or not names):
        return others._replace(keys=required)
    of_any = lru_cache(_CACHED_KEYS)(of_key)
    return Fit(
        keys=required,
        of_key=lambda key: of_any(key) if has_patterns or key in names else others,
    )


def _fit_struct(trees: Sequence[Part], parts: Sequence[Part], kind: Any, path: str) -> Fit:
    required = _required(parts)
    fields = {
        field["name"]: (
            field["type"],
            field["nullable"] and field["name"] in required,
            [schema for tree in trees for schema in tree.properties(field["name"])],
        )
        for field in kind["fields"]
    }
    fit = _inside(fields, path)
    problems = [*fit.problems]
    for name in fields:
        problems += _name_problems(parts, name, inner_path(path, name))
    missing = sorted(required - fields.keys())
    problems += [f"{path}: the schema requires {name}, the column lacks it" for name in missing]
    return fit._replace(problems=problems)


def _required(parts: Sequence[Part]) -> set[str]:
    return {str(name) for part in parts for name in part.keywords.get("required", ())}


def _inside(
    types: Mapping[str, tuple[Any, bool, Sequence[Located]]],
    path: str,
    place: type[str] = str,
) -> Fit:
    """The result for types inside: for each its type, whether nulls count, and the schemas."""
    problems, inner = list[str](), dict[str, Fit]()
    nulls, no_nulls = set[str](), set[str]()
    for name, (kind, has_nulls, schemas) in types.items():
        inner[name] = _fit(schemas, kind, place(inner_path(path, name)))
        problems += inner[name].problems
        if has_nulls:
            has_null = all(accepts(schema, None) for schema in schemas)
            (nulls if has_null else no_nulls).add(name)
    return Fit(problems, frozenset(nulls), frozenset(no_nulls), inner)


def _name_problems(parts: Sequence[Part], name: str, path: str) -> list[str]:
    rules = [part.scope.at(part.keywords[_NAMES]) for part in parts if _NAMES in part.keywords]
    if all(accepts(rule, name) for rule in rules):
        return []
    return [f"{path}: the schema's {_NAMES} does not allow the name {name[:100]!r}; change it"]
