"""An exactly-once query continues with the ledger that version 0.1 wrote.

``ledger_0_1.json`` comes from tasks and a driver of version 0.1.0 on a Kafka 4.3. They wrote
``rows``, by micro-batch and Spark partition, to ``topic``, whose name the fingerprints include.
``complete`` has the ledger's groups, with their offsets and metadata, after micro-batch 1 was
marked as complete; ``partly`` has them after partition 0 of micro-batch 2 was committed too.
"""

from __future__ import annotations

import json
from contextlib import closing
from itertools import chain
from pathlib import Path

import exactly_once_task
import pyarrow as pa
import pytest
from exactly_once_sink import SECONDS, Sink, shorten_claims

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import PartitionsChanged, ReplayDiffers
from spark_kafka_sink.librdkafka.group_offsets import CommittedOffset
from spark_kafka_sink.transactions.offset_calls import BrokerWait, GroupOffset

LEDGER = json.loads(Path(__file__).with_name("ledger_0_1.json").read_text(encoding="utf-8"))
ROWS = LEDGER["rows"]
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    {
        "key": pa.string(),
        "value": pa.string(),
        "headers": HEADERS,
        "partition": pa.int32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
    }
)


@pytest.fixture
def sink(kafka, own_topics, monkeypatch):
    shorten_claims(monkeypatch)
    sink = Sink(kafka.bootstrap_servers, own_topics, name=LEDGER["topic"])
    # Brokers forget the offsets of a deleted topic some time later, so each test has another one.
    sink.options["exactly.once.ledger.topic"] = own_topics.create()
    sink.options["transactional.id.prefix"] += sink.options["exactly.once.ledger.topic"]
    sink.options["timestamp.column"] = "timestamp"  # which 0.1 to 0.3 always wrote
    yield sink
    own_topics.delete(sink.topic)


def restore(sink, state):
    """Make the ledger what version 0.1 left."""
    options = parse(sink.options)
    topic = options.exactly_once.ledger_topic
    wait = BrokerWait(Deadline(SECONDS), f"{SECONDS:g} s", "restoring the ledger")
    for name, (offset, metadata) in LEDGER[state].items():
        # Not with confluent_kafka: it adds a byte to the metadata.
        with closing(GroupOffset(options.producer.client, topic, sink.group(name))) as group:
            group.write(CommittedOffset(offset, metadata), wait)


def write(sink, batch_id, partition, rows):
    batch = pa.RecordBatch.from_pylist(rows, SCHEMA)
    return exactly_once_task.write_batches(sink.options, batch_id, partition, [batch])


def write_batch(sink, batch_id, *partitions):
    """A whole micro-batch; returns how many rows each task sent."""
    sink.options["exactly.once.partitions"] = str(len(partitions))
    sent = [write(sink, batch_id, *numbered).total_sent for numbered in enumerate(partitions)]
    sink.write_batch_marker(batch_id, tasks=len(partitions))
    return sent


def dealt(rows, number):
    """All rows of a micro-batch, in another number of partitions."""
    every = [row for partition in rows for row in partition]
    return [every[partition::number] for partition in range(number)]


def expect_only(sink, *partitions):
    """Readers see the rows of these partitions once, and no others."""
    sink.topics.read_committed(sink.topic)  # until no transaction is open
    records = [
        (record.key, record.value, record.headers) for record in sink.topics.read(sink.topic)
    ]
    assert sorted(records, key=repr) == sorted(map(reader_view, chain(*partitions)), key=repr)


def reader_view(row):
    """The key, the value and the headers that a reader sees."""
    headers = tuple((header["key"], encode(header["value"])) for header in row.get("headers", ()))
    return encode(row.get("key")), encode(row.get("value")), headers


def encode(text):
    return None if text is None else text.encode()


def test_after_a_complete_micro_batch_the_query_continues(sink):
    restore(sink, "complete")
    # The driver died before Spark recorded micro-batch 1 as done.
    assert write_batch(sink, 1, *ROWS[1]) == [0, 0]
    assert write_batch(sink, 2, *ROWS[2]) == [5, 3]
    assert write_batch(sink, 3, *ROWS[0]) == [2, 1]
    expect_only(sink, *ROWS[2], *ROWS[0])


def test_the_rest_of_a_partly_committed_micro_batch_is_written(sink):
    restore(sink, "partly")
    assert write_batch(sink, 2, *ROWS[2]) == [0, 3]
    assert write_batch(sink, 3, *ROWS[0]) == [2, 1]
    expect_only(sink, ROWS[2][1], *ROWS[0])


@pytest.mark.parametrize("column", ["key", "value", "headers", "partition", "timestamp"])
def test_rows_that_differ_from_those_committed_before_are_rejected(sink, column):
    restore(sink, "partly")
    rows = [{name: value for name, value in row.items() if name != column} for row in ROWS[2][0]]
    with pytest.raises(ReplayDiffers, match="has committed 5 different rows"):
        write(sink, 2, 0, rows)


def test_without_the_option_timestamps_that_were_committed_before_are_missed(sink):
    """Between two micro-batches, there is nothing to compare."""
    restore(sink, "partly")
    del sink.options["timestamp.column"]
    with pytest.raises(ReplayDiffers, match=r"5 different rows.* Keep timestamp.column as"):
        write(sink, 2, 0, ROWS[2][0])
    expect_only(sink, [])
    sink.options["timestamp.column"] = "timestamp"
    assert write_batch(sink, 2, *ROWS[2]) == [0, 3]
    del sink.options["timestamp.column"]
    assert write_batch(sink, 3, *ROWS[0]) == [2, 1]
    expect_only(sink, ROWS[2][1], *ROWS[0])


def test_tasks_that_commit_without_the_option_do_not_match_with_it(sink):
    """So it is set before the first start, or the micro-batch fails in either way."""
    restore(sink, "partly")
    del sink.options["timestamp.column"]
    assert write(sink, 2, 1, ROWS[2][1]).total_sent == 3
    sink.options["timestamp.column"] = "timestamp"
    assert write(sink, 2, 0, ROWS[2][0]).total_sent == 0
    with pytest.raises(ReplayDiffers, match="has committed 3 different rows"):
        write(sink, 2, 1, ROWS[2][1])
    expect_only(sink, ROWS[2][1])


def test_another_number_of_partitions_has_to_wait_for_the_end_of_a_micro_batch(sink):
    number = 3
    restore(sink, "partly")
    sink.options["exactly.once.partitions"] = str(number)
    for partition, rows in enumerate(dealt(ROWS[2], number)):
        with pytest.raises(PartitionsChanged, match="was committed with 2 partitions"):
            write(sink, 2, partition, rows)
    expect_only(sink, [])
    assert write_batch(sink, 2, *ROWS[2]) == [0, 3]
    write_batch(sink, 3, *dealt(ROWS[1], number))
    expect_only(sink, ROWS[2][1], *ROWS[1])


def test_after_a_complete_micro_batch_the_number_of_partitions_may_change(sink):
    number = 1
    restore(sink, "complete")
    write_batch(sink, 2, *dealt(ROWS[2], number))
    write_batch(sink, 3, *dealt(ROWS[1], number))
    expect_only(sink, *ROWS[2], *ROWS[1])
