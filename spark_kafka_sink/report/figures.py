"""[both] The table of figures: what each one means, how it adds up, and where it is shown.

``TaskFigures`` are those that tasks count directly; ``report/batch_figures`` adds those that follow
from them. It needs neither Spark nor a client.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime, timezone
from enum import Enum
from functools import partial
from typing import Any

# Parts of a report, in the order of its JSON.
MICRO_BATCH, RECORDS, LOSSES, TIMES, CLIENT, ROUND_TRIPS, ERRORS = range(7)

# What figures by topic count together; neither can be a topic's name.
#: all names that Kafka forbids
FORBIDDEN_NAMES = "(forbidden names)"
#: all topics beyond the number that is kept apart
OTHER_TOPICS = "(other topics)"


def parse_time(text: str) -> datetime:
    """A time of ISO 8601; raises TypeError or ValueError."""
    # Python 3.10 does not know the Z.
    return datetime.fromisoformat(re.sub("Z$", "+00:00", text))


# --- how figures add up, over tasks and over micro-batches ----------------------------------------


def plus(one: Any, other: Any) -> Any:
    """The sum of what is known."""
    return other if one is None else one if other is None else one + other


def largest(one: Any, other: Any) -> Any:
    """The maximum of what is known."""
    return other if one is None else one if other is None else max(one, other)


def smallest(one: Any, other: Any) -> Any:
    """The minimum of what is known."""
    return other if one is None else one if other is None else min(one, other)


def latest(one: Any, other: Any) -> Any:
    """The later one, unless it is empty."""
    return other or one


def plus_by_name(
    one: Mapping[str, Counter[str]], other: Mapping[str, Counter[str]]
) -> dict[str, Counter[str]]:
    nothing = Counter[str]()
    return {name: one.get(name, nothing) + other.get(name, nothing) for name in {**one, **other}}


# --- an entry -------------------------------------------------------------------------------------


class Exported:
    """The metric that exports a figure; those of the same name are one metric.

    ``labels``: besides those of every metric. ``at``: their values for this figure, if it is one
    number; the keys of a figure by topic are its labels' values. ``unit``: s or ns, of a figure in
    milliseconds. ``on_dashboard``: in docs/grafana.json.
    """

    # Not a NamedTuple, which would compile every annotation while a cold worker imports this.
    def __init__(
        self,
        kind: str,
        name: str,
        help_text: str,
        *labels: str,
        at: tuple[str, ...] = (),
        unit: str = "",
        on_dashboard: bool = True,
    ) -> None:
        self.kind, self.name, self.help_text, self.labels = kind, name, help_text, labels
        self.at, self.on_dashboard = at, on_dashboard
        self.scale = {"": 1, "s": 1e-3, "ns": 1e6}[unit]


counter = partial(Exported, "counter")
gauge = partial(Exported, "gauge")


class Kind(Enum):
    """What the values of a figure are; parser and schema follow from it. No number is negative."""

    INTEGER = int
    NUMBER = float
    TEXT = str
    TIMESTAMP = datetime
    INTEGERS_BY_NAME = Counter
    INTEGERS_BY_TOPIC_AND_ERROR = dict


class Figure:
    """An entry of the table.

    ``part``: of a report's JSON; -1: it is not in there. ``meaning``: in docs/report_format.md and
    the schema. ``rule``: how it adds up; None: a sum of tasks has the default, and an interval what
    its latest micro-batch has. ``nullable``: its value may be None, as it is not known, or there is
    none; so is a new one. ``line``: its name on a terminal and on the page of ``python -m
    spark_kafka_sink report``; without one, it is not shown. ``one_of``: the only values.
    ``is_new``: reports of earlier releases lack it; then it is None.
    """

    def __init__(
        self,
        part: int = -1,
        meaning: str = "",
        rule: Callable[[Any, Any], Any] | None = plus,
        *,
        kind: Kind = Kind.INTEGER,
        nullable: bool = False,
        line: str = "",
        metric: Exported | None = None,
        one_of: Sequence[str] = (),
        is_new: bool = False,
    ) -> None:
        self.part, self.meaning, self.rule, self.kind = part, meaning, rule, kind
        self.nullable, self.line, self.metric = nullable or is_new, line, metric
        self.one_of, self.is_new = one_of, is_new


def figure(
    *arguments: Any, default: Any = MISSING, default_factory: Any = MISSING, **named: Any
) -> Any:
    """A field, and its entry, which gets the other arguments; nullable if the default is None.

    Without a default, it is that of the kind: 0, an empty text, no counts.
    """
    entry = Figure(*arguments, nullable=default is None, **named)
    if default is MISSING and default_factory is MISSING:
        default_factory = entry.kind.value
    return field(
        default=default,
        default_factory=default_factory,
        compare=entry.kind is not Kind.TIMESTAMP,
        metadata={"figure": entry},
    )


# The metadata of a field that is only counted, or follows from other figures.
SUM = {"figure": Figure()}
COUNTS = {"figure": Figure(kind=Kind.INTEGERS_BY_NAME)}
MAXIMUM = {"figure": Figure(rule=largest)}
NOT_ADDED = {"figure": Figure(rule=None)}


def table(report: Any) -> dict[str, Figure]:
    """The entries of a class of figures, by name."""
    return {member.name: member.metadata["figure"] for member in fields(report)}


def added_up(one: Any, other: Any) -> dict[str, Any]:
    """What adds up of two reports of one class, by name."""
    return {
        name: figure.rule(getattr(one, name), getattr(other, name))
        for name, figure in table(type(one)).items()
        if figure.rule is not None
    }


class Wait(str, Enum):
    """What a task waits for; the values are names of figures."""

    ROWS = "rows_wait_ms"
    METADATA = "metadata_wait_ms"
    BUFFER = "buffer_wait_ms"
    ACKNOWLEDGEMENT = "acknowledgement_wait_ms"


@dataclass(kw_only=True, init=False, repr=False, eq=False)
class TaskFigures:
    """The figures that tasks count directly."""

    query_id: str | None = figure(
        MICRO_BATCH,
        "Spark's id of the query; null in a batch write, and if no task began",
        latest,
        kind=Kind.TEXT,
        default=None,
    )
    #: the micro-batch's id, in its report; None in a task's, and in a sum
    batch_id: int | None = figure(
        MICRO_BATCH, "Spark's id of the micro-batch; null in a batch write", None, default=None
    )
    outcome: str = figure(
        MICRO_BATCH,
        "of the micro-batch: delivered, or failed (also if the query was stopped during it)",
        None,
        kind=Kind.TEXT,
        default="delivered",
        one_of=("delivered", "failed"),
        metric=counter(
            "spark_kafka_sink_micro_batches_total",
            "Micro-batches that the sink reported, by outcome: delivered or failed.",
            "outcome",
        ),
    )
    #: by the clock of the process that made it, or added it up
    ended_at: datetime = figure(
        MICRO_BATCH,
        "UTC, by the clock of the driver",
        None,
        kind=Kind.TIMESTAMP,
        default_factory=lambda: datetime.now(timezone.utc),
        metric=gauge(
            "spark_kafka_sink_last_delivery_timestamp_seconds",
            "When the latest micro-batch was delivered, in seconds since 1970.",
        ),
    )
    tasks: int = figure(
        MICRO_BATCH,
        "tasks of the micro-batch; with `foreach_batch`, 1 if it failed: their number is not known "
        "then",
        metric=counter(
            "spark_kafka_sink_tasks_total", "Tasks of the micro-batches.", on_dashboard=False
        ),
    )
    failed_tasks: int = figure(
        MICRO_BATCH,
        "tasks that failed or did not end; with `report.path`, the failed attempts if these are "
        "more",
        metric=counter("spark_kafka_sink_failed_tasks_total", "Tasks without a report of success."),
    )
    oldest_timestamp_ms: int | None = figure(
        RECORDS,
        "of acknowledged records with a timestamp from the column that `timestamp.column` names: "
        "the oldest timestamp, in milliseconds since the epoch; null: there is none",
        smallest,
        default=None,
        is_new=True,
    )
    unsent_records: int = figure(
        LOSSES,
        "failed records that were dropped before they were sent",
        line="- dropped before they were sent",
        metric=counter(
            "spark_kafka_sink_unsent_records_total",
            "Failed records that were dropped before they were sent.",
            on_dashboard=False,
        ),
    )
    possibly_persisted_records: int = figure(
        LOSSES,
        "failed records that may be in the topic anyway",
        line="- perhaps in the topic anyway",
        metric=counter(
            "spark_kafka_sink_possibly_persisted_records_total",
            "Failed records that may be in the topic anyway.",
            on_dashboard=False,
        ),
    )
    retried_requests: int | None = figure(
        LOSSES,
        "produce requests that the client repeated; null: not known",
        default=None,
        line="repeated requests",
        metric=counter(
            "spark_kafka_sink_retried_requests_total", "Produce requests that the client repeated."
        ),
    )
    cross_rack_records: int | None = figure(
        LOSSES,
        "acknowledged records whose partition leader is in another rack; null: the client has no "
        "rack (`kafka.client.rack`)",
        default=None,
        line="records to another rack",
        metric=counter(
            "spark_kafka_sink_cross_rack_records_total",
            "Acknowledged records whose partition leader is in another rack than the client.",
            on_dashboard=False,  # only with kafka.client.rack
        ),
        is_new=True,
    )
    metadata_requests: int = figure(
        CLIENT,
        "requests for metadata of topics",
        metric=counter(
            "spark_kafka_sink_metadata_requests_total",
            "Requests for topics' metadata.",
            on_dashboard=False,
        ),
    )
    buffer_peak_bytes: int = figure(
        CLIENT,
        "the most that a task had in its buffer",
        largest,
        metric=gauge(
            "spark_kafka_sink_buffer_peak_bytes",
            "The most that a task of the latest micro-batch had in its buffer.",
        ),
    )
    buffer_memory_bytes: int = figure(
        CLIENT,
        "the size of the buffer, `kafka.buffer.memory`",
        largest,
        metric=gauge("kafka_producer_buffer_total_bytes", "Size of the buffer of a producer."),
    )
    producers_created: int = figure(
        CLIENT,
        "tasks that began with a new producer",
        metric=counter(
            "spark_kafka_sink_producers_created_total", "Tasks that had to create their producer."
        ),
    )
    producers_reused: int = figure(
        CLIENT,
        "tasks that began with a producer of an earlier task",
        metric=counter(
            "spark_kafka_sink_producers_reused_total",
            "Tasks that reused a producer of an earlier task.",
        ),
    )
    broker_error: str = figure(
        ERRORS,
        "the latest error between client and brokers, or empty",
        latest,
        kind=Kind.TEXT,
        line="latest error of a broker",
    )
