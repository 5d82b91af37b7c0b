"""Does what the encoder writes of a column fit a JSON Schema that was given?"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_kafka_sink.errors import LibraryUnavailable, SchemaMismatch
from spark_kafka_sink.schemas.conversions import (
    LEVELS,
    Element,
    MapValue,
    conversion,
    remedy,
    struct_type,
)
from spark_kafka_sink.schemas.json_derived import json_type, type_name

if TYPE_CHECKING:
    from referencing import Specification

_NAMES = "propertyNames"
#: that rows may choose among, and that are tried: several anyOf in one allOf multiply
_MOST_ALTERNATIVES, _MOST_COMBINATIONS = 64, 4096
#: of a map, whose keys rules of the schema are for
_CACHED_KEYS = 4096
_TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_SPARK_TYPES = {
    "boolean": "boolean",
    "integer": "bigint",
    "number": "double",
    "string": "string",
}
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
#: the drafts in which a reference stands alone, and nothing is unevaluated
_OLD = re.compile(r"https?://json-schema\.org/draft-0[3-7]/")
#: keyword -> what its value must be
_SHAPES: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "type": ((str, list), "a type or a list of types"),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), (dict, "an object")),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "enum", "required"), (list, "a list")),
    **dict.fromkeys(_REFERENCES, (str, "a text")),
    "pattern": (str, "a text"),
    **dict.fromkeys(("minLength", "maxLength"), ((int, float), "a number")),
}


class Fit(NamedTuple):
    """What the rows of a type may have.

    ``nulls``: the types inside whose nulls are written; ``no_nulls``: of which a null is no valid
    one. ``inner``: of the types inside. ``keys``: what a map must have. ``of_key``: of a map, that
    of entries with a key, if the schema has rules for keys. ``others``: for the rows that this one
    does not allow.
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
        root = json.loads(schema)
        fit = _fit([(root, _root_scope(root, schema))], spark_type, f"column {column}")
    except RecursionError:
        fit = Fit(["it cannot be read: it is nested too deeply, or refers to itself"])
    except ValueError as error:
        fit = Fit([f"it cannot be read: {error}"])
    if fit.problems:
        text = f"column {column} does not fit its JSON Schema: {'; '.join(fit.problems)}"
        raise SchemaMismatch(text, problems=tuple(fit.problems))
    return fit


# References, as the draft of the document has them.


class _Scope(NamedTuple):
    """Where a schema is: ``resolver`` (of referencing) None: the document has no references."""

    is_old: bool
    specification: Specification[Any] | None = None
    resolver: Any = None

    def at(self, schema: Any) -> _Located:
        """A schema inside, which may have an id of its own."""
        if self.specification is None:
            return schema, self
        resource = self.specification.create_resource(schema)
        return schema, self._replace(resolver=self.resolver.in_subresource(resource))

    def targets(self, schema: Mapping[str, Any]) -> list[_Located]:
        """What its references refer to, but for other documents, which accept everything."""
        if self.resolver is None:
            return []
        from referencing.exceptions import Unresolvable
        from referencing.jsonschema import lookup_recursive_ref

        targets = []
        for keyword in _REFERENCES:
            if keyword not in schema:
                continue
            try:
                if keyword == "$recursiveRef":
                    target = lookup_recursive_ref(self.resolver)
                else:
                    target = self.resolver.lookup(schema[keyword])
            except Unresolvable:
                continue
            except (AttributeError, TypeError) as error:  # somewhere in the document
                raise ValueError(f"{keyword} {schema[keyword]}: {error}") from None
            targets.append((target.contents, self._replace(resolver=target.resolver)))
        return targets


#: a schema and where it is
_Located = tuple[Any, _Scope]


def _root_scope(root: Any, text: str) -> _Scope:
    dialect = str(root.get("$schema")) if isinstance(root, dict) else ""
    scope = _Scope(is_old=_OLD.match(dialect) is not None)
    if not any(f'"{keyword}"' in text for keyword in _REFERENCES):
        return scope
    try:
        from referencing import Registry
        from referencing.jsonschema import DRAFT202012, specification_with
    except ImportError as error:
        raise LibraryUnavailable(
            f"the library for references in JSON Schemas is not installed ({error}): run "
            "pip install 'spark-kafka-sink[registry]' on the driver and on all executors"
        ) from None
    specification = specification_with(dialect, default=DRAFT202012)
    registry: Registry[Any] = Registry()
    resolver = registry.resolver_with_root(specification.create_resource(root))
    return scope._replace(specification=specification, resolver=resolver)


