"""Sizes against a record batch written in plain Python."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.partitioner import group_by_partition
from spark_kafka_sink.records.record_size import (
    BATCH_OVERHEAD_BYTES,
    are_small,
    largest_partition_bytes,
    least_partition_bytes,
    partition_bytes,
    record_bytes,
    split_to_fit,
)

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])


def varint(number):
    """A zigzag varint, as in Kafka's records."""
    number = (number << 1) ^ (number >> 63)
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])


def text(content):
    return varint(-1) if content is None else varint(len(content)) + content


def encoded(value, key, headers):
    """Attributes, timestamp delta, offset delta, key, value, headers (magic 2)."""
    body = b"\0" + varint(0) + varint(0) + text(key) + text(value) + varint(len(headers))
    body += b"".join(text(name.encode()) + text(content) for name, content in headers)
    return varint(len(body)) + body


SIZES = st.sampled_from([0, 1, 62, 63, 64, 65, 8190, 8191, 8192, 8193])
CONTENT = st.none() | SIZES.map(lambda size: b"x" * size)
HEADERS = st.lists(st.tuples(st.sampled_from(["", "k", "ü" * 40]), CONTENT), max_size=70)


@given(st.lists(st.tuples(CONTENT, CONTENT, HEADERS), min_size=1, max_size=4))
def test_a_record_has_the_size_of_its_encoding(rows):
    values, keys, headers = zip(*rows, strict=True)
    columns = {
        "value": pa.array(values, pa.binary()),
        "key": pa.array(keys, pa.binary()),
        "headers": pa.array(headers, pa.list_(HEADER)),
    }
    (records,) = split_by_topic(pa.record_batch(columns), "t").records
    assert record_bytes(records).tolist() == [len(encoded(*row)) for row in rows]
    (plain,) = split_by_topic(pa.record_batch({"value": columns["value"]}), "t").records
    assert record_bytes(plain).tolist() == [len(encoded(value, None, [])) for value in values]


@given(st.lists(st.tuples(CONTENT, CONTENT), min_size=1, max_size=4), st.integers(0, 20_000))
def test_small_records_are_small(rows, limit):
    values, keys = zip(*rows, strict=True)
    columns = {"value": pa.array(values, pa.binary()), "key": pa.array(keys, pa.binary())}
    (records,) = split_by_topic(pa.record_batch(columns), "t").records
    if are_small(records, limit):
        assert int(record_bytes(records).max()) + BATCH_OVERHEAD_BYTES <= limit
    assert are_small(records, 10**9)


@given(
    st.lists(st.tuples(CONTENT, CONTENT, HEADERS), min_size=1, max_size=8),
    st.sampled_from([["value"], ["value", "key"], ["value", "key", "headers"]]),
    st.integers(0, 40_000),
)
def test_bounds_of_a_partition_enclose_its_batch(rows, names, limit):
    values, keys, headers = zip(*rows, strict=True)
    columns = {
        "value": pa.array(values, pa.binary()),
        "key": pa.array(keys, pa.binary()),
        "headers": pa.array(headers, pa.list_(HEADER)),
    }
    columns = {name: columns[name] for name in names}
    columns["partition"] = pa.array([row % 3 for row in range(len(rows))], pa.int32())
    (records,) = split_by_topic(pa.record_batch(columns), "t").records
    partitioned = group_by_partition(records, 3, 0)
    sizes = partition_bytes(partitioned)
    assert (least_partition_bytes(partitioned) <= sizes).all()
    largest = largest_partition_bytes(partitioned, limit)
    assert largest == sizes.max() or sizes.max() < largest <= limit


@given(
    st.lists(st.tuples(st.integers(0, 300), st.integers(0, 2)), min_size=1, max_size=40),
    st.integers(70, 600),
)
def test_parts_keep_the_order_and_only_a_single_record_may_be_too_large(rows, limit):
    sizes, partitions = zip(*rows, strict=True)
    columns = {
        "value": pa.array([b"x" * size for size in sizes]),
        "partition": pa.array(partitions, pa.int32()),
    }
    (records,) = split_by_topic(pa.record_batch(columns), "t").records
    parts = split_to_fit(group_by_partition(records, 3, 0), limit)
    for number in range(3):
        expected = [i for i, partition in enumerate(partitions) if partition == number]
        groups = []
        for part, size in parts:
            partition_of = np.repeat(part.partitions, np.diff(part.starts))
            chosen = np.flatnonzero(partition_of == number)
            if len(chosen):
                groups.append(part.positions[chosen].tolist())
                total = int(record_bytes(part.records)[chosen].sum()) + BATCH_OVERHEAD_BYTES
                assert total <= size <= limit or len(chosen) == 1
        assert [position for group in groups for position in group] == expected


@pytest.mark.parametrize(("limit", "parts"), [(10**9, 1), (0, 3)])
def test_as_few_parts_as_possible(limit, parts):
    (records,) = split_by_topic(pa.record_batch({"value": ["a", "b", "c"]}), "t").records
    assert len(split_to_fit(group_by_partition(records, 1, 0), limit)) == parts
