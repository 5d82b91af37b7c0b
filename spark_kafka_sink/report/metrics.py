"""[driver] The metrics of a KafkaSinkListener: of the sink's figures, and of what Spark reports.

Names that begin with ``kafka_producer_`` are those of Kafka's own producer, in its units. All
others use seconds and bytes, as is usual in Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from spark_kafka_sink.report.batch_figures import FIGURES, BatchFigures
from spark_kafka_sink.report.figures import OTHER_TOPICS, Exported, parse_time

#: a value for each combination of labels
Values = dict[tuple[str, ...], float]

#: the labels of every metric
QUERY_LABELS = ("query", "query_id")

#: the series of a counter of one query; topics beyond it are counted together
MAX_SERIES = 1_000

_SECONDS = 1e-3  # per millisecond


@dataclass(frozen=True)
class Metric:
    """A metric, and how it is read from its source.

    ``kind``: counter or gauge. ``labels``: besides ``QUERY_LABELS``. ``source``: the names of what
    it is read from. ``read`` returns an empty mapping if the value is not known, and None to keep
    the previous value.
    """

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    source: str
    read: Callable[[Any], Values | None]


@dataclass(frozen=True)
class QueryEvent:
    """A run of a query started, or ended; ``failures``: 1 if with an error."""

    is_active: int
    failures: int


# --- readers --------------------------------------------------------------------------------------


def _exported() -> Iterator[Metric]:
    """The metrics of the table of figures; those of Kafka's producer first."""
    figures: dict[str, list[tuple[str, Exported]]] = {}
    for name, figure in FIGURES.items():
        if figure.metric is not None:
            figures.setdefault(figure.metric.name, []).append((name, figure.metric))
    for metric in sorted(figures, key=lambda metric: not metric.startswith("kafka_producer_")):
        _, exported = figures[metric][0]
        source = ", ".join(name for name, _ in figures[metric])
        read = _READERS.get(metric) or _figures(figures[metric])
        yield Metric(metric, exported.kind, exported.labels, exported.help_text, source, read)


def _figures(sources: Sequence[tuple[str, Exported]]) -> Callable[[BatchFigures], Values]:
    def read(report: BatchFigures) -> Values:
        values: Values = {}
        for name, exported in sources:
            for labels, number in _numbers(getattr(report, name), exported.at):
                values[labels] = number * exported.scale
        return values

    return read


