"""Passes records to the client at once, or when their topic has metadata."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import ReportedRecords
from spark_kafka_sink.librdkafka.messages import MessageBatch
from spark_kafka_sink.producer.deliveries import Delivery
from spark_kafka_sink.producer.topic_metadata import TopicMetadata
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import UNASSIGNED, Partitioner, TopicPartitions


@dataclass
class Sending:
    """The records of one send on their way to the client."""

    delivery: Delivery
    records: RecordColumns
    #: the client's form of the records, once the partitions are known
    messages: MessageBatch | None = None

    @property
    def is_accepted(self) -> bool:
        return self.delivery.accepted == len(self.records)

    @property
    def enqueued(self) -> int:
        """How many of the records the client has accepted."""
        return 0 if self.messages is None else self.messages.enqueued

    @property
    def is_enqueued(self) -> bool:
        return self.enqueued == len(self.records)


class SendBuffer:
    """Keeps a topic's sends in order, and holds the records of topics without metadata.

    The client would accept those too, but would then request metadata topic by topic. No method
    waits. The reports that they return are on records that were rejected.
    """

    def __init__(self, client: Client, topics: TopicMetadata) -> None:
        self._client = client
        self._topics = topics
        self._partitioner = Partitioner()
        self._awaiting_metadata: dict[str, deque[Sending]] = {}
        self._sendable: dict[str, None] = {}  # topics whose records' metadata has arrived

    @property
    def is_awaiting_metadata(self) -> bool:
        return bool(self._awaiting_metadata)

    def put(self, sending: Sending) -> list[ReportedRecords]:
        """Take what fits, the first records of each partition, and count them as accepted."""
        topic = sending.delivery.topic
        partitions = self._topics.partitions(topic)
        if partitions is None or topic in self._awaiting_metadata:
            self._awaiting_metadata.setdefault(topic, deque()).append(sending)
            sending.delivery.accepted = len(sending.records)
            return []
        reports = self._enqueue(sending, partitions)
        sending.delivery.accepted = sending.enqueued
        return reports

    def on_metadata_change(self, topic: str) -> None:
        """Update whether the topic's waiting records are sendable."""
        if topic in self._awaiting_metadata and self._topics.partitions(topic) is not None:
            self._sendable[topic] = None
        else:
            self._sendable.pop(topic, None)

    def forget(self, topics: Iterable[str]) -> None:
        """Forget evicted topics, which have no records here."""
        self._partitioner.forget(topics)

    def drain(self) -> list[ReportedRecords]:
        """Pass records whose metadata has arrived to the client, as far as there is room."""
        reports: list[ReportedRecords] = []
        for topic in list(self._sendable):
            partitions = self._topics.partitions(topic)
            if partitions is None:
                continue
            for sending in list(self._awaiting_metadata[topic]):
                reports += self._enqueue(sending, partitions)
                if not sending.is_enqueued:
                    return reports
                self._pop(topic)
        return reports

    def fail_all(self) -> list[ReportedRecords]:
        """Drop all records that await metadata."""
        return [
            ReportedRecords(
                sending.delivery.delivery_id,
                UNASSIGNED,
                ErrorCode.PURGE_QUEUE,
                False,
                len(sending.records) - sending.enqueued,
            )
            for sending in self._drop_all()
        ]

    def _drop_all(self) -> Iterator[Sending]:
        for topic in list(self._awaiting_metadata):
            for sending in list(self._awaiting_metadata[topic]):
                yield sending
                self._pop(topic)

    def _pop(self, topic: str) -> None:
        """Remove the topic's first sending."""
        sendings = self._awaiting_metadata[topic]
        sendings.popleft()
        if not sendings:
            del self._awaiting_metadata[topic]
            self._sendable.pop(topic, None)

    def _enqueue(self, sending: Sending, partitions: TopicPartitions) -> list[ReportedRecords]:
        delivery_id = sending.delivery.delivery_id
        if sending.messages is None:
            partitioned = self._partitioner.partition(sending.records, partitions)
            sending.messages = MessageBatch(partitioned, delivery_id)
        rejected = self._client.enqueue(sending.messages)
        return [ReportedRecords(delivery_id, UNASSIGNED, code, False, 1) for code in rejected]
