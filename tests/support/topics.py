"""Topics for tests: created, read back with an independent consumer, deleted."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import (
    Consumer,
    ElectionType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
    TopicMetadata,
)

from spark_kafka_sink.deadline import Deadline

_SECONDS = 60.0
_PATIENCE_SECONDS = 90.0
_ATTEMPT_SECONDS = 5.0

# Errors while a cluster starts, creates a topic or moves a leader, and while a client does not
# know that yet. KafkaError.retriable() covers only transactions.
_PASSING = {
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_ID,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._WAIT_CACHE,
}

_T = TypeVar("_T")
# the offset after the last record, by topic and partition
_Ends = dict[tuple[str, int], int]


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
    """The topics that one test creates on a broker.

    Reads are retried after transient errors; the last one is raised after ``patience_seconds``.
    """

    def __init__(self, bootstrap_servers: str, patience_seconds: float = _PATIENCE_SECONDS) -> None:
        self.bootstrap_servers = bootstrap_servers
        self._patience_seconds = patience_seconds
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
        """Wait until a broker knows it: the controller answers before."""
        name = name or self.new_name()
        keep = {"retention.ms": "-1"}  # retention goes by the records' timestamps
        topic = NewTopic(name, partitions, replicas, config=keep | (config or {}))
        self._admin.create_topics([topic], operation_timeout=_SECONDS)[name].result(_SECONDS)
        self._metadata(name, Deadline(self._patience_seconds))
        return name

    def add_partitions(self, topic: str, total: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(_SECONDS)

    def set_config(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._admin.incremental_alter_configs([resource])[resource].result(_SECONDS)

    def delete(self, topic: str) -> None:
        """Wait until brokers accept no more records for it: the controller answers before."""
        self._admin.delete_topics([topic], operation_timeout=_SECONDS)[topic].result(_SECONDS)
        deadline = Deadline(self._patience_seconds)
        while self.exists(topic):
            assert not deadline.expired, f"{topic} is still there"
            time.sleep(0.01)  # there is no event when it is gone

    def delete_records(self, topic: str) -> None:
        """Delete all records of the topic, as its retention does."""
        ends = [TopicPartition(topic, n, end) for n, end in self.ends(topic)[1].items()]
        for deleted in self._admin.delete_records(ends).values():
            deleted.result(_SECONDS)

    def exists(self, topic: str) -> bool:
        return topic in self._all_names()

    def leaders(self, topic: str) -> list[int]:
        """The node ids of the leaders, by partition."""
        partitions = self._metadata(topic, Deadline(self._patience_seconds)).partitions
        return [partitions[number].leader for number in sorted(partitions)]

    def replicas(self, topic: str) -> list[int]:
        """The node ids of the brokers that have its partition 0, the leader first."""
        partition = self._metadata(topic, Deadline(self._patience_seconds)).partitions[0]
        return sorted(partition.replicas, key=lambda node: node != partition.leader)

    def wait_until_in_sync(self) -> None:
        """Wait until all replicas of all topics, Kafka's own too, are in sync."""
        deadline = Deadline(self._patience_seconds)
        while lagging := _repeated(self._lagging, deadline):
            assert not deadline.expired, f"not in sync: {lagging}"
            time.sleep(deadline.slice(0.1))  # there is no event when they are

    def _lagging(self, seconds: float) -> list[str]:
        return [
            f"{name} {number}"
            for name, topic in self._admin.list_topics(timeout=seconds).topics.items()
            for number, partition in topic.partitions.items()
            if len(partition.isrs) < len(partition.replicas)
        ]

    def elect_preferred_leaders(self, topic: str, node: int) -> None:
        """Wait until that broker leads every partition whose first replica it has."""
        deadline = Deadline(self._patience_seconds)
        while True:
            partitions = self._metadata(topic, deadline).partitions
            behind = [p for p in partitions.values() if p.replicas[0] == node != p.leader]
            if not behind:
                return
            assert not deadline.expired, f"broker {node} does not lead {behind}"
            chosen = [TopicPartition(topic, partition.id) for partition in behind]
            # An answer per partition: one that is not in sync yet is rejected.
            self._admin.elect_leaders(ElectionType.PREFERRED, chosen).result(_SECONDS)
            time.sleep(deadline.slice(0.1))  # there is no event when it is

    def wait_for_rows(self, topic: str) -> None:
        """Wait until there is a record in partition 0."""
        deadline = Deadline(self._patience_seconds)
        with self._consumer() as consumer:
            while not _end(consumer, TopicPartition(topic, 0), deadline):
                assert not deadline.expired, f"no record in {topic}"
                time.sleep(0.01)  # there is no event when a record arrives

    def close(self) -> None:
        there = self._all_names() & set(self._mine)
        if there:
            for future in self._admin.delete_topics(sorted(there)).values():
                future.result(_SECONDS)

    def read(self, *topics: str) -> list[Record]:
        """All records from the first to the last offset, by topic, partition and offset."""
        return self._read(topics, IsolationLevel.READ_UNCOMMITTED)

    def _read(self, topics: Iterable[str], level: IsolationLevel) -> list[Record]:
        """Those before the last offset of that level."""
        deadline = Deadline(self._patience_seconds)
        with self._consumer() as consumer:
            partitions = [
                TopicPartition(topic, number, 0)
                for topic in topics
                for number in self._metadata(topic, deadline).partitions
            ]
            ends = self._ends(partitions, level, deadline)
            consumer.assign(partitions)
            return sorted(_consume(consumer, ends, deadline))

    def read_committed(self, topic: str) -> list[bytes | None]:
        """The values that a read_committed consumer sees, once no transaction is open."""
        deadline = Deadline(self._patience_seconds)
        while (offsets := self.ends(topic))[0] != offsets[1]:
            assert not deadline.expired, f"a transaction is still open: {offsets}"
            time.sleep(0.02)  # there is no event when it ends
        return [record.value for record in self.read(topic)]

    def read_stable(self, topic: str) -> list[bytes | None]:
        """The values that a read_committed consumer sees now, which may wait at an open one."""
        return [record.value for record in self._read([topic], IsolationLevel.READ_COMMITTED)]

    def ends(self, topic: str) -> tuple[dict[int, int], dict[int, int]]:
        """By partition: the last stable offsets, and the high watermarks."""
        deadline = Deadline(self._patience_seconds)
        numbers = self._metadata(topic, deadline).partitions
        partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
        stable = self._ends(partitions, IsolationLevel.READ_COMMITTED, deadline)
        high = self._ends(partitions, IsolationLevel.READ_UNCOMMITTED, deadline)
        return _ends_by_number(stable), _ends_by_number(high)

    def _ends(
        self, partitions: list[TopicPartition], level: IsolationLevel, deadline: Deadline
    ) -> _Ends:
        wanted = {partition: OffsetSpec.latest() for partition in partitions}

        def read(_: float) -> _Ends:
            futures = self._admin.list_offsets(wanted, isolation_level=level)
            return {
                (partition.topic, partition.partition): future.result(_SECONDS).offset
                for partition, future in futures.items()
            }

        return _repeated(read, deadline)

    @contextmanager
    def _consumer(self) -> Iterator[Consumer]:
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "group.id": "tests",
                "auto.offset.reset": "error",  # instead of silently skipping records
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # or the end of a partition would be reported late
                "log_level": 2,
            }
        )
        try:
            yield consumer
        finally:
            consumer.close()

    def _all_names(self) -> set[str]:
        deadline = Deadline(self._patience_seconds)
        return set(_repeated(lambda s: self._admin.list_topics(timeout=s).topics, deadline))

    def _metadata(self, topic: str, deadline: Deadline) -> TopicMetadata:
        """A topic's metadata, once all its partitions have a leader."""

        def read(seconds: float) -> TopicMetadata:
            metadata = self._admin.list_topics(topic, timeout=seconds).topics[topic]
            for part in (metadata, *metadata.partitions.values()):
                if part.error is not None:
                    raise KafkaException(part.error)
            if any(partition.leader == -1 for partition in metadata.partitions.values()):
                raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
            return metadata

        return _repeated(read, deadline)


