"""Writes one partition, and commits or aborts a micro-batch on the driver."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
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

    from spark_kafka_sink.producer.cache import Lease
    from spark_kafka_sink.records.dead_letter import Origin
    from spark_kafka_sink.transactions.partition import PartitionTransaction

_log = logging.getLogger("spark_kafka_sink")


@dataclass
class KafkaCommitMessage(WriterCommitMessage):
    """What a task reports to the driver."""

    report: DeliveryReport
    query_id: str | None = None


def write_partition(batches: Iterable[pa.RecordBatch], options: SinkOptions) -> DeliveryReport:
    """Send all rows and wait until the brokers have acknowledged or committed them.

    With a topic for dead letters, these too. Raises InvalidRecord, DeliveryFailed,
    TopicUnavailable, MetadataTimeout, BufferExhausted or DeadlineExceeded, and with exactly-once
    what ``transactions.partition`` raises.
    """
    # Imported here: the driver builds writers, but needs neither Arrow nor a client.
    from spark_kafka_sink.records.arrow import split_by_topic

    rows = 0
    with _lease(options, _origin(options)) as lease:
        if options.topic:
            # Before the first batch is requested from Spark, so that the two overlap.
            lease.prefetch([options.topic])
        for batch in batches:
            split = split_by_topic(batch, options.topic, first_row=rows)
            if split.refused and options.dead_letter_topic is None:
                first = split.refused[0]
                raise InvalidRecord(
                    f"{_place(options)}, row {first.records.rows[0]}: {first.reason}"
                )
            rows += batch.num_rows
            # One request for all new topics, before the first send requests its own.
            lease.prefetch(records.topic for records in split.records)
            for records in split.records:
                lease.send(records)
            for refused in split.refused:
                lease.send_dead_letters(refused)
        lease.prefetch([])  # a task without rows connects for the one after it
        return lease.close(options.close_timeout_ms / 1000)


def _lease(
    options: SinkOptions, origin: Origin
) -> AbstractContextManager[Lease | PartitionTransaction]:
    """What sends the rows: a producer that outlives the task, or a transaction of its own."""
    if options.exactly_once is None:
        from spark_kafka_sink.producer.cache import process_cache

        return process_cache().lease(options, origin)
    from spark_kafka_sink.transactions.partition import exactly_once

    return exactly_once(options, origin)


def seal(options: SinkOptions, query_id: str | None, batch_id: int, tasks: int) -> None:
    """On the driver: note that all tasks of a micro-batch have committed, if the options say so.

    Raises what ``transactions.sentinel.seal`` raises.
    """
    if options.exactly_once is None:
        return
    from spark_kafka_sink.transactions import partition, sentinel

    prefix = partition.prefix_of(options.exactly_once, query_id)
    sentinel.seal(options, options.exactly_once, prefix, batch_id, tasks)


def _origin(options: SinkOptions) -> Origin:
    """The task that runs here, as far as known."""
    from spark_kafka_sink.records.dead_letter import Origin

    context = TaskContext.get()
    given = None if options.batch_id is None else str(options.batch_id)
    if context is None:
        return Origin(batch_id=given)
    return Origin(
        context.getLocalProperty("sql.streaming.queryId"),
        given or context.getLocalProperty("streaming.sql.batchId"),
        context.partitionId(),
    )


def _place(options: SinkOptions) -> str:
    """``micro-batch 7, partition 3``, as far as known."""
    origin = _origin(options)
    place = [f"micro-batch {origin.batch_id}"] if origin.batch_id is not None else []
    if origin.task_partition is not None:
        place.append(f"partition {origin.task_partition}")
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
        report = write_partition(iterator, self._options)
        return KafkaCommitMessage(report, _origin(self._options).query_id)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        query_ids = (m.query_id for m in messages if isinstance(m, KafkaCommitMessage))
        seal(self._options, next(query_ids, None), batchId, len(messages))
        _log_total(messages, f"micro-batch {batchId} delivered")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _log_total(messages, f"micro-batch {batchId} aborted; delivered by tasks that succeeded:")
