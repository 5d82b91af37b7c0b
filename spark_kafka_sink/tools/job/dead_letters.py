"""Records of a dead letter topic -> the rows that were refused, and which of them to replay."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_kafka_sink.records.column_table import COLUMNS, Kept
from spark_kafka_sink.records.column_table import Column as RecordColumn
from spark_kafka_sink.records.dead_letter import PREFIX
from spark_kafka_sink.tools.job.selection import Selection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: what SQL texts call the dead letters
VIEW = "dead_letters"

_UNSENDABLE_HEADERS = "array<struct<key:string,value:string>>"


def restored(records: DataFrame) -> DataFrame:
    """The sink's columns, with their original values, then the columns of the refusal.

    ``records``: as Spark's Kafka source reads them, with headers. ``error`` is null for a record
    that is no dead letter. ``dead_letter_partition`` and ``dead_letter_offset`` give the dead
    letter's place.
    """
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


def _original(column: RecordColumn) -> Column:
    """What the row had, from the part of the dead letter that keeps it."""
    if column.kept is Kept.AS_HEADER:
        return _header(column.name).try_cast(column.types[0])
    if column.name == "headers":
        return F.coalesce(F.concat(_unsendable_headers(), _kept_headers()), _kept_headers())
    if column.name == "timestamp":
        changed = F.timestamp_millis(_header("timestamp").try_cast("bigint"))
        return F.coalesce(changed, "timestamp")
    return F.col(column.name)


def _header(name: str) -> Column:
    """The text of the last header of this name; null if there is none."""
    found = F.filter("headers", lambda header: header["key"] == PREFIX + name)
    return F.try_element_at(found, F.lit(-1))["value"].cast("string")


def _kept_headers() -> Column:
    return F.filter("headers", lambda header: ~header["key"].startswith(PREFIX))


def _unsendable_headers() -> Column:
    """The original headers where they are a value, because they could not be headers."""
    parsed = F.from_json(_header("headers"), _UNSENDABLE_HEADERS)
    return F.transform(
        parsed,
        lambda header: F.struct(
            header["key"].alias("key"), F.unbase64(header["value"]).alias("value")
        ),
    )


def is_selected(selection: Selection, excluded: Collection[str] = ()) -> Column:
    """Of rows as ``restored`` makes them; never null, and false for what is no dead letter.

    ``excluded``: errors that must be selected by name.
    """
    conditions = [F.col("error").isNotNull()]
    if selection.errors:
        conditions.append(F.col("error").isin(sorted(selection.errors)))
    elif excluded:
        conditions.append(~F.col("error").isin(sorted(excluded)))
    if selection.topics:
        conditions.append(F.col("topic").isin(sorted(selection.topics)))
    milliseconds = F.unix_millis("timestamp")
    if selection.since is not None:
        conditions.append(milliseconds >= _milliseconds(selection.since.timestamp()))
    if selection.until is not None:
        conditions.append(milliseconds < _milliseconds(selection.until.timestamp()))
    together = conditions[0]
    for condition in conditions[1:]:
        together &= condition
    return F.coalesce(together, F.lit(False))


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