def _checked(schema: Any) -> Mapping[str, Any]:
    """The keywords of a schema; raises ValueError if it is none."""
    if isinstance(schema, bool):
        return {} if schema else {"type": []}
    keywords: Mapping[str, Any] = schema if isinstance(schema, dict) else {}
    problem = None if schema is keywords else f"{_shown(schema)} is not a schema"
    for keyword in keywords.keys() & _SHAPES.keys():
        shape, words = _SHAPES[keyword]
        if not isinstance(keywords[keyword], shape):
            problem = f"{keyword} is {_shown(keywords[keyword])}, but must be {words}"
    if problem:
        raise ValueError(problem)
    return keywords


def _shown(schema: Any) -> str:
    return json.dumps(schema)[:100]


# A schema as alternatives, of which each is a tree.


class _Part(NamedTuple):
    """A schema with one branch of its alternatives; what is ``inside`` applies too."""

    keywords: Mapping[str, Any]
    scope: _Scope
    inside: Sequence[_Part] = ()

    def all(self) -> Iterator[_Part]:
        yield self
        for part in self.inside:
            yield from part.all()

    def properties(self, name: str | None) -> list[_Located]:
        """The schemas of a property; None: of one that is named nowhere. [] if nothing is said."""
        keywords, scope = self.keywords, self.scope
        properties, patterns = (
            keywords.get(keyword, {}) for keyword in ("properties", "patternProperties")
        )
        schemas = [properties[name]] if name in properties else []
        if name is not None:
            schemas += [patterns[pattern] for pattern in patterns if _matches(pattern, name)]
        if not schemas and "additionalProperties" in keywords:
            schemas = [keywords["additionalProperties"]]
        located = [*map(scope.at, schemas)]
        located += [schema for part in self.inside for schema in part.properties(name)]
        closes = "unevaluatedProperties" in keywords and not scope.is_old
        if closes and not located and not self._may_evaluate(name):
            return [scope.at(keywords["unevaluatedProperties"])]
        return located

    def _may_evaluate(self, name: str | None) -> bool:
        """Whether a schema that applies to some rows only names the property."""
        schemas = [self.keywords[word] for word in ("if", "then", "else") if word in self.keywords]
        schemas += self.keywords.get("dependentSchemas", {}).values()
        parts = chain.from_iterable(map(_parts, map(self.scope.at, schemas)))
        return any(part.properties(name) for part in parts)


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:  # it is one of ECMA-262 only
        return True


def _parts(located: _Located) -> Iterator[_Part]:
    """A schema once for each choice of branches; references and allOf always apply."""
    schema, scope = located
    keywords = _checked(schema)
    targets = scope.targets(keywords)
    if scope.is_old and "$ref" in keywords:
        keywords = {}
    groups = [[target] for target in targets]
    groups += [[scope.at(other)] for other in keywords.get("allOf", ())]
    for keyword in ("anyOf", "oneOf"):
        if (branches := keywords.get(keyword)) is None:
            continue
        not_null = [branch for branch in branches if branch != {"type": "null"}] or branches
        if keyword == "anyOf" and len(not_null) > 1:
            # Several may apply, which matters to what is unevaluated.
            not_null = [*not_null, {"allOf": not_null}]
        groups.append([*map(scope.at, not_null)])
    for inside in _combinations(groups):
        yield _Part(keywords, scope, inside)


def _combinations(groups: Sequence[Sequence[_Located]]) -> Iterator[tuple[_Part, ...]]:
    """Each choice of one schema of every group, and of its own branches, as they are needed."""
    if not groups:
        yield ()
        return
    for part in chain.from_iterable(map(_parts, groups[0])):
        for others in _combinations(groups[1:]):
            yield part, *others


