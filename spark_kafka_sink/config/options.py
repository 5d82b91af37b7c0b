"""[both] Option strings -> SinkOptions."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import filterfalse
from typing import ParamSpec, TypeVar

from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.added_settings import producer_settings
from spark_kafka_sink.config.client_settings import (
    ALIASES,
    IGNORED,
    REJECTED,
    RENAMED,
    known_names,
    redact_unless_public,
    translate,
    without_idempotence,
)
from spark_kafka_sink.config.option import (
    PREFIX,
    ContradictoryOption,
    Notices,
    Option,
    OptionValues,
    check_type,
    option_texts,
)
from spark_kafka_sink.config.producer_options import (
    FROM_DRIVER,
    MAX_REQUEST_SIZE,
    BlockBudget,
    ClientSettings,
    ExactlyOnceOptions,
    MetadataLifetime,
    ProducerOptions,
    RackOptions,
)
from spark_kafka_sink.config.registry_options import REGISTRY_PREFIX, SETTINGS, is_public
from spark_kafka_sink.config.serialization_options import (
    SerializationOptions,
    read_serialization,
    without_unused_registry,
)
from spark_kafka_sink.errors import InvalidOption, KafkaSinkError
from spark_kafka_sink.records.column_table import COLUMNS, TIMESTAMP
from spark_kafka_sink.secret import Secret

T = TypeVar("T")
P = ParamSpec("P")

_NAMES: Mapping[str, str] = {
    name.lower(): name
    for option in table.OPTIONS
    for name in option.names
    if option not in (table.CLIENT_SETTINGS, table.REGISTRY_SETTINGS)
}

# Spark passes these to every sink; they are not ours.
_ASYNCHRONOUS_PROGRESS = "asyncProgressTrackingEnabled"
_ASYNCHRONOUS = _ASYNCHRONOUS_PROGRESS.lower()
_SPARKS_OWN = frozenset(
    {
        "checkpointlocation",
        "queryname",
        "path",
        "asyncprogresstrackingcheckpointintervalms",
    }
)

#: Options without an effect on Spark's own sink, which stand for something that would be missed.
REJECTED_OPTIONS = {
    "databricks.servicecredential": "Databricks' own client uses it to log in, and this client "
    "cannot; set kafka.sasl.mechanism and the login itself (docs/databricks.md)",
}

#: what a misspelt name may mean; nobody sets the others to change something
_OPTIONS_TO_MEAN = frozenset(_NAMES.values()) - {
    table.BATCH_ID.name,
    table.INCLUDE_HEADERS.name,
}

_SERVERS = table.BOOTSTRAP_SERVERS.name
_FROM_DRIVER = f"{table.SEND_FROM.name}=driver"
_BATCH_SIZE = "batch.size"
_PLACEHOLDER = "placeholder:9092"  # lets the other options be checked
#: the sink's own options with the prefix of the client's settings, without it
_CLIENT_OPTIONS = frozenset(name.removeprefix(PREFIX) for name in _NAMES if name.startswith(PREFIX))


@dataclass(frozen=True)
class SinkOptions:
    """Everything that a task needs; checked, picklable, without secrets in its repr.

    ``values``: of all options in the table, as they are set. The other fields are made from several
    of them, and from settings of the clients.
    """

    values: OptionValues
    producer: ProducerOptions
    #: None: at-least-once
    exactly_once: ExactlyOnceOptions | None = None
    #: None: key and value are sent as they are
    serialization: SerializationOptions | None = None
    #: sentences about options that are ignored, and about what others cost
    warnings: tuple[str, ...] = ()
    #: of a write outside of a stream; names the reports of its failed tasks
    write_id: str | None = None

    def with_write_id(self) -> SinkOptions:
        """These options with an id that no other write has."""
        return replace(self, write_id=os.urandom(16).hex())

    def replace_value(self, option: Option[T], value: T) -> SinkOptions:
        """These options with another value of one."""
        by_name = {**self.values.by_name, option.name: value}
        return replace(self, values=OptionValues(by_name))

    @property
    def topic(self) -> str | None:
        return self.values[table.TOPIC]

    @property
    def timestamp_column(self) -> str | None:
        """The column that is the record's timestamp; None: the time of sending is."""
        return self.values[table.TIMESTAMP_COLUMN] or None

    @property
    def is_sent_from_driver(self) -> bool:
        return self.values[table.SEND_FROM] == "driver"

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
    _check_format_sends(options)
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


