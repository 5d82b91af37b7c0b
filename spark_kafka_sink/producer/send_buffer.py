"""[task] Passes records to the client in order: at once, or when their topic has metadata."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import FailedRecords
from spark_kafka_sink.librdkafka.protocol import ProducerClient
from spark_kafka_sink.producer.bad_batches import BadBatches, Checked
from spark_kafka_sink.producer.deliveries import SendRequest
from spark_kafka_sink.producer.topic_metadata import TopicMetadata
from spark_kafka_sink.records.partitioner import UNASSIGNED, Partitioner, TopicPartitions


@dataclass
class _TopicQueue:
    """The requests of one topic that wait here; retries come first."""

    retries: list[SendRequest] = field(default_factory=list)
    sends: deque[SendRequest] = field(default_factory=deque)

    def __bool__(self) -> bool:
        return bool(self.retries or self.sends)

    def __iter__(self) -> Iterator[SendRequest]:
        yield from self.retries
        yield from self.sends

    @property
    def first(self) -> SendRequest:
        return self.retries[0] if self.retries else self.sends[0]

    def replace_first(self, parts: Sequence[SendRequest]) -> None:
        """Replace the first request with its parts, in their order."""
        if self.retries:
            del self.retries[0]
            self.add_retries(parts)
        else:
            self.sends.popleft()
            self.sends.extendleft(reversed(parts))

    def add_retries(self, requests: Iterable[SendRequest]) -> None:
        for request in requests:
            insort(self.retries, request, key=lambda retry: retry.order)

    def remove_first(self) -> None:
        if self.retries:
            del self.retries[0]
        else:
            self.sends.popleft()


class SendBuffer:
    """Keeps a topic's sends in order, and buffers the records that cannot be sent yet.

    The client would accept those of topics without metadata too, but would then request metadata
    topic by topic. What may be with the client at once of a topic is a *round*, which depends on
    the topic's state: ``bad_batches`` has the table. No method waits. They return the records that
    were rejected.
    """

    def __init__(
        self,
        client: ProducerClient,
        topics: TopicMetadata,
        partitioner: Partitioner,
        bad_batches: BadBatches,
    ) -> None:
        self._client = client
        self._topics = topics
        self._partitioner = partitioner
        self._bad_batches = bad_batches
        self._queues: dict[str, _TopicQueue] = {}
        #: topics with sendable records; True: the next round waits for reports on the last one
        self._sendable: dict[str, bool] = {}

    @property
    def has_buffered_records(self) -> bool:
        """Whether records wait here."""
        return bool(self._queues)

    @property
    def awaits_reports(self) -> bool:
        """Whether some of them have metadata, but wait until earlier ones are reported."""
        return any(self._sendable.values())

    def put(self, request: SendRequest) -> list[FailedRecords]:
        """Pass records to the client until it is full; the caller calls again for the rest.

        Accepts all of them into the buffer instead if the topic waits. Records are passed on by
        partition. ``delivery.accepted`` counts those that are accepted.
        """
        topic = request.delivery.topic
        partitions = self._topics.partitions(topic)
        if partitions is None or topic in self._queues:
            self.buffer(request)
            return []
        checked = self._prepare(request, partitions)
        with self._bad_batches.round(topic, partitions.count) as present:
            is_begun = request.messages is not None and request.messages.enqueued > 0
            if is_begun and not present.is_open:
                self.buffer(request)  # the rest has to wait like any other request
                return []
            if checked.awaits_limits or not present.takes(request):
                self.buffer(request)
                return [*checked.rejected]
            rejected = self._enqueue(request)
        request.delivery.accepted = request.enqueued
        return [*checked.rejected, *rejected]

    def buffer(self, request: SendRequest) -> None:
        """Accept all records, and send them with the next ``drain`` that can."""
        request.delivery.accepted = len(request.records)
        self._queue(request.delivery.topic).sends.append(self._bad_batches.rest(request))

    def buffer_retries(self, requests: Iterable[SendRequest]) -> None:
        """Accept rejected records again, to be sent before all later ones of their topic."""
        for request in requests:
            self._queue(request.delivery.topic).add_retries([request])

    def on_metadata_change(self, topic: str) -> None:
        """Update whether the topic's waiting records are sendable."""
        if topic in self._queues and self._topics.partitions(topic) is not None:
            self._sendable[topic] = False  # new limits may have opened the topic: try at once
        else:
            self._sendable.pop(topic, None)

    def forget(self, topics: Iterable[str]) -> None:
        """Forget evicted topics, which have no records here."""
        self._partitioner.forget(topics)
        self._bad_batches.forget(topics)

    def drain(self) -> list[FailedRecords]:
        """Pass records whose metadata has arrived to the client, as far as there is room."""
        failures: list[FailedRecords] = []
        for topic, awaits_reports in list(self._sendable.items()):
            if awaits_reports and self._client.has_unreported(topic):
                continue
            partitions = self._topics.partitions(topic)
            if partitions is None:
                continue
            queue = self._queues[topic]
            rejected, is_full = self._drain_topic(topic, queue, partitions)
            failures += rejected
            if is_full:
                break
            self._sendable[topic] = self._client.has_unreported(topic)
            if not queue:
                del self._queues[topic], self._sendable[topic]
        return failures

    def _drain_topic(
        self, topic: str, queue: _TopicQueue, partitions: TopicPartitions
    ) -> tuple[list[FailedRecords], bool]:
        """Like ``drain``, for one topic; True if the client has no more room."""
        failures: list[FailedRecords] = []
        is_retry = bool(queue.retries)
        with self._bad_batches.round(topic, partitions.count, has_retries=is_retry) as present:
            # A round is either of retries or of sends.
            while queue and present.room > 0 and present.is_for_retries == bool(queue.retries):
                if not is_retry:
                    checked = self._prepare(queue.first, partitions)
                    if checked.awaits_limits:
                        break
                    failures += checked.rejected
                queue.replace_first(self._bad_batches.split(queue.first))
                request = queue.first
                if not present.takes(request):
                    break
                rejected = self._enqueue(request)
                failures += rejected
                is_missing = any(failure.code == ErrorCode.UNKNOWN_TOPIC for failure in rejected)
                if not request.is_enqueued:  # the client is full, or does not know the topic
                    queue.replace_first([self._bad_batches.rest(request)])
                    return failures, not is_missing
                queue.remove_first()
                if is_missing:
                    break  # the topic may be back: a later request must not overtake these records
        return failures, False

    def reject(self, topic: str, code: int) -> list[FailedRecords]:
        """Drop all records of a topic that cannot be written to."""
        queue = self._queues.pop(topic, _TopicQueue())
        self._sendable.pop(topic, None)
        return [_failed(request, code, tuple(request.remaining.tolist())) for request in queue]

    def fail_all(self) -> list[FailedRecords]:
        """Drop all records that wait here."""
        requests = [request for queue in self._queues.values() for request in queue]
        self._queues.clear()
        self._sendable.clear()
        return [_failed(request, ErrorCode.PURGE_QUEUE) for request in requests]

    # --- one topic's queue -----------------------------------------------------------------------

    def _queue(self, topic: str) -> _TopicQueue:
        queue = self._queues.setdefault(topic, _TopicQueue())
        if self._topics.partitions(topic) is not None:
            self._sendable.setdefault(topic, False)
        return queue

    def _prepare(self, request: SendRequest, partitions: TopicPartitions) -> Checked:
        """Partition and check the request's records, unless that was done before.

        What was left to the client, and has not reached it, is done again with known partitions.
        """
        topic, known = request.delivery.topic, request.messages
        if known is not None and not (partitions.count and known.is_left_to_client):
            return Checked()
        records = request.records if known is None else known.partitioned.records
        follows_others = self._client.has_unreported(topic)
        partitioned = self._partitioner.partition(
            records, partitions, follows_others=follows_others
        )
        if known is not None:
            positions = known.partitioned.positions[partitioned.positions]
            partitioned = replace(partitioned, positions=positions)
        return self._bad_batches.check(request, partitioned)

    def _enqueue(self, request: SendRequest) -> list[FailedRecords]:
        """Pass records to the client, as far as there is room."""
        if request.messages is None:
            return []  # the pre-check has rejected all of them
        rejected: defaultdict[int, list[int]] = defaultdict(list)
        for position, code in self._client.enqueue(request.messages):
            rejected[code].append(position)
        self._bad_batches.note_passed(request)
        return [
            FailedRecords(
                request.delivery.delivery_id,
                UNASSIGNED,
                code,
                False,
                len(some),
                tuple(sorted(some)),
            )
            for code, some in rejected.items()
        ]


def _failed(request: SendRequest, code: int, positions: tuple[int, ...] = ()) -> FailedRecords:
    """The remaining records, failed; without ``positions``, they do not become dead letters."""
    count = len(request.remaining)
    return FailedRecords(request.delivery.delivery_id, UNASSIGNED, code, False, count, positions)
