"""[driver] What happens before and after the tasks of a micro-batch, or of a batch write."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from spark_kafka_sink.application_files import mark
from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.errors import KafkaSinkError, headline
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.spark.private_api import (
    column_types,
    heap_bytes,
    max_result_bytes,
    pins_threads,
)
from spark_kafka_sink.spark.schema_check import columns_serialized_twice, unused_columns

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_kafka_sink.schemas.serializer import Serializer

_log = logging.getLogger("spark_kafka_sink")

_SPECULATION = "spark.speculation"
_MAX_RESULT_SIZE = "spark.driver.maxResultSize"
# Spark has the results of some tasks in Java's heap at a time, in two or three copies.
HEAP_SHARE = 4
_KILL_ON_IDLE_TIMEOUT = "spark.python.worker.killOnIdleTimeout"
_IDLE_TIMEOUT_SECONDS = "spark.python.worker.idleTimeoutSeconds"
# The setting of the session's queries, and that of the application, which it defaults to.
_KILLS_IDLE = ("spark.sql.execution.pyspark.udf.killOnIdleTimeout", _KILL_ON_IDLE_TIMEOUT)
_IDLE_SECONDS = ("spark.sql.execution.pyspark.udf.idleTimeoutSeconds", _IDLE_TIMEOUT_SECONDS)


def warn_of_session(spark: SparkSession, options: SinkOptions | None = None) -> None:
    """Issue a UserWarning, at our caller's caller, for each of the ``session_problems``.

    With ``send.from=driver`` they are only logged: Spark's own defaults are such a problem.
    """
    is_logged = options is not None and options.is_sent_from_driver
    for problem, remedy in session_problems(spark, options):
        if is_logged:
            _log.warning("%s. %s", problem, remedy)
        else:
            warnings.warn(f"{problem}. {remedy}", stacklevel=3)


def session_problems(
    spark: SparkSession, options: SinkOptions | None = None
) -> list[tuple[str, str]]:
    """Settings with which Spark repeats tasks that do not fail, or kills them; and the remedies.

    ``options``: None for the defaults. Nothing if the session does not allow reading settings.
    """
    try:
        if options is not None and options.is_sent_from_driver:
            problems = [_result_size(spark), _threads(spark)]
        else:
            problems = [_speculation(spark), _idle_timeout(spark, options)]
    except PySparkException:
        return []
    return [problem for problem in problems if problem is not None]


def _speculation(spark: SparkSession) -> tuple[str, str] | None:
    if _first_set(spark, (_SPECULATION,)).lower() != "true":
        return None
    problem = (
        f"{_SPECULATION} is true: Spark runs slow tasks a second time, and records that both "
        "attempts write are duplicated although no task failed"
    )
    return problem, f"Start the application with {_SPECULATION}=false"


def _result_size(spark: SparkSession) -> tuple[str, str] | None:
    """Whether ``send.from=driver`` may exhaust Java's heap before Spark refuses."""
    heap = heap_bytes(spark)
    if heap is None:
        return None
    most, size = heap // HEAP_SHARE, max_result_bytes(spark)
    if 0 < size <= most:
        return None
    bound = f"is {size >> 20} MiB" if size else "is not bounded"
    problem = (
        f"{_MAX_RESULT_SIZE} {bound}, and the driver's Java process has {heap >> 20} MiB: with "
        "send.from=driver, a large micro-batch may exhaust that before Spark refuses it"
    )
    return problem, f"Set {_MAX_RESULT_SIZE}={most >> 20}m, or raise spark.driver.memory"


def _threads(spark: SparkSession) -> tuple[str, str] | None:
    if pins_threads(spark):
        return None
    problem = (
        "PYSPARK_PIN_THREAD is false: with send.from=driver, query.stop() waits for the end of the "
        "micro-batch, also while brokers do not answer"
    )
    return problem, "Remove that variable"


def _idle_timeout(spark: SparkSession, options: SinkOptions | None) -> tuple[str, str] | None:
    """To Spark, a task of the sink is idle until its end, also while it waits for brokers."""
    waits = {
        option.name: (int(option.default or 0) if options is None else options.values[option])
        for option in (table.CLOSE_TIMEOUT_MS, table.MAX_BLOCK_MS, table.MAX_BLOCK_METADATA_MS)
    }
    longest = max(waits, key=lambda name: waits[name])
    kills = _first_set(spark, _KILLS_IDLE).lower() == "true"
    seconds = _first_set(spark, _IDLE_SECONDS)
    if not kills or not seconds.isdecimal() or not 0 < int(seconds) * 1000 <= waits[longest]:
        return None
    problem = (
        f"{_KILL_ON_IDLE_TIMEOUT}=true and {_IDLE_TIMEOUT_SECONDS}={seconds}: Spark kills a task "
        "that waits for brokers that long, with a part of its rows in Kafka, and the next attempt "
        "writes them again"
    )
    remedy = (
        f"Set {_KILL_ON_IDLE_TIMEOUT}=false, or more seconds than a whole task takes, at least "
        f"than {longest}={waits[longest]} (ms)"
    )
    return problem, remedy


