"""[task] The sends with records that are not reported yet, and the report on those that are."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.config.producer_options import BYTES_PER_RECORD
from spark_kafka_sink.deadline import Clock
from spark_kafka_sink.librdkafka.error_codes import PURGE_ERRORS, ErrorCode
from spark_kafka_sink.librdkafka.events import AcknowledgedRecords, FailedRecords, Statistics
from spark_kafka_sink.librdkafka.messages import MessageBatch
from spark_kafka_sink.names import is_topic_name
from spark_kafka_sink.records.column_table import TIMESTAMP
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import UNASSIGNED
from spark_kafka_sink.records.rejection import RejectedRecords
from spark_kafka_sink.report.delivery_report import DeliveryReport, ReportBuilder
from spark_kafka_sink.report.figures import FORBIDDEN_NAMES, smallest


@dataclass(frozen=True)
class TooLarge:
    """``count`` records that were rejected for their size; ``limit_bytes`` None: not known.

    ``batch_bytes``, uncompressed: of the largest record in a batch of its own; with ``is_batch``,
    of the whole batch.
    """

    count: int
    batch_bytes: int
    limit_bytes: int | None
    is_batch: bool


@dataclass
class Delivery:
    """The state of the records of one send.

    ``failed`` counts records by partition (-1: not assigned yet) and error code.
    """

    delivery_id: int
    topic: str
    #: how many of the records the buffer accepted
    accepted: int = 0
    #: no more records will be accepted (Java: ``ProducerBatch.closeForRecordAppends``)
    is_closed: bool = False
    acknowledged: int = 0
    failed: Counter[tuple[int, int]] = field(default_factory=Counter)
    #: records that are dead letters now
    rejected: int = 0
    #: the rows of those with timestamps
    rejected_rows: list[npt.NDArray[np.int64]] = field(default_factory=list)
    #: about the first error; which row its dead letter is for, if it is one
    too_large: TooLarge | None = None
    dead_letter: str = ""

    @property
    def total_failed(self) -> int:
        return self.failed.total()

    @property
    def outstanding(self) -> int:
        """Records accepted, but not yet acknowledged, failed or made into dead letters."""
        return self.accepted - self.acknowledged - self.total_failed - self.rejected

    @property
    def is_complete(self) -> bool:
        return self.is_closed and self.outstanding == 0

    @property
    def first_error(self) -> tuple[int, int]:
        """Partition and code of the first error; only if a record failed."""
        return next(iter(self.failed))

    @property
    def was_purged(self) -> bool:
        """Whether records failed only because the producer was closed."""
        return bool(self.failed) and all(code in PURGE_ERRORS for _, code in self.failed)


class IncompleteDeliveries:
    """Deliveries until they are complete (Java: ``IncompleteBatches``); counts every record.

    ``limit_bytes`` bounds the memory that incomplete deliveries keep alive: their Arrow batches in
    full, what their records have of their own, and ``BYTES_PER_RECORD`` per record. Only the thread
    with exclusive access may change anything; any thread may read.
    """

    def __init__(self, limit_bytes: int, clock: Clock = time.monotonic) -> None:
        self._limit_bytes = limit_bytes
        self._clock = clock
        #: when the first delivery of the current report began
        self._began_at: float | None = None
        #: requests that the client repeated since its creation: until now; until the last report
        self._retried_requests = self._retried_before = 0
        self._ids = count(1)
        self._incomplete: dict[int, Delivery] = {}
        #: delivery id -> its records, from admission until it is complete
        self._admitted: dict[int, RecordColumns] = {}
        #: id of an Arrow batch -> how many admitted deliveries have records in it
        self._batches: Counter[int] = Counter()
        self._buffered_bytes = 0
        #: how many incomplete deliveries each topic has
        self.topics: Counter[str] = Counter()
        self.report = ReportBuilder()
        self.first_failed: Delivery | None = None
        #: records acknowledged so far, of all deliveries; shows whether there is progress
        self.acknowledged = 0

    def __bool__(self) -> bool:
        return bool(self._incomplete)

    def begin(self, topic: str) -> Delivery:
        """Start a delivery, which has accepted no records yet."""
        if self._began_at is None:
            self._began_at = self._clock()
        delivery = Delivery(next(self._ids), topic)
        self._incomplete[delivery.delivery_id] = delivery
        self.topics[topic] += 1
        return delivery

    def admit(self, delivery: Delivery, records: RecordColumns) -> bool:
        """Admit the records if there is memory for them; returns whether they are admitted."""
        if delivery.delivery_id in self._admitted:
            return True
        if not self._has_room(records):
            return False
        self.admit_anyway(delivery, records)
        return True

    def admit_anyway(self, delivery: Delivery, records: RecordColumns) -> None:
        """Admit records whose Arrow batch is buffered already."""
        self._buffered_bytes += self._additional_bytes(records)
        self.report.buffer_peak_bytes = max(self.report.buffer_peak_bytes, self._buffered_bytes)
        self._batches[id(records.batch)] += 1
        self._admitted[delivery.delivery_id] = records

    def close(self, delivery: Delivery, sent_bytes: int = 0) -> None:
        """End the delivery's send: no more records will be accepted. ``sent_bytes``: of those."""
        if delivery.is_closed:
            return
        delivery.is_closed = True
        self.report.sent_records[delivery.topic] += delivery.accepted
        self.report.sent_bytes_by_topic[delivery.topic] += sent_bytes
        self._complete(delivery)

    def close_all(self) -> None:
        """End all sends: the producer is closing."""
        for delivery in list(self._incomplete.values()):
            self.close(delivery)

    def find(self, delivery_id: int) -> Delivery | None:
        """The delivery, if it is incomplete."""
        return self._incomplete.get(delivery_id)

    def records(self, failed: FailedRecords) -> RecordColumns:
        """The failed records themselves, of an incomplete delivery."""
        return self._admitted[failed.delivery_id].take(np.array(failed.positions, dtype=np.int64))

    def reject(self, delivery: Delivery, rejected: RejectedRecords) -> None:
        """Count records of the delivery that are dead letters now."""
        delivery.rejected += len(rejected.records)
        if rejected.records.timestamps_ms is not None:
            delivery.rejected_rows.append(rejected.records.rows)
        self.report.sent_records[delivery.topic] -= len(rejected.records)
        self.report.sent_bytes_by_topic[delivery.topic] -= rejected.records.total_bytes
        self.count_dead_letters(rejected)
        self._complete(delivery)

    def count_dead_letters(self, rejected: RejectedRecords) -> None:
        topic = (rejected.topic or b"").decode(errors="backslashreplace")
        if rejected.topic is not None and not is_topic_name(topic):
            topic = FORBIDDEN_NAMES  # there may be as many as rows
        self.report.dead_letters[topic, rejected.error] += len(rejected.records)

    def acknowledge(self, acknowledged: AcknowledgedRecords) -> Iterable[str]:
        """Count acknowledged records of incomplete deliveries; returns their topics."""
        ids_by_topic: defaultdict[str, list[int]] = defaultdict(list)
        deliveries = []
        for delivery_id, number in acknowledged.counts_by_delivery().items():
            delivery = self.find(delivery_id)
            if delivery is not None:
                delivery.acknowledged += number
                self.acknowledged += number
                ids_by_topic[delivery.topic].append(delivery_id)
                deliveries.append(delivery)
        for topic, ids in ids_by_topic.items():
            for partition, number in acknowledged.counts_by_partition(ids).items():
                self.report.acknowledged_records[topic, partition] += number
        is_first = self.report.first_acknowledgement_seconds is None
        if is_first and ids_by_topic and self._began_at is not None:
            self.report.first_acknowledgement_seconds = self._clock() - self._began_at
        # Last: another thread may read the report of complete deliveries.
        for delivery in deliveries:
            self._complete(delivery)
        return ids_by_topic

    def fail(
        self, delivery: Delivery, failed: FailedRecords, too_large: TooLarge | None = None
    ) -> None:
        """Count failed records of an incomplete delivery."""
        if not delivery.failed:
            delivery.too_large = too_large
        delivery.failed[failed.partition, failed.code] += failed.count
        self.first_failed = self.first_failed or delivery
        self.report.failed_records[delivery.topic, failed.partition, failed.code] += failed.count
        if failed.possibly_persisted:
            self.report.possibly_persisted_records += failed.count
        elif failed.code in PURGE_ERRORS:
            self.report.unsent_records += failed.count
        self._complete(delivery)

    def note(self, statistics: Statistics) -> None:
        """Add the client's statistics to the report."""
        self._retried_requests = statistics.retried_requests
        self.report.retried_requests = statistics.retried_requests - self._retried_before
        if statistics.round_trip_ms is not None:
            self.report.round_trip_ms = statistics.round_trip_ms

    def outstanding(self) -> Iterator[FailedRecords]:
        """Reports that fail the outstanding records, one per delivery."""
        for delivery in self._incomplete.values():
            if outstanding := delivery.outstanding:
                code = ErrorCode.PURGE_INFLIGHT
                yield FailedRecords(delivery.delivery_id, UNASSIGNED, code, True, outstanding)

    def collect_report(self) -> DeliveryReport:
        """The report of what happened since the last call; the next one begins empty."""
        report = self.report.build(buffer_memory_bytes=self._limit_bytes)
        self.report = ReportBuilder()
        self._retried_before = self._retried_requests
        self.first_failed = self._began_at = None
        return report

    def _complete(self, delivery: Delivery) -> None:
        if not delivery.is_complete or delivery.delivery_id not in self._incomplete:
            return
        records = self._admitted.pop(delivery.delivery_id, None)
        if records is not None:
            self._note_oldest_timestamp(delivery, records)
        del self._incomplete[delivery.delivery_id]
        self.topics[delivery.topic] -= 1
        if not self.topics[delivery.topic]:
            del self.topics[delivery.topic]
        if records is not None:
            self._batches[id(records.batch)] -= 1
            if not self._batches[id(records.batch)]:
                del self._batches[id(records.batch)]
            self._buffered_bytes -= self._additional_bytes(records)

    def _note_oldest_timestamp(self, delivery: Delivery, records: RecordColumns) -> None:
        """Report the oldest timestamp of a complete delivery; a failed one fails its task."""
        times = records.timestamps_ms
        if times is None or delivery.failed:
            return
        is_written = times != TIMESTAMP.if_null
        if delivery.rejected_rows:
            is_written &= ~np.isin(records.rows, np.concatenate(delivery.rejected_rows))
        if is_written.any():
            oldest_ms = int(times[is_written].min())
            self.report.oldest_timestamp_ms = smallest(self.report.oldest_timestamp_ms, oldest_ms)

    def _has_room(self, records: RecordColumns) -> bool:
        """True if the records fit, or if only their own Arrow batch is buffered."""
        if not self._batches.keys() - {id(records.batch)}:
            return True
        return self._buffered_bytes + self._additional_bytes(records) <= self._limit_bytes

    def _additional_bytes(self, records: RecordColumns) -> int:
        """The bytes that these records add; an Arrow batch counts once for all its deliveries."""
        is_new = id(records.batch) not in self._batches
        own_bytes = records.own_bytes + len(records) * BYTES_PER_RECORD
        return own_bytes + (records.batch_bytes if is_new else 0)


