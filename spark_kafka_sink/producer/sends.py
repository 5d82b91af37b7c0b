"""[both] The sends with records that are not reported yet, and the report on those that are."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.config.producer_options import BYTES_PER_RECORD
from spark_kafka_sink.deadline import Clock
from spark_kafka_sink.librdkafka.error_codes import PURGE_ERRORS, ErrorCode
from spark_kafka_sink.librdkafka.events import AcknowledgedRecords, FailedRecords, Statistics
from spark_kafka_sink.names import is_topic_name
from spark_kafka_sink.records.column_table import TIMESTAMP
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import UNASSIGNED
from spark_kafka_sink.records.rejection import RejectedRecords
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.report.figures import FORBIDDEN_NAMES, smallest


@dataclass(frozen=True)
class TooLarge:
    """``count`` records that were rejected for their size; ``limit_bytes`` None: not known.

    ``batch_bytes``, uncompressed: of the largest record in a batch of its own; with ``is_batch``,
    of the whole batch. ``limit``: the name of the setting.
    """

    count: int
    batch_bytes: int
    limit: str
    limit_bytes: int | None
    is_batch: bool


@dataclass
class Send:
    """What has become of the records that the caller gave to one ``send``.

    ``failed`` counts records by partition (-1: not assigned yet) and error code.
    """

    send_id: int
    topic: str
    count: int
    acknowledged: int = 0
    failed: Counter[tuple[int, int]] = field(default_factory=Counter)
    #: records that are dead letters now
    dead_letters: int = 0
    #: the rows of those with timestamps
    dead_letter_rows: list[npt.NDArray[np.int64]] = field(default_factory=list)
    #: about the first error, if that is one of size
    too_large: TooLarge | None = None
    #: if the records are dead letters themselves: the row of the first that failed, and its reason
    dead_letter: str = ""

    @property
    def total_failed(self) -> int:
        return self.failed.total()

    @property
    def outstanding(self) -> int:
        """Records that are not yet acknowledged, failed or made into dead letters."""
        return self.count - self.acknowledged - self.total_failed - self.dead_letters

    @property
    def is_complete(self) -> bool:
        return self.outstanding == 0

    @property
    def first_error(self) -> tuple[int, int]:
        """Partition and code of the first error; only if a record failed."""
        return next(iter(self.failed))

    @property
    def was_purged(self) -> bool:
        """Whether records failed only because the producer was closed."""
        return bool(self.failed) and all(code in PURGE_ERRORS for _, code in self.failed)


class IncompleteSends:
    """Sends until they are complete (Java: ``IncompleteBatches``); counts every record.

    ``limit_bytes`` bounds the memory that incomplete sends keep alive: their Arrow batches in full,
    what their records have of their own, and ``BYTES_PER_RECORD`` per record. Dead letters of
    admitted records come on top. Only the thread with exclusive access may change anything; any
    thread may read.
    """

    def __init__(self, limit_bytes: int, clock: Clock = time.monotonic) -> None:
        self.limit_bytes = limit_bytes
        self._clock = clock
        #: when the first send of the current report began
        self._began_at: float | None = None
        #: requests that the client has repeated since its creation
        self._retried_requests = 0
        #: those until the last report
        self._retried_before = 0
        self._ids = count(1)
        self._incomplete: dict[int, Send] = {}
        #: by send
        self._records: dict[int, RecordColumns] = {}
        #: id of an Arrow batch -> how many incomplete sends have records in it
        self._sends_by_arrow_batch: Counter[int] = Counter()
        self._buffered_bytes = 0
        #: how many incomplete sends each topic has
        self.topics: Counter[str] = Counter()
        #: only the thread with exclusive access may change it; any thread may read it
        self.report = DeliveryReport()
        self.first_failed: Send | None = None
        #: records acknowledged so far, of all sends; shows whether there is progress
        self.acknowledged = 0

    def __bool__(self) -> bool:
        return bool(self._incomplete)

    def admit(self, records: RecordColumns) -> Send | None:
        """Begin a send if there is memory for all of its records, else None."""
        return self.admit_unbounded(records) if self._has_room(records) else None

    def admit_unbounded(self, records: RecordColumns) -> Send:
        """Begin a send, whether there is room or not; as dead letters do."""
        if self._began_at is None:
            self._began_at = self._clock()
        send = Send(next(self._ids), records.topic, len(records))
        self.report.sent_records[send.topic] += send.count
        self.report.sent_bytes_by_topic[send.topic] += records.total_bytes
        if send.is_complete:
            return send  # it has no records
        self._buffered_bytes += self._additional_bytes(records)
        self.report.buffer_peak_bytes = max(self.report.buffer_peak_bytes, self._buffered_bytes)
        self._sends_by_arrow_batch[id(records.arrow_batch)] += 1
        self._records[send.send_id] = records
        self._incomplete[send.send_id] = send
        self.topics[send.topic] += 1
        return send

    def find(self, send_id: int) -> Send | None:
        """The send, if it is incomplete."""
        return self._incomplete.get(send_id)

    def records(self, failed: FailedRecords) -> RecordColumns:
        """The failed records themselves, of an incomplete send."""
        return self._records[failed.send_id].take(np.array(failed.positions, dtype=np.int64))

    def replace_by_dead_letters(self, send: Send, rejected: RejectedRecords) -> None:
        """Count records of the send as dead letters; they no longer count as sent."""
        send.dead_letters += len(rejected.records)
        if rejected.records.timestamps_ms is not None:
            send.dead_letter_rows.append(rejected.records.rows)
        self.report.sent_records[send.topic] -= len(rejected.records)
        self.report.sent_bytes_by_topic[send.topic] -= rejected.records.total_bytes
        self.count_dead_letters(rejected)
        self._remove_if_complete(send)

    def count_dead_letters(self, rejected: RejectedRecords) -> None:
        """Report rows or records that are dead letters now."""
        topic = (rejected.topic or b"").decode(errors="backslashreplace")
        if rejected.topic is not None and not is_topic_name(topic):
            topic = FORBIDDEN_NAMES  # there may be as many as rows
        self.report.dead_letters[topic, rejected.error] += len(rejected.records)

    def acknowledge(self, acknowledged: AcknowledgedRecords) -> Iterable[str]:
        """Count acknowledged records of incomplete sends; returns their topics."""
        ids_by_topic: defaultdict[str, list[int]] = defaultdict(list)
        sends = []
        for send_id, number in acknowledged.counts_by_send().items():
            send = self.find(send_id)
            if send is not None:
                send.acknowledged += number
                self.acknowledged += number
                ids_by_topic[send.topic].append(send_id)
                sends.append(send)
        for topic, ids in ids_by_topic.items():
            for partition, number in acknowledged.counts_by_partition(ids).items():
                self.report.acknowledged_records[topic, partition] += number
        is_first = self.report.first_acknowledgement_seconds is None
        if is_first and ids_by_topic and self._began_at is not None:
            self.report.first_acknowledgement_seconds = self._clock() - self._began_at
        # Last: another thread may read the report of complete sends.
        for send in sends:
            self._remove_if_complete(send)
        return ids_by_topic

    def fail(self, send: Send, failed: FailedRecords, too_large: TooLarge | None = None) -> None:
        """Count failed records of an incomplete send."""
        if not send.failed:
            send.too_large = too_large
        send.failed[failed.partition, failed.code] += failed.count
        self.first_failed = self.first_failed or send
        self.report.failed_records[send.topic, failed.partition, failed.code] += failed.count
        if failed.possibly_persisted:
            self.report.possibly_persisted_records += failed.count
        elif failed.code in PURGE_ERRORS:
            self.report.unsent_records += failed.count
        self._remove_if_complete(send)

    def update_statistics(self, statistics: Statistics) -> None:
        """Add the client's statistics to the report."""
        self._retried_requests = statistics.retried_requests
        self.report.retried_requests = statistics.retried_requests - self._retried_before
        if statistics.round_trip_ms is not None:
            self.report.round_trip_ms = statistics.round_trip_ms

    def outstanding(self) -> list[FailedRecords]:
        """Reports that fail the outstanding records, one per send."""
        return [
            FailedRecords(
                send.send_id,
                UNASSIGNED,
                ErrorCode.PURGE_INFLIGHT,
                possibly_persisted=True,
                count=send.outstanding,
            )
            for send in self._incomplete.values()
        ]

    def collect_report(self) -> DeliveryReport:
        """The report of what happened since the last call; the next one begins empty."""
        report, self.report = self.report, DeliveryReport()
        report.buffer_memory_bytes, report.ended_at = self.limit_bytes, self.report.ended_at
        self._retried_before = self._retried_requests
        self.first_failed = self._began_at = None
        return report

    def _remove_if_complete(self, send: Send) -> None:
        if not send.is_complete or send.send_id not in self._incomplete:
            return
        records = self._records.pop(send.send_id)
        self._note_oldest_timestamp(send, records)
        del self._incomplete[send.send_id]
        self.topics[send.topic] -= 1
        if not self.topics[send.topic]:
            del self.topics[send.topic]
        self._sends_by_arrow_batch[id(records.arrow_batch)] -= 1
        if not self._sends_by_arrow_batch[id(records.arrow_batch)]:
            del self._sends_by_arrow_batch[id(records.arrow_batch)]
        # Last: it depends on whether other sends have records in the Arrow batch.
        self._buffered_bytes -= self._additional_bytes(records)

    def _note_oldest_timestamp(self, send: Send, records: RecordColumns) -> None:
        """Report the oldest timestamp of a complete send; a failed one fails its task."""
        times = records.timestamps_ms
        if times is None or send.failed:
            return
        is_written = times != TIMESTAMP.if_null
        if send.dead_letter_rows:
            is_written &= ~np.isin(records.rows, np.concatenate(send.dead_letter_rows))
        if is_written.any():
            oldest_ms = int(times[is_written].min())
            self.report.oldest_timestamp_ms = smallest(self.report.oldest_timestamp_ms, oldest_ms)

    def _has_room(self, records: RecordColumns) -> bool:
        """True if the records fit, or if only their own Arrow batch is buffered."""
        if not self._sends_by_arrow_batch.keys() - {id(records.arrow_batch)}:
            return True
        return self._buffered_bytes + self._additional_bytes(records) <= self.limit_bytes

    def _additional_bytes(self, records: RecordColumns) -> int:
        """The bytes that these records add; an Arrow batch counts once for all its sends."""
        is_new = id(records.arrow_batch) not in self._sends_by_arrow_batch
        own_bytes = records.own_bytes + len(records) * BYTES_PER_RECORD
        return own_bytes + (records.arrow_batch_bytes if is_new else 0)