def _numbers(value: Any, labels: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], float]]:
    """The numbers of a figure by their labels: one, some by topic, or none if it is not known."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _numbers(part, (*labels, name))
    elif value is not None:
        yield labels, value


def _failed_by_topic(report: BatchFigures) -> Values:
    # Topics without failures have 0: a rate needs a value from before the first failure.
    values: Values = {(topic,): 0 for topic in report.records_by_topic}
    return values | {(topic,): n for topic, n in report.failed_records_by_topic.items()}


def _outcomes(report: BatchFigures) -> Values:
    return {(outcome,): report.outcome == outcome for outcome in ("delivered", "failed")}


def _last_delivery(report: BatchFigures) -> Values | None:
    return {(): report.ended_at.timestamp()} if report.outcome == "delivered" else None


# --- the table ------------------------------------------------------------------------------------

# Metrics that need more than one figure's value.
_READERS: Mapping[str, Callable[[BatchFigures], Values | None]] = {
    "kafka_producer_record_error_total": _failed_by_topic,
    "spark_kafka_sink_micro_batches_total": _outcomes,
    "spark_kafka_sink_last_delivery_timestamp_seconds": _last_delivery,
}

#: from a BatchFigures; their table is that of the figures
REPORT_METRICS = tuple(_exported())


def _metric(
    kind: str, name: str, help_text: str, source: str, *labels: str
) -> Callable[[Callable[[Any], Values | None]], Metric]:
    """Make a metric of the function that reads it."""
    return partial(Metric, name, kind, labels, help_text, source)


@_metric(
    "counter",
    "spark_streaming_micro_batches_total",
    "Micro-batches that Spark ended.",
    "durationMs",
)
def _micro_batches(progress: Mapping[str, Any]) -> Values:
    return {(): is_micro_batch(progress)}


@_metric(
    "gauge",
    "spark_streaming_last_micro_batch_timestamp_seconds",
    "When Spark ended the latest micro-batch, in seconds since 1970.",
    "timestamp, durationMs",
)
def _last_micro_batch(progress: Mapping[str, Any]) -> Values | None:
    if not is_micro_batch(progress):
        return None
    started_at = parse_time(progress["timestamp"])
    return {(): started_at.timestamp() + progress["durationMs"]["triggerExecution"] * _SECONDS}


@_metric(
    "counter",
    "spark_streaming_input_rows_total",
    "Rows that Spark read from the sources.",
    "numInputRows",
)
def _input_rows(progress: Mapping[str, Any]) -> Values:
    return {(): progress["numInputRows"] if is_micro_batch(progress) else 0}


@_metric(
    "counter",
    "spark_streaming_duration_seconds_total",
    "Time of the micro-batches, by Spark's phases; triggerExecution is all of it.",
    "durationMs",
    "phase",
)
def _durations(progress: Mapping[str, Any]) -> Values:
    if not is_micro_batch(progress):
        return {}
    return {(phase,): ms * _SECONDS for phase, ms in progress["durationMs"].items()}


@_metric(
    "gauge",
    "spark_streaming_max_offsets_behind_latest",
    "Lag of the source's slowest partition, in records, if the source reports it.",
    "sources[].metrics.maxOffsetsBehindLatest",
    "source",
)
def _offsets_behind(progress: Mapping[str, Any]) -> Values:
    return {(source,): n for source, n in offsets_behind_latest(progress).items()}


@_metric("gauge", "spark_streaming_query_active", "1 while the query runs, then 0.", "is_active")
def _is_active(event: QueryEvent) -> Values:
    return {(): event.is_active}


@_metric(
    "counter",
    "spark_streaming_query_failures_total",
    "How often the query ended with an error.",
    "failures",
)
def _failures(event: QueryEvent) -> Values:
    return {(): event.failures}


#: from Spark's progress of a query, a mapping
PROGRESS_METRICS = (_micro_batches, _last_micro_batch, _input_rows, _durations, _offsets_behind)

#: from a QueryEvent
QUERY_METRICS = (_is_active, _failures)

METRICS = REPORT_METRICS + PROGRESS_METRICS + QUERY_METRICS


# --- values ---------------------------------------------------------------------------------------


@dataclass
class QueryValues:
    """The values of a query's metrics; unknown values are absent, not 0."""

    by_metric: dict[Metric, Values] = field(default_factory=dict)

    def add(self, metrics: Iterable[Metric], source: object) -> None:
        """Add to counters and replace gauges; ``source`` is what these metrics read."""
        for metric in metrics:
            read = metric.read(source)
            if read is None:
                continue
            if metric.kind == "gauge":
                self.by_metric[metric] = read
                continue
            values = self.by_metric.setdefault(metric, {})
            for labels, value in read.items():
                is_over = labels not in values and len(values) >= MAX_SERIES
                series = (OTHER_TOPICS, *labels[1:]) if is_over else labels
                values[series] = values.get(series, 0) + value

    def copy(self) -> QueryValues:
        return QueryValues({metric: dict(values) for metric, values in self.by_metric.items()})


# --- Spark's progress: entries of ``recentProgress``, events of listeners -------------------------


def is_micro_batch(progress: Mapping[str, Any]) -> bool:
    """False for the progress of an idle query, which has the id of the next micro-batch."""
    return "addBatch" in progress["durationMs"]


def offsets_behind_latest(progress: Mapping[str, Any]) -> dict[str, int]:
    """How far the slowest partition of each source is behind the latest record.

    Only for sources that report it, such as Spark's Kafka source. Of sources with the same name,
    the largest counts.
    """
    behind: dict[str, int] = {}
    for source in progress["sources"]:
        lag = (source.get("metrics") or {}).get("maxOffsetsBehindLatest")
        if lag is not None:
            name = source["description"]
            behind[name] = max(int(lag), behind.get(name, 0))
    return behind
