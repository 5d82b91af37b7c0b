"""librdkafka's queues and the brokers in plain Python, with all the freedom that they have.

A partition's records wait in a queue, are cut into batches at any time, and up to five batches are
in flight. Brokers store a batch or reject all of it, and may store those behind one that they have
rejected. A batch that is sent again keeps its records. Records without a partition wait until the
client has the topic's metadata; an answer that lacks the topic drops all of its records.

``test_strict_client.py`` runs the same programs over librdkafka and its mock broker.
"""

from __future__ import annotations

import ctypes
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random

import numpy as np

from spark_kafka_sink.librdkafka import _prototypes as c
from spark_kafka_sink.librdkafka.error_codes import REJECTIONS, ErrorCode
from spark_kafka_sink.librdkafka.events import AcknowledgedRecords, FailedRecords
from spark_kafka_sink.librdkafka.messages import Rejection
from spark_kafka_sink.records.partitioner import UNASSIGNED, PartitionedRecords
from spark_kafka_sink.records.record_size import BATCH_OVERHEAD_BYTES, record_bytes

_IN_FLIGHT = 5
#: a timestamp before this is too old for a topic with a limit
_OLD_MS = 10**9

#: topic and partition
Place = tuple[str, int]


@dataclass(frozen=True)
class QueuedRecord:
    send_id: int
    position: int
    size: int
    key: bytes | None = None
    #: by its partition column; None: by its key, or anybody
    column: int | None = None
    is_old: bool = False

    @property
    def name(self) -> tuple[int, int]:
        return self.send_id, self.position


Batch = list[QueuedRecord]


@dataclass
class StrictTopic:
    """What the brokers have of a topic, and what the client knows."""

    partitions: int
    max_batch_bytes: int
    is_compacted: bool = False
    #: whether its brokers name the records without a key
    names_records: bool = True
    rejects_old: bool = False
    #: of metadata: UNKNOWN_TOPIC_OR_PARTITION or TOPIC_AUTHORIZATION_FAILED
    error: int = ErrorCode.NO_ERROR
    leaderless: set[int] = field(default_factory=set)
    #: how often it was created again
    generation: int = 0
    #: how many partitions the client's latest answer names; None: it has none
    known_partitions: int | None = None
    #: the client refuses records with it until the next answer
    known_error: int = ErrorCode.NO_ERROR
    #: by generation and partition
    log: defaultdict[tuple[int, int], Batch] = field(default_factory=lambda: defaultdict(list))

    @property
    def settings(self) -> dict[str, str]:
        """As an answer about its configuration says them."""
        settings = {"max.message.bytes": str(self.max_batch_bytes)}
        if self.is_compacted:
            settings["cleanup.policy"] = "compact"
        if self.rejects_old:
            settings["message.timestamp.before.max.ms"] = "86400000"
        return settings

    def judge(self, batch: Batch, partition: int) -> list[int]:
        """Store the batch, or reject all of it; the error code of each record."""
        codes = [self.error] * len(batch) if self.error else self._verdict(batch)
        if not any(codes):
            self.log[self.generation, partition] += batch
        return codes

    def accepts(self, record: QueuedRecord) -> bool:
        """Whether it is stored if it is alone in its batch."""
        return not any(self._verdict([record]))

    def _verdict(self, batch: Batch) -> list[int]:
        if batch_bytes(batch) > self.max_batch_bytes:
            return [ErrorCode.MSG_SIZE_TOO_LARGE] * len(batch)
        if self.rejects_old and any(record.is_old for record in batch):
            return [ErrorCode.INVALID_TIMESTAMP] * len(batch)
        if self.is_compacted and any(record.key is None for record in batch):
            bad = others = ErrorCode.INVALID_RECORD
            if self.names_records:
                others = ErrorCode.INVALID_DIFFERENT_RECORD
            return [bad if record.key is None else others for record in batch]
        return [ErrorCode.NO_ERROR] * len(batch)


