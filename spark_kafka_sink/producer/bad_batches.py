"""[task] Batches that the brokers reject because of their size, or of some of their records.

A broker rejects a whole batch because of one bad record, may not say which one, and may accept the
batches behind it. The good records have to be sent again before any later ones. So at most one
batch per partition is with the client where a rejection is likely (Java: muted partitions,
``RecordAccumulator.splitAndReenqueue``).

======== ======================================== ==================================================
state    while                                    what is passed to the client
======== ======================================== ==================================================
OPEN     none of the others                       every request at once, in the order of the sends
UNPROVEN the topic's limits are not known, and    for each partition as much as was accepted at once
         its brokers have not accepted a batch    before, and one larger batch; nothing more until
         of half the client's largest             all are reported
SMALL    the topic's largest batch is smaller     once nothing of the topic is unreported: one batch
         than the client's                        per partition
MUTED    from the first retry until all retries   once nothing of the topic is unreported: the next
         are reported; wins over the others       retry of each partition; sends wait
======== ======================================== ==================================================

The first batch that is larger than was accepted before requests the topic's limits. Until they are
known, the client must not divide such a batch: brokers would reject its beginning, and accept the
smaller end.

What happens to rejected records, and in which order:

========================= ==========================================================================
rejected                  outcome
========================= ==========================================================================
by the pre-check          they have failed; the good records of the send go on
by the pre-check, but its all records of the send wait for newer limits, and with them all later
limits are not recent     sends of the topic
as a retry of its own,    it has failed
for its content
in a batch, and the       retries: the two halves of a send's records, or smaller parts if the
brokers do not say why    topic's largest batch is known, one after the other, until a bad record
                          is alone
because of others         a retry: they keep their order
by the client, because    a retry, once an answer says that the topic is there
an answer lacks the topic
========================= ==========================================================================

A topic that is delegated has no partition that could be held, so while it is not OPEN, it gets
batches only as large as were accepted before. What then waits here is partitioned and checked again
once its metadata has arrived.

Retries are passed on in the order of their sends, and of their first positions within a send. A
record that has failed becomes a dead letter, or fails its task if there is no topic for them.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto

import numpy as np

from spark_kafka_sink.config.producer_options import ProducerOptions
from spark_kafka_sink.librdkafka.error_codes import BATCH_ERRORS, MISSING_ERRORS, ErrorCode
from spark_kafka_sink.librdkafka.events import FailedRecords
from spark_kafka_sink.librdkafka.messages import MessageBatch
from spark_kafka_sink.librdkafka.protocol import ProducerClient
from spark_kafka_sink.producer.deliveries import Delivery, SendRequest
from spark_kafka_sink.producer.topic_limits import NO_LIMITS, PreCheck
from spark_kafka_sink.producer.topic_metadata import TopicMetadata
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import (
    UNASSIGNED,
    UNKNOWN_PARTITIONS,
    PartitionedRecords,
)
from spark_kafka_sink.records.record_size import (
    largest_partition_bytes,
    least_partition_bytes,
    partition_bytes,
    split_to_fit,
)

# Even topics with a small limit accept batches of this size.
_LIKELY_BYTES = 15_000


class BatchState(Enum):
    """How the requests of a topic are passed to the client."""

    OPEN = auto()
    UNPROVEN = auto()
    SMALL = auto()
    MUTED = auto()


@dataclass
class Round:
    """What may be passed on for a topic now: as many bytes for one partition, or some retries.

    ``divisible``: how many of these bytes will be accepted even if the client divides them.
    ``hold`` keeps it from sending until the round ends, so that it does not divide the others.
    """

    room: int
    divisible: int
    is_for_retries: bool
    hold: Callable[[], None]
    is_held: bool = False
    #: that have got a retry
    partitions: set[int] = field(default_factory=set)

    @property
    def is_open(self) -> bool:
        """Whether any number of bytes may be passed on."""
        return self.room == sys.maxsize

    def takes(self, request: SendRequest) -> bool:
        """Whether the topic's next request is part of the round; it has to be passed on at once."""
        messages = request.messages
        if messages is None:
            return True  # all of it was rejected
        if not self.is_open and not request.batch_bytes:
            request.batch_bytes = largest_partition_bytes(messages.partitioned, self.divisible)
        if self.is_for_retries:
            if not self._is_first(int(messages.partitioned.partitions[0])):
                return False
        else:
            self.room -= request.batch_bytes
            if self.room < 0:
                return False
        self.divisible -= request.batch_bytes
        if self.divisible < 0 and not self.is_held:
            self.is_held = True
            self.hold()
        return True

    def _is_first(self, partition: int) -> bool:
        is_first = not self.partitions & {partition, UNASSIGNED}
        is_first &= not self.partitions or partition != UNASSIGNED
        self.partitions.add(partition)
        return is_first


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


