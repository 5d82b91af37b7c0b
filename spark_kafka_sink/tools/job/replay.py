"""``jobs/replay_dead_letters.py``: sends dead letters to the topics that they were meant for.

A replay is a job. Its source is the dead letter topic, its sink that of the stream.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from spark_kafka_sink.config import option_table
from spark_kafka_sink.config.client_settings import read_setting
from spark_kafka_sink.config.kerberos import (
    GSSAPI,
    KEYTAB,
    PRINCIPAL,
    SERVICE_NAME,
    is_kerberos,
)
from spark_kafka_sink.config.logins import AWS_MSK_IAM, KERBEROS_MODULE
from spark_kafka_sink.config.option import PREFIX, server_list
from spark_kafka_sink.config.options import drop_formats
from spark_kafka_sink.driver.options import read_options
from spark_kafka_sink.errors import InvalidConfiguration, LibraryUnavailable
from spark_kafka_sink.records.column_table import TIMESTAMP
from spark_kafka_sink.records.rejection import NOT_SERIALIZED
from spark_kafka_sink.secret import Secret
from spark_kafka_sink.tools.job.command import job_parser, run_supervised
from spark_kafka_sink.tools.job.configuration import OPTIONS, Configuration, check, read
from spark_kafka_sink.tools.job.document import Mistake, Place, invalid
from spark_kafka_sink.tools.job.model import Job
from spark_kafka_sink.tools.job.output import Output
from spark_kafka_sink.tools.job.reports import MicroBatch
from spark_kafka_sink.tools.job.restart import DONE, INVALID
from spark_kafka_sink.tools.job.stop import Stop

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_AFTER_FAILURE = (
    "a restarted replay repeats the micro-batch that failed; the figures do not include what was "
    "sent of it. If a record was rejected again, remove the cause, or repair or exclude the record "
    "with --sql. If dead letters expired before they were read, skip them once with "
    "--set source.options.failOnDataLoss=false"
)
# Options of the stream that a replay leaves out: each row has its own topic; the column of restored
# timestamps has a name of its own; a record that is rejected again ends the replay, and does not
# become another dead letter; a replay is too large for the driver; and the folder of reports and
# the ledger belong to the stream's query.
_LEFT_OUT = {
    option_table.TOPIC.name,
    option_table.TIMESTAMP_COLUMN.name,
    option_table.DEAD_LETTER_TOPIC.name,
    option_table.ON_RECORD_ERROR.name,
    option_table.REPORT_PATH.name,
    option_table.DELIVERY_GUARANTEE.name,
    option_table.SEND_FROM.name,
    option_table.DRIVER_MAX_ROWS.name,
    *(option.name for option in option_table.ONLY_WITH_EXACTLY_ONCE),
}
_SOURCE_DEFAULTS = {
    "maxoffsetspertrigger": "10000",  # the most that a killed replay repeats
    # A task's next attempt sends the dead letters of an aborted transaction again.
    "kafka.isolation.level": "read_committed",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the replay; returns the exit code."""
    choice = _parser().parse_args(arguments)
    selection = Selection(
        frozenset(choice.errors), frozenset(choice.topics), choice.since, choice.until
    )
    try:
        replay = load_replay(
            choice.config, choice.checkpoint, selection, choice.sql, choice.overrides
        )
    except (InvalidConfiguration, LibraryUnavailable) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return INVALID
    act = replay.dry_run if choice.dry_run else replay.run
    return run_supervised(replay.configuration.job, act, is_dry=choice.dry_run)


def _parser() -> argparse.ArgumentParser:
    parser = job_parser(
        "replay_dead_letters.py",
        "Sends dead letters to their original topics. The configuration is that of the stream "
        "that wrote them.",
    )
    parser.add_argument(
        "--checkpoint", required=True, metavar="FOLDER", help="keeps the progress of each selection"
    )
    for name, kind in (("error", "the error (kafka-nb.error)"), ("topic", "the topic")):
        parser.add_argument(
            f"--{name}",
            action="append",
            default=[],
            metavar="NAME",
            dest=f"{name}s",
            help=f"selects by {kind}; may be repeated",
        )
    for name, kind in (("since", "from this time on"), ("until", "before this time")):
        parser.add_argument(
            f"--{name}",
            type=_time,
            metavar="TIME",
            help=f"selects records with a timestamp {kind}, such as 2026-01-31T12:00:00Z",
        )
    parser.add_argument(
        "--sql", metavar="QUERY", help="SELECT ... FROM dead_letters: the sink's columns, repaired"
    )
    return parser