@dataclass
class SendRequest:
    """The records of one send, or some of them, on their way to the client.

    Several requests may belong to one delivery: the parts of its records.
    """

    delivery: Delivery
    records: RecordColumns
    #: the client's form of the records, once the partitions are known
    messages: MessageBatch | None = None
    #: records that are not in ``messages``, because brokers would reject them
    excluded: int = 0
    #: the most bytes that one partition gets of it; 0: not computed, as its topic's state is OPEN
    batch_bytes: int = 0

    @property
    def is_accepted(self) -> bool:
        return self.delivery.accepted == len(self.records)

    @property
    def enqueued(self) -> int:
        """How many of the records were excluded, or have been accepted by the client."""
        return self.excluded + (0 if self.messages is None else self.messages.enqueued)

    @property
    def is_enqueued(self) -> bool:
        return self.enqueued == len(self.records)

    @property
    def order(self) -> tuple[int, int]:
        """Where the request belongs among others: by send, by first position within a send."""
        return self.delivery.delivery_id, int(self.remaining[0])

    @property
    def remaining(self) -> npt.NDArray[np.int64]:
        """The positions in the send of records that the client has not accepted yet."""
        if self.messages is None:
            return np.arange(self.excluded, len(self.records), dtype=np.int64)
        return self.messages.partitioned.positions[self.messages.enqueued :]
