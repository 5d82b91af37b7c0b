"""[driver] foreach_batch: the sink as a function, with reports in the user's process."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from threading import Lock, current_thread, main_thread
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.errors import AnalysisException, PySparkValueError
from pyspark.sql.pandas.utils import require_minimum_pandas_version
from pyspark.sql.types import BinaryType, BooleanType, StructField, StructType

from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.options import SinkOptions, check_batch_id
from spark_kafka_sink.config.producer_options import ExactlyOnceOptions
from spark_kafka_sink.driver.options import read_options
from spark_kafka_sink.driver.preflight import check
from spark_kafka_sink.errors import (
    InvalidOption,
    InvalidSchema,
    KafkaSinkError,
    LedgerLost,
    ReplayDiffers,
    headline,
    own_error,
)
from spark_kafka_sink.libraries import importing
from spark_kafka_sink.records.column_table import sql_name
from spark_kafka_sink.report.delivery_report import DeliveryReport, total
from spark_kafka_sink.spark import private_api
from spark_kafka_sink.spark.from_driver import DriverSend, prepare_driver
from spark_kafka_sink.spark.map_in_arrow import IS_END, REPORT, AddEndRows, WriteToKafka
from spark_kafka_sink.spark.micro_batch import (
    keep_report,
    prepare_reports,
    prepare_serializer,
    warn_of_columns,
    warn_of_log_append_time,
    warn_of_old_records,
    warn_of_options,
    warn_of_session,
    write_batch_marker,
)
from spark_kafka_sink.spark.schema_check import check_schema, used_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from spark_kafka_sink.schemas.serializer import Serializer

_log = logging.getLogger("spark_kafka_sink")

_REPORT = StructType([StructField(REPORT, BinaryType())])
# Makes the sink's repartition differ from any of the user's. Otherwise Spark removes it after a
# groupBy, join or repartition by the same columns, and adaptive execution combines partitions.
_REPARTITION = "kafka-nb"


def foreach_batch(
    options: Mapping[str, object], on_report: Callable[[DeliveryReport], object] | None = None
) -> Callable[[DataFrame, int | None], None]:
    """A function for ``writeStream.foreachBatch``, in any output mode, update mode included.

    With None in place of a micro-batch's id, it writes any other DataFrame, as a batch.

    The ``options`` are those of ``format("kafka-nb")``. Raises InvalidOption, and
    LibraryUnavailable without pandas. The function that it returns raises InvalidSchema,
    BrokerUnavailable, AuthenticationFailed or TopicUnavailable before any row moves; errors of
    tasks arrive in Spark's exceptions, as with the format.

    After every micro-batch whose writing began, also if it failed, its report is logged (logger
    ``spark_kafka_sink``, level INFO) and given to ``on_report``, in the process that runs the
    function: yours, or under Spark Connect a Python worker of the server. If ``on_report`` raises,
    the query fails, although the micro-batch is in Kafka, and a restarted at-least-once query sends
    it again. If tasks failed, the report covers only these, and only with the option
    ``report.path``.

    A UserWarning names options that are ignored or weaken the delivery, and columns that are not
    written although they may be meant to be. docs/foreach_batch.md has more.
    """
    with importing("pandas"):
        require_minimum_pandas_version()
    parsed = read_options(options)
    warn_of_options(parsed)
    reports = _Reports(on_report)
    if parsed.is_sent_from_driver:
        prepare_driver(parsed)
    is_first = True
    sequence = MicroBatches(parsed.exactly_once)

    def write(batch: DataFrame, batch_id: int | None) -> None:
        nonlocal is_first
        check_batch_id(parsed, batch_id)
        if is_first:
            warn_of_session(batch.sparkSession, parsed)
        try:
            query_id = _query_id(batch.sparkSession)
            is_batch = _is_batch(parsed, query_id)
            run = _run(batch.sparkSession, parsed)
            sequence.begin(run, None if is_batch else batch_id)
            batch = _with_known_types(batch, parsed)
            _check_tasks(batch, parsed)
            if is_first:
                warn_of_columns(batch.schema, parsed)
            serializer = prepare_serializer(batch.schema, parsed)
            check(parsed)
            if is_first:
                warn_of_log_append_time(parsed)
                is_first = False
            prepare_reports(parsed)
            named = _add_prefix(
                _identified(parsed, batch_id, query_id), query_id, is_batch=is_batch
            )
        except KafkaSinkError as error:
            raise error.with_traceback(None) from headline(error)
        batch = _select_used(
            batch, used_columns(parsed.topic, parsed.timestamp_column), batch.schema.names
        )
        make = DriverSend if parsed.is_sent_from_driver else _Tasks
        writer = make(batch, named, serializer, query_id)
        try:
            with _only_call(named, run, batch_id):
                writer.run()
                if batch_id is not None:
                    _write_marker(writer.options, batch_id, writer.partitions, batch.sparkSession)
                    sequence.complete(run, batch_id)
        except Exception as error:
            reports.publish_failed(replace(writer.report, batch_id=batch_id), named)
            if isinstance(error, KafkaSinkError):
                raise error.with_traceback(None) from headline(error)
            raise
        report = reports.publish(replace(writer.report, batch_id=batch_id), named)
        warn_of_old_records(report, parsed)

    return write


def _write_marker(
    options: SinkOptions, batch_id: int, partitions: int, spark: SparkSession
) -> None:
    """Raises what ``write_batch_marker`` raises, and InterruptedError if the query is stopped."""
    try:
        write_batch_marker(
            options, None, batch_id, partitions, lambda: private_api.is_interrupted(spark)
        )
    except InterruptedError:
        raise InterruptedError(private_api.INTERRUPTION) from None


def _run(spark: SparkSession, options: SinkOptions) -> str | None:
    """The query's run, if its micro-batches are counted: asking Spark takes time."""
    return None if options.exactly_once is None else private_api.running_run(spark)


