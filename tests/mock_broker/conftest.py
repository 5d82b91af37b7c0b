"""librdkafka's in-process mock broker, and rows to send to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from mock_cluster import MockCluster

from spark_kafka_sink.config.options import SinkOptions, parse
from spark_kafka_sink.producer import cache as producer_cache
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.columns import RecordColumns


@pytest.fixture(autouse=True)
def empty_producer_cache() -> Iterator[None]:
    """Producers that a test leaves behind would go on looking for its mock broker."""
    yield
    producer_cache.process_cache().close(5)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        cluster.create_topic("t", partitions=1)
        yield cluster


@pytest.fixture
def options(cluster: MockCluster) -> Callable[..., SinkOptions]:
    def make(**settings: str) -> SinkOptions:
        defaults = {
            "kafka.bootstrap.servers": cluster.bootstrap_servers,
            "topic": "t",
            # Without the wait for a producer id, which the mock broker makes last 0.5 s.
            "kafka.enable.idempotence": "false",
        }
        return parse(defaults | {name.replace("_", "."): text for name, text in settings.items()})

    return make


@pytest.fixture
def records() -> Callable[..., RecordColumns]:
    def make(values: list[str | None], topic: str = "t", **columns: pa.Array) -> RecordColumns:
        batch = pa.record_batch({"value": pa.array(values, pa.string()), **columns})
        (all_rows,) = split_by_topic(batch, topic)
        return all_rows

    return make
