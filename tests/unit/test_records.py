from __future__ import annotations

import json
import re
from collections import defaultdict
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from another_python import run_python
from hypothesis import given
from hypothesis import strategies as st
from record_rows import Row, read, read_bytes

from spark_kafka_sink.errors import InvalidSchema
from spark_kafka_sink.records.arrow import split_by_topic

HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def split(batch: pa.RecordBatch, topic: str | None = "t") -> dict[str, list[Row]]:
    made = split_by_topic(batch, topic, timestamp_column="timestamp").records
    return {records.topic: read(records) for records in made}


def a_batch(rows: int | None = None, **columns: Any) -> pa.RecordBatch:
    if "value" not in columns:
        columns["value"] = ["v"] * (rows or len(next(iter(columns.values()))))
    return pa.RecordBatch.from_pydict(columns)


# --- any batch, against a model in plain Python --------------------------------------------------


def cells(draw: st.DrawFn, count: int, cell: st.SearchStrategy[Any]) -> list[Any]:
    return draw(st.lists(cell, min_size=count, max_size=count))


def plain_or_dictionary(
    draw: st.DrawFn, count: int, cell: st.SearchStrategy[Any], kind: pa.DataType, *, nulls: bool
) -> tuple[pa.Array, list[Any]]:
    """An Arrow array and its values; dictionaries may contain duplicates and nulls."""
    if nulls:
        cell = st.none() | cell
    if draw(st.booleans()):
        values = cells(draw, count, cell)
        return pa.array(values, kind), values
    values = draw(st.lists(cell, min_size=0 if nulls else 1, max_size=3))
    code = st.integers(0, len(values) - 1) if values else st.none()
    codes = cells(draw, count, st.none() | code if nulls else code)
    code_type = draw(st.sampled_from([pa.int8(), pa.uint16(), pa.int32(), pa.int64()]))
    array = pa.DictionaryArray.from_arrays(pa.array(codes, code_type), pa.array(values, kind))
    return array, [None if code is None else values[code] for code in codes]


def text_column(draw: st.DrawFn, count: int) -> tuple[pa.Array, list[bytes | None]]:
    is_text = draw(st.booleans())
    kinds = [pa.string(), pa.large_string()] if is_text else [pa.binary(), pa.large_binary()]
    cell = st.text(max_size=4) if is_text else st.binary(max_size=4)
    kind = draw(st.sampled_from(kinds))
    array, values = plain_or_dictionary(draw, count, cell, kind, nulls=True)
    return array, [value.encode() if isinstance(value, str) else value for value in values]


def partition_column(draw: st.DrawFn, count: int) -> tuple[pa.Array, list[int]]:
    values = cells(draw, count, st.none() | st.integers(0, 2**31 - 1))
    return pa.array(values, pa.int32()), [-1 if value is None else value for value in values]