def _identified(options: SinkOptions, batch_id: int | None, query_id: str | None) -> SinkOptions:
    """The options for one call; outside of a stream, with an id of this write."""
    options = options.replace_value(table.BATCH_ID, batch_id)
    is_in_stream = batch_id is not None and private_api.is_in_query(query_id)
    return options if is_in_stream else options.with_write_id()


def _is_batch(options: SinkOptions, query_id: str | None) -> bool:
    """Whether the ledger is one of batches, outside of a stream.

    Raises InvalidOption if tasks are to write it: theirs counts the micro-batches of a query.
    """
    if options.exactly_once is None or private_api.is_in_query(query_id):
        return False
    # In another thread, a function of foreachBatch may have called this one.
    if not options.is_sent_from_driver and current_thread() is main_thread():
        raise InvalidOption(
            "delivery.guarantee=exactly-once outside of a stream needs send.from=driver"
        )
    return options.is_sent_from_driver


def _check_tasks(batch: DataFrame, options: SinkOptions) -> None:
    """Raise InvalidSchema, or InvalidOption, if no task could write the batch."""
    check_schema(batch.schema, options.topic, options.serialized_columns, options.timestamp_column)
    if options.exactly_once is None:
        return
    if not options.is_sent_from_driver:
        private_api.check_worker()
    elif not private_api.pins_threads(batch.sparkSession):
        raise InvalidOption(
            "delivery.guarantee=exactly-once with send.from=driver needs to know the query that "
            "runs, and with PYSPARK_PIN_THREAD=false PySpark does not know it: remove that variable"
        )


@dataclass
class MicroBatches:
    """Which micro-batches the function was called for, as exactly-once needs each of them.

    The ledger finds a gap too, but not whose fault it is.
    """

    settings: ExactlyOnceOptions | None
    #: the last one that is complete, by the run of its query: queries may share the function
    latest: dict[str | None, int] = field(default_factory=dict)

    def begin(self, run: str | None, batch_id: int | None) -> None:
        """Raise LedgerLost if one before it was not complete; a batch has no id here."""
        if batch_id is None or self.settings is None:
            return
        latest = self.latest.setdefault(run, batch_id - 1)
        if latest < batch_id - 1 and batch_id != self.settings.first_batch:
            raise LedgerLost(
                f"micro-batch {batch_id}: the function of foreach_batch was not called for "
                f"micro-batch {latest + 1}, or its error was caught. With exactly-once, call "
                "it for every micro-batch, also an empty one, and let its errors end the query: no "
                "isEmpty guard, no choice by the micro-batch's id, no try/except around it. "
                f"After that, the query goes on with exactly.once.first.batch={batch_id}, if no "
                "rows of the micro-batches before are missing"
            )

    def complete(self, run: str | None, batch_id: int) -> None:
        self.latest[run] = batch_id


