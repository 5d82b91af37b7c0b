from __future__ import annotations

import random
from datetime import datetime, timezone

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.records.arrow import Serialized, split_by_topic
from spark_kafka_sink.records.fingerprint import Fingerprint
from spark_kafka_sink.records.rejection import RowProblem

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
TYPES = {
    "value": pa.binary(),
    "key": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "headers": HEADERS,
}
NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
ROW = {
    "value": b"v",
    "key": b"k",
    "topic": "t",
    "partition": 0,
    "timestamp": NOW,
    "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
}


def fingerprint(*batches, topic=None):
    """Of batches of rows, each a dict by column."""
    made = Fingerprint()
    for rows in batches:
        columns = {
            name: pa.array([row[name] for row in rows], kind)
            for name, kind in TYPES.items()
            if rows and name in rows[0]
        }
        if columns:
            add(made, pa.record_batch(columns), topic)
    return made.records, made.text()


def add(made, batch, topic):
    split = split_by_topic(batch, topic, timestamp_column="timestamp")
    for records in split.records:
        made.add(records)
    for rejected in split.rejected:
        made.add_rejected(rejected)


def values(*texts):
    return [{"value": text} for text in texts]


LENGTHS = [0, 1, 7, 8, 9, 63, 64, 127, 128, 129, 255, 256, 257, 1000, 5000]


def test_neither_order_nor_batches_make_a_difference():
    texts = [random.Random(n).randbytes(length) for n, length in enumerate(LENGTHS * 20)]
    expected = fingerprint(values(*texts), topic="t")
    assert expected[0] == len(texts)
    random.Random(1).shuffle(texts)
    assert fingerprint(values(*texts), topic="t") == expected
    assert fingerprint(*(values(text) for text in texts), topic="t") == expected
    assert fingerprint(values(*texts[:7]), values(), values(*texts[7:]), topic="t") == expected


def test_topics_in_a_column_or_in_the_option_make_no_difference():
    in_column = [{"value": b"v", "topic": "t"}]
    assert fingerprint(in_column) == fingerprint(values(b"v"), topic="t")


def test_a_column_without_values_counts_like_no_column():
    nothing = {"value": b"v", "key": None, "partition": None, "timestamp": None, "headers": None}
    assert fingerprint([nothing], topic="t") == fingerprint(values(b"v"), topic="t")


@pytest.mark.parametrize(
    "change",
    [
        {"value": b"w"},
        {"value": b""},
        {"value": None},
        {"value": b"v\0"},
        {"key": b"l"},
        {"key": None},
        {"key": b""},
        {"key": b"v", "value": b"k"},
        {"topic": "u"},
        {"partition": 1},
        {"partition": None},
        {"timestamp": NOW.replace(microsecond=1000)},
        {"timestamp": None},
        {"headers": None},
        {"headers": ROW["headers"][:1]},
        {"headers": ROW["headers"][::-1]},
        {"headers": [{"key": "b", "value": b"1"}, {"key": "a", "value": None}]},
        {"headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": b""}]},
        {"headers": [{"key": "a", "value": None}, {"key": "b", "value": b"1"}]},
    ],
)
def test_whatever_is_sent_makes_a_difference(change):
    assert fingerprint([ROW])[1] != fingerprint([ROW | change])[1]


def test_headers_do_not_move_between_rows_unnoticed():
    one, other = ROW["headers"]
    before = [ROW | {"headers": [one]}, ROW | {"headers": [other], "value": b"w"}]
    after = [ROW | {"headers": [other]}, ROW | {"headers": [one], "value": b"w"}]
    assert fingerprint(before) != fingerprint(after)


def test_values_do_not_move_between_rows_unnoticed():
    before = [ROW | {"key": b"1", "value": b"a"}, ROW | {"key": b"2", "value": b"b"}]
    after = [ROW | {"key": b"1", "value": b"b"}, ROW | {"key": b"2", "value": b"a"}]
    assert fingerprint(before) != fingerprint(after)


