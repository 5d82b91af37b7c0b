"""A fake librdkafka client in plain Python: it accepts records while there is room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from spark_kafka_sink.librdkafka.events import Event
from spark_kafka_sink.librdkafka.messages import MessageBatch, Rejection


class FakeClient:
    def __init__(self) -> None:
        self.room = 1_000_000
        self.rejects: dict[int, int] = {}  # delivery id -> error code of its first record
        self.enqueued: list[tuple[int, int]] = []  # delivery id, number of the record
        self.requests: list[tuple[list[str], float]] = []
        self.opened: list[str] = []
        self.connects = 0
        self.asked_configurations: list[str] = []
        self.positions: list[tuple[int, int]] = []  # delivery id, position in its send
        self.unreported: Counter[str] = Counter()  # by topic
        self.undivided_records = 0
        self.ends_at_rejection = False
        self.rejects_all = False  # records of such a delivery, not only its first
        self.events: list[Event] = []
        self.tokens: list[tuple[str, int, str, Mapping[str, str]]] = []
        self.token_failures: list[str] = []

    def enqueue(self, batch: MessageBatch) -> list[Rejection]:
        taken = min(self.room, len(batch) - batch.enqueued)
        if self.ends_at_rejection and batch.enqueued == 0 and batch.delivery_id in self.rejects:
            taken = 1
        numbers = range(batch.enqueued, batch.enqueued + taken)
        self.enqueued += [(batch.delivery_id, number) for number in numbers]
        positions = batch.partitioned.positions[batch.enqueued : batch.enqueued + taken]
        self.positions += [(batch.delivery_id, position) for position in positions.tolist()]
        self.room -= taken
        is_first = batch.enqueued == 0 and taken
        batch.enqueued += taken
        self.unreported[batch.partitioned.records.topic] += taken
        if is_first and batch.delivery_id in self.rejects:
            rejected = positions if self.rejects_all else positions[:1]
            return [Rejection(int(p), self.rejects[batch.delivery_id]) for p in rejected]
        return []

    @contextmanager
    def undivided(self, topic: str, partitions: Sequence[int]) -> Iterator[None]:
        before = len(self.enqueued)
        yield
        self.undivided_records += len(self.enqueued) - before

    def fetch_metadata(self, topics: Sequence[str], timeout: float) -> None:
        self.requests.append((list(topics), timeout))

    @property
    def has_bootstrapped(self) -> bool:
        return bool(self.requests or self.connects or self.enqueued)

    def open_topic(self, name: str) -> int:
        self.opened.append(name)
        return 1

    def has_unreported(self, topic: str) -> bool:
        return bool(self.unreported[topic])

    def fetch_topic_configurations(self, topics: Sequence[str], timeout: float) -> None:
        self.asked_configurations += topics

    def connect(self, timeout: float) -> None:
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