# The micro-batch that was written last, or is being written, with the run of its query, to each
# ledger of the driver. Of the process, because two functions may have the same ledger.
_calls: dict[tuple[str, ...], tuple[str | None, int | None]] = {}
_calls_lock = Lock()


def _driver_ledger(options: SinkOptions) -> tuple[str, ...] | None:
    """The name of a query's ledger with ``send.from=driver``; None: it has none."""
    settings = options.exactly_once
    if settings is None or settings.is_batch or not options.is_sent_from_driver:
        return None
    servers = sorted(options.producer.client["bootstrap.servers"].split(","))
    return *servers, str(settings.prefix), settings.ledger_topic


@contextmanager
def _only_call(options: SinkOptions, run: str | None, batch_id: int | None) -> Iterator[None]:
    """Raise ReplayDiffers if another call has written the micro-batch in the query's same run.

    Or if it is writing it in another thread. This one would send nothing, and nobody would notice
    unless it has more rows: only their number is compared. A call that fails may be repeated.
    """
    ledger = _driver_ledger(options)
    if ledger is None:
        yield
        return
    call = run, batch_id
    with _calls_lock:
        if _calls.get(ledger) == call:
            raise ReplayDiffers(
                f"micro-batch {batch_id}: another call of foreach_batch's function has written it, "
                f"or writes it, with transactional.id.prefix={ledger[-2]}. Give each call in one "
                "micro-batch a function with a transactional.id.prefix of its own, or pass all "
                "rows in one call (union)"
            )
        _calls[ledger] = call
    try:
        yield
    except BaseException:
        with _calls_lock:
            if _calls.get(ledger) == call:  # not that of another query
                del _calls[ledger]
        raise


@dataclass(frozen=True)
class _Reports:
    on_report: Callable[[DeliveryReport], object] | None

    def __getstate__(self) -> dict[str, object]:
        """For Spark Connect, whose own error would name neither ``on_report`` nor the reason."""
        try:
            cloudpickle.dumps(self.on_report)  # type: ignore[no-untyped-call]
        except Exception as error:  # noqa: BLE001 - the user's code
            # Spark lets this class through, but replaces the PicklingErrors that are based on it.
            raise pickle.PickleError(
                f"on_report cannot be pickled: {error}. Spark Connect runs it on the server: let "
                "it create there what cannot be pickled"
            ) from None
        return self.__dict__

    def publish(self, report: DeliveryReport, options: SinkOptions) -> DeliveryReport:
        report = keep_report(report, options)
        if self.on_report is not None:
            self.on_report(report)
        return report

    def publish_failed(self, report: DeliveryReport, options: SinkOptions) -> None:
        """Raises nothing: the query ends with the error of the micro-batch, which says more."""
        try:
            self.publish(replace(report, outcome="failed"), options)
        except Exception:  # noqa: BLE001 - the user's code
            _log.exception("on_report failed after micro-batch %s had failed", report.batch_id)


class _Tasks:
    """Writes a micro-batch in Spark's tasks. ``report``: complete when ``run`` has returned."""

    def __init__(
        self,
        batch: DataFrame,
        options: SinkOptions,
        serializer: Serializer | None,
        query_id: str | None,
    ) -> None:
        batch, self.options = _repartitioned(batch, options)
        is_exactly_once = options.exactly_once is not None
        has_end_rows = is_exactly_once and private_api.marks_any_end(batch.sparkSession)
        if has_end_rows:
            batch = _add_end_rows(batch)
        task = WriteToKafka(self.options, serializer, has_end_rows)
        self._frame = batch.mapInArrow(task, _REPORT)
        self._query_id = query_id
        # If a task fails, Spark drops the reports of the others.
        self.report = DeliveryReport(tasks=1, failed_tasks=1, query_id=query_id)
        #: how many there were
        self.partitions = 0

    def run(self) -> None:
        """Raises Spark's error if a task fails, InterruptedError if the query is stopped."""
        # Our own tasks pickled these; the format's commit messages are pickled too.
        reports = [pickle.loads(row.report) for row in _collect(self._frame)]  # noqa: S301
        self.partitions = len(reports)
        report = total(reports)
        # Spark may run no task for a micro-batch without rows.
        self.report = replace(report, query_id=report.query_id or self._query_id)


