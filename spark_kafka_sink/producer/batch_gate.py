"""[both] Batches that the brokers reject because of their size, or of some of their records.

A broker rejects a whole batch because of one bad record, may not say which one, and may accept the
batches that follow. The good records have to be sent again before any later ones. So at most one
batch per partition is with the client where a rejection is likely (Java: muted partitions,
``RecordAccumulator.splitAndReenqueue``).

========= ======================================= ==================================================
state     the first of these that applies         what may be enqueued
========= ======================================= ==================================================
RESENDING from the first rejection that is to be  once all of the topic is reported: the next resend
          sent again until all such are reported  of each partition; sends wait
SMALL     the topic's largest batch is smaller    once all of the topic is reported: one batch per
          than the client's                       partition
PROBING   neither the topic's largest is known,   for each partition as much as was accepted at once
          nor have its brokers accepted half of   before, and one larger batch; nothing more until
          the client's largest batch at once;     all are reported
          never in a transaction
OPEN      otherwise                               everything at once, in the order of the sends
========= ======================================= ==================================================

The first batch that is larger than was accepted before requests the topic's limits. Until they are
known, the client must not divide such a batch: brokers would reject its beginning, and accept the
smaller end. Nor may it divide a resend, of any size: one of its records may be bad.

Half of the client's largest batch counts as proof, as few batches are full. If the topic's largest
is between the two, only its limits can keep the order.

What happens to a rejected record:

========================= ==========================================================================
rejected                  outcome
========================= ==========================================================================
by the pre-check          it fails; the good records of its send go on
by the pre-check, but its all records of the send wait for newer limits, and with them all later
limits are not recent     sends of the topic
in a transaction          it fails, as all of the transaction does
alone in its batch, for   it fails
its size or content
in a batch, and the       the batch is sent again in halves of each send's records, or in smaller
brokers do not say which  parts if the topic's largest batch is known, one per partition at a time,
record is bad             until a bad record is alone
in a batch, and the       it fails
brokers name it (KIP-467)
only because of others in it is sent again, in its order
its batch
by the client, because an with a topic for dead letters: it is sent again once an answer says that
answer lacks the topic    the topic exists; otherwise it fails
========================= ==========================================================================

A topic that is delegated has no partition that could be paused, so while it is not OPEN, it gets
batches only as large as were accepted before. What then waits here is partitioned and checked again
once its metadata has arrived.

Resends are enqueued in the order of their sends, and of their first positions within a send. A
record that fails becomes a dead letter, or fails its task if there is no topic for them.
"""

from __future__ import annotations

import sys
from collections import Counter
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
_INITIAL_BYTES = 15_000


class BatchState(Enum):
    """What may be enqueued of a topic."""

    RESENDING = auto()
    SMALL = auto()
    PROBING = auto()
    OPEN = auto()


