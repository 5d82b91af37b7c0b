"""[both] The table of figures: what each one means, how it adds up, and where it is shown.

``TaskFigures`` are those that tasks count directly; ``report/batch_figures`` adds those that follow
from them. It needs neither Spark nor a client.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from datetime import datetime, timezone
from enum import Enum, auto
from functools import cache
from typing import Any

# Parts of a report, in the order of its JSON.
MICRO_BATCH, RECORDS, LOSSES, TIMES, CLIENT, ROUND_TRIPS, ERRORS = range(7)

# What figures by topic count together; neither can be a topic's name.
#: all names that Kafka forbids
FORBIDDEN_NAMES = "(forbidden names)"
#: all topics beyond the number that is kept apart
OTHER_TOPICS = "(other topics)"

_PER_MS = {"s": 1e-3, "ns": 1e6}


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


def added_up(one: Any, other: Any) -> dict[str, Any]:
    """The fields of two reports of one class that add up, by name."""
    report: Any = type(one)
    return {name: rule(getattr(one, name), getattr(other, name)) for name, rule in _rules(report)}


@cache
def _rules(report: Any) -> list[tuple[str, Callable[[Any, Any], Any]]]:
    rules = [(member.name, member.metadata["aggregate"]) for member in fields(report)]
    return [(name, rule) for name, rule in rules if rule is not None]


# --- an entry -------------------------------------------------------------------------------------


class Exported:
    """The metric that exports a figure; those of the same name are one metric.

    ``labels``: besides those of every metric. ``at``: their values for this figure, if it is one
    number; the keys of a figure by topic are its labels' values. ``scale``: the factor of each
    value. ``on_dashboard``: in docs/grafana.json.
    """

    # Not a NamedTuple, which would compile every annotation while a cold worker imports this.
    def __init__(
        self,
        kind: str,
        name: str,
        help_text: str,
        labels: tuple[str, ...],
        at: tuple[str, ...],
        scale: float,
        on_dashboard: bool,
    ) -> None:
        self.kind, self.name, self.help_text, self.labels = kind, name, help_text, labels
        self.at, self.scale, self.on_dashboard = at, scale, on_dashboard


def counter(
    name: str, help_text: str, *labels: str, unit: str = "", on_dashboard: bool = True
) -> Exported:
    """``unit``: s or ns, of a figure in milliseconds."""
    return Exported("counter", name, help_text, labels, (), _PER_MS.get(unit, 1), on_dashboard)


def gauge(
    name: str, help_text: str, *labels: str, at: tuple[str, ...] = (), unit: str = ""
) -> Exported:
    return Exported("gauge", name, help_text, labels, at, _PER_MS.get(unit, 1), True)


class Kind(Enum):
    """What the values of a figure are; parser and schema follow from it. No number is negative."""

    INTEGER = auto()
    NUMBER = auto()
    TEXT = auto()
    TIMESTAMP = auto()
    INTEGERS_BY_NAME = auto()
    INTEGERS_BY_TOPIC_AND_ERROR = auto()


class Figure:
    """An entry of the table.

    ``nullable``: its value may be None, as it is not known, or there is none; so is a new one.
    ``meaning``: in docs/report_format.md and the schema. ``line``: its name on a terminal and on
    the page of ``python -m spark_kafka_sink report``; without one, it is not shown.
    ``one_of``: the only values. ``is_new``: reports of earlier releases lack it; then it is None.
    """

    def __init__(
        self,
        part: int,
        kind: Kind,
        nullable: bool,
        meaning: str,
        line: str,
        metric: Exported | None,
        one_of: Sequence[str],
        is_new: bool,
    ) -> None:
        self.part, self.kind, self.nullable = part, kind, nullable
        self.meaning, self.line = meaning, line
        self.metric, self.one_of, self.is_new = metric, one_of, is_new


def figure(
    part: int,
    kind: Kind,
    meaning: str,
    aggregate: Callable[[Any, Any], Any] | None,
    *,
    default: Any = MISSING,
    default_factory: Any = MISSING,
    line: str = "",
    metric: Exported | None = None,
    one_of: Sequence[str] = (),
    nullable: bool = False,
    is_new: bool = False,
    compare: bool = True,
) -> Any:
    """A field. ``aggregate``: how it adds up.

    None: a sum of tasks has the default, and an interval what its latest micro-batch has.
    """
    entry = Figure(part, kind, nullable or is_new, meaning, line, metric, one_of, is_new)
    metadata = {"aggregate": aggregate, "figure": entry}
    return field(
        default=default, default_factory=default_factory, compare=compare, metadata=metadata
    )


def aggregation(rule: Callable[[Any, Any], Any]) -> dict[str, Any]:
    """The metadata of a field that is no figure itself."""
    return {"aggregate": rule}


class Wait(Enum):
    """What a task waits for; the values are names of figures."""

    ROWS = "rows_wait_ms"
    METADATA = "metadata_wait_ms"
    BUFFER = "buffer_wait_ms"
    ACKNOWLEDGEMENT = "acknowledgement_wait_ms"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class TaskFigures:
    """The figures that tasks count directly."""

    query_id: str | None = figure(
        MICRO_BATCH,
        Kind.TEXT,
        "Spark's id of the query; null in a batch write, and if no task began",
        latest,
        default=None,
        nullable=True,
    )
    #: the micro-batch's id, in its report; None in a task's, and in a sum
    batch_id: int | None = figure(
        MICRO_BATCH,
        Kind.INTEGER,
        "Spark's id of the micro-batch; null in a batch write",
        None,
        default=None,
        nullable=True,
    )
    outcome: str = figure(
        MICRO_BATCH,
        Kind.TEXT,
        "of the micro-batch: delivered, or failed (also if the query was stopped during it)",
        None,
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
        Kind.TIMESTAMP,
        "UTC, by the clock of the driver",
        None,
        default_factory=lambda: datetime.now(timezone.utc),
        compare=False,
        metric=gauge(
            "spark_kafka_sink_last_delivery_timestamp_seconds",
            "When the latest micro-batch was delivered, in seconds since 1970.",
        ),
    )
    tasks: int = figure(
        MICRO_BATCH,
        Kind.INTEGER,
        "tasks of the micro-batch",
        plus,
        default=0,
        metric=counter(
            "spark_kafka_sink_tasks_total", "Tasks of the micro-batches.", on_dashboard=False
        ),
    )
    failed_tasks: int = figure(
        MICRO_BATCH,
        Kind.INTEGER,
        "tasks that failed or did not end; with `report.path`, also failed attempts of tasks that "
        "succeeded later",
        plus,
        default=0,
        metric=counter("spark_kafka_sink_failed_tasks_total", "Tasks without a report of success."),
    )
    oldest_timestamp_ms: int | None = figure(
        RECORDS,
        Kind.INTEGER,
        "of acknowledged records with a timestamp from the column that `timestamp.column` names: "
        "the oldest timestamp, in milliseconds since the epoch; null: there is none",
        smallest,
        default=None,
        is_new=True,
    )
    unsent_records: int = figure(
        LOSSES,
        Kind.INTEGER,
        "failed records that were dropped before they were sent",
        plus,
        default=0,
        line="- dropped before they were sent",
        metric=counter(
            "spark_kafka_sink_unsent_records_total",
            "Failed records that were dropped before they were sent.",
            on_dashboard=False,
        ),
    )
    possibly_persisted_records: int = figure(
        LOSSES,
        Kind.INTEGER,
        "failed records that may be in the topic anyway",
        plus,
        default=0,
        line="- perhaps in the topic anyway",
        metric=counter(
            "spark_kafka_sink_possibly_persisted_records_total",
            "Failed records that may be in the topic anyway.",
            on_dashboard=False,
        ),
    )
    retried_requests: int | None = figure(
        LOSSES,
        Kind.INTEGER,
        "produce requests that the client repeated; null: not known",
        plus,
        default=None,
        line="repeated requests",
        metric=counter(
            "spark_kafka_sink_retried_requests_total", "Produce requests that the client repeated."
        ),
        nullable=True,
    )
    cross_rack_records: int | None = figure(
        LOSSES,
        Kind.INTEGER,
        "acknowledged records whose partition leader is in another rack; null: the client has no "
        "rack (`kafka.client.rack`)",
        plus,
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
        Kind.INTEGER,
        "requests for metadata of topics",
        plus,
        default=0,
        metric=counter(
            "spark_kafka_sink_metadata_requests_total",
            "Requests for topics' metadata.",
            on_dashboard=False,
        ),
    )
    buffer_peak_bytes: int = figure(
        CLIENT,
        Kind.INTEGER,
        "the most that a task had in its buffer",
        largest,
        default=0,
        metric=gauge(
            "spark_kafka_sink_buffer_peak_bytes",
            "The most that a task of the latest micro-batch had in its buffer.",
        ),
    )
    buffer_memory_bytes: int = figure(
        CLIENT,
        Kind.INTEGER,
        "the size of the buffer, `kafka.buffer.memory`",
        largest,
        default=0,
        metric=gauge("kafka_producer_buffer_total_bytes", "Size of the buffer of a producer."),
    )
    producers_created: int = figure(
        CLIENT,
        Kind.INTEGER,
        "tasks that began with a new producer",
        plus,
        default=0,
        metric=counter(
            "spark_kafka_sink_producers_created_total", "Tasks that had to create their producer."
        ),
    )
    producers_reused: int = figure(
        CLIENT,
        Kind.INTEGER,
        "tasks that began with a producer of an earlier task",
        plus,
        default=0,
        metric=counter(
            "spark_kafka_sink_producers_reused_total",
            "Tasks that reused a producer of an earlier task.",
        ),
    )
    broker_error: str = figure(
        ERRORS,
        Kind.TEXT,
        "the latest error between client and brokers, or empty",
        latest,
        default="",
        line="latest error of a broker",
    )
