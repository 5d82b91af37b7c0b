"""Records of a dead letter topic -> rows and a selection, in Spark without Kafka."""

from __future__ import annotations

import base64
import json
from datetime import datetime, timezone
from typing import NamedTuple

import pyarrow as pa
import pytest
from dead_letters import dead_letter
from hypothesis import given, settings
from hypothesis import strategies as st
from record_rows import read as read_rows

from spark_kafka_sink import restore_dead_letters
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.column_table import COLUMNS, Column, Kept, Kind
from spark_kafka_sink.records.dead_letter import dead_letters as make_dead_letters
from spark_kafka_sink.records.rejection import UNKNOWN_ORIGIN, RejectedRecords
from spark_kafka_sink.spark import dead_letters
from spark_kafka_sink.spark.schema_check import check_schema
from spark_kafka_sink.tools.job.replay import Selection

SCHEMA = """
    key BINARY, value BINARY, topic STRING, partition INT, offset LONG, timestamp TIMESTAMP,
    timestampType INT, headers ARRAY<STRUCT<key: STRING, value: BINARY>>
"""
NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
JUST_AFTER_NOON = NOON.replace(microsecond=1000)


def read(spark, *letters):
    """The frame that Spark's Kafka source would make, restored."""
    rows = []
    for offset, letter in enumerate(letters):
        at = datetime.fromtimestamp(letter["timestamp"] / 1000, timezone.utc)
        headers = letter["headers"]
        rows.append((letter["key"], letter["value"], "dead", 3, offset, at, 0, headers))
    return restore_dead_letters(spark.createDataFrame(rows, SCHEMA))


def letter(error="A", topic="t", at=NOON, **fields):
    return dead_letter(error, topic, timestamp=round(at.timestamp() * 1000), **fields)


def test_a_dead_letter_becomes_the_row_that_was_rejected(spark):
    headers = [("a", b"\xff"), ("a", None), ("kafka-nbx", b"")]
    frame = read(spark, letter(key=b"k", value=b"", headers=headers, partition="5"))
    check_schema(frame.schema, topic=None)
    (row,) = frame.selectExpr("*", "unix_millis(timestamp) AS ms").drop("timestamp").collect()
    assert row.asDict() == {
        "topic": "t",
        "key": b"k",
        "value": b"",
        "headers": headers,
        "ms": NOON.timestamp() * 1000,
        "partition": 5,
        "error": "A",
        "message": "refused: A",
        "query_id": "a-query",
        "batch_id": 7,
        "task_partition": 1,
        "row": 42,
        "dead_letter_partition": 3,
        "dead_letter_offset": 0,
    }


def test_a_new_column_is_restored_from_its_header(spark, monkeypatch):
    shard = Column("shard", ("int",), Kind.NUMBERS, Kept.AS_HEADER, "shards")
    monkeypatch.setattr(dead_letters, "COLUMNS", COLUMNS | {"shard": shard})
    (row,) = read(spark, letter(partition="5", shard="7")).collect()
    assert (row["shard"], row["partition"]) == (7, 5)


def test_what_the_sink_could_not_keep_comes_from_its_headers(spark):
    kept = [{"key": "a", "value": "AP8="}, {"key": None, "value": ""}, {"key": "c", "value": None}]
    frame = read(spark, letter(timestamp_="-1", headers_=json.dumps(kept)))
    (row,) = frame.selectExpr("headers", "unix_millis(timestamp) AS ms").collect()
    assert row.headers == [("a", b"\x00\xff"), (None, b""), ("c", None)]
    assert row.ms == -1


def test_of_a_record_that_was_a_dead_letter_before_the_last_headers_count(spark):
    before = letter(error="OLD", topic="old")["headers"]
    (row,) = read(spark, letter(headers=[("mine", b""), *before])).collect()
    assert (row.error, row.topic, row.headers) == ("A", "t", [("mine", b"")])


def test_neither_time_nor_headers_of_an_earlier_rejection_are_restored(spark):
    """Up to version 0.3, a dead letter had the headers of all rejections."""
    kept = json.dumps([{"key": None, "value": "eA=="}, {"key": "b", "value": "eQ=="}])
    before = letter(timestamp_="-1", headers_=kept)["headers"]
    repaired = ("repaired", b"1")
    frame = read(spark, letter(error="NEGATIVE_PARTITION", headers=[*before, repaired]))
    (row,) = frame.selectExpr("error", "headers", "unix_millis(timestamp) AS ms").collect()
    assert (row.error, row.headers) == ("NEGATIVE_PARTITION", [repaired])
    assert row.ms == NOON.timestamp() * 1000