def _time(text: str) -> datetime:
    """A date or time in ISO 8601, in UTC unless it says otherwise."""
    try:
        # Python 3.10 does not know Z.
        time = datetime.fromisoformat(text.removesuffix("Z") + "+00:00" * text.endswith("Z"))
    except ValueError:
        what = f"{text} is not a time such as 2026-01-31T12:00:00Z"
        raise argparse.ArgumentTypeError(what) from None
    return time.astimezone(timezone.utc) if time.tzinfo else time.replace(tzinfo=timezone.utc)


@dataclass(frozen=True)
class Selection:
    """Selects dead letters by error, topic and time; an empty set or None selects all.

    ``topics``: those that the records were meant for. ``since`` (inclusive) and ``until``
    (exclusive): the records' timestamps, in UTC.
    """

    errors: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    since: datetime | None = None
    until: datetime | None = None

    def condition(self, excluded_errors: Collection[str] = ()) -> Column:
        """A condition on rows of ``restore_dead_letters``; false for what is no dead letter.

        ``excluded_errors``: errors that must be selected by name.
        """
        from pyspark.sql import functions as F

        error, topic, milliseconds = F.col("error"), F.col("topic"), F.unix_millis("timestamp")
        condition = error.isNotNull()
        if self.errors or excluded_errors:
            condition &= error.isin(*self.errors) if self.errors else ~error.isin(*excluded_errors)
        if self.topics:
            condition &= topic.isin(*self.topics)
        if self.since is not None:
            condition &= milliseconds >= round(self.since.timestamp() * 1000)
        if self.until is not None:
            condition &= milliseconds < round(self.until.timestamp() * 1000)
        return F.coalesce(condition, F.lit(False))

    def checkpoint(self, folder: str, topic: str) -> str:
        """The checkpoint for the dead letters of ``topic``: a folder below ``folder``.

        Each selection has its own, because a replay passes over what it does not select.
        """
        times = (str(self.since), str(self.until))
        parts = (topic, sorted(self.errors), sorted(self.topics), *times)
        return f"{folder.rstrip('/')}/{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


@dataclass(frozen=True)
class Replay:
    """A job that reads dead letters and sends them.

    ``excluded_errors``: the errors that must be selected by name, because only SQL can repair
    their records.
    """

    configuration: Configuration
    selection: Selection
    excluded_errors: frozenset[str]

    def run(self, stop: Stop, output: Output) -> int:
        """Replay all dead letters that exist at the start; returns the exit code."""
        from spark_kafka_sink.tools.job.run import run

        totals = _Totals(output)
        code = run(self.configuration, stop, totals, self.rows)
        if code != DONE:
            output.say(_AFTER_FAILURE)
        by_topic = ", ".join(f"{topic} {sent}" for topic, sent in sorted(totals.sent.items()))
        sent = f"{totals.sent.total()} sent" + (f" ({by_topic})" if by_topic else "")
        output.say(f"{totals.read} records read from the dead letter topic, {sent}")
        return code

    def dry_run(self, _: Stop, output: Output) -> int:
        """Check all but reading; writes nothing, not even the checkpoint. Returns the exit code."""
        from spark_kafka_sink.tools.job.run import dry_run

        return dry_run(self.configuration, output, self.rows)

    def rows(self, spark: SparkSession, configuration: Configuration) -> DataFrame:
        """The selected dead letters, repaired; raises KafkaSinkError."""
        from spark_kafka_sink.spark.dead_letters import require_restoration
        from spark_kafka_sink.tools.job.pipeline import build

        require_restoration()
        return build(spark, configuration, self._select, "dead_letters", _with_timestamp)

    def _select(self, records: DataFrame) -> DataFrame:
        from spark_kafka_sink.spark.dead_letters import restore_dead_letters

        return restore_dead_letters(records).where(self.selection.condition(self.excluded_errors))


