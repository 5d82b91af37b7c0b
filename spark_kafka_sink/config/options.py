"""The option table, and option strings -> SinkOptions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_kafka_sink.config.client_settings import (
    known_names,
    producer_settings,
    redact_unless_public,
    translate,
)
from spark_kafka_sink.config.java_settings import REFUSED
from spark_kafka_sink.config.option import (
    PREFIX,
    Option,
    any_text,
    did_you_mean,
    duration_ms,
    folder,
    function_name,
    one_of,
    topic_name,
    true_or_false,
    whole_number,
)
from spark_kafka_sink.config.producer_options import (
    BYTES_PER_RECORD,
    MAX_REQUEST_SIZE,
    BlockBudget,
    ExactlyOnceOptions,
    MetadataLifetime,
    ProducerOptions,
)
from spark_kafka_sink.config.secret import Secret
from spark_kafka_sink.errors import InvalidOption

_MAX_INT = 2**31 - 1

# --- the table: the only source for parsing, error messages and docs/options.md --------------

BOOTSTRAP_SERVERS = Option(
    "kafka.bootstrap.servers",
    any_text,
    default=None,
    is_required=True,
    if_absent="none: required",
    meaning="Comma-separated `host:port` of some brokers.",
)
TOPIC: Option[str | None] = Option(
    "topic",
    topic_name,
    default=None,
    if_absent="the column `topic`",
    meaning="Topic for all rows; wins over the column.",
)
CLOSE_TIMEOUT_MS = Option(
    "close.timeout.ms",
    whole_number,
    default="30000",
    minimum=0,
    maximum=_MAX_INT,
    meaning="How long a task waits at its end for the brokers to acknowledge all its records; "
    "then it fails.",
)
BUFFER_MEMORY = Option(
    "kafka.buffer.memory",
    whole_number,
    default="67108864",
    minimum=1024 * 1024,
    maximum=2**31 * 1024 - 1024,  # librdkafka counts KiB in 31 bits
    meaning="Bytes that the unacknowledged records of one Python worker may occupy, over all "
    f"topics: their Arrow batches in full, plus {BYTES_PER_RECORD} per record. Not less than "
    f"`{MAX_REQUEST_SIZE}`.",
)
MAX_BLOCK_MS = Option(
    "kafka.max.block.ms",
    whole_number,
    default="60000",
    minimum=0,
    maximum=_MAX_INT,
    meaning="How long a task waits while that buffer is full, and how long records wait for their "
    "topic's metadata. `0` never waits for room, and gives metadata its own budget.",
)
MAX_BLOCK_MS_INCLUDE_METADATA = Option(
    "kafka.max.block.ms.include.metadata",
    true_or_false,
    default="true",
    meaning="`false` gives metadata its own budget, `kafka.max.block.metadata.ms` (KIP-912).",
)
MAX_BLOCK_METADATA_MS = Option(
    "kafka.max.block.metadata.ms",
    whole_number,
    default="60000",
    minimum=0,
    maximum=_MAX_INT,
    meaning="How long records wait for their topic's metadata if metadata has its own budget: "
    "with `kafka.max.block.ms.include.metadata=false` or `kafka.max.block.ms=0`.",
)
METADATA_MAX_AGE_MS = Option(
    "kafka.metadata.max.age.ms",
    whole_number,
    default="300000",
    minimum=1,
    maximum=_MAX_INT,
    meaning="The age at which a topic's metadata is fetched again, for instance to find new "
    "partitions.",
)
METADATA_EVICT_MS = Option(
    "kafka.metadata.evict.ms",
    whole_number,
    default="300000",
    minimum=1000,
    maximum=_MAX_INT,
    java_name="kafka.metadata.max.idle.ms",
    meaning="How long the metadata of a topic without new records is kept (KIP-526).",
)
OAUTH_CALLBACK: Option[str | None] = Option(
    "oauth.callback",
    function_name,
    default=None,
    meaning="`package.module:function`, installed on the driver and on all executors: makes the "
    "tokens for `kafka.sasl.mechanism=OAUTHBEARER`. It is called like the `oauth_cb` of "
    "confluent-kafka: with `kafka.sasl.oauthbearer.config`, and returns the token and its expiry "
    "in seconds since the epoch, and perhaps the principal and a dict of SASL extensions. It runs "
    "in a thread of its own, and has 10 s.",
)
ON_RECORD_ERROR = Option(
    "on.record.error",
    one_of("fail", "dead-letter"),
    default="fail",
    meaning="What to do with a record that is refused for its own sake, because of its topic, "
    "partition, timestamp, headers or size: `fail` the task, or send a `dead-letter`. Brokers that "
    "are away always fail the task.",
)
DEAD_LETTER_TOPIC: Option[str | None] = Option(
    "dead.letter.topic",
    topic_name,
    default=None,
    if_absent="none: required for `on.record.error=dead-letter`",
    meaning="Topic for dead letters: the refused records, with headers `kafka-nb.*` that say why. "
    "They are acknowledged before the task succeeds.",
)
DELIVERY_GUARANTEE = Option(
    "delivery.guarantee",
    one_of("at-least-once", "exactly-once"),
    default="at-least-once",
    meaning="`exactly-once` writes every micro-batch of a streaming query in transactions, one per "
    "Spark partition, and skips what an earlier attempt has committed: see "
    "[exactly-once](exactly-once.md).",
)
EXACTLY_ONCE_PARTITIONS: Option[int | None] = Option(
    "exactly.once.partitions",
    whole_number,
    default=None,
    minimum=1,
    maximum=10_000,
    if_absent="none: required for `exactly-once`",
    meaning="How many Spark partitions every micro-batch has. End the query with "
    "`repartition(P, key)`, where key decides on its own where a row goes, or with "
    "`repartition(1)`.",
)
TRANSACTIONAL_ID_PREFIX: Option[str | None] = Option(
    "transactional.id.prefix",
    any_text,
    default=None,
    if_absent="`kafka-nb-` and the query's id",
    meaning="Prefix of the names of transactions, and of the consumer groups that hold the ledger. "
    "Each sink of a query needs its own. Required with `foreach_batch` under Spark Connect.",
)
EXACTLY_ONCE_LEDGER_TOPIC: Option[str | None] = Option(
    "exactly.once.ledger.topic",
    topic_name,
    default=None,
    if_absent="the option `topic`; required without it",
    meaning="An existing topic, which the user may read, for whose partition 0 the ledger's groups "
    "commit offsets. Nothing is written to it.",
)
EXACTLY_ONCE_FIRST_BATCH = Option(
    "exactly.once.first.batch",
    whole_number,
    default="0",
    minimum=0,
    maximum=2**63 - 1,
    meaning="Id of the micro-batch with which the ledger begins. Set it once, to the id that "
    "`LedgerLost` names, to switch an older checkpoint over; it has no effect on later ones.",
)
TRANSACTION_TIMEOUT_MS = Option(
    "kafka.transaction.timeout.ms",
    whole_number,
    default="600000",
    minimum=1000,
    maximum=_MAX_INT,
    meaning="With `exactly-once`: how long a task may take from its first record to its commit. "
    "Meanwhile, readers with `isolation.level=read_committed` wait at its first record. Brokers "
    "allow 15 minutes by default (`transaction.max.timeout.ms`).",
)
PREFLIGHT = Option(
    "preflight",
    true_or_false,
    default="true",
    meaning="Before the first task, the driver checks that a broker answers and accepts the login, "
    "and that the topics of the options exist or may be created, and may be written to. If topic "
    "metadata takes longer than 0.25 s, the topic check is left to the tasks. If the brokers "
    "refuse connections, the first micro-batch fails after 3 s; a later one waits as long as for "
    "metadata.",
)
PRODUCER_CACHE_TIMEOUT = Option(
    "producer.cache.timeout",
    duration_ms,
    default="10m",
    meaning="How long an idle producer stays open (`ms`, `s`, `m` or `h`).",
)
CLIENT_SETTINGS = Option(
    "kafka.*",
    any_text,
    default=None,
    if_absent="the client's",
    meaning="Any other setting of the Java producer under its Java name, such as "
    "`kafka.linger.ms`, `kafka.compression.type` or `kafka.sasl.jaas.config`, and librdkafka's "
    "settings that Java lacks. A setting that cannot be translated is refused with the reason.",
)
REPORT_PATH: Option[str | None] = Option(
    "report.path",
    folder,
    default=None,
    if_absent="none",
    meaning="A folder in which the driver keeps a report on every micro-batch, as lines of JSON: "
    "an absolute path on its machine, or a URI such as `s3://bucket/reports`. One folder per "
    "query. The oldest reports are deleted after 128 MiB, or in an object store after 10,000 "
    "micro-batches.",
)
INCLUDE_HEADERS: Option[bool | None] = Option(
    "includeHeaders",
    true_or_false,
    default=None,
    meaning="Accepted as in Spark's own sink, but has no effect: `headers` are always written.",
)
BATCH_ID: Option[int | None] = Option(
    "batch.id",
    whole_number,
    default=None,
    minimum=0,
    maximum=2**63 - 1,
    meaning="Id of the micro-batch, for error messages, if Spark does not pass it. "
    "`foreach_batch` sets it.",
)

#: all entries above, in the order of docs/options.md
OPTIONS: tuple[Option[Any], ...] = tuple(
    each for each in vars().values() if isinstance(each, Option)
)

#: options that have an effect only with exactly-once
_ONLY_EXACTLY_ONCE: tuple[Option[Any], ...] = (
    EXACTLY_ONCE_PARTITIONS,
    TRANSACTIONAL_ID_PREFIX,
    EXACTLY_ONCE_LEDGER_TOPIC,
    EXACTLY_ONCE_FIRST_BATCH,
    TRANSACTION_TIMEOUT_MS,
)

_NAMES: Mapping[str, str] = {
    name.lower(): name
    for option in OPTIONS
    for name in option.names
    if option is not CLIENT_SETTINGS
}

# Spark passes these to every sink; they are not ours.
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "path"})

# --- reading them --------------------------------------------------------------------------------


@dataclass(frozen=True)
class SinkOptions:
    """Everything that a task needs; checked, picklable, without secrets in its repr."""

    topic: str | None
    close_timeout_ms: int
    preflight: bool
    producer_cache_timeout_ms: int
    batch_id: int | None
    report_path: str | None
    producer: ProducerOptions
    #: None: at-least-once
    exactly_once: ExactlyOnceOptions | None = None

    @property
    def dead_letter_topic(self) -> str | None:
        return self.producer.dead_letter_topic


def at_least_once(options: Mapping[str, str]) -> dict[str, str]:
    """The options without those for exactly-once."""
    left_out = {option.name for option in (DELIVERY_GUARANTEE, *_ONLY_EXACTLY_ONCE)}
    return {name: value for name, value in options.items() if name.lower() not in left_out}


def parse(options: Mapping[str, str]) -> SinkOptions:
    """Check and convert option strings as Spark passes them; case in names does not matter.

    Raises InvalidOption for an option that is unknown, malformed, missing or contradicts another.
    Needs librdkafka, which defines the names and ranges of the client's settings.
    """
    given = {
        name.lower(): _redacted(name.lower(), value)
        for name, value in options.items()
        if name.lower() not in _SPARKS_OWN
    }
    _check_asynchronous_progress(given)
    _check_names(given)
    INCLUDE_HEADERS.read(given)  # without effect, but checked
    topic = TOPIC.read(given)
    producer = _producer_options(given)
    return SinkOptions(
        topic=topic,
        close_timeout_ms=CLOSE_TIMEOUT_MS.read(given),
        preflight=PREFLIGHT.read(given),
        producer_cache_timeout_ms=PRODUCER_CACHE_TIMEOUT.read(given),
        batch_id=BATCH_ID.read(given),
        report_path=REPORT_PATH.read(given),
        producer=producer,
        exactly_once=_exactly_once(given, producer),
    )


def _redacted(name: str, value: str) -> str:
    if name in _NAMES:
        return value
    is_clients = name.startswith(PREFIX)
    return redact_unless_public(name.removeprefix(PREFIX), value) if is_clients else Secret(value)


def _check_names(given: Mapping[str, str]) -> None:
    known = {**_NAMES, **{PREFIX + name: PREFIX + name for name in known_names()}}
    for name in (each for each in given if each not in known):
        hint = _hint(name, known)
        if name.startswith(PREFIX):
            raise InvalidOption(f"{name} is not a setting of the Kafka producer{hint}")
        raise InvalidOption(
            f"unknown option {name}{hint} (settings of the Kafka client begin with {PREFIX})"
        )


def _hint(name: str, known: Mapping[str, str]) -> str:
    other = name.removeprefix(PREFIX) if name.startswith(PREFIX) else PREFIX + name
    if other in known:
        return f"; did you mean {known[other]}?"
    return did_you_mean(name, set(known.values()) - {PREFIX + refused for refused in REFUSED})


def _producer_options(given: Mapping[str, str]) -> ProducerOptions:
    buffer_memory_bytes = BUFFER_MEMORY.read(given)
    settings = {
        name.removeprefix(PREFIX): value
        for name, value in given.items()
        if name.startswith(PREFIX) and name not in _NAMES
    }
    settings[BOOTSTRAP_SERVERS.name.removeprefix(PREFIX)] = BOOTSTRAP_SERVERS.read(given)
    translated = translate(settings, OAUTH_CALLBACK.read(given) or "")
    client = producer_settings(translated, buffer_memory_bytes)
    if buffer_memory_bytes < client.max_request_bytes:
        raise InvalidOption(
            f"{BUFFER_MEMORY.name}={buffer_memory_bytes} is less than "
            f"{MAX_REQUEST_SIZE}={client.max_request_bytes}: the largest records could never be "
            "sent; raise the former or lower the latter"
        )
    return ProducerOptions(
        client=client,
        buffer_memory_bytes=buffer_memory_bytes,
        budget=_block_budget(given),
        lifetime=MetadataLifetime(
            max_age_ms=METADATA_MAX_AGE_MS.read(given), evict_ms=METADATA_EVICT_MS.read(given)
        ),
        dead_letter_topic=_dead_letter_topic(given),
    )


def _dead_letter_topic(given: Mapping[str, str]) -> str | None:
    topic = DEAD_LETTER_TOPIC.read(given)
    if ON_RECORD_ERROR.read(given) == "fail":
        if topic is not None:
            raise InvalidOption(
                f"{DEAD_LETTER_TOPIC.name} has an effect only with "
                f"{ON_RECORD_ERROR.name}=dead-letter; set that, or leave it out"
            )
        return None
    if topic is None:
        raise InvalidOption(
            f"{ON_RECORD_ERROR.name}=dead-letter needs {DEAD_LETTER_TOPIC.name}: the topic for "
            "records that are refused"
        )
    if topic == TOPIC.read(given):
        raise InvalidOption(
            f"{DEAD_LETTER_TOPIC.name} and {TOPIC.name} are both {topic}; a dead letter would be "
            "refused like its record"
        )
    return topic


def _block_budget(given: Mapping[str, str]) -> BlockBudget:
    budget = BlockBudget(
        max_block_ms=MAX_BLOCK_MS.read(given),
        includes_metadata=MAX_BLOCK_MS_INCLUDE_METADATA.read(given),
        max_block_metadata_ms=MAX_BLOCK_METADATA_MS.read(given),
    )
    if budget.is_shared and MAX_BLOCK_METADATA_MS.is_given(given):
        raise InvalidOption(
            f"{MAX_BLOCK_METADATA_MS.name} has an effect only with "
            f"{MAX_BLOCK_MS_INCLUDE_METADATA.name}=false or {MAX_BLOCK_MS.name}=0; "
            "set one of them, or leave it out"
        )
    return budget


def _exactly_once(given: Mapping[str, str], producer: ProducerOptions) -> ExactlyOnceOptions | None:
    wanted = f"{DELIVERY_GUARANTEE.name}=exactly-once"
    if DELIVERY_GUARANTEE.read(given) != "exactly-once":
        for option in _ONLY_EXACTLY_ONCE:
            if option.is_given(given):
                raise InvalidOption(
                    f"{option.name} has an effect only with {wanted}; set that, or leave it out"
                )
        return None
    partitions = EXACTLY_ONCE_PARTITIONS.read(given)
    if partitions is None:
        raise InvalidOption(
            f"{wanted} needs {EXACTLY_ONCE_PARTITIONS.name}: how many Spark partitions every "
            "micro-batch has. End the query with repartition(P, key), or repartition(1)"
        )
    ledger_topic = EXACTLY_ONCE_LEDGER_TOPIC.read(given) or TOPIC.read(given)
    if ledger_topic is None:
        raise InvalidOption(
            f"{wanted} needs {EXACTLY_ONCE_LEDGER_TOPIC.name} if the option {TOPIC.name} is not "
            "set: an existing topic for whose partition 0 it commits offsets"
        )
    prefix = TRANSACTIONAL_ID_PREFIX.read(given)
    if prefix == "":
        raise InvalidOption(
            f"{TRANSACTIONAL_ID_PREFIX.name} is empty; give it a name, or leave it out"
        )
    if producer.dead_letter_topic is not None:
        raise InvalidOption(
            f"{wanted} does not go with {ON_RECORD_ERROR.name}=dead-letter: the client aborts a "
            "transaction when brokers refuse one of its records. Filter such rows in Spark"
        )
    if producer.client["enable.idempotence"].lower() not in ("true", "t", "1"):
        raise InvalidOption(f"{wanted} needs kafka.enable.idempotence=true; leave that out")
    return ExactlyOnceOptions(
        partitions=partitions,
        prefix=prefix,
        ledger_topic=ledger_topic,
        first_batch=EXACTLY_ONCE_FIRST_BATCH.read(given),
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS.read(given),
    )


_ASYNCHRONOUS_PROGRESS = "asyncProgressTrackingEnabled"


def _check_asynchronous_progress(given: Mapping[str, str]) -> None:
    is_on = given.get(_ASYNCHRONOUS_PROGRESS.lower(), "false").strip().lower() != "false"
    if is_on and DELIVERY_GUARANTEE.read(given) == "exactly-once":
        raise InvalidOption(
            f"{DELIVERY_GUARANTEE.name}=exactly-once does not go with {_ASYNCHRONOUS_PROGRESS}: "
            "Spark then does not record every micro-batch before it starts; leave that out"
        )