def test_of_the_last_rejection_time_and_headers_are_restored(spark):
    kept = json.dumps(
        [
            {"key": None, "value": "eA=="},
            {"key": "kafka-nb.error", "value": "eA=="},
            None,
            {"key": "b", "value": None},
        ]
    )
    before = letter(timestamp_="-1", headers_="[]")["headers"]
    frame = read(spark, letter(headers=before, timestamp_="-2", headers_=kept))
    (row,) = frame.selectExpr("headers", "unix_millis(timestamp) AS ms").collect()
    assert row.headers == [(None, b"x"), (None, None), ("b", None)]
    assert row.ms == -2


def test_headers_of_such_names_that_a_row_had_itself_are_not_taken_for_the_sinks(spark):
    forged = [("kafka-nb.timestamp", b"5"), ("kafka-nb.headers", b'[{"key":"f","value":"eA=="}]')]
    frame = read(spark, letter(headers=[("a", b"1"), *forged]), {**letter(), "headers": forged})
    columns = ("error", "headers", "unix_millis(timestamp) AS ms")
    restored, other = frame.orderBy("dead_letter_offset").selectExpr(*columns).collect()
    assert (restored.error, restored.headers) == ("A", [("a", b"1")])
    assert (other.error, other.headers) == (None, [])
    assert restored.ms == other.ms == NOON.timestamp() * 1000


# --- several rounds of rejecting and restoring ----------------------------------------------------

PREFIX = "kafka-nb."
ABOUT = ["error", "message", "topic", "partition", "query.id", "batch.id", "task.partition", "row"]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW_MS = round(NOON.timestamp() * 1000)
NAMES = [
    "a",
    "a\0",
    "kafka-nbx",
    "__value_schema_id",
    "kafka-nb.x",
    *(PREFIX + name for name in ABOUT),
]
KEYS = st.none() | st.sampled_from([*NAMES, "kafka-nb.timestamp", "kafka-nb.headers"])
VALUES = st.sampled_from([None, b"", b"5", b"\xff", b'[{"key":"f","value":"eA=="}]'])


class Rejected(NamedTuple):
    """A row whose record nobody accepts."""

    headers: list[tuple[str | None, bytes | None] | None] | None
    ms: int | None = None
    partition: int | None = None

    def own_headers(self):
        """What a dead letter keeps, and what is restored."""
        every = [header or (None, None) for header in self.headers or []]
        return [(k, v) for k, v in every if k is None or not k.startswith(PREFIX)]

    def has_bad_headers(self):
        return any(not header or header[0] in (None, "a\0") for header in self.headers or [])

    def own_ms(self):
        """-1 is how Spark shows a record without a time."""
        return NOW_MS if self.ms in (None, -1) else self.ms

    def is_late(self):
        return abs(self.own_ms() - NOW_MS) > 3_600_000


ROWS = st.builds(
    Rejected,
    st.none() | st.lists(st.none() | st.tuples(KEYS, VALUES), max_size=5),
    st.sampled_from([None, NOW_MS, 5, -1]),
    st.sampled_from([None, -1, 3]),
)
#: a round: whether version 0.3 writes its dead letters, and whether these are restored or copied
ROUNDS = st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=3)


def reject(rows):
    """The dead letters, in the order of the rows, each with its headers and its time."""
    columns = {
        "value": pa.array([b"v"] * len(rows)),
        "headers": pa.array([row.headers for row in rows], HEADERS),
        "timestamp": pa.array([row.ms for row in rows], pa.timestamp("ms")),
        "partition": pa.array([row.partition for row in rows], pa.int32()),
    }
    split = split_by_topic(pa.record_batch(columns), "t", timestamp_column="timestamp")
    by_brokers = [RejectedRecords(part, "INVALID_RECORD", "no", b"t") for part in split.records]
    letters = [
        record
        for rejected in (*by_brokers, *split.rejected)
        for records in make_dead_letters(rejected, "dead", UNKNOWN_ORIGIN, NOW_MS)
        for record in read_rows(records)
    ]
    made = [
        ([(name.decode(), value) for name, value in record.headers], record.timestamp_ms or NOW_MS)
        for record in letters
    ]
    return sorted(made, key=lambda letter: int(dict(letter[0])["kafka-nb.row"]))


