"""The check of the schema registry: whether it answers, accepts the login, and has the schemas."""

from __future__ import annotations

from dataclasses import replace

from spark_kafka_sink.config.serialization_options import ColumnFormat, SerializationOptions
from spark_kafka_sink.errors import KafkaSinkError, SchemaNotFound
from spark_kafka_sink.registry.client import RegistryClient
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.result import Finding, failed, not_applicable, passed

# Any subject shows whether the registry answers; this one is not there.
_NO_TOPIC = "kafka-nb-doctor"


def schema_registry(context: CheckContext) -> list[Finding]:
    """Each subject that the options name can be read. Registers nothing."""
    options = context.sink.serialization
    if options is None:
        return [not_applicable("no option value.format or key.format")]
    milliseconds = max(1, round(context.deadline.remaining() * 1000))
    timeout_ms = min(options.registry.timeout_ms, milliseconds)
    client = RegistryClient(replace(options.registry, timeout_ms=timeout_ms))
    topic = context.sink.topic or _NO_TOPIC
    return [_subject(client, options, each, topic) for each in options.columns]


def _subject(
    client: RegistryClient, options: SerializationOptions, column: ColumnFormat, topic: str
) -> Finding:
    subject = f"{topic}-{column.column}"
    needs_one = not options.auto_register and topic != _NO_TOPIC
    is_ours = column.subject_name_strategy == "topic" and topic != _NO_TOPIC
    try:
        latest = client.latest(subject, column.format)
    except SchemaNotFound:
        if needs_one and is_ours:
            return failed(
                "it has no schema, and auto.register.schemas=false",
                "Register the schema, or set auto.register.schemas=true",
                subject,
            )
        what = "has no schema yet: the query registers it" if is_ours else "the registry answers"
        return passed(what, subject if is_ours else options.registry.url)
    except KafkaSinkError as error:
        return failed(str(error), "Correct schema.registry.*", subject)
    return passed(f"its latest schema has the id {latest.id}", subject)
