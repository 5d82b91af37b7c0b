"""[task] What the tasks of foreach_batch run, as functions for Spark's mapInArrow."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.spark import private_api
from spark_kafka_sink.spark.task import write_partition

if TYPE_CHECKING:
    from spark_kafka_sink.schemas.serializer import Serializer

#: the only column of what WriteToKafka returns
REPORT = "report"
#: true in the rows behind the last one, otherwise null; records have no such column
IS_END = "is_end"
_END_ROWS = 2


@dataclass(frozen=True)
class WriteToKafka:
    """Writes a partition in a task, and returns its report; Spark shows the name in plans."""

    options: SinkOptions
    serializer: Serializer | None
    has_end_rows: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.has_end_rows:
            batches = remove_end_rows(batches)
        yield _one_row(pickle.dumps(write_partition(batches, self.options, self.serializer)))


def _one_row(pickled: bytes) -> pa.RecordBatch:
    # pa.array would import pandas if it is installed, half a second of a cold worker.
    ends = np.array([0, len(pickled)], dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(pickled)]
    return pa.record_batch([pa.Array.from_buffers(pa.binary(), 1, buffers)], [REPORT])


# --- the end of the rows, where Spark marks any end -----------------------------------------------
#
# Spark marks the end of the rows of a task that it interrupts, too. So they pass through two Python
# workers, the first of which adds two rows behind the last one. Spark asks before each row that it
# passes to the second worker whether the task is interrupted. The first of the two rows may be what
# it was waiting for when the task was interrupted; the second one is passed only if the task was
# not interrupted before the first worker had all rows.


@dataclass(frozen=True)
class AddEndRows:
    """Appends the end rows in a task; ``schema``: for a task without rows."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        schema = self.schema
        for batch in batches:
            schema = batch.schema
            yield _add_column(batch, pa.nulls(batch.num_rows, pa.bool_()))
        private_api.require_end_of_rows()
        nulls = [pa.nulls(_END_ROWS, field.type) for field in schema]
        # pa.array would import pandas.
        is_end = pa.Array.from_buffers(pa.bool_(), _END_ROWS, [None, pa.py_buffer(b"\xff")])
        yield _add_column(pa.RecordBatch.from_arrays(nulls, schema=schema), is_end)


def _add_column(batch: pa.RecordBatch, is_end: pa.Array) -> pa.RecordBatch:
    schema = batch.schema.append(pa.field(IS_END, pa.bool_()))
    return pa.RecordBatch.from_arrays([*batch.columns, is_end], schema=schema)


def remove_end_rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches without those rows; raises RowsIncomplete at the end if one is missing."""
    end_rows = 0
    for batch in batches:
        rows = batch.column(IS_END).null_count
        end_rows += batch.num_rows - rows
        if rows:
            yield batch.slice(0, rows).drop_columns([IS_END])
    if end_rows < _END_ROWS:
        raise private_api.rows_incomplete()
