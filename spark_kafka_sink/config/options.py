"""Option strings -> SinkOptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TypeVar

from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.added_settings import producer_settings
from spark_kafka_sink.config.client_settings import known_names, redact_unless_public, translate
from spark_kafka_sink.config.java_settings import REJECTED
from spark_kafka_sink.config.option import (
    PREFIX,
    Notices,
    Option,
    OptionValues,
    did_you_mean,
    option_texts,
)
from spark_kafka_sink.config.producer_options import (
    MAX_REQUEST_SIZE,
    BlockBudget,
    ExactlyOnceOptions,
    MetadataLifetime,
    ProducerOptions,
    RackOptions,
)
from spark_kafka_sink.config.registry_options import REGISTRY_PREFIX, SETTINGS, is_public
from spark_kafka_sink.config.serialization_options import (
    SerializationOptions,
    read_serialization,
)
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import Secret

T = TypeVar("T")

_NAMES: Mapping[str, str] = {
    name.lower(): name
    for option in table.OPTIONS
    for name in option.names
    if option not in (table.CLIENT_SETTINGS, table.REGISTRY_SETTINGS)
}

# Spark passes these to every sink; they are not ours.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "path"})


@dataclass(frozen=True)
class SinkOptions:
    """Everything that a task needs; checked, picklable, without secrets in its repr.

    ``values``: of all options in the table, as they are set. The other fields are made from several
    of them, and from settings of the clients.
    """

    values: OptionValues
    producer: ProducerOptions
    #: sentences about options that are ignored, and about what others cost
    warnings: tuple[str, ...] = ()
    #: None: at-least-once
    exactly_once: ExactlyOnceOptions | None = None
    #: None: key and value are sent as they are
    serialization: SerializationOptions | None = None

    def replace_value(self, option: Option[T], value: T) -> SinkOptions:
        """These options with another value of one."""
        by_name = {**self.values.by_name, option.name: value}
        return replace(self, values=OptionValues(by_name))

    @property
    def topic(self) -> str | None:
        return self.values[table.TOPIC]

    @property
    def serialized_columns(self) -> tuple[str, ...]:
        """The columns that a format turns into bytes: ``key``, ``value``, both or none."""
        columns = () if self.serialization is None else self.serialization.columns
        return tuple(column.column for column in columns)

    @property
    def dead_letter_topic(self) -> str | None:
        return self.producer.dead_letter_topic


def check_for_format(options: SinkOptions) -> None:
    """Raise InvalidOption for options that only ``foreach_batch`` accepts, or can do without."""
    if options.exactly_once is None:
        return
    wanted = f"{table.DELIVERY_GUARANTEE.name}=exactly-once"
    if options.exactly_once.partitions is None:
        raise InvalidOption(
            f"{wanted} needs {table.EXACTLY_ONCE_PARTITIONS.name}: how many Spark partitions every "
            "micro-batch has. End the query with repartition(P, key), or repartition(1). Or use "
            "foreach_batch without this option: it repartitions"
        )
    batch_id = options.values[table.BATCH_ID]
    if batch_id is not None:
        raise InvalidOption(
            f"{table.BATCH_ID.name}={batch_id} cannot be combined with {wanted}: Spark's "
            "own id of the micro-batch identifies what was committed; remove it"
        )


def drop_exactly_once(options: Mapping[str, str]) -> dict[str, str]:
    """The options without those for exactly-once."""
    left_out = {option.name for option in (table.DELIVERY_GUARANTEE, *table.ONLY_WITH_EXACTLY_ONCE)}
    return {name: value for name, value in options.items() if name.lower() not in left_out}


def drop_formats(options: Mapping[str, str]) -> dict[str, str]:
    """The options without formats, for rows that are bytes already."""
    left_out = {
        option.name for option in (table.VALUE_FORMAT, table.KEY_FORMAT, *table.ONLY_WITH_REGISTRY)
    }
    return {
        name: value
        for name, value in options.items()
        if name.lower() not in left_out and not name.lower().startswith(REGISTRY_PREFIX)
    }


def parse(options: Mapping[str, object]) -> SinkOptions:
    """Check and convert options; case in names does not matter, and None is no option.

    The driver completes the result (``driver_options``). Needs librdkafka, which defines the names
    and ranges of the client's settings, but neither a client, files, nor the environment.
    Raises InvalidOption for an option that is unknown, malformed, missing or contradicts another.
    """
    texts = {
        name.lower(): _redacted(name.lower(), text)
        for name, text in option_texts(options).items()
        if name.lower() not in _SPARKS_OWN
    }
    _check_asynchronous_progress(texts)
    _check_names(texts)
    values = OptionValues({option.name: option.read(texts) for option in table.OPTIONS})
    notices = Notices()
    producer = _producer_options(values, texts, notices)
    return SinkOptions(
        values=values,
        producer=producer,
        warnings=notices.warnings,
        exactly_once=_exactly_once(values, texts, producer),
        serialization=read_serialization(values, texts),
    )


def _redacted(name: str, value: str) -> str:
    if name in _NAMES:
        return value
    if is_public(name.removeprefix(REGISTRY_PREFIX)):
        return value
    is_clients = name.startswith(PREFIX)
    return redact_unless_public(name.removeprefix(PREFIX), value) if is_clients else Secret(value)


def _check_names(texts: Mapping[str, str]) -> None:
    known = {**_NAMES, **{PREFIX + name: PREFIX + name for name in known_names()}}
    unknown = [name for name in texts if name not in known]
    for name in (name for name in unknown if not name.startswith(REGISTRY_PREFIX)):
        hint = _hint(name, known)
        if name.startswith(PREFIX):
            what = f"{name} is not a setting of the Kafka producer{hint}"
            raise InvalidOption(what, option=name)
        raise InvalidOption(
            f"unknown option {name}{hint} (settings of the Kafka client begin with {PREFIX})",
            option=name,
        )


def _hint(name: str, known: Mapping[str, str]) -> str:
    other = name.removeprefix(PREFIX) if name.startswith(PREFIX) else PREFIX + name
    if other in known:
        return f"; did you mean {known[other]}?"
    if name in SETTINGS:  # as in Java's configurations of a schema registry
        return f"; did you mean {REGISTRY_PREFIX}{name}?"
    return did_you_mean(name, set(known.values()) - {PREFIX + rejected for rejected in REJECTED})


def _producer_options(
    values: OptionValues, texts: Mapping[str, str], notices: Notices
) -> ProducerOptions:
    buffer_memory_bytes = values[table.BUFFER_MEMORY]
    settings = {
        name.removeprefix(PREFIX): value
        for name, value in texts.items()
        if name.startswith(PREFIX) and name not in _NAMES
    }
    settings[table.BOOTSTRAP_SERVERS.name.removeprefix(PREFIX)] = values[table.BOOTSTRAP_SERVERS]
    translated = translate(settings, values[table.OAUTH_CALLBACK] or "", notices)
    client = producer_settings(translated, buffer_memory_bytes)
    if buffer_memory_bytes < client.max_request_bytes:
        raise InvalidOption(
            f"{table.BUFFER_MEMORY.name}={buffer_memory_bytes} is less than "
            f"{MAX_REQUEST_SIZE}={client.max_request_bytes}: the largest records could never be "
            "sent; raise the former or lower the latter"
        )
    return ProducerOptions(
        client=client,
        buffer_memory_bytes=buffer_memory_bytes,
        budget=_block_budget(values, texts),
        lifetime=MetadataLifetime(
            max_age_ms=values[table.METADATA_MAX_AGE_MS],
            evict_ms=values[table.METADATA_EVICT_MS],
        ),
        dead_letter_topic=_dead_letter_topic(values),
        rack=_rack(values),
    )


def _rack(values: OptionValues) -> RackOptions | None:
    name, variable = values[table.CLIENT_RACK] or None, values[table.CLIENT_RACK_VARIABLE]
    is_preferred = values[table.PARTITIONER_RACK_AWARE]
    if name is not None and variable is not None:
        raise InvalidOption(
            f"{table.CLIENT_RACK.name} and {table.CLIENT_RACK_VARIABLE.name} both say where "
            "executors are; remove one"
        )
    if name is None and variable is None:
        if is_preferred:
            raise InvalidOption(
                f"{table.PARTITIONER_RACK_AWARE.name}=true needs {table.CLIENT_RACK.name}, or "
                f"{table.CLIENT_RACK_VARIABLE.name} if executors are in several racks"
            )
        return None
    return RackOptions(name, variable, is_preferred)


def _dead_letter_topic(values: OptionValues) -> str | None:
    topic = values[table.DEAD_LETTER_TOPIC]
    if values[table.ON_RECORD_ERROR] == "fail":
        if topic is not None:
            raise InvalidOption(
                f"{table.DEAD_LETTER_TOPIC.name} has an effect only with "
                f"{table.ON_RECORD_ERROR.name}=dead-letter; set that, or remove it"
            )
        return None
    if topic is None:
        raise InvalidOption(
            f"{table.ON_RECORD_ERROR.name}=dead-letter needs {table.DEAD_LETTER_TOPIC.name}: the "
            "topic for rejected records"
        )
    if topic == values[table.TOPIC]:
        raise InvalidOption(
            f"{table.DEAD_LETTER_TOPIC.name} and {table.TOPIC.name} are both {topic}; a dead "
            "letter would be rejected like its record"
        )
    return topic


def _block_budget(values: OptionValues, texts: Mapping[str, str]) -> BlockBudget:
    budget = BlockBudget(
        max_block_ms=values[table.MAX_BLOCK_MS],
        includes_metadata=values[table.MAX_BLOCK_MS_INCLUDE_METADATA],
        max_block_metadata_ms=values[table.MAX_BLOCK_METADATA_MS],
    )
    if budget.is_shared and table.MAX_BLOCK_METADATA_MS.is_set(texts):
        raise InvalidOption(
            f"{table.MAX_BLOCK_METADATA_MS.name} has an effect only with "
            f"{table.MAX_BLOCK_MS_INCLUDE_METADATA.name}=false or {table.MAX_BLOCK_MS.name}=0; "
            "set one of them, or remove it"
        )
    return budget


def _exactly_once(
    values: OptionValues, texts: Mapping[str, str], producer: ProducerOptions
) -> ExactlyOnceOptions | None:
    wanted = f"{table.DELIVERY_GUARANTEE.name}=exactly-once"
    if values[table.DELIVERY_GUARANTEE] != "exactly-once":
        for option in table.ONLY_WITH_EXACTLY_ONCE:
            if option.is_set(texts):
                raise InvalidOption(
                    f"{option.name} has an effect only with {wanted}; set that, or remove it"
                )
        return None
    ledger_topic = values[table.EXACTLY_ONCE_LEDGER_TOPIC] or values[table.TOPIC]
    if ledger_topic is None:
        raise InvalidOption(
            f"{wanted} needs {table.EXACTLY_ONCE_LEDGER_TOPIC.name} if the option "
            f"{table.TOPIC.name} is not set: an existing topic for whose partition 0 it commits "
            "offsets"
        )
    prefix = values[table.TRANSACTIONAL_ID_PREFIX]
    if prefix == "":
        raise InvalidOption(
            f"{table.TRANSACTIONAL_ID_PREFIX.name} is empty; set a name, or remove it"
        )
    if values[table.USE_LATEST_VERSION]:
        raise InvalidOption(
            f"{wanted} cannot be combined with {table.USE_LATEST_VERSION.name}=true: a version "
            "that is registered between two attempts of a micro-batch would change its records. "
            f"Remove it, and give the schema as {table.VALUE_SCHEMA.name} or "
            f"{table.KEY_SCHEMA.name}"
        )
    if producer.client["enable.idempotence"] == "false":
        raise InvalidOption(f"{wanted} needs kafka.enable.idempotence=true; remove the option")
    return ExactlyOnceOptions(
        partitions=values[table.EXACTLY_ONCE_PARTITIONS],
        prefix=prefix,
        ledger_topic=ledger_topic,
        first_batch=values[table.EXACTLY_ONCE_FIRST_BATCH],
        transaction_timeout_ms=values[table.TRANSACTION_TIMEOUT_MS],
    )


_ASYNCHRONOUS_PROGRESS = "asyncProgressTrackingEnabled"


def _check_asynchronous_progress(texts: Mapping[str, str]) -> None:
    is_on = texts.get(_ASYNCHRONOUS_PROGRESS.lower(), "false").strip().lower() != "false"
    if is_on and table.DELIVERY_GUARANTEE.read(texts) == "exactly-once":
        raise InvalidOption(
            f"{table.DELIVERY_GUARANTEE.name}=exactly-once cannot be combined with "
            f"{_ASYNCHRONOUS_PROGRESS}: with it, Spark does not record every micro-batch "
            "before it starts; remove it"
        )
