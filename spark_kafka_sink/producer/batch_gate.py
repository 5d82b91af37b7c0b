"""[task] Batches that the brokers reject because of their size, or of some of their records.

A broker rejects a whole batch because of one bad record, may not say which one, and may accept the
batches behind it. The good records have to be sent again before any later ones. So at most one
batch per partition is with the client where a rejection is likely (Java: muted partitions,
``RecordAccumulator.splitAndReenqueue``).

======== ======================================== ==================================================
state    while                                    what is passed to the client
======== ======================================== ==================================================
OPEN     none of the others                       everything at once, in the order of the sends
PROBING  the topic's limits are not known, and    for each partition as much as was accepted at once
         its brokers have not accepted a batch    before, and one larger batch; nothing more until
         of half the client's largest             all are reported
SMALL    the topic's largest batch is smaller     once nothing of the topic is unreported: one batch
         than the client's                        per partition
MUTED    from the first retry until all retries   once nothing of the topic is unreported: the next
         are reported; wins over the others       retry of each partition; sends wait
======== ======================================== ==================================================

The first batch that is larger than was accepted before requests the topic's limits. Until they are
known, the client must not divide such a batch: brokers would reject its beginning, and accept the
smaller end. Nor may it divide a retry, of any size: one of its records may be bad.

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

import numpy as np

from spark_kafka_sink.config.producer_options import ProducerOptions
from spark_kafka_sink.librdkafka.error_codes import BATCH_ERRORS, MISSING_ERRORS, ErrorCode
from spark_kafka_sink.librdkafka.events import FailedRecords
from spark_kafka_sink.producer.sends import Send
from spark_kafka_sink.producer.topic_limits import NO_LIMITS, PreCheck, TopicLimits
from spark_kafka_sink.producer.topic_metadata import SendableTopic, TopicMetadata
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import (
    UNASSIGNED,
    UNKNOWN_PARTITIONS,
    PartitionedRecords,
    TopicPartitions,
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
    """How the chunks of a topic are passed to the client."""

    OPEN = auto()
    PROBING = auto()
    SMALL = auto()
    MUTED = auto()


@dataclass(frozen=True)
class Chunk:
    """Records of one send in their topic's queue, at first all of them.

    ``partitioned`` has one group without a partition until the topic's partitions are known.
    ``largest_batch_bytes``: the most bytes that it has for one partition; 0: not computed, as the
    topic is OPEN.
    """

    send: Send
    partitioned: PartitionedRecords
    is_checked: bool = False
    largest_batch_bytes: int = 0

    def __len__(self) -> int:
        return len(self.partitioned.records)

    def needs_check(self, partitions: TopicPartitions) -> bool:
        """Whether its records still have to be assigned to these partitions, and checked."""
        return not self.is_checked or (partitions.count > 0 and self.is_unassigned)

    @property
    def is_unassigned(self) -> bool:
        """Whether the client is to choose partitions."""
        return bool((self.partitioned.partitions == UNASSIGNED).any())

    @property
    def order(self) -> tuple[int, int]:
        """Its place among others: by send, and by the first position within a send."""
        return self.send.send_id, int(self.partitioned.positions[0])


@dataclass
class Quota:
    """What may be passed on of a topic now: ``bytes_left`` for any one partition.

    The client may split ``splittable_bytes`` of them into several batches. With more, the topic's
    partitions are paused until all has been passed on, so that each gets one batch.
    ``max_batch_bytes``: a chunk has to be as small.
    """

    state: BatchState
    bytes_left: int = sys.maxsize
    splittable_bytes: int = sys.maxsize
    max_batch_bytes: int = sys.maxsize


@dataclass
class _AcceptedSize:
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
    """Which records of a chunk the brokers would reject, and a chunk of the others, if any.

    ``awaits_limits``: perhaps some, so all of the chunk waits for newer limits of the topic.
    """

    good: Sequence[Chunk] = ()
    rejected: Sequence[FailedRecords] = ()
    awaits_limits: bool = False


class BatchGate:
    """The states of all topics; used by one thread at a time, and sends nothing.

    Its questions change nothing: ``on_`` methods do.
    """

    def __init__(self, options: ProducerOptions, topics: TopicMetadata) -> None:
        self._is_transactional = options.is_transactional
        self._needs_limits = options.needs_limits
        self._client_batch_bytes = options.client.max_batch_bytes
        self._precheck = PreCheck(options)
        self._topics = topics
        self._muted: set[str] = set()
        #: by muted topic: send and position of the records that are alone in their batch
        self._alone: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
        self._accepted: defaultdict[str, _AcceptedSize] = defaultdict(_AcceptedSize)

    # --- how much may be passed on ----------------------------------------------------------------

    def quota(self, topic: str, sendable: SendableTopic, *, has_unreported: bool) -> Quota:
        """What may be passed on of the topic now. ``has_unreported``: the client has some of it."""
        state = self._state(topic, sendable)
        if state is BatchState.OPEN:
            return Quota(state)
        most = min(self._client_batch_bytes, sendable.max_batch_bytes)
        if sendable.partitions == UNKNOWN_PARTITIONS:
            # Only a known partition can be paused: so nothing that could be rejected in part.
            most = min(most, self._accepted[topic].accepted_bytes)
        if state is BatchState.PROBING:
            size = self._accepted[topic]
            splittable = size.accepted_bytes - size.passed_bytes
            left = most - size.passed_bytes if splittable >= 0 else 0
            return Quota(state, left, splittable, most)
        if state is BatchState.MUTED:
            # Each retry has a batch of its own, also a small one: its content may be rejected.
            return Quota(state, 0 if has_unreported else sys.maxsize, 0, most)
        splittable = most if sendable.are_limits_known else _LIKELY_BYTES
        return Quota(state, 0 if has_unreported else most, splittable, most)

    def _state(self, topic: str, sendable: SendableTopic) -> BatchState:
        if topic in self._muted:
            return BatchState.MUTED
        if sendable.max_batch_bytes < self._client_batch_bytes:
            return BatchState.SMALL
        if 2 * self._accepted[topic].accepted_bytes >= self._client_batch_bytes:
            return BatchState.OPEN
        if sendable.are_limits_known or self._is_transactional:
            return BatchState.OPEN
        return BatchState.PROBING

    def on_all_reported(self, topic: str, *, has_retries: bool) -> None:
        """Nothing of the topic is with the client: it was accepted, or its retries wait."""
        if not has_retries:
            self._unmute(topic)
        size = self._accepted.get(topic)
        if size is not None and size.passed_bytes:
            del size.next_bytes[UNASSIGNED]  # of any partition
            accepted_bytes = max(size.accepted_bytes, *size.next_bytes.values(), 0)
            self._accepted[topic] = _AcceptedSize(accepted_bytes)

    def _unmute(self, topic: str) -> None:
        self._muted.discard(topic)
        self._alone.pop(topic, None)

    def on_enqueued(self, chunk: Chunk, quota: Quota) -> None:
        """The client has got the chunk, as part of that quota."""
        topic, partitioned = chunk.send.topic, chunk.partitioned
        if quota.state is BatchState.MUTED and len(chunk) == 1:
            self._alone[topic].add(chunk.order)
        if quota.state is not BatchState.PROBING:
            return
        size, passed_bytes = self._accepted[topic], chunk.largest_batch_bytes
        if len(chunk) == 1:  # which may be larger than the limit that its chunk was split by
            passed_bytes = max(passed_bytes, int(partition_bytes(partitioned)[0]))
        size.passed_bytes += passed_bytes
        if size.passed_bytes > size.accepted_bytes:
            sizes = least_partition_bytes(partitioned).tolist()
            size.next_bytes.update(dict(zip(partitioned.partitions.tolist(), sizes, strict=True)))

    def on_failed(self, topic: str) -> None:
        """Some of what was passed on has failed: the sizes of the rest prove nothing."""
        if topic in self._accepted:
            self._accepted[topic].next_bytes.clear()

    # --- one chunk --------------------------------------------------------------------------------

    def check(self, chunk: Chunk, limits: TopicLimits, quota: Quota) -> Checked:
        """Look for records that would be rejected."""
        topic, partitioned = chunk.send.topic, chunk.partitioned
        if chunk.is_unassigned:
            limits = NO_LIMITS  # the brokers of a delegated topic cannot confirm them
        # Without dead letters, a rejected record fails its task anyway: the brokers decide.
        is_open = quota.state is BatchState.OPEN or limits == NO_LIMITS
        if not self._needs_limits and is_open:
            return Checked([replace(chunk, is_checked=True)])
        rejected, good = self._precheck.apply(partitioned, limits, chunk.send.send_id)
        is_by_topic = any(failed.partition != UNASSIGNED for failed in rejected)
        if is_by_topic and not self._topics.are_limits_recent(topic):
            return Checked(awaits_limits=True)
        if not rejected:
            return Checked([replace(chunk, is_checked=True)])
        if not len(good):
            return Checked(rejected=rejected)
        return Checked([Chunk(chunk.send, partitioned.take(good), is_checked=True)], rejected)

    def split(self, chunk: Chunk, quota: Quota) -> Sequence[Chunk]:
        """The chunk, or unless its topic is OPEN, parts with one batch for each partition."""
        most, size = quota.max_batch_bytes, chunk.largest_batch_bytes
        if quota.state is BatchState.OPEN or 0 < size <= most:
            return [chunk]
        size = largest_partition_bytes(chunk.partitioned, min(most, quota.splittable_bytes))
        if size <= most:
            return [replace(chunk, largest_batch_bytes=size)]
        parts = split_to_fit(chunk.partitioned, most)
        return [Chunk(chunk.send, part, chunk.is_checked, size) for part, size in parts]

    # --- rejected batches -------------------------------------------------------------------------

    def may_contain_good(self, topic: str, failed: FailedRecords) -> bool:
        """Whether brokers may accept some of the rejected records, if they are sent again.

        They may even accept the only record of a send: the client fills a batch with several sends.
        Only a retry is known to be alone in its batch.
        """
        if self._is_transactional:
            return False  # the transaction has failed
        if failed.code in BATCH_ERRORS:
            record = failed.send_id, *failed.positions[:1]
            return failed.count > 1 or record not in self._alone[topic]
        return failed.code == ErrorCode.INVALID_DIFFERENT_RECORD

    def on_rejected(
        self, send: Send, records: RecordColumns, failed: FailedRecords
    ) -> Sequence[Chunk]:
        """Mute the topic; returns chunks of the rejected records, in their order."""
        count, topic = len(records), send.topic
        positions = np.array(failed.positions, dtype=np.int64)
        # A topic that is created again may have fewer partitions.
        partition = UNASSIGNED if failed.code in MISSING_ERRORS else failed.partition
        partitioned = PartitionedRecords(
            records, np.array([partition], dtype=np.int32), np.array([0, count]), positions
        )
        self._muted.add(topic)
        self._accepted.pop(topic, None)
        middle = count // 2 if failed.code in BATCH_ERRORS else 0
        halves = [
            partitioned.take(half) for half in np.split(np.arange(count), [middle]) if len(half)
        ]
        if failed.code == ErrorCode.MSG_SIZE_TOO_LARGE:
            half_bytes = max(int(partition_bytes(half)[0]) for half in halves)
            self._topics.hold_for_new_limits(topic, min(half_bytes, self._client_batch_bytes // 2))
        elif failed.code not in MISSING_ERRORS:
            self._topics.hold_for_new_limits(topic)
        return [Chunk(send, half, is_checked=True) for half in halves]

    def forget(self, topics: Iterable[str]) -> None:
        """Forget evicted topics; they have no records left."""
        for topic in topics:
            self._unmute(topic)
            self._accepted.pop(topic, None)
