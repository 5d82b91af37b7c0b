"""Rows on their way into the client: at once, or held while their topic has no metadata."""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from spark_kafka_sink.config.producer_options import BYTES_PER_RECORD
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.events import ReportedRecords
from spark_kafka_sink.librdkafka.messages import MessageArray, ProducevaArguments
from spark_kafka_sink.producer.delivery import Delivery
from spark_kafka_sink.producer.open_deliveries import PURGED_UNSENT
from spark_kafka_sink.producer.topic_metadata import TopicMetadata
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import (
    UNASSIGNED,
    PartitionedRecords,
    group_by_partition,
    unpartitioned,
)


@dataclass
class Sending:
    """The rows of one send: ``first`` of them are the client's."""

    delivery: Delivery
    records: RecordColumns
    first: int = 0
    prepared: MessageArray | ProducevaArguments | None = None

    @property
    def is_over(self) -> bool:
        return self.first == len(self.records)


class SendBuffer:
    """Gives rows to the client, each topic's in the order of the sends.

    Those of a topic without metadata are held, by topic: the client would take them too, but then
    asks for the topics one by one. ``limit_bytes`` bounds the memory that all rows keep alive until
    they are reported: every Arrow batch with such a row, whole, and ``BYTES_PER_RECORD``. ``note``
    is told of rejected rows.
    """

    def __init__(
        self,
        client: Client,
        topics: TopicMetadata,
        limit_bytes: int,
        note: Callable[[ReportedRecords], None],
    ) -> None:
        self._client = client
        self._topics = topics
        self._limit_bytes = limit_bytes
        self._note = note
        self._held: dict[str, deque[Sending]] = {}
        #: delivery id -> its rows, and their batch and its bytes
        self._kept: dict[int, tuple[int, object, int]] = {}
        #: id of a batch -> the deliveries with rows in it
        self._batches: Counter[int] = Counter()
        self._kept_bytes = 0
        self._turns: dict[str, int] = {}
        self._ready: dict[str, None] = {}  # topics with metadata whose held rows may leave

    @property
    def is_holding(self) -> bool:
        return bool(self._held)

    def put(self, sending: Sending) -> None:
        """Take what there is room for, and count it in ``delivery.rows``. Never waits."""
        delivery = sending.delivery
        if delivery.delivery_id not in self._kept:
            if not self._has_room(sending.records):
                return
            self._keep(delivery.delivery_id, sending.records)
        if delivery.topic in self._held or not self._topics.may_leave(delivery.topic):
            self._held.setdefault(delivery.topic, deque()).append(sending)
            delivery.rows = len(sending.records)
        else:
            self._enqueue(sending)
            delivery.rows = sending.first

    def settled(self, delivery: Delivery) -> None:
        """All its rows are reported: nothing is kept for it any more."""
        if delivery.delivery_id not in self._kept:
            return
        rows, batch, batch_bytes = self._kept.pop(delivery.delivery_id)
        self._kept_bytes -= rows * BYTES_PER_RECORD
        self._batches[id(batch)] -= 1
        if not self._batches[id(batch)]:
            del self._batches[id(batch)]
            self._kept_bytes -= batch_bytes

    def look_again(self, topic: str) -> None:
        """Something is new about a topic: its rows may leave, or have to wait again."""
        if self._topics.may_leave(topic):
            self._ready[topic] = None
        else:
            self._ready.pop(topic, None)

    def release(self) -> None:
        """Give the client the held rows that may leave, as far as they fit."""
        for topic in list(self._ready):
            for sending in list(self._held.get(topic, ())):
                self._enqueue(sending)
                if not sending.is_over:
                    return
                self._let_go(topic)
            del self._ready[topic]

    def give_up(self) -> None:
        """Fail all that is held."""
        for topic in list(self._held):
            for sending in list(self._held[topic]):
                self._let_go(topic)
                left = len(sending.records) - sending.first
                delivery_id = sending.delivery.delivery_id
                self._note(ReportedRecords(delivery_id, UNASSIGNED, PURGED_UNSENT, False, left))

    def _enqueue(self, sending: Sending) -> None:
        delivery_id = sending.delivery.delivery_id
        if sending.prepared is None:
            sending.prepared = self._client.prepare(self._place(sending.records), delivery_id)
        enqueued = self._client.enqueue(sending.prepared, sending.first)
        sending.first += enqueued.count
        for code in enqueued.rejected:
            self._note(ReportedRecords(delivery_id, UNASSIGNED, code, False, 1))

    def _place(self, records: RecordColumns) -> PartitionedRecords:
        count = self._topics.partition_count(records.topic)
        if not count:
            return unpartitioned(records)
        # Rows without a key: each send's to the next partition, from a random one on.
        turn = self._turns.get(records.topic, random.randrange(count))  # noqa: S311
        self._turns[records.topic] = turn + 1
        led = self._topics.available_partitions(records.topic) or range(count)
        return group_by_partition(records, count, led[turn % len(led)])

    def _has_room(self, records: RecordColumns) -> bool:
        """Whether they may be kept; those of one batch always may, which is there in any case."""
        if not self._batches.keys() - {id(records.batch)}:
            return True
        more = len(records) * BYTES_PER_RECORD
        if id(records.batch) not in self._batches:
            more += records.batch_bytes
        return self._kept_bytes + more <= self._limit_bytes

    def _keep(self, delivery_id: int, records: RecordColumns) -> None:
        self._kept[delivery_id] = len(records), records.batch, records.batch_bytes
        self._kept_bytes += len(records) * BYTES_PER_RECORD
        if id(records.batch) not in self._batches:
            self._kept_bytes += records.batch_bytes
        self._batches[id(records.batch)] += 1

    def _let_go(self, topic: str) -> None:
        queue = self._held[topic]
        queue.popleft()
        if not queue:
            del self._held[topic]