class StrictClient:
    """A ``ProducerClient``."""

    def __init__(
        self,
        topics: Mapping[str, StrictTopic],
        random: Random,
        max_batch_bytes: int,
        max_record_bytes: int,
    ) -> None:
        self.topics = topics
        #: requests without an answer
        self.asked: list[tuple[str, ...]] = []
        self.asked_configurations: list[str] = []
        #: called with each record that the client gets, and its topic
        self.on_record: Callable[[str, QueuedRecord], None] = lambda *_: None
        #: called with each record that the client refuses, and the code
        self.on_refusal: Callable[[str, QueuedRecord, int], None] = lambda *_: None
        #: called with records that are reported as failed, their codes, and whether they may be
        #: stored all the same
        self.on_failure: Callable[[str, Batch, Sequence[int], bool], None] = lambda *_: None
        self._random = random
        self._max_batch_bytes = max_batch_bytes
        self._max_record_bytes = max_record_bytes
        self._events: list[AcknowledgedRecords | FailedRecords] = []
        self._queues: defaultdict[Place, deque[QueuedRecord]] = defaultdict(deque)
        self._unassigned: defaultdict[str, deque[tuple[int, QueuedRecord]]] = defaultdict(deque)
        self._in_flight: defaultdict[Place, deque[Batch]] = defaultdict(deque)
        #: batches that are sent again, before all others
        self._again: defaultdict[Place, deque[Batch]] = defaultdict(deque)
        self._held: set[Place] = set()
        self._unreported: Counter[str] = Counter()
        self._topic_of: dict[int, str] = {}

    # --- what the engine calls -------------------------------------------------------------------

    @property
    def has_bootstrapped(self) -> bool:
        return True

    def describe_cluster(self, timeout_seconds: float) -> None:
        del timeout_seconds

    def open_topic(self, name: str) -> int:
        del name
        return 1

    def describe_topics(self, topics: Sequence[str], timeout_seconds: float) -> None:
        del timeout_seconds
        self.asked.append(tuple(topics))

    def describe_topic_configs(self, topics: Sequence[str], timeout_seconds: float) -> None:
        del timeout_seconds
        self.asked_configurations += topics

    def fatal_error(self) -> None:
        """None: nothing makes it unusable."""

    def has_unreported(self, topic: str) -> bool:
        return bool(self._unreported[topic])

    def poll(self) -> Iterator[AcknowledgedRecords | FailedRecords]:
        """As the real client's, reports on all of these count before the first one is handled."""
        events, self._events = self._events, []
        for event in events:
            if isinstance(event, FailedRecords):
                self._unreported[self._topic_of[event.send_id]] -= event.count
            else:
                for send_id, count in event.counts_by_send().items():
                    self._unreported[self._topic_of[send_id]] -= count
        yield from events

    @contextmanager
    def paused(self, topic: str, partitions: Sequence[int]) -> Iterator[None]:
        held = {(topic, partition) for partition in partitions}
        assert not held & self._held
        self._held |= held
        yield
        self._held -= held

    def enqueue(self, partitioned: PartitionedRecords, send_id: int) -> list[Rejection]:
        topic = partitioned.records.topic
        state = self.topics[topic]
        self._topic_of[send_id] = topic
        rejections: list[Rejection] = []
        is_detailed, missing = _is_detailed(partitioned), 0
        for record, by_sink in _queued(partitioned, send_id):
            self.on_record(topic, record)
            partition = self._choose(state, record, by_sink)
            code = self._refusal(state, partition)
            if record.size > self._max_record_bytes and (is_detailed or not code):
                code = ErrorCode.MSG_SIZE_TOO_LARGE
            code = missing or code
            if code:
                self.on_refusal(topic, record, code)
                rejections.append(Rejection(record.position, code))
                if code == ErrorCode.UNKNOWN_TOPIC and is_detailed:
                    missing = code  # the real one passes on no more records of the array
                continue
            self._unreported[topic] += 1
            if state.known_partitions is not None:
                self._queue(topic, partition, record)
                continue
            self._unassigned[topic].append((partition, record))
            if self._random.random() < 0.05 and not state.error:
                self.learn(topic)
        return rejections

    def purge(self) -> None:
        """Fail all records; the brokers may have stored those in flight."""
        for topic in list(self._unassigned):
            self._drop_unassigned(topic, ErrorCode.PURGE_QUEUE)
        for place in self.places:
            self._drop_queue(place, ErrorCode.PURGE_QUEUE)
            while self._in_flight[place]:
                self._lose(place, ErrorCode.PURGE_INFLIGHT)

    def _choose(self, state: StrictTopic, record: QueuedRecord, partition: int) -> int:
        """The partition that the sink has chosen, or that the client chooses once it can."""
        count = state.known_partitions
        if partition != UNASSIGNED or not count:
            return partition
        if record.key is None:
            return self._random.randrange(count)
        return key_partition(record.key, count)

    def _refusal(self, state: StrictTopic, partition: int) -> int:
        if state.known_error:
            return state.known_error
        if state.known_partitions is not None and partition >= state.known_partitions:
            return ErrorCode.UNKNOWN_PARTITION
        return ErrorCode.NO_ERROR

    # --- steps of the client ---------------------------------------------------------------------

    def learn(self, topic: str) -> None:
        """The client reads an answer about a topic, and assigns the records that wait for it."""
        state = self.topics[topic]
        before = state.known_partitions
        if state.error:
            # It waits for a topic that may only just have been created.
            if before is not None or self._random.random() < 0.3:
                self._learn_error(topic, state)
            return
        state.known_partitions, state.known_error = state.partitions, ErrorCode.NO_ERROR
        for partition in range(state.partitions, before or 0):
            self._drop_queue((topic, partition), ErrorCode.UNKNOWN_PARTITION)
        for by_sink, record in self._unassigned.pop(topic, deque()):
            partition = self._choose(state, record, by_sink)
            if partition < state.partitions:
                self._queue(topic, partition, record)
            else:
                self._fail((topic, partition), [record], [ErrorCode.UNKNOWN_PARTITION])

    def _learn_error(self, topic: str, state: StrictTopic) -> None:
        """The topic is missing, and the client no longer waits for it; or it is forbidden."""
        is_missing = state.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        code = ErrorCode.UNKNOWN_TOPIC if is_missing else state.error
        state.known_partitions, state.known_error = 0, code
        for place in self.places:
            if place[0] == topic:
                self._drop_queue(place, ErrorCode.UNKNOWN_PARTITION if is_missing else code)
        self._drop_unassigned(topic, code)

    def _queue(self, topic: str, partition: int, record: QueuedRecord) -> None:
        self._queues[topic, partition].append(record)
        if self._random.random() < 0.2:  # linger.ms has passed
            self.transmit(topic, partition)

    def transmit(self, topic: str, partition: int) -> None:
        """Send a batch, if the partition is not held, and fewer than five are in flight."""
        place = topic, partition
        queue, in_flight = self._queues[place], self._in_flight[place]
        if place in self._held or len(in_flight) == _IN_FLIGHT:
            return
        if self._again[place]:
            in_flight.append(self._again[place].popleft())
        elif queue:
            batch = [queue.popleft()]
            while queue and batch_bytes([*batch, queue[0]]) <= self._max_batch_bytes:
                batch.append(queue.popleft())
            in_flight.append(batch)

    def time_out(self, topic: str, partition: int) -> None:
        """The client gives up a batch in flight, which the brokers may have stored."""
        if self._in_flight[topic, partition]:
            self._lose((topic, partition), ErrorCode.MSG_TIMED_OUT)

    # --- steps of the brokers --------------------------------------------------------------------

    def answer(self, topic: str, partition: int) -> None:
        """The brokers judge the oldest batch of the partition."""
        place, state = (topic, partition), self.topics[topic]
        if not self._in_flight[place]:
            return
        is_gone = state.error == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_gone or partition >= state.partitions or partition in state.leaderless:
            self._send_again(place)
            return
        batch = self._in_flight[place].popleft()
        codes = state.judge(batch, partition)
        if codes[0] == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            state.known_error = codes[0]
        self._report(place, batch, codes)

    def _send_again(self, place: Place) -> None:
        """The leader is another one, or none. Meanwhile the partition itself may have gone.

        If so, they are dropped, and it may be that only their answers were lost.
        """
        known = self.topics[place[0]].known_partitions
        is_gone = known is not None and place[1] >= known
        while is_gone and self._in_flight[place] and self._random.random() < 0.5:
            self._lose(place, ErrorCode.UNKNOWN_PARTITION)
        self._again[place].extendleft(reversed(self._in_flight.pop(place)))
        if is_gone:
            self._drop_queue(place, ErrorCode.UNKNOWN_PARTITION)

    # --- reports ---------------------------------------------------------------------------------

    def _drop_queue(self, place: Place, code: int) -> None:
        again, queue = self._again.pop(place, deque()), self._queues.pop(place, deque())
        records = [record for batch in again for record in batch] + list(queue)
        if records:
            self._fail(place, records, [code] * len(records))

    def _drop_unassigned(self, topic: str, code: int) -> None:
        for partition, record in self._unassigned.pop(topic, deque()):
            self._fail((topic, partition), [record], [code])

    def _lose(self, place: Place, code: int) -> None:
        batch = self._in_flight[place].popleft()
        if self._random.random() < 0.5:
            self.topics[place[0]].judge(batch, place[1])
        self._fail(place, batch, [code] * len(batch), possibly_persisted=True)

    def _report(self, place: Place, batch: Batch, codes: Sequence[int]) -> None:
        if any(codes):
            self._fail(place, batch, codes)
            return
        for send_id, count in Counter(record.send_id for record in batch).items():
            columns = (np.array([number]) for number in (send_id, place[1], count))
            self._events.append(AcknowledgedRecords(*columns))

    def _fail(
        self,
        place: Place,
        records: Batch,
        codes: Sequence[int],
        *,
        possibly_persisted: bool = False,
    ) -> None:
        self.on_failure(place[0], records, codes, possibly_persisted)
        groups: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        is_named = ErrorCode.INVALID_DIFFERENT_RECORD in codes
        for record, code in zip(records, codes, strict=True):
            groups[record.send_id, code].append(record.position)
        for (send_id, code), positions in groups.items():
            known = tuple(sorted(positions)) if code in REJECTIONS else ()
            failed = FailedRecords(
                send_id, place[1], code, possibly_persisted, len(positions), known
            )
            is_bad = is_named and code != ErrorCode.INVALID_DIFFERENT_RECORD
            self._events.append(replace(failed, is_named=is_bad))

    @property
    def places(self) -> list[Place]:
        """The topics and partitions with records."""
        used = (self._queues, self._in_flight, self._again)
        return sorted({place for places in used for place, records in places.items() if records})


