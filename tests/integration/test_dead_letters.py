"""Records that are rejected for their content become dead letters; all others arrive in order."""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from functools import partial

import pyarrow as pa
import pytest
from acls import Acls
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AclOperation

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import (
    DeadlineExceeded,
    DeliveryFailed,
    InvalidRecord,
    TopicUnavailable,
)
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.producer.batch_gate import BatchGate
from spark_kafka_sink.producer.cache import process_cache
from spark_kafka_sink.spark.task import write_partition

FUTURE_MS = 4_000_000_000_000


@pytest.fixture(autouse=True)
def new_producers():
    yield
    process_cache().close(5)


@pytest.fixture
def dead_letter_topic(own_topics):
    return own_topics.create()


@pytest.fixture
def options(kafka, dead_letter_topic):
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "on.record.error": "dead-letter",
        "dead.letter.topic": dead_letter_topic,
    }


@pytest.fixture
def deny(kafka):
    """Forbid one operation on a topic; the others stay allowed."""
    return partial(Acls(kafka.bootstrap_servers).deny, "ANONYMOUS")


def wait_until_rejected(servers, topic, value):
    """Brokers apply a lower limit some time after it is set; until then, they store the value."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 2})
    errors, deadline = [None], Deadline(60)
    while errors[-1] is None:
        assert not deadline.expired
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(30) == 0
    assert errors[-1].code() == KafkaError.MSG_SIZE_TOO_LARGE


def headers_of(record):
    return dict(record.headers)


def error_of(record):
    return headers_of(record)["kafka-nb.error"].decode()


def values(records):
    return [record.value for record in records]


def assert_split(topics, topic, dead_letter_topic, good, bad):
    """Every value is in its topic, in order, or a dead letter; none is in both."""
    assert values(topics.read(topic)) == good
    assert sorted(values(topics.read(dead_letter_topic))) == sorted(bad)


# --- rows that cannot become records -------------------------------------------------------------


def test_bad_rows_become_dead_letters_with_what_they_were(own_topics, options, dead_letter_topic):
    topic = own_topics.create(2)
    now_ms = int(time.time() * 1000)
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {
            "value": [b"good", b"null topic", b"bad topic", b"partition", b"time", b"header"],
            "key": ["k", "k", None, "k", "k", "k"],
            "topic": [topic, None, "a b", topic, topic, topic],
            "partition": pa.array([1, None, 0, -3, None, None], pa.int32()),
            "timestamp": pa.array([1_000, now_ms, 3_000, None, -5, 6_000], pa.timestamp("ms")),
            "headers": pa.array(
                [[("h", b"0")], [("h", b"1")], None, [], [], [(None, b"x")]], header
            ),
        }
    )
    named = {"batch.id": "7", "timestamp.column": "timestamp"}
    report = write_partition([batch], parse(options | named))
    (good,) = own_topics.read(topic)
    assert (good.value, good.partition, good.timestamp_ms) == (b"good", 1, 1_000)
    letters = {record.value: record for record in own_topics.read(dead_letter_topic)}
    headers = {value: headers_of(record) for value, record in letters.items()}
    assert {
        value: (header["kafka-nb.error"], header["kafka-nb.topic"], header["kafka-nb.partition"])
        for value, header in headers.items()
    } == {
        b"null topic": (b"NULL_TOPIC", None, None),
        b"bad topic": (b"INVALID_TOPIC", b"a b", b"0"),
        b"partition": (b"NEGATIVE_PARTITION", topic.encode(), b"-3"),
        b"time": (b"INVALID_TIMESTAMP", topic.encode(), None),
        b"header": (b"INVALID_HEADER", topic.encode(), None),
    }
    assert [headers[record.value]["kafka-nb.row"] for record in letters.values()]
    assert headers[b"header"]["kafka-nb.row"] == b"5"
    assert headers[b"header"]["kafka-nb.batch.id"] == b"7"
    assert headers[b"header"]["kafka-nb.query.id"] is None
    assert json.loads(headers[b"header"]["kafka-nb.headers"]) == [{"key": None, "value": "eA=="}]
    assert headers[b"null topic"]["h"] == b"1"
    assert headers[b"time"]["kafka-nb.timestamp"] == b"-5"
    assert "kafka-nb.timestamp" not in headers[b"null topic"]
    assert letters[b"null topic"].timestamp_ms == now_ms
    # Brokers would soon delete a dead letter from 1970, as older than the topic's retention.
    assert headers[b"bad topic"]["kafka-nb.timestamp"] == b"3000"
    assert letters[b"bad topic"].timestamp_ms >= now_ms
    assert letters[b"null topic"].key == b"k"
    assert letters[b"bad topic"].key is None
    assert "null topic" in headers[b"null topic"]["kafka-nb.message"].decode()
    assert report.sent_records == {topic: 1, dead_letter_topic: 5}
    assert report.dead_letters == {
        ("", "NULL_TOPIC"): 1,
        ("(forbidden names)", "INVALID_TOPIC"): 1,
        (topic, "NEGATIVE_PARTITION"): 1,
        (topic, "INVALID_TIMESTAMP"): 1,
        (topic, "INVALID_HEADER"): 1,
    }


def test_a_time_that_is_not_written_is_in_no_header(own_topics, options, dead_letter_topic):
    times = pa.array([3_000], pa.timestamp("ms"))
    batch = pa.record_batch({"value": [b"v"], "topic": ["a b"], "timestamp": times})
    write_partition([batch], parse(options))
    (letter,) = own_topics.read(dead_letter_topic)
    assert "kafka-nb.timestamp" not in headers_of(letter)


# --- records that brokers reject -----------------------------------------------------------------


def numbered(count, size=0):
    return [b"%06d" % number + b"x" * size for number in range(count)]


def test_records_larger_than_the_topic_allows(own_topics, options, dead_letter_topic, deny):
    topic = own_topics.create(1, {"max.message.bytes": "2000"})
    deny(topic, AclOperation.DESCRIBE_CONFIGS)  # the unit tests have those that are described
    good = numbered(500)
    rows = list(good)
    for place in (3, 250, 251, 480):
        rows[place] = rows[place] + b"x" * 3000
    sink_options = parse(options | {"topic": topic, "kafka.linger.ms": "5000"})
    report = write_partition([pa.record_batch({"value": rows})], sink_options)
    bad = [row for row in rows if len(row) > 3000]
    good = [row for row in rows if len(row) < 3000]
    assert report.dead_letters == {(topic, "MSG_SIZE_TOO_LARGE"): 4}
    assert_split(own_topics, topic, dead_letter_topic, good, bad)
    message = headers_of(own_topics.read(dead_letter_topic)[0])["kafka-nb.message"].decode()
    assert "Raise the topic's max.message.bytes" in message


def test_a_limit_that_was_raised_counts_for_a_topic_in_use(own_topics, options, dead_letter_topic):
    topic = own_topics.create(1, {"max.message.bytes": "2000"})
    sink_options = parse(options | {"topic": topic, "kafka.metadata.max.age.ms": "100"})
    large = pa.record_batch({"value": [b"x" * 3000]})
    assert write_partition([large], sink_options).dead_letters == {(topic, "MSG_SIZE_TOO_LARGE"): 1}
    own_topics.set_config(topic, "max.message.bytes", "100000")
    deadline = Deadline(60)
    while not write_partition([large], sink_options).sent_records.get(
        topic
    ):  # by the same producer
        assert not deadline.expired
    assert values(own_topics.read(topic)) == [b"x" * 3000]


def test_records_larger_than_the_client_may_send(own_topics, options):
    topic = own_topics.create()
    large = own_topics.create(1, {"max.message.bytes": "10000000"})
    rows = [b"a", b"x" * 3_000_000, b"c"]
    report = write_partition(
        [pa.record_batch({"value": rows})],
        parse(options | {"topic": topic, "dead.letter.topic": large}),
    )
    assert report.dead_letters == {(topic, "MSG_SIZE_TOO_LARGE"): 1}
    assert_split(own_topics, topic, large, [b"a", b"c"], [rows[1]])
    message = headers_of(own_topics.read(large)[0])["kafka-nb.message"].decode()
    assert "Raise kafka.max.request.size" in message


def test_a_large_record_that_compresses_is_left_to_brokers(own_topics, options, dead_letter_topic):
    topic = own_topics.create(1, {"max.message.bytes": "5000"})
    random = bytes((i * i * 31 + i * 7) % 251 for i in range(20_000))
    rows = [*numbered(20), b"x" * 20_000, random, *numbered(20)]
    settings = {"topic": topic, "kafka.compression.type": "gzip"}
    report = write_partition([pa.record_batch({"value": rows})], parse(options | settings))
    arrived, letters = own_topics.read(topic), own_topics.read(dead_letter_topic)
    assert values(arrived) == [row for row in rows if row not in values(letters)]
    assert b"x" * 20_000 in values(arrived)
    assert report.dead_letters.total() == len(letters)


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        ({"max.message.bytes": "2000"}, "Raise the max.message.bytes of dead.letter.topic"),
        ({"cleanup.policy": "compact"}, "Set cleanup.policy=delete for dead.letter.topic"),
    ],
)
def test_a_rejected_dead_letter_is_named_with_its_row(own_topics, options, settings, advice):
    topic = own_topics.create(1, {"max.message.bytes": "2000"})
    full = own_topics.create(1, settings)
    batch = pa.record_batch({"value": [b"a", b"x" * 3000]})
    with pytest.raises(DeliveryFailed) as failed:
        write_partition([batch], parse(options | {"topic": topic, "dead.letter.topic": full}))
    first, _, rest = str(failed.value).partition(": ")
    assert first == f"the dead letter of outside Spark, row 1 of topic {topic} (MSG_SIZE_TOO_LARGE"
    assert f"was rejected too: topic {full} partition 0: " in rest
    assert advice in rest


@pytest.mark.parametrize("described", [True, False])
def test_records_without_a_key_in_a_compacted_topic(
    own_topics, options, dead_letter_topic, deny, monkeypatch, described
):
    topic, repeated = own_topics.create(2, {"cleanup.policy": "compact"}), set()
    if not described:
        deny(topic, AclOperation.DESCRIBE_CONFIGS)
    send_again = BatchGate.on_rejected

    def note_and_send_again(gate, send, records, failed):
        repeated.add(failed.code)
        return send_again(gate, send, records, failed)

    monkeypatch.setattr(BatchGate, "on_rejected", note_and_send_again)
    rows = numbered(2_000)
    keys = [None if number % 100 == 5 else b"%d" % (number % 7) for number in range(2_000)]
    batch = pa.record_batch({"value": rows, "key": keys})
    report = write_partition([batch], parse(options | {"topic": topic}))
    assert report.dead_letters == {(topic, "INVALID_RECORD"): 20}
    bad = [row for row, key in zip(rows, keys, strict=True) if key is None]
    dead = values(own_topics.read(dead_letter_topic))
    # Kafka rejects those of the two partitions in any order, and names them: they are not sent
    # again.
    assert (dead if described else sorted(dead)) == bad
    assert repeated == (set() if described else {ErrorCode.INVALID_DIFFERENT_RECORD})
    by_key = defaultdict(list)
    for record in own_topics.read(topic):
        by_key[record.key].append(record.value)
    expected = defaultdict(list)
    for row, key in zip(rows, keys, strict=True):
        if key is not None:
            expected[key].append(row)
    assert by_key == expected


def test_timestamps_that_the_topic_does_not_allow(own_topics, options, dead_letter_topic, deny):
    topic = own_topics.create(1, {"message.timestamp.after.max.ms": "3600000"})
    deny(topic, AclOperation.DESCRIBE_CONFIGS)  # the unit tests have those that are described
    now_ms = int(time.time() * 1000)
    batch = pa.record_batch(
        {
            "value": [b"now", b"future", b"null"],
            "at": pa.array([now_ms, FUTURE_MS, None], pa.timestamp("ms")),
        }
    )
    report = write_partition([batch], parse(options | {"topic": topic, "timestamp.column": "at"}))
    assert report.dead_letters == {(topic, "INVALID_TIMESTAMP"): 1}
    assert values(own_topics.read(topic)) == [b"now", b"null"]
    (letter,) = own_topics.read(dead_letter_topic)
    assert headers_of(letter)["kafka-nb.timestamp"] == b"%d" % FUTURE_MS
    assert abs(letter.timestamp_ms - now_ms) < 600_000


def test_a_partition_out_of_range(own_topics, options, dead_letter_topic):
    topic = own_topics.create(2)
    batch = pa.record_batch(
        {"value": numbered(4), "partition": pa.array([0, 9, 1, None], pa.int32())}
    )
    report = write_partition([batch], parse(options | {"topic": topic}))
    assert report.dead_letters == {(topic, "_UNKNOWN_PARTITION"): 1}
    (letter,) = own_topics.read(dead_letter_topic)
    assert (letter.value, headers_of(letter)["kafka-nb.partition"]) == (b"000001", b"9")
    assert sorted(values(own_topics.read(topic))) == [b"000000", b"000002", b"000003"]


def test_topics_that_are_missing_or_forbidden(own_topics, options, dead_letter_topic, deny):
    there, missing, forbidden, unwritable = (
        own_topics.create(),
        "missing",
        own_topics.create(),
        own_topics.create(),
    )
    deny(forbidden, AclOperation.DESCRIBE)
    deny(unwritable, AclOperation.WRITE)
    names = [there, missing, forbidden, unwritable] * 25
    batch = pa.record_batch({"value": numbered(100), "topic": names})
    report = write_partition([batch], parse(options))
    assert report.dead_letters == {
        (missing, "UNKNOWN_TOPIC_OR_PART"): 25,
        (forbidden, "TOPIC_AUTHORIZATION_FAILED"): 25,
        (unwritable, "TOPIC_AUTHORIZATION_FAILED"): 25,
    }
    assert_split(
        own_topics,
        there,
        dead_letter_topic,
        numbered(100)[::4],
        [row for number, row in enumerate(numbered(100)) if number % 4],
    )


def test_a_topic_deleted_in_mid_stream(own_topics, options, dead_letter_topic):
    topic = own_topics.create()
    first, later = numbered(10), [b"later-%d" % number for number in range(10)]

    def batches():
        yield pa.record_batch({"value": first})
        own_topics.wait_for_rows(topic)
        own_topics.delete(topic)
        yield pa.record_batch({"value": later})

    report = write_partition(batches(), parse(options | {"topic": topic}))
    assert report.dead_letters.total() == 10
    assert {topic for topic, _ in report.dead_letters} == {topic}
    assert values(own_topics.read(dead_letter_topic)) == later


def test_a_limit_that_was_lowered_in_mid_stream(own_topics, options, dead_letter_topic):
    topic = own_topics.create()
    rows = [numbered(50)[number] + b"x" * (number % 5 * 1000) for number in range(50)]
    probe = b"probe" * 501

    def batches():
        yield pa.record_batch({"value": rows[:25]})
        own_topics.wait_for_rows(topic)
        own_topics.set_config(topic, "max.message.bytes", "2500")
        wait_until_rejected(own_topics.bootstrap_servers, topic, probe)
        yield pa.record_batch({"value": rows[25:]})

    report = write_partition(batches(), parse(options | {"topic": topic}))
    bad = [row for row in rows[25:] if len(row) > 2500]
    assert report.dead_letters == {(topic, "MSG_SIZE_TOO_LARGE"): len(bad)}
    stored = [value for value in values(own_topics.read(topic)) if value != probe]
    assert stored == [row for row in rows if row not in bad]
    assert sorted(values(own_topics.read(dead_letter_topic))) == sorted(bad)


def test_brokers_that_create_topics_are_given_the_time_for_it(topics, bootstrap_servers):
    names = [topics.new_name() for _ in range(3)]
    options = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "on.record.error": "dead-letter",
        "dead.letter.topic": topics.new_name(),
    }
    batch = pa.record_batch(
        {"value": [name.encode() for name in names] + [b"bad"], "topic": [*names, None]}
    )
    report = write_partition([batch], parse(options))
    assert report.dead_letters == {("", "NULL_TOPIC"): 1}
    assert [values(topics.read(name)) for name in names] == [[name.encode()] for name in names]
    assert values(topics.read(options["dead.letter.topic"])) == [b"bad"]


# --- batches that brokers reject for their size, with and without dead letters -------------------

HEADERS = pa.array([[("h", b"v")]] * 6_000, pa.map_(pa.string(), pa.binary()))


@pytest.mark.parametrize(
    ("settings", "columns", "described"),
    [
        ({}, {}, True),
        ({"kafka.compression.type": "zstd"}, {"headers": HEADERS}, False),
        ({"on.record.error": "dead-letter"}, {}, False),
    ],
    ids=["plain", "zstd-not-described", "dead-letters"],
)
def test_topics_that_allow_only_small_batches_get_all_records_in_order(
    own_topics, options, deny, settings, columns, described
):
    limits = [30_000, 100_000, 500_000]
    names = [own_topics.create(2, {"max.message.bytes": f"{limit}"}) for limit in limits]
    if not described:
        for name in names:
            deny(name, AclOperation.DESCRIBE_CONFIGS)
    # On a busy machine, a short time would end in the middle of the first batch and divide it.
    usual = {
        "kafka.bootstrap.servers": options["kafka.bootstrap.servers"],
        "kafka.linger.ms": "5000",
    }
    sink_options = {**usual, **settings}
    if "on.record.error" in settings:
        sink_options["dead.letter.topic"] = options["dead.letter.topic"]
    rows = [b"%06d" % number + os.urandom(994) for number in range(len(HEADERS))]
    chosen = {
        "topic": [names[number % 3] for number in range(len(rows))],
        "partition": pa.array([number // 3 % 2 for number in range(len(rows))], pa.int32()),
    }
    report = write_partition(
        [pa.record_batch({"value": rows, **chosen, **columns})], parse(sink_options)
    )
    assert not report.dead_letters
    for number, name in enumerate(names):
        arrived = own_topics.read(name)  # by partition and offset
        assert values(arrived) == rows[number::6] + rows[number + 3 :: 6]


@pytest.mark.parametrize(("size", "is_allowed"), [(100_000, True), (100_001, False)])
def test_a_record_is_too_large_only_above_its_topics_limit(own_topics, kafka, size, is_allowed):
    topic = own_topics.create(1, {"max.message.bytes": "100000"})
    rows = numbered(500, 994)
    rows[250] = b"x" * (size - 72)  # bytes of the batch and the record around it
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "kafka.linger.ms": "5000"}
    sink_options = parse(servers | {"topic": topic})
    batch = pa.record_batch({"value": rows})
    if is_allowed:
        write_partition([batch], sink_options)
        assert values(own_topics.read(topic)) == rows
        return
    said = f"makes a batch of {size} bytes uncompressed, and max.message.bytes is 100000"
    with pytest.raises(DeliveryFailed, match=said):
        write_partition([batch], sink_options)
    stored = values(own_topics.read(topic))
    # Some of those behind it may have been with the client already.
    assert stored[:250] == rows[:250]
    assert stored[250:] == rows[251 : 1 + len(stored)]


# --- what stays an error -------------------------------------------------------------------------


def test_a_dead_letter_that_is_rejected_fails_the_task(own_topics, options):
    topic = own_topics.create(1, {"max.message.bytes": "1000"})
    small = own_topics.create(1, {"max.message.bytes": "1000"})
    settings = options | {"topic": topic, "dead.letter.topic": small}
    with pytest.raises(DeliveryFailed, match=f"topic {small} partition 0: .*MSG_SIZE_TOO_LARGE"):
        write_partition([pa.record_batch({"value": ["x" * 2000]})], parse(settings))


def test_a_missing_topic_for_dead_letters_fails_the_task(own_topics, options):
    settings = options | {"dead.letter.topic": "missing", "kafka.max.block.ms": "3000"}
    batch = pa.record_batch({"value": ["v"], "topic": pa.array([None], pa.string())})
    with pytest.raises(TopicUnavailable, match="topic missing"):
        write_partition([batch], parse(settings))


def test_brokers_that_are_away_fail_the_task(own_topics, options):
    settings = options | {"kafka.bootstrap.servers": "127.0.0.1:9", "close.timeout.ms": "2000"}
    with pytest.raises(DeadlineExceeded):
        write_partition([pa.record_batch({"value": ["v"]})], parse(settings | {"topic": "t"}))


def test_without_the_option_a_bad_row_fails_the_task(own_topics, kafka):
    batch = pa.record_batch({"value": ["v"], "topic": pa.array([None], pa.string())})
    with pytest.raises(InvalidRecord, match="row 0: null topic"):
        write_partition([batch], parse({"kafka.bootstrap.servers": kafka.bootstrap_servers}))


# --- through Spark -------------------------------------------------------------------------------

BAD_EVERY = 100


def mixed_rows(spark, names, count):
    """Rows for three topics, 1 % of them bad in one of ten ways."""
    bad = {
        0: {"topic": "null"},
        1: {"topic": "'no topic name'"},
        2: {"topic": "'missing'"},
        3: {"topic": "cast(X'ff61' as string)"},
        4: {"partition": "-1"},
        5: {"partition": "99"},
        6: {"timestamp": "timestamp_millis(-2)"},
        7: {"timestamp": f"timestamp_millis({FUTURE_MS})"},
        8: {"value": "concat(id, repeat('x', 200000))"},
        9: {"key": "null", "topic": f"'{names['compacted']}'"},
    }

    def column(name, usual):
        cases = [
            f"when kind = {n} then {columns[name]}" for n, columns in bad.items() if name in columns
        ]
        return f"case {' '.join(cases)} else {usual} end as {name}"

    plain, small, compacted = (f"'{names[kind]}'" for kind in ("plain", "small", "compacted"))
    return (
        spark.range(0, count, numPartitions=2)
        .selectExpr(
            "id",
            f"case when id % {BAD_EVERY} = 7 then (id div {BAD_EVERY}) % {len(bad)} end as kind",
        )
        .selectExpr(
            column("value", "string(id)"),
            column("key", "string(id % 50)"),
            column(
                "topic",
                f"case when kind = 8 then {small} when id % 3 = 0 then {plain} "
                f"when id % 3 = 1 then {small} else {compacted} end",
            ),
            column("partition", "cast(null as int)"),
            column("timestamp", "timestamp_millis(1700000000000 + id)"),
            "array(named_struct('key', 'id', 'value', cast(string(id) as binary))) as headers",
        )
    )


@pytest.mark.parametrize(
    ("mode", "count"),
    [("format", 10_000), pytest.param("foreach_batch", 100_000, marks=pytest.mark.slow)],
)
def test_each_of_many_rows_is_in_its_topic_or_a_dead_letter(
    spark, own_topics, options, dead_letter_topic, mode, count
):
    names = {
        "plain": own_topics.create(4),
        "small": own_topics.create(2, {"max.message.bytes": "100000"}),
        "compacted": own_topics.create(2, {"cleanup.policy": "compact"}),
    }
    rows = mixed_rows(spark, names, count)
    options = options | {"timestamp.column": "timestamp"}
    if mode == "format":
        rows.write.format("kafka-nb").options(**options).mode("append").save()
    else:
        reports = []
        foreach_batch(options, reports.append)(rows, 3)
        assert reports[0].dead_letters.total() == count // BAD_EVERY
    arrived = own_topics.read(*names.values())
    letters = own_topics.read(dead_letter_topic)
    ids = [int(headers_of(record)["id"]) for record in [*arrived, *letters]]
    assert sorted(ids) == list(range(count))
    assert {int(headers_of(record)["id"]) % BAD_EVERY for record in letters} == {7}
    of_each_way = count // BAD_EVERY // 10
    assert Counter(error_of(record) for record in letters) == {
        "NULL_TOPIC": of_each_way,
        "INVALID_TOPIC": 2 * of_each_way,
        "UNKNOWN_TOPIC_OR_PART": of_each_way,
        "NEGATIVE_PARTITION": of_each_way,
        "_UNKNOWN_PARTITION": of_each_way,
        "INVALID_TIMESTAMP": 2 * of_each_way,
        "MSG_SIZE_TOO_LARGE": of_each_way,
        "INVALID_RECORD": of_each_way,
    }
    # Each task's rows of a key keep their order.
    last = {}
    for record in arrived:
        number = int(headers_of(record)["id"])
        place = record.topic, record.key, number >= count // 2
        assert last.get(place, -1) < number
        last[place] = number
