from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.records.columns import BytesColumn, HeaderColumn, RecordColumns, ranges


def bytes_column(addresses, lengths=None):
    lengths = [7] * len(addresses) if lengths is None else lengths
    buffer = np.zeros(1, dtype=np.uint8)
    return BytesColumn(np.array(addresses, np.uint64), np.array(lengths, np.int64), buffer)


def header_column(rows):
    """Headers of each row as pairs (name, address); the names index ``unique_names``."""
    flat = [header for row in rows for header in row]
    return HeaderColumn(
        np.cumsum([0, *map(len, rows)], dtype=np.int64),
        np.array([name for name, _ in flat], dtype=np.int64),
        [b"k", b"l"],
        bytes_column([address for _, address in flat]),
    )


def header_rows(column):
    pairs = list(zip(column.names.tolist(), column.values.addresses.tolist(), strict=True))
    starts = column.starts.tolist()
    return [pairs[start:end] for start, end in pairwise(starts)]


@pytest.mark.parametrize(
    ("starts", "counts", "numbers", "begins"),
    [
        ([5, 9], [2, 1], [5, 6, 9], [0, 2, 3]),
        ([], [], [], [0]),
        ([3, 3, 3], [0, 0, 0], [], [0, 0, 0, 0]),
        ([4, 0, 4], [1, 0, 2], [4, 4, 5], [0, 1, 1, 3]),
    ],
)
def test_ranges_lists_all_numbers_and_where_each_range_begins(starts, counts, numbers, begins):
    result = ranges(np.array(starts, dtype=np.int64), np.array(counts, dtype=np.int64))
    assert [part.tolist() for part in result] == [numbers, begins]
    assert [part.dtype for part in result] == [np.int64, np.int64]


@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(0, 5)), max_size=6))
def test_ranges_agrees_with_pythons_range(pairs):
    starts = np.array([start for start, _ in pairs], dtype=np.int64)
    counts = np.array([count for _, count in pairs], dtype=np.int64)
    numbers, begins = ranges(starts, counts)
    expected = [list(range(start, start + count)) for start, count in pairs]
    assert [numbers[begin:end].tolist() for begin, end in pairwise(begins)] == expected


@st.composite
def headers_and_choice(draw):
    header = st.tuples(st.integers(0, 1), st.integers(0, 2**64 - 1))
    rows = draw(st.lists(st.lists(header, max_size=3), min_size=1, max_size=6))
    return rows, draw(st.lists(st.integers(0, len(rows) - 1), max_size=8))


@given(headers_and_choice())
def test_take_gives_the_headers_of_the_requested_rows(drawn):
    rows, choice = drawn
    taken = header_column(rows).take(np.array(choice, dtype=np.int64))
    assert header_rows(taken) == [rows[i] for i in choice]


def test_take_gives_every_column_in_the_requested_order():
    headers = [[(0, 1)], [], [(1, 2), (0, 3)]]
    records = RecordColumns(
        topic="a",
        values=bytes_column([10, 20, 30], [1, 2, 3]),
        keys=bytes_column([11, 0, 31], [4, 0, 5]),
        partitions=np.array([0, -1, 2], dtype=np.int32),
        timestamps_ms=np.array([7, 0, 9], dtype=np.int64),
        headers=header_column(headers),
        rows=np.array([5, 6, 7]),
        arrow_batch=object(),
        arrow_batch_bytes=6,
    )
    taken = records.take(np.array([2, 0]))
    assert len(taken) == 2
    assert taken.topic == "a"
    assert taken.arrow_batch is records.arrow_batch
    assert taken.values.addresses.tolist() == [30, 10]
    assert taken.values.lengths.tolist() == [3, 1]
    assert taken.keys.addresses.tolist() == [31, 11]
    assert taken.partitions.tolist() == [2, 0]
    assert taken.timestamps_ms.tolist() == [9, 7]
    assert taken.rows.tolist() == [7, 5]
    assert header_rows(taken.headers) == [headers[2], headers[0]]
    assert taken.total_bytes == 3 + 1 + 5 + 4


def test_take_leaves_missing_columns_missing():
    values, rows = bytes_column([10, 20], [1, 2]), np.array([0, 1])
    records = RecordColumns("a", values, None, None, None, None, rows, None, 0)
    taken = records.take(np.array([1]))
    assert (taken.keys, taken.partitions, taken.timestamps_ms, taken.headers) == (None,) * 4
    assert taken.total_bytes == 2
