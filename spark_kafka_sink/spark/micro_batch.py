"""What the driver does before and after the tasks of a micro-batch, or of a batch write."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException

from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.errors import KafkaSinkError, headline
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.spark.private_api import column_types

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_kafka_sink.schemas.serializer import Serializer

_log = logging.getLogger("spark_kafka_sink")


def warn_of_speculation(spark: SparkSession) -> None:
    """Issue a UserWarning, at our caller's caller, if the session has ``spark.speculation``.

    It duplicates records without any failure. Does nothing if the session does not allow reading
    that setting.
    """
    try:
        is_on = str(spark.conf.get("spark.speculation", "false")).lower() == "true"
    except PySparkException:
        return
    if is_on:
        warnings.warn(
            "spark.speculation is true: Spark runs slow tasks a second time, and records that "
            "both attempts write are duplicated although no task failed. Start the application "
            "with spark.speculation=false",
            stacklevel=3,
        )


def warn_of_options(options: SinkOptions) -> None:
    """Issue one UserWarning, at our caller's caller, and log it, if options have no effect, or
    weaken the delivery.
    """
    if options.warnings:
        text = ". ".join(options.warnings)
        warnings.warn(text, stacklevel=3)
        _log.info("%s", text)


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
    options: SinkOptions, query_id: str | None, batch_id: int, tasks: int
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
        batch_marker.write(options, options.exactly_once, prefix, batch_id, tasks)
    except KafkaSinkError as error:
        raise error.with_traceback(None) from headline(error)


def keep_report(report: DeliveryReport, options: SinkOptions) -> DeliveryReport:
    """Append the report of a micro-batch to the option's folder, and log it.

    Returns it with the reports of failed tasks in that folder.
    """
    path = options.values[table.REPORT_PATH]
    if path is not None:
        from spark_kafka_sink.report.folder import append

        report = append(report, path)
    what = "batch" if report.batch_id is None else f"micro-batch {report.batch_id}"
    _log.info("%s %s: %s", what, report.outcome, report.to_json())
    if report.oldest_timestamp_ms is not None:
        # Imported here: it loads the client.
        from spark_kafka_sink.connection.record_times import warn_of_old_records

        warn_of_old_records(report, options)
    return report
