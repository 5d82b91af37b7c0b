"""Batches that the brokers reject because of their size, or of some of their records.

A broker rejects a whole batch because of one bad record, may not say which one, and may accept the
batches behind it. The good records have to be sent again before any later ones. So at most one
batch per partition is with the client where a rejection is likely (Java: muted partitions,
``RecordAccumulator.splitAndReenqueue``).

======== ======================================== ==================================================
state    while                                    what is passed to the client
======== ======================================== ==================================================
OPEN     none of the others                       every request at once, in the order of the sends
UNPROVEN the topic's limits are not known, and    once nothing of the topic is unreported: one batch
         its brokers have not accepted a batch    per partition, up to 16 times as large as was
         of half the client's ``batch.size``      accepted before; and later ones, up to twice that
SMALL    the topic's largest batch is smaller     once nothing of the topic is unreported: one batch
         than the client's ``batch.size``         per partition
MUTED    from the first retry until all retries   once nothing of the topic is unreported: the next
         are reported; wins over the others       retry of each partition; sends wait
======== ======================================== ==================================================

What happens to rejected records, and in which order:

========================= ==========================================================================
rejected                  outcome
========================= ==========================================================================
by the pre-check          they have failed; the good records of the send go on
by the pre-check, but its all records of the send wait for newer limits, and with them all later
limits are not recent     sends of the topic
alone, for its content    it has failed
in a batch, and the       retries: the two halves of the batch, or smaller parts if the topic's
brokers do not say why    largest batch is known, one after the other, until a bad record is alone
because of others         a retry: they keep their order
by the client, because    a retry, once an answer says that the topic is there
an answer lacks the topic
========================= ==========================================================================

Retries are passed on in the order of their sends, and of their first positions within a send. A
record that has failed becomes a dead letter, or fails its task if there is no topic for them.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
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
from spark_kafka_sink.producer.topic_limits import NO_LIMITS
from spark_kafka_sink.producer.topic_metadata import TopicMetadata
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import UNASSIGNED, PartitionedRecords
from spark_kafka_sink.records.record_size import (
    largest_partition_bytes,
    least_partition_bytes,
    partition_bytes,
    split_to_fit,
)

# Even topics with a small limit accept batches of this size.
_LIKELY_BYTES = 15_000
# Passing more small records to the client may take longer than linger.ms, which divides a batch.
_GROWTH = 16


class BatchState(Enum):
    """How the requests of a topic are passed to the client."""

    OPEN = auto()
    UNPROVEN = auto()
    SMALL = auto()
    MUTED = auto()


@dataclass
class Round:
    """What may be passed on for a topic now: as many bytes for one partition, or some retries."""

    room: int
    is_for_retries: bool
    #: that have got a retry
    partitions: set[int] = field(default_factory=set)

    def takes(self, request: SendRequest) -> bool:
        """Whether the topic's next request is part of the round."""
        if request.messages is None or request.messages.enqueued:
            return True  # all of it was rejected, or some of it is with the client
        if not self.is_for_retries:
            self.room -= request.batch_bytes
            return self.room >= 0
        partition = int(request.messages.partitioned.partitions[0])
        is_alone = not self.partitions & {partition, UNASSIGNED}
        is_alone &= not self.partitions or partition != UNASSIGNED
        self.partitions.add(partition)
        return is_alone


@dataclass
class _Proof:
    """What is known about the batches that a topic's brokers accept.

    ``accepted_bytes``: the most bytes for one partition that they have accepted at once;
    ``passed_bytes``: at most the bytes for one partition passed on since nothing was unreported;
    ``next_bytes``: by partition, those among them that are more than was accepted at once.
    """

    accepted_bytes: int = _LIKELY_BYTES
    passed_bytes: int = 0
    next_bytes: Counter[int] = field(default_factory=Counter)


