from __future__ import annotations

from collections import Counter

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
    share_count,
    unpartitioned,
)


def records(keys=None, rows=None, partitions=None, values=None):
    count = rows if keys is None else len(keys)
    columns = {"value": pa.array([b"%d" % i for i in range(count)] if values is None else values)}
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
    keyless = data.draw(st.lists(st.integers(0, count - 1), min_size=1, max_size=3, unique=True))
    keyless = np.repeat(keyless, -(-len(keys) // len(keyless)))[: len(keys)].astype(np.int32)
    all_records = records(keys)
    chosen = [
        other if key is None else (hashes([key])[0] & 0x7FFFFFFF) % count
        for key, other in zip(keys, keyless.tolist(), strict=True)
    ]
    addresses = all_records.values.addresses.tolist()
    expected = {
        partition: [a for a, c in zip(addresses, chosen, strict=True) if c == partition]
        for partition in set(chosen)
    }
    assert runs(group_by_partition(all_records, count, keyless)) == expected


def test_records_without_a_key_are_one_group():
    assert list(runs(group_by_partition(records(rows=5), 4, 3))) == [3]
    assert list(runs(group_by_partition(records([None, None]), 4, 2))) == [2]


def test_the_column_partition_wins_even_beyond_the_known_partitions():
    made = records([b"k", b"k", b"k"], partitions=[70_000, None, 0])
    assert [len(rows) for rows in runs(group_by_partition(made, 1, 0)).values()] == [2, 1]
    assert group_by_partition(made, 1, 0).partitions.tolist() == [0, 70_000]


def test_unpartitioned_records_are_one_group_for_the_client_to_partition():
    partitioned = unpartitioned(records([b"a", b"b"]))
    assert (partitioned.partitions.tolist(), partitioned.starts.tolist()) == ([-1], [0, 2])


# --- records without a key --------------------------------------------------------------------

FOUR = TopicPartitions(4, (0, 1, 2, 3))


def sized(count, value_bytes, keys=None, partitions=None):
    """Records with values of that size, in one buffer."""
    return records(keys, count, partitions, values=[b"v" * value_bytes] * count)


def send_first(made, partitions, partitioner=None):
    """As the first send."""
    return (partitioner or Partitioner()).partition(made, partitions, follows_others=False)


def counts(partitioned):
    """partition -> how many records"""
    return {partition: len(rows) for partition, rows in runs(partitioned).items()}


@pytest.mark.parametrize(
    ("rows", "value_bytes"), [(9000, 100), (9000, 5), (6000, 10_000), (4, 20_000)]
)
def test_a_large_batch_without_keys_is_spread_evenly_in_runs_of_rows(rows, value_bytes):
    made = sized(rows, value_bytes)
    partitioned = send_first(made, FOUR)
    assert sorted(partitioned.partitions.tolist()) == [0, 1, 2, 3]
    assert np.diff(partitioned.starts).tolist() == [rows // 4] * 4
    assert partitioned.records is made  # no row was moved
    assert partitioned.positions.tolist() == list(range(rows))


@pytest.mark.parametrize(
    ("total_kib", "first", "later"),
    [(0, 0, 0), (15, 0, 0), (16, 1, 1), (64, 4, 4), (256, 16, 4), (1280, 16, 5), (65536, 256, 256)],
)
def test_small_shares_are_fewer_if_a_send_follows_others(total_kib, first, later):
    total = total_kib * 1024
    assert share_count(total, follows_others=False) == first
    assert share_count(total, follows_others=True) == later


@pytest.mark.parametrize(("follows_others", "reached"), [(False, 12), (True, 4)])
def test_a_send_that_follows_others_reaches_fewer_of_many_partitions(follows_others, reached):
    twelve, made = TopicPartitions(12, tuple(range(12))), sized(9000, 100)
    partitioned = Partitioner().partition(made, twelve, follows_others=follows_others)
    assert set(counts(partitioned).values()) == {9000 // reached}


def test_rows_of_different_sizes_are_spread_by_their_bytes():
    values = pa.array([b"v" * 100_000] * 10 + [b"v" * 992] * 1000, pa.binary())
    (made,) = split_by_topic(pa.record_batch({"value": values}), "t").records
    partitioned = send_first(made, TopicPartitions(2, (0, 1)))
    assert np.diff(partitioned.starts).tolist() == [10, 1000]


def test_one_row_larger_than_all_others_is_a_run_of_its_own():
    values = pa.array([b"v"] * 3 + [b"v" * 1_000_000] + [b"v"] * 3, pa.binary())
    (made,) = split_by_topic(pa.record_batch({"value": values}), "t").records
    partitioned = send_first(made, FOUR)
    assert np.diff(partitioned.starts).tolist() == [4, 3]
    assert len(set(partitioned.partitions.tolist())) == 2


def test_a_small_batch_without_keys_stays_together_and_the_next_goes_elsewhere():
    partitioner, made = Partitioner(), sized(100, 200)
    reached = [counts(send_first(made, FOUR, partitioner)) for _ in range(8)]
    assert all(list(count.values()) == [100] for count in reached)
    assert [sorted({*a, *b, *c, *d}) for a, b, c, d in (reached[:4], reached[4:])] == [
        [0, 1, 2, 3]
    ] * 2


def test_batches_of_any_size_do_not_always_begin_with_the_same_partition():
    for rows in (100, 300, 900, 9000):
        partitioner, made = Partitioner(), sized(rows, 100)
        first = [int(send_first(made, FOUR, partitioner).partitions[0]) for _ in range(4)]
        assert len(set(first)) > 1


def test_batches_that_reach_some_partitions_reach_all_of_them_in_turn():
    partitioner, made = Partitioner(), sized(500, 100)  # three runs
    total = Counter()
    for _ in range(4):
        total.update(counts(send_first(made, FOUR, partitioner)))
    assert len(total) == 4
    assert max(total.values()) - min(total.values()) <= 3


@given(st.randoms(), st.integers(1, 500), st.integers(1, 9), st.integers(0, 500))
def test_keys_choose_as_ever_beside_rows_without_a_key(random, rows, count, value_bytes):
    share = random.random()
    keys = [b"%d" % row if random.random() < share else None for row in range(rows)]
    made = sized(len(keys), value_bytes, keys)
    partitioned = send_first(made, TopicPartitions(count, tuple(range(count))))
    assert sorted(partitioned.positions.tolist()) == list(range(len(keys)))
    reached = np.empty(len(keys), dtype=int)
    reached[partitioned.positions] = np.repeat(partitioned.partitions, np.diff(partitioned.starts))
    for key, partition in zip(keys, reached.tolist(), strict=True):
        if key is not None:
            assert partition == (plain_murmur2(key) & 0x7FFFFFFF) % count
    assert len(set(partitioned.partitions.tolist())) == len(partitioned.partitions)
    for start, end in zip(partitioned.starts[:-1], partitioned.starts[1:], strict=True):
        assert (np.diff(partitioned.positions[start:end]) > 0).all()
    keyless = reached[[key is None for key in keys]]
    bytes_without_key = len(keyless) * (value_bytes + 8)
    shares = max(1, min(count, share_count(bytes_without_key, follows_others=False)))
    sizes = np.unique(keyless, return_counts=True)[1]
    assert len(sizes) == (shares if len(keyless) else 0)
    assert len(sizes) == 0 or max(sizes) - min(sizes) <= 1


def test_the_column_partition_counts_as_a_key_does():
    chosen = [2] * 1000 + [None] * 1000
    partitioned = send_first(sized(2000, 100, partitions=chosen), FOUR)
    assert counts(partitioned) == {0: 250, 1: 250, 2: 1250, 3: 250}


# --- racks (KIP-1123) -----------------------------------------------------------------------------


def sends(partitioner, partitions, count, keys=None):
    """Which partitions each of some sends reached."""
    made = records(keys, rows=3)
    return [send_first(made, partitions, partitioner).partitions.tolist() for _ in range(count)]


def test_records_without_a_key_stay_in_the_rack_evenly():
    near = TopicPartitions(6, tuple(range(6)), near=frozenset({1, 4}))
    reached = sends(Partitioner(is_rack_aware=True), near, 10)
    assert sorted(reached) == [[1]] * 5 + [[4]] * 5


@pytest.mark.parametrize("near", [None, frozenset()])
def test_without_a_leader_in_the_rack_all_available_partitions_are_used(near):
    partitions = TopicPartitions(4, (0, 2, 3), near)
    reached = sends(Partitioner(is_rack_aware=True), partitions, 6)
    assert sorted(reached) == [[0], [0], [2], [2], [3], [3]]


def test_a_large_batch_without_keys_is_spread_over_the_rack():
    near = TopicPartitions(6, tuple(range(6)), near=frozenset({1, 4}))
    partitioned = send_first(sized(1000, 100), near, Partitioner(is_rack_aware=True))
    assert counts(partitioned) == {1: 500, 4: 500}


def test_racks_matter_only_if_asked_to_and_never_for_a_key():
    near = TopicPartitions(2, (0, 1), near=frozenset({1}))
    assert sorted(sends(Partitioner(), near, 4)) == [[0], [0], [1], [1]]
    keys = [b"a", b"b", b"c"]
    assert sends(Partitioner(is_rack_aware=True), near, 1, keys) == sends(
        Partitioner(), TopicPartitions(2, (0, 1)), 1, keys
    )
