"""[both] NonBlockingProducer: prefetch, send, flush, close, each with a deadline (KIP-286, KIP-15).

Longer than other modules because every wait is here: the waits share one lifecycle and wake each
other.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from spark_kafka_sink.clients.session import Session
from spark_kafka_sink.config.added_settings import sending_settings
from spark_kafka_sink.config.producer_options import ProducerOptions
from spark_kafka_sink.deadline import Clock, Deadline
from spark_kafka_sink.errors import (
    DeadlineExceeded,
    KafkaSinkError,
    ProducerClosed,
)
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.producer.engine import Engine
from spark_kafka_sink.producer.lifecycle import Lifecycle, ProducerState
from spark_kafka_sink.producer.sends import Send
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
    """A handle for the records of one ``send`` (KIP-286). Tasks flush all of theirs instead."""

    def __init__(self, producer: NonBlockingProducer, send: Send) -> None:
        self._producer = producer
        self.send = send

    def done(self) -> bool:
        """Whether every record was acknowledged or has failed. Never waits for the brokers."""
        if not self.send.is_complete:
            self._producer.poll()
        return self.send.is_complete

    def result(self, timeout_seconds: float) -> None:
        """Wait until every record is acknowledged.

        Raises DeliveryFailed or TopicUnavailable if a record failed, MetadataTimeout if the topic
        gets no metadata in time, DeadlineExceeded after ``timeout_seconds``, ProducerClosed if the
        producer was closed before the records were acknowledged.
        """
        self._producer.wait_for(self.send, timeout_seconds)


class NonBlockingProducer:
    """Sends records to Kafka in the background.

    One thread sends; any thread may call ``close``. Raises InvalidOption if librdkafka rejects its
    settings, or if the variable with its rack is not set.
    """

    def __init__(self, options: ProducerOptions, clock: Clock = time.monotonic) -> None:
        self._budget = options.budget
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
        self._is_woken = False
        self._is_freed = False

    # --- sending ---------------------------------------------------------------------------------

    def prefetch(self, topics: Iterable[str]) -> None:
        """Fetch the topics' metadata in the background, in one request. Never waits for it.

        Without topics it only connects.
        """
        with self._exclusive_access():
            self._engine.prefetch(topics)

    def send(self, records: RecordColumns) -> DeliveryFuture:
        """Buffer records, in order; wait only while there is no room for all of them.

        ``records.arrow_batch`` is kept until every record is acknowledged or has failed. Records of
        a topic without metadata are buffered too, and sent in the background when it arrives. The
        wait for room starts again whenever a record is acknowledged.

        Raises BufferExhausted if that wait lasts ``max.block.ms``: then no record was accepted.
        Also raises DeliveryFailed, MetadataTimeout or TopicUnavailable for records sent earlier,
        and ProducerClosed if the producer is closed or closing.
        """
        send, acknowledged = self._try_send(records), self._engine.acknowledged
        deadline = Deadline(self._budget.buffer_seconds, self._clock)
        while send is None:
            with self._exclusive_access():
                with self._timed(Wait.BUFFER):
                    # Records must not linger while others wait for room (as in Java).
                    self._client.flush(_FLUSH_SECONDS)
                    self._handle_events(deadline.slice(_POLL_SECONDS))
                self._raise_failure()
            send = self._try_send(records)
            if self._engine.acknowledged > acknowledged:
                acknowledged = self._engine.acknowledged
                deadline = Deadline(self._budget.buffer_seconds, self._clock)
            elif send is None and deadline.expired:
                raise self._engine.buffer_exhausted(records.topic)
        return DeliveryFuture(self, send)

    def _try_send(self, records: RecordColumns) -> Send | None:
        """Send the records if there is room for all of them, else None."""
        with self._exclusive_access():
            send = self._engine.send(records)
            if send is not None:
                self._start_drainer_if_needed()
                self._handle_events(0.0)
            self._raise_failure()
            return send

    def begin_task(self, origin: Origin) -> None:
        """Set the origin of the dead letters of this task, which nobody has woken up yet."""
        self._is_woken = False
        with self._exclusive_access():
            self._engine.begin_task(origin)

    def send_dead_letters(self, rejected: RejectedRecords) -> None:
        """Send dead letters for rows that cannot become records; waits and raises like ``send``.

        Raises InvalidRecord if there is no topic for dead letters.
        """
        for records in self._engine.dead_letters(rejected):
            self.send(records)
        with self._exclusive_access():
            self._engine.count_dead_letters(rejected)

    def _handle_events(self, seconds: float) -> None:
        """Handle all events, waiting that long for the first; send what has become due.

        Handlers of the client's log lines run inside this call.
        """
        self._engine.on_events(self._session.poll(seconds))
        self._engine.send_due()

    @contextmanager
    def _timed(self, wait: Wait) -> Iterator[None]:
        started = self._clock()
        yield
        self._engine.count_wait(wait, self._clock() - started)

    def _start_drainer_if_needed(self) -> None:
        if self._engine.has_waiting_records and self._drainer is None:
            self._drainer = start_thread(self._drain_in_background, "drainer")

    def _drain_in_background(self) -> None:
        """Send records when their metadata arrives, even if nobody calls the producer (KIP-286)."""
        while not self._lifecycle.wait_until_aborting(_POLL_SECONDS):
            with self._access(Deadline(_ACCESS_SECONDS)) as is_granted:
                if not is_granted:
                    continue
                # Restored only on success, so that a thread that failed is replaced.
                drainer, self._drainer = self._drainer, None
                if not self._engine.has_waiting_records:
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
        deadline, seconds = Deadline(timeout_seconds, self._clock), _FLUSH_SECONDS
        reports_arrive = False

        def flush_once() -> None:
            nonlocal seconds, reports_arrive
            acknowledged = self._engine.acknowledged
            with self._timed(Wait.ACKNOWLEDGEMENT):
                if reports_arrive:  # the client's flush would delay the next ones
                    self._handle_events(deadline.slice(seconds))
                else:
                    self._flush_client(deadline.slice(seconds))
            reports_arrive = self._engine.acknowledged > acknowledged
            self._raise_failure()
            # The records of a transaction linger again if its partitions were not part of it yet.
            seconds = min(2 * seconds, _REPORT_SECONDS)

        self._check_open()
        if not self._wait_until(lambda: self._engine.is_idle, flush_once, deadline):
            raise self._engine.deadline_exceeded(timeout_seconds)

    def wait_for(self, send: Send, timeout_seconds: float) -> None:
        """Wait like ``flush``, but for the records of one send."""
        deadline = Deadline(timeout_seconds, self._clock)

        def poll_once() -> None:
            self._handle_events(deadline.slice(_POLL_SECONDS))
            if not send.is_complete:
                self._raise_failure(send.topic)

        if not self._wait_until(lambda: send.is_complete, poll_once, deadline):
            raise self._engine.deadline_exceeded(timeout_seconds, send.topic)
        if send.was_purged:
            raise ProducerClosed("the producer was closed before all records were acknowledged")
        if send.failed:
            raise self._engine.send_failure(send)

    def _wait_until(
        self, is_done: Callable[[], bool], step: Callable[[], None], deadline: Deadline
    ) -> bool:
        """Repeat the step, with access each time; returns whether it is done by the deadline.

        Raises ProducerClosed once waiting is pointless.
        """
        while not is_done():
            with self._access(deadline) as is_granted:
                if is_granted:
                    step()
            if not is_done():
                self._check_open()
                if deadline.expired:
                    return False
        return True

    def wakeup(self) -> None:
        """Make the sending thread raise InterruptedError, from its present wait or its next call.

        Once, like ``wakeup`` of Java's consumer; any other thread may call it.
        """
        self._is_woken = True

    def _raise_if_woken(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise InterruptedError("the producer was woken up")

    def poll(self) -> None:
        """Handle pending events. Does not wait for more."""
        self._raise_if_woken()
        with self._access(Deadline(0.0)) as is_granted:
            if is_granted:
                self._handle_events(0.0)

    def read_events(self) -> None:
        """Apply pending events: the client keeps them without any bound.

        What they give to send, such as dead letters, is sent in the background.
        """
        with self._access(Deadline(0.0)) as is_granted:
            if is_granted:
                self._engine.on_events(self._session.poll())
                self._start_drainer_if_needed()

    def _flush_client(self, seconds: float) -> None:
        """Let the client send without lingering; wait that long for events, and handle them."""
        # Its flush waits until all reports are polled, which only this thread does: keep it short.
        self._client.flush(_FLUSH_SECONDS)
        if not self._engine.is_empty:
            self._handle_events(seconds)

    def collect_report(self) -> DeliveryReport:
        """The report of what happened since the last call; the next one begins empty.

        Call it after ``flush`` or ``close``.
        """
        try:
            with self._exclusive_access():
                return self._engine.collect_report()
        except ProducerClosed:
            return self._engine.collect_report()  # at most a thread that hangs adds to it now

    @property
    def broker_error(self) -> str:
        """The latest error between client and brokers since the last report, or ""."""
        return self._engine.broker_error

    @property
    def is_idle(self) -> bool:
        """Whether another task can use it: it works, its buffer is empty, its files are current."""
        if self._session.is_outdated:
            return False
        try:
            with self._exclusive_access():
                return self._engine.is_idle and self._client.fatal_error() is None
        except KafkaSinkError:
            return False

    @property
    def is_mostly_evicted(self) -> bool:
        """Whether most of its client's topics were evicted, so that a new producer pays off."""
        live = len(self._engine.live_topics())
        return self._client.topic_count - live > max(_MANY_TOPICS, live)

    def live_topics(self) -> list[str]:
        """Topics that were used within ``metadata.evict.ms``, for the producer's successor."""
        return self._engine.live_topics()

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
        """Wait for records already accepted."""
        while not deadline.expired and self._lifecycle.acquire_to_close(
            ProducerState.DRAINING, deadline
        ):
            try:
                self._flush_client(deadline.slice(_REPORT_SECONDS))
            finally:
                is_done = self._engine.is_empty or self._lifecycle.state >= ProducerState.ABORTING
                self._release()
            if is_done:
                return

    def _abort(self, deadline: Deadline) -> None:
        """Fail the remaining records, collect the reports, free the client."""
        collecting = Deadline(deadline.slice(_COLLECT_SECONDS), self._clock)
        self._engine.abort()
        self._client.purge()
        while not self._engine.is_empty:
            # At least once: after a stall, what the client has reported by then still counts.
            self._engine.on_events(self._session.poll(collecting.slice(_POLL_SECONDS)))
            if collecting.expired:
                break
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
        self._raise_if_woken()
        failure = self._engine.failure(topic)
        if failure is not None:
            raise failure
