"""docs/recipes.md: every recipe runs as it stands there, and a reader finds what it promises."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections import Counter, defaultdict
from datetime import datetime, timezone
from hashlib import md5, sha256
from pathlib import Path

import kafka_topics
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic
from markdown_pages import ROOT, Block, blocks
from snippets import Snippets
from topics import Topics
from waiting import wait_until

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.tools.local_kafka import LocalKafka

pytestmark = pytest.mark.timeout(400)

PAGE = ROOT / "docs" / "recipes.md"
TITLE = "Recipes"  # of the page: what all recipes begin with

# Kafka's own retention, but looked at often; likewise compaction.
SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "200",
    "log.retention.ms": str(7 * 24 * 3600 * 1000),
}
SECONDS = 60.0  # for compaction and retention, on a busy machine


def recipe(title: str) -> list[Block]:
    snippets = [block for block in blocks(PAGE) if block.heading == title]
    assert snippets, f"{PAGE.name} has no recipe {title!r}"
    return snippets


@pytest.fixture(scope="module")
def own_topics():
    """A Kafka of their own, because the recipes choose the names of their topics."""
    with LocalKafka(settings=SETTINGS) as kafka:
        yield Topics(kafka.bootstrap_servers)


@pytest.fixture
def page(spark, own_topics, topics, tmp_path, monkeypatch):
    """Runs blocks; those with which the page begins have run."""
    replacements = {
        "/tmp/": f"{tmp_path}/",
        "localhost:9092": own_topics.bootstrap_servers,
        "localhost:9093": topics.bootstrap_servers,
        "large-orders": topics.new_name(),
    }
    snippets = Snippets({"spark": spark}, replacements, monkeypatch)
    for block in recipe(TITLE):
        snippets.run(block)
    return snippets


def cook(page: Snippets, own_topics: Topics, title: str, *more_arguments: str) -> None:
    """Run a recipe's blocks; ``more_arguments`` are for its commands, which create topics."""
    for block in recipe(title):
        if block.language == "sh":
            command, *arguments = shlex.split(block.text)
            assert command == "kafka-topics.sh"
            topic = kafka_topics.new_topic([*arguments, *more_arguments])
            kafka_topics.create(topic, own_topics.bootstrap_servers)
        else:
            page.run(block)


def values_by_key(records):
    """The JSON values of each key, in the order in which a reader finds them."""
    values = defaultdict(list)
    for record in records:
        values[record.key].append(None if record.value is None else json.loads(record.value))
    return dict(values)


def test_every_recipe_has_a_test():
    tested = set(re.findall(r'(?:recipe|cook)\([^()]*"([A-Z][^"]*)"', Path(__file__).read_text()))
    assert {block.heading for block in blocks(PAGE)} == tested | {TITLE}


def test_rows_go_to_the_topics_of_their_kind(page, own_topics):
    cook(page, own_topics, "Route rows to topics")
    names = "shop-users", "shop-orders", "shop-other", "shop-billing", "shop-audit"
    records = own_topics.read(*names)
    written = {name: values_by_key(r for r in records if r.topic == name) for name in names}
    orders = {
        b"ann": [{"customer": "ann", "kind": "order"}],
        b"bob": [{"customer": "bob", "kind": "order"}],
    }
    assert written == {
        "shop-users": {b"ann": [{"customer": "ann", "kind": "signup"}]},
        "shop-orders": orders,
        "shop-other": {b"bob": [{"customer": "bob", "kind": "click"}]},
        "shop-billing": orders,
        "shop-audit": orders,
    }


def test_a_keys_records_are_in_order(page, own_topics):
    own_topics.create(partitions=3, name="readings")
    cook(page, own_topics, "Keep the order of a key")
    readings = values_by_key(own_topics.read("readings"))
    expected = {str(key).encode(): [] for key in range(3)}
    for number in range(100):
        row = 73 * number % 100  # 73 * 37 = 2701
        expected[str(row % 3).encode()].append(number)
    assert readings == expected


def test_a_change_feed_leaves_the_last_state_of_each_key(page, own_topics, spark):
    # Kafka compacts closed segments only, so every micro-batch gets one of its own.
    compaction = "--config", "segment.ms=1", "--config", "min.cleanable.dirty.ratio=0"
    cook(page, own_topics, "Publish a change feed", *compaction)
    assert values_by_key(own_topics.read("accounts")) == {
        b"ann": [{"id": "ann", "balance": 11}],
        b"bob": [None],
    }
    for version, operation, balance in ((3, "update", 12), (4, "delete", None)):
        changes = [(key, version, operation, balance) for key in ("ann", "bob")]
        batch = spark.createDataFrame(changes, page.namespace["changes"].schema)
        page.namespace["write"](batch, version)
    closed_and_newest = [(b"ann", 12), (b"bob", 12), (b"ann", None), (b"bob", None)]
    deadline = Deadline(SECONDS)
    while (states := read_compacted(spark, own_topics, "accounts")) != closed_and_newest:
        assert not deadline.expired, states
        time.sleep(0.2)  # there is no event when Kafka compacts


def read_compacted(spark, topics, topic):
    """Keys and balances, tombstones last. Spark's reader does not mind offsets without a record."""
    reader = spark.read.format("kafka").option("subscribe", topic)
    rows = reader.option("kafka.bootstrap.servers", topics.bootstrap_servers).load().collect()
    rows.sort(key=lambda row: (row.value is None, row.key))
    return [(bytes(r.key), r.value and json.loads(r.value)["balance"]) for r in rows]


