"""[both] Passes records to the client in order: at once, or when their topic has metadata."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from spark_kafka_sink.librdkafka.error_codes import REJECTIONS, ErrorCode
from spark_kafka_sink.librdkafka.events import FailedRecords
from spark_kafka_sink.librdkafka.protocol import ProducerClient
from spark_kafka_sink.producer.batch_gate import BatchGate, Chunk, Quota
from spark_kafka_sink.producer.sends import Send
from spark_kafka_sink.producer.topic_metadata import SendableTopic, TopicMetadata
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import (
    UNASSIGNED,
    Partitioner,
    TopicPartitions,
    unpartitioned,
)


@dataclass
class _TopicQueue:
    """The chunks of one topic that wait here; those to be sent again come first."""

    resends: list[Chunk] = field(default_factory=list)
    chunks: deque[Chunk] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.resends or self.chunks)

    def __iter__(self) -> Iterator[Chunk]:
        yield from self.resends
        yield from self.chunks

    @property
    def first(self) -> Chunk:
        return self.resends[0] if self.resends else self.chunks[0]

    def pop_first(self) -> None:
        if self.resends:
            del self.resends[0]
        else:
            self.chunks.popleft()

    def replace_first(self, parts: Sequence[Chunk]) -> None:
        """Replace the first chunk with its parts, in their order."""
        is_resend = bool(self.resends)
        self.pop_first()
        if not is_resend:
            self.chunks.extendleft(reversed(parts))
            return
        for part in parts:
            self.add_resend(part)

    def add_resend(self, chunk: Chunk) -> None:
        insort(self.resends, chunk, key=lambda resend: resend.order)


@dataclass(frozen=True)
class _Drain:
    """What one drain of a topic works with; ``pauses`` end with it."""

    topic: str
    queue: _TopicQueue
    sendable: SendableTopic
    quota: Quota
    pauses: ExitStack


class TopicQueues:
    """Holds records that cannot be sent yet, and keeps each topic's sends in order.

    The client would accept those of topics without metadata too, but would then request metadata
    topic by topic. ``batch_gate`` decides how much of a topic is enqueued at once. No method waits;
    those that drain or drop records return the failed ones.
    """

    def __init__(
        self,
        client: ProducerClient,
        topics: TopicMetadata,
        partitioner: Partitioner,
        gate: BatchGate,
    ) -> None:
        self._client = client
        self._topics = topics
        self._partitioner = partitioner
        self._gate = gate
        self._queues: defaultdict[str, _TopicQueue] = defaultdict(_TopicQueue)
        #: topics to drain, in this order; those that wait for metadata or limits are not among them
        self._due: dict[str, None] = {}
        #: of them, those to drain once the client has reported what it has of them
        self._await_reports: set[str] = set()

    def __bool__(self) -> bool:
        """Whether records wait here."""
        return bool(self._queues)

    @property
    def awaits_reports(self) -> bool:
        """Whether some of them have metadata, but wait until earlier ones are reported."""
        return bool(self._await_reports)

    def append(self, send: Send, records: RecordColumns) -> None:
        """Append the records to the queue of their topic."""
        self._queues[send.topic].chunks.append(Chunk(send, unpartitioned(records)))
        self._due.setdefault(send.topic)

    def add_resends(self, resends: Iterable[Chunk]) -> None:
        """Add rejected records, to be sent again before all later ones of their topic."""
        for resend in resends:
            self._queues[resend.send.topic].add_resend(resend)
            self._due.setdefault(resend.send.topic)

    def on_metadata_change(self, topic: str) -> None:
        """Let the topic's waiting records be drained again; new limits may have opened it, too."""
        if topic in self._queues:
            self._due.setdefault(topic)
            self._await_reports.discard(topic)

    def forget(self, topics: Iterable[str]) -> None:
        """Forget evicted topics, which have no records here."""
        self._partitioner.forget(topics)
        self._gate.forget(topics)

    def drain_all(self) -> list[FailedRecords]:
        """Enqueue all records that may be sent now."""
        return [failed for topic in list(self._due) for failed in self.drain(topic)]

    def drain(self, topic: str) -> list[FailedRecords]:
        """Enqueue the records of a topic, which has some, that may be sent now."""
        has_unreported = self._client.has_unreported(topic)
        if has_unreported and topic in self._await_reports:
            return []
        self._await_reports.discard(topic)
        sendable, queue = self._topics.sendable(topic), self._queues[topic]
        if sendable is None:
            self._due.pop(topic, None)
            return []
        if not has_unreported:
            self._gate.on_all_reported(topic, has_resends=bool(queue.resends))
        quota = self._gate.quota(topic, sendable, has_unreported=has_unreported)
        with ExitStack() as pauses:
            drain = _Drain(topic, queue, sendable, quota, pauses)
            rejected = self._enqueue_again(drain) if queue.resends else self._enqueue_chunks(drain)
        if not queue:
            del self._queues[topic]
            self._due.pop(topic, None)
        elif self._client.has_unreported(topic):
            self._await_reports.add(topic)
        return rejected

    def _enqueue_again(self, drain: _Drain) -> list[FailedRecords]:
        """Enqueue the first chunk of each partition that is to be sent again."""
        queue = drain.queue
        rejected: list[FailedRecords] = []
        begun: set[int] = set()
        while queue.resends and drain.quota.bytes_left > 0 and not _is_missing(rejected):
            queue.replace_first(self._gate.split(queue.first, drain.quota))
            # Such a chunk has one partition. If it is not assigned, the client may choose any.
            (partition,) = queue.first.partitioned.partitions.tolist()
            is_unclear = UNASSIGNED in begun or partition == UNASSIGNED
            if begun and (is_unclear or partition in begun):
                break
            begun.add(partition)
            rejected += self._enqueue_first(drain)
        return rejected

    def _enqueue_chunks(self, drain: _Drain) -> list[FailedRecords]:
        """Enqueue chunks until the quota is used up."""
        queue, quota = drain.queue, drain.quota
        rejected: list[FailedRecords] = []
        while queue.chunks and quota.bytes_left > 0 and not _is_missing(rejected):
            if queue.first.needs_check(drain.sendable.partitions):
                assigned = self._assigned(queue.first, drain.sendable.partitions)
                highest = int(assigned.partitioned.partitions.max())
                if self._topics.hold_for_partition(drain.topic, highest):
                    break
                checked = self._gate.check(assigned, drain.sendable.limits, quota)
                if checked.awaits_limits:
                    self._topics.hold_for_new_limits(drain.topic)
                    break
                rejected += checked.rejected
                if checked.good is None:
                    queue.pop_first()
                    continue
                queue.replace_first([checked.good])
            queue.replace_first(self._gate.split(queue.first, quota))
            quota.bytes_left -= queue.first.largest_batch_bytes
            if quota.bytes_left >= 0:
                rejected += self._enqueue_first(drain)
        return rejected

    def _enqueue_first(self, drain: _Drain) -> list[FailedRecords]:
        """Enqueue the first chunk with the client; returns what the client rejects."""
        chunk, quota = drain.queue.first, drain.quota
        if quota.use_splittable(chunk):
            self._topics.request_limits(drain.topic)
            drain.pauses.enter_context(
                self._client.paused(drain.topic, range(drain.sendable.partitions.count))
            )
        rejected: defaultdict[int, list[int]] = defaultdict(list)
        for position, code in self._client.enqueue(chunk.partitioned, chunk.send.send_id):
            rejected[code].append(position)
        drain.queue.pop_first()
        self._gate.on_enqueued(chunk, quota)
        if rejected:
            self._gate.on_failed(drain.topic)
        return [_failed(chunk, code, sorted(some)) for code, some in rejected.items()]

    def _assigned(self, chunk: Chunk, partitions: TopicPartitions) -> Chunk:
        """Assign a partition to each record, if their number is known.

        Records that were left to the client's partitioner, but not enqueued, are assigned again.
        """
        before = chunk.partitioned
        # While others of the topic are on their way, records have fewer, larger shares.
        follows_others = self._client.has_unreported(chunk.send.topic)
        after = self._partitioner.partition(
            before.records, partitions, follows_others=follows_others
        )
        return Chunk(chunk.send, replace(after, positions=before.positions[after.positions]))

    def fail_topic(self, topic: str, code: int) -> list[FailedRecords]:
        """Drop all records of a topic that cannot be written to."""
        queue = self._queues.pop(topic, _TopicQueue())
        self._due.pop(topic, None)
        self._await_reports.discard(topic)
        return [_failed(chunk, code, chunk.partitioned.positions.tolist()) for chunk in queue]

    def fail_all(self) -> list[FailedRecords]:
        """Drop all records that wait here; they do not become dead letters."""
        chunks = [chunk for queue in self._queues.values() for chunk in queue]
        self._queues.clear()
        self._due.clear()
        self._await_reports.clear()
        return [_failed(chunk, ErrorCode.PURGE_QUEUE) for chunk in chunks]


def _is_missing(rejected: Sequence[FailedRecords]) -> bool:
    """Whether the client does not know the topic: later records must not overtake the rejected."""
    return any(failed.code == ErrorCode.UNKNOWN_TOPIC for failed in rejected)


def _failed(chunk: Chunk, code: int, positions: Sequence[int] = ()) -> FailedRecords:
    """Records of the chunk that failed: those at the positions of their send, or all of them."""
    count = len(positions) or len(chunk)
    return FailedRecords(
        chunk.send.send_id,
        UNASSIGNED,
        code,
        possibly_persisted=False,
        count=count,
        # As in reports: records with positions become dead letters.
        positions=tuple(positions) if code in REJECTIONS else (),
    )
