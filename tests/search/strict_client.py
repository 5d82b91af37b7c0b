"""librdkafka's queues in plain Python, with all the freedom that it and the brokers have.

A partition's records wait in a queue, are cut into batches at any time, and up to five batches are
in flight. Brokers store a batch or reject all of it, and may store those behind one that they have
rejected. Records without a partition wait until the client has the topic's metadata.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random

import numpy as np

from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import AcknowledgedRecords, FailedRecords
from spark_kafka_sink.librdkafka.messages import Rejection
from spark_kafka_sink.records.partitioner import UNASSIGNED, PartitionedRecords, group_by_partition
from spark_kafka_sink.records.record_size import BATCH_OVERHEAD_BYTES, record_bytes

_IN_FLIGHT = 5


@dataclass(frozen=True)
class QueuedRecord:
    send_id: int
    position: int
    size: int


@dataclass
class StrictTopic:
    """What the brokers have of a topic, and what the client knows."""

    partitions: int
    max_batch_bytes: int
    is_known_to_client: bool = False
    log: defaultdict[int, list[QueuedRecord]] = field(default_factory=lambda: defaultdict(list))


class StrictClient:
    """A ``ProducerClient``."""

    def __init__(
        self, topics: Mapping[str, StrictTopic], random: Random, max_batch_bytes: int
    ) -> None:
        self.topics = topics
        self.events: list[AcknowledgedRecords | FailedRecords] = []
        #: requests without an answer
        self.asked: list[tuple[str, ...]] = []
        self.asked_configurations: list[str] = []
        self._random = random
        self._max_batch_bytes = max_batch_bytes
        self._queues: defaultdict[tuple[str, int], deque[QueuedRecord]] = defaultdict(deque)
        self._unassigned: defaultdict[str, deque[tuple[int, QueuedRecord]]] = defaultdict(deque)
        self._in_flight: defaultdict[tuple[str, int], deque[list[QueuedRecord]]] = defaultdict(
            deque
        )
        self._held: set[tuple[str, int]] = set()
        self._unreported: Counter[str] = Counter()
        #: what must be true of a topic before it gets records
        self.is_sendable: Callable[[str], bool] = lambda _topic: True

    # --- what the engine calls -------------------------------------------------------------------

    @property
    def has_bootstrapped(self) -> bool:
        return True

    def connect(self, timeout: float) -> None:
        del timeout

    def open_topic(self, name: str) -> int:
        del name
        return 1

    def fetch_metadata(self, topics: Sequence[str], timeout: float) -> None:
        del timeout
        self.asked.append(tuple(topics))

    def fetch_topic_configurations(self, topics: Sequence[str], timeout: float) -> None:
        del timeout
        self.asked_configurations += topics

    def has_unreported(self, topic: str) -> bool:
        return bool(self._unreported[topic])

    @contextmanager
    def paused(self, topic: str, partitions: Sequence[int]) -> Iterator[None]:
        held = {(topic, partition) for partition in partitions}
        assert not held & self._held
        self._held |= held
        yield
        self._held -= held

    def enqueue(self, partitioned: PartitionedRecords, send_id: int) -> list[Rejection]:
        records, topic = partitioned.records, partitioned.records.topic
        assert self.is_sendable(topic), topic
        sizes = record_bytes(records).tolist()
        for size, position, partition in zip(
            sizes, partitioned.positions.tolist(), self._partitions(partitioned), strict=True
        ):
            record = QueuedRecord(send_id, position, size)
            self._unreported[topic] += 1
            if self.topics[topic].is_known_to_client:
                self._queues[topic, partition].append(record)
                self._cut_at_random(topic, partition)
            else:
                self._unassigned[topic].append((partition, record))
        return []

    def _partitions(self, partitioned: PartitionedRecords) -> list[int]:
        """Of each record: what the sink has chosen, or else what the client chooses."""
        records = partitioned.records
        by_sink = np.repeat(partitioned.partitions, np.diff(partitioned.starts))
        own = group_by_partition(records, self.topics[records.topic].partitions, 0)
        by_client = np.empty(len(records), dtype=np.int64)
        by_client[own.positions] = np.repeat(own.partitions, np.diff(own.starts))
        chosen: list[int] = np.where(by_sink == UNASSIGNED, by_client, by_sink).tolist()
        return chosen

    # --- steps of the client and of the brokers ---------------------------------------------------

    def learn(self, topic: str) -> None:
        """The client gets metadata, and assigns the records that wait for it."""
        self.topics[topic].is_known_to_client = True
        for partition, record in self._unassigned.pop(topic, deque()):
            self._queues[topic, partition].append(record)
            self._cut_at_random(topic, partition)

    def _cut_at_random(self, topic: str, partition: int) -> None:
        if self._random.random() < 0.2:
            self.transmit(topic, partition)

    def transmit(self, topic: str, partition: int) -> None:
        """Send a batch, if the partition is not held, and fewer than five are in flight."""
        place = topic, partition
        queue, in_flight = self._queues[place], self._in_flight[place]
        if place in self._held or not queue or len(in_flight) == _IN_FLIGHT:
            return
        batch = [queue.popleft()]
        while queue and _batch_bytes([*batch, queue[0]]) <= self._max_batch_bytes:
            batch.append(queue.popleft())
        in_flight.append(batch)

    def answer(self, topic: str, partition: int) -> None:
        """The brokers judge the oldest batch of the partition."""
        if not self._in_flight[topic, partition]:
            return
        batch = self._in_flight[topic, partition].popleft()
        state = self.topics[topic]
        is_stored = _batch_bytes(batch) <= state.max_batch_bytes
        if is_stored:
            state.log[partition] += batch
        by_delivery: defaultdict[int, list[int]] = defaultdict(list)
        for record in batch:
            by_delivery[record.send_id].append(record.position)
        self._unreported[topic] -= len(batch)
        for send_id, positions in by_delivery.items():
            if is_stored:
                columns = (np.array([n]) for n in (send_id, partition, len(positions)))
                self.events.append(AcknowledgedRecords(*columns))
            else:
                code, count = ErrorCode.MSG_SIZE_TOO_LARGE, len(positions)
                failed = send_id, partition, code, False, count, tuple(sorted(positions))
                self.events.append(FailedRecords(*failed))

    @property
    def places(self) -> list[tuple[str, int]]:
        """The topics and partitions with records."""
        return sorted(self._queues.keys() | self._in_flight.keys())


def _batch_bytes(records: Sequence[QueuedRecord]) -> int:
    return BATCH_OVERHEAD_BYTES + sum(record.size for record in records)