def check_for_format_batch(options: SinkOptions) -> None:
    """Raise InvalidOption for options that a batch write with the format cannot have."""
    _check_format_sends(options)
    check_for_batch(options)


def _check_format_sends(options: SinkOptions) -> None:
    if options.is_sent_from_driver:
        raise InvalidOption(
            f'{_FROM_DRIVER} needs foreach_batch: with format("kafka-nb"), Spark passes rows only '
            "to its tasks. Use writeStream.foreachBatch(foreach_batch(options)), or mode: "
            "foreach_batch in a job, or call patch_pyspark(); or remove the option"
        )


def check_for_batch(options: SinkOptions) -> None:
    """Raise InvalidOption for options that only a stream can have."""
    if options.exactly_once is not None and options.is_sent_from_driver:
        raise InvalidOption(
            "delivery.guarantee=exactly-once needs an id of the batch: call "
            "foreach_batch(options)(frame, id) with a whole number that grows, such as the time "
            "for which a run is scheduled"
        )
    if options.exactly_once is not None:
        raise InvalidOption(
            "delivery.guarantee=exactly-once needs a streaming query, whose checkpoint gives "
            "every micro-batch an id; a batch write has none. Use writeStream with "
            "trigger(availableNow=True), and inside foreachBatch the function foreach_batch"
        )


def check_batch_id(options: SinkOptions, batch_id: object) -> None:
    """Raise InvalidOption for an id that is no offset, and so cannot be in the ledger.

    None: a batch has no id, as outside of a stream.
    """
    if batch_id is None:
        check_for_batch(options)
        return
    if options.exactly_once is None or (isinstance(batch_id, int) and 0 <= batch_id < 2**63):
        return
    raise InvalidOption(
        f"the id of the batch is {batch_id!r}; delivery.guarantee=exactly-once needs an int from 0 "
        "to 2**63 - 1 that grows, such as the time for which a run is scheduled"
    )


def asks_for_driver(options: Mapping[str, str]) -> bool:
    """Whether options that nobody has checked say ``send.from=driver``."""
    sender = {name.lower(): value for name, value in options.items()}.get(table.SEND_FROM.name, "")
    return sender.strip().lower() == "driver"


def for_warm_up(options: Mapping[str, str]) -> dict[str, str]:
    """The options for rows without columns of the user's, of a stream that writes nothing.

    Those that distinguish producers stay.
    """
    # An empty transaction would be a change in Kafka, and a schema one in the registry; a report
    # would count as one more micro-batch of the stream, and so would one in its checkpoint.
    options_of_query = (
        table.DELIVERY_GUARANTEE,
        *table.ONLY_WITH_EXACTLY_ONCE,
        table.SEND_FROM,
        table.DRIVER_MAX_ROWS,
        table.REPORT_PATH,
        table.TIMESTAMP_COLUMN,
    )
    left_out = {option.name for option in options_of_query} | _SPARKS_OWN | {_ASYNCHRONOUS}
    return {k: v for k, v in drop_formats(options).items() if k.lower() not in left_out}


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


@dataclass(frozen=True)
class OptionReview:
    """All that is wrong with options, and the options without it.

    ``options``: None if they cannot be used even so. ``problems``: the field ``option`` of each is
    the option that is wrong, as the user wrote its name; None if options contradict each other, or
    one is missing.
    """

    options: SinkOptions | None
    problems: tuple[InvalidOption, ...]


def parse(options: Mapping[str, object]) -> SinkOptions:
    """Check and convert options; case in names does not matter, and None is no option.

    The driver completes the result (``driver.options``). Needs librdkafka, which defines the names
    and ranges of the client's settings, but neither a client, files, nor the environment.

    Options of other components are ignored, as by Spark's own sink and Java's client
    (``SinkOptions.warnings``). Raises InvalidOption, with one message for all options that are
    misspelt, malformed, missing or contradict others.
    """
    reviewed = review(options)
    if reviewed.options is None or reviewed.problems:
        raise all_in_one(reviewed.problems)
    return reviewed.options