def _accepts(located: _Located, value: str | None) -> bool:
    """Whether a schema accepts null, or a name."""
    schema, scope = located
    if isinstance(schema, bool):
        return schema
    keywords = _checked(schema)
    targets = scope.targets(keywords)
    if scope.is_old and "$ref" in keywords:
        return all(_accepts(target, value) for target in targets)

    def accepts(other: Any) -> bool:
        return _accepts(scope.at(other), value)

    types, kind = keywords.get("type", _TYPES), "null" if value is None else "string"
    return (
        (kind == types if isinstance(types, str) else kind in types)
        and value in keywords.get("enum", [value])
        and value == keywords.get("const", value)
        and (value is None or _fits_text(keywords, value))
        and all(_accepts(target, value) for target in targets)
        and all(map(accepts, keywords.get("allOf", ())))
        and any(map(accepts, keywords.get("anyOf", [True])))
        and sum(map(accepts, keywords.get("oneOf", [True]))) == 1
        and not accepts(keywords.get("not", False))
        and ("if" not in keywords or accepts(_consequence(keywords, accepts)))
    )


def _consequence(keywords: Mapping[str, Any], accepts: Callable[[Any], bool]) -> Any:
    return keywords.get("then" if accepts(keywords["if"]) else "else", True)


def _fits_text(keywords: Mapping[str, Any], text: str) -> bool:
    shortest, longest = keywords.get("minLength", 0), keywords.get("maxLength", len(text))
    return shortest <= len(text) <= longest and _matches(keywords.get("pattern", ""), text)


# A column's type and a schema.


def _fit(schemas: Sequence[_Located], kind: Any, path: str) -> Fit:
    """The result of all schemas together, for values that are not null."""
    fits: list[Fit] = []
    problems: dict[str, None] = {}
    for parts in islice(_combinations([[schema] for schema in schemas]), _MOST_COMBINATIONS):
        fit = _fit_one(parts, kind, path)
        if fit.allows_all:
            return fit
        problems.update(dict.fromkeys(fit.problems))
        if not fit.problems and fit not in fits:
            fits.append(fit)
        if len(fits) == _MOST_ALTERNATIVES:
            break
    if not fits:
        return Fit(tuple(problems) or (f"{path}: the schema has no alternatives",))
    return fits[0]._replace(others=fits[1:])


def _fit_one(trees: Sequence[_Part], kind: Any, path: str) -> Fit:
    parts = [part for tree in trees for part in tree.all()]
    kind_name, written = type_name(kind), json_type(kind)
    for part in parts:
        types = part.keywords.get("type", _TYPES)
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


def _mismatch(types: Sequence[Any], kind: Any, path: str, part: _Part) -> str:
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


def _spark_type(part: _Part, wanted: Any, levels: int = LEVELS) -> str | None:
    """A Spark type that fits a type of JSON; None: there is none, or it has very many levels."""
    if levels == 0 or wanted not in ("array", "object"):
        return _SPARK_TYPES.get(wanted)

    def inner(schema: Any) -> str | None:
        tree = next(_parts(part.scope.at(schema)), None)
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


def _fit_map(trees: Sequence[_Part], parts: Sequence[_Part], kind: Any, path: str) -> Fit:
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


def _fit_struct(trees: Sequence[_Part], parts: Sequence[_Part], kind: Any, path: str) -> Fit:
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
        problems += _name_problems(parts, name, f"{path}.{name}")
    missing = sorted(required - fields.keys())
    problems += [f"{path}: the schema requires {name}, the column lacks it" for name in missing]
    return fit._replace(problems=problems)


def _required(parts: Sequence[_Part]) -> set[str]:
    return {str(name) for part in parts for name in part.keywords.get("required", ())}


def _inside(
    types: Mapping[str, tuple[Any, bool, Sequence[_Located]]],
    path: str,
    place: type[str] = str,
) -> Fit:
    """The result for types inside: for each its type, whether nulls count, and the schemas."""
    problems, inner = list[str](), dict[str, Fit]()
    nulls, no_nulls = set[str](), set[str]()
    for name, (kind, has_nulls, schemas) in types.items():
        inner[name] = _fit(schemas, kind, place(f"{path}.{name}"))
        problems += inner[name].problems
        if has_nulls:
            accepts = all(_accepts(schema, None) for schema in schemas)
            (nulls if accepts else no_nulls).add(name)
    return Fit(problems, frozenset(nulls), frozenset(no_nulls), inner)


def _name_problems(parts: Sequence[_Part], name: str, path: str) -> list[str]:
    rules = [part.scope.at(part.keywords[_NAMES]) for part in parts if _NAMES in part.keywords]
    if all(_accepts(rule, name) for rule in rules):
        return []
    return [f"{path}: the schema's {_NAMES} does not allow the name {name[:100]!r}; change it"]
