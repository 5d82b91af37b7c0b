"""[both] derive_schema: the Avro schema of a Spark type."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from spark_kafka_sink.errors import SchemaMismatch, UnsupportedType
from spark_kafka_sink.names import is_avro_name, is_portable_avro_name, portable_avro_name

_SIMPLE: Mapping[str, Any] = {
    "boolean": "boolean",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "string": "string",
    "binary": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "timestamp_ntz": {"type": "long", "logicalType": "local-timestamp-micros"},
    "void": "null",
}
_INTERVAL = re.compile(r"interval (day|hour|minute|second)( to \w+)?")
_TEXT = re.compile(r"(char|varchar)\(\d+\)|string collate .*")
_DECIMAL = re.compile(r"decimal\((\d+), *(-?\d+)\)")

#: what to do with a type that begins with these words
_REMEDIES = {
    "variant": "cast it with to_json",
    "geometry": "convert it with st_asbinary",
    "geography": "convert it with st_asbinary",
}


def derive_schema(spark_type: Any, *, name: str, column: str, is_used: bool = True) -> str:
    """The Avro schema, as JSON, of a Spark type, which is given as ``DataType.jsonValue()``.

    It is that of Spark's ``to_avro``, with three exceptions: a nullable field is ``["null", X]``
    with the default null, so that it can be added and removed compatibly; decimals are ``bytes``,
    not ``fixed``; and the outermost type is never a union, because a null column becomes a null
    record. ``name``: the full one of the outermost record; the name of a nested one is its field's,
    in a namespace that is the full name of the record around it.

    Raises UnsupportedType or SchemaMismatch, with a problem for each field that Avro cannot have.
    ``column``: the column's name, for messages. ``is_used`` False: another schema names the fields.
    """
    derivation = _Derivation(has_names=is_used)
    namespace, _, name = name.rpartition(".")
    schema = derivation.type(spark_type, name, namespace, column)
    if spark_type == "void":  # a field may have this type, a key or value cannot do without another
        derivation.add_unsupported(column, "void", "cast it to the type that it should have")
    if derivation.problems:
        error = UnsupportedType if derivation.has_unsupported_type else SchemaMismatch
        raise error(
            f"the column {column} has no Avro schema: " + ". ".join(derivation.problems),
            problems=tuple(derivation.problems),
        )
    return json.dumps(schema, separators=(",", ":"), ensure_ascii=False)


class _Derivation:
    """Derives a schema. ``problems``: a sentence for each field that Avro cannot have.

    ``has_names``: whether the names of fields must be Avro's.
    """

    def __init__(self, *, has_names: bool) -> None:
        self._has_names = has_names
        self.problems: list[str] = []
        self.has_unsupported_type = False

    def type(self, spark_type: Any, name: str, namespace: str, path: str) -> Any:
        """The schema of values that are not null."""
        if isinstance(spark_type, str):
            return self._atomic(spark_type, path)
        kind = spark_type["type"]
        if kind == "struct":
            return self._record(spark_type["fields"], name, namespace, path)
        if kind == "array":
            inner = self.type(spark_type["elementType"], name, namespace, f"{path}.element")
            return {"type": "array", "items": _or_null(inner, spark_type["containsNull"])}
        if kind == "map":
            return self._map(spark_type, name, namespace, path)
        return self.add_unsupported(path, "user-defined type", "convert it to structs or arrays")

    def _atomic(self, spark_type: str, path: str) -> Any:
        if spark_type in _SIMPLE:
            return _SIMPLE[spark_type]
        if _TEXT.fullmatch(spark_type):
            return "string"
        if _INTERVAL.fullmatch(spark_type):
            return {"type": "long", "spark.sql.catalyst.type": spark_type}
        if spark_type.startswith("time("):
            return {
                "type": "long",
                "logicalType": "time-micros",
                "spark.sql.catalyst.type": spark_type,
            }
        if (decimal := _DECIMAL.fullmatch(spark_type)) and int(decimal[2]) >= 0:
            return {
                "type": "bytes",
                "logicalType": "decimal",
                "precision": int(decimal[1]),
                "scale": int(decimal[2]),
            }
        first_word = re.split(r"\W", spark_type)[0]
        return self.add_unsupported(
            path, spark_type, _REMEDIES.get(first_word, "cast it to string")
        )

    def _record(self, fields: list[Any], name: str, namespace: str, path: str) -> Any:
        full_name = f"{namespace}.{name}" if namespace else name
        names: set[str] = set()
        schemas = []
        for field in fields:
            inner = f"{path}.{field['name']}"
            self._check_name(field["name"], names, inner)
            names.add(field["name"])
            schema = self.type(field["type"], field["name"], full_name, inner)
            described = {"name": field["name"], "type": _or_null(schema, field["nullable"])}
            schemas.append(described | {"default": None} if field["nullable"] else described)
        record = {"type": "record", "name": name, "fields": schemas}
        return record | {"namespace": namespace} if namespace else record

    def _check_name(self, name: str, others: set[str], path: str) -> None:
        if name in others:
            self.problems.append(f"{path}: two fields have this name; rename one of them")
        elif self._has_names and not is_portable_avro_name(name):
            problem, otherwise = "Avro does not allow", ""
            if is_avro_name(name):
                problem = "not every library of Avro accepts"
                otherwise = f", or give the schema as {path.partition('.')[0]}.schema"
            self.problems.append(
                f"{path}: {problem} the name {name!r}; rename the field, such as to "
                f"{portable_avro_name(name)}{otherwise}"
            )

    def _map(self, spark_type: Any, name: str, namespace: str, path: str) -> Any:
        keys = spark_type["keyType"]
        if not isinstance(keys, str) or not (keys == "string" or _TEXT.fullmatch(keys)):
            kind = keys if isinstance(keys, str) else keys["type"]
            remedy = "cast its keys to string, or use an array of structs"
            self.add_unsupported(path, f"map with keys of type {kind}", remedy)
        values = self.type(spark_type["valueType"], name, namespace, f"{path}.value")
        return {"type": "map", "values": _or_null(values, spark_type["valueContainsNull"])}

    def add_unsupported(self, path: str, kind: str, remedy: str) -> str:
        self.has_unsupported_type = True
        self.problems.append(f"{path}: {kind}; {remedy}")
        return "null"


def _or_null(schema: Any, nullable: bool) -> Any:
    return ["null", schema] if nullable and schema != "null" else schema