def all_in_one(problems: Sequence[KafkaSinkError], where: str = "the options") -> KafkaSinkError:
    """One error for all problems; several are an InvalidOption."""
    if len(problems) == 1:
        return problems[0]
    sentences = "; ".join(f"({number}) {problem}" for number, problem in enumerate(problems, 1))
    return InvalidOption(f"{where} have {len(problems)} mistakes: {sentences}")


def review(options: Mapping[str, object], *, is_complete: bool = True) -> OptionReview:
    """Like ``parse``, but returns what is wrong; raises InvalidOption only if a name is no text.

    A wrong option is left out, and the others are read again, so that one mistake does not hide the
    next. From then on, others may contradict each other or lack one only because of that, so it is
    not reported. ``is_complete`` False: nor is it at first, because some options are not known yet.
    """
    typed = {name.lower(): name for name in option_texts(options)}
    foreign = Notices()
    texts, unreadable = _readable(options, typed, foreign)
    has_servers = texts[_SERVERS] != _PLACEHOLDER
    is_complete = is_complete and not unreadable
    problems: list[InvalidOption] = []
    while True:
        notices = copy.deepcopy(foreign)
        result, new_problems = _read(texts, notices)
        wrong = [problem for problem in new_problems if _lower_option(problem) in texts]
        problems += new_problems if is_complete else filterfalse(_is_relative, wrong)
        for problem in wrong:
            texts.pop(_lower_option(problem), None)
        if _SERVERS not in texts:
            has_servers = False
            texts[_SERVERS] = _PLACEHOLDER
        if not wrong:
            break
        is_complete = False
    if result is not None:
        warnings = tuple(_as_typed(warning, typed) for warning in notices.warnings)
        result = replace(result, warnings=warnings)
    in_words = [
        InvalidOption(
            _as_typed(str(problem), typed),
            option=None if _is_relative(problem) else typed.get(_lower_option(problem)),
        )
        for problem in problems
    ]
    return OptionReview(result if has_servers else None, (*unreadable, *in_words))


def _readable(
    options: Mapping[str, object], typed: Mapping[str, str], notices: Notices
) -> tuple[dict[str, str], list[InvalidOption]]:
    """The texts of the options that the sink has, by name in lower case; what is wrong with others.

    There are always servers, so that everything else can be checked.
    """
    texts = {name.lower(): text for name, text in option_texts(options).items()}
    problems = _Problems(_unknown_options(typed, notices))
    for name, value in options.items():
        if _is_known(name.lower()):
            problems.attempt(check_type, name, value)
    wrong = {_lower_option(problem) for problem in problems}
    known = {
        name: _redacted(name, text)
        for name, text in texts.items()
        if _is_known(name) and name not in wrong
    }
    if not known.get(_SERVERS, "").strip():
        if _SERVERS not in wrong:
            problems.attempt(table.BOOTSTRAP_SERVERS.read, texts, notices)
        known[_SERVERS] = _PLACEHOLDER
    return known, problems


def _is_relative(problem: InvalidOption) -> bool:
    """Whether it may be a consequence of another option's absence."""
    return isinstance(problem, ContradictoryOption)


def _lower_option(problem: InvalidOption) -> str:
    return (problem.option or "").lower()


