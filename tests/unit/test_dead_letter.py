from __future__ import annotations

import pyarrow as pa
from record_rows import read

from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.dead_letter import dead_letters, describe
from spark_kafka_sink.records.rejection import UNKNOWN_ORIGIN, Origin, RejectedRecords

HEADER = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
NOW_MS = 1_000_000_000


def rejected(error="INVALID_RECORD", first_row=0, **columns):
    batch = pa.record_batch({"value": ["v"] * len(next(iter(columns.values()))), **columns})
    (records,) = split_by_topic(batch, "t", first_row, "timestamp").records
    return RejectedRecords(records, error, "because", b"t")


def letters(rejected_records, origin=UNKNOWN_ORIGIN):
    return [read(records) for records in dead_letters(rejected_records, "dlq", origin, NOW_MS)]


def test_a_dead_letter_is_the_record_with_more_headers():
    headers = pa.array([[("h", b"1"), ("h", None)], None], HEADER)
    partitions = pa.array([None, 5], pa.int32())
    rejected_records = rejected(
        key=["k", None], headers=headers, partition=partitions, first_row=70
    )
    ((first, second),) = letters(rejected_records, Origin("query", "3", 1))
    assert (first.value, first.key, first.partition) == (b"v", b"k", -1)
    assert (second.key, second.partition) == (None, -1)
    about = [
        (b"kafka-nb.error", b"INVALID_RECORD"),
        (b"kafka-nb.message", b"because"),
        (b"kafka-nb.topic", b"t"),
        (b"kafka-nb.partition", None),
        (b"kafka-nb.query.id", b"query"),
        (b"kafka-nb.batch.id", b"3"),
        (b"kafka-nb.task.partition", b"1"),
        (b"kafka-nb.row", b"70"),
    ]
    assert list(first.headers) == [(b"h", b"1"), (b"h", None), *about]
    assert dict(second.headers) == {
        **dict(about),
        b"kafka-nb.partition": b"5",
        b"kafka-nb.row": b"71",
    }


def test_the_first_of_some_dead_letters_is_described_by_its_headers():
    headers = pa.array([[("kafka-nb.row", b"9")], [("h", b"1")]], HEADER)
    (first,) = dead_letters(
        rejected(key=["k", None], headers=headers, first_row=70), "dlq", Origin("q", "3", 1), NOW_MS
    )
    assert (
        describe(first) == "micro-batch 3, partition 1, row 70 of topic t (INVALID_RECORD: because)"
    )
    (unknown,) = dead_letters(rejected(key=["k"]), "dlq", UNKNOWN_ORIGIN, NOW_MS)
    assert describe(unknown) == "outside Spark, row 0 of topic t (INVALID_RECORD: because)"


def test_records_that_are_no_dead_letters_of_ours_are_not_described():
    assert describe(rejected(key=["k"]).records) == ""
    headers = pa.array([[("kafka-nb.error", b"X")]], HEADER)
    assert describe(rejected(headers=headers).records) == ""


def test_a_timestamp_is_kept_unless_it_is_more_than_an_hour_from_now():
    near = [NOW_MS - 3_600_000, NOW_MS + 3_600_000]
    far = [1, NOW_MS - 3_600_001, NOW_MS + 3_600_001]
    milliseconds = [*near, *far, None]
    rejected_records = rejected(timestamp=pa.array(milliseconds, pa.timestamp("ms")))
    kept, renewed = letters(rejected_records)
    assert [row.timestamp_ms for row in kept] == [*near, 0]
    assert not any(b"kafka-nb.timestamp" in dict(row.headers) for row in kept)
    assert [row.timestamp_ms for row in renewed] == [0, 0, 0]
    kept_elsewhere = [dict(row.headers)[b"kafka-nb.timestamp"] for row in renewed]
    assert kept_elsewhere == [b"%d" % milliseconds for milliseconds in far]


def test_a_rejected_timestamp_is_reported_and_not_kept():
    timestamps = pa.array([NOW_MS, None], pa.timestamp("ms"))
    (rows,) = letters(rejected("INVALID_TIMESTAMP", timestamp=timestamps))
    assert [row.timestamp_ms for row in rows] == [0, 0]
    kept_elsewhere = [dict(row.headers)[b"kafka-nb.timestamp"] for row in rows]
    assert kept_elsewhere == [b"%d" % NOW_MS, None]  # the worker's clock may be wrong


def test_headers_that_cannot_be_sent_are_told_as_json():
    headers = pa.array([[(None, b"x")], [("k", b"y")]], HEADER)
    (rejected_records,) = split_by_topic(
        pa.record_batch({"value": ["v", "w"], "headers": headers}), "t"
    ).rejected
    (((row),),) = letters(rejected_records)
    names = [name for name, _ in row.headers]
    assert names[0] == b"kafka-nb.error"
    assert dict(row.headers)[b"kafka-nb.headers"] == b'[{"key": null, "value": "eA=="}]'


