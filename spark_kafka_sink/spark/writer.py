"""Writes one partition, and commits or aborts a micro-batch on the driver."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.errors import InvalidRecord
from spark_kafka_sink.producer.delivery_report import DeliveryReport, total

if TYPE_CHECKING:
    import pyarrow as pa

_log = logging.getLogger("spark_kafka_sink")


@dataclass
class KafkaCommitMessage(WriterCommitMessage):
    """What a task reports to the driver."""

    report: DeliveryReport


def write_partition(batches: Iterable[pa.RecordBatch], options: SinkOptions) -> DeliveryReport:
    """Send all rows and wait until the brokers have acknowledged them: at-least-once.

    Raises InvalidRecord, DeliveryFailed, TopicUnavailable, MetadataTimeout, BufferExhausted or
    DeadlineExceeded.
    """
    # Imported here: the driver builds writers, but needs neither Arrow nor a client.
    from spark_kafka_sink.producer.cache import process_cache
    from spark_kafka_sink.records.arrow import split_by_topic

    with process_cache().lease(options) as lease:
        if options.topic:
            # Before the first batch is requested from Spark, so that the two overlap.
            lease.prefetch([options.topic])
        for number, batch in enumerate(batches):
            try:
                records_by_topic = list(split_by_topic(batch, options.topic))
            except InvalidRecord as error:
                raise InvalidRecord(f"{_place(options)}, Arrow batch {number}: {error}") from None
            # One request for all new topics, before the first send requests its own.
            lease.prefetch(records.topic for records in records_by_topic)
            for records in records_by_topic:
                lease.send(records)
        lease.prefetch([])  # a task without rows connects for the one after it
        return lease.close(options.close_timeout_ms / 1000)


def _place(options: SinkOptions) -> str:
    """``micro-batch 7, partition 3``, as far as known."""
    context = TaskContext.get()
    batch_id = options.batch_id
    if batch_id is None and context is not None:
        batch_id = context.getLocalProperty("streaming.sql.batchId")  # type: ignore[assignment]
    place = [f"micro-batch {batch_id}"] if batch_id is not None else []
    if context is not None:
        place.append(f"partition {context.partitionId()}")
    return ", ".join(place) or "outside Spark"


def log_report(report: DeliveryReport, what: str) -> None:
    """Log a sentence that begins with ``what`` and ends with the records by topic."""
    _log.info("%s %s", what, report.to_json())


def _log_total(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    log_report(total(m.report for m in messages if isinstance(m, KafkaCommitMessage)), what)


class KafkaBatchWriter(DataSourceArrowWriter):
    """``df.write``: Spark calls ``write`` in every task, ``commit`` or ``abort`` on the driver."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> KafkaCommitMessage:
        return KafkaCommitMessage(write_partition(iterator, self._options))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        _log_total(messages, "delivered")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _log_total(messages, "aborted; delivered by the tasks that succeeded:")


class KafkaStreamWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``: like KafkaBatchWriter, for every micro-batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> KafkaCommitMessage:
        return KafkaCommitMessage(write_partition(iterator, self._options))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _log_total(messages, f"micro-batch {batchId} delivered")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _log_total(messages, f"micro-batch {batchId} aborted; delivered by tasks that succeeded:")
