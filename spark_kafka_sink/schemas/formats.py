"""[both] The formats: what each one derives, checks and encodes, behind the same names."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from spark_kafka_sink.errors import SchemaMismatch, UnsupportedType

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.schemas.encoded import Encoded

# The name that Spark's to_avro gives, so that its schemas and ours are versions of each other.
_DERIVED_NAME = "topLevelRecord"
#: how deep structs, arrays and maps may be: functions that call themselves write them
_MAX_LEVELS = 64


@dataclass(frozen=True)
class ColumnType:
    """A column's type: ``spark`` as ``DataType.jsonValue`` gives it, ``arrow`` as tasks get it."""

    spark: Any
    arrow: pa.DataType


class Encoder(Protocol):
    """Encodes columns of one Arrow type with one schema."""

    def encode(self, array: pa.Array, prefix: bytes | pa.Array = b"") -> Encoded: ...


def derived_schema(
    schema_format: str,
    spark_type: Any,
    column: str,
    record_name: str | None = None,
    *,
    is_used: bool = True,
) -> str:
    """The schema of a Spark type (``DataType.jsonValue``); raises UnsupportedType.

    ``is_used`` False: the column has another schema, which may have names that are not portable.
    """
    if (levels := _levels(spark_type)) > _MAX_LEVELS:
        raise UnsupportedType(
            f"the column {column} has {levels} levels of structs, arrays and maps, and at most "
            f"{_MAX_LEVELS} can be serialized; flatten it, or make a level text with to_json",
            problems=(),
        )
    name = record_name or _DERIVED_NAME
    if schema_format == "avro":
        from spark_kafka_sink.schemas.avro.derived import derive_schema

        return derive_schema(spark_type, name=name, column=column, is_used=is_used)
    from spark_kafka_sink.schemas.json import derived as json_derived

    return json_derived.derive_schema(spark_type, title=name, column=column)


def _levels(spark_type: Any) -> int:
    """How many structs, arrays and maps are inside one another."""
    levels = -1
    types = [spark_type]
    while types:
        levels += 1
        nested = [kind for kind in types if isinstance(kind, dict)]
        types = [field["type"] for kind in nested for field in kind.get("fields", ())]
        for part in ("elementType", "keyType", "valueType"):
            types += [kind[part] for kind in nested if part in kind]
    return levels


def encoder(
    schema_format: str, schema: str, spark_type: Any, arrow_type: pa.DataType, column: str
) -> Encoder:
    """The encoder of a column; raises SchemaMismatch if its values cannot fit the schema."""
    if schema_format == "avro":
        from spark_kafka_sink.schemas.avro.encoder import AvroEncoder

        return AvroEncoder(schema, arrow_type, column)
    from spark_kafka_sink.schemas.json.encoder import JsonEncoder
    from spark_kafka_sink.schemas.json.fit import check_fit

    return JsonEncoder(arrow_type, column, check_fit(schema, spark_type, column))


def record_name(schema_format: str, schema: str, column: str) -> str:
    """The full name of an Avro type, or a JSON Schema's title; raises SchemaMismatch if none."""
    document = _document(schema, column)
    name = document.get("name" if schema_format == "avro" else "title")
    if not isinstance(name, str) or not name:
        what = "a record with a name" if schema_format == "avro" else "a title"
        raise SchemaMismatch(
            f"the schema of {column} needs {what}, because {column}.subject.name.strategy makes "
            "the subject from it",
            problems=(),
        )
    namespace = document.get("namespace") if schema_format == "avro" else None
    return f"{namespace}.{name}" if namespace and "." not in name else name


def _document(schema: str, column: str) -> dict[str, Any]:
    try:
        document = json.loads(schema)
    except (ValueError, RecursionError) as error:
        raise SchemaMismatch(f"{column}.schema is not valid JSON: {error}") from None
    return document if isinstance(document, dict) else {}
