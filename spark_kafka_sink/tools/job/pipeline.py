"""Builds the streaming query that a configuration describes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from spark_kafka_sink.errors import InvalidSchema, KafkaSinkError
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.spark.datasource import FORMAT
from spark_kafka_sink.spark.foreach_batch import foreach_batch
from spark_kafka_sink.spark.private_api import NO_FORMAT, has_data_sources, scala_version
from spark_kafka_sink.spark.schema_check import check_schema, check_schema_for_format
from spark_kafka_sink.spark.spark_errors import SPARK_ERRORS, is_transient, reason
from spark_kafka_sink.tools.job.configuration import Configuration
from spark_kafka_sink.tools.job.document import Path
from spark_kafka_sink.tools.job.stop import StopCheck

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_NO_KAFKA_SOURCE = "Failed to find data source: kafka"


def build(
    spark: SparkSession,
    configuration: Configuration,
    select: Callable[[DataFrame], DataFrame] | None = None,
    view: str = "source",
    complete: Callable[[DataFrame], DataFrame] | None = None,
) -> DataFrame:
    """The sink's rows; checks their schema, and writes nothing.

    ``select``: applied to the source's rows. ``view``: their name in the SQL text. ``complete``:
    applied to its rows.
    Raises InvalidConfiguration if Spark rejects the source, its schema or the SQL text, or has no
    Python data sources for ``mode: format``; KafkaSinkError if what they name is unavailable now.
    """
    job = configuration.job
    if job.sink.mode == "format" and not has_data_sources():
        raise configuration.invalid(("sink", "mode"), NO_FORMAT)
    path: Path = ("source",)
    try:
        frame = _source(spark, configuration)
        if select is not None:
            frame = select(frame)
        if job.sql is not None:
            path = ("sql",)
            frame.createOrReplaceTempView(view)
            frame = spark.sql(job.sql)
            if complete is not None:
                frame = complete(frame)
        if not frame.isStreaming:
            raise configuration.invalid(path, f"does not read the stream, the view {view}")
        options = configuration.sink_options
        check_schema(
            frame.schema, options.topic, options.serialized_columns, options.timestamp_column
        )
        if job.sink.mode == "format":
            check_schema_for_format(frame.schema)
    except InvalidSchema as error:
        raise configuration.invalid(path, str(error)) from None
    except SPARK_ERRORS as error:
        if _NO_KAFKA_SOURCE in str(error):
            raise configuration.invalid(path, _kafka_source_missing(spark)) from None
        raise _rejection(configuration, path, error) from None
    return frame


def _kafka_source_missing(spark: SparkSession) -> str:
    package = f"org.apache.spark:spark-sql-kafka-0-10_{scala_version(spark)}:{spark.version}"
    return (
        f"Spark's Kafka source is missing. Start with spark-submit --packages {package}; or with "
        f"python, after export PYSPARK_SUBMIT_ARGS='--packages {package} pyspark-shell'"
    )


def _rejection(
    configuration: Configuration, path: Path, error: Exception, what: str = ""
) -> KafkaSinkError:
    """What to raise for an error of Spark: a mistake in the file, unless it may be transient."""
    what += reason(error)
    if is_transient(error):
        return KafkaSinkError(str(configuration.mistake(path, what)))
    return configuration.invalid(path, what)


def _source(spark: SparkSession, configuration: Configuration) -> DataFrame:
    source = configuration.job.source
    reader = spark.readStream.options(**source.options)
    if source.table is not None:
        return reader.table(source.table)
    if source.schema_ is not None:
        reader = reader.schema(source.schema_)
    return reader.format(str(source.format)).load()


def start(
    frame: DataFrame,
    configuration: Configuration,
    stop_check: StopCheck,
    on_report: Callable[[DeliveryReport], None],
) -> StreamingQuery:
    """Start the query.

    Raises InvalidConfiguration if Spark rejects it; KafkaSinkError if it cannot start now, such as
    when the checkpoint's storage is unavailable.
    """
    job = configuration.job
    writer = frame.writeStream.queryName(job.name).outputMode(job.output_mode)
    writer = _set_trigger(writer, configuration).option("checkpointLocation", job.checkpoint)
    options = job.sink.options
    if job.sink.mode == "format":
        writer = writer.format(FORMAT).options(**options)
    else:
        writer = writer.foreachBatch(stop_check.guarded(foreach_batch(options, on_report)))
    try:
        query = writer.start()
    except SPARK_ERRORS as error:
        raise _rejection(configuration, (), error, "Spark rejects the query: ") from None
    stop_check.query = query
    return query


def _set_trigger(writer: DataStreamWriter, configuration: Configuration) -> DataStreamWriter:
    trigger = configuration.job.trigger
    if trigger is None:
        return writer
    if trigger.available_now:
        return writer.trigger(availableNow=True)
    if trigger.once:
        return writer.trigger(once=True)
    return writer.trigger(processingTime=str(trigger.processing_time))
