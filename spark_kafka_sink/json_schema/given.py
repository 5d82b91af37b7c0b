"""Does what the encoder writes of a column fit a JSON Schema that was given?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from spark_kafka_sink.errors import SchemaMismatch
from spark_kafka_sink.json_schema.derived import derive_schema, scalar_schema, type_name
from spark_kafka_sink.json_schema.document import TYPES, Document

_DATE_FORMATS = ("date", "date-time", "time")


def check_fit(schema: str, spark_type: Any, column: str) -> None:
    """Raise SchemaMismatch, with every problem, unless each value of the column can fit the schema.

    ``spark_type`` is ``DataType.jsonValue()``. Compared are types, the formats of dates and times,
    required and closed properties, and nulls, through references inside the schema and through
    ``allOf``, ``anyOf`` and ``oneOf``. Not checked is what depends on values, such as ``enum``,
    ``pattern``, ranges, lengths, ``not`` and ``if``; nor are tuples, references to other documents
    and ``unevaluatedProperties``. The encoder leaves null fields out, so a nullable field fits if
    it is not required.
    """
    document = Document(schema, column)
    derive_schema(spark_type, title=column, column=column)  # types that JSON does not have
    problems = list(_Fit(document).problems(document.root, spark_type, column))
    if problems:
        raise SchemaMismatch(
            f"column {column} does not fit its JSON Schema: " + "; ".join(problems),
            problems=tuple(problems),
        )


class _Fit:
    def __init__(self, document: Document) -> None:
        self._document = document

    def problems(
        self, schema: Any, spark_type: Any, path: str, followed: frozenset[str] = frozenset()
    ) -> Iterator[str]:
        """What values of the type, null excepted, lack. ``followed``: references to this schema."""
        if isinstance(schema, bool):
            if not schema:
                has = _has(spark_type)
                yield f"column {path}: the schema allows no value, the column has {has}"
            return
        if "$ref" in schema:
            yield from self._referenced(schema["$ref"], spark_type, path, followed)
            if not self._document.siblings_apply:
                return
        yield from _type_problems(schema, spark_type, path)
        for each in schema.get("allOf", []):
            yield from self.problems(each, spark_type, path, followed)
        for keyword in ("anyOf", "oneOf"):
            if keyword in schema:
                yield from self._alternatives(schema[keyword], spark_type, path, followed)
        if _json_type(spark_type) == "object":
            yield from self._object_problems(schema, spark_type, path)
        elif _json_type(spark_type) == "array" and not _is_tuple(schema):
            yield from self._inner(
                schema.get("items", True),
                spark_type["elementType"],
                f"{path}.element",
                is_nullable=spark_type["containsNull"],
            )

    def _referenced(
        self, reference: str, spark_type: Any, path: str, followed: frozenset[str]
    ) -> Iterator[str]:
        target = self._document.resolve(reference)
        if target is None:
            yield f"column {path}: the schema refers to {reference}, which it does not have"
        elif reference in followed:
            yield f"column {path}: the schema's {reference} refers only to itself"
        else:
            yield from self.problems(target, spark_type, path, followed | {reference})

    def _alternatives(
        self, schemas: list[Any], spark_type: Any, path: str, followed: frozenset[str]
    ) -> Iterator[str]:
        """oneOf is read as anyOf: whether a value fits two of them depends on the value."""
        not_null = [each for each in schemas if each != {"type": "null"}] or schemas
        found = [list(self.problems(each, spark_type, path, followed)) for each in not_null]
        if len(found) == 1:
            yield from found[0]
        elif not any(len(problems) == 0 for problems in found):
            reasons = "; ".join(dict.fromkeys(problem for each in found for problem in each))
            yield (
                f"column {path}: the column has {_has(spark_type)}, which fits none of the "
                f"schema's {len(schemas)} alternatives ({reasons})"
            )

    def _object_problems(
        self, schema: Mapping[str, Any], spark_type: Mapping[str, Any], path: str
    ) -> Iterator[str]:
        if spark_type["type"] == "map":
            yield from self._map_problems(schema, spark_type, path)
            return
        fields = {field["name"]: field for field in spark_type["fields"]}
        for name in schema.get("required", []):
            if name not in fields:
                yield f"column {path}: the schema requires {name}, the column does not have it"
            elif fields[name]["nullable"]:
                yield f"column {path}.{name}: the schema requires it, the column has it nullable"
        for name, field in fields.items():
            inner_path = f"{path}.{name}"
            for inner in _property_schemas(schema, name):
                if inner is False:
                    yield f"column {inner_path}: the schema does not have it, and allows no others"
                else:
                    yield from self.problems(inner, field["type"], inner_path)

    def _map_problems(
        self, schema: Mapping[str, Any], spark_type: Mapping[str, Any], path: str
    ) -> Iterator[str]:
        """Which keys a map has depends on its values: only the schema of any key is compared."""
        inner = schema.get("additionalProperties", True)
        if inner is False and ("properties" in schema or "patternProperties" in schema):
            return
        yield from self._inner(
            inner,
            spark_type["valueType"],
            f"{path}.value",
            is_nullable=spark_type["valueContainsNull"],
        )

    def _inner(
        self, schema: Any, spark_type: Any, path: str, *, is_nullable: bool
    ) -> Iterator[str]:
        """Problems of elements of an array, or of values of a map."""
        yield from self.problems(schema, spark_type, path)
        if is_nullable and schema is not False and not self._allows_null(schema, frozenset()):
            yield f"column {path}: the schema does not allow null, the column has it nullable"

    def _allows_null(self, schema: Any, followed: frozenset[str]) -> bool:
        if isinstance(schema, bool):
            return schema
        if "$ref" in schema:
            reference = schema["$ref"]
            target = self._document.resolve(reference)
            if target is None or reference in followed:
                return True  # it is a problem already
            if not self._allows_null(target, followed | {reference}):
                return False
            if not self._document.siblings_apply:
                return True
        return (
            "null" in _types(schema)
            and all(self._allows_null(each, followed) for each in schema.get("allOf", []))
            and all(
                any(self._allows_null(each, followed) for each in schema[keyword])
                for keyword in ("anyOf", "oneOf")
                if keyword in schema
            )
        )


def _is_tuple(schema: Mapping[str, Any]) -> bool:
    return "prefixItems" in schema or isinstance(schema.get("items"), list)


def _property_schemas(schema: Mapping[str, Any], name: str) -> list[Any]:
    """The schemas that apply to a property of that name; not empty."""
    found = [schema["properties"][name]] if name in schema.get("properties", {}) else []
    for pattern, inner in schema.get("patternProperties", {}).items():
        try:
            is_match = re.search(pattern, name) is not None
        except re.error:  # JSON Schema's patterns are JavaScript's
            return [*found, True]
        if is_match:
            found.append(inner)
    return found or [schema.get("additionalProperties", True)]


def _type_problems(schema: Mapping[str, Any], spark_type: Any, path: str) -> Iterator[str]:
    wanted = _types(schema)
    written = _json_type(spark_type)
    fits = {written, "number"} if written == "integer" else {written}
    if not fits & set(wanted):
        wants = " or ".join(name for name in wanted if name != "null") or "only null"
        yield f"column {path}: the schema wants {wants}, the column has {_has(spark_type)}"
    elif written == "string" and schema.get("format") in _DATE_FORMATS:
        name = type_name(spark_type)
        own = "no offset" if name == "timestamp_ntz" else _scalar(spark_type).get("format")
        if own is not None and own != schema["format"]:
            wants = f"the format {schema['format']}"
            yield f"column {path}: the schema wants {wants}, the column has {_has(spark_type)}"


def _types(schema: Mapping[str, Any]) -> list[str]:
    types = schema.get("type", TYPES)
    return [types] if isinstance(types, str) else list(types)


def _json_type(spark_type: Any) -> str:
    if isinstance(spark_type, str):
        # Decimals without digits after the point are written as integers.
        is_whole = re.fullmatch(r"decimal\(\d+, *0\)", spark_type) is not None
        return "integer" if is_whole else _scalar(spark_type)["type"]
    return "array" if spark_type["type"] == "array" else "object"


def _scalar(spark_type: str) -> dict[str, str]:
    return scalar_schema(spark_type) or {"type": "string"}


def _has(spark_type: Any) -> str:
    """The column's type in Spark's words, and in JSON's if those differ."""
    name, written = type_name(spark_type), _json_type(spark_type)
    return name if name == written else f"{name} ({written})"
