"""[driver] All figures of a micro-batch, in the order of the JSON: tasks need only their own.

JSON, schema, pages and metrics follow from the table; ``docs/figures.py`` (``make figures``) writes
what pages say of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_sink.report.figures import (
    RECORDS,
    ROUND_TRIPS,
    TIMES,
    Figure,
    Kind,
    TaskFigures,
    counter,
    figure,
    gauge,
    largest,
    plus_by_name,
    table,
)

#: that of the JSON lines; it rises when a name disappears or changes its meaning
VERSION = 1


@dataclass(kw_only=True)
class BatchFigures(TaskFigures):
    """All figures of a micro-batch, as its line contains them.

    Those of this class follow from what tasks counted (``DeliveryReport.to_dict``). Times are
    milliseconds, sizes bytes; None: not known.
    """

    records: int = figure(RECORDS, "acknowledged by the brokers, dead letters included")
    sent_bytes: int = figure(RECORDS, "keys and values that were sent")
    records_by_topic: Counter[str] = figure(
        RECORDS,
        "acknowledged records of each topic",
        kind=Kind.INTEGERS_BY_NAME,
        metric=counter(
            "kafka_producer_record_send_total",
            "Records that the brokers acknowledged, dead letters included.",
            "topic",
        ),
    )
    sent_bytes_by_topic: Counter[str] = figure(
        RECORDS,
        "sent bytes of each topic",
        kind=Kind.INTEGERS_BY_NAME,
        metric=counter(
            "kafka_producer_byte_total", "Bytes of the keys and values that were sent.", "topic"
        ),
    )
    busiest_partition: str | None = figure(
        RECORDS,
        "the partition with the most acknowledged records, as `topic-number`; null: there are none",
        None,
        kind=Kind.TEXT,
        default=None,
    )
    busiest_partition_records: int = figure(RECORDS, "its acknowledged records", None)
    failed_records_by_topic: Counter[str] = figure(
        RECORDS,
        "records of each topic that were not acknowledged",
        kind=Kind.INTEGERS_BY_NAME,
        metric=counter("kafka_producer_record_error_total", "Records that failed.", "topic"),
    )
    failed_records_by_error: Counter[str] = figure(
        RECORDS,
        "the same by librdkafka's name for the error, or by the sink's own for records that it "
        "gave up",
        kind=Kind.INTEGERS_BY_NAME,
        metric=counter(
            "spark_kafka_sink_record_errors_total",
            "Records that failed, by the name of the error.",
            "error",
        ),
    )
    dead_letters_by_topic: Mapping[str, Counter[str]] = figure(
        RECORDS,
        "rejected records by intended topic and by error; the topic is empty for null, "
        "`(forbidden names)` for names that Kafka forbids, and `(other topics)` for topics beyond "
        "the 100 with the most",
        plus_by_name,
        kind=Kind.INTEGERS_BY_TOPIC_AND_ERROR,
        metric=counter(
            "spark_kafka_sink_dead_letters_total",
            "Rejected records, by the topic that they were meant for.",
            "topic",
            "error",
        ),
    )
    task_ms: int = figure(
        TIMES,
        "the sum of the tasks' times",
        metric=counter(
            "spark_kafka_sink_task_time_seconds_total",
            "Time of all tasks, waiting included.",
            unit="s",
        ),
    )
    longest_task_ms: int = figure(
        TIMES,
        "the longest task's time",
        largest,
        metric=gauge(
            "spark_kafka_sink_longest_task_seconds",
            "The longest task of the latest micro-batch.",
            unit="s",
        ),
    )
    rows_wait_ms: int = figure(
        TIMES,
        "of `task_ms`: waiting for rows from Spark",
        metric=counter(
            "spark_kafka_sink_rows_wait_time_seconds_total",
            "Time that tasks waited for rows from Spark.",
            unit="s",
        ),
    )
    metadata_wait_ms: int = figure(
        TIMES,
        "of `task_ms`: waiting for metadata of topics",
        metric=counter(
            "kafka_producer_metadata_wait_time_ns_total",
            "Time that tasks waited for topics' metadata.",
            unit="ns",
        ),
    )
    buffer_wait_ms: int = figure(
        TIMES,
        "of `task_ms`: waiting for room in the buffer",
        metric=counter(
            "kafka_producer_bufferpool_wait_time_ns_total",
            "Time that tasks waited for room in the buffer.",
            unit="ns",
        ),
    )
    acknowledgement_wait_ms: int = figure(
        TIMES,
        "of `task_ms`: waiting for acknowledgements at the end of the tasks",
        metric=counter(
            "kafka_producer_flush_time_ns_total",
            "Time that tasks waited for acknowledgements at their end.",
            unit="ns",
        ),
    )
    first_acknowledgement_ms: int | None = figure(
        TIMES,
        "the longest time of any task from its first send to its first acknowledgement; null: "
        "there was none",
        largest,
        metric=gauge(
            "spark_kafka_sink_first_acknowledgement_seconds",
            "The longest time from a task's first send to its first acknowledgement.",
            unit="s",
        ),
        default=None,
    )
    round_trip_p50_ms: float | None = figure(
        ROUND_TRIPS,
        "median time of requests to the slowest broker; null: not known",
        largest,
        kind=Kind.NUMBER,
        metric=gauge(
            "spark_kafka_sink_round_trip_seconds",
            "Round trip of requests to the slowest broker.",
            "quantile",
            at=("0.5",),
            unit="s",
        ),
        default=None,
    )
    round_trip_p99_ms: float | None = figure(
        ROUND_TRIPS,
        "the 99th percentile; null: not known",
        largest,
        kind=Kind.NUMBER,
        line="slowest broker's round trip (p99)",
        metric=gauge(
            "spark_kafka_sink_round_trip_seconds",
            "Round trip of requests to the slowest broker.",
            "quantile",
            at=("0.99",),
            unit="s",
        ),
        default=None,
    )


#: every figure but ``version``, in the order of the JSON
FIGURES: Mapping[str, Figure] = dict(
    sorted(table(BatchFigures).items(), key=lambda pair: pair[1].part)
)