def timestamp_column(draw: st.DrawFn, count: int) -> tuple[pa.Array, list[int]]:
    unit, zone = draw(st.sampled_from(sorted(PER_SECOND))), draw(st.sampled_from([None, "UTC"]))
    scale = PER_SECOND[unit]
    # from the first whole millisecond to the year 2200
    times = st.integers(max(1, scale // 1000), 7_258_118_400 * scale)
    values = cells(draw, count, st.none() | times)
    expected = [0 if value is None else value * 1000 // scale for value in values]
    return pa.array(values, pa.timestamp(unit, zone)), expected


def header_column(draw: st.DrawFn, count: int) -> tuple[pa.Array, list[Any]]:
    name = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=2)
    header = st.tuples(name, st.none() | st.binary(max_size=3))
    lists = cells(draw, count, st.none() | st.lists(header, max_size=3))
    kind = draw(st.sampled_from([pa.list_, pa.large_list]))(HEADER)
    expected = [tuple((key.encode(), value) for key, value in row or ()) for row in lists]
    return pa.array(lists, kind), expected


def topic_column(draw: st.DrawFn, count: int) -> tuple[pa.Array, list[str]]:
    kind = draw(st.sampled_from([pa.string(), pa.large_string()]))
    names = st.sampled_from(["a", "b", "c.d-_"])
    return plain_or_dictionary(draw, count, names, kind, nulls=False)


COLUMNS = {
    "key": text_column,
    "partition": partition_column,
    "timestamp_ms": timestamp_column,
    "headers": header_column,
}


class Batch(NamedTuple):
    arrow: pa.RecordBatch
    rows: list[Row]
    topics: list[str]


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """A slice of a batch with some of the columns, and the rows in it."""
    count = draw(st.integers(0, 8))
    chosen = {"value": text_column}
    chosen |= {name: make for name, make in COLUMNS.items() if draw(st.booleans())}
    made = {name: make(draw, count) for name, make in chosen.items()}
    arrays = {name.removesuffix("_ms"): array for name, (array, _) in made.items()}
    arrays["topic"], topics = topic_column(draw, count)
    start = draw(st.integers(0, count))
    stop = draw(st.integers(start, count))
    rows = [
        Row(**{name: values[i] for name, (_, values) in made.items()}) for i in range(start, stop)
    ]
    batch = pa.RecordBatch.from_pydict(arrays).slice(start, stop - start)
    return Batch(batch, rows, topics[start:stop])


@given(batches())
def test_topic_of_the_option_takes_all_rows_as_they_are(batch):
    assert split(batch.arrow, "option") == {"option": batch.rows}


@given(batches())
def test_topic_column_groups_the_rows_and_keeps_their_order(batch):
    expected = defaultdict(list)
    for topic, row in zip(batch.topics, batch.rows, strict=True):
        expected[topic].append(row)
    assert split(batch.arrow, None) == expected


# --- particular cases ----------------------------------------------------------------------------


def test_option_topic_wins_over_the_column():
    batch = a_batch(topic=["a", None, "no topic name"])
    assert list(split(batch, "option")) == ["option"]


KINDS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


CODES = [
    (pa.int8(), 127),
    (pa.uint8(), 200),
    (pa.int16(), 32_767),
    (pa.uint16(), 60_000),
    (pa.int32(), 70_000),
    (pa.uint32(), 70_000),
    (pa.int64(), 70_000),
    (pa.uint64(), 70_000),
]


@pytest.mark.parametrize(("code_type", "code"), CODES)
def test_a_dictionarys_large_codes_are_read_as_its_index_type_says(code_type, code):
    codes = pa.array([0, code, None, code - 1], code_type)
    texts = pa.array([str(number) for number in range(code + 1)])
    column = pa.DictionaryArray.from_arrays(codes, texts)
    expected = [b"0", b"%d" % code, None, b"%d" % (code - 1)]
    assert [row.value for row in split(a_batch(value=column))["t"]] == expected


@pytest.mark.parametrize("code_type", [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()])
def test_topics_and_header_names_may_have_unsigned_codes(code_type):
    names = pa.array([f"n{number}" for number in range(210)])
    column = pa.DictionaryArray.from_arrays(pa.array([200, 0], code_type), names)
    headers = pa.StructArray.from_arrays([column, pa.array([b"a", b"b"])], ["key", "value"])
    batch = a_batch(topic=column, headers=pa.ListArray.from_arrays([0, 1, 2], headers))
    assert split(batch, None) == {
        "n200": [Row(b"v", headers=((b"n200", b"a"),))],
        "n0": [Row(b"v", headers=((b"n0", b"b"),))],
    }


@pytest.mark.parametrize("kind", KINDS + [pa.dictionary(pa.int32(), kind) for kind in KINDS])
def test_column_of_nulls_alone_is_null(kind):
    nulls = pa.nulls(3, kind)
    for batch in (a_batch(value=nulls, key=nulls), a_batch(value=nulls, key=nulls).slice(1)):
        assert split(batch) == {"t": [Row(None)] * batch.num_rows}


@pytest.mark.parametrize("kind", KINDS)
def test_empty_string_is_not_null(kind):
    for array in (pa.array(["", None], kind), pa.array(["", None], kind).dictionary_encode()):
        (records,) = split_by_topic(a_batch(value=array, key=array), "t").records
        for column in (records.values, records.keys):
            assert read_bytes(column) == [b"", None]
            assert column.addresses[0] != 0
            assert column.addresses[1] == 0


def test_order_within_a_topic_is_kept_in_a_long_batch():
    batch = a_batch(value=[str(i) for i in range(1000)], topic=["a", "b", "c", "b"] * 250)
    for rows in split(batch, None).values():
        numbers = [int(row.value) for row in rows]
        assert numbers == sorted(numbers)


def test_keys_and_values_are_not_copied():
    batch = a_batch(value=["ab", "cd"], key=["e", "f"])
    (records,) = split_by_topic(batch, "t").records
    for name, column in (("value", records.values), ("key", records.keys)):
        assert column.addresses[0] == batch.column(name).buffers()[2].address


def test_records_keep_the_memory_of_their_batch_alive():
    batch = a_batch(topic=["a", "b"])
    assert all(records.arrow_batch is batch for records in split_by_topic(batch, None).records)


@pytest.mark.parametrize("kind", [pa.list_, pa.large_list])
def test_null_header_list_hides_its_child_values(kind):
    array_of = pa.ListArray if kind is pa.list_ else pa.LargeListArray
    children = pa.array([("k", b"1"), (None, b"2"), ("l", b"3")], HEADER)
    headers = array_of.from_arrays([0, 1, 2, 3], children, mask=pa.array([False, True, False]))
    rows = split(a_batch(headers=headers))["t"]
    assert [row.headers for row in rows] == [((b"k", b"1"),), (), ((b"l", b"3"),)]


def test_header_keys_may_be_dictionary_encoded():
    pair = pa.StructArray.from_arrays(
        [pa.array(["k", "k"]).dictionary_encode(), pa.array([b"1", None])], ["key", "value"]
    )
    rows = split(a_batch(headers=pa.ListArray.from_arrays([0, 2], pair)))["t"]
    assert rows[0].headers == ((b"k", b"1"), (b"k", None))


def test_unknown_columns_are_ignored():
    assert split(a_batch(value=["v"], other=[1.5])) == {"t": [Row(b"v")]}


# --- rows that cannot be records -----------------------------------------------------------------


def headers(*rows: Any) -> pa.Array:
    return pa.array(rows, pa.list_(HEADER))


def unchecked(*texts: bytes) -> pa.Array:
    """Strings that may be invalid UTF-8, as Spark's cast from binary makes them."""
    return pa.array(texts, pa.binary()).view(pa.string())


def header_keys(*keys: bytes) -> pa.Array:
    """A header per row."""
    pairs = pa.StructArray.from_arrays(
        [unchecked(*keys), pa.nulls(len(keys), pa.binary())], ["key", "value"]
    )
    return pa.ListArray.from_arrays(list(range(len(keys) + 1)), pairs)


def rejections(batch: pa.RecordBatch, topic: str | None, first_row: int = 0) -> list[Any]:
    """Rows, error, topic and reason of everything that was rejected."""
    return [
        (rejected.records.rows.tolist(), rejected.error, rejected.topic, rejected.reason)
        for rejected in split_by_topic(batch, topic, first_row, "timestamp").rejected
    ]


@pytest.mark.parametrize(
    ("columns", "rows", "error", "topic", "reason"),
    [
        ({"topic": ["a", None, "b", None]}, [1, 3], "NULL_TOPIC", None, "null topic; "),
        ({"topic": pa.array(["a", None]).dictionary_encode()}, [1], "NULL_TOPIC", None, "null to"),
        ({"topic": pa.DictionaryArray.from_arrays([0, 1], ["a", None])}, [1], "NULL_TOPIC", None,
         "null topic"),
        ({"topic": ["a", "b", "a", "c d", "a"]}, [3], "INVALID_TOPIC", b"c d",
         "'c d' is not a valid topic name"),
        ({"topic": ["a", ""]}, [1], "INVALID_TOPIC", b"", "'' is not a valid topic name"),
        ({"topic": ["a" * 250]}, [0], "INVALID_TOPIC", b"a" * 250, "'a+' is not a valid topic"),
        ({"partition": pa.array([0, None, -1, -7], pa.int32())}, [2, 3], "NEGATIVE_PARTITION", b"t",
         "negative partition"),
        ({"headers": headers([], None, [("k", None), (None, b"")])}, [2], "INVALID_HEADER", b"t",
         "header without a key"),
        ({"headers": headers([("k", b"")], [None])}, [1], "INVALID_HEADER", b"t",
         "header without a key"),
        ({"headers": headers([("k", b"")], [], [("a\0b", b""), ("a\0b", b"")])}, [2],
         "INVALID_HEADER", b"t", "header key with a zero byte"),
        ({"topic": unchecked(b"a", b"\xff", b"b")}, [1], "INVALID_TOPIC", b"\xff",
         "'.*xff' is not a valid topic name"),
        ({"topic": unchecked(b"a", b"\xff").dictionary_encode()}, [1], "INVALID_TOPIC", b"\xff",
         "'.*xff' is not a valid topic name"),
        ({"headers": header_keys(b"k", b"\xc3", b"l")}, [1], "INVALID_HEADER", b"t",
         "header key that is not UTF-8"),
    ],
)  # fmt: skip
def test_bad_rows_are_rejected(columns, rows, error, topic, reason):
    batch = a_batch(**columns)
    (rejected,) = rejections(batch, None if "topic" in columns else "t")
    assert rejected[:3] == (rows, error, topic)
    assert re.match(reason, rejected[3])


@pytest.mark.parametrize("zone", [None, "UTC", "America/New_York"])
@pytest.mark.parametrize("unit", PER_SECOND)
@pytest.mark.parametrize("milliseconds", [0, -2000, -(10**9)])
def test_timestamp_of_the_epoch_or_before_is_rejected(unit, zone, milliseconds):
    time = milliseconds * PER_SECOND[unit] // 1000
    times = pa.array([PER_SECOND[unit], None, time], pa.timestamp(unit, zone))
    (rejected,) = rejections(a_batch(timestamp=times), "t")
    assert rejected[:2] == ([2], "INVALID_TIMESTAMP")


@pytest.mark.parametrize(
    ("name", "written"), [("event_time", "event_time"), ("a `b`.c", "`a ``b``.c`")]
)
def test_a_rejected_timestamp_is_named_with_the_expression_that_helps(name, written):
    batch = a_batch(**{name: pa.array([0], pa.timestamp("ms"))})
    (rejected,) = split_by_topic(batch, "t", timestamp_column=name).rejected
    assert rejected.reason == (
        f"column {name} is 1970-01-01 00:00:00 UTC or before, which this client cannot send; "
        f"if(unix_millis({written}) > 0, {written}, null) is then the time of sending"
    )


@pytest.mark.parametrize("unit", ["ms", "us", "ns"])
def test_a_timestamp_of_minus_1_ms_is_that_of_a_record_without_one(unit):
    times = pa.array([-PER_SECOND[unit] // 1000, None, PER_SECOND[unit]], pa.timestamp(unit))
    (rows,) = split(a_batch(timestamp=times)).values()
    assert [row.timestamp_ms for row in rows] == [0, 0, 1000]


def test_only_the_column_of_the_option_is_the_timestamp():
    times = {"timestamp": pa.array([1], pa.timestamp("ms")), "at": pa.array([7], pa.timestamp("s"))}
    (none,) = split_by_topic(a_batch(**times), "t").records
    assert none.timestamps_ms is None
    (records,) = split_by_topic(a_batch(**times), "t", timestamp_column="at").records
    assert records.timestamps_ms.tolist() == [7000]
    (others,) = split_by_topic(a_batch(timestamp=["of any type"]), "t").records
    assert others.timestamps_ms is None


def test_rows_are_counted_from_the_first_row_of_a_sliced_batch():
    batch = a_batch(topic=["a", "b", "c", None]).slice(2)
    split_batch = split_by_topic(batch, None, first_row=100)
    assert [records.rows.tolist() for records in split_batch.records] == [[100]]
    assert [rejected.records.rows.tolist() for rejected in split_batch.rejected] == [[101]]


def test_a_row_with_several_problems_is_rejected_once():
    batch = a_batch(
        topic=["a", None, "c d", "b", "b"],
        partition=pa.array([0, -1, -1, -1, 1], pa.int32()),
        timestamp=pa.array([1, 0, 1, 0, 1], pa.timestamp("ms")),
    )
    rejected = rejections(batch, None)
    assert sorted(row for rows, *_ in rejected for row in rows) == [1, 2, 3]
    assert set(split(batch, None)) == {"a", "b"}


def test_rows_are_rejected_by_the_topic_that_they_were_meant_for():
    partitions = pa.array([-1, -1, -1, 0], pa.int32())
    batch = a_batch(topic=["a", "b", "a", "b"], partition=partitions)
    assert [rejected[:3] for rejected in rejections(batch, None)] == [
        ([0, 2], "NEGATIVE_PARTITION", b"a"),
        ([1], "NEGATIVE_PARTITION", b"b"),
    ]
    assert [len(rows) for rows in split(batch, None).values()] == [1]


def test_headers_that_cannot_be_sent_are_told_as_json():
    made = headers([("k", b"x")], [("k", b"v"), (None, b"w"), None, ("m", None)])
    (rejected,) = split_by_topic(a_batch(headers=made), "t").rejected
    assert rejected.headers_json is not None
    assert [json.loads(headers) for headers in rejected.headers_json] == [
        [
            {"key": "k", "value": "dg=="},
            {"key": None, "value": "dw=="},
            None,
            {"key": "m", "value": None},
        ]
    ]
    no_text = header_keys(b"k", b"\xc3")
    (rejected,) = split_by_topic(a_batch(headers=no_text), "t").rejected
    assert rejected.headers_json == [b'[{"key": "\\\\xc3", "value": null}]']


def test_no_column_needs_pandas():
    # pa.array itself imports pandas, so the arrays are made from buffers.
    code = """
import sys
import numpy as np
import pyarrow as pa
from spark_kafka_sink.errors import InvalidSchema
from spark_kafka_sink.records.arrow import split_by_topic

def array(kind, *buffers, children=None, nulls=1):
    return pa.Array.from_buffers(kind, 2, [some_valid, *buffers], nulls, children=children)

def buffer(*numbers, dtype):
    return pa.py_buffer(np.array(numbers, dtype=dtype).tobytes())

some_valid = buffer(0b10, dtype="u1")
ends = buffer(0, 1, 2, dtype="i4")
text = array(pa.string(), ends, pa.py_buffer(b"ab"))
binary = array(pa.binary(), ends, pa.py_buffer(b"ab"))
keys = pa.Array.from_buffers(pa.string(), 2, [None, ends, pa.py_buffer(b"ab")], 0)
pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
pairs = pa.Array.from_buffers(pair, 2, [None], 0, children=[keys, binary])
columns = {
    "value": text,
    "key": binary,
    "partition": array(pa.int32(), buffer(0, 1, dtype="i4")),
    "timestamp": array(pa.timestamp("us"), buffer(0, 1_000_000, dtype="i8")),
    "headers": array(pa.list_(pair), ends, children=[pairs]),
}
batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
(records,) = split_by_topic(batch, "t", timestamp_column="timestamp").records
assert len(records) == 2
assert "pandas" not in sys.modules
"""
    run_python("-c", code)


def test_bad_row_outside_the_slice_does_not_matter():
    batch = a_batch(
        topic=["a", None, "c d"],
        partition=pa.array([0, -1, -1], pa.int32()),
        timestamp=pa.array([1, 0, 0], pa.timestamp("ms")),
        headers=headers([], [(None, b"")], [("\0", b"")]),
    )
    assert split(batch.slice(0, 1), None) == {"a": [Row(b"v", partition=0, timestamp_ms=1)]}


def test_headers_are_read_by_the_position_of_their_fields():
    header = pa.struct([("Key", pa.string()), ("VALUE", pa.binary())])
    headers = pa.array([[("h", b"1")], [(None, b"\xff")]], pa.list_(header))
    result = split_by_topic(a_batch(headers=headers), "t")
    (row,) = read(result.records[0])
    assert row.headers == ((b"h", b"1"),)
    (rejected,) = result.rejected
    assert json.loads(rejected.headers_json[0]) == [{"key": None, "value": "/w=="}]


# --- types of Arrow ------------------------------------------------------------------------------


def every_arrow_type() -> list[pa.DataType]:
    """The types for which pyarrow has a predicate and a factory, made with common arguments."""
    arguments = [
        (),
        ("s",),
        ("us",),
        (3,),
        (10, 2),
        (pa.string(),),
        (pa.int32(), pa.string()),
        (pa.int32(), pa.int64()),
        (pa.string(), pa.binary()),
        (HEADER,),
        ([("key", pa.string()), ("value", pa.int32())],),
    ]
    types = set()
    names = [name.removeprefix("is_") for name in dir(pa.types) if name.startswith("is_")]
    for name in (*names, *(f"{name}_" for name in names)):
        for some in arguments if hasattr(pa, name) else ():
            with suppress(TypeError, ValueError, AttributeError):
                types.add(getattr(pa, name)(*some))
    return sorted(types, key=str)


def test_a_column_of_any_arrow_type_is_read_or_named():
    """Memory that is laid out otherwise must not be read: it would end the process."""
    read_types = defaultdict(set)
    types = every_arrow_type()
    assert {pa.string_view(), pa.null(), pa.list_view(pa.string())} < set(types)
    for name in ("value", "key", "topic", "partition", "headers", "timestamp"):
        for kind in types:
            try:
                column = pa.array([None, None], kind)
            except (pa.ArrowNotImplementedError, pa.ArrowInvalid, TypeError):
                continue
            batch = pa.RecordBatch.from_pydict({"value": pa.array(["v", "w"]), name: column})
            message = ""
            try:
                split(batch, None if name == "topic" else "t")
            except InvalidSchema as error:
                message = str(error)
            else:
                read_types[name].add(kind)
            expected = f"column {name} has the Arrow type {kind}, which this sink does not read"
            assert (kind in read_types[name]) != message.startswith(expected)
    texts = {pa.string(), pa.large_string(), pa.binary(), pa.large_binary()}
    for name in ("value", "key", "topic"):
        plain = {kind for kind in read_types[name] if not pa.types.is_dictionary(kind)}
        assert plain == texts
    assert read_types["partition"] == {pa.int32()}
    assert {str(kind) for kind in read_types["timestamp"]} == {"timestamp[s]", "timestamp[us]"}
    starts = tuple(str(kind).partition("<")[0] for kind in read_types["headers"])
    assert set(starts) == {"list", "large_list", "map"}


def test_a_second_beyond_what_milliseconds_can_count_is_not_another_time():
    times = pa.array([2**62, 1], pa.timestamp("s"))
    (records,) = split_by_topic(
        a_batch(2, timestamp=times), "t", timestamp_column="timestamp"
    ).records
    assert records.timestamps_ms.tolist() == [2**53 * 1000, 1000]


def test_a_topic_column_of_any_type_is_ignored_beside_the_option():
    batch = a_batch(2, topic=pa.array([1, 2]))
    assert [row.value for row in split(batch)["t"]] == [b"v", b"v"]
