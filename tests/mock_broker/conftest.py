"""librdkafka's in-process mock broker, and records to send to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from idle_clients import close_idle_clients
from mock_cluster import MockCluster
from resolver import Resolver

from spark_kafka_sink.config.added_settings import producer_settings
from spark_kafka_sink.config.options import SinkOptions, parse
from spark_kafka_sink.config.producer_options import BlockBudget, ClientSettings
from spark_kafka_sink.driver import preflight
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.group_offsets import GroupClient
from spark_kafka_sink.producer import producer as producer_module
from spark_kafka_sink.producer.producer import NonBlockingProducer
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.transactions import offset_calls

NO_SETTINGS: Mapping[str, str] = {}
DEFAULT_BUDGET = BlockBudget(60_000, True, 60_000)


@pytest.fixture(autouse=True)
def no_idle_clients() -> Iterator[None]:
    yield
    close_idle_clients()


@pytest.fixture(autouse=True)
def time_to_free_clients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeing a client takes milliseconds, but more than 0.8 s on a machine that stalls."""
    monkeypatch.setattr(producer_module, "_ABORT_SECONDS", 3.0)


@pytest.fixture
def cluster() -> Iterator[MockCluster]:
    with MockCluster() as cluster:
        cluster.create_topic("t", partitions=1)
        yield cluster


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Resolver:
    resolver = Resolver()
    resolver.install(monkeypatch)
    return resolver


@pytest.fixture
def new_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Forgets what preflight has checked, as a new Python process does."""

    def forget() -> None:
        monkeypatch.setattr(preflight, "_check", cache(preflight._check.__wrapped__))

    forget()
    return forget


@pytest.fixture
def asked_topics(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The topics of each request for metadata."""
    asked: list[list[str]] = []
    describe = Client.describe_topics

    def note_and_describe(client: Client, topics: list[str], *args: Any) -> None:
        asked.append(topics)
        describe(client, topics, *args)

    monkeypatch.setattr(Client, "describe_topics", note_and_describe)
    return asked


@pytest.fixture
def group_clients(monkeypatch: pytest.MonkeyPatch) -> list[GroupClient]:
    """The clients that were made to read and write offsets."""
    made: list[GroupClient] = []

    def new_client(*args: Any, **settings: Any) -> GroupClient:
        made.append(GroupClient(*args, **settings))
        return made[-1]

    monkeypatch.setattr(offset_calls, "GroupClient", new_client)
    return made


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
def new_producer(options: Callable[..., SinkOptions]) -> Callable[..., NonBlockingProducer]:
    """Makes producers that the test closes."""

    def make(
        buffer_memory_bytes: int = 64 * 1024 * 1024,
        budget: BlockBudget = DEFAULT_BUDGET,
        client: Mapping[str, str] = NO_SETTINGS,
        **settings: str,
    ) -> NonBlockingProducer:
        producer_options = options(**settings).producer
        complete = {**producer_settings(producer_options.client, buffer_memory_bytes), **client}
        return NonBlockingProducer(
            replace(
                producer_options,
                client=ClientSettings(tuple(sorted(complete.items()))),
                buffer_memory_bytes=buffer_memory_bytes,
                budget=budget,
            )
        )

    return make


@pytest.fixture
def producer(
    new_producer: Callable[..., NonBlockingProducer],
) -> Iterator[Callable[..., NonBlockingProducer]]:
    """Makes producers that are closed at the end."""
    made = []

    def make(*args: Any, **settings: Any) -> NonBlockingProducer:
        made.append(new_producer(*args, **settings))
        return made[-1]

    yield make
    for producer_made in made:
        assert producer_made.close(0)


@pytest.fixture
def records() -> Callable[..., RecordColumns]:
    def make(values: list[str | None], topic: str = "t", **columns: pa.Array) -> RecordColumns:
        batch = pa.record_batch({"value": pa.array(values, pa.string()), **columns})
        (all_records,) = split_by_topic(batch, topic, timestamp_column="timestamp").records
        return all_records

    return make
