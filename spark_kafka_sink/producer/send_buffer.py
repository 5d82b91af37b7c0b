"""Passes records to the client at once, or later and in order: when their topic has metadata.

A broker that refuses one record refuses its whole batch. In a topic where that can happen, one
batch per partition is in flight at a time, so that its good records are sent again before any
later ones (Java: ``RecordAccumulator.splitAndReenqueue``, and muted partitions).
"""

from __future__ import annotations

from bisect import insort
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.error_codes import BATCH_ERRORS, ErrorCode
from spark_kafka_sink.librdkafka.events import FailedRecords
from spark_kafka_sink.librdkafka.messages import MessageBatch
from spark_kafka_sink.producer.deliveries import Delivery
from spark_kafka_sink.producer.screen import Screen
from spark_kafka_sink.producer.topic_metadata import TopicMetadata
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import (
    UNASSIGNED,
    PartitionedRecords,
    Partitioner,
    TopicPartitions,
)
from spark_kafka_sink.records.record_size import split_to_fit


@dataclass
class Sending:
    """The records of one send, or some of them, on their way to the client."""

    delivery: Delivery
    records: RecordColumns
    #: the client's form of the records, once the partitions are known
    messages: MessageBatch | None = None
    #: records that are not in ``messages``, because they would be refused
    screened: int = 0

    @property
    def is_accepted(self) -> bool:
        return self.delivery.accepted == len(self.records)

    @property
    def enqueued(self) -> int:
        """How many of the records were screened out, or have been accepted by the client."""
        return self.screened + (0 if self.messages is None else self.messages.enqueued)

    @property
    def is_enqueued(self) -> bool:
        return self.enqueued == len(self.records)

    @property
    def left(self) -> npt.NDArray[np.int64]:
        """The positions in the send of records that the client has not accepted yet."""
        if self.messages is None:
            return np.arange(self.screened, len(self.records), dtype=np.int64)
        return self.messages.partitioned.positions[self.messages.enqueued :]


@dataclass
class _TopicQueue:
    """The records of one topic that wait here; those to be sent again come first."""

    again: list[Sending] = field(default_factory=list)
    sends: deque[Sending] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.again or self.sends)

    def __iter__(self) -> Iterator[Sending]:
        yield from self.again
        yield from self.sends

    @property
    def first(self) -> Sending:
        return self.again[0] if self.again else self.sends[0]

    def remove_first(self) -> None:
        if self.again:
            del self.again[0]
        else:
            self.sends.popleft()