def _with_timestamp(rows: DataFrame) -> DataFrame:
    """The rows of ``--sql``; if it leaves the timestamp out, with null, the time of sending."""
    from pyspark.sql import functions as F

    if TIMESTAMP.name in map(str.lower, rows.columns):
        return rows  # in another case, the check of the schema says so
    return rows.withColumn(TIMESTAMP.name, F.lit(None).cast("timestamp"))


class _Totals:
    """An output that adds up what was read and sent."""

    def __init__(self, output: Output) -> None:
        self.show_state, self.say = output.show_state, output.say
        self._output = output
        self.read = 0
        self.sent: Counter[str] = Counter()

    def show_micro_batch(self, micro_batch: MicroBatch) -> None:
        self.read += micro_batch.input_rows
        self.sent += micro_batch.delivered_records() or Counter()
        self._output.show_micro_batch(micro_batch)


def load_replay(
    file: Path, folder: str, selection: Selection, sql: str | None, overrides: Iterable[str] = ()
) -> Replay:
    """The replay for the configuration of the stream that wrote the dead letters.

    ``folder``: for the checkpoints. ``overrides``: as for ``load``, but those of ``source`` apply
    to the replay's source, not to the stream's. Raises InvalidConfiguration.
    """
    document = read(file, ["source={format: kafka}", *overrides])
    document.override(f"checkpoint={folder}", "--checkpoint")
    if sql is not None:
        document.override(f"sql={sql}", "--sql")
    stream = check(document)
    topic = stream.sink_options.dead_letter_topic
    if topic is None:
        name = option_table.DEAD_LETTER_TOPIC.name
        raise stream.invalid(OPTIONS, f"{name} is required: the topic to replay from")
    try:
        source = source_options(stream.job.sink.options, stream.job.source.options)
    except ValueError as error:
        raise stream.invalid(OPTIONS, str(error)) from None
    source |= {"subscribe": topic, "startingoffsets": "earliest", "includeheaders": "true"}
    options = {n: v for n, v in stream.job.sink.options.items() if n.lower() not in _LEFT_OUT}
    options[option_table.TIMESTAMP_COLUMN.name] = TIMESTAMP.name
    has_formats = stream.sink_options.serialization is not None
    unserialized = selection.errors & NOT_SERIALIZED if has_formats else frozenset[str]()
    if has_formats and not unserialized:
        options = drop_formats(options)
    if unserialized and (unserialized != selection.errors or sql is None):
        names = ", ".join(sorted(unserialized))
        what = (
            f"{names}: these dead letters are JSON, the others are serialized already. Select them "
            "alone, and make columns that fit the schema with --sql, for instance by from_json"
        )
        raise invalid([Mistake(Place("--error"), (), what)])
    job = Job.model_validate(
        {
            "name": f"replay of {stream.job.name}",
            "source": {"format": "kafka", "options": _SOURCE_DEFAULTS | source},
            "sql": sql,
            "sink": {"options": options},
            "trigger": {"availableNow": True},
            "checkpoint": selection.checkpoint(folder, topic),
            "stop_timeout_seconds": stream.job.stop_timeout_seconds,
        }
    )
    configuration = Configuration(job, read_options(options), document)
    return Replay(configuration, selection, NOT_SERIALIZED if has_formats else frozenset())


# --- the login of Java's consumer -----------------------------------------------------------------