class _Problems(list[InvalidOption]):
    """Collects what is wrong with options."""

    def attempt(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The function's result; None if it raises InvalidOption, which is collected."""
        try:
            return function(*args, **kwargs)
        except InvalidOption as error:
            self.append(error)
            return None


def _is_known(name: str) -> bool:
    is_setting = name.startswith(PREFIX) and name.removeprefix(PREFIX) in known_names()
    return name in _NAMES or is_setting or name.startswith(REGISTRY_PREFIX) or name == _ASYNCHRONOUS


def _unknown_options(typed: Mapping[str, str], notices: Notices) -> list[InvalidOption]:
    """Errors for the names that are misspelt; notes whose the others are."""
    has_format = any(option.name in typed for option in (table.VALUE_FORMAT, table.KEY_FORMAT))
    problems = []
    for lower, name in typed.items():
        if _is_known(lower) or lower in _SPARKS_OWN:
            continue
        if lower in REJECTED_OPTIONS:
            what = REJECTED_OPTIONS[lower]
        elif (meant := _meant(lower, has_format=has_format)) is not None and not (
            # Frameworks put the same option there under a name of their own.
            meant.lower() in typed and lower.removeprefix(PREFIX) in (lower, meant.lower())
        ):
            what = f"it is no option of this sink; did you mean {meant}?"
        else:
            notices.ignore(name, _owner(lower))
            continue
        problems.append(InvalidOption(f"{name}: {what}", option=name))
    return problems


def _meant(name: str, *, has_format: bool) -> str | None:
    """The option that a user meant with an unknown name, if it is not somebody else's."""
    # Imported here and below: tasks have no unknown options.
    from spark_kafka_sink.config.unknown_options import misspelt_option, misspelt_setting, owner

    settings = _settings_to_mean()
    if has_format and name in SETTINGS:  # as in Java's configurations of a schema registry
        return REGISTRY_PREFIX + name
    if not name.startswith(PREFIX):
        return misspelt_option(name, _OPTIONS_TO_MEAN, settings)
    setting = name.removeprefix(PREFIX)
    if setting in _NAMES and (has_format or owner(setting) is None):
        return _NAMES[setting]
    meant = misspelt_setting(setting, settings)
    return None if meant is None else PREFIX + meant


@cache
def _settings_to_mean() -> frozenset[str]:
    """The settings of the producer, without ``kafka.``, that a misspelt name may mean."""
    from spark_kafka_sink.config.unknown_options import owner

    # Java's names are better known than librdkafka's, some of which are a broker's.
    clients = known_names() - REJECTED.keys() - IGNORED.keys() - ALIASES.keys()
    return _CLIENT_OPTIONS | {setting for setting in clients if owner(setting) is None}


def _owner(name: str) -> str:
    from spark_kafka_sink.config.unknown_options import option_owner, setting_owner

    if name.startswith(PREFIX):
        return setting_owner(name.removeprefix(PREFIX))
    return option_owner(name, known_names() | _CLIENT_OPTIONS)


def _as_typed(text: str, typed: Mapping[str, str]) -> str:
    """A message with the names that the user wrote instead of those in the tables."""
    for lower, name in typed.items():
        if "." not in lower or not _is_known(lower):
            continue  # it may be a word of the message
        setting = lower.removeprefix(PREFIX)
        other = _NAMES.get(lower) or (
            PREFIX + RENAMED.get(setting, setting) if lower.startswith(PREFIX) else lower
        )
        if other != name and (other.lower() == lower or other.lower() not in typed):
            word = rf"(?<![\w.]){re.escape(other)}(?![\w]|\.\w)"
            text = re.sub(word, name.replace("\\", r"\\"), text)
    return text


def _redacted(name: str, value: str) -> str:
    if name in _NAMES or name == _ASYNCHRONOUS:
        return value
    if is_public(name.removeprefix(REGISTRY_PREFIX)):
        return value
    is_clients = name.startswith(PREFIX)
    return redact_unless_public(name.removeprefix(PREFIX), value) if is_clients else Secret(value)


def _read(
    texts: Mapping[str, str], notices: Notices
) -> tuple[SinkOptions | None, list[InvalidOption]]:
    """The options, or what is wrong with them, as far as it can be known together."""
    problems = _Problems()
    texts = without_unused_registry(texts, notices)
    values = OptionValues(
        {option.name: problems.attempt(option.read, texts, notices) for option in table.OPTIONS}
    )
    if problems:
        return None, problems
    producer = _producer_options(values, texts, notices, problems)
    client = None if producer is None else producer.client
    exactly_once = problems.attempt(_exactly_once, values, texts, client, notices)
    serialization = problems.attempt(read_serialization, values, texts)
    problems.attempt(_check_timestamp_column, values)
    if values[table.SEND_FROM] != "driver" and table.DRIVER_MAX_ROWS.is_set(texts):
        notices.ignore(table.DRIVER_MAX_ROWS.name, f"only with {_FROM_DRIVER}")
    if problems or producer is None:
        return None, problems
    return SinkOptions(values, producer, exactly_once, serialization), []


def _check_timestamp_column(values: OptionValues) -> None:
    name = values[table.TIMESTAMP_COLUMN]
    if name in COLUMNS and name != TIMESTAMP.name:
        raise InvalidOption(
            f"{table.TIMESTAMP_COLUMN.name}={name}: the column {name} is the record's {name}; name "
            "a column of type timestamp, or remove the option",
            option=table.TIMESTAMP_COLUMN.name,
        )


def _producer_options(
    values: OptionValues, texts: Mapping[str, str], notices: Notices, problems: _Problems
) -> ProducerOptions | None:
    """None: something is wrong with them."""
    buffer_memory_bytes = values[table.BUFFER_MEMORY]
    settings = {
        name.removeprefix(PREFIX): value
        for name, value in texts.items()
        if name.startswith(PREFIX) and name not in _NAMES
    }
    settings[table.BOOTSTRAP_SERVERS.name.removeprefix(PREFIX)] = values[table.BOOTSTRAP_SERVERS]
    callback = values[table.OAUTH_CALLBACK] or ""
    translated = problems.attempt(translate, settings, callback, notices)
    budget = problems.attempt(_block_budget, values, texts)
    dead_letter_topic = problems.attempt(_dead_letter_topic, values)
    rack = problems.attempt(_rack, values)
    if problems or translated is None or budget is None:
        return None
    largest = translated.max_request_bytes
    if buffer_memory_bytes < largest:
        # Java does not compare them; it rejects each record that is larger than its buffer.
        if table.BUFFER_MEMORY.is_set(texts):
            notices.warn(
                f"{table.BUFFER_MEMORY.name}={buffer_memory_bytes} is less than "
                f"{MAX_REQUEST_SIZE}={largest}; {largest} applies to both"
            )
        buffer_memory_bytes = largest
    client = producer_settings(translated, buffer_memory_bytes)
    if _BATCH_SIZE in settings and client[_BATCH_SIZE] != translated[_BATCH_SIZE]:
        notices.warn(
            f"{PREFIX}{_BATCH_SIZE}={translated[_BATCH_SIZE]} is more than a sixteenth of "
            f"{table.BUFFER_MEMORY.name}={buffer_memory_bytes}; {client[_BATCH_SIZE]} applies"
        )
    return ProducerOptions(
        client=client,
        buffer_memory_bytes=buffer_memory_bytes,
        budget=budget,
        lifetime=MetadataLifetime(
            max_age_ms=values[table.METADATA_MAX_AGE_MS],
            evict_ms=values[table.METADATA_EVICT_MS],
        ),
        dead_letter_topic=dead_letter_topic,
        rack=rack,
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


def _exactly_once_partitions(values: OptionValues, notices: Notices) -> int | None:
    partitions = values[table.EXACTLY_ONCE_PARTITIONS]
    if values[table.SEND_FROM] != "driver":
        return partitions
    if partitions is not None:
        notices.ignore(table.EXACTLY_ONCE_PARTITIONS.name, f"no effect with {_FROM_DRIVER}")
    return FROM_DRIVER


def _exactly_once(
    values: OptionValues,
    texts: Mapping[str, str],
    client: ClientSettings | None,
    notices: Notices,
) -> ExactlyOnceOptions | None:
    wanted = f"{table.DELIVERY_GUARANTEE.name}=exactly-once"
    if values[table.DELIVERY_GUARANTEE] != "exactly-once":
        for option in table.ONLY_WITH_EXACTLY_ONCE:
            if not option.is_set(texts):
                continue
            if option is not table.TRANSACTION_TIMEOUT_MS:
                raise InvalidOption(
                    f"{option.name} has an effect only with {wanted}; set that, or remove it"
                )
            notices.ignore(option.name, f"only with {wanted}")  # as in Java without an id
        return None
    if texts.get(_ASYNCHRONOUS, "false").strip().lower() != "false":
        raise InvalidOption(
            f"{wanted} cannot be combined with {_ASYNCHRONOUS_PROGRESS}: with it, Spark does not "
            "record every micro-batch before it starts; remove it"
        )
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
    if client is not None and client["enable.idempotence"] == "false":
        raise InvalidOption(
            f"{wanted} needs kafka.enable.idempotence=true, which {without_idempotence(client)} "
            "switches off; remove it"
        )
    return ExactlyOnceOptions(
        partitions=_exactly_once_partitions(values, notices),
        prefix=prefix,
        ledger_topic=ledger_topic,
        first_batch=values[table.EXACTLY_ONCE_FIRST_BATCH],
        transaction_timeout_ms=values[table.TRANSACTION_TIMEOUT_MS],
    )
