"""Replay: the replay of a stream's dead letters, as a job of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

from spark_kafka_sink.config.option_table import (
    DEAD_LETTER_TOPIC,
    DELIVERY_GUARANTEE,
    ON_RECORD_ERROR,
    ONLY_EXACTLY_ONCE,
    REPORT_PATH,
    TOPIC,
)
from spark_kafka_sink.config.options import as_bytes, parse
from spark_kafka_sink.errors import InvalidConfiguration
from spark_kafka_sink.records.rejection import NOT_SERIALIZED
from spark_kafka_sink.tools.job.configuration import Configuration, check, read
from spark_kafka_sink.tools.job.document import Mistake, Place, invalid
from spark_kafka_sink.tools.job.kafka_source import source_options
from spark_kafka_sink.tools.job.model import Trigger
from spark_kafka_sink.tools.job.selection import Selection

# A replay that is killed repeats at most one micro-batch.
_RECORDS_A_MICRO_BATCH = "10000"
# Each row has its topic, a second refusal ends the replay (see Replay), and the folder of reports
# and the ledger belong to the stream's query.
_LEFT_OUT = {
    option.name
    for option in (TOPIC, DEAD_LETTER_TOPIC, ON_RECORD_ERROR, REPORT_PATH, DELIVERY_GUARANTEE)
} | {option.name for option in ONLY_EXACTLY_ONCE}
# Dead letters of an aborted transaction are sent again by the next attempt.
_DEFAULTS = {
    "maxoffsetspertrigger": _RECORDS_A_MICRO_BATCH,
    "kafka.isolation.level": "read_committed",
}


@dataclass(frozen=True)
class Replay:
    """What to replay, and how. ``sql``: the repair, or None.

    ``configuration``: of the job, with Spark's Kafka source and the stream's sink. The sink fails
    at a record that is refused again: the micro-batch is not committed. Nothing is lost, and the
    dead letter topic gets no copies, which a later replay would send as well.
    """

    configuration: Configuration
    dead_letter_topic: str
    selection: Selection
    sql: str | None
    #: errors of dead letters that must be selected by name, since only SQL can repair them
    excluded: frozenset[str]

    @property
    def owner(self) -> str:
        """What a checkpoint belongs to. The SQL may change: it repairs what stopped a replay."""
        return f"{self.dead_letter_topic} {self.selection.arguments()}".rstrip()


def load_replay(
    file: FilePath,
    checkpoint: str,
    selection: Selection,
    sql: str | None = None,
    overrides: Iterable[str] = (),
) -> Replay:
    """From the configuration of the stream that wrote the dead letters.

    ``overrides``: as for ``load``; those of ``source`` are for the source of the replay, not for
    that of the stream. Raises InvalidConfiguration.
    """
    document = read(file, ["source={format: kafka}", *overrides])
    document.override(f"checkpoint={checkpoint}")
    stream = check(document)
    options = stream.job.sink.options
    topic = _dead_letter_topic(stream)
    try:
        source = source_options(options, stream.job.source.options)
    except ValueError as error:
        raise stream.invalid(("sink", "options"), str(error)) from None
    fixed = {"subscribe": topic, "startingoffsets": "earliest", "includeheaders": "true"}
    source = {**_DEFAULTS, **source, **fixed}
    kept = {name: value for name, value in options.items() if name.lower() not in _LEFT_OUT}
    has_formats = stream.sink_options.serialization is not None
    if has_formats and not _is_serialized_again(selection, sql):
        kept = as_bytes(kept)
    job = stream.job.model_copy(
        update={
            "name": f"replay of {stream.job.name}",
            "source": stream.job.source.model_copy(update={"options": source}),
            "sql": None,
            "sink": stream.job.sink.model_copy(
                update={"mode": "foreach_batch", "options": kept, "create_topics": None}
            ),
            "output_mode": "append",
            "trigger": Trigger.model_validate({"availableNow": True}),
            "restart": None,
            "metrics": None,  # the stream may serve them on the same port
            "warm_up": False,
        }
    )
    configuration = replace(stream, job=job, sink_options=parse(kept))
    excluded = NOT_SERIALIZED if has_formats else frozenset[str]()
    return Replay(configuration, topic, selection, sql, excluded)


def _is_serialized_again(selection: Selection, sql: str | None) -> bool:
    """Whether the dead letters are rows that were not serialized, but JSON; all others are.

    Raises InvalidConfiguration.
    """
    chosen = selection.errors & NOT_SERIALIZED
    if not chosen:
        return False
    names = ", ".join(sorted(chosen))
    if chosen != selection.errors:
        what = f"replay {names} alone: the other dead letters are serialized already"
        raise wrong_argument("--error", what)
    if sql is None:
        what = (
            f"{names} needs --sql: these dead letters are JSON, from which the SQL makes columns "
            "that fit the schema, for instance with from_json"
        )
        raise wrong_argument("--error", what)
    return True


def _dead_letter_topic(stream: Configuration) -> str:
    options = {name.lower(): value for name, value in stream.job.sink.options.items()}
    topic = DEAD_LETTER_TOPIC.read(options)
    if topic is None:
        name = DEAD_LETTER_TOPIC.name
        raise stream.invalid(("sink", "options"), f"{name} is required: the topic to replay from")
    return topic


def wrong_argument(name: str, what: str) -> InvalidConfiguration:
    """The error for a mistake on the command line."""
    return invalid([Mistake(Place(name), (), what)])
