"""[driver] Sends the rows of a micro-batch from the driver's own process (``send.from=driver``).

One thread reads the rows as Spark computes them, and does not wait for brokers, because Spark's
scheduler waits while nobody reads. Another one sends. The thread of the query waits for both, and
notices when the query is stopped. The rows of a micro-batch are bounded, so that they fit into
memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from threading import Event
from typing import TYPE_CHECKING

from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import FROM_DRIVER
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver.preflight import check
from spark_kafka_sink.errors import KafkaSinkError, MicroBatchTooLarge
from spark_kafka_sink.producer.cache import process_cache
from spark_kafka_sink.records.rejection import Origin
from spark_kafka_sink.spark import private_api
from spark_kafka_sink.spark.micro_batch import HEAP_SHARE
from spark_kafka_sink.spark.task import RowWriter
from spark_kafka_sink.threads import start_call

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from spark_kafka_sink.report.delivery_report import DeliveryReport
    from spark_kafka_sink.schemas.serializer import Serializer

# How soon query.stop() is noticed while brokers are waited for.
_LOOK_SECONDS = 0.1
# For a sender that is woken up: it aborts its transaction, or drops its records.
_ABORT_SECONDS = 6.0
# So long without rows, and tasks whose results Spark has not handled: it never will.
_LOST_RESULTS_SECONDS = 30.0
_IN_TASKS = f"{table.SEND_FROM.name}=executors"
# Of monotonically_increasing_id, whose other bits are the partition.
_ROW_NUMBER = 2**33 - 1


class DriverSend:
    """Sends one micro-batch. ``report``: complete when ``run`` has returned or raised."""

    #: for the ledger
    partitions = FROM_DRIVER

    def __init__(
        self,
        frame: DataFrame,
        options: SinkOptions,
        serializer: Serializer | None,
        query_id: str | None,
    ) -> None:
        self._frame, self.options = frame, options
        self._is_in_stream = private_api.is_in_query(query_id)
        self._max_rows = options.values[table.DRIVER_MAX_ROWS]
        batch_id = options.values[table.BATCH_ID]
        origin = Origin(query_id, None if batch_id is None else str(batch_id))
        self._writer = RowWriter(options, serializer, origin)
        self._rows = _RowQueue()
        self._is_complete = False
        self._may_be_committed = options.exactly_once is not None and options.exactly_once.is_batch

    @property
    def report(self) -> DeliveryReport:
        return replace(self._writer.report, failed_tasks=int(not self._is_complete))

    def run(self) -> None:
        """Send all rows of the frame, and wait until the brokers have acknowledged them.

        Of a batch with exactly-once, Spark computes nothing before the ledger says that it must.
        Raises MicroBatchTooLarge, InterruptedError if the query is stopped, Spark's error if a row
        cannot be computed, and what ``RowWriter.write`` raises.
        """
        spark = self._frame.sparkSession
        sending = start_call(self._writer.write, "sender", self._rows)
        sending.add_done_callback(lambda _: self._rows.are_needed.set())
        try:
            while self._may_be_committed and not self._rows.are_needed.wait(_LOOK_SECONDS):
                _raise_if_stopped(spark)
            if not sending.done():
                self._read_until_sent(sending)
        except BaseException:
            if not sending.done():  # or its producer may be another query's now
                self._rows.abort()
                self._writer.wakeup()
                wait([sending], _ABORT_SECONDS)
            raise
        sending.result()
        self._is_complete = True

    def _read_until_sent(self, sending: Future[None]) -> None:
        """Read all rows, and wait until they are sent; stops reading when sending fails."""
        spark = self._frame.sparkSession
        # In each Spark partition, at most one row more than the micro-batch may have. In SQL, since
        # PySpark's functions depend on the kind of session that the environment names. Spark's job
        # belongs to the query of the thread that begins it.
        number = f"(monotonically_increasing_id() & {_ROW_NUMBER})"
        rows = private_api.FrameRows(self._frame.where(f"{number} <= {self._max_rows}"))
        try:
            # Asked here, because each thread that calls Java costs a connection.
            reading = start_call(self._read, "reader", rows, private_api.heap_bytes(spark))
            results = _Results(rows)
            while not wait([reading, sending], _LOOK_SECONDS, FIRST_COMPLETED).done:
                _raise_if_stopped(spark)
                if results.are_lost(self._rows.batches):
                    raise self._too_large(
                        "lost results of tasks in the driver's Java process, probably out of "
                        "memory: see its log for OutOfMemoryError",
                        "raise spark.driver.memory",
                    )
            if reading.done():
                _raise_error(reading, rows, spark)
                self._rows.end()
                while not wait([sending], _LOOK_SECONDS).done:
                    _raise_if_stopped(spark)
        finally:
            rows.stop()

    def _read(self, rows: private_api.FrameRows, heap_bytes: int | None) -> None:
        count, size_bytes = 0, 0
        for batch in rows:
            count += batch.num_rows
            size_bytes += batch.nbytes
            self._check_size(count, size_bytes, heap_bytes)
            self._rows.put(batch)

    def _check_size(self, rows: int, size_bytes: int, heap_bytes: int | None) -> None:
        """Raise MicroBatchTooLarge if a micro-batch has these rows, and perhaps more."""
        if rows > self._max_rows:
            raise self._too_large(
                f"more than {table.DRIVER_MAX_ROWS.name}={self._max_rows} rows",
                "raise that option if the driver has the memory",
            )
        if heap_bytes is not None and size_bytes > heap_bytes / HEAP_SHARE:
            raise self._too_large(
                f"more than {heap_bytes // HEAP_SHARE >> 20} MiB, a quarter of the memory of the "
                "driver's Java process",
                "raise spark.driver.memory",
            )

    def _too_large(self, what: str, remedy: str) -> MicroBatchTooLarge:
        """``remedy``: what lets the driver send it."""
        if self._is_in_stream:
            # Its offsets are in the checkpoint.
            return MicroBatchTooLarge(
                f"the micro-batch has {what}. It runs again with the same rows: set {_IN_TASKS}, "
                f"or {remedy}; for later ones, limit the source (maxOffsetsPerTrigger, "
                "maxFilesPerTrigger, rowsPerSecond)"
            )
        is_once = self.options.exactly_once is not None  # which tasks do not offer to batches
        other = "Split it into batches with ids of their own" if is_once else f"Set {_IN_TASKS}"
        return MicroBatchTooLarge(f"the batch has {what}. {other}, or {remedy}")


def _raise_error(reading: Future[None], rows: private_api.FrameRows, spark: SparkSession) -> None:
    """Raise what has ended the reader before the last row, if anything has."""
    try:
        reading.result()
        rows.check_end()
    except Exception as error:
        if (interruption := private_api.interruption(error, spark)) is not None:
            raise interruption from None
        raise


def _raise_if_stopped(spark: SparkSession) -> None:
    if private_api.is_interrupted(spark):
        raise InterruptedError(private_api.INTERRUPTION)


class _RowQueue:
    """The rows between both threads, which ``driver.max.rows`` bounds."""

    def __init__(self) -> None:
        self._batches: SimpleQueue[pa.RecordBatch | None] = SimpleQueue()
        self._is_aborted = False
        #: how many have come
        self.batches = 0
        #: set once the sender has asked for rows or has ended
        self.are_needed = Event()

    def put(self, batch: pa.RecordBatch) -> None:
        self.batches += 1
        self._batches.put(batch)

    def end(self) -> None:
        self._batches.put(None)

    def abort(self) -> None:
        self._is_aborted = True
        self._batches.put(None)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Raises InterruptedError if not all rows come."""
        self.are_needed.set()
        while (batch := self._batches.get()) is not None and not self._is_aborted:
            yield batch
        if self._is_aborted:
            raise InterruptedError("the micro-batch is not sent to its end")


class _Results:
    """Whether Spark still handles the results of tasks, while nothing else has ended."""

    def __init__(self, rows: private_api.FrameRows) -> None:
        self._rows = rows
        self._deadline = Deadline(_LOST_RESULTS_SECONDS)
        self._seen, self._is_suspected = 0, False

    def are_lost(self, batches: int) -> bool:
        """Whether none have arrived for a while, and Spark has lost results.

        ``batches``: how many have arrived.
        """
        if not self._deadline.expired:
            return False
        was_suspected, self._is_suspected = self._is_suspected, False
        if batches == self._seen:
            self._is_suspected = self._rows.awaits_lost_results()
        self._seen, self._deadline = batches, Deadline(_LOST_RESULTS_SECONDS)
        return was_suspected and self._is_suspected


def prepare_driver(options: SinkOptions) -> None:
    """Log in, create the producer and fetch the topic's metadata, all in the background.

    Errors are those of the first micro-batch, which does what has failed here again.
    """
    if private_api.is_remote():
        return  # rows are sent from the server's process
    if options.exactly_once is None:
        with suppress(KafkaSinkError), process_cache().borrow(options) as producer:
            producer.prefetch(filter(None, (options.topic, options.dead_letter_topic)))
    start_call(check, "preflight", options)