@dataclass(frozen=True)
class Chunk:
    """Records of one send in their topic's queue, at first all of them.

    ``partitioned`` has one group without a partition until the topic's partitions are known.
    ``largest_batch_bytes``: at least the bytes that it has for any one partition; 0: not computed.
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
    """What may be enqueued of a topic in one drain: ``bytes_left`` for any one partition.

    ``splittable_bytes``: up to here, the client may spread them over several batches. The chunk
    that exceeds it pauses the topic's partitions for the rest of the drain, so that each gets one
    batch. ``max_batch_bytes``: no chunk may have more for one partition.
    """

    state: BatchState
    bytes_left: int = sys.maxsize
    splittable_bytes: int = sys.maxsize
    max_batch_bytes: int = sys.maxsize

    def use_splittable(self, chunk: Chunk) -> bool:
        """Count the chunk; returns whether it is the first that must not be split."""
        was_left = self.splittable_bytes >= 0
        self.splittable_bytes -= chunk.largest_batch_bytes
        return was_left and self.splittable_bytes < 0


@dataclass
class _AcceptedSize:
    """What is known about the batches that a topic's brokers accept.

    ``accepted_bytes``: the most bytes for one partition that they have accepted at once.
    ``enqueued_bytes``: at most so many were enqueued for one partition since the client last had
    nothing of the topic. ``probe_bytes``: at least so many, by partition, were in the chunks that
    exceeded ``accepted_bytes``; if all are accepted, so much is.
    """

    accepted_bytes: int = _INITIAL_BYTES
    enqueued_bytes: int = 0
    probe_bytes: Counter[int] = field(default_factory=Counter)


@dataclass(frozen=True)
class Checked:
    """Which records of a chunk the brokers would reject, and a chunk of the others, if any.

    ``awaits_limits``: perhaps some, so all of the chunk waits for newer limits of the topic.
    """

    good: Chunk | None = None
    rejected: Sequence[FailedRecords] = ()
    awaits_limits: bool = False


class BatchGate:
    """The states of all topics; used by one thread at a time, and sends nothing.

    Only the ``on_`` methods and ``forget`` change a state.
    """

    def __init__(self, options: ProducerOptions, topics: TopicMetadata) -> None:
        self._is_transactional = options.is_transactional
        self._needs_limits = options.needs_limits
        self._client_batch_bytes = options.client.max_batch_bytes
        self._precheck = PreCheck(options)
        self._topics = topics
        self._resending: set[str] = set()
        #: by such a topic: send and position of the records that are alone in their batch
        self._alone: dict[str, set[tuple[int, int]]] = {}
        self._accepted: dict[str, _AcceptedSize] = {}

    # --- how much may be enqueued -----------------------------------------------------------------

    def quota(self, topic: str, sendable: SendableTopic, *, has_unreported: bool) -> Quota:
        """What may be enqueued of the topic now. ``has_unreported``: the client has some of it."""
        state = self._state(topic, sendable)
        if state is BatchState.OPEN:
            return Quota(state)
        most = min(self._client_batch_bytes, sendable.max_batch_bytes)
        if sendable.partitions == UNKNOWN_PARTITIONS:
            # Only a known partition can be paused: so nothing that could be rejected in part.
            most = min(most, self._accepted_size(topic).accepted_bytes)
        if state is BatchState.PROBING:
            size = self._accepted_size(topic)
            splittable = size.accepted_bytes - size.enqueued_bytes
            left = most - size.enqueued_bytes if splittable >= 0 else 0
            return Quota(state, left, splittable, most)
        if state is BatchState.RESENDING:
            # Each resend has a batch of its own, also a small one: its content may be rejected.
            return Quota(state, 0 if has_unreported else sys.maxsize, 0, most)
        # Without the topic's limits, its largest batch is an estimate.
        splittable = most if sendable.is_max_known else _INITIAL_BYTES
        return Quota(state, 0 if has_unreported else most, splittable, most)

    def _state(self, topic: str, sendable: SendableTopic) -> BatchState:
        if topic in self._resending:
            return BatchState.RESENDING
        if sendable.max_batch_bytes < self._client_batch_bytes:
            return BatchState.SMALL
        is_proven = 2 * self._accepted_size(topic).accepted_bytes >= self._client_batch_bytes
        if is_proven or sendable.is_max_known or self._is_transactional:
            return BatchState.OPEN
        return BatchState.PROBING

    def _accepted_size(self, topic: str) -> _AcceptedSize:
        return self._accepted.get(topic) or _AcceptedSize()

    def on_all_reported(self, topic: str, *, has_resends: bool) -> None:
        """The client has nothing of the topic: it was accepted, or is to be sent again."""
        if not has_resends:
            self._end_resending(topic)
        size = self._accepted.get(topic)
        if size is not None and size.enqueued_bytes:
            del size.probe_bytes[UNASSIGNED]  # which partition the client chose is not known
            accepted_bytes = max([size.accepted_bytes, *size.probe_bytes.values()])
            self._accepted[topic] = _AcceptedSize(accepted_bytes)

    def _end_resending(self, topic: str) -> None:
        self._resending.discard(topic)
        self._alone.pop(topic, None)

    def on_enqueued(self, chunk: Chunk, quota: Quota) -> None:
        """The chunk was enqueued as part of that quota."""
        topic, partitioned = chunk.send.topic, chunk.partitioned
        if quota.state is BatchState.RESENDING and len(chunk) == 1:
            self._alone.setdefault(topic, set()).add(chunk.order)
        if quota.state is not BatchState.PROBING:
            return
        size = self._accepted.setdefault(topic, _AcceptedSize())
        enqueued_bytes = chunk.largest_batch_bytes
        if len(chunk) == 1:  # which may be larger than the limit that its chunk was split by
            enqueued_bytes = max(enqueued_bytes, int(partition_bytes(partitioned)[0]))
        size.enqueued_bytes += enqueued_bytes
        if size.enqueued_bytes > size.accepted_bytes:
            sizes = least_partition_bytes(partitioned).tolist()
            size.probe_bytes.update(dict(zip(partitioned.partitions.tolist(), sizes, strict=True)))

    def on_failed(self, topic: str) -> None:
        """Some of what was enqueued has failed: the sizes of the rest prove nothing."""
        if topic in self._accepted:
            self._accepted[topic].probe_bytes.clear()

    # --- one chunk --------------------------------------------------------------------------------

    def check(self, chunk: Chunk, limits: TopicLimits, quota: Quota) -> Checked:
        """Look for records that would be rejected."""
        topic, partitioned = chunk.send.topic, chunk.partitioned
        if chunk.is_unassigned:
            limits = NO_LIMITS  # the brokers of a delegated topic cannot confirm them
        # Without dead letters and transactions, a rejected record fails its task either way, so
        # the brokers decide. In the other states, a rejection would cost the order.
        is_cheap = quota.state is BatchState.OPEN or limits == NO_LIMITS
        if not self._needs_limits and is_cheap:
            return Checked(replace(chunk, is_checked=True))
        rejected, good = self._precheck.apply(partitioned, limits, chunk.send.send_id)
        is_by_topic = any(not failed.is_by_client for failed in rejected)
        if is_by_topic and not self._topics.are_limits_recent(topic):
            return Checked(awaits_limits=True)
        if not rejected:
            return Checked(replace(chunk, is_checked=True))
        if not len(good):
            return Checked(rejected=rejected)
        return Checked(Chunk(chunk.send, partitioned.take(good), is_checked=True), rejected)

    def split(self, chunk: Chunk, quota: Quota) -> Sequence[Chunk]:
        """Unless the topic is OPEN, split the chunk into parts of one batch per partition."""
        most, size = quota.max_batch_bytes, chunk.largest_batch_bytes
        if quota.state is BatchState.OPEN or 0 < size <= most:
            return [chunk]
        # Below both, an upper bound is enough.
        size = largest_partition_bytes(chunk.partitioned, min(most, quota.splittable_bytes))
        if size <= most:
            return [replace(chunk, largest_batch_bytes=size)]
        parts = split_to_fit(chunk.partitioned, most)
        return [Chunk(chunk.send, part, chunk.is_checked, bytes_) for part, bytes_ in parts]

    # --- rejected batches -------------------------------------------------------------------------

    def may_contain_good(self, topic: str, failed: FailedRecords) -> bool:
        """Whether brokers may accept some of the rejected records, if they are sent again.

        They may even accept the only record of a send: the client fills a batch with several sends.
        Only a resend is known to be alone in its batch.
        """
        if self._is_transactional:
            return False  # the transaction has failed
        if failed.code in BATCH_ERRORS and not failed.is_named:
            record = failed.send_id, *failed.positions[:1]
            return failed.count > 1 or record not in self._alone.get(topic, ())
        return failed.code == ErrorCode.INVALID_DIFFERENT_RECORD

    def on_rejected(
        self, send: Send, records: RecordColumns, failed: FailedRecords
    ) -> Sequence[Chunk]:
        """Send the topic's rejected records again first; returns chunks of them, in their order."""
        count, topic = len(records), send.topic
        positions = np.array(failed.positions, dtype=np.int64)
        # A topic that is created again may have fewer partitions.
        partition = UNASSIGNED if failed.code in MISSING_ERRORS else failed.partition
        partitioned = PartitionedRecords(
            records, np.array([partition], dtype=np.int32), np.array([0, count]), positions
        )
        self._resending.add(topic)
        self._accepted.pop(topic, None)
        parts = [partitioned]
        if failed.code in BATCH_ERRORS and count > 1:
            halves = np.split(np.arange(count), [count // 2])
            parts = [partitioned.take(half) for half in halves]
        if failed.code == ErrorCode.MSG_SIZE_TOO_LARGE:
            self._topics.hold_for_new_limits(topic, self._estimated_batch_bytes(parts))
        elif failed.code not in MISSING_ERRORS:
            self._topics.hold_for_new_limits(topic)
        return [Chunk(send, part, is_checked=True) for part in parts]

    def _estimated_batch_bytes(self, parts: Sequence[PartitionedRecords]) -> int:
        """What brokers may accept that have rejected a batch with these parts of one send.

        They may be a small share of the batch, or all of it.
        """
        part_bytes = max(int(partition_bytes(part)[0]) for part in parts)
        return min(max(part_bytes, _INITIAL_BYTES), self._client_batch_bytes // 2)

    def forget(self, topics: Iterable[str]) -> None:
        """Forget evicted topics; they have no records left."""
        for topic in topics:
            self._end_resending(topic)
            self._accepted.pop(topic, None)
