"""[both] A JSON Schema as alternatives, of which each is a tree, with its references followed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from spark_kafka_sink.libraries import importing

if TYPE_CHECKING:
    from referencing import Specification

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
#: the drafts in which a reference stands alone, and nothing is unevaluated
_OLD = re.compile(r"https?://json-schema\.org/draft-0[3-7]/")
#: keyword -> what its value must be
_SHAPES: Mapping[str, tuple[type | tuple[type, ...], str]] = {
    "type": ((str, list), "a type or a list of types"),
    **dict.fromkeys(("properties", "patternProperties", "dependentSchemas"), (dict, "an object")),
    **dict.fromkeys(("allOf", "anyOf", "oneOf", "enum", "required"), (list, "a list")),
    **dict.fromkeys((*_REFERENCES, "$id", "pattern"), (str, "a text")),
    **dict.fromkeys(("minLength", "maxLength"), ((int, float), "a number")),
}


# References, as the draft of the document has them.


class _Scope(NamedTuple):
    """Where a schema is: ``resolver`` (of referencing) None: the document has no references."""

    is_old: bool
    specification: Specification[Any] | None = None
    resolver: Any = None

    def at(self, schema: Any) -> Located:
        """A schema inside, which may have an id of its own."""
        if self.specification is None or not isinstance(schema, dict):
            return schema, self
        _checked(schema)
        resource = self.specification.create_resource(schema)
        return schema, self._replace(resolver=self.resolver.in_subresource(resource))

    def targets(self, schema: Mapping[str, Any]) -> list[Located]:
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
Located = tuple[Any, _Scope]


def document(text: str) -> Located:
    """The schema in a text; raises ValueError, here or while it is read, if there is none."""
    root = json.loads(text)
    dialect = str(root.get("$schema")) if isinstance(root, dict) else ""
    scope = _Scope(is_old=_OLD.match(dialect) is not None)
    if not any(f'"{keyword}"' in text for keyword in _REFERENCES):
        return root, scope
    _checked(root)
    with importing("referencing", extra="registry"):
        from referencing import Registry
        from referencing.jsonschema import DRAFT202012, specification_with
    specification = specification_with(dialect, default=DRAFT202012)
    registry: Registry[Any] = Registry()
    resolver = registry.resolver_with_root(specification.create_resource(root))
    return root, scope._replace(specification=specification, resolver=resolver)


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


class Part(NamedTuple):
    """A schema with one branch of its alternatives; what is ``inside`` applies too."""

    keywords: Mapping[str, Any]
    scope: _Scope
    inside: Sequence[Part] = ()

    def all(self) -> Iterator[Part]:
        yield self
        for part in self.inside:
            yield from part.all()

    def properties(self, name: str | None) -> list[Located]:
        """The schemas of a property, [] if it may be anything; None: one that is named nowhere."""
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
        parts = chain.from_iterable(map(parts_of, map(self.scope.at, schemas)))
        return any(part.properties(name) for part in parts)


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:  # it is one of ECMA-262 only
        return True


def parts_of(located: Located) -> Iterator[Part]:
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
    for inside in combinations(groups):
        yield Part(keywords, scope, inside)


def combinations(groups: Sequence[Sequence[Located]]) -> Iterator[tuple[Part, ...]]:
    """Each choice of one schema of every group, and of its own branches, as they are needed."""
    if not groups:
        yield ()
        return
    for part in chain.from_iterable(map(parts_of, groups[0])):
        for others in combinations(groups[1:]):
            yield part, *others


def accepts(located: Located, value: str | None) -> bool:
    """Whether a schema accepts null, or a name."""
    schema, scope = located
    if isinstance(schema, bool):
        return schema
    keywords = _checked(schema)
    targets = scope.targets(keywords)
    if scope.is_old and "$ref" in keywords:
        return all(accepts(target, value) for target in targets)

    def accepts_other(other: Any) -> bool:
        return accepts(scope.at(other), value)

    types, kind = keywords.get("type", TYPES), "null" if value is None else "string"
    return (
        (kind == types if isinstance(types, str) else kind in types)
        and value in keywords.get("enum", [value])
        and value == keywords.get("const", value)
        and (value is None or _fits_text(keywords, value))
        and all(accepts(target, value) for target in targets)
        and all(map(accepts_other, keywords.get("allOf", ())))
        and any(map(accepts_other, keywords.get("anyOf", [True])))
        and sum(map(accepts_other, keywords.get("oneOf", [True]))) == 1
        and not accepts_other(keywords.get("not", False))
        and ("if" not in keywords or accepts_other(_consequence(keywords, accepts_other)))
    )


def _consequence(keywords: Mapping[str, Any], holds: Callable[[Any], bool]) -> Any:
    return keywords.get("then" if holds(keywords["if"]) else "else", True)


def _fits_text(keywords: Mapping[str, Any], text: str) -> bool:
    shortest, longest = keywords.get("minLength", 0), keywords.get("maxLength", len(text))
    return shortest <= len(text) <= longest and _matches(keywords.get("pattern", ""), text)
