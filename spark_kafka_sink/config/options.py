"""Option strings -> SinkOptions: the only option table."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_sink.config.client_settings import (
    PREFIX,
    did_you_mean,
    known_names,
    producer_settings,
    redact_unless_public,
    translate,
)
from spark_kafka_sink.config.producer_options import BlockBudget, MetadataLifetime, ProducerOptions
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.records.topic_name import is_topic_name, topic_name_rule

BATCH_ID = "batch.id"


@dataclass(frozen=True)
class Option:
    """One row of the README's table."""

    name: str
    default: str
    meaning: str


OPTIONS = (
    Option(
        "kafka.bootstrap.servers",
        "none: required",
        "Comma-separated `host:port` of some brokers.",
    ),
    Option(
        "topic",
        "the column `topic`",
        "Topic for all rows; wins over the column.",
    ),
    Option(
        "close.timeout.ms",
        "30000",
        "How long a task may wait at its end until the brokers have acknowledged all its rows. "
        "After that the task fails.",
    ),
    Option(
        "kafka.buffer.memory",
        "67108864",
        "Bytes of Arrow batches with rows that are not acknowledged yet, and 256 a row, over all "
        "topics of a Python worker. At least 1048576.",
    ),
    Option(
        "kafka.max.block.ms",
        "60000",
        "How long the task may wait while that buffer is full (0 never waits), and for the "
        "metadata of a topic that it has rows for.",
    ),
    Option(
        "kafka.max.block.ms.include.metadata",
        "true",
        "`false` gives metadata a time of its own, `kafka.max.block.metadata.ms` (KIP-912).",
    ),
    Option(
        "kafka.max.block.metadata.ms",
        "60000",
        "How long rows may wait for the metadata of their topic, if that time is its own.",
    ),
    Option(
        "kafka.metadata.max.age.ms",
        "300000",
        "When a topic's metadata is fetched again, for instance to find added partitions.",
    ),
    Option(
        "kafka.metadata.evict.ms",
        "300000",
        "When a topic that got no rows is forgotten (KIP-526; Java's name, "
        "`kafka.metadata.max.idle.ms`, does the same). At least 1000.",
    ),
    Option(
        "preflight",
        "true",
        "Before the first task the driver checks that a broker answers, accepts the login, and "
        "has the option's topic or may create it; if the brokers take longer than 0.25 s to tell "
        "of the topic, that is left to the tasks.",
    ),
    Option(
        "producer.cache.timeout",
        "10m",
        "After how long a producer that no task uses is closed (`ms`, `s`, `m` or `h`).",
    ),
    Option(
        "kafka.*",
        "the client's",
        "Every other setting of the Java producer under its own name, such as "
        "`kafka.linger.ms`, `kafka.compression.type` or `kafka.sasl.jaas.config`, and of "
        "librdkafka where Java has none. What cannot be translated is refused with the reason.",
    ),
    Option(
        "includeHeaders",
        "-",
        "Accepted because Spark's sink documents it; a column `headers` is always written.",
    ),
    Option(
        BATCH_ID,
        "-",
        "Number of the micro-batch for the report and errors, where Spark does not tell it: "
        "`foreach_batch` sets it.",
    ),
)

# Spark hands these to every sink; they are not ours.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "path"})

_OURS_OF_KAFKAS = frozenset(
    {
        "buffer.memory",
        "max.block.ms",
        "max.block.ms.include.metadata",
        "max.block.metadata.ms",
        "metadata.max.age.ms",
        "metadata.evict.ms",
        "metadata.max.idle.ms",
    }
)
_MOST_MS = 2**31 - 1
_MS_PER_UNIT = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}

_MINIMUM_BUFFER = 1024 * 1024
_MAXIMUM_BUFFER = 2**31 * 1024 - 1024  # librdkafka counts KiB in 31 bits


@dataclass(frozen=True)
class SinkOptions:
    """All that a task needs to know; checked, picklable, without secrets in its repr."""

    topic: str | None
    close_timeout_ms: int
    preflight: bool
    producer_cache_timeout_ms: int
    batch_id: int | None
    producer: ProducerOptions


