"""[both] What the sink needs of a client, so that tests can have one without librdkafka.

mypy compares ``Client`` and the tests' ``FakeClient`` with these where they are passed on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from spark_kafka_sink.librdkafka.events import BrokerError, Event
from spark_kafka_sink.librdkafka.messages import Rejection
from spark_kafka_sink.records.partitioner import PartitionedRecords


class TokenClient(Protocol):
    """Logs in with tokens."""

    def set_token(
        self, value: str, expires_at_ms: int, principal: str, extensions: Mapping[str, str]
    ) -> None: ...

    def fail_token(self, reason: str) -> None: ...


class EventClient(TokenClient, Protocol):
    """Has events, some of them about its login."""

    def poll(self, seconds: float = 0.0) -> Iterator[Event]: ...


class ProducerClient(Protocol):
    """Sends records and requests; no method waits. ``Client`` says what each one does."""

    @property
    def has_bootstrapped(self) -> bool: ...

    def describe_cluster(self, timeout_seconds: float) -> None: ...

    def open_topic(self, name: str) -> int: ...

    def enqueue(self, partitioned: PartitionedRecords, send_id: int) -> list[Rejection]: ...

    def paused(self, topic: str, partitions: Sequence[int]) -> AbstractContextManager[None]: ...

    def has_unreported(self, topic: str) -> bool: ...

    def fatal_error(self) -> BrokerError | None: ...

    def describe_topics(self, topics: Sequence[str], timeout_seconds: float) -> None: ...

    def describe_topic_configs(self, topics: Sequence[str], timeout_seconds: float) -> None: ...