def names(row):
    return [name.decode() for name, _ in row.headers]


ABOUT = ["error", "message", "topic", "partition", "query.id", "batch.id", "task.partition", "row"]


def test_a_dead_letter_of_a_dead_letter_has_the_last_headers_only():
    """Whoever copies a dead letter topic writes its headers too."""
    own = [("a", b"1"), ("kafka-nbx", None), ("a", b"2")]
    headers, sizes = own, set()
    for first_row in range(4):
        ((letter,),) = letters(rejected(headers=pa.array([headers], HEADER), first_row=first_row))
        headers = [(name.decode(), value) for name, value in letter.headers]
        assert headers[:3] == own
        assert names(letter)[3:] == [f"kafka-nb.{name}" for name in ABOUT]
        assert dict(headers)["kafka-nb.row"] == b"%d" % first_row
        sizes.add(len(headers))
    assert sizes == {3 + len(ABOUT)}


def test_headers_as_json_have_none_of_an_earlier_dead_letter():
    bad = [("kafka-nb.error", b"OLD"), (None, b"x"), ("kafka-nb.headers", b"[]"), None]
    batch = pa.record_batch({"value": ["v"], "headers": pa.array([bad], HEADER)})
    (rejected_records,) = split_by_topic(batch, "t").rejected
    ((row,),) = letters(rejected_records)
    assert names(row) == [f"kafka-nb.{name}" for name in [*ABOUT, "headers"]]
    kept = dict(row.headers)[b"kafka-nb.headers"]
    assert kept == b'[{"key": null, "value": "eA=="}, null]'


def test_each_problem_of_a_row_shows_in_its_dead_letter_whichever_one_names_it():
    """The rows have the same problem first, so all are rejected for that one."""
    batch = pa.record_batch(
        {
            "value": ["none", "header", "timestamp", "partition", "all"],
            "topic": pa.nulls(5, pa.string()),
            "headers": pa.array(
                [
                    [("k", b"0")],
                    [(None, b"1"), ("a\0b", b"2")],
                    [("k", b"3")],
                    None,
                    [(None, b"4")],
                ],
                HEADER,
            ),
            "timestamp": pa.array([NOW_MS, NOW_MS, 0, NOW_MS, 0], pa.timestamp("ms")),
            "partition": pa.array([None, None, None, -1, -1], pa.int32()),
        }
    )
    (rejected_records,) = split_by_topic(batch, None, 0, "timestamp").rejected
    assert rejected_records.error == "NULL_TOPIC"
    rows = {row.value: row for rows in letters(rejected_records) for row in rows}
    own = {
        value: [header for header in row.headers if not header[0].startswith(b"kafka-nb.")]
        for value, row in rows.items()
    }
    assert own == {
        b"none": [(b"k", b"0")],
        b"header": [],
        b"timestamp": [(b"k", b"3")],
        b"partition": [],
        b"all": [],
    }
    added = {
        value: [dict(row.headers).get(b"kafka-nb." + name) for name in (b"partition", b"timestamp")]
        for value, row in rows.items()
    }
    assert added == {
        b"none": [None, None],
        b"header": [None, None],
        b"timestamp": [None, b"0"],
        b"partition": [b"-1", None],
        b"all": [b"-1", b"0"],
    }
    as_json = {value: dict(row.headers).get(b"kafka-nb.headers") for value, row in rows.items()}
    assert as_json == {
        b"none": None,
        b"header": b'[{"key": null, "value": "MQ=="}, {"key": "a\\u0000b", "value": "Mg=="}]',
        b"timestamp": None,
        b"partition": None,
        b"all": b'[{"key": null, "value": "NA=="}]',
    }
    assert [rows[value].timestamp_ms for value in sorted(rows)] == [0, NOW_MS, NOW_MS, NOW_MS, 0]


def test_what_a_dead_letter_points_to_stays_alive():
    (records,) = dead_letters(rejected(key=["k"]), "dlq", UNKNOWN_ORIGIN, NOW_MS)
    assert records.arrow_batch is not None
    (row,) = read(records)
    assert dict(row.headers)[b"kafka-nb.message"] == b"because"


def test_a_dead_letter_has_the_batch_of_its_record_and_headers_of_its_own():
    rejected_records = rejected(key=["k"])
    (records,) = dead_letters(rejected_records, "dlq", UNKNOWN_ORIGIN, NOW_MS)
    assert records.arrow_batch is rejected_records.records.arrow_batch
    assert records.arrow_batch_bytes == rejected_records.records.arrow_batch_bytes
    (row,) = read(records)
    assert records.own_bytes >= sum(len(value or b"") for _, value in row.headers)
