"""The checks of the DataFrame's columns, and of the schemas that the query would register."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from spark_kafka_sink.advice import Advice
from spark_kafka_sink.config.serialization_options import SerializationOptions
from spark_kafka_sink.errors import (
    InvalidSchema,
    KafkaSinkError,
    SchemaMismatch,
    SchemaNotFound,
    UnsupportedType,
)
from spark_kafka_sink.schemas.registry_client import RegisteredSchema, RegistryClient
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.result import Finding, failed, not_applicable, passed, warned

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_kafka_sink.schemas.known_schemas import WantedSchema
    from spark_kafka_sink.schemas.serializer import ColumnSchema

# Any subject shows whether the registry answers. This one does not exist.
_MISSING_SUBJECT = "kafka-nb-doctor"
_UNUSED_REMEDY = "Rename or drop the column, or set the option that is named"
_NO_SCHEMA = (
    "only diagnose(options, schema=df.schema) and the --dry-run of a job know a DataFrame's schema"
)


def columns(context: CheckContext) -> list[Finding]:
    """The DataFrame's columns can become records, with the formats of the options."""
    if context.schema is None:
        return [not_applicable(_NO_SCHEMA)]
    from spark_kafka_sink.spark.schema_check import (
        check_schema,
        check_schema_for_format,
        columns_serialized_twice,
        unused_columns,
    )

    try:
        check_schema(
            context.schema,
            context.sink.topic,
            context.sink.serialized_columns,
            context.sink.timestamp_column,
        )
        _column_schemas(context)
    except (InvalidSchema, SchemaMismatch, UnsupportedType) as error:
        return [failed(str(error), "Change the columns of the DataFrame")]
    findings = [passed(f"rows can become records: {', '.join(context.schema.names)}")]
    try:
        check_schema_for_format(context.schema)
    except InvalidSchema as error:
        findings.append(warned(str(error), "With foreach_batch, change nothing"))
    sentences = unused_columns(context.schema, context.sink.topic, context.sink.timestamp_column)
    findings += [warned(sentence, _UNUSED_REMEDY) for sentence in sentences]
    sentences = columns_serialized_twice(context.schema, context.sink.serialization)
    return findings + [
        warned(sentence, "Change the column or the option") for sentence in sentences
    ]


def schema_registry(context: CheckContext) -> list[Finding]:
    """The schema registry answers and accepts the client, and schemas are compatible.

    Registers nothing. The schemas are those of the options, or derived from the DataFrame's.
    """
    options = context.sink.serialization
    if options is None:
        return [not_applicable("no option value.format or key.format")]
    milliseconds = max(1, round(context.deadline.remaining() * 1000))
    timeout_ms = min(options.registry.timeout_ms, milliseconds)
    topic = context.sink.topic
    with closing(RegistryClient(replace(options.registry, timeout_ms=timeout_ms))) as client:
        columns = [column for column in _column_schemas(context) if column.has_subject(topic)]
        if topic is None and not columns:
            return [_check_registry(client, options)]
        return [_check_subject(client, context, column, topic) for column in columns]


def _column_schemas(context: CheckContext) -> list[ColumnSchema]:
    """Raises SchemaMismatch or UnsupportedType."""
    from spark_kafka_sink.schemas.preparation import column_schemas, option_schema

    options = context.sink.serialization
    if options is None:
        return []
    if context.schema is None:
        return [option_schema(column) for column in options.columns]
    # Doctor runs without PySpark, too.
    from spark_kafka_sink.spark.private_api import column_types

    return column_schemas(options, column_types(context.schema, context.sink.serialized_columns))


def _check_registry(client: RegistryClient, options: SerializationOptions) -> Finding:
    """For topics of the column, which are not known."""
    try:
        client.any_latest(_MISSING_SUBJECT)
    except SchemaNotFound:
        pass
    except KafkaSinkError as error:
        if "HTTP 403" in str(error):
            remedy = (
                "Change nothing if the login may use the subjects of your topics: only doctor asks "
                f"for {_MISSING_SUBJECT}"
            )
            return warned(str(error), remedy, options.registry.url)
        return failed(str(error), "")
    return passed("it answers; the column topic names the subjects", options.registry.url)


def _check_subject(
    client: RegistryClient, context: CheckContext, column: ColumnSchema, topic: str | None
) -> Finding:
    options = context.sink.serialization
    assert options is not None  # noqa: S101 - or it would have no columns
    wanted = column.wanted(topic, options)
    try:
        if options.use_latest_version:
            latest = client.latest(wanted.subject, wanted.format)
            if context.schema is not None:
                _check_fit(latest, context.schema, column, wanted.subject)
        if options.id_location == "header":
            _check_guid(client, wanted.subject)
        check = _check_compatible if wanted.auto_register else _check_registered
        return check(client, wanted)
    except KafkaSinkError as error:
        return failed(str(error), "", wanted.subject)


def _check_fit(
    latest: RegisteredSchema, schema: StructType, column: ColumnSchema, subject: str
) -> None:
    """Raise SchemaMismatch if the column does not fit the subject's latest schema."""
    from spark_kafka_sink.spark.private_api import column_types

    name = column.format.column
    column.encoder(latest.schema, column_types(schema, [name])[name].arrow, subject)


def _check_guid(client: RegistryClient, subject: str) -> None:
    """Raise RegistryRejected if a schema of the subject, which may have none, has no GUID."""
    from spark_kafka_sink.schemas.serializer import id_header

    with suppress(SchemaNotFound):
        id_header(client.any_latest(subject))


def _check_registered(client: RegistryClient, wanted: WantedSchema) -> Finding:
    """For auto.register.schemas=false; raises SchemaNotFound."""
    if wanted.schema is None:
        latest_id = client.any_latest(wanted.subject).id
        return passed(f"its latest schema has the id {latest_id}", wanted.subject)
    registered = client.look_up(
        wanted.subject, wanted.format, wanted.schema, normalize=wanted.normalize
    )
    return passed(f"it has the column's schema, with the id {registered.id}", wanted.subject)


def _check_compatible(client: RegistryClient, wanted: WantedSchema) -> Finding:
    """For auto.register.schemas=true. The schema is None if it depends on an unknown type."""
    try:
        latest_id = client.any_latest(wanted.subject).id
    except SchemaNotFound:
        return passed("it has no schema yet: the query registers it", wanted.subject)
    message = f"its latest schema has the id {latest_id}"
    if wanted.schema is None:
        return passed(message, wanted.subject)
    is_compatible = client.is_compatible(
        wanted.subject, wanted.format, wanted.schema, normalize=wanted.normalize
    )
    if is_compatible:
        return passed(f"{message}, and the column's schema is compatible", wanted.subject)
    with suppress(SchemaNotFound):
        return _check_registered(client, wanted)  # a version that is there is not compared
    return failed(
        f"{message}, and the column's schema is not compatible with its versions",
        Advice.SCHEMA_INCOMPATIBLE.remedy,
        wanted.subject,
    )