@dataclass(frozen=True)
class Checked:
    """Which records of a request the brokers would reject.

    ``awaits_limits``: perhaps some, so all of the request waits for newer limits of the topic.
    """

    rejected: Sequence[FailedRecords] = ()
    awaits_limits: bool = False


class BadBatches:
    """The states of all topics; used by one thread at a time, and sends nothing."""

    def __init__(
        self, options: ProducerOptions, client: ProducerClient, topics: TopicMetadata
    ) -> None:
        self._is_transactional = options.is_transactional
        self._needs_limits = options.needs_limits
        self._client_batch_bytes = options.client.max_batch_bytes
        self._precheck = PreCheck(options)
        self._client = client
        self._topics = topics
        self._muted: set[str] = set()
        #: by muted topic: delivery and position of the records that are alone in their batch
        self._alone: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
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

    @contextmanager
    def round(self, topic: str, partitions: int, *, has_retries: bool = False) -> Iterator[Round]:
        """What may be passed on for the topic now; unmutes it after the last retry."""
        if topic in self._muted and not has_retries and not self._client.has_unreported(topic):
            self._unmute(topic)
        if self.state(topic) is BatchState.OPEN:
            yield Round(sys.maxsize, sys.maxsize, has_retries, _hold_nothing)
            return
        with ExitStack() as held:

            def hold() -> None:
                self._topics.request_limits(topic)
                held.enter_context(self._client.undivided(topic, range(partitions)))

            yield Round(*self._room(topic), has_retries, hold)

    def _room(self, topic: str) -> tuple[int, int]:
        """How many bytes may be passed on for one partition, and how many of them divided."""
        has_unreported = self._client.has_unreported(topic)
        state = self.state(topic)
        if not has_unreported and state is BatchState.UNPROVEN:
            self._note_accepted(topic)
            state = self.state(topic)
        if state is BatchState.OPEN:
            return sys.maxsize, sys.maxsize
        most = self._max_batch_bytes(topic)
        if state is BatchState.UNPROVEN:
            proof = self._proofs[topic]
            divisible = proof.accepted_bytes - proof.passed_bytes
            return (most - proof.passed_bytes if divisible >= 0 else 0), divisible
        if has_unreported:
            return 0, 0
        return most, most if self._topics.are_limits_known(topic) else _LIKELY_BYTES

    def _note_accepted(self, topic: str) -> None:
        """The brokers have accepted all that was passed on."""
        proof = self._proofs[topic]
        del proof.next_bytes[UNASSIGNED]  # of any partition
        self._proofs[topic] = _Proof(max(proof.accepted_bytes, *proof.next_bytes.values(), 0))

    def _unmute(self, topic: str) -> None:
        self._muted.discard(topic)
        self._alone.pop(topic, None)

    def rest(self, request: SendRequest) -> SendRequest:
        """What the client has not accepted of the request: another one, which needs a round too."""
        messages = request.messages
        if messages is None or not messages.enqueued or request.is_enqueued:
            return request
        indices = np.arange(messages.enqueued, len(messages))
        return _request(request.delivery, messages.partitioned.take(indices))

    def note_passed(self, request: SendRequest) -> None:
        """The client has accepted the request, or its first records."""
        messages = request.messages
        if messages is None or not messages.enqueued:
            return
        if messages.enqueued < len(messages):
            passed = messages.partitioned.take(np.arange(messages.enqueued))
            request = _request(request.delivery, passed, request.batch_bytes)
        self._note_passed(request)

    def _note_passed(self, request: SendRequest) -> None:
        topic, messages = request.delivery.topic, request.messages
        if topic in self._muted and messages is not None and len(messages) == 1:
            # Retries: one for each partition, while nothing else of the topic is with the client.
            position = int(messages.partitioned.positions[0])
            self._alone[topic].add((request.delivery.delivery_id, position))
        if messages is None or not request.batch_bytes:
            return  # OPEN
        if self.state(topic) is not BatchState.UNPROVEN:
            return
        proof, size = self._proofs[topic], request.batch_bytes
        if len(messages) == 1:  # which may be larger than the limit that its request was divided by
            size = max(size, int(partition_bytes(messages.partitioned)[0]))
        proof.passed_bytes += size
        if proof.passed_bytes > proof.accepted_bytes:
            sizes = least_partition_bytes(messages.partitioned).tolist()
            partitions = messages.partitioned.partitions.tolist()
            proof.next_bytes.update(dict(zip(partitions, sizes, strict=True)))

    def note_failed(self, topic: str) -> None:
        """Some of what was passed on has failed: the sizes of the rest prove nothing."""
        if topic in self._proofs:
            self._proofs[topic].next_bytes.clear()

    def check(self, request: SendRequest, partitioned: PartitionedRecords) -> Checked:
        """Give the request the messages for its records, without those that would be rejected."""
        topic, delivery_id = request.delivery.topic, request.delivery.delivery_id
        rejected: list[FailedRecords] = []
        # Otherwise a rejected record fails its task anyway: the brokers decide.
        if self._needs_limits or self.state(topic) is not BatchState.OPEN:
            # The brokers of a delegated topic cannot confirm its limits: only the client's count.
            is_delegated = bool((partitioned.partitions == UNASSIGNED).any())
            limits = NO_LIMITS if is_delegated else self._topics.limits(topic)
            rejected, good = self._precheck.apply(partitioned, limits, delivery_id)
            is_by_topic = any(failed.partition != UNASSIGNED for failed in rejected)
            if is_by_topic and not self._topics.are_limits_recent(topic):
                self._topics.hold_for_new_limits(topic)
                return Checked(awaits_limits=True)
            if rejected:
                partitioned = partitioned.take(good)
        request.excluded = len(request.records) - len(partitioned.records)
        has_good = len(partitioned.records) > 0
        request.messages = MessageBatch(partitioned, delivery_id) if has_good else None
        request.batch_bytes = 0
        return Checked(rejected)

    def split(self, request: SendRequest) -> list[SendRequest]:
        """The request itself, or unless its topic is OPEN, parts with one batch per partition."""
        topic, messages = request.delivery.topic, request.messages
        if messages is None or self.state(topic) is BatchState.OPEN:
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
        most = min(self._client_batch_bytes, self._topics.max_batch_bytes(topic))
        if self._topics.partitions(topic) == UNKNOWN_PARTITIONS:
            # ``undivided`` needs a partition: so nothing that could be rejected in part.
            most = min(most, self._proofs[topic].accepted_bytes)
        return most

    def may_contain_good(self, topic: str, failed: FailedRecords) -> bool:
        """Whether brokers may accept some of the rejected records, if they are sent again.

        They may even accept the only record of a delivery: the client fills a batch with several
        sends. Only a retry is known to be alone in its batch.
        """
        if self._is_transactional:
            return False  # the transaction has failed
        if failed.code in BATCH_ERRORS:
            record = failed.delivery_id, *failed.positions[:1]
            return failed.count > 1 or record not in self._alone[topic]
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
            self._topics.hold_for_new_limits(topic, min(half_bytes, self._client_batch_bytes // 2))
        elif failed.code not in MISSING_ERRORS:
            self._topics.hold_for_new_limits(topic)
        return [_request(delivery, half) for half in halves]

    def forget(self, topics: Iterable[str]) -> None:
        """Forget evicted topics; they have no records left."""
        for topic in topics:
            self._unmute(topic)
            self._proofs.pop(topic, None)


def _hold_nothing() -> None:
    """The batches of an OPEN topic may be divided."""


def _request(
    delivery: Delivery, partitioned: PartitionedRecords, batch_bytes: int = 0
) -> SendRequest:
    messages = MessageBatch(partitioned, delivery.delivery_id)
    return SendRequest(delivery, partitioned.records, messages, batch_bytes=batch_bytes)
