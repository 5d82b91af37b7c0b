"""A fake librdkafka client in plain Python: it accepts all records, and reports none itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from spark_kafka_sink.librdkafka.events import BrokerError, Event
from spark_kafka_sink.librdkafka.messages import Rejection
from spark_kafka_sink.records.partitioner import PartitionedRecords


class FakeClient:
    def __init__(self) -> None:
        self.rejects: dict[int, int] = {}  # send -> error code of its first record
        self.enqueued: list[PartitionedRecords] = []
        self.requests: list[tuple[list[str], float]] = []
        self.opened: list[str] = []
        self.connects = 0
        self.asked_configurations: list[str] = []
        self.positions: list[tuple[int, int]] = []  # send, position in it
        self.unreported: Counter[str] = Counter()  # by topic
        self.paused_records = 0
        self.rejects_all = False  # records of such a send, not only its first
        self.events: list[Event] = []
        self.fatal: BrokerError | None = None
        self.tokens: list[tuple[str, int, str, Mapping[str, str]]] = []
        self.token_failures: list[str] = []

    def enqueue(self, partitioned: PartitionedRecords, send_id: int) -> list[Rejection]:
        positions = partitioned.positions.tolist()
        self.enqueued.append(partitioned)
        code, rejected = self.rejects.get(send_id), list[int]()
        if code is not None:
            rejected = positions if self.rejects_all else positions[:1]
        self.positions += [(send_id, position) for position in positions]
        self.unreported[partitioned.records.topic] += len(positions) - len(rejected)
        return [Rejection(position, code or 0) for position in rejected]

    @contextmanager
    def paused(self, topic: str, partitions: Sequence[int]) -> Iterator[None]:
        before = len(self.positions)
        yield
        self.paused_records += len(self.positions) - before

    def describe_topics(self, topics: Sequence[str], timeout_seconds: float) -> None:
        self.requests.append((list(topics), timeout_seconds))

    @property
    def has_bootstrapped(self) -> bool:
        return bool(self.requests or self.connects or self.enqueued)

    def open_topic(self, name: str) -> int:
        self.opened.append(name)
        return 1

    def has_unreported(self, topic: str) -> bool:
        return bool(self.unreported[topic])

    def fatal_error(self) -> BrokerError | None:
        return self.fatal

    def describe_topic_configs(self, topics: Sequence[str], timeout_seconds: float) -> None:
        self.asked_configurations += topics

    def describe_cluster(self, timeout_seconds: float) -> None:
        self.connects += 1

    def poll(self, seconds: float = 0.0) -> Iterator[Event]:
        while self.events:
            yield self.events.pop(0)

    def set_token(
        self, value: str, expires_at_ms: int, principal: str, extensions: Mapping[str, str]
    ) -> None:
        self.tokens.append((value, expires_at_ms, principal, extensions))

    def fail_token(self, reason: str) -> None:
        self.token_failures.append(reason)
