"""NonBlockingProducer: prefetch, send, flush, close; each wait has a deadline (KIP-286, KIP-15)."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Mapping

from spark_kafka_sink.config.producer_options import BlockBudget, MetadataLifetime
from spark_kafka_sink.deadline import Clock, Deadline
from spark_kafka_sink.errors import (
    DeliveryFailed,
    InvalidOption,
    ProducerClosed,
    TopicUnavailable,
)
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import (
    BrokerError,
    ReportedRecords,
    RequestFailed,
    TopicDescription,
)
from spark_kafka_sink.producer.delivery import Delivery
from spark_kafka_sink.producer.delivery_report import DeliveryReport
from spark_kafka_sink.producer.error_messages import (
    BROKER_LOST,
    METADATA_CHANGED,
    buffer_exhausted,
    deadline_exceeded,
    delivery_failed,
    metadata_timeout,
    topic_unavailable,
)
from spark_kafka_sink.producer.metadata_fetcher import MetadataFetcher
from spark_kafka_sink.producer.open_deliveries import PURGED_IN_FLIGHT, OpenDeliveries
from spark_kafka_sink.producer.send_buffer import BYTES_PER_ROW, SendBuffer, Sending
from spark_kafka_sink.producer.topic_metadata import (
    NON_RETRIABLE_TOPIC_ERRORS,
    UNKNOWN_TOPIC_OR_PARTITION,
    TopicMetadata,
)
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import UNASSIGNED

_log = logging.getLogger("spark_kafka_sink")

# Room in the buffer, reports and a close by another thread are looked for this often.
_POLL_SECONDS = 0.005
_REPORT_SECONDS = 0.02
_FLUSH_SECONDS = 0.001
# How long reports of rows that were given up may take, and the client's own end.
_COLLECT_SECONDS = 0.5
_FREE_SECONDS = 0.5

_MAX_PROPAGATION_MS = 3_600_000
# When the client forgets by itself what we have not refreshed: the most it allows.
_CLIENTS_MAX_AGE_MS = 86_400_000


def client_settings(
    settings: Mapping[str, str], buffer_memory_bytes: int, budget: BlockBudget
) -> dict[str, str]:
    """librdkafka's settings, with what this producer's own limits come to there."""
    # librdkafka would give up rows of missing topics by itself; ours comes first, by name.
    propagation_ms = min(_MAX_PROPAGATION_MS, int(budget.metadata_seconds * 1000) + 10_000)
    return {
        **settings,
        "queue.buffering.max.kbytes": str(max(1, buffer_memory_bytes // 1024)),
        "queue.buffering.max.messages": str(max(1, buffer_memory_bytes // BYTES_PER_ROW)),
        "topic.metadata.propagation.max.ms": str(propagation_ms),
        "topic.metadata.refresh.interval.ms": "-1",
        "metadata.max.age.ms": str(_CLIENTS_MAX_AGE_MS),
    }


class NonBlockingProducer:
    """Sends rows to Kafka in the background.

    One thread sends; ``close`` may be called from any. ``settings``: librdkafka's.
    ``buffer_memory_bytes``: of Arrow batches with rows that are not reported, and 256 a row, all
    topics together.
    """

    def __init__(
        self,
        settings: Mapping[str, str],
        buffer_memory_bytes: int,
        budget: BlockBudget,
        lifetime: MetadataLifetime,
        clock: Clock = time.monotonic,
    ) -> None:
        self._budget = budget
        self._clock = clock
        try:
            self._client = Client(client_settings(settings, buffer_memory_bytes, budget))
        except ValueError as error:
            raise InvalidOption(f"the Kafka client refuses its settings: {error}") from None
        # guards everything below and every call of the client
        self._lock = threading.RLock()
        self._topics = TopicMetadata(lifetime, clock)
        self._fetcher = MetadataFetcher(self._client, self._topics)
        self._deliveries = OpenDeliveries(self._settled)
        self._buffer = SendBuffer(self._client, self._topics, buffer_memory_bytes, self._note)
        self._releaser: threading.Thread | None = None
        self._is_freed = False
        self._free_after_event = False
        # Set without the lock, so that threads which wait with it see the close at once.
        self._closing = threading.Event()
        self._forced = threading.Event()
        self._event_thread: int | None = None  # while that thread handles events

    # --- sending ---------------------------------------------------------------------------------

    def prefetch(self, topics: Iterable[str]) -> None:
        """Fetch the topics' metadata in the background, all in one request. Never waits.

        Also connects: with no topics at all the brokers are asked who they are.
        """
        with self._lock:
            self._check_open()
            self._topics.mention(topics)
            self._fetcher.fetch_due()
            if self._topics.is_empty:
                self._fetcher.connect()

    def send(self, records: RecordColumns) -> Delivery:
        """Put records into the buffer, in order; wait only while it is full.

        What ``records.batch`` keeps alive stays until every row is acknowledged or has failed.
        Rows of a topic without metadata are held, and leave by themselves when it comes. The wait
        for room begins anew whenever a row went in, or any row was reported.
        Raises BufferExhausted if it lasts ``max.block.ms``: ``accepted_rows`` were taken, of
        every partition's the first, and nothing else. Raises MetadataTimeout or TopicUnavailable
        if the topic is known to have none, ProducerClosed if the producer is closed, also
        meanwhile.
        """
        with self._lock:
            self._check_open()
            if self._closing.is_set():
                raise ProducerClosed("the producer is being closed")
            delivery = self._deliveries.begin(records.topic, self._look, self._wait_for)
            self._topics.buffered(records.topic)
            self._fetcher.fetch_due()
        try:
            self._hand_over(Sending(delivery, records))
        finally:
            with self._lock:
                self._deliveries.handed_over(delivery, records.total_bytes)
        return delivery

    def _hand_over(self, sending: Sending) -> None:
        delivery, rows = sending.delivery, len(sending.records)
        deadline = Deadline(self._budget.buffer_seconds, self._clock)
        while delivery.rows < rows:
            with self._lock:
                self._check_open()
                before = delivery.rows, self._deliveries.reported_rows
                self._buffer.put(sending)
                if self._buffer.is_holding and self._releaser is None:
                    self._releaser = threading.Thread(target=self._release_unasked, daemon=True)
                    self._releaser.start()
                is_full = delivery.rows < rows
                self._handle_events(deadline.slice(_POLL_SECONDS) if is_full else 0.0)
                if is_full:
                    self._check_topics()
                if (delivery.rows, self._deliveries.reported_rows) != before:
                    deadline = Deadline(self._budget.buffer_seconds, self._clock)
                elif deadline.expired:
                    raise buffer_exhausted(delivery, self._budget, self._trouble())
                elif not self._is_freed:
                    # Rows must not linger while others wait for their place (as in Java).
                    self._client.flush(_FLUSH_SECONDS)

    def _release_unasked(self) -> None:
        """Runs while rows are held, so that they leave though nobody calls (KIP-286)."""
        while not self._forced.wait(_POLL_SECONDS):
            with self._lock:
                # Only a thread that goes on is kept, so that after an error another one starts.
                releaser, self._releaser = self._releaser, None
                if self._is_freed or not self._buffer.is_holding:
                    return
                self._handle_events(0.0)
                self._releaser = releaser

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
                if not self._deliveries and self._deliveries.first_failed is None:
                    return
                self.raise_failure()
                if deadline.expired:
                    raise deadline_exceeded(timeout_seconds, self._trouble())

    def _push_out(self, deadline: Deadline) -> None:
        """Let the client send without lingering, and take the first reports on what it sent."""
        # Its flush waits until all reports are taken, which only we can do: keep it short.
        self._client.flush(_FLUSH_SECONDS)
        if self._deliveries:
            self._handle_events(deadline.slice(_REPORT_SECONDS))

    def raise_failure(self) -> None:
        """Raise what is known to have gone wrong with any row since ``take_report``.

        DeliveryFailed for failed rows; MetadataTimeout or TopicUnavailable for a topic.
        """
        with self._lock:
            if self._deliveries.first_failed is not None:
                raise self._failure_of(self._deliveries.first_failed)
            self._check_topics()

    def take_report(self) -> DeliveryReport:
        """What happened since the last call; the next report begins empty."""
        with self._lock:
            return self._deliveries.take_report()

    @property
    def is_idle(self) -> bool:
        """Whether it can be handed to another task: usable, and with nothing in its buffer."""
        with self._lock:
            if self._closing.is_set() or self._deliveries or self._deliveries.first_failed:
                return False
            return self._client.fatal_error() is None

    @property
    def is_overgrown(self) -> bool:
        """Whether it holds so many evicted topics that its successor should take over."""
        with self._lock:
            return self._topics.is_overgrown

    def live_topics(self) -> list[str]:
        """Topics that were used within ``metadata.evict.ms``."""
        with self._lock:
            return self._topics.live()

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
                if not self._deliveries or self._is_freed:
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
        """Fail all rows that are left, held, queued or in flight, and collect them."""
        self._buffer.give_up()
        self._client.purge()
        deadline = Deadline(_COLLECT_SECONDS, self._clock)
        while self._deliveries.unreported() and not deadline.expired:
            self._handle_events(deadline.slice(_POLL_SECONDS))
        for each in self._deliveries.unreported():  # whose reports did not come in time
            left = each.outstanding_rows
            report = ReportedRecords(each.delivery_id, UNASSIGNED, PURGED_IN_FLIGHT, True, left)
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
            if isinstance(event, ReportedRecords):
                self._note(event)
            elif isinstance(event, TopicDescription):
                self._fetcher.answered(event)
                self._buffer.look_again(event.topic)
            elif isinstance(event, RequestFailed):
                for topic in self._fetcher.failed():
                    self._buffer.look_again(topic)
            elif isinstance(event, BrokerError):
                self._note_broker_error(event)
        if self._free_after_event and outer is None:
            self._free()
        if not self._is_freed:
            self._buffer.release()
            self._fetcher.fetch_due()

    def _note(self, report: ReportedRecords) -> None:
        delivery = self._deliveries.note(report)
        if delivery is None:
            return
        if report.code in METADATA_CHANGED:
            self._topics.changed(delivery.topic)
        elif report.code == 0:
            self._topics.arrived(delivery.topic)

    def _note_broker_error(self, error: BrokerError) -> None:
        report = self._deliveries.report
        # That all are down follows every failed connection, and does not say why it failed.
        if error.code != ErrorCode.ALL_BROKERS_DOWN or not report.broker_error:
            report.broker_error = error.text
        if error.code == BROKER_LOST:
            self._topics.all_changed()

    def _settled(self, delivery: Delivery) -> None:
        self._topics.settled(delivery.topic)
        self._buffer.settled(delivery)

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
        in_vain = self._topics.in_vain(self._budget.metadata_seconds, only)
        if in_vain is None:
            return
        topic, code = in_vain
        if code in NON_RETRIABLE_TOPIC_ERRORS or code == UNKNOWN_TOPIC_OR_PARTITION:
            raise topic_unavailable(topic, code, self._budget)
        raise metadata_timeout(topic, self._budget, self._trouble())

    def _trouble(self) -> str:
        text = self._deliveries.report.broker_error
        return f"; last broker error: {text}" if text else ""

    def _failure_of(self, delivery: Delivery) -> DeliveryFailed | TopicUnavailable:
        partition, code = next(iter(delivery.failed_rows))
        if partition == UNASSIGNED and code in NON_RETRIABLE_TOPIC_ERRORS:
            # The client's own metadata said so before the answer to our request came.
            return topic_unavailable(delivery.topic, code, self._budget)
        fatal = None if self._is_freed else self._client.fatal_error()
        trouble = (f"; {fatal.text}" if fatal else "") + self._trouble()
        return delivery_failed(delivery, trouble)