def test_a_compacted_topic_rejects_records_without_a_key(page, own_topics, spark):
    topic = own_topics.create(config={"cleanup.policy": "compact"})
    to_kafka = foreach_batch(page.namespace["brokers"] | {"topic": topic})
    with pytest.raises(Exception, match="INVALID_RECORD"):
        to_kafka(spark.sql("SELECT 'no key' AS value"), 0)


def test_history_keeps_its_timestamps_and_stays(page, own_topics):
    cook(page, own_topics, "Backfill with timestamps")
    records = own_topics.read("measurements")
    morning, noon = milliseconds(2013, 1, 31, 11), milliseconds(2013, 1, 31, 12)
    oven = [(r.timestamp_ms, json.loads(r.value)["celsius"]) for r in records if r.key == b"oven"]
    assert oven == [(morning, 20.0), (noon, 180.5)]
    assert find_by_time(own_topics, "measurements", milliseconds(2014, 1, 1)).key == b"fridge"

    # Where retention is Kafka's own, even a record that came later disappears.
    control = own_topics.new_name()
    kafka_topics.create(NewTopic(control, 1, 1), own_topics.bootstrap_servers)
    producer = Producer({"bootstrap.servers": own_topics.bootstrap_servers, "log_level": 2})
    producer.produce(control, b"old", timestamp=morning)
    assert producer.flush(SECONDS) == 0
    wait_until(lambda: earliest(own_topics, control) != 0, SECONDS)
    assert own_topics.read("measurements") == records


def milliseconds(*parts):
    return int(datetime(*parts, tzinfo=timezone.utc).timestamp() * 1000)


def consumer_of(topics):
    settings = {"bootstrap.servers": topics.bootstrap_servers, "group.id": "recipes"}
    return Consumer({**settings, "log_level": 2})


def earliest(topics, topic):
    consumer = consumer_of(topics)
    try:
        return consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[0]
    finally:
        consumer.close()


def find_by_time(topics, topic, timestamp_ms):
    """The record at which a reader starts that seeks this time."""
    consumer = consumer_of(topics)
    try:
        (partition,) = consumer.offsets_for_times(
            [TopicPartition(topic, 0, timestamp_ms)], timeout=30
        )
    finally:
        consumer.close()
    return topics.read(topic)[partition.offset]


def test_large_records_arrive_whole(page, own_topics):
    cook(page, own_topics, "Send large records")
    hashes = {record.key: sha256(record.value).digest() for record in own_topics.read("documents")}
    documents = {key: md5(key).hexdigest().encode() * 160_000 for key in (b"0", b"1", b"2", b"3")}
    assert hashes == {key: sha256(value).digest() for key, value in documents.items()}


def test_a_micro_batch_goes_to_two_clusters(page, own_topics, topics):
    cook(page, own_topics, "Write to two clusters")
    amounts = {"1": 20, "2": 300, "3": 50}
    everything = {key.encode(): [{"id": key, "amount": amount}] for key, amount in amounts.items()}
    assert values_by_key(own_topics.read("orders")) == everything
    large_orders = page.replacements["large-orders"]
    assert values_by_key(topics.read(large_orders)) == {b"2": everything[b"2"]}
    assert not own_topics.exists(large_orders)


def test_a_days_records_are_there_once_however_often_and_in_which_order_days_run(
    page, own_topics, monkeypatch
):
    own_topics.create(name="daily-reports")
    (script,) = recipe("Write each scheduled run once")
    for day in "20261127", "20261128", "20261125", "20261127", "20261125":
        monkeypatch.setattr(sys, "argv", ["report.py", day])
        page.namespace = {"__name__": "__main__"}  # as a script of its own
        page.run(script)
    three_days = count([*range(1000)] * 3)
    assert Counter(own_topics.read_committed("daily-reports")) == three_days
    page.namespace["write_report"]("20261125", version=2)
    assert Counter(own_topics.read_committed("daily-reports")) == three_days + count(range(1000))


def test_a_stream_moves_without_losing_or_doubling_a_micro_batch(page, own_topics, spark, tmp_path):
    own_topics.create(partitions=3, name="moved")
    old, check, new = recipe("Move a running stream")
    page.run(old)
    add_rows(spark, tmp_path, 100, 110)
    page.run(check)
    page.run(new)
    records = own_topics.read("moved")
    assert Counter(r.value for r in records) == count(range(110))
    assert len({(r.key, r.partition) for r in records}) == 10  # one partition for each key

    # As if the last micro-batch had been interrupted: it has begun, and nothing says it is done.
    for file in (tmp_path / "checkpoint" / "commits").glob("*1*"):
        file.unlink()
    with pytest.raises(AssertionError, match="micro-batch 1 was interrupted"):
        page.run(check)
    page.run(new)
    values = Counter(r.value for r in own_topics.read("moved"))
    assert values == count(range(110)) + count(range(100, 110))


def add_rows(spark, tmp_path, start, end):
    rows = spark.range(start, end).selectExpr("string(id % 10) AS key", "string(id) AS value")
    rows.write.mode("append").json(str(tmp_path / "numbers"))


def count(numbers):
    return Counter(str(number).encode() for number in numbers)
