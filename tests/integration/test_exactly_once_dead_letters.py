"""Dead letters in the transactions of their tasks, on a real Kafka: every row is committed once, in
its topic or as a dead letter, whatever becomes of the attempts before.
"""

from __future__ import annotations

import json
from collections import Counter
from functools import partial

import exactly_once_task
import pyarrow as pa
import pytest
from acls import Acls
from confluent_kafka.admin import AclOperation
from exactly_once_sink import Process, Sink
from streams import direct, forget_commit
from stub_registry import running_stub

from spark_kafka_sink.errors import ReplayDiffers, TransactionFailed

#: a value that the topic of ``sink`` does not allow
LARGE = "x" * 3000
NO_NAME = [{"key": None, "value": b"1"}]
FUTURE_MS = 4_000_000_000_000
#: value, partition, milliseconds, headers, and the error
ROWS = [
    ("a", None, 1_000, [], None),
    ("b", -1, 1_000, [], "NEGATIVE_PARTITION"),
    ("c", None, -5, [], "INVALID_TIMESTAMP"),
    ("d", 1, None, [{"key": "h", "value": b"1"}], None),
    ("e", None, 1_000, NO_NAME, "INVALID_HEADER"),
    ("f", 99, 1_000, [], "_UNKNOWN_PARTITION"),
    ("g", None, FUTURE_MS, [], "INVALID_TIMESTAMP"),
    (LARGE, None, 1_000, [], "MSG_SIZE_TOO_LARGE"),
    ("h", 0, 1_000, [], None),
]
BAD = {row[0]: row[-1] for row in ROWS if row[-1] is not None}
GOOD = sorted(row[0] for row in ROWS if row[-1] is None)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def deny(kafka):
    return partial(Acls(kafka.bootstrap_servers).deny, "ANONYMOUS")


@pytest.fixture
def sink(kafka, own_topics):
    return DeadLetterSink(kafka.bootstrap_servers, own_topics)


class DeadLetterSink(Sink):
    def __init__(self, servers, topics):
        super().__init__(servers, topics)
        limits = {"max.message.bytes": "2000", "message.timestamp.after.max.ms": "3600000"}
        self.topic = topics.create(2, limits)
        self.dead_letter_topic = topics.create()
        self.options |= {
            "topic": self.topic,
            "on.record.error": "dead-letter",
            "dead.letter.topic": self.dead_letter_topic,
        }

    def write_rows(self, rows, **options):
        """The task of partition 0 in micro-batch 0."""
        values, partitions, milliseconds, headers, _ = zip(*rows, strict=True)
        batch = pa.record_batch(
            {
                "value": pa.array(values),
                "partition": pa.array(partitions, pa.int32()),
                "at": pa.array(milliseconds, pa.timestamp("ms")),
                "headers": pa.array(headers, HEADERS),
            }
        )
        return self.write_batches([batch], timestamp_column="at", **options)

    def write_batches(self, batches, **options):
        return exactly_once_task.write_batches(self.options_with(**options), 0, 0, batches)

    def dead_letters(self):
        """The committed ones: values and errors."""
        self.topics.read_committed(self.dead_letter_topic)  # waits until no transaction is open
        return [
            (record.value.decode(), dict(record.headers)["kafka-nb.error"].decode())
            for record in self.topics.read(self.dead_letter_topic)
        ]

    def raise_limit(self):
        self.topics.set_config(self.topic, "max.message.bytes", "100000")


def test_dead_letters_are_committed_with_the_records_of_their_task_and_only_once(sink):
    report = sink.write_rows(ROWS)
    assert sink.committed() == GOOD
    assert sorted(sink.dead_letters()) == sorted(BAD.items())
    errors = Counter((sink.topic, error) for error in BAD.values())
    assert report.dead_letters == errors
    assert sink.write_rows(ROWS[::-1]).total_sent == 0
    assert len(sink.dead_letters()) == len(BAD)
    assert sink.committed() == GOOD


