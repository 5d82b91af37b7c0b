"""The metrics of a KafkaSinkListener: one table, from which exporter, tests and pages are made.

Names that begin with ``kafka_producer_`` are those of Kafka's own producer, in its units. All
others use seconds and bytes, as is usual in Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from spark_kafka_sink.records.topic_name import OTHER_TOPICS
from spark_kafka_sink.report.progress import is_micro_batch, offsets_behind_latest
from spark_kafka_sink.report.reading import Report

#: a value for each combination of labels
Values = dict[tuple[str, ...], float]

#: the labels of every metric
QUERY_LABELS = ("query", "query_id")

#: the series of a counter of one query; topics beyond it are counted together
MOST_SERIES = 1_000

_SECONDS = 1e-3  # per millisecond
_NANOSECONDS = 1e6


@dataclass(frozen=True)
class Metric:
    """A metric, and how it is read from what was told.

    ``labels``: besides ``QUERY_LABELS``. ``source``: the names of what it is read from. ``read``
    returns an empty mapping if the value is not known, and None if what was told leaves it as it
    is.
    """

    name: str
    kind: Literal["counter", "gauge"]
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


def _counter(name: str, help_text: str, source: str, scale: float = 1) -> Metric:
    return Metric(name, "counter", (), help_text, source, _number(source, scale))


def _gauge(name: str, help_text: str, source: str, scale: float = 1) -> Metric:
    return Metric(name, "gauge", (), help_text, source, _number(source, scale))


def _counter_by(label: str, name: str, help_text: str, source: str) -> Metric:
    def read(report: Report) -> Values:
        return {(key,): value for key, value in getattr(report, source).items()}

    return Metric(name, "counter", (label,), help_text, source, read)


def _number(source: str, scale: float) -> Callable[[Report | QueryEvent], Values]:
    def read(told: Report | QueryEvent) -> Values:
        value = getattr(told, source)
        return {} if value is None else {(): value * scale}

    return read


def _failed_by_topic(report: Report) -> Values:
    # 0 for topics without failures: a rate needs a value from before the first failure.
    values: Values = {(topic,): 0 for topic in report.records_by_topic}
    return values | {(topic,): n for topic, n in report.failed_records_by_topic.items()}


def _dead_letters(report: Report) -> Values:
    by_topic = report.dead_letters_by_topic
    return {(topic, error): n for topic in by_topic for error, n in by_topic[topic].items()}


def _outcomes(report: Report) -> Values:
    return {(outcome,): report.outcome == outcome for outcome in ("delivered", "failed")}


def _last_delivery(report: Report) -> Values | None:
    return {(): report.ended_at.timestamp()} if report.outcome == "delivered" else None


def _round_trip(report: Report) -> Values:
    told = {"0.5": report.round_trip_p50_ms, "0.99": report.round_trip_p99_ms}
    return {(quantile,): ms * _SECONDS for quantile, ms in told.items() if ms is not None}


def _micro_batches(progress: Mapping[str, Any]) -> Values:
    return {(): is_micro_batch(progress)}


def _last_micro_batch(progress: Mapping[str, Any]) -> Values | None:
    if not is_micro_batch(progress):
        return None
    # Python 3.10 does not know the Z.
    started_at = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))
    return {(): started_at.timestamp() + progress["durationMs"]["triggerExecution"] * _SECONDS}


def _input_rows(progress: Mapping[str, Any]) -> Values:
    return {(): progress["numInputRows"] if is_micro_batch(progress) else 0}


def _durations(progress: Mapping[str, Any]) -> Values:
    if not is_micro_batch(progress):
        return {}
    return {(phase,): ms * _SECONDS for phase, ms in progress["durationMs"].items()}


def _behind(progress: Mapping[str, Any]) -> Values:
    return {(source,): n for source, n in offsets_behind_latest(progress).items()}


# --- the table ------------------------------------------------------------------------------------

#: from a Report
REPORT_METRICS = (
    _counter_by(
        "topic",
        "kafka_producer_record_send_total",
        "Records that the brokers acknowledged, dead letters included.",
        "records_by_topic",
    ),
    _counter_by(
        "topic",
        "kafka_producer_byte_total",
        "Bytes of the keys and values that were sent.",
        "sent_bytes_by_topic",
    ),
    Metric(
        "kafka_producer_record_error_total",
        "counter",
        ("topic",),
        "Records that failed.",
        "failed_records_by_topic",
        _failed_by_topic,
    ),
    _counter(
        "kafka_producer_metadata_wait_time_ns_total",
        "Time that tasks waited for topics' metadata.",
        "metadata_wait_ms",
        _NANOSECONDS,
    ),
    _counter(
        "kafka_producer_bufferpool_wait_time_ns_total",
        "Time that tasks waited for room in the buffer.",
        "buffer_wait_ms",
        _NANOSECONDS,
    ),
    _counter(
        "kafka_producer_flush_time_ns_total",
        "Time that tasks waited for acknowledgements at their end.",
        "acknowledgement_wait_ms",
        _NANOSECONDS,
    ),
    _gauge(
        "kafka_producer_buffer_total_bytes",
        "Room in the buffer of a producer.",
        "buffer_memory_bytes",
    ),
    Metric(
        "spark_kafka_sink_micro_batches_total",
        "counter",
        ("outcome",),
        "Micro-batches that the sink reported, by outcome: delivered or failed.",
        "outcome",
        _outcomes,
    ),
    Metric(
        "spark_kafka_sink_last_delivery_timestamp_seconds",
        "gauge",
        (),
        "When the latest micro-batch was delivered, in seconds since 1970.",
        "ended_at",
        _last_delivery,
    ),
    _counter_by(
        "error",
        "spark_kafka_sink_record_errors_total",
        "Records that failed, by librdkafka's name of the error.",
        "failed_records_by_error",
    ),
    Metric(
        "spark_kafka_sink_dead_letters_total",
        "counter",
        ("topic", "error"),
        "Refused records, by the topic that they were meant for.",
        "dead_letters_by_topic",
        _dead_letters,
    ),
    _counter(
        "spark_kafka_sink_unsent_records_total",
        "Failed records that were dropped before they were sent.",
        "unsent_records",
    ),
    _counter(
        "spark_kafka_sink_possibly_persisted_records_total",
        "Failed records that may be in the topic anyway.",
        "possibly_persisted_records",
    ),
    _counter(
        "spark_kafka_sink_retried_requests_total",
        "Produce requests that the client repeated.",
        "retried_requests",
    ),
    _counter(
        "spark_kafka_sink_cross_rack_records_total",
        "Acknowledged records whose partition leader is in another rack than the client.",
        "cross_rack_records",
    ),
    _counter("spark_kafka_sink_tasks_total", "Tasks of the micro-batches.", "tasks"),
    _counter(
        "spark_kafka_sink_failed_tasks_total",
        "Tasks without a report of success.",
        "failed_tasks",
    ),
    _counter(
        "spark_kafka_sink_task_time_seconds_total",
        "Time of all tasks, waiting included.",
        "task_ms",
        _SECONDS,
    ),
    _counter(
        "spark_kafka_sink_rows_wait_time_seconds_total",
        "Time that tasks waited for rows from Spark.",
        "rows_wait_ms",
        _SECONDS,
    ),
    _gauge(
        "spark_kafka_sink_longest_task_seconds",
        "The longest task of the latest micro-batch.",
        "longest_task_ms",
        _SECONDS,
    ),
    _gauge(
        "spark_kafka_sink_first_acknowledgement_seconds",
        "The longest time from a task's first send to its first acknowledgement.",
        "first_acknowledgement_ms",
        _SECONDS,
    ),
    Metric(
        "spark_kafka_sink_round_trip_seconds",
        "gauge",
        ("quantile",),
        "Round trip of requests to the slowest broker.",
        "round_trip_p50_ms, round_trip_p99_ms",
        _round_trip,
    ),
    _gauge(
        "spark_kafka_sink_buffer_peak_bytes",
        "The most that a task of the latest micro-batch had in its buffer.",
        "buffer_peak_bytes",
    ),
    _counter(
        "spark_kafka_sink_metadata_requests_total",
        "Requests for topics' metadata.",
        "metadata_requests",
    ),
    _counter(
        "spark_kafka_sink_producers_created_total",
        "Tasks that had to create their producer.",
        "producers_created",
    ),
    _counter(
        "spark_kafka_sink_producers_reused_total",
        "Tasks that took over a producer of an earlier task.",
        "producers_reused",
    ),
)

#: from Spark's progress of a query, a mapping
PROGRESS_METRICS = (
    Metric(
        "spark_streaming_micro_batches_total",
        "counter",
        (),
        "Micro-batches that Spark ended.",
        "durationMs",
        _micro_batches,
    ),
    Metric(
        "spark_streaming_last_micro_batch_timestamp_seconds",
        "gauge",
        (),
        "When Spark ended the latest micro-batch, in seconds since 1970.",
        "timestamp, durationMs",
        _last_micro_batch,
    ),
    Metric(
        "spark_streaming_input_rows_total",
        "counter",
        (),
        "Rows that Spark read from the sources.",
        "numInputRows",
        _input_rows,
    ),
    Metric(
        "spark_streaming_duration_seconds_total",
        "counter",
        ("phase",),
        "Time of the micro-batches, by Spark's phases; triggerExecution is all of it.",
        "durationMs",
        _durations,
    ),
    Metric(
        "spark_streaming_max_offsets_behind_latest",
        "gauge",
        ("source",),
        "Lag of the source's slowest partition, in records, if the source tells it.",
        "sources[].metrics.maxOffsetsBehindLatest",
        _behind,
    ),
)

#: from a QueryEvent
QUERY_METRICS = (
    _gauge("spark_streaming_query_active", "1 while the query runs, then 0.", "is_active"),
    _counter(
        "spark_streaming_query_failures_total",
        "How often the query ended with an error.",
        "failures",
    ),
)

METRICS = REPORT_METRICS + PROGRESS_METRICS + QUERY_METRICS


# --- values ---------------------------------------------------------------------------------------


@dataclass
class QueryValues:
    """The values of a query's metrics; what nobody has told is absent, not 0."""

    of: dict[Metric, Values] = field(default_factory=dict)

    def add(self, metrics: Iterable[Metric], told: object) -> None:
        """Add to counters and replace gauges; ``told`` is what these metrics read."""
        for metric in metrics:
            read = metric.read(told)
            if read is None:
                continue
            if metric.kind == "gauge":
                self.of[metric] = read
                continue
            values = self.of.setdefault(metric, {})
            for given, value in read.items():
                is_over = given not in values and len(values) >= MOST_SERIES
                labels = (OTHER_TOPICS, *given[1:]) if is_over else given
                values[labels] = values.get(labels, 0) + value

    def copy(self) -> QueryValues:
        return QueryValues({metric: dict(values) for metric, values in self.of.items()})