def _first_set(spark: SparkSession, names: tuple[str, ...]) -> str:
    return next((text for name in names if (text := str(spark.conf.get(name, "") or ""))), "")


# Warnings are issued at the caller's caller. ``folder`` is the application's, which is warned once:
# Spark plans every micro-batch, perhaps in another process.


def warn_of_options(options: SinkOptions, folder: Path | None = None) -> None:
    """Issue and log one UserWarning about options that have no effect, or weaken the delivery."""
    _warn(". ".join(options.warnings), folder)


def warn_of_columns(schema: StructType, options: SinkOptions, folder: Path | None = None) -> None:
    """Issue and log a UserWarning for each column that may be a mistake."""
    unused = unused_columns(schema, options.topic, options.timestamp_column)
    for sentence in unused + columns_serialized_twice(schema, options.serialization):
        _warn(sentence, folder)


def warn_of_log_append_time(options: SinkOptions, folder: Path | None = None) -> None:
    """Issue and log a UserWarning if the topic ignores ``timestamp.column``."""
    if options.timestamp_column is not None:
        # Imported here: it loads the client.
        from spark_kafka_sink.driver.record_times import ignored_timestamps

        _warn(ignored_timestamps(options), folder)


def _warn(sentence: str, folder: Path | None) -> None:
    if sentence and mark(folder, "said", sentence):
        warnings.warn(sentence, stacklevel=4)
        _log.info("%s", sentence)


#: what old records were written by, to warn once: a stream may always have late ones
_warned_of_old_records: set[object] = set()


def warn_of_old_records(
    report: DeliveryReport, options: SinkOptions, folder: Path | None = None
) -> None:
    """Log a warning, and issue a UserWarning, if brokers are about to delete records for their age.

    ``report``: of a batch, or of a micro-batch that is complete; a query is warned once. Last in a
    micro-batch: if warnings are errors, everything else is done.
    """
    writer = report.query_id or (
        report.batch_id is not None and (options.topic, options.timestamp_column)
    )
    if report.oldest_timestamp_ms is None or writer in _warned_of_old_records:
        return
    # Imported here: it loads the client.
    from spark_kafka_sink.driver.record_times import old_records

    sentence = old_records(report, options)
    if not sentence:
        return
    if writer:
        _warned_of_old_records.add(writer)
        if not mark(folder, "said", f"old records {writer}"):
            return
    _log.warning("%s", sentence)
    warnings.warn(sentence, stacklevel=3)


def prepare_serializer(
    schema: StructType, options: SinkOptions, folder: Path | None = None
) -> Serializer | None:
    """Prepare the serializer, before the tasks; raises what ``schemas.preparation`` raises."""
    if options.serialization is None:
        return None
    from spark_kafka_sink.schemas.preparation import prepare

    types = column_types(schema, options.serialized_columns)
    return prepare(options, types, folder)


def prepare_reports(options: SinkOptions) -> None:
    """Prepare the folder of reports, before the tasks."""
    path = options.values[table.REPORT_PATH]
    if path is not None:
        from spark_kafka_sink.report.folder import prepare_folder

        prepare_folder(path)


def write_batch_marker(
    options: SinkOptions,
    query_id: str | None,
    batch_id: int,
    tasks: int,
    is_woken: Callable[[], bool] = lambda: False,
) -> None:
    """With exactly-once, record that all tasks of a micro-batch have committed.

    Raises what ``transactions.batch_marker.write`` raises.
    """
    if options.exactly_once is None:
        return
    from spark_kafka_sink.transactions import batch_marker
    from spark_kafka_sink.transactions.ledger import prefix_of

    prefix = prefix_of(options.exactly_once, query_id)
    try:
        batch_marker.write(options, options.exactly_once, prefix, batch_id, tasks, is_woken)
    except KafkaSinkError as error:
        raise error.with_traceback(None) from headline(error)


def keep_report(report: DeliveryReport, options: SinkOptions) -> DeliveryReport:
    """Append the report of a micro-batch to the option's folder, and log it.

    Returns it with the reports of failed tasks in that folder.
    """
    path = options.values[table.REPORT_PATH]
    if path is not None:
        from spark_kafka_sink.report.folder import append

        report = append(report, path, options.write_id)
    what = "batch" if report.batch_id is None else f"micro-batch {report.batch_id}"
    _log.info("%s %s: %s", what, report.outcome, report.to_json())
    return report
