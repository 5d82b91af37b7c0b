"""The rows that show where the rows of a task end, where Spark marks any end."""

from __future__ import annotations

import socket

import pyarrow as pa
import pytest
from spark_worker import connected, run_as_worker

from spark_kafka_sink.errors import RowsIncomplete
from spark_kafka_sink.spark.map_in_arrow import AddEndRows, remove_end_rows

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        pa.field("value", pa.string(), nullable=False),
        ("headers", HEADERS),
        ("timestamp", pa.timestamp("us", "Europe/Berlin")),
        ("price", pa.decimal128(9, 2)),
    ]
)
ROWS = [
    {"value": "a", "headers": [{"key": "h", "value": b"\x00"}], "timestamp": 1, "price": None},
    {"value": "b", "headers": None, "timestamp": None, "price": 7},
    {"value": "", "headers": [], "timestamp": -1, "price": -7},
]


def batches_of(*sizes):
    rows = iter(ROWS * 3)
    for size in sizes:
        yield pa.RecordBatch.from_pylist([next(rows) for _ in range(size)], schema=SCHEMA)


def read_with_end_rows(batches, rows_socket):
    return run_as_worker(lambda: list(AddEndRows(SCHEMA)(batches)), rows_socket)


@pytest.fixture
def rows_socket():
    """What Spark leaves open at the end of a task's rows."""
    with connected() as (_, rows):
        yield rows


@pytest.mark.parametrize("sizes", [[], [0], [1], [3, 2], [2, 0, 1]])
@pytest.mark.parametrize("size", [1, 2, 3, 100], ids=lambda size: f"batches of {size}")
def test_all_rows_arrive_however_spark_forms_batches_of_them(sizes, size, rows_socket):
    expected = pa.Table.from_batches(batches_of(*sizes), SCHEMA)
    passed = read_with_end_rows(batches_of(*sizes), rows_socket)
    table = pa.Table.from_batches(passed)
    assert table.num_rows == expected.num_rows + 2
    batches = list(remove_end_rows(table.combine_chunks().to_batches(max_chunksize=size)))
    assert pa.Table.from_batches(batches, SCHEMA) == expected
    assert all(batch.num_rows for batch in batches)


@pytest.mark.parametrize("missing", [1, 2, 3])
def test_rows_that_end_before_the_second_end_row_are_incomplete(missing, rows_socket):
    """As if Spark interrupted the task while its second worker waited for the next row."""
    table = pa.Table.from_batches(read_with_end_rows(batches_of(2, 1), rows_socket))
    passed = table.slice(0, table.num_rows - missing).to_batches()
    with pytest.raises(RowsIncomplete, match="nothing was committed"):
        list(remove_end_rows(passed))


def test_a_connection_that_ends_without_a_mark_gets_no_end_rows():
    with connected() as (spark, rows):
        spark.shutdown(socket.SHUT_WR)
        with pytest.raises(RowsIncomplete):
            read_with_end_rows(batches_of(1), rows)
