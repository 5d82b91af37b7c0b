"""Batches that the brokers reject because of some of their records; only with dead letters.

A broker rejects a whole batch because of one bad record, may not say which one, and may accept the
batches behind it. The good records have to be sent again before any later ones. So at most one
request of a topic is with the client where a rejection is likely, each with one batch per partition
(Java: muted partitions, ``RecordAccumulator.splitAndReenqueue``).

======== ======================================== ==================================================
state    while                                    what is passed to the client
======== ======================================== ==================================================
OPEN     neither of the others                    every request at once, in the order of the sends
SMALL    the topic's largest batch is smaller     once nothing of the topic is unreported: the next
         than the client's ``batch.size``         part of a send, one batch per partition
MUTED    from the first retry until all retries   once nothing of the topic is unreported: the next
         are reported; wins over SMALL            retry; sends wait
======== ======================================== ==================================================

What happens to rejected records, and in which order:

========================= ==========================================================================
rejected                  outcome
========================= ==========================================================================
by the pre-check          dead letters; the good records of the send go on
by the pre-check, but its all records of the send wait for newer limits, and with them all later
limits are not recent     sends of the topic
alone, for its content    a dead letter
in a batch, and the       retries: the two halves of the batch, one after the other, until a bad
brokers do not say why    record is alone
because of others         a retry: they keep their order
by the client, because    a retry, once an answer says that the topic is there
an answer lacks the topic
========================= ==========================================================================

Retries are passed on in the order of their sends, and of their first positions within a send.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto

import numpy as np

from spark_kafka_sink.config.producer_options import ProducerOptions
from spark_kafka_sink.librdkafka.error_codes import BATCH_ERRORS, MISSING_ERRORS, ErrorCode
from spark_kafka_sink.librdkafka.events import FailedRecords
from spark_kafka_sink.librdkafka.messages import MessageBatch
from spark_kafka_sink.librdkafka.protocol import ProducerClient
from spark_kafka_sink.producer.deliveries import Delivery
from spark_kafka_sink.producer.precheck import PreCheck
from spark_kafka_sink.producer.send_request import SendRequest
from spark_kafka_sink.producer.topic_limits import TopicLimits
from spark_kafka_sink.producer.topic_metadata import TopicMetadata
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import UNASSIGNED, PartitionedRecords
from spark_kafka_sink.records.record_size import split_to_fit


class BatchState(Enum):
    """How the requests of a topic are passed to the client."""

    OPEN = auto()
    SMALL = auto()
    MUTED = auto()


class BadBatches:
    """The states of all topics; used by one thread at a time, and sends nothing."""

    def __init__(
        self, options: ProducerOptions, client: ProducerClient, topics: TopicMetadata
    ) -> None:
        self._client_batch_bytes = options.client.max_batch_bytes
        self._precheck = PreCheck(options)
        self._client = client
        self._topics = topics
        self._muted: set[str] = set()

    def state(self, topic: str) -> BatchState:
        if topic in self._muted:
            return BatchState.MUTED
        is_small = self._topics.limits(topic).max_batch_bytes < self._client_batch_bytes
        return BatchState.SMALL if is_small else BatchState.OPEN

    def is_open(self, topic: str) -> bool:
        """Whether the topic's requests are passed to the client at once."""
        return self.state(topic) is BatchState.OPEN

    def may_send(self, topic: str, *, has_retries: bool) -> bool:
        """Whether the topic's next request may be passed on; unmutes it after the last retry."""
        if self.is_open(topic):
            return True
        if self._client.has_unreported(topic):
            return False
        if not has_retries:
            self._muted.discard(topic)
        return True

    def check(
        self, partitioned: PartitionedRecords, delivery_id: int
    ) -> tuple[list[FailedRecords], PartitionedRecords] | None:
        """The records that would be rejected, and the others; None: wait for newer limits."""
        topic = partitioned.records.topic
        # Of a delegated topic, whose brokers cannot confirm its limits, only the client's counts.
        is_delegated = bool((partitioned.partitions == UNASSIGNED).any())
        limits = TopicLimits() if is_delegated else self._topics.limits(topic)
        failures, good = self._precheck.apply(partitioned, limits, delivery_id)
        is_by_topic = any(failed.partition != UNASSIGNED for failed in failures)
        if is_by_topic and not self._topics.are_limits_recent(topic):
            self._topics.renew_limits(topic)
            return None
        return failures, partitioned.take(good) if failures else partitioned

    def split(self, request: SendRequest) -> list[SendRequest]:
        """The request itself, or for a SMALL topic, parts of it that fit into one batch each."""
        topic = request.delivery.topic
        if request.messages is None or self.state(topic) is not BatchState.SMALL:
            return [request]
        limit = self._topics.limits(topic).max_batch_bytes
        parts = split_to_fit(request.messages.partitioned, limit)
        return [_request(request.delivery, part) for part in parts]

    @staticmethod
    def may_contain_good(failed: FailedRecords) -> bool:
        """Whether brokers may have rejected some of the records only because of others."""
        if failed.code in BATCH_ERRORS:
            return failed.count > 1
        return failed.code == ErrorCode.INVALID_DIFFERENT_RECORD

    def retries(
        self, delivery: Delivery, records: RecordColumns, failed: FailedRecords
    ) -> list[SendRequest]:
        """Requests for records that were rejected, in their order; mutes their topic."""
        count = len(records)
        positions = np.array(failed.positions, dtype=np.int64)
        # A topic that is created again may have fewer partitions.
        partition = UNASSIGNED if failed.code in MISSING_ERRORS else failed.partition
        partitioned = PartitionedRecords(
            records, np.array([partition], dtype=np.int32), np.array([0, count]), positions
        )
        middle = count // 2 if failed.code in BATCH_ERRORS else 0
        halves = np.split(np.arange(count), [middle])
        self._muted.add(delivery.topic)
        return [_request(delivery, partitioned.take(half)) for half in halves if len(half)]

    def forget(self, topics: Iterable[str]) -> None:
        """Forget evicted topics; they have no records left."""
        self._muted.difference_update(topics)


def _request(delivery: Delivery, partitioned: PartitionedRecords) -> SendRequest:
    messages = MessageBatch(partitioned, delivery.delivery_id)
    return SendRequest(delivery, partitioned.records, messages)