def as_base64(value):
    return None if value is None else base64.b64encode(value).decode()


def as_version_0_3(row, headers):
    """Headers of the dead letter as 0.3 wrote them: all of the row, then those of the rejection."""
    last = headers[-1 - [name for name, _ in headers][::-1].index("kafka-nb.error") :]
    if not row.has_bad_headers():
        return [*(row.headers or []), *last]
    kept = [header and {"key": header[0], "value": as_base64(header[1])} for header in row.headers]
    as_json = json.dumps(kept).encode()
    return [(name, as_json if name == "kafka-nb.headers" else value) for name, value in last]


def restored(spark, letters):
    rows = [
        (None, b"v", "dead", 3, offset, datetime.fromtimestamp(ms / 1000, timezone.utc), 0, headers)
        for offset, (headers, ms) in enumerate(letters)
    ]
    frame = restore_dead_letters(spark.createDataFrame(rows, SCHEMA))
    columns = ("error", "headers", "unix_millis(timestamp) AS ms", "partition")
    return [
        (row.error, Rejected([tuple(header) for header in row.headers], row.ms, row.partition))
        for row in sorted(
            frame.selectExpr("dead_letter_offset AS offset", *columns).collect(),
            key=lambda row: row.offset,
        )
    ]


@pytest.mark.slow
@settings(max_examples=6)  # each runs up to three Spark jobs
@given(st.lists(ROWS, min_size=1, max_size=25), ROUNDS)
def test_rows_come_back_as_they_were_rejected_after_any_rounds(spark, rows, rounds):
    for is_version_0_3, is_restored in rounds:
        letters = reject(rows)
        for row, (headers, _) in zip(rows, letters, strict=True):
            about = ABOUT + ["timestamp"] * row.is_late() + ["headers"] * row.has_bad_headers()
            own = [] if row.has_bad_headers() else row.own_headers()
            assert headers[: len(own)] == own
            assert [name for name, _ in headers[len(own) :]] == [PREFIX + name for name in about]
        if is_version_0_3:
            letters = [
                (as_version_0_3(row, headers), ms)
                for row, (headers, ms) in zip(rows, letters, strict=True)
            ]
        back = restored(spark, letters)
        for row, (headers, _), (error, again) in zip(rows, letters, back, strict=True):
            assert error == [v for name, v in headers if name == "kafka-nb.error"][-1].decode()
            assert again == Rejected(row.own_headers(), row.own_ms(), row.partition)
        copies = [Rejected(headers, ms, -1) for headers, ms in letters]
        rows = [row for _, row in back] if is_restored else copies


def test_what_is_unknown_or_no_number_is_null(spark):
    unknown = dict.fromkeys(["query_id", "batch_id", "task_partition", "row"])
    frame = read(spark, letter(topic=None, **unknown), letter(row="many", batch_id="1.5"))
    absent, broken = frame.orderBy("dead_letter_offset").collect()
    names = [*unknown, "topic", "partition", "key", "value"]
    assert [absent[name] for name in names] == [None] * len(names)
    assert (broken.row, broken.batch_id, broken.topic) == (None, None, "t")


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (Selection(), [0, 1, 2, 3, 4]),
        (Selection(errors=frozenset({"A"})), [0, 2, 3, 4]),
        (Selection(topics=frozenset({"t", "u"})), [0, 1, 3]),
        (Selection(since=JUST_AFTER_NOON), [3]),
        (Selection(until=JUST_AFTER_NOON), [0, 1, 2, 4]),
        (Selection(until=NOON), [4]),
        (Selection(frozenset({"A"}), frozenset({"t"}), NOON), [0, 3]),
    ],
)
def test_a_selection_holds_dead_letters_only(spark, selection, expected):
    frame = read(
        spark,
        letter(),
        letter(error="B", topic="u"),
        letter(topic=None),
        letter(at=JUST_AFTER_NOON),
        letter(topic="v", timestamp_=str(round(NOON.timestamp() * 1000) - 1)),
        {**letter(), "headers": []},
        {**letter(), "headers": None},
    )
    rows = frame.select("dead_letter_offset", selection.condition().alias("is_selected")).collect()
    assert {row.is_selected for row in rows} == {True, False}
    assert sorted(row.dead_letter_offset for row in rows if row.is_selected) == expected
