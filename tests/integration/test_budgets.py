"""KIP-912 through Spark, with metadata that takes 3 s; and order when connections break."""

from __future__ import annotations

import threading
import time
import uuid

import pytest
from streams import write_by_format

# A cold client needs two answers, the cluster's and the topic's.
ANSWERS, WHOLE_FETCH_SECONDS = 2, 3.0
SPARK_SECONDS = 20.0  # for what Spark itself does around a small task, on a very busy machine


@pytest.fixture
def save(spark, proxied):
    """Write one row with a new producer; ``save.seconds`` is the time that it took."""
    df = spark.createDataFrame([("v",)], "value string").coalesce(1)
    df.write.format("noop").mode("overwrite").save()

    def save(topic, **options):
        new = {"kafka.client.id": uuid.uuid4().hex}  # else a producer with metadata is reused
        options = {"topic": topic, "preflight": "false", **new, **options}
        started = time.monotonic()
        try:
            write_by_format(df, proxied.bootstrap_servers, **options)
        finally:
            save.seconds = time.monotonic() - started

    return save


def budget(metadata_ms):
    return {
        "kafka.max.block.ms": "1000",
        "kafka.max.block.ms.include.metadata": "false",
        "kafka.max.block.metadata.ms": str(metadata_ms),
    }


def test_rows_are_delivered_when_metadata_comes_within_its_budget(save, proxy, proxied):
    topic, options = proxied.create(), budget(metadata_ms=15_000)
    save(topic, **options)  # warms Spark, not the next producer
    proxy.metadata_delay_seconds = WHOLE_FETCH_SECONDS / ANSWERS
    save(topic, **options)
    assert WHOLE_FETCH_SECONDS / ANSWERS < save.seconds < WHOLE_FETCH_SECONDS + SPARK_SECONDS
    proxy.metadata_delay_seconds = 0.0
    assert [r.value for r in proxied.read(topic)] == [b"v", b"v"]


def test_rows_fail_after_the_budget_when_metadata_takes_longer(save, proxy, proxied):
    topic, options = proxied.create(), budget(metadata_ms=1_000)
    save(topic, **budget(metadata_ms=60_000))
    proxy.metadata_delay_seconds = WHOLE_FETCH_SECONDS / ANSWERS
    named = r"\(kafka\.max\.block\.metadata\.ms\)"
    failure = rf"MetadataTimeout: no metadata for topic {topic} within 1 s {named}"
    with pytest.raises(Exception, match=failure):
        save(topic, **options)
    assert 1.0 <= save.seconds < 1.0 + SPARK_SECONDS
    proxy.metadata_delay_seconds = 0.0
    assert [r.value for r in proxied.read(topic)] == [b"v"]


def test_idempotence_keeps_order_and_number_when_connections_break(spark, proxy, proxied):
    topic, total, batch = proxied.create(), 60_000, 100
    proxy.produce_delay_seconds = 0.005  # 600 batches take longer than all that is done to them
    rows = spark.range(0, total, numPartitions=1).selectExpr("string(id) as value")
    writer = rows.write.format("kafka-nb").options(
        **{
            "kafka.bootstrap.servers": proxied.bootstrap_servers,
            "kafka.batch.num.messages": str(batch),
            "kafka.linger.ms": "0",
            "kafka.reconnect.backoff.max.ms": "100",
            "close.timeout.ms": "120000",  # 600 requests took 30 s with every core busy
            "topic": topic,
        }
    )
    ended = threading.Event()
    drops = []

    def drop():
        proxied.wait_for_rows(topic)
        while len(drops) < 3 and not ended.wait(0.5):
            proxy.drop_connections()
            drops.append(time.monotonic())

    dropping = threading.Thread(target=drop)
    dropping.start()
    try:
        writer.mode("append").save()
    finally:
        ended.set()
        dropping.join()
    assert len(drops) == 3
    assert [int(r.value) for r in proxied.read(topic)] == list(range(total))