def _with_known_types(batch: DataFrame, options: SinkOptions) -> DataFrame:
    """The batch; without its other columns if PySpark has no class for the type of one.

    Raises InvalidSchema if it has none for that of a record's column.
    """
    try:
        batch.schema  # noqa: B018 - whether it can be read
    except PySparkValueError:
        used = used_columns(options.topic, options.timestamp_column)
        names = private_api.names_of_columns(batch)
        if names is None:
            is_known = {name: _has_known_type(batch, name) for name in used}
            names = [name for name in used if is_known[name] is not None]
            batch = batch.select([sql_name(name) for name in names])
        else:
            batch = _select_used(batch, used, names)
            is_known = {name: _has_known_type(batch, name) for name in used if name in names}
        unknown = [name for name in names if is_known.get(name) is False]
        if unknown:
            name = sql_name(unknown[0])
            is_timestamp = unknown[0] == options.timestamp_column
            instead = f"timestamp({name})" if is_timestamp else f"string({name}) or to_json({name})"
            raise InvalidSchema(
                f"column {', '.join(unknown)} has a type for which this PySpark has no class; "
                f"convert it, for instance {instead}"
            ) from None
    return batch


def _has_known_type(batch: DataFrame, name: str) -> bool | None:
    """Whether PySpark has a class for the column's type; None: there is no such column."""
    try:
        return bool(batch.select(sql_name(name)).schema)
    except PySparkValueError:
        return False
    except AnalysisException:
        return None


def _select_used(batch: DataFrame, used: Collection[str], names: list[str]) -> DataFrame:
    """The batch without the other columns, which Spark would pass to Python too."""
    columns = [name for name in used if name in names]
    if len(columns) == len(names):
        return batch
    if len({name.lower() for name in names}) < len(names):
        # To Spark, value is ambiguous beside Value, unless it has a name of its own.
        batch = batch.toDF(*(name if name in used else f"_{i}" for i, name in enumerate(names)))
    return batch.select([sql_name(name) for name in columns])


def _repartitioned(batch: DataFrame, options: SinkOptions) -> tuple[DataFrame, SinkOptions]:
    """With exactly-once, the batch repartitioned by content into a fixed number of partitions.

    A restarted query has the same number, even if its session's setting has changed.
    """
    settings = options.exactly_once
    if settings is None or settings.partitions is not None:
        return batch, options
    from pyspark.sql import functions as F

    number = private_api.checkpointed_partitions(batch.sparkSession)
    names = ["key"] if "key" in batch.columns else [sql_name(name) for name in batch.columns]
    batch = batch.repartition(number, *names, F.lit(_REPARTITION))
    return batch, replace(options, exactly_once=replace(settings, partitions=number))


def _add_prefix(
    options: SinkOptions, query_id: str | None, *, is_batch: bool = False
) -> SinkOptions:
    """With exactly-once, add the transactions' prefix: tasks of Spark Connect have no query id.

    Raises InvalidOption if the option is missing under Spark Connect.
    """
    if options.exactly_once is None:
        return options
    from spark_kafka_sink.transactions.ledger import prefix_of

    prefix = prefix_of(options.exactly_once, query_id)
    settings = replace(options.exactly_once, prefix=prefix, is_batch=is_batch)
    return replace(options, exactly_once=settings)


def _query_id(spark: SparkSession) -> str | None:
    """Spark's id of the query that runs here; None under Spark Connect."""
    if not private_api.is_classic(spark):
        return None
    return private_api.running_query_id(spark.sparkContext)


def _collect(frame: DataFrame) -> list[Row]:
    try:
        return frame.collect()
    except Exception as error:
        if interruption := private_api.interruption(error, frame.sparkSession):
            raise interruption from None
        raise error from own_error(str(error))


def _add_end_rows(batch: DataFrame) -> DataFrame:
    fields = [StructField(field.name, field.dataType) for field in batch.schema]  # may be null
    types = private_api.column_types(batch.schema, batch.columns)
    schema = pa.schema([(name, kind.arrow) for name, kind in types.items()])
    end_field = StructField(IS_END, BooleanType())
    return batch.mapInArrow(AddEndRows(schema), StructType([*fields, end_field]))
