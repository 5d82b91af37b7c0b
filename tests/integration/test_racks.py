"""Three brokers, each in a rack: rack-aware partitioning (KIP-1123), and leaders that move."""

from __future__ import annotations

import json
import signal
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
from local_cluster import LocalCluster
from pyspark.sql import functions as f
from waiting import wait_until

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.tools.local_servers.processes import send_signal

pytestmark = pytest.mark.slow

PARTITIONS = 6
ROWS = 2_000
MANY_ROWS = 100_000


@pytest.fixture(scope="module")
def kafka():
    with LocalCluster(brokers=3) as kafka:
        yield kafka


@pytest.fixture
def topic(topics):
    """Each rack leads as many of its partitions: a broker that has just started leads none yet."""
    deadline = Deadline(60)
    while True:
        topic = topics.create(PARTITIONS)
        if sorted(topics.leaders(topic)) == [1, 1, 2, 2, 3, 3]:
            return topic
        assert not deadline.expired


@pytest.fixture
def write(spark, topics, tmp_path):
    """Write rows 0, 1, ... in many Arrow batches; returns the values that each partition has."""
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")

    def write(topic, key=None, **options):
        rows = session.range(ROWS, numPartitions=1).select(
            f.col("id").cast("string").alias("value"),
            f.expr(key or "cast(null as string)").alias("key"),
        )
        writer = rows.write.format("kafka-nb").mode("append").option("topic", topic)
        writer.option("kafka.bootstrap.servers", topics.bootstrap_servers).options(
            **{"report.path": str(tmp_path), **options}
        ).save()
        partitions = defaultdict(list)
        for record in topics.read(topic):
            partitions[record.partition].append(int(record.value))
        return partitions

    return write


@pytest.fixture
def crossed(tmp_path):
    def crossed():
        latest = max(tmp_path.glob("*.jsonl"))
        return json.loads(latest.read_text().splitlines()[-1])["cross_rack_records"]

    return crossed


def partitions_led_by(topics, topic, number):
    """The partitions whose leader is in that rack."""
    return {p for p, leader in enumerate(topics.leaders(topic)) if leader == number}


AWARE = {"kafka.partitioner.rack.aware": "true"}


def test_records_without_a_key_stay_in_the_rack(write, topics, topic, crossed):
    near = partitions_led_by(topics, topic, 2)
    written = write(topic, **AWARE, **{"kafka.client.rack": "rack-2"})
    assert written.keys() == near
    assert all(values == sorted(values) for values in written.values())
    # One Arrow batch to each in turn.
    assert sorted(map(len, written.values())) == [ROWS // 2, ROWS // 2]
    assert crossed() == 0


def test_a_rack_without_a_leader_uses_all(write, topic, crossed):
    written = write(topic, **AWARE, **{"kafka.client.rack": "rack-9"})
    assert written.keys() == set(range(PARTITIONS))
    assert crossed() == ROWS


def test_keys_decide_across_racks_and_the_report_counts_them(write, topics, topic, crossed):
    near = partitions_led_by(topics, topic, 3)
    written = write(topic, "cast(id % 100 as string)", **AWARE, **{"kafka.client.rack": "rack-3"})
    assert written.keys() == set(range(PARTITIONS))
    assert crossed() == sum(len(values) for p, values in written.items() if p not in near)


def test_without_the_option_the_report_still_counts(write, topics, topic, crossed):
    written = write(topic, **{"kafka.client.rack": "rack-1"})
    assert written.keys() == set(range(PARTITIONS))
    assert 0 < crossed() < ROWS
    write(topics.create())
    assert crossed() is None


def test_leaders_that_move_take_the_records_along(kafka, write, topics, topic, crossed):
    """The producer that is kept between tasks finds it out by its next metadata."""
    topic = topics.create(PARTITIONS, replicas=3)
    near = partitions_led_by(topics, topic, 2)
    options = {**AWARE, "kafka.client.rack": "rack-2", "kafka.metadata.max.age.ms": "1000"}
    counts = Counter()
    writes = 0

    def used(is_expected):
        """The partitions of the first write whose partitions are as expected."""
        nonlocal counts, writes
        deadline = Deadline(60)
        while True:
            before, counts = (
                counts,
                Counter(
                    {
                        partition: len(values)
                        for partition, values in write(topic, **options).items()
                    }
                ),
            )
            writes += 1
            assert counts.total() == writes * ROWS  # none lost, none doubled
            partitions = (counts - before).keys()
            if is_expected(partitions):
                return
            assert not deadline.expired, f"still {sorted(partitions)}"

    used(lambda partitions: partitions == near)
    assert crossed() == 0
    send_signal(kafka.pids[1], signal.SIGTERM)  # its leaders move to the other racks
    used(lambda partitions: partitions == set(range(PARTITIONS)))
    kafka.restart(2)
    topics.elect_preferred_leaders(topic, node=2)
    near = partitions_led_by(topics, topic, 2)
    assert near
    used(lambda partitions: partitions == near)
    assert crossed() == 0


def test_a_leader_that_moves_mid_stream_loses_no_record_and_fails_no_task(
    spark, kafka, topics, tmp_path
):
    """Spark runs every task only once here, so that a failed attempt would fail the query."""

    moved = tmp_path / "moved"

    def slowly(batches):
        """So that the stream has begun when the leader moves, and goes on afterwards."""
        for number, batch in enumerate(batches):
            time.sleep(0.05)
            while number == 25 and not moved.exists():
                time.sleep(0.05)
            yield batch

    topic = topics.create(partitions=6, replicas=3)
    rows = spark.range(MANY_ROWS, numPartitions=2).select(f.col("id").cast("string").alias("value"))
    rows = rows.mapInArrow(slowly, "value string")
    writer = rows.write.format("kafka-nb").mode("append").options(
        **{"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic}
    )  # fmt: skip

    def stop_a_leader():
        topics.wait_for_rows(topic)
        leader = topics.leaders(topic)[0]
        send_signal(kafka.pids[leader - 1], signal.SIGTERM)
        try:
            wait_until(lambda: topics.leaders(topic)[0] not in (leader, -1), 60)
        finally:
            moved.touch()
        return leader

    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "1000")
    with ThreadPoolExecutor() as pool:
        stopped = pool.submit(stop_a_leader)
        try:
            writer.save()
        finally:
            spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert topics.leaders(topic)[0] not in (stopped.result(), -1)
    kafka.restart(stopped.result())
    counts = Counter(record.value for record in topics.read(topic))
    assert counts == Counter(str(i).encode() for i in range(MANY_ROWS))
