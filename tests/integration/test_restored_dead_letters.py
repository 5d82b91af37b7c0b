"""Records of a dead letter topic -> rows and a selection, in Spark without Kafka."""

from __future__ import annotations

import json
from datetime import datetime, timezone

import pytest
from dead_letters import dead_letter

from spark_kafka_sink import restore_dead_letters
from spark_kafka_sink.records.column_table import COLUMNS, Column, Kept, Kind
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
