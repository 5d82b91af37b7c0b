from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.partitioner import (
    Partitioner,
    TopicPartitions,
    group_by_partition,
    murmur2,
    unpartitioned,
)


def records(keys=None, rows=None, partitions=None):
    count = len(keys) if keys is not None else rows
    columns = {"value": pa.array([str(i) for i in range(count)])}
    if keys is not None:
        columns["key"] = pa.array(keys, pa.binary())
    if partitions is not None:
        columns["partition"] = pa.array(partitions, pa.int32())
    (made,) = split_by_topic(pa.record_batch(columns), "t").records
    return made


def hashes(keys):
    made = records(keys)  # keeps alive the memory that is hashed
    return murmur2(made.keys).view(np.int32).tolist()


def runs(partitioned):
    """partition -> row numbers, in their order."""
    first = partitioned.records.values.addresses
    partitions = {}
    for number, partition in enumerate(partitioned.partitions.tolist()):
        start, end = partitioned.starts[number], partitioned.starts[number + 1]
        assert end > start
        partitions[partition] = first[start:end].tolist()
    return partitions


def plain_murmur2(key):
    """Kafka's ``Utils.murmur2`` in plain Python."""
    factor, mask = 0x5BD1E995, 0xFFFFFFFF
    result = 0x9747B28C ^ len(key)
    for at in range(0, len(key) - 3, 4):
        word = int.from_bytes(key[at : at + 4], "little") * factor & mask
        result = result * factor & mask ^ (word ^ word >> 24) * factor & mask
    if len(key) % 4:
        result = (result ^ int.from_bytes(key[len(key) & ~3 :], "little")) * factor & mask
    result = (result ^ result >> 13) * factor & mask
    return result ^ result >> 15


@pytest.mark.parametrize("count", [1, 99, 100, 101, 300], ids="{} others".format)
@pytest.mark.parametrize("sizes", [(0,), (255, 256, 257, 260, 261), (10_001, 3, 50_000)])
def test_long_keys_have_their_hash_beside_any_number_of_others(count, sizes):
    keys = [bytes((size + at) % 251 for at in range(size)) for size in sizes]
    others = [bytes(str(number), "ascii") * 70 for number in range(count)]
    values = [number & 0xFFFFFFFF for number in hashes([*keys, *others])]
    assert values == [plain_murmur2(key) for key in [*keys, *others]]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=60))
def test_a_key_has_one_hash_whatever_lies_beside_it(keys):
    assert hashes(keys) == [hashes([key])[0] for key in keys]


KEYS = st.lists(st.none() | st.binary(max_size=3), min_size=1, max_size=60)


@given(KEYS, st.integers(1, 9), st.data())
def test_records_are_grouped_by_partition_each_in_the_order_of_the_rows(keys, count, data):
    sticky_partition = data.draw(st.integers(0, count - 1))
    all_records = records(keys)
    chosen = [
        sticky_partition if key is None else (hashes([key])[0] & 0x7FFFFFFF) % count for key in keys
    ]
    addresses = all_records.values.addresses.tolist()
    expected = {
        partition: [a for a, c in zip(addresses, chosen, strict=True) if c == partition]
        for partition in set(chosen)
    }
    partitioned = group_by_partition(all_records, count, sticky_partition)
    assert runs(partitioned) == expected
    assert partitioned.partitions.tolist() == sorted(expected)


def test_records_without_a_key_are_one_group():
    assert list(runs(group_by_partition(records(rows=5), 4, sticky_partition=3))) == [3]
    assert list(runs(group_by_partition(records([None, None]), 4, sticky_partition=2))) == [2]


def test_the_column_partition_wins_even_beyond_the_known_partitions():
    made = records([b"k", b"k", b"k"], partitions=[70_000, None, 0])
    assert [len(rows) for rows in runs(group_by_partition(made, 1, 0)).values()] == [2, 1]
    assert group_by_partition(made, 1, 0).partitions.tolist() == [0, 70_000]


def test_unpartitioned_records_are_one_group_for_the_client_to_partition():
    partitioned = unpartitioned(records([b"a", b"b"]))
    assert (partitioned.partitions.tolist(), partitioned.starts.tolist()) == ([-1], [0, 2])


# --- racks (KIP-1123) -----------------------------------------------------------------------------


def sends(partitioner, partitions, count, keys=None):
    """Which partitions each of some sends reached."""
    made = records(keys, rows=3)
    return [partitioner.partition(made, partitions).partitions.tolist() for _ in range(count)]


def test_records_without_a_key_stay_in_the_rack_evenly():
    near = TopicPartitions(6, tuple(range(6)), near=frozenset({1, 4}))
    reached = sends(Partitioner(is_rack_aware=True), near, 10)
    assert sorted(reached) == [[1]] * 5 + [[4]] * 5


@pytest.mark.parametrize("near", [None, frozenset()])
def test_without_a_leader_in_the_rack_all_available_partitions_are_used(near):
    partitions = TopicPartitions(4, (0, 2, 3), near)
    reached = sends(Partitioner(is_rack_aware=True), partitions, 6)
    assert sorted(reached) == [[0], [0], [2], [2], [3], [3]]


def test_racks_matter_only_if_asked_to_and_never_for_a_key():
    near = TopicPartitions(2, (0, 1), near=frozenset({1}))
    assert sorted(sends(Partitioner(), near, 4)) == [[0], [0], [1], [1]]
    keys = [b"a", b"b", b"c"]
    assert sends(Partitioner(is_rack_aware=True), near, 1, keys) == sends(
        Partitioner(), TopicPartitions(2, (0, 1)), 1, keys
    )
