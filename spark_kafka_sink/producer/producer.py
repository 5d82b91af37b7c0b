"""[task] NonBlockingProducer: prefetch, send, flush, close, each with a deadline (KIP-286, KIP-15).

Longer than other modules because every wait is here: the waits share one lifecycle and wake each
other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from spark_kafka_sink.clients.session import Session
from spark_kafka_sink.config.added_settings import sending_settings
from spark_kafka_sink.config.producer_options import ProducerOptions
from spark_kafka_sink.deadline import Clock, Deadline
from spark_kafka_sink.errors import (
    DeadlineExceeded,
    InvalidRecord,
    KafkaSinkError,
    ProducerClosed,
)
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.producer import error_messages
from spark_kafka_sink.producer.deliveries import Delivery, SendRequest
from spark_kafka_sink.producer.engine import Engine
from spark_kafka_sink.producer.lifecycle import Lifecycle, ProducerState
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.rejection import Origin, RejectedRecords
from spark_kafka_sink.report.delivery_report import DeliveryReport, Wait
from spark_kafka_sink.threads import start_thread

_log = logging.getLogger("spark_kafka_sink")

# A thread has access this long at most: after it another one may send, wait or close.
_POLL_SECONDS = 0.005
_REPORT_SECONDS = 0.02
_FLUSH_SECONDS = 0.001
# How long a call that never waits for the brokers may wait for other threads.
_ACCESS_SECONDS = 5.0
# How much longer than its timeout close may take, and the part of it for collecting reports.
_ABORT_SECONDS = 0.8
_COLLECT_SECONDS = 0.5

_MANY_TOPICS = 100


class DeliveryFuture:
    """A handle for the records of one ``send`` (KIP-286)."""

    def __init__(self, producer: NonBlockingProducer, delivery: Delivery) -> None:
        self._producer = producer
        self.delivery = delivery

    def done(self) -> bool:
        """Whether every record was acknowledged or has failed. Never waits for the brokers."""
        if not self.delivery.is_complete:
            self._producer.poll()
        return self.delivery.is_complete

    def result(self, timeout_seconds: float) -> None:
        """Wait until every record is acknowledged.

        Raises DeliveryFailed or TopicUnavailable if a record failed, MetadataTimeout if the topic
        gets no metadata in time, DeadlineExceeded after ``timeout_seconds``, ProducerClosed if the
        producer was closed before the records were acknowledged.
        """
        self._producer.wait_for(self.delivery, timeout_seconds)


class NonBlockingProducer:
    """Sends records to Kafka in the background.

    One thread sends; any thread may call ``close``. Raises InvalidOption if librdkafka rejects its
    settings, or if the variable with its rack is not set.
    """

    def __init__(self, options: ProducerOptions, clock: Clock = time.monotonic) -> None:
        self._budget = options.budget
        self._dead_letter_topic = options.dead_letter_topic
        self._clock = clock
        self._lifecycle = Lifecycle()
        # Only the thread with exclusive access uses the client and what follows.
        self._session = Session(Client, sending_settings(options), clock)
        self._client = self._session.client
        try:
            self._engine = Engine(options, self._client, clock)
        except BaseException:
            self._client.close(Deadline(_ABORT_SECONDS, clock))
            raise
        self._drainer: threading.Thread | None = None
        self._is_freed = False

    # --- sending ---------------------------------------------------------------------------------

    def prefetch(self, topics: Iterable[str]) -> None:
        """Fetch the topics' metadata in the background, in one request. Never waits for it.

        Without topics it only connects.
        """
        with self._exclusive_access():
            self._engine.prefetch(topics)

    def send(self, records: RecordColumns) -> DeliveryFuture:
        """Buffer records, in order; wait only while the buffer is full.

        ``records.batch`` is kept until every record is acknowledged or has failed. Records of a
        topic without metadata are buffered too, and sent in the background when it arrives. The
        wait for room starts again whenever a record is accepted or acknowledged.

        Raises BufferExhausted if that wait lasts ``max.block.ms``; ``accepted_rows`` records were
        accepted, the first ones of each partition, and no others. While waiting, also raises
        DeliveryFailed, MetadataTimeout or TopicUnavailable for records sent earlier. Raises
        ProducerClosed if the producer is closed or closing.
        """
        with self._exclusive_access():
            request = self._engine.send(records)
            with self._engine.closed_on_failure(request):
                self._drain_if_buffered()
                self._handle_events(0.0)
        if not request.delivery.is_closed:
            self._wait_for_room(request)
        if not request.is_accepted:
            raise ProducerClosed("the producer was closed before it accepted all records")
        return DeliveryFuture(self, request.delivery)

    def begin_task(self, origin: Origin) -> None:
        """Set the origin of the dead letters of this task."""
        with self._exclusive_access():
            self._engine.begin_task(origin)

    def send_dead_letters(self, rejected: RejectedRecords) -> None:
        """Send dead letters for rows that cannot become records; waits and raises like ``send``.

        Raises InvalidRecord if there is no topic for dead letters.
        """
        if not self._engine.has_dead_letters:
            raise InvalidRecord(rejected.reason)
        for records in self._engine.dead_letters(rejected):
            self.send(records)
        with self._exclusive_access():
            self._engine.deliveries.count_dead_letters(rejected)

    def _wait_for_room(self, request: SendRequest) -> None:
        deliveries, delivery = self._engine.deliveries, request.delivery
        deadline = Deadline(self._budget.buffer_seconds, self._clock)
        while not delivery.is_closed:
            with self._exclusive_access(), self._engine.closed_on_failure(request):
                progress = delivery.accepted, deliveries.acknowledged
                # Records must not linger while others wait for room (as in Java).
                with self._timed(Wait.BUFFER):
                    self._client.flush(_FLUSH_SECONDS)
                    self._handle_events(deadline.slice(_POLL_SECONDS))
                self._raise_failure()
                self._engine.proceed(request)
                self._drain_if_buffered()
                if progress != (delivery.accepted, deliveries.acknowledged):
                    deadline = Deadline(self._budget.buffer_seconds, self._clock)
                elif deadline.expired:
                    raise error_messages.buffer_exhausted(delivery, self._budget, deliveries.report)

    def _handle_events(self, seconds: float) -> None:
        """Handle all events, waiting that long for the first; send what has become due.

        Handlers of the client's log lines run inside this call.
        """
        self._engine.on_events(self._session.poll(seconds))
        self._engine.send_due()

    @contextmanager
    def _timed(self, wait: Wait) -> Iterator[None]:
        """Count the time; while records await metadata, it counts as a wait for metadata."""
        if self._engine.topics.waits:
            wait = Wait.METADATA
        started = self._clock()
        yield
        self._engine.deliveries.report.wait_us[wait] += round((self._clock() - started) * 1e6)

    def _drain_if_buffered(self) -> None:
        if self._engine.has_buffered_records and self._drainer is None:
            self._drainer = start_thread(self._drain_in_background, "drainer")

    def _drain_in_background(self) -> None:
        """Send records when their metadata arrives, even if nobody calls the producer (KIP-286)."""
        while not self._lifecycle.wait_until_aborting(_POLL_SECONDS):
            with self._access(Deadline(_ACCESS_SECONDS)) as is_granted:
                if not is_granted:
                    continue
                # Restored only on success, so that a thread that failed is replaced.
                drainer, self._drainer = self._drainer, None
                if not self._engine.has_buffered_records:
                    return
                self._handle_events(0.0)
                if self._engine.awaits_reports:
                    self._client.flush(_FLUSH_SECONDS)  # those that they wait for may linger
                self._drainer = drainer

    # --- waiting ---------------------------------------------------------------------------------

    def flush(self, timeout_seconds: float) -> None:
        """Wait until every record is acknowledged.

        Raises DeliveryFailed as soon as a record fails, MetadataTimeout or TopicUnavailable if a
        topic with records gets no metadata in time, DeadlineExceeded after ``timeout_seconds``,
        ProducerClosed if the producer is closed first. Drops no records.
        """
        deadline = Deadline(timeout_seconds, self._clock)
        self._check_open()
        seconds = _FLUSH_SECONDS
        while True:
            with self._access(deadline) as is_granted:
                if is_granted:
                    with self._timed(Wait.ACKNOWLEDGEMENT):
                        self._flush_client(deadline.slice(seconds))
                    self._raise_failure()
            # The records of a transaction linger again if its partitions were not part of it yet.
            seconds = min(2 * seconds, _REPORT_SECONDS)
            if not self._engine.deliveries and self._engine.deliveries.first_failed is None:
                return
            self._check_open()
            if deadline.expired:
                raise self._deadline_exceeded(timeout_seconds)

    def wait_for(self, delivery: Delivery, timeout_seconds: float) -> None:
        """Wait like ``flush``, but for the records of one send."""
        deadline = Deadline(timeout_seconds, self._clock)
        while not delivery.is_complete:
            with self._access(deadline) as is_granted:
                if is_granted:
                    self._handle_events(deadline.slice(_POLL_SECONDS))
                    if not delivery.is_complete:
                        self._raise_failure(delivery.topic)
            if not delivery.is_complete:
                self._check_open()
                if deadline.expired:
                    raise self._deadline_exceeded(timeout_seconds, delivery.topic)
        if delivery.was_purged:
            raise ProducerClosed("the producer was closed before all records were acknowledged")
        if delivery.failed:
            raise error_messages.delivery_failed(
                delivery, self._engine.deliveries.report, self._dead_letter_topic
            )

    def poll(self) -> None:
        """Handle pending events. Does not wait for more."""
        with self._access(Deadline(0.0)) as is_granted:
            if is_granted:
                self._handle_events(0.0)

    def read_events(self) -> None:
        """Apply pending events, and send nothing. The client keeps events without any bound."""
        with self._access(Deadline(0.0)) as is_granted:
            if is_granted:
                self._engine.on_events(self._session.poll())

    def _flush_client(self, seconds: float) -> None:
        """Let the client send without lingering; wait that long for events, and handle them."""
        # Its flush waits until all reports are polled, which only this thread does: keep it short.
        self._client.flush(_FLUSH_SECONDS)
        if self._engine.deliveries:
            self._handle_events(seconds)

    def raise_failure(self) -> None:
        """Raise the first failure of any record since the last ``collect_report``.

        DeliveryFailed for failed records; MetadataTimeout or TopicUnavailable for a topic.
        """
        with self._exclusive_access():
            self._raise_failure()

    def collect_report(self) -> DeliveryReport:
        """The report of what happened since the last call; the next one begins empty.

        Call it after ``flush`` or ``close``.
        """
        try:
            with self._exclusive_access():
                return self._collect_report()
        except ProducerClosed:
            return self._collect_report()  # at most a thread that hangs adds to it now

    def _collect_report(self) -> DeliveryReport:
        report = self._engine.deliveries.collect_report()
        crossed = self._engine.topics.cross_rack_records(report.acknowledged_records)
        return replace(report, cross_rack_records=crossed)

    @property
    def broker_error(self) -> str:
        """The latest error between client and brokers since the last report, or ""."""
        return self._engine.deliveries.report.broker_error

    @property
    def is_idle(self) -> bool:
        """Whether another task can use it: it works, its buffer is empty, its files are current."""
        if self._session.is_outdated:
            return False
        try:
            with self._exclusive_access():
                is_empty = (
                    not self._engine.deliveries and self._engine.deliveries.first_failed is None
                )
                return is_empty and self._client.fatal_error() is None
        except KafkaSinkError:
            return False

    @property
    def is_mostly_evicted(self) -> bool:
        """Whether most of its client's topics were evicted, so that a new producer pays off."""
        evicted = self._client.topic_count - len(self._engine.topics)
        return evicted > max(_MANY_TOPICS, len(self._engine.topics))

    def live_topics(self) -> list[str]:
        """Topics that were used within ``metadata.evict.ms``, for the producer's successor."""
        return self._engine.topics.live()

    @contextmanager
    def exclusive_client(self) -> Iterator[Client]:
        """The client, for transaction calls, while no other thread uses it."""
        with self._exclusive_access():
            yield self._client

    # --- the end ---------------------------------------------------------------------------------

    def close(self, timeout_seconds: float) -> bool:
        """Send what can be sent in time, fail the rest, and free the client (KIP-15).

        With 0, remaining records fail at once. A second call does nothing. A call while an event
        is being handled logs an error and acts as close(0). Other threads that wait in ``send``
        get ProducerClosed at once, those in ``flush`` or ``result`` when records are dropped.
        Returns within a second of the timeout: True if the client is freed. Raises ValueError if
        the timeout is negative.
        """
        if not timeout_seconds >= 0:
            raise ValueError(f"timeout_seconds must be 0 or more, not {timeout_seconds}")
        if self._client.is_foreign:
            return True
        if self._lifecycle.is_held_by_this_thread:
            _log.error(
                "close(%s) was called while this producer was handling an event, where waiting "
                "would never end; acting as close(0)",
                timeout_seconds,
            )
            self._lifecycle.advance(ProducerState.ABORTING)  # done when this access ends
            return False
        self._drain(Deadline(timeout_seconds, self._clock))
        deadline = Deadline(_ABORT_SECONDS, self._clock)
        if self._lifecycle.acquire_to_close(ProducerState.ABORTING, deadline):
            try:
                self._abort(deadline)
            finally:
                self._lifecycle.release()
        return self._is_freed

    def _drain(self, deadline: Deadline) -> None:
        """Wait for records already accepted. Sends that wait for room accept no more."""
        while not deadline.expired and self._lifecycle.acquire_to_close(
            ProducerState.DRAINING, deadline
        ):
            self._engine.deliveries.close_all()
            try:
                self._flush_client(deadline.slice(_REPORT_SECONDS))
            finally:
                is_done = (
                    not self._engine.deliveries or self._lifecycle.state >= ProducerState.ABORTING
                )
                self._release()
            if is_done:
                return

    def _abort(self, deadline: Deadline) -> None:
        """Fail the remaining records, collect the reports, free the client."""
        collecting = Deadline(deadline.slice(_COLLECT_SECONDS), self._clock)
        self._engine.abort()
        self._client.purge()
        while self._engine.deliveries and not collecting.expired:
            self._engine.on_events(self._session.poll(collecting.slice(_POLL_SECONDS)))
        self._engine.fail_unreported()
        self._is_freed = self._client.close(deadline)
        self._lifecycle.advance(ProducerState.CLOSED)

    # --- exclusive access ------------------------------------------------------------------------

    @contextmanager
    def _access(self, deadline: Deadline) -> Iterator[bool]:
        """Yields whether this thread has access; never True once another thread is closing."""
        if self._client.is_foreign:
            raise ProducerClosed("the producer belongs to the process that forked this one")
        is_granted = self._lifecycle.acquire(deadline)
        try:
            yield is_granted
        finally:
            if is_granted:
                self._release()

    @contextmanager
    def _exclusive_access(self) -> Iterator[None]:
        """Like ``_access``, but raises if this thread does not get access."""
        deadline, is_granted = Deadline(_ACCESS_SECONDS), False
        while not is_granted:
            with self._access(deadline) as is_granted:
                if is_granted:
                    yield
                elif self._lifecycle.state is not ProducerState.OPEN:
                    raise ProducerClosed("the producer is closed or closing")
                elif deadline.expired:
                    raise DeadlineExceeded(
                        f"another thread has kept the producer busy for {_ACCESS_SECONDS:g} s; "
                        "check whether a handler of its log lines hangs"
                    )

    def _release(self) -> None:
        # Closed while this thread handled an event, or by a thread whose wait expired.
        try:
            if self._lifecycle.state is ProducerState.ABORTING:
                self._abort(Deadline(_ABORT_SECONDS, self._clock))
        finally:
            self._lifecycle.release()

    def _check_open(self) -> None:
        """Raise ProducerClosed once waiting is pointless."""
        if self._lifecycle.state >= ProducerState.ABORTING:
            raise ProducerClosed("the producer is closed")

    def _raise_failure(self, topic: str | None = None) -> None:
        """Raise the first failure, of any topic or of one."""
        failure = error_messages.first_failure(
            self._engine.deliveries,
            self._engine.topics.waits,
            self._budget,
            topic,
            self._dead_letter_topic,
        )
        if failure is not None:
            raise failure

    def _deadline_exceeded(
        self, timeout_seconds: float, topic: str | None = None
    ) -> KafkaSinkError:
        """For records that were not acknowledged in time, of any topic or of one."""
        waiting = self._engine.topics.waits.first_failure(0.0, topic)
        return error_messages.deadline_exceeded(
            timeout_seconds, self._engine.deliveries.report, waiting
        )