class SendBuffer:
    """Keeps a topic's sends in order, and holds the records that cannot be sent yet.

    The client would accept those of topics without metadata too, but would then request metadata
    topic by topic. No method waits. They return the records that were rejected.
    """

    def __init__(
        self,
        client: Client,
        topics: TopicMetadata,
        partitioner: Partitioner,
        screen: Screen | None = None,
    ) -> None:
        self._client = client
        self._topics = topics
        self._screen = screen
        self._partitioner = partitioner
        self._queues: dict[str, _TopicQueue] = {}
        self._sendable: dict[str, None] = {}  # topics whose waiting records have metadata
        #: topics with records that are sent again, until these are reported
        self._muted: set[str] = set()

    @property
    def is_holding(self) -> bool:
        """Whether records wait here."""
        return bool(self._queues)

    def put(self, sending: Sending) -> list[FailedRecords]:
        """Take what fits, the first records of each partition, and count them as accepted."""
        topic = sending.delivery.topic
        partitions = self._topics.partitions(topic)
        if (
            partitions is None
            or topic in self._queues
            or topic in self._muted
            or self._splits(topic)
        ):
            self.hold(sending)
            return []
        failures = self._enqueue(sending, partitions)
        if failures is None:
            self.hold(sending)
            return []
        sending.delivery.accepted = sending.enqueued
        return failures

    def hold(self, sending: Sending) -> None:
        """Take all records, and send them with the next ``drain`` that can."""
        sending.delivery.accepted = len(sending.records)
        self._queue(sending.delivery.topic).sends.append(sending)

    def send_again(self, delivery: Delivery, records: RecordColumns, failed: FailedRecords) -> None:
        """Take records back whose batch was refused, in the order of their positions.

        If it is not known because of which record, its halves are sent one after the other.
        """
        count = len(records)
        positions = np.array(failed.positions, dtype=np.int64)
        partitioned = PartitionedRecords(
            records, np.array([failed.partition], dtype=np.int32), np.array([0, count]), positions
        )
        middle = count // 2 if failed.code in BATCH_ERRORS else 0
        queue = self._queue(delivery.topic)
        for part in np.split(np.arange(count), [middle]):
            if len(part):
                sending = _part(delivery, partitioned.take(part))
                insort(queue.again, sending, key=_order)
        self._muted.add(delivery.topic)

    def on_metadata_change(self, topic: str) -> None:
        """Update whether the topic's waiting records are sendable."""
        if topic in self._queues and self._topics.partitions(topic) is not None:
            self._sendable[topic] = None
        else:
            self._sendable.pop(topic, None)

    def forget(self, topics: Iterable[str]) -> None:
        """Forget evicted topics, which have no records here."""
        self._partitioner.forget(topics)
        self._muted.difference_update(topics)

    def drain(self) -> list[FailedRecords]:
        """Pass records whose metadata has arrived to the client, as far as there is room."""
        failures: list[FailedRecords] = []
        for topic in list(self._sendable):
            partitions = self._topics.partitions(topic)
            if partitions is None:
                continue
            queue = self._queues[topic]
            while queue and self._may_send(topic, queue):
                sending = queue.first
                is_whole = self._splits(topic) and sending.messages is None
                if is_whole:
                    some = self._split_first(queue, partitions)
                else:
                    some = self._enqueue(sending, partitions)
                if some is None:
                    break
                failures += some
                if is_whole:
                    continue
                if not sending.is_enqueued:
                    return failures
                queue.remove_first()
            if not queue:
                del self._queues[topic], self._sendable[topic]
        return failures

    def refuse(self, topic: str, code: int) -> list[FailedRecords]:
        """Drop all records of a topic that cannot be written to."""
        queue = self._queues.pop(topic, _TopicQueue())
        self._sendable.pop(topic, None)
        return [
            FailedRecords(
                sending.delivery.delivery_id,
                UNASSIGNED,
                code,
                False,
                len(sending.left),
                tuple(sending.left.tolist()),
            )
            for sending in queue
        ]

    def fail_all(self) -> list[FailedRecords]:
        """Drop all records that wait here."""
        failures = [
            FailedRecords(
                sending.delivery.delivery_id,
                UNASSIGNED,
                ErrorCode.PURGE_QUEUE,
                False,
                len(sending.left),
            )
            for queue in self._queues.values()
            for sending in queue
        ]
        self._queues.clear()
        self._sendable.clear()
        return failures

    # --- one topic's queue -----------------------------------------------------------------------

    def _queue(self, topic: str) -> _TopicQueue:
        queue = self._queues.setdefault(topic, _TopicQueue())
        if self._topics.partitions(topic) is not None:
            self._sendable[topic] = None
        return queue

    def _splits(self, topic: str) -> bool:
        """Whether the client's batches may be too large for the topic."""
        return self._screen is not None and self._screen.splits(self._topics.limits(topic))

    def _may_send(self, topic: str, queue: _TopicQueue) -> bool:
        if topic not in self._muted and not self._splits(topic):
            return True
        if self._client.has_unreported(topic):
            return False
        if not queue.again:
            self._muted.discard(topic)
        return True

    def _split_first(
        self, queue: _TopicQueue, partitions: TopicPartitions
    ) -> list[FailedRecords] | None:
        """Replace the first send by parts that brokers accept as batches; None: as ``_prepare``."""
        sending = queue.sends[0]
        failures = self._prepare(sending, partitions)
        if failures is None:
            return None
        queue.sends.popleft()
        if sending.messages is not None:
            limit = self._topics.limits(sending.delivery.topic).max_batch_bytes
            parts = split_to_fit(sending.messages.partitioned, limit)
            queue.sends.extendleft(_part(sending.delivery, part) for part in reversed(parts))
        return failures

    def _enqueue(self, sending: Sending, partitions: TopicPartitions) -> list[FailedRecords] | None:
        """Pass records to the client, as far as there is room; None: as ``_prepare``."""
        failures: list[FailedRecords] | None = []
        if sending.messages is None:
            failures = self._prepare(sending, partitions)
        if failures is None or sending.messages is None:
            return failures
        rejected: defaultdict[int, list[int]] = defaultdict(list)
        for position, code in self._client.enqueue(sending.messages):
            rejected[code].append(position)
        delivery_id = sending.delivery.delivery_id
        return failures + [
            FailedRecords(delivery_id, UNASSIGNED, code, False, len(some), tuple(some))
            for code, some in rejected.items()
        ]

    def _prepare(self, sending: Sending, partitions: TopicPartitions) -> list[FailedRecords] | None:
        """Partition the records, without those that would be refused; returns these.

        None: they wait, because the topic's limits would refuse some of them, but may have changed.
        """
        topic, delivery_id = sending.delivery.topic, sending.delivery.delivery_id
        partitioned = self._partitioner.partition(sending.records, partitions)
        failures: Sequence[FailedRecords] = []
        if self._screen is not None:
            limits = self._topics.limits(topic)
            failures, good = self._screen.apply(partitioned, limits, delivery_id)
            is_by_topic = any(failed.partition != UNASSIGNED for failed in failures)
            if is_by_topic and not self._topics.are_limits_recent(topic):
                self._topics.renew_limits(topic)
                return None
            if failures:
                partitioned = partitioned.take(good)
                sending.screened = len(sending.records) - len(good)
        if len(partitioned.records):
            sending.messages = MessageBatch(partitioned, delivery_id)
        return list(failures)


def _part(delivery: Delivery, partitioned: PartitionedRecords) -> Sending:
    messages = MessageBatch(partitioned, delivery.delivery_id)
    return Sending(delivery, partitioned.records, messages)


def _order(sending: Sending) -> tuple[int, int]:
    """The order of sends, and of the records of one send within a partition."""
    return sending.delivery.delivery_id, int(sending.left[0])