# Settings for connections and logins, which producers and consumers share.
_SHARED = tuple(
    PREFIX + name for name in ("bootstrap.servers", "client.", "sasl.", "security.protocol", "ssl.")
)
_JAAS = "sasl.jaas.config"
_CALLBACK_HANDLER = "sasl.client.callback.handler.class"
_JAAS_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r"})
_ENDPOINT_CHECK = "ssl.endpoint.identification.algorithm"
_LOGIN_MODULES: Mapping[str, str] = {
    "PLAIN": "plain.PlainLoginModule",
    "SCRAM-SHA-256": "scram.ScramLoginModule",
    "SCRAM-SHA-512": "scram.ScramLoginModule",
}
# Classes of Amazon's library, which has to be among Spark's JARs.
_MSK_IAM_LOGIN: Mapping[str, str] = {
    _JAAS: "software.amazon.msk.auth.iam.IAMLoginModule required;",
    _CALLBACK_HANDLER: "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}
_JAVA_NAMES: Mapping[str, str] = {
    "ssl.ca.pem": "ssl.truststore.location",
    **dict.fromkeys(
        ("ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem"),
        "ssl.keystore.location",
    ),
}

# PEM as text, and the type of store that it needs: Java's default refuses it.
_PEM_TEXTS: Mapping[str, str] = {
    "ssl.truststore.certificates": "ssl.truststore.type",
    "ssl.keystore.key": "ssl.keystore.type",
}


def source_options(sink: Mapping[str, str], source: Mapping[str, str]) -> dict[str, str]:
    """Options of ``format("kafka")`` for reading with the sink's login; names in lower case.

    ``source``: the source's own options, which take precedence. Raises ValueError with a sentence
    that begins with the sink's option that Java's client cannot use.
    """
    own = {name.lower(): value for name, value in source.items()}
    settings = {
        name: read_setting(name, value)
        for option, value in sink.items()
        if option.lower().startswith(_SHARED)
        for name in (option.lower().removeprefix(PREFIX),)
    }
    for name in settings.keys() & _JAVA_NAMES.keys():
        if PREFIX + _JAVA_NAMES[name] not in own:
            raise ValueError(
                f"{PREFIX}{name} is not supported by Java's client, with which Spark reads Kafka; "
                f"use {PREFIX}{_JAVA_NAMES[name]} with a PEM file, which this sink accepts too"
            )
        del settings[name]
    if "bootstrap.servers" in settings:
        settings["bootstrap.servers"] = server_list(settings["bootstrap.servers"])
    has_kerberos = is_kerberos(settings)  # perhaps without a mechanism
    mechanism = settings.pop("sasl.mechanisms", settings.get("sasl.mechanism"))
    mechanism = GSSAPI if has_kerberos else mechanism
    user, password = settings.pop("sasl.username", ""), settings.pop("sasl.password", "")
    own_names = {name: settings.pop(name) for name in (KEYTAB, PRINCIPAL) if name in settings}
    if mechanism is not None:
        settings["sasl.mechanism"] = mechanism
        if _JAAS not in settings and PREFIX + _JAAS not in own:
            if mechanism == GSSAPI:
                settings |= _kerberos_login(own_names, settings)
            else:
                settings |= _login(mechanism, user, password)
        elif own.get(f"{PREFIX}sasl.mechanism", mechanism) == AWS_MSK_IAM:
            settings[_CALLBACK_HANDLER] = _MSK_IAM_LOGIN[_CALLBACK_HANDLER]
    location = settings.pop("ssl.ca.location", None)
    if location is not None:
        settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": location}
    settings |= {kind: "PEM" for text, kind in _PEM_TEXTS.items() if text in settings}
    if settings.get(_ENDPOINT_CHECK, "").lower() == "none":
        settings[_ENDPOINT_CHECK] = ""  # Java's word for it
    return {**{PREFIX + name: value for name, value in settings.items()}, **own}


def _login(mechanism: str, user: str, password: str) -> Mapping[str, str]:
    """The login as Java's settings; raises ValueError for a login that works in Python only."""
    if mechanism == AWS_MSK_IAM:
        return _MSK_IAM_LOGIN
    if mechanism not in _LOGIN_MODULES:
        raise ValueError(
            f"{PREFIX}sasl.mechanism={mechanism}: this login works in Python only, but Spark reads "
            "Kafka with Java's client. Set a login for the source, such as --set "
            f"'source.options.{PREFIX}{_JAAS}=${{env:READER_JAAS}}'"
        )
    module = f"org.apache.kafka.common.security.{_LOGIN_MODULES[mechanism]}"
    user, password = (text.translate(_JAAS_ESCAPES) for text in (user, password))
    return {_JAAS: Secret(f'{module} required username="{user}" password="{password}";')}


def _kerberos_login(named: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """A login with librdkafka's names as Java's; Java has no default for the service's name."""
    options = ["useKeyTab=true storeKey=true"] if KEYTAB in named else ["useTicketCache=true"]
    for name, option in ((KEYTAB, "keyTab"), (PRINCIPAL, "principal")):
        if name in named:
            options.append(f'{option}="{named[name].translate(_JAAS_ESCAPES)}"')
    login = f"com.sun.security.auth.module.{KERBEROS_MODULE} required {' '.join(options)};"
    return {_JAAS: Secret(login), SERVICE_NAME: settings.get(SERVICE_NAME, "kafka")}
