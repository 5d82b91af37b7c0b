"""[both] Spark type -> JSON Schema of what the encoder writes."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from spark_kafka_sink.errors import UnsupportedType

_NULL = {"type": "null"}

_SCALARS: Mapping[str, dict[str, str]] = {
    "byte": {"type": "integer"},
    "short": {"type": "integer"},
    "integer": {"type": "integer"},
    "long": {"type": "integer"},
    "float": {"type": "number"},
    "double": {"type": "number"},
    "decimal": {"type": "number"},
    "boolean": {"type": "boolean"},
    "string": {"type": "string"},
    "char": {"type": "string"},
    "varchar": {"type": "string"},
    "binary": {"type": "string", "contentEncoding": "base64"},
    "date": {"type": "string", "format": "date"},
    "timestamp": {"type": "string", "format": "date-time"},
    # The format date-time requires an offset, which these do not have.
    "timestamp_ntz": {"type": "string"},
}


def derive_schema(spark_type: Any, *, title: str, column: str) -> str:
    """The JSON Schema (draft 07) of a column, the same text for the same type.

    ``spark_type`` is ``DataType.jsonValue()``. Objects are closed (``additionalProperties: false``)
    because a registry accepts a new optional field as BACKWARD compatible only in closed objects.
    A nullable field is not required, since the encoder leaves out fields that are null. The column
    itself is never null: a null value is a tombstone, which has no schema.

    Raises UnsupportedType, which lists all fields that JSON cannot have.
    """
    derivation = _Derivation()
    schema = derivation.schema(spark_type, column)
    if problems := tuple(derivation.problems):
        raise UnsupportedType(
            "JSON Schema has no type for: " + "; ".join(problems), problems=problems
        )
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": title}
    return json.dumps(head | schema, ensure_ascii=False, separators=(",", ":"))


def scalar_schema(spark_type: str) -> dict[str, str] | None:
    """The schema of a type that is neither struct, array nor map; None: it is not supported."""
    # "decimal(10,2)", "varchar(3)", "string collate UNICODE"
    return _SCALARS.get(re.split(r" collate |\(", spark_type, maxsplit=1)[0])


def json_type(spark_type: Any) -> str:
    """The type that its values have in JSON."""
    if not isinstance(spark_type, str):
        return "array" if spark_type["type"] == "array" else "object"
    # Decimals without digits after the point are written as integers.
    is_whole = re.fullmatch(r"decimal\(\d+, *0\)", spark_type) is not None
    return "integer" if is_whole else (scalar_schema(spark_type) or _SCALARS["string"])["type"]


def type_name(spark_type: Any) -> str:
    """The type in a message: Spark's name, of a nested type without what is inside."""
    return str(spark_type if isinstance(spark_type, str) else spark_type.get("type"))


class _Derivation:
    """Derives a schema. ``problems``: a sentence for each field that JSON cannot have."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def schema(self, spark_type: Any, path: str) -> dict[str, Any]:
        """The schema of values that are not null."""
        if isinstance(spark_type, str):
            schema = scalar_schema(spark_type)
            if schema is None:
                self.problems.append(f"column {path}: {spark_type}; {_remedy(spark_type)}")
            return dict(schema or {})
        kind = spark_type.get("type")
        if kind == "struct":
            return self._object(spark_type["fields"], path)
        if kind == "array":
            items = self.schema(spark_type["elementType"], f"{path}.element")
            return {"type": "array", "items": _nullable(items, spark_type["containsNull"])}
        if kind == "map":
            return self._map(spark_type, path)
        self.problems.append(f"column {path}: user-defined type; select its fields instead")
        return {}

    def _object(self, fields: list[dict[str, Any]], path: str) -> dict[str, Any]:
        properties: dict[str, Any] = {}
        for field in fields:
            name = field["name"]
            if name in properties:
                self.problems.append(f"column {path}.{name}: two fields of this name; rename one")
            properties[name] = _nullable(
                self.schema(field["type"], f"{path}.{name}"), field["nullable"]
            )
        schema = {"type": "object", "properties": properties}
        if required := [field["name"] for field in fields if not field["nullable"]]:
            schema["required"] = required
        return schema | {"additionalProperties": False}

    def _map(self, spark_type: Mapping[str, Any], path: str) -> dict[str, Any]:
        key = spark_type["keyType"]
        key_schema = scalar_schema(key) if isinstance(key, str) else None
        if key_schema != _SCALARS["string"] or key == "timestamp_ntz":
            name = type_name(key)
            self.problems.append(f"column {path}: map with {name} keys; cast its keys to string")
        values = self.schema(spark_type["valueType"], f"{path}.value")
        is_nullable = spark_type["valueContainsNull"]
        return {"type": "object", "additionalProperties": _nullable(values, is_nullable)}


def _nullable(schema: dict[str, Any], is_nullable: bool) -> dict[str, Any]:
    """The schema with null, as Confluent's serializer for Java derives it."""
    return {"oneOf": [_NULL, schema]} if is_nullable else schema


def _remedy(spark_type: str) -> str:
    return "cast it with to_json" if spark_type == "variant" else "cast it to string"
