"""[driver] Records of a dead letter topic -> the rows that were rejected."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_kafka_sink.errors import LibraryUnavailable
from spark_kafka_sink.records.column_table import COLUMNS, TIMESTAMP, Kept
from spark_kafka_sink.records.column_table import Column as RecordColumn
from spark_kafka_sink.records.dead_letter import PREFIX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LAST_REJECTION = "kafka_nb_last_rejection"
_UNSENDABLE_HEADERS = "array<struct<key:string,value:string>>"


def restore_dead_letters(records: DataFrame) -> DataFrame:
    """The rows that were rejected, from the records of a dead letter topic.

    ``records``: as Spark's Kafka source reads them with ``includeHeaders``, in a batch or a stream.
    Returns the sink's columns with their original values (``timestamp`` is written with
    ``timestamp.column=timestamp``); then ``error`` (null: no dead letter), ``message``,
    ``query_id``, ``batch_id``, ``task_partition`` and ``row``; then the dead letter's place,
    ``dead_letter_partition`` and ``dead_letter_offset``. Raises LibraryUnavailable before PySpark
    4.0.
    """
    require_restoration()
    # A column of its own, so that Spark looks for them once per record.
    records = records.select("*", _last_rejection().alias(_LAST_REJECTION))
    return records.select(
        *(_original(column).alias(column.name) for column in COLUMNS.values()),
        _header("error").alias("error"),
        _header("message").alias("message"),
        _header("query.id").alias("query_id"),
        _header("batch.id").try_cast("bigint").alias("batch_id"),
        _header("task.partition").try_cast("int").alias("task_partition"),
        _header("row").try_cast("bigint").alias("row"),
        F.col("partition").alias("dead_letter_partition"),
        F.col("offset").alias("dead_letter_offset"),
    )


def require_restoration() -> None:
    """Raise LibraryUnavailable if PySpark lacks what ``restore_dead_letters`` needs."""
    if not hasattr(Column, "try_cast"):
        raise LibraryUnavailable(
            f"PySpark {pyspark.__version__} cannot restore or replay dead letters, unlike 4.0 and "
            "later. Run pip install 'spark-kafka-sink[spark,jobs]' in another environment, and "
            "replay them there"
        )


def _original(column: RecordColumn) -> Column:
    """The row's value, from the part of the dead letter that keeps it."""
    if column.kept is Kept.AS_HEADER:
        return _header(column.name).try_cast(column.types[0])
    if column.name == "headers":
        headers = F.coalesce(F.concat(_unsendable_headers(), "headers"), "headers")
        return F.filter(headers, _is_the_rows_own)
    if column is TIMESTAMP:
        changed = F.timestamp_millis(_header("timestamp").try_cast("bigint"))
        return F.coalesce(changed, "timestamp")
    return F.col(column.name)


def _header(name: str) -> Column:
    """The text of the header of this name; null if there is none."""
    headers = F.filter(_LAST_REJECTION, lambda header: header["key"] == PREFIX + name)
    return F.try_element_at(headers, F.lit(-1))["value"].cast("string")


def _last_rejection() -> Column:
    """The headers that say why and where a row was rejected; none for what is no dead letter.

    Ahead of them may be the row's own headers of such names, and up to version 0.3 those of earlier
    rejections.
    """
    names = F.reverse(F.col("headers")["key"])
    count = F.array_position(names, PREFIX + "error").cast("int")
    return F.slice("headers", -F.greatest(count, F.lit(1)), count)


def _is_the_rows_own(header: Column) -> Column:
    return F.coalesce(~header["key"].startswith(PREFIX), F.lit(True))


def _unsendable_headers() -> Column:
    """The original headers that could not be headers, and so are JSON in one of ours."""
    return F.transform(
        F.from_json(_header("headers"), _UNSENDABLE_HEADERS),
        lambda header: F.struct(
            header["key"].alias("key"), F.unbase64(header["value"]).alias("value")
        ),
    )