class BadBatches:
    """The states of all topics; used by one thread at a time, and sends nothing."""

    def __init__(
        self, options: ProducerOptions, client: ProducerClient, topics: TopicMetadata
    ) -> None:
        self._is_transactional = "transactional.id" in options.client
        self._client_batch_bytes = options.client.max_batch_bytes
        self._precheck = PreCheck(options)
        self._client = client
        self._topics = topics
        self._muted: set[str] = set()
        self._proofs: defaultdict[str, _Proof] = defaultdict(_Proof)

    def state(self, topic: str) -> BatchState:
        if topic in self._muted:
            return BatchState.MUTED
        if self._topics.max_batch_bytes(topic) < self._client_batch_bytes:
            return BatchState.SMALL
        if 2 * self._proofs[topic].accepted_bytes >= self._client_batch_bytes:
            return BatchState.OPEN
        if self._topics.are_limits_known(topic) or self._is_transactional:
            return BatchState.OPEN
        return BatchState.UNPROVEN

    def has_room(self, request: SendRequest) -> bool:
        """Whether the request, whose records have partitions, may be passed on as a whole."""
        topic, messages = request.delivery.topic, request.messages
        if messages is None or messages.enqueued:
            return True  # all were rejected, or some are with the client
        room = self._room(topic)
        if room == sys.maxsize:
            return True
        request.batch_bytes = largest_partition_bytes(messages.partitioned, room)
        return request.batch_bytes <= room

    def begin_round(self, topic: str, *, has_retries: bool) -> Round:
        """What may be passed on for the topic now; unmutes it after the last retry."""
        if not has_retries and not self._client.has_unreported(topic):
            self._muted.discard(topic)
        return Round(self._room(topic), has_retries)

    def _room(self, topic: str) -> int:
        """How many bytes may be passed on for one partition."""
        state = self.state(topic)
        if state is BatchState.OPEN:
            return sys.maxsize
        proof = self._proofs[topic]
        if self._client.has_unreported(topic):
            if state is not BatchState.UNPROVEN:
                return 0
            # They leave as two batches that would be accepted, or as one with nothing behind it.
            return 2 * proof.accepted_bytes - proof.passed_bytes
        del proof.next_bytes[UNASSIGNED]  # of any partition
        accepted = max(proof.accepted_bytes, *proof.next_bytes.values(), 0)
        self._proofs[topic] = _Proof(accepted)
        return self._max_batch_bytes(topic)

    def note_passed(self, request: SendRequest) -> None:
        """The client has accepted the whole request."""
        topic, messages = request.delivery.topic, request.messages
        if messages is None or not request.batch_bytes:
            return  # OPEN
        if self.state(topic) is not BatchState.UNPROVEN:
            return
        proof = self._proofs[topic]
        proof.passed_bytes += request.batch_bytes
        if proof.passed_bytes > proof.accepted_bytes:
            sizes = least_partition_bytes(messages.partitioned).tolist()
            partitions = messages.partitioned.partitions.tolist()
            proof.next_bytes.update(dict(zip(partitions, sizes, strict=True)))

    def check(
        self, partitioned: PartitionedRecords, delivery_id: int
    ) -> tuple[list[FailedRecords], PartitionedRecords] | None:
        """The records that would be rejected, and the others; None: wait for newer limits."""
        topic = partitioned.records.topic
        # Of a delegated topic, whose brokers cannot confirm its limits, only the client's counts.
        is_delegated = bool((partitioned.partitions == UNASSIGNED).any())
        limits = NO_LIMITS if is_delegated else self._topics.limits(topic)
        failures, good = self._precheck.apply(partitioned, limits, delivery_id)
        is_by_topic = any(failed.partition != UNASSIGNED for failed in failures)
        if is_by_topic and not self._topics.are_limits_recent(topic):
            self._topics.renew_limits(topic)
            return None
        return failures, partitioned.take(good) if failures else partitioned

    def split(self, request: SendRequest) -> list[SendRequest]:
        """The request itself, or unless its topic is OPEN, parts with one batch per partition."""
        topic, messages = request.delivery.topic, request.messages
        if messages is None or messages.enqueued or self.state(topic) is BatchState.OPEN:
            return [request]
        limit = self._max_batch_bytes(topic)
        if 0 < request.batch_bytes <= limit:
            return [request]  # a part already
        parts = split_to_fit(messages.partitioned, limit)
        if len(parts) == 1:
            request.batch_bytes = parts[0][1]
            return [request]
        return [_request(request.delivery, part, size) for part, size in parts]

    def _max_batch_bytes(self, topic: str) -> int:
        known = min(self._client_batch_bytes, self._topics.max_batch_bytes(topic))
        if self.state(topic) is not BatchState.UNPROVEN:
            return known
        return min(known, _GROWTH * self._proofs[topic].accepted_bytes)

    def may_contain_good(self, failed: FailedRecords) -> bool:
        """Whether brokers may accept some of the rejected records, if they are sent again."""
        if self._is_transactional:
            return False  # the transaction has failed
        if failed.code in BATCH_ERRORS:
            return failed.count > 1
        return failed.code == ErrorCode.INVALID_DIFFERENT_RECORD

    def retries(
        self, delivery: Delivery, records: RecordColumns, failed: FailedRecords
    ) -> list[SendRequest]:
        """Requests for records that were rejected, in their order; mutes their topic."""
        count, topic = len(records), delivery.topic
        positions = np.array(failed.positions, dtype=np.int64)
        # A topic that is created again may have fewer partitions.
        partition = UNASSIGNED if failed.code in MISSING_ERRORS else failed.partition
        partitioned = PartitionedRecords(
            records, np.array([partition], dtype=np.int32), np.array([0, count]), positions
        )
        self._muted.add(topic)
        self._proofs.pop(topic, None)
        middle = count // 2 if failed.code in BATCH_ERRORS else 0
        halves = [
            partitioned.take(half) for half in np.split(np.arange(count), [middle]) if len(half)
        ]
        if failed.code == ErrorCode.MSG_SIZE_TOO_LARGE:
            half_bytes = max(int(partition_bytes(half)[0]) for half in halves)
            self._topics.renew_limits(topic, min(half_bytes, self._client_batch_bytes // 2))
        elif failed.code not in MISSING_ERRORS:
            self._topics.renew_limits(topic)
        return [_request(delivery, half) for half in halves]

    def forget(self, topics: Iterable[str]) -> None:
        """Forget evicted topics; they have no records left."""
        for topic in topics:
            self._muted.discard(topic)
            self._proofs.pop(topic, None)


def _request(
    delivery: Delivery, partitioned: PartitionedRecords, batch_bytes: int = 0
) -> SendRequest:
    messages = MessageBatch(partitioned, delivery.delivery_id)
    return SendRequest(delivery, partitioned.records, messages, batch_bytes=batch_bytes)
