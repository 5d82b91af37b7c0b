"""[task] Passes records to the client in order: at once, or when their topic has metadata."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from spark_kafka_sink.librdkafka.error_codes import ErrorCode
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
    """The chunks of one topic that wait here; retries come first."""

    retries: list[Chunk] = field(default_factory=list)
    chunks: deque[Chunk] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.retries or self.chunks)

    def __iter__(self) -> Iterator[Chunk]:
        yield from self.retries
        yield from self.chunks

    @property
    def first(self) -> Chunk:
        return self.retries[0] if self.retries else self.chunks[0]

    def replace_first(self, parts: Sequence[Chunk]) -> None:
        """Replace the first chunk with its parts, in their order."""
        if self.retries:
            del self.retries[0]
            for part in parts:
                self.add_retry(part)
        else:
            self.chunks.popleft()
            self.chunks.extendleft(reversed(parts))

    def add_retry(self, chunk: Chunk) -> None:
        insort(self.retries, chunk, key=lambda retry: retry.order)


@dataclass(frozen=True)
class _Drain:
    """Passing on records of one topic; ``pauses`` end with it."""

    topic: str
    queue: _TopicQueue
    sendable: SendableTopic
    quota: Quota
    pauses: ExitStack


class TopicQueues:
    """Keeps a topic's sends in order, and the records that cannot be sent yet.

    The client would accept those of topics without metadata too, but would then request metadata
    topic by topic. How much of a topic may be with the client at once, ``batch_gate`` says. No
    method waits. They return the records that were rejected.
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
        #: topics to drain; True: once the client has reported what it has of them
        self._due: dict[str, bool] = {}

    def __bool__(self) -> bool:
        """Whether records wait here."""
        return bool(self._queues)

    @property
    def awaits_reports(self) -> bool:
        """Whether some of them have metadata, but wait until earlier ones are reported."""
        return any(self._due.values())

    def append(self, send: Send, records: RecordColumns) -> None:
        """Append the records to the queue of their topic."""
        self._queues[send.topic].chunks.append(Chunk(send, unpartitioned(records)))
        self._due.setdefault(send.topic, False)

    def add_retries(self, retries: Iterable[Chunk]) -> None:
        """Add rejected records again, to be sent before all later ones of their topic."""
        for retry in retries:
            self._queues[retry.send.topic].add_retry(retry)
            self._due.setdefault(retry.send.topic, False)

    def on_metadata_change(self, topic: str) -> None:
        """Try the topic's waiting records again: new limits may have opened it, too."""
        if topic in self._queues:
            self._due[topic] = False

    def forget(self, topics: Iterable[str]) -> None:
        """Forget evicted topics, which have no records here."""
        self._partitioner.forget(topics)
        self._gate.forget(topics)

    def drain_all(self) -> list[FailedRecords]:
        """Pass on all records that may be sent now."""
        return [failed for topic in list(self._due) for failed in self.drain(topic)]

    def drain(self, topic: str) -> list[FailedRecords]:
        """Pass on the records of the topic that may be sent now."""
        has_unreported = self._client.has_unreported(topic)
        if has_unreported and self._due[topic]:
            return []
        sendable, queue = self._topics.sendable(topic), self._queues[topic]
        if sendable is None:
            del self._due[topic]
            return []
        if not has_unreported:
            self._gate.on_all_reported(topic, has_retries=bool(queue.retries))
        quota = self._gate.quota(topic, sendable, has_unreported=has_unreported)
        with ExitStack() as pauses:
            drain = _Drain(topic, queue, sendable, quota, pauses)
            rejected = self._pass_retries(drain) if queue.retries else self._pass_chunks(drain)
        self._due[topic] = self._client.has_unreported(topic)
        if not queue:
            del self._queues[topic], self._due[topic]
        return rejected

    def _pass_retries(self, drain: _Drain) -> list[FailedRecords]:
        """Pass on the first retry of each partition."""
        queue = drain.queue
        rejected: list[FailedRecords] = []
        begun: set[int] = set()
        while queue.retries and drain.quota.bytes_left and not _is_missing(rejected):
            queue.replace_first(self._gate.split(queue.first, drain.quota))
            partition = int(queue.first.partitioned.partitions[0])
            # The client chooses the partition of an unassigned one: it may be any.
            if begun & {partition, UNASSIGNED} or (begun and partition == UNASSIGNED):
                break
            begun.add(partition)
            rejected += self._pass_first(drain)
        return rejected

    def _pass_chunks(self, drain: _Drain) -> list[FailedRecords]:
        """Pass on chunks until the quota is used up."""
        queue, quota = drain.queue, drain.quota
        rejected: list[FailedRecords] = []
        while queue.chunks and quota.bytes_left > 0 and not _is_missing(rejected):
            if queue.first.needs_check(drain.sendable.partitions):
                assigned = self._assigned(queue.first, drain.sendable.partitions)
                checked = self._gate.check(assigned, drain.sendable.limits, quota)
                if checked.awaits_limits:
                    self._topics.hold_for_new_limits(drain.topic)
                    break
                rejected += checked.rejected
                queue.replace_first(checked.good)
                if not checked.good:
                    continue
            queue.replace_first(self._gate.split(queue.first, quota))
            quota.bytes_left -= queue.first.largest_batch_bytes
            if quota.bytes_left >= 0:
                rejected += self._pass_first(drain)
        return rejected

    def _pass_first(self, drain: _Drain) -> list[FailedRecords]:
        """Pass the first chunk to the client; returns what the client rejects."""
        chunk, quota = drain.queue.first, drain.quota
        was_splittable = quota.splittable_bytes >= 0
        quota.splittable_bytes -= chunk.largest_batch_bytes
        if was_splittable and quota.splittable_bytes < 0:
            self._topics.request_limits(drain.topic)
            drain.pauses.enter_context(
                self._client.paused(drain.topic, range(drain.sendable.partitions.count))
            )
        rejected: defaultdict[int, list[int]] = defaultdict(list)
        for position, code in self._client.enqueue(chunk.partitioned, chunk.send.send_id):
            rejected[code].append(position)
        drain.queue.replace_first([])
        self._gate.on_enqueued(chunk, quota)
        if rejected:
            self._gate.on_failed(drain.topic)
        return [_failed(chunk, code, sorted(some)) for code, some in rejected.items()]

    def _assigned(self, chunk: Chunk, partitions: TopicPartitions) -> Chunk:
        """The chunk with a partition for each record, as far as their number is known.

        What was left to the client, and has not reached it, is done again with known partitions.
        """
        before = chunk.partitioned
        follows_others = self._client.has_unreported(chunk.send.topic)
        after = self._partitioner.partition(
            before.records, partitions, follows_others=follows_others
        )
        return Chunk(chunk.send, replace(after, positions=before.positions[after.positions]))

    def reject(self, topic: str, code: int) -> list[FailedRecords]:
        """Drop all records of a topic that cannot be written to."""
        queue = self._queues.pop(topic, _TopicQueue())
        self._due.pop(topic, None)
        return [_failed(chunk, code, chunk.partitioned.positions.tolist()) for chunk in queue]

    def fail_all(self) -> list[FailedRecords]:
        """Drop all records that wait here; they do not become dead letters."""
        chunks = [chunk for queue in self._queues.values() for chunk in queue]
        self._queues.clear()
        self._due.clear()
        return [_failed(chunk, ErrorCode.PURGE_QUEUE) for chunk in chunks]


def _is_missing(rejected: Sequence[FailedRecords]) -> bool:
    """Whether the client does not know the topic: later records must not overtake the rejected."""
    return any(failed.code == ErrorCode.UNKNOWN_TOPIC for failed in rejected)


def _failed(chunk: Chunk, code: int, positions: Sequence[int] = ()) -> FailedRecords:
    """Records of the chunk that failed: those at the positions of their send, or all of them."""
    count = len(positions) or len(chunk)
    return FailedRecords(chunk.send.send_id, UNASSIGNED, code, False, count, tuple(positions))