def _queued(partitioned: PartitionedRecords, send_id: int) -> Iterator[tuple[QueuedRecord, int]]:
    """The records, and the partition that the sink has chosen for each."""
    records = partitioned.records
    partitions = np.repeat(partitioned.partitions, np.diff(partitioned.starts))
    sizes, keys, times = record_bytes(records), records.keys, records.timestamps_ms
    for number, position in enumerate(partitioned.positions.tolist()):
        key = None
        if keys is not None and keys.addresses[number]:
            key = ctypes.string_at(int(keys.addresses[number]), int(keys.lengths[number]))
        column = None if records.partitions is None else int(records.partitions[number])
        column = None if column == UNASSIGNED else column
        partition = int(partitions[number])
        if partition == UNASSIGNED and column is not None:
            partition = column
        is_old = times is not None and 0 < times[number] < _OLD_MS
        size = int(sizes[number])
        yield QueuedRecord(send_id, position, size, key, column, is_old), partition


def _is_detailed(partitioned: PartitionedRecords) -> bool:
    """Whether the records are passed to librdkafka one by one."""
    records = partitioned.records
    is_left = partitioned.partitions[0] == UNASSIGNED and records.partitions is not None
    return records.headers is not None or records.timestamps_ms is not None or is_left


def batch_bytes(records: Sequence[QueuedRecord]) -> int:
    return BATCH_OVERHEAD_BYTES + sum(record.size for record in records)


_key_partition = c.prototype(
    "rd_kafka_msg_partitioner_murmur2",
    ctypes.c_int32,
    *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int32),
    *(ctypes.c_void_p, ctypes.c_void_p),
)


@cache
def key_partition(key: bytes, partitions: int) -> int:
    """As Java's default partitioner chooses it, by librdkafka."""
    return int(_key_partition(None, key, len(key), partitions, None, None))