def _repeated(read: Callable[[float], _T], deadline: Deadline) -> _T:
    """The result of ``read(seconds)``, retried after transient errors until the deadline."""
    while True:
        try:
            return read(deadline.slice(_ATTEMPT_SECONDS))
        except KafkaException as error:
            if error.args[0].code() not in _PASSING or deadline.expired:
                raise
            time.sleep(deadline.slice(0.1))  # there is no event when the error has passed


def _end(consumer: Consumer, partition: TopicPartition, deadline: Deadline) -> int:
    """The offset after the partition's last record."""
    return _repeated(lambda s: consumer.get_watermark_offsets(partition, timeout=s)[1], deadline)


def _ends_by_number(ends: _Ends) -> dict[int, int]:
    return {number: end for (_, number), end in ends.items()}


def _consume(consumer: Consumer, ends: _Ends, deadline: Deadline) -> list[Record]:
    """All records before the ends; of transactions, only those that were committed."""
    records: list[Record] = []
    left = {partition for partition, end in ends.items() if end}
    last_error = None
    # Where there are transactions, some offsets have no record, so partitions have to end.
    while left and len(records) < sum(ends.values()):
        # It waits for all of them, also after the end of every partition.
        for message in consumer.consume(10_000, timeout=deadline.slice(0.02)):
            partition = message.topic(), message.partition()
            if message.error() is None:
                records.append(_record(message))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                if message.offset() >= ends[partition]:
                    left.discard(partition)
            elif message.error().code() in _PASSING:  # the consumer retries on its own
                last_error = message.error()
            else:
                raise KafkaException(message.error())
        if deadline.expired and left and len(records) < sum(ends.values()):
            raise TimeoutError(f"read {len(records)} of {ends}; last error: {last_error}")
    return records


def _record(message) -> Record:
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
    )
