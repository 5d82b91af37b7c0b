"""Where rows fail: the places in a Spark partition, and a stream's number of partitions."""

from __future__ import annotations

import orders
from query_kinds import KEYS, ROWS_PER_BATCH, SPARK_PARTITIONS


def test_every_row_is_in_one_spark_partition_in_the_order_of_the_source():
    table = [key % 3 for key in range(KEYS)]
    tasks = [orders.rows_of(partition, table) for partition in range(3)]
    assert sorted(row for rows in tasks for row in rows) == list(range(ROWS_PER_BATCH))
    assert all(rows == sorted(rows) for rows in tasks)
    assert tasks[1][:3] == [1, 4, 7]


def test_borders_are_between_the_last_row_of_an_arrow_batch_and_the_first_of_the_next():
    rows = list(range(100, 132))
    assert orders.around_borders(rows) == [109, 110, 119, 120, 129, 130]
    assert orders.around_borders(rows[:20]) == [109, 110]


def test_a_stream_keeps_the_number_of_partitions_that_was_set_last(tmp_path):
    assert orders.partitions(tmp_path, "t") == SPARK_PARTITIONS
    orders.set_partitions(tmp_path, "t", 3)
    orders.set_partitions(tmp_path, "t", 1)
    assert orders.partitions(tmp_path, "t") == 1
    assert orders.partitions(tmp_path, "other") == SPARK_PARTITIONS
