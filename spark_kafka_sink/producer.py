"""NonBlockingProducer: prefetch, send, flush, close; each wait has a deadline (KIP-286, KIP-15)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping
from itertools import count

from spark_kafka_sink.block_budget import BlockBudget
from spark_kafka_sink.deadline import Clock, Deadline
from spark_kafka_sink.delivery import Delivery
from spark_kafka_sink.delivery_report import DeliveryReport
from spark_kafka_sink.errors import (
    DeliveryFailed,
    InvalidOption,
    ProducerClosed,
    TopicUnavailable,
)
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.events import (
    BrokerError,
    ReportedRows,
    RequestFailed,
    TopicAnswer,
)
from spark_kafka_sink.librdkafka.messages import DetailedRows, PlainRows
from spark_kafka_sink.producer_errors import (
    FINAL_TOPIC_ERRORS,
    UNKNOWN_TOPIC_OR_PARTITION,
    buffer_exhausted,
    deadline_exceeded,
    delivery_failed,
    metadata_timeout,
    topic_unavailable,
)
from spark_kafka_sink.record_columns import RecordColumns
from spark_kafka_sink.topic_metadata import TopicMetadata

_log = logging.getLogger("spark_kafka_sink")

# Room in the buffer, reports and a close by another thread are looked for this often.
_POLL_SECONDS = 0.005
_REPORT_SECONDS = 0.02
_FLUSH_SECONDS = 0.001
# How long reports of rows that were given up may take, and the client's own end.
_COLLECT_SECONDS = 0.5
_FREE_SECONDS = 0.5

# Every row that waits costs librdkafka about this much beside its key and value, so that small
# rows are bounded by their number.
_BYTES_PER_ROW = 256

_MAX_PROPAGATION_MS = 3_600_000
_PURGED_IN_FLIGHT = -151
_PURGED_UNSENT = -152
_UNASSIGNED = -1


class NonBlockingProducer:
    """Sends rows to Kafka in the background.

    One thread sends; ``close`` may be called from any. ``settings``: librdkafka's.
    ``buffer_memory_bytes``: of rows that may wait, all topics together.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        buffer_memory_bytes: int,
        budget: BlockBudget,
        clock: Clock = time.monotonic,
    ) -> None:
        self._budget = budget
        self._clock = clock
        # librdkafka would give up rows of missing topics by itself; ours comes first, by name.
        propagation_ms = min(_MAX_PROPAGATION_MS, int(budget.metadata_seconds * 1000) + 10_000)
        try:
            self._client = Client(
                {
                    **settings,
                    "queue.buffering.max.kbytes": str(max(1, buffer_memory_bytes // 1024)),
                    "queue.buffering.max.messages": str(
                        max(1, buffer_memory_bytes // _BYTES_PER_ROW)
                    ),
                    "topic.metadata.propagation.max.ms": str(propagation_ms),
                }
            )
        except ValueError as error:
            raise InvalidOption(f"the Kafka client refuses its settings: {error}") from None
        # guards everything below and every call of the client
        self._lock = threading.RLock()
        self._topics = TopicMetadata(clock)
        self._open: dict[int, Delivery] = {}
        self._first_failed: Delivery | None = None
        self._ids = count(1)
        self._report = DeliveryReport()
        self._is_freed = False
        self._free_after_event = False
        # Set without the lock, so that threads which wait with it see the close at once.
        self._closing = threading.Event()
        self._forced = threading.Event()
        self._event_thread: int | None = None  # while that thread handles events

    # --- sending ---------------------------------------------------------------------------------

    def prefetch(self, topics: Iterable[str]) -> None:
        """Fetch the topics' metadata in the background, all in one request. Never waits."""
        with self._lock:
            self._check_open()
            self._topics.mention(topics)
            self._ask_for_metadata()

    def send(self, records: RecordColumns) -> Delivery:
        """Copy records into the buffer, in order; wait only while it is full.

        The wait for room begins anew whenever a row went in, as if rows were sent one by one.
        Raises BufferExhausted if it lasts ``max.block.ms``: the first ``accepted_rows`` were
        taken and nothing else. Raises MetadataTimeout or TopicUnavailable if the topic is known
        to have none, ProducerClosed if the producer is closed, also meanwhile.
        """
        with self._lock:
            self._check_open()
            if self._closing.is_set():
                raise ProducerClosed("the producer is being closed")
            delivery = Delivery(next(self._ids), records.topic, self._look, self._wait_for)
            rows = self._client.prepare(records, delivery.delivery_id)
            self._open[delivery.delivery_id] = delivery
            if len(rows):
                self._topics.buffered(records.topic)
                self._ask_for_metadata()
        try:
            self._enqueue(rows, delivery)
        finally:
            with self._lock:
                self._report.sent_rows[records.topic] += delivery.rows
                self._report.sent_bytes += records.total_bytes
                delivery.is_sending = False
                self._settle(delivery)
        return delivery

    def _enqueue(self, rows: PlainRows | DetailedRows, delivery: Delivery) -> None:
        deadline = Deadline(self._budget.buffer_seconds, self._clock)
        while delivery.rows < len(rows):
            with self._lock:
                self._check_open()
                enqueued = self._client.enqueue(rows, delivery.rows)
                delivery.rows += enqueued.count
                for code in enqueued.rejected:
                    self._note(ReportedRows(delivery.delivery_id, _UNASSIGNED, code, False, 1))
                is_full = delivery.rows < len(rows)
                self._handle_events(deadline.slice(_POLL_SECONDS) if is_full else 0.0)
                self._check_topics(delivery.topic)
                if enqueued.count:
                    deadline = Deadline(self._budget.buffer_seconds, self._clock)
                elif deadline.expired:
                    raise buffer_exhausted(delivery, self._budget, self._trouble())

    # --- waiting ---------------------------------------------------------------------------------

    def flush(self, timeout_seconds: float) -> None:
        """Wait until every row was acknowledged or has failed.

        Raises DeliveryFailed as soon as a row failed, MetadataTimeout or TopicUnavailable if a
        topic with rows has no metadata in time, DeadlineExceeded after ``timeout_seconds``,
        ProducerClosed if the producer is closed meanwhile. Gives up nothing.
        """
        deadline = Deadline(timeout_seconds, self._clock)
        while True:
            with self._lock:
                self._check_open()
                self._push_out(deadline)
                if not self._open and self._first_failed is None:
                    return
                self.raise_failure()
                if deadline.expired:
                    raise deadline_exceeded(timeout_seconds, self._trouble())

    def _push_out(self, deadline: Deadline) -> None:
        """Let the client send without lingering, and take the first reports on what it sent."""
        # Its flush waits until all reports are taken, which only we can do: keep it short.
        self._client.flush(_FLUSH_SECONDS)
        if self._open:
            self._handle_events(deadline.slice(_REPORT_SECONDS))

    def raise_failure(self) -> None:
        """Raise what is known to have gone wrong with any row since ``take_report``.

        DeliveryFailed for failed rows; MetadataTimeout or TopicUnavailable for a topic.
        """
        with self._lock:
            if self._first_failed is not None:
                raise self._failure_of(self._first_failed)
            self._check_topics()

    def take_report(self) -> DeliveryReport:
        """What happened since the last call; the next report begins empty."""
        with self._lock:
            report, self._report = self._report, DeliveryReport()
            self._first_failed = None
            return report

    @property
    def is_idle(self) -> bool:
        """Whether it can be handed to another task: usable, and with nothing in its buffer."""
        with self._lock:
            if self._closing.is_set() or self._open or self._first_failed:
                return False
            return self._client.fatal_error() is None

    def _look(self) -> None:
        with self._lock:
            if not self._is_freed:
                self._handle_events(0.0)

    def _wait_for(self, delivery: Delivery, timeout_seconds: float) -> None:
        deadline = Deadline(timeout_seconds, self._clock)
        while True:
            with self._lock:
                if not delivery.is_settled and not self._is_freed:
                    self._handle_events(deadline.slice(_POLL_SECONDS))
                if delivery.failed_rows and delivery.is_settled:
                    raise self._failure_of(delivery)
                if delivery.is_settled:
                    return
                self._check_open()
                self._check_topics(delivery.topic)
                if deadline.expired:
                    raise deadline_exceeded(timeout_seconds, self._trouble())

    # --- the end ---------------------------------------------------------------------------------

    def close(self, timeout_seconds: float) -> bool:
        """Send what can be sent in time, fail the rest, free everything (KIP-15).

        0 fails at once what is left. A second call does nothing. From inside the handling of an
        event it logs an error and acts as 0. Threads that wait in ``send``, ``flush`` or
        ``result`` get ProducerClosed when rows are given up. Returns within a second of the
        timeout; True if by then everything was freed. Raises ValueError if it is negative.
        """
        if not timeout_seconds >= 0:
            raise ValueError(f"timeout_seconds must be 0 or more, not {timeout_seconds}")
        if self._event_thread == threading.get_ident():
            return self._close_in_event(timeout_seconds)
        self._closing.set()
        deadline = Deadline(timeout_seconds, self._clock)
        while not deadline.expired and not self._is_freed:
            with self._lock:
                if not self._open or self._is_freed:
                    break
                self._push_out(deadline)
        self._forced.set()
        with self._lock:
            if self._is_freed:
                return True
            self._give_up()
            return self._free()

    def _close_in_event(self, timeout_seconds: float) -> bool:
        """Fail what is left; the client itself is freed once it has left its own event."""
        _log.error(
            "close(%s) was called while handling an event of this producer, where waiting would "
            "never end; acting as close(0)",
            timeout_seconds,
        )
        if not self._forced.is_set():
            self._closing.set()
            self._forced.set()
            self._give_up()
            self._free_after_event = True
        return False

    def _free(self) -> bool:
        self._is_freed = True
        return self._client.close(Deadline(_FREE_SECONDS))

    def _give_up(self) -> None:
        """Fail all rows that are left, queued or in flight, and collect them."""
        self._client.purge()
        deadline = Deadline(_COLLECT_SECONDS, self._clock)
        while any(each.outstanding_rows for each in self._open.values()) and not deadline.expired:
            self._handle_events(deadline.slice(_POLL_SECONDS))
        for each in list(self._open.values()):  # whose reports did not come in time
            if left := each.outstanding_rows:
                report = ReportedRows(each.delivery_id, _UNASSIGNED, _PURGED_IN_FLIGHT, True, left)
                self._note(report)

    # --- events ----------------------------------------------------------------------------------

    def _handle_events(self, seconds: float) -> None:
        """Take the client's events; handlers of its log lines may call ``close``."""
        outer, self._event_thread = self._event_thread, threading.get_ident()
        try:
            events = self._client.poll(seconds)
        finally:
            self._event_thread = outer
        for event in events:
            if isinstance(event, ReportedRows):
                self._note(event)
            elif isinstance(event, TopicAnswer):
                self._topics.answered(event.topic, event.code)
            elif isinstance(event, RequestFailed):
                self._topics.unanswered()
            elif isinstance(event, BrokerError):
                self._report.broker_error = event.text
        if self._free_after_event and outer is None:
            self._free()
        if not self._is_freed:
            self._ask_for_metadata()

    def _ask_for_metadata(self) -> None:
        due = self._topics.take_due()
        if due:
            self._client.fetch_metadata(due, max(1.0, self._budget.metadata_seconds))

    def _note(self, report: ReportedRows) -> None:
        delivery = self._open.get(report.delivery_id)
        if delivery is None:
            return
        delivery.note(report)
        if report.code == 0:
            self._topics.answered(delivery.topic, 0)  # rows arrive: there is metadata
        else:
            self._first_failed = self._first_failed or delivery
            self._report.failed_rows[delivery.topic, report.partition, report.code] += report.count
            if report.may_have_arrived:
                self._report.unsure_rows += report.count
            elif report.code in (_PURGED_UNSENT, _PURGED_IN_FLIGHT):
                self._report.unsent_rows += report.count
        self._settle(delivery)

    def _settle(self, delivery: Delivery) -> None:
        if delivery.is_settled:
            self._open.pop(delivery.delivery_id, None)
        if not self._open:
            self._topics.settled()

    # --- what is raised --------------------------------------------------------------------------

    def _check_open(self) -> None:
        if self._is_freed or self._forced.is_set():
            raise ProducerClosed("the producer is closed")
        if self._client.is_foreign:
            raise ProducerClosed(
                "the producer belongs to the process that this one was forked from"
            )

    def _check_topics(self, only: str | None = None) -> None:
        """Raise for the first topic whose rows wait for metadata in vain, or too long."""
        for topic, waited_seconds, code in self._topics.waiting():
            if only not in (None, topic):
                continue
            is_overdue = waited_seconds >= self._budget.metadata_seconds
            if code in FINAL_TOPIC_ERRORS or (is_overdue and code == UNKNOWN_TOPIC_OR_PARTITION):
                raise topic_unavailable(topic, code, self._budget)
            if is_overdue:
                raise metadata_timeout(topic, self._budget, self._trouble())

    def _trouble(self) -> str:
        text = self._report.broker_error
        return f"; last broker error: {text}" if text else ""

    def _failure_of(self, delivery: Delivery) -> DeliveryFailed | TopicUnavailable:
        partition, code = next(iter(delivery.failed_rows))
        if partition == _UNASSIGNED and code in FINAL_TOPIC_ERRORS:
            # The client's own metadata said so before the answer to our request came.
            return topic_unavailable(delivery.topic, code, self._budget)
        fatal = None if self._is_freed else self._client.fatal_error()
        trouble = (f"; {fatal.text}" if fatal else "") + self._trouble()
        return delivery_failed(delivery, trouble)