def parse(options: Mapping[str, str]) -> SinkOptions:
    """Check option strings, as Spark passes them (names in any case), and give them types.

    Raises InvalidOption, on the first option that is unknown, malformed, missing or contradicts
    another. Needs librdkafka, which knows names and ranges of the client's settings.
    """
    own: dict[str, str] = {}
    client: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower.startswith(PREFIX):
            client[lower[len(PREFIX) :]] = redact_unless_public(lower[len(PREFIX) :], value)
        elif lower not in _SPARKS_OWN:
            own[lower] = value
    _check_names(own)
    buffer_memory = _integer(
        client, "buffer.memory", 64 * 1024 * 1024, _MINIMUM_BUFFER, _MAXIMUM_BUFFER, PREFIX
    )
    budget = BlockBudget(
        max_block_ms=_integer(client, "max.block.ms", 60_000, 0, _MOST_MS, PREFIX),
        includes_metadata=_boolean(client, "max.block.ms.include.metadata", True, PREFIX),
        max_block_metadata_ms=_integer(
            client, "max.block.metadata.ms", 60_000, 0, _MOST_MS, PREFIX
        ),
    )
    if budget.includes_metadata and "max.block.metadata.ms" in client:
        raise InvalidOption(
            "kafka.max.block.metadata.ms counts only with "
            "kafka.max.block.ms.include.metadata=false; set that, or leave it out"
        )
    if not client.get("bootstrap.servers", "").strip():
        raise InvalidOption(
            "option kafka.bootstrap.servers is required: "
            '.option("kafka.bootstrap.servers", "host:9092")'
        )
    topic = own["topic"].strip() if "topic" in own else None
    if topic is not None and not is_topic_name(topic):
        raise InvalidOption(f"option topic: {topic_name_rule(topic)}")
    return SinkOptions(
        topic=topic,
        close_timeout_ms=_integer(own, "close.timeout.ms", 30_000, 0, _MOST_MS),
        preflight=_boolean(own, "preflight", True),
        producer_cache_timeout_ms=_duration_ms(own, "producer.cache.timeout", "10m"),
        batch_id=_integer(own, BATCH_ID, 0, 0, 2**63 - 1) if BATCH_ID in own else None,
        producer=ProducerOptions(
            client=producer_settings(
                translate(
                    {name: value for name, value in client.items() if name not in _OURS_OF_KAFKAS}
                ),
                buffer_memory,
            ),
            buffer_memory_bytes=buffer_memory,
            budget=budget,
            lifetime=_lifetime(client),
        ),
    )


def _lifetime(client: Mapping[str, str]) -> MetadataLifetime:
    ours, javas = "metadata.evict.ms", "metadata.max.idle.ms"
    if ours in client and client.get(javas, client[ours]).strip() != client[ours].strip():
        raise InvalidOption(f"{PREFIX}{ours} and {PREFIX}{javas} mean the same: leave one out")
    name = javas if javas in client else ours
    return MetadataLifetime(
        max_age_ms=_integer(client, "metadata.max.age.ms", 300_000, 1, _MOST_MS, PREFIX),
        evict_ms=_integer(client, name, 300_000, 1000, _MOST_MS, PREFIX),
    )


def _check_names(own: Mapping[str, str]) -> None:
    known = {option.name.lower(): option.name for option in OPTIONS}
    for name in own:
        if name not in known:
            ours = [option.name for option in OPTIONS]
            is_clients = PREFIX + name in ours or name in known_names()
            hint = f"; did you mean {PREFIX}{name}?" if is_clients else did_you_mean(name, ours)
            raise InvalidOption(
                f"unknown option {name}{hint} (settings of the Kafka client begin with {PREFIX})"
            )


def _integer(
    given: Mapping[str, str], name: str, default: int, low: int, high: int, prefix: str = ""
) -> int:
    text = given.get(name, str(default)).strip()
    if not re.fullmatch(r"-?[0-9]+", text):
        raise InvalidOption(f"{prefix}{name}={text!r} is not a whole number")
    number = int(text)
    if not low <= number <= high:
        raise InvalidOption(f"{prefix}{name}={number} is not within {low} to {high}")
    return number


def _boolean(given: Mapping[str, str], name: str, default: bool, prefix: str = "") -> bool:
    text = given.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise InvalidOption(f"{prefix}{name}={text!r} is neither true nor false")
    return text == "true"


def _duration_ms(given: Mapping[str, str], name: str, default: str) -> int:
    text = given.get(name, default).strip()
    matched = re.fullmatch(r"([0-9]{1,9})\s*(ms|s|m|min|h)", text)
    if not matched:
        raise InvalidOption(f"{name}={text!r} is not a time such as 30s, 10m or 1h")
    return int(matched[1]) * _MS_PER_UNIT[matched[2]]
