"""[both] Writes rows: of a task, through the format or foreach_batch, or on the driver."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from pyspark import TaskContext

from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.errors import InvalidRecord, KafkaSinkError, headline
from spark_kafka_sink.process_limits import explaining_memory_errors
from spark_kafka_sink.report.delivery_report import DeliveryReport, Wait
from spark_kafka_sink.spark.private_api import (
    application_folder,
    require_end_of_rows,
    rows_socket,
    running_batch_id,
    running_query_id,
    running_stage,
)

if TYPE_CHECKING:
    import pyarrow as pa

    from spark_kafka_sink.records.columns import RecordColumns
    from spark_kafka_sink.records.rejection import Origin, RejectedRecords
    from spark_kafka_sink.schemas.serializer import Serializer


class Sender(Protocol):
    """What sends rows: a borrowed producer, or a transaction."""

    #: False: all of them were committed before
    needs_rows: bool
    #: complete when the writer has ended
    report: DeliveryReport

    def prefetch(self, topics: Iterable[str]) -> None:
        """Fetch topics' metadata in the background; without topics, only connect."""

    def send(self, records: RecordColumns) -> None:
        """Send records; raises the first failure of any record of the task."""

    def send_dead_letters(self, rejected: RejectedRecords) -> None:
        """Send dead letters for rows; raises like ``send``."""

    def close(self, timeout_seconds: float) -> None:
        """Wait until all records are acknowledged, or commit the transaction, in that time."""

    def wakeup(self) -> None:
        """Make the thread that sends raise InterruptedError; any other thread may call it."""


class RowWriter:
    """Writes the rows of a task, or on the driver those of a micro-batch. Used once.

    ``serializer``: turns key and value into bytes; None: they are bytes or text already.
    """

    def __init__(self, options: SinkOptions, serializer: Serializer | None, origin: Origin) -> None:
        self._options, self._serializer, self._origin = options, serializer, origin
        self._started = time.monotonic()
        self._waited = Counter[Wait]()
        self._sender: Sender | None = None
        self._is_woken = False

    def write(
        self, batches: Iterable[pa.RecordBatch], check_end: Callable[[], None] = lambda: None
    ) -> None:
        """Send all rows and wait until the brokers have acknowledged or committed them.

        ``check_end`` raises if Spark has not passed all rows; called before they are committed.

        Dead letters too, if there is a topic for them. Raises InvalidRecord, DeliveryFailed,
        TopicUnavailable, MetadataTimeout, BufferExhausted, DeadlineExceeded or LimitReached; with a
        serializer what its ``serialize`` raises; with exactly-once what ``transactions.partition``
        raises; InterruptedError after ``wakeup``.
        """
        options, seconds = self._options, self._options.values[table.CLOSE_TIMEOUT_MS] / 1000
        beginning = _sender(options, self._origin, lambda: self._is_woken)
        with explaining_memory_errors(), beginning as sender:
            self._sender = sender
            if sender.needs_rows:
                rows = _timed(batches, self._waited)
                _send(rows, sender, options, self._origin, self._serializer)
                check_end()
                sender.close(seconds)

    def wakeup(self) -> None:
        """Make ``write``, in another thread, raise InterruptedError if it waits for brokers."""
        self._is_woken = True
        if self._sender is not None:
            self._sender.wakeup()

    @property
    def report(self) -> DeliveryReport:
        """Of what ``write`` has done; complete when it has ended."""
        seconds = time.monotonic() - self._started
        sent = DeliveryReport() if self._sender is None else self._sender.report
        return replace(
            sent,
            tasks=1,
            query_id=self._origin.query_id,
            task_seconds=seconds,
            longest_task_seconds=seconds,
            wait_us=sent.wait_us + self._waited,
        )


def write_partition(
    batches: Iterable[pa.RecordBatch], options: SinkOptions, serializer: Serializer | None = None
) -> DeliveryReport:
    """Write the rows of the task that runs here.

    Raises what ``RowWriter.write`` raises; with exactly-once RowsIncomplete and InvalidOption, too.
    """
    origin = _origin(options)
    if serializer is not None:
        serializer.folder = application_folder()
    writer = RowWriter(options, serializer, origin)
    try:
        if options.exactly_once is None:
            writer.write(batches)
        else:
            rows_socket().close()  # fail now if require_end_of_rows could not work here
            writer.write(batches, require_end_of_rows)
    except BaseException as error:
        path = options.values[table.REPORT_PATH]
        if path is not None:
            from spark_kafka_sink.report.folder import write_failed_task

            failed = replace(writer.report, failed_tasks=1)
            write_failed_task(failed, path, options.write_id or origin.batch_id)
        if isinstance(error, KafkaSinkError):
            # Spark often shows only the first line of a traceback: that is this one.
            raise error.with_traceback(None) from headline(error)
        raise
    return writer.report


def _send(
    batches: Iterable[pa.RecordBatch],
    sender: Sender,
    options: SinkOptions,
    origin: Origin,
    serializer: Serializer | None,
) -> None:
    # Imported here: the driver builds writers, but needs neither Arrow nor a client.
    from spark_kafka_sink.records.arrow import split_by_topic

    rows = 0
    if options.topic:
        # Before the first batch is requested from Spark, so that the two overlap.
        sender.prefetch([options.topic])
    for batch in batches:
        encoded = batch if serializer is None else serializer.serialize(batch, options.topic)
        split = split_by_topic(encoded, options.topic, rows, options.timestamp_column)
        if split.rejected and options.dead_letter_topic is None:
            first = split.rejected[0]
            raise InvalidRecord(f"{origin.place}, row {first.records.rows[0]}: {first.reason}")
        rows += batch.num_rows
        # One request for all new topics, before the first send requests its own.
        sender.prefetch(records.topic for records in split.records)
        for records in split.records:
            sender.send(records)
        for rejected in split.rejected:
            sender.send_dead_letters(rejected)
    sender.prefetch([])  # does nothing after a record; without rows, connects for the next task


def _timed(batches: Iterable[pa.RecordBatch], waited: Counter[Wait]) -> Iterator[pa.RecordBatch]:
    """Yield the batches; add up the time until Spark passes each of them."""
    rest = iter(batches)
    while True:
        started = time.monotonic()
        batch = next(rest, None)
        waited[Wait.ROWS] += round((time.monotonic() - started) * 1e6)
        if batch is None:
            return
        yield batch


def _sender(
    options: SinkOptions, origin: Origin, is_woken: Callable[[], bool]
) -> AbstractContextManager[Sender]:
    """The sender of the rows: a producer that outlives the task, or a transaction of this task.

    ``is_woken``: ends the transaction's wait for earlier ones and the ledger.
    """
    if options.exactly_once is None:
        from spark_kafka_sink.producer.cache import process_cache

        return process_cache().borrow(options, origin)
    from spark_kafka_sink.transactions.partition import exactly_once

    return exactly_once(options, options.exactly_once, origin, is_woken)


def _origin(options: SinkOptions) -> Origin:
    """The task that runs here, as far as known."""
    from spark_kafka_sink.records.rejection import Origin

    context = TaskContext.get()
    set_id = options.values[table.BATCH_ID]
    batch_id = None if set_id is None else str(set_id)
    if context is None:
        return Origin(batch_id=batch_id)
    return Origin(
        running_query_id(context),
        batch_id or running_batch_id(context),
        context.partitionId(),
        running_stage(context),
    )