@pytest.mark.parametrize("length", LENGTHS[1:])
def test_every_byte_counts(length):
    text = random.Random(length).randbytes(length)
    seen = {fingerprint(values(text), topic="t")[1]}
    places = range(length) if length < 300 else random.Random(1).sample(range(length), 300)
    for place in places:
        changed = bytearray(text)
        changed[place] ^= 1 << (place % 8)
        seen.add(fingerprint(values(bytes(changed)), topic="t")[1])
    assert len(seen) == len(places) + 1


def test_parts_of_a_long_value_do_not_change_places_unnoticed():
    one, other = b"a" * 128, b"b" * 128
    assert fingerprint(values(one + other), topic="t") != fingerprint(
        values(other + one), topic="t"
    )


def test_rows_that_come_twice_count_twice():
    once = fingerprint(values(b"a", b"b"), topic="t")
    assert fingerprint(values(b"a", b"a"), topic="t") != once
    assert fingerprint(values(b"a", b"b", b"b"), topic="t")[1] != once[1]
    assert fingerprint(topic="t") == (0, "0" * 32)


@given(st.lists(st.binary(max_size=300), max_size=8), st.lists(st.binary(max_size=300), max_size=8))
def test_it_tells_multisets_apart(ones, others):
    is_equal = sorted(ones) == sorted(others)
    made = fingerprint(values(*ones), topic="t"), fingerprint(values(*others), topic="t")
    assert (made[0] == made[1]) is is_equal


def test_it_is_the_same_in_every_version_of_the_sink():
    # A stored entry is compared with that of a later version; a change needs a new format version.
    assert fingerprint([ROW])[1] == "c060686c46f62567808513063f5cbc81"


# --- rows that cannot become records -------------------------------------------------------------

NAMELESS = [{"key": None, "value": b"1"}]
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
#: the last ones have two problems; which of them is named depends on the rows before
BAD_ROWS = [
    ROW | {"topic": None},
    ROW | {"topic": "no name"},
    ROW | {"partition": -1},
    ROW | {"timestamp": EPOCH},
    ROW | {"headers": NAMELESS},
    ROW | {"partition": -2, "timestamp": EPOCH},
    ROW | {"partition": -2, "headers": NAMELESS},
]


def test_the_rows_beside_a_bad_row_make_no_difference():
    rows = [*BAD_ROWS, ROW, ROW | {"headers": [{"key": "c", "value": b"1"}]}]
    expected = fingerprint(rows)
    assert expected[0] == len(rows)
    assert fingerprint(*([row] for row in rows)) == expected
    for seed in range(20):
        random.Random(seed).shuffle(rows)
        assert fingerprint(rows) == expected
        assert fingerprint(rows[:4], rows[4:]) == expected


@pytest.mark.parametrize("bad_row", BAD_ROWS)
@pytest.mark.parametrize(
    "change",
    [
        {"value": b"w"},
        {"key": None},
        {"topic": "u"},
        {"topic": None},
        {"partition": -3},
        {"timestamp": EPOCH.replace(year=1969)},
        {"headers": [*NAMELESS, *NAMELESS]},
    ],
)
def test_whatever_makes_another_dead_letter_makes_a_difference(bad_row, change):
    changed = bad_row | change
    assert changed == bad_row or fingerprint([bad_row])[1] != fingerprint([changed])[1]


def test_a_bad_row_counts_differently_from_a_record():
    assert fingerprint([ROW | {"partition": -1}])[1] != fingerprint([ROW | {"partition": None}])[1]


@pytest.mark.parametrize("value", [b"2", b'{"id":"another"}'])
def test_all_of_a_row_that_was_not_serialized_counts(value):
    def made(*texts):
        batch = pa.record_batch({"value": pa.array([*texts, b"\0\0\0\0\7good"])})
        rows = RowProblem(np.arange(len(texts)), "a reason")
        fingerprint = Fingerprint()
        add(fingerprint, Serialized(batch, [rows], {"value": 5}), "t")
        return fingerprint.text()

    assert made(b"1") != made(value)