@pytest.mark.parametrize("place", [1, 7], ids=["NEGATIVE_PARTITION", "MSG_SIZE_TOO_LARGE"])
def test_another_bad_row_on_a_replay_is_found(sink, place):
    sink.write_rows(ROWS)
    changed = list(ROWS)
    changed[place] = ("another", *ROWS[place][1:])
    with pytest.raises(ReplayDiffers, match="9 different rows"):
        sink.write_rows(changed)
    with pytest.raises(ReplayDiffers, match="9 rows, not 8"):
        sink.write_rows(ROWS[:place] + ROWS[place + 1 :])
    assert len(sink.dead_letters()) == len(BAD)


@pytest.mark.parametrize("point", ["flushed", "committing"])
def test_a_task_that_dies_before_its_commit_leaves_no_dead_letter(sink, point):
    Process(sink, 0, 0, ["a", LARGE, "b"], point).kill()
    sink.raise_limit()
    sink.write(0, 0, ["a", LARGE, "b"])
    # What counts is the limit that the attempt knew that has committed.
    assert sink.committed() == sorted(["a", LARGE, "b"])
    assert sink.dead_letters() == []


def test_a_limit_that_is_raised_after_the_commit_changes_nothing(sink):
    Process(sink, 0, 0, ["a", LARGE, "b"], "committed").kill()
    sink.raise_limit()
    assert sink.write(0, 0, ["b", "a", LARGE]).total_sent == 0
    assert sink.committed() == ["a", "b"]
    assert sink.dead_letters() == [(LARGE, "MSG_SIZE_TOO_LARGE")]


def test_records_for_topics_that_are_missing_or_forbidden(sink, deny):
    forbidden = sink.topics.create()
    deny(forbidden, AclOperation.DESCRIBE)
    topics = [sink.topic, "missing", forbidden, None, "no name"]
    batch = pa.record_batch({"value": [str(topic) for topic in topics], "topic": topics})
    ledger = {"exactly.once.ledger.topic": sink.topic}
    sink.options = {k: v for k, v in sink.options.items() if k != "topic"} | ledger
    sink.write_batches([batch])
    assert sink.committed() == [sink.topic]
    assert sorted(sink.dead_letters()) == sorted(
        [
            ("missing", "UNKNOWN_TOPIC_OR_PART"),
            (forbidden, "TOPIC_AUTHORIZATION_FAILED"),
            ("None", "NULL_TOPIC"),
            ("no name", "INVALID_TOPIC"),
        ]
    )


def test_partitions_that_topics_lack_which_the_client_has_just_met(sink):
    """If the client accepted such a record, the transaction would fail when it knows better."""
    names = [sink.topics.create(2) for _ in range(20)]
    values = [f"{name} {number}" for name in names for number in (0, 7)]
    batch = pa.record_batch(
        {
            "value": values,
            "topic": [name for name in names for _ in range(2)],
            "partition": pa.array([0, 7] * len(names), pa.int32()),
        }
    )
    ledger = {"exactly.once.ledger.topic": sink.topic}
    sink.options = {k: v for k, v in sink.options.items() if k != "topic"} | ledger
    sink.write_batches([batch])
    assert sorted(sink.dead_letters()) == sorted(
        (value, "_UNKNOWN_PARTITION") for value in values[1::2]
    )
    assert [value for name in names for value in sink.topics.read_committed(name)] == [
        value.encode() for value in values[::2]
    ]


def assert_nothing_was_committed(sink):
    assert sink.committed() == []
    assert sink.dead_letters() == []


def test_what_only_the_brokers_know_to_be_bad_ends_the_transaction(sink, deny):
    deny(sink.topic, AclOperation.DESCRIBE_CONFIGS)
    with pytest.raises(TransactionFailed, match=r"INVALID_TIMESTAMP.*instead of sending") as raised:
        sink.write_rows([row for row in ROWS if len(row[0]) == 1])
    message = str(raised.value)
    assert sink.topic in message
    assert "with DescribeConfigs on the topic" in message
    assert "made no record of micro-batch 0, partition 0 visible" in message
    assert_nothing_was_committed(sink)


