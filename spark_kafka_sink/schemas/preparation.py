"""[driver] Derives, checks and registers schemas before the first task."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.serialization_options import ColumnFormat, SerializationOptions
from spark_kafka_sink.schemas.formats import ColumnType, derived_schema, encoder, record_name
from spark_kafka_sink.schemas.known_schemas import resolve
from spark_kafka_sink.schemas.serializer import ColumnSchema, Serializer, id_header


def prepare(
    options: SinkOptions, types: Mapping[str, ColumnType], folder: Path | None
) -> Serializer | None:
    """The tasks' serializer of the columns; None if they are sent as they are.

    Schemas are registered or looked up here unless the column ``topic`` names their subjects.
    ``folder``: the application's on the driver, or None. Raises SchemaMismatch, UnsupportedType,
    SchemaIncompatible, SchemaNotFound, RegistryUnavailable, RegistryRejected.
    """
    serialization = options.serialization
    if serialization is None:
        return None
    columns = column_schemas(serialization, types)
    wanted = [
        (column.wanted(options.topic, serialization), column)
        for column in columns
        if column.has_subject(options.topic)
    ]
    known = resolve(serialization.registry, list(dict(wanted)), folder)
    if serialization.id_location == "header":
        for registered in known.values():
            id_header(registered)  # a check
    for wanted_schema, column in wanted:
        if wanted_schema.schema is None:
            arrow_type = types[column.format.column].arrow
            column.encoder(
                known[wanted_schema].schema, arrow_type, wanted_schema.subject
            )  # a check
    # In a transaction, two attempts must write the same.
    rejects_absent = options.dead_letter_topic is not None and options.exactly_once is None
    return Serializer(serialization, columns, known, rejects_absent)


def column_schemas(
    options: SerializationOptions, types: Mapping[str, ColumnType]
) -> list[ColumnSchema]:
    """The schemas of those columns that the DataFrame has; asks no registry.

    Raises SchemaMismatch or UnsupportedType.
    """
    return [
        _column_schema(options, column, types[column.column])
        for column in options.columns
        if column.column in types
    ]


def option_schema(column: ColumnFormat, spark_type: Any = None) -> ColumnSchema:
    """The schema of the options; its text is None if they have none."""
    return _named_schema(column, column.schema, spark_type)


def _named_schema(column: ColumnFormat, text: str | None, spark_type: Any) -> ColumnSchema:
    name = column.record_name or ""
    if text is not None and column.subject_name_strategy != "topic":
        name = record_name(column.format, text, column.column)
    return ColumnSchema(column, text, name, spark_type)


def _column_schema(
    options: SerializationOptions, column: ColumnFormat, kind: ColumnType
) -> ColumnSchema:
    schema = option_schema(column, kind.spark)
    is_used = schema.text is None and not options.use_latest_version
    # It is derived with another schema too, as it finds types that the format does not have.
    derived = derived_schema(
        column.format, kind.spark, column.column, column.record_name, is_used=is_used
    )
    if is_used:
        return _named_schema(column, derived, kind.spark)
    if schema.text is not None:
        encoder(column.format, schema.text, kind.spark, kind.arrow, column.column)  # a check
    return schema
