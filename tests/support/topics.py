"""Topics for tests: created, read back with an independent consumer, deleted."""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

_SECONDS = 30.0


@dataclass(frozen=True, order=True)
class Record:
    """What a consumer sees of a record."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class Topics:
    """The topics that one test makes on a broker."""

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
        self._mine: list[str] = []

    def new_name(self) -> str:
        """A name that nothing uses; a topic of that name is deleted at the end."""
        name = f"test-{uuid.uuid4().hex[:12]}"
        self._mine.append(name)
        return name

    def create(
        self,
        partitions: int = 1,
        config: dict[str, str] | None = None,
        replicas: int = 1,
        name: str = "",
    ) -> str:
        name = name or self.new_name()
        keep = {"retention.ms": "-1"}  # which goes by the records' timestamps
        topic = NewTopic(name, partitions, replicas, config=keep | (config or {}))
        self._admin.create_topics([topic], operation_timeout=_SECONDS)[name].result(_SECONDS)
        return name

    def add_partitions(self, topic: str, total: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(_SECONDS)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic], operation_timeout=_SECONDS)[topic].result(_SECONDS)

    def exists(self, topic: str) -> bool:
        return topic in self._admin.list_topics(timeout=_SECONDS).topics

    def leaders(self, topic: str) -> list[int]:
        """The node ids of the leaders, by partition; -1: none."""
        partitions = self._admin.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        return [partitions[number].leader for number in sorted(partitions)]

    def wait_for_rows(self, topic: str) -> None:
        """Until there is a row in partition 0."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap_servers, "group.id": "tests", "log_level": 2}
        )
        end_of_patience = time.monotonic() + _SECONDS
        while not consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=_SECONDS)[1]:
            assert time.monotonic() < end_of_patience
        consumer.close()

    def close(self) -> None:
        there = self._admin.list_topics(timeout=_SECONDS).topics.keys() & set(self._mine)
        if there:
            for future in self._admin.delete_topics(sorted(there)).values():
                future.result(_SECONDS)

    def read(self, *topics: str) -> list[Record]:
        """All records from the first to the last offset, by topic, partition and offset."""
        consumer = Consumer(
            {"bootstrap.servers": self.bootstrap_servers, "group.id": "tests", "log_level": 2}
        )
        partitions = [
            TopicPartition(topic, number, 0)
            for topic in topics
            for number in consumer.list_topics(topic, timeout=_SECONDS).topics[topic].partitions
        ]
        ends = [consumer.get_watermark_offsets(p, timeout=_SECONDS)[1] for p in partitions]
        consumer.assign(partitions)
        messages = []
        end_of_patience = time.monotonic() + _SECONDS
        while len(messages) < sum(ends):
            messages += consumer.consume(10_000, timeout=0.2)
            assert time.monotonic() < end_of_patience, f"read {len(messages)} of {sum(ends)}"
        consumer.close()
        return sorted(_record(message) for message in messages)


def _record(message) -> Record:
    assert message.error() is None
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )
