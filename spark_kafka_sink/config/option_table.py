"""[both] The option table: the only source for parsing, error messages and docs/options.md."""

from __future__ import annotations

from typing import Any

from spark_kafka_sink.config.option import (
    Feature,
    Option,
    any_text,
    duration_ms,
    folder,
    function_name,
    one_of,
    record_name,
    server_list,
    topic_name,
    true_or_false,
    variable_name,
    whole_number,
)
from spark_kafka_sink.config.producer_options import BYTES_PER_RECORD, MAX_REQUEST_SIZE
from spark_kafka_sink.config.registry_options import registry_url

_MAX_INT = 2**31 - 1

BOOTSTRAP_SERVERS = Option(
    "kafka.bootstrap.servers",
    server_list,
    default=None,
    is_required=True,
    if_absent="none: required",
    meaning="Comma-separated `host:port` of some brokers, such as `localhost:9092`. Without a "
    "port, it is 9092.",
)
TOPIC: Option[str | None] = Option(
    "topic",
    topic_name,
    default=None,
    if_absent="the column `topic`",
    meaning="Topic for all rows; wins over the column.",
)
TIMESTAMP_COLUMN: Option[str | None] = Option(
    "timestamp.column",
    any_text,
    default=None,
    if_absent="none: the time of sending",
    meaning="The column, of type timestamp, that is the record's timestamp, such as `event_time`. "
    "Brokers delete records by their timestamps: see [timestamps](format.md#timestamps).",
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
    f"topics: their Arrow batches in full, plus {BYTES_PER_RECORD} per record, and the headers "
    f"that dead letters add. If `{MAX_REQUEST_SIZE}` is larger, that applies.",
)
MAX_BLOCK_MS = Option(
    "kafka.max.block.ms",
    whole_number,
    default="60000",
    minimum=0,
    maximum=_MAX_INT,
    meaning="How long a task waits while that buffer is full, and how long records wait for their "
    "topic's metadata. With `0`, a task never waits for room.",
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
    meaning="That budget; it also applies with `kafka.max.block.ms=0`.",
)
METADATA_MAX_AGE_MS = Option(
    "kafka.metadata.max.age.ms",
    whole_number,
    default="300000",
    minimum=1,
    maximum=_MAX_INT,
    meaning="The age at which a topic's metadata is fetched again, which finds new partitions and "
    "limits, such as `max.message.bytes`.",
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
PARTITIONER_RACK_AWARE = Option(
    "kafka.partitioner.rack.aware",
    true_or_false,
    default="false",
    meaning="`true` sends records without a key to partitions whose leader is in the client's own "
    "rack, if there are any (KIP-1123). Needs `kafka.client.rack` or `client.rack.variable`.",
)
CLIENT_RACK: Option[str | None] = Option(
    "kafka.client.rack",
    any_text,
    default=None,
    meaning="The rack, such as an availability zone, of the executors: a `broker.rack` of the "
    "brokers. [Reports](reports.md) then count the records that went to another one.",
)
CLIENT_RACK_VARIABLE: Option[str | None] = Option(
    "client.rack.variable",
    variable_name,
    default=None,
    meaning="Instead of `kafka.client.rack`, if executors are in several racks: the environment "
    "variable that contains the rack of each executor.",
)
OAUTH_CALLBACK: Option[str | None] = Option(
    "oauth.callback",
    function_name,
    default=None,
    meaning="`package.module:function`, installed on the driver and on all executors: makes the "
    "tokens for `kafka.sasl.mechanism=OAUTHBEARER`. See "
    "[security](security.md#tokens-from-your-own-code).",
)
ON_RECORD_ERROR = Option(
    "on.record.error",
    one_of("fail", "dead-letter"),
    default="fail",
    meaning="What to do with a record that is rejected because of its own content: `fail` the "
    "task, or send a [`dead-letter`](dead_letters.md).",
)
DEAD_LETTER_TOPIC: Option[str | None] = Option(
    "dead.letter.topic",
    topic_name,
    default=None,
    if_absent="none: required for `on.record.error=dead-letter`",
    meaning="Topic for the rejected records, with headers `kafka-nb.*` that give the reason.",
)
DELIVERY_GUARANTEE = Option(
    "delivery.guarantee",
    one_of("at-least-once", "exactly-once"),
    default="at-least-once",
    meaning="`exactly-once` writes every micro-batch of a streaming query in transactions, and "
    "skips what an earlier attempt has committed: see [exactly-once](exactly-once.md).",
)
SEND_FROM = Option(
    "send.from",
    one_of("executors", "driver"),
    default="executors",
    meaning="`driver`, with `foreach_batch`, sends all rows of a micro-batch from the driver's own "
    "process: faster for small micro-batches, and exactly-once in one transaction. See "
    "[from the driver](foreach_batch.md#send-from-the-driver).",
)
DRIVER_MAX_ROWS = Option(
    "driver.max.rows",
    whole_number,
    default="200000",
    minimum=1,
    maximum=2**33 - 2,  # Spark numbers the rows of a partition with 33 bits
    meaning="With `send.from=driver`: how many rows a micro-batch may have. They have to fit into "
    "the memory of the driver.",
)
EXACTLY_ONCE_PARTITIONS: Option[int | None] = Option(
    "exactly.once.partitions",
    whole_number,
    default=None,
    minimum=1,
    maximum=10_000,
    if_absent="none: required for `exactly-once` with the format; `foreach_batch` repartitions",
    only_with=Feature.EXACTLY_ONCE,
    meaning="How many Spark partitions every micro-batch has, at most 10000. The query must end "
    "with `repartition(P, key)` or `repartition(1)`: see [exactly-once](exactly-once.md).",
)
TRANSACTIONAL_ID_PREFIX: Option[str | None] = Option(
    "transactional.id.prefix",
    any_text,
    default=None,
    if_absent="`kafka-nb-` and the query's id",
    only_with=Feature.EXACTLY_ONCE,
    meaning="Prefix of the transactional ids, and of the ledger's consumer groups. Each sink of a "
    "query needs its own. Required with `foreach_batch` under Spark Connect.",
)
EXACTLY_ONCE_LEDGER_TOPIC: Option[str | None] = Option(
    "exactly.once.ledger.topic",
    topic_name,
    default=None,
    if_absent="the option `topic`; required without it",
    only_with=Feature.EXACTLY_ONCE,
    meaning="An existing topic, to which nothing is written: the ledger's consumer groups commit "
    "offsets for its partition 0.",
)
EXACTLY_ONCE_FIRST_BATCH = Option(
    "exactly.once.first.batch",
    whole_number,
    default="0",
    minimum=0,
    maximum=2**63 - 1,
    only_with=Feature.EXACTLY_ONCE,
    meaning="Id of the micro-batch with which the ledger begins. Set it once, to the id that "
    "`LedgerLost` names, to switch an existing query to exactly-once.",
)
TRANSACTION_TIMEOUT_MS = Option(
    "kafka.transaction.timeout.ms",
    whole_number,
    default="600000",
    minimum=1000,
    maximum=_MAX_INT,
    only_with=Feature.EXACTLY_ONCE,
    meaning="With `exactly-once`: how long a task may take from its first record to its commit. "
    "Brokers allow 15 minutes by default (`transaction.max.timeout.ms`).",
)
PREFLIGHT = Option(
    "preflight",
    true_or_false,
    default="true",
    meaning="Before the first task, the driver checks that a broker answers and accepts the login, "
    "and that `topic` and `dead.letter.topic` exist or may be created, and may be written to. "
    "Set `false` if only the executors reach the brokers.",
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
    "settings that Java lacks. Others are [ignored or "
    "rejected](#what-is-ignored-and-what-is-rejected).",
)
VALUE_FORMAT = Option(
    "value.format",
    one_of("bytes", "avro", "json"),
    default="bytes",
    meaning="`avro` or `json` serializes the column `value`, of any type, with a schema in a "
    "[schema registry](schema_registry.md). `bytes` sends a string or binary as it is.",
)
KEY_FORMAT = Option(
    "key.format",
    one_of("bytes", "avro", "json"),
    default="bytes",
    meaning="The same for the column `key`.",
)
VALUE_SCHEMA: Option[str | None] = Option(
    "value.schema",
    any_text,
    default=None,
    if_absent="derived from the column's type",
    only_with=Feature.REGISTRY,
    meaning="The schema of `value`: an Avro schema as JSON, or a JSON Schema.",
)
KEY_SCHEMA: Option[str | None] = Option(
    "key.schema",
    any_text,
    default=None,
    if_absent="derived from the column's type",
    only_with=Feature.REGISTRY,
    meaning="The schema of `key`.",
)
VALUE_RECORD_NAME: Option[str | None] = Option(
    "value.record.name",
    record_name,
    default=None,
    if_absent="`topLevelRecord`",
    only_with=Feature.REGISTRY,
    meaning="The full name, such as `com.acme.Order`, of the record in the derived schema of "
    "`value`; in JSON, its title.",
)
KEY_RECORD_NAME: Option[str | None] = Option(
    "key.record.name",
    record_name,
    default=None,
    if_absent="`topLevelRecord`",
    only_with=Feature.REGISTRY,
    meaning="The full name of the record in the derived schema of `key`.",
)
VALUE_SUBJECT_NAME_STRATEGY = Option(
    "value.subject.name.strategy",
    one_of("topic", "record", "topic-record"),
    default="topic",
    only_with=Feature.REGISTRY,
    meaning="The subject of the schema of `value`: `topic` is `<topic>-value`, `record` the full "
    "name of the record (the title of a JSON Schema), and `topic-record` `<topic>-<name>`. The "
    "latter two need `value.schema` or `value.record.name`.",
)
KEY_SUBJECT_NAME_STRATEGY = Option(
    "key.subject.name.strategy",
    one_of("topic", "record", "topic-record"),
    default="topic",
    only_with=Feature.REGISTRY,
    meaning="The subject of the schema of `key`, likewise.",
)
AUTO_REGISTER_SCHEMAS = Option(
    "auto.register.schemas",
    true_or_false,
    default="true",
    only_with=Feature.REGISTRY,
    meaning="`false` registers nothing: the schema must be in the registry.",
)
USE_LATEST_VERSION = Option(
    "use.latest.version",
    true_or_false,
    default="false",
    only_with=Feature.REGISTRY,
    meaning="`true` writes with the subject's latest schema, which must fit the column. Needs "
    "`auto.register.schemas=false`; rejected with exactly-once.",
)
NORMALIZE_SCHEMAS = Option(
    "normalize.schemas",
    true_or_false,
    default="false",
    only_with=Feature.REGISTRY,
    meaning="`true` lets the registry normalize schemas, so that those which differ only in their "
    "text are one.",
)
SCHEMA_ID_LOCATION = Option(
    "schema.id.location",
    one_of("prefix", "header"),
    default="prefix",
    only_with=Feature.REGISTRY,
    meaning="Where a record has its schema's id: a `prefix` of 5 bytes (a zero and the id), or a "
    "`header` (`__value_schema_id`, `__key_schema_id`) with the schema's GUID.",
)
SCHEMA_REGISTRY_URL: Option[str | None] = Option(
    "schema.registry.url",
    registry_url,
    default=None,
    if_absent="none: required for `avro` and `json`",
    only_with=Feature.REGISTRY,
    meaning="Comma-separated URLs of the schema registry, such as `http://localhost:8081`.",
)
SCHEMA_REGISTRY_TIMEOUT_MS = Option(
    "schema.registry.request.timeout.ms",
    whole_number,
    default="10000",
    minimum=1,
    maximum=_MAX_INT,
    only_with=Feature.REGISTRY,
    meaning="How long one answer of the registry may take, with all attempts.",
)
REGISTRY_SETTINGS = Option(
    "schema.registry.*",
    any_text,
    default=None,
    if_absent="the client's",
    meaning="Other settings of the registry's client, under Confluent's names: "
    "`basic.auth.user.info`, `bearer.auth.*`, `ssl.*.location`, `ssl.key.password`, `proxy`.",
)
REPORT_PATH: Option[str | None] = Option(
    "report.path",
    folder,
    default=None,
    if_absent="none",
    meaning="A folder in which the driver writes a report of every micro-batch, as lines of JSON: "
    "an absolute path on its machine, or a URI that pyarrow supports, such as "
    "`s3://bucket/reports`, without credentials. One folder per query. The oldest reports are "
    "deleted after 128 MiB, or in an object store after about 10,000 micro-batches.",
)
INCLUDE_HEADERS: Option[bool | None] = Option(
    "includeHeaders",
    true_or_false,
    default=None,
    meaning="Has no effect, as in Spark's own sink: `headers` are always written.",
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
    entry for entry in vars().values() if isinstance(entry, Option)
)

ONLY_WITH_REGISTRY = tuple(entry for entry in OPTIONS if entry.only_with is Feature.REGISTRY)
ONLY_WITH_EXACTLY_ONCE = tuple(
    entry for entry in OPTIONS if entry.only_with is Feature.EXACTLY_ONCE
)
