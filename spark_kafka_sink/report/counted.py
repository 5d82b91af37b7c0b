"""The table of figures, first half: those that tasks count directly.

Every task imports it, so it needs neither Spark nor a client, and its class has no methods. What
follows from a figure: ``figure(...)``. The other half: ``figures``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum

from spark_kafka_sink.report.figure import (
    CLIENT,
    ERRORS,
    LOSSES,
    MICRO_BATCH,
    counter,
    figure,
    gauge,
    largest,
    latest,
    plus,
)


class Wait(Enum):
    """What a task waits for; the values are names of figures."""

    ROWS = "rows_wait_ms"
    METADATA = "metadata_wait_ms"
    BUFFER = "buffer_wait_ms"
    ACKNOWLEDGEMENT = "acknowledgement_wait_ms"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False, match_args=False)
class Counted:
    """The figures that tasks count directly."""

    query_id: str | None = figure(
        MICRO_BATCH,
        "Spark's id of the query; null in a batch write, and if no task began",
        latest,
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
        default_factory=lambda: datetime.now(timezone.utc),
        compare=False,
        metric=gauge(
            "spark_kafka_sink_last_delivery_timestamp_seconds",
            "When the latest micro-batch was delivered, in seconds since 1970.",
        ),
    )
    tasks: int = figure(
        MICRO_BATCH,
        "tasks of the micro-batch",
        plus,
        default=0,
        metric=counter(
            "spark_kafka_sink_tasks_total", "Tasks of the micro-batches.", on_dashboard=False
        ),
    )
    failed_tasks: int = figure(
        MICRO_BATCH,
        "tasks that failed or did not end; with `report.path`, also failed attempts of tasks that "
        "succeeded later",
        plus,
        default=0,
        metric=counter("spark_kafka_sink_failed_tasks_total", "Tasks without a report of success."),
    )
    unsent_records: int = figure(
        LOSSES,
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
        "produce requests that the client repeated; null: not known",
        plus,
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
        "the size of the buffer, `kafka.buffer.memory`",
        largest,
        default=0,
        metric=gauge("kafka_producer_buffer_total_bytes", "Size of the buffer of a producer."),
    )
    producers_created: int = figure(
        CLIENT,
        "tasks that began with a new producer",
        plus,
        default=0,
        metric=counter(
            "spark_kafka_sink_producers_created_total", "Tasks that had to create their producer."
        ),
    )
    producers_reused: int = figure(
        CLIENT,
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
        "the latest error between client and brokers, or empty",
        latest,
        default="",
        line="latest error of a broker",
    )