def test_a_topic_to_which_the_user_may_not_write_ends_the_transaction(sink, deny):
    deny(sink.topic, AclOperation.WRITE)
    with pytest.raises(TransactionFailed, match="TOPIC_AUTHORIZATION_FAILED") as raised:
        sink.write(0, 0, ["a"])
    assert "Grant this user permission to write" in str(raised.value)
    assert_nothing_was_committed(sink)


def test_a_dead_letter_that_is_rejected_ends_the_transaction(sink):
    small = sink.topics.create(1, {"max.message.bytes": "3000"})
    with pytest.raises(TransactionFailed, match=rf"topic {small} .*MSG_SIZE_TOO_LARGE") as raised:
        sink.write(0, 0, ["a", LARGE], dead_letter_topic=small)
    assert "Raise the max.message.bytes of dead.letter.topic" in str(raised.value)
    assert_nothing_was_committed(sink)


# --- through Spark -------------------------------------------------------------------------------

ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
    }
)
#: of 250 rows in a micro-batch, those whose number modulo 100 is one of these
NO_NAME_ROW, NO_PARTITION_ROW, LARGE_ROW = 7, 50, 93
ROWS_PER_BATCH = 250
QUERY_SECONDS = 300


@pytest.mark.parametrize(
    ("way", "has_schema"),
    [("format", True), pytest.param("foreach_batch", False, marks=pytest.mark.slow)],
    ids=["format", "batch"],
)
def test_every_row_of_a_repeated_micro_batch_is_there_once(spark, sink, tmp_path, way, has_schema):
    folder = tmp_path / "rows"
    folder.mkdir()
    reader = spark.readStream.schema("id BIGINT").option("maxFilesPerTrigger", 1)
    source = reader.json(str(folder))
    bad_name = (
        f"if(id % 100 = {NO_NAME_ROW}, null, repeat('x', if(id % 100 = {LARGE_ROW}, 3000, 1)))"
    )
    value = f"named_struct('id', id, 'name', {bad_name})"
    rows = source.selectExpr(
        "string(id % 5) AS key",
        f"{value} AS value" if has_schema else f"to_json({value}) AS value",
        f"int(case id % 100 when {NO_PARTITION_ROW} then 9 "
        f"{'' if has_schema else f'when {NO_NAME_ROW} then -1 '}end) AS partition",
        "array(named_struct('key', 'id', 'value', cast(string(id) AS binary))) AS headers",
    )
    options = {k: v for k, v in sink.options.items() if k != "transactional.id.prefix"}

    def start():
        writer = rows.repartition(2, "key").writeStream.trigger(availableNow=True)
        writer = direct(writer, way, options)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(QUERY_SECONDS)

    def add(number):
        ids = range(number * ROWS_PER_BATCH, (number + 1) * ROWS_PER_BATCH)
        text = "\n".join(json.dumps({"id": number}) for number in ids)
        (folder / f"{number}.json").write_text(text)

    with running_stub() as registry:
        if has_schema:
            options |= {
                "value.format": "avro",
                "value.schema": ORDER,
                "schema.registry.url": registry.url,
            }
        add(0)
        add(1)
        start()
        forget_commit(tmp_path / "checkpoint", 1)
        sink.raise_limit()
        add(2)
        start()

    def ids(topic):
        return [int(dict(record.headers)["id"]) for record in sink.topics.read(topic)]

    total = 3 * ROWS_PER_BATCH
    dead, arrived = ids(sink.dead_letter_topic), ids(sink.topic)
    assert sorted(dead + arrived) == list(range(total))
    assert sorted(dead) == [
        number
        for number in range(total)
        if number % 100 in (NO_NAME_ROW, NO_PARTITION_ROW)
        or (number % 100 == LARGE_ROW and number < 2 * ROWS_PER_BATCH)
    ]
    in_order = {}
    for record in sink.topics.read(sink.topic):
        number = int(dict(record.headers)["id"])
        place = record.partition, record.key, number // ROWS_PER_BATCH
        assert in_order.get(place, -1) < number
        in_order[place] = number
