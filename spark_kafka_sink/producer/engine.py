"""[task] Engine: passes records to the client, and handles its reports and answers. Never waits."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import NoReturn

import numpy as np

from spark_kafka_sink.clients.session import explained
from spark_kafka_sink.config.producer_options import ProducerOptions, RackOptions
from spark_kafka_sink.deadline import Clock
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.librdkafka.error_codes import (
    MISSING_ERRORS,
    STALE_METADATA_ERRORS,
    ErrorCode,
    error_name,
)
from spark_kafka_sink.librdkafka.events import (
    AcknowledgedRecords,
    ApiVersion,
    BrokerError,
    ClusterDescription,
    ConfigurationDescription,
    Event,
    FailedRecords,
    RequestFailed,
    Statistics,
    TokenNeeded,
    TokenRequestFailed,
    TopicDescription,
)
from spark_kafka_sink.librdkafka.protocol import ProducerClient
from spark_kafka_sink.producer.bad_batches import BadBatches
from spark_kafka_sink.producer.deliveries import (
    Delivery,
    IncompleteDeliveries,
    SendRequest,
    TooLarge,
)
from spark_kafka_sink.producer.error_messages import rejection_reason
from spark_kafka_sink.producer.send_buffer import SendBuffer
from spark_kafka_sink.producer.topic_metadata import MetadataFetcher, TopicMetadata
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import UNASSIGNED, Partitioner
from spark_kafka_sink.records.record_size import batch_bytes, largest_bytes
from spark_kafka_sink.records.rejection import UNKNOWN_ORIGIN, Origin, RejectedRecords


class Engine:
    """A producer without its waits; used by one thread at a time.

    A *delivery* is the records of one ``send``, until all are acknowledged, failed or dead letters.
    No method waits: the caller polls the client, and passes the events to ``on_events``;
    ``send_due`` then sends the records and requests that have become due.
    """

    def __init__(
        self, options: ProducerOptions, client: ProducerClient, clock: Clock = time.monotonic
    ) -> None:
        self._client = client
        self._settings = options.client
        self.deliveries = IncompleteDeliveries(options.buffer_memory_bytes, clock)
        topic = options.dead_letter_topic
        rack = process_rack(options.rack) if options.rack is not None else None
        self._is_transactional = options.is_transactional
        self.topics = TopicMetadata(
            options.lifetime, clock, topic, rack, needs_limits=options.needs_limits
        )
        prefers_rack = options.rack is not None and options.rack.is_preferred
        partitioner = Partitioner(is_rack_aware=prefers_rack)
        self._bad_batches = BadBatches(options, client, self.topics)
        # Without a topic for dead letters, a rejected record fails its task.
        self._dead_letters: DeadLetterQueue | None = None
        if topic is not None:
            self._dead_letters = DeadLetterQueue(topic)
        self._buffer = SendBuffer(client, self.topics, partitioner, self._bad_batches)
        self._fetcher = MetadataFetcher(client, self.topics)

    # --- sending ---------------------------------------------------------------------------------

    def prefetch(self, topics: Iterable[str]) -> None:
        """Request the topics' metadata, all at once; without any topic, only connect."""
        self.topics.add(topics)
        self._fetch_metadata()
        if not self.topics:
            # Find the brokers now, so that the first topic request does not have to.
            self._fetcher.connect()

    def send(self, records: RecordColumns) -> SendRequest:
        """Accept records while there is room; call ``proceed`` until all are accepted."""
        request = SendRequest(self.deliveries.begin(records.topic), records)
        try:
            self.topics.await_metadata(records.topic)
            self._fetch_metadata()
            self.proceed(request)
        except BaseException:
            self._close_delivery(request)
            raise
        return request

    def proceed(self, request: SendRequest) -> None:
        """Accept more of the request's records; close it after the last one.

        The buffer memory admits all of them at once; the client accepts as many as its queue takes.
        """
        if len(request.records) and self.deliveries.admit(request.delivery, request.records):
            self._on_unreported_failures(self._buffer.put(request))
        if request.is_accepted:
            self._close_delivery(request)

    @contextmanager
    def closed_on_failure(self, request: SendRequest) -> Iterator[None]:
        """If the block raises, accept no more of the request's records."""
        try:
            yield
        except BaseException:
            self._close_delivery(request)
            raise

    def _close_delivery(self, request: SendRequest) -> None:
        sent_bytes = request.records.total_bytes
        if not request.is_accepted:
            sent_bytes -= request.records.take(request.remaining).total_bytes
        self.deliveries.close(request.delivery, sent_bytes)
        self._release_topic(request.delivery.topic)

    @property
    def has_buffered_records(self) -> bool:
        """Whether accepted records wait until they can be passed to the client."""
        return self._buffer.has_buffered_records

    @property
    def awaits_reports(self) -> bool:
        """Whether accepted records wait until the client has reported earlier ones.

        Their topic is not OPEN (``bad_batches``).
        """
        return self._buffer.awaits_reports

    def send_due(self) -> None:
        """Send the records and requests that have become due."""
        for topic, code in self.topics.waits.unusable():
            self._on_unreported_failures(self._buffer.reject(topic, code))
        self._on_unreported_failures(self._buffer.drain())
        self._fetch_metadata()

    # --- dead letters ----------------------------------------------------------------------------

    @property
    def has_dead_letters(self) -> bool:
        """Whether there is a topic for dead letters."""
        return self._dead_letters is not None

    def begin_task(self, origin: Origin) -> None:
        """Set the origin of this task's dead letters."""
        if self._dead_letters is not None:
            self._dead_letters.origin = origin

    def dead_letters(self, rejected: RejectedRecords) -> list[RecordColumns]:
        """Dead letters for rows that cannot become records; none if there is no topic for them."""
        return [] if self._dead_letters is None else self._dead_letters.dead_letters(rejected)

    def _send_dead_letters(
        self, queue: DeadLetterQueue, delivery: Delivery, failed: FailedRecords
    ) -> None:
        too_large = self._too_large(delivery, failed, is_batch=False)
        records = self.deliveries.records(failed)
        rejected = queue.rejected(delivery.topic, records, failed, too_large)
        for letters in queue.dead_letters(rejected):
            request = SendRequest(self.deliveries.begin(letters.topic), letters)
            # Even if the buffer is full: the rejected records' Arrow batch, which they share, is
            # counted already.
            self.deliveries.admit_anyway(request.delivery, letters)
            self.topics.await_metadata(letters.topic)
            self._buffer.buffer(request)
            self._close_delivery(request)
        self.deliveries.reject(delivery, rejected)

    # --- events ----------------------------------------------------------------------------------

    def on_events(self, events: Iterable[Event]) -> None:
        """Apply the client's events as they are read; send nothing more."""
        for event in events:
            self._on_event(event)

    def _on_event(self, event: Event) -> None:
        match event:
            case AcknowledgedRecords():
                self._on_acknowledged(event)
            case FailedRecords():
                self._on_reported_failure(event)
            case TopicDescription():
                is_in_use = event.topic in self.deliveries.topics
                self._fetcher.on_description(event, is_in_use=is_in_use)
                self._buffer.on_metadata_change(event.topic)
            case ConfigurationDescription():
                self.topics.update_limits(event)
                self._buffer.on_metadata_change(event.resource)
            case RequestFailed():
                for topic in self._fetcher.on_request_failed(event.topics):
                    self._buffer.on_metadata_change(topic)
            case BrokerError():
                self._on_broker_error(event)
            case Statistics():
                self.deliveries.note(event)
            case ClusterDescription() | TokenNeeded() | TokenRequestFailed() | ApiVersion():
                pass  # the first answers connect(); the others are the session's and preflight's
            case _:
                assert_never(event)

    def _on_acknowledged(self, acknowledged: AcknowledgedRecords) -> None:
        for topic in self.deliveries.acknowledge(acknowledged):
            self.topics.acknowledged(topic)
            self._release_topic(topic)

    def _on_unreported_failures(self, failures: Iterable[FailedRecords]) -> None:
        """Failures without a delivery report.

        The pre-check or the client did not accept the records, the buffer dropped them, or the
        client has not reported them in time.
        """
        for failed in failures:
            delivery = self.deliveries.find(failed.delivery_id)
            if delivery is None:
                continue
            queue = self._dead_letters
            for part, is_missing in self._missing_parts(failed):
                if is_missing:
                    self._on_missing_topic(queue, delivery, part)
                else:
                    self._on_rejection(queue, delivery, part)
            self._end_failure(delivery, failed)

    def _missing_parts(self, failed: FailedRecords) -> Iterator[tuple[FailedRecords, bool]]:
        """The failed records in parts; whether a part has to wait for new metadata.

        It has to if the client does not know a partition that the partitioner chose: the topic was
        created again with fewer partitions. A partition that the column chose is the row's mistake.
        """
        if failed.code != ErrorCode.UNKNOWN_PARTITION:
            yield failed, failed.code == ErrorCode.UNKNOWN_TOPIC
            return
        chosen = self.deliveries.records(failed).partitions
        if chosen is None:
            yield failed, True
            return
        positions = np.array(failed.positions, dtype=np.int64)
        for is_missing in (False, True):
            some = positions[(chosen < 0) == is_missing].tolist()
            if some:
                yield replace(failed, count=len(some), positions=tuple(some)), is_missing

    def _on_reported_failure(self, failed: FailedRecords) -> None:
        """A broker rejected a batch, or the client dropped records.

        The client drops a topic's records as soon as one metadata answer lacks the topic.
        """
        delivery = self.deliveries.find(failed.delivery_id)
        if delivery is None:
            return
        self._bad_batches.note_failed(delivery.topic)
        # A failed delivery aborts the transaction, so there are no dead letters for it. There are
        # for records that the client never got.
        queue = None if self._is_transactional else self._dead_letters
        if failed.code in MISSING_ERRORS:
            self._on_missing_topic(queue, delivery, failed)
        elif self._bad_batches.may_contain_good(delivery.topic, failed):
            # The topic's limits are not known, have changed, or are not what this batch exceeded.
            self._send_again(delivery, failed)
        else:
            self._on_rejection(queue, delivery, failed, is_batch=failed.count > 1)
        self._end_failure(delivery, failed)

    def _on_missing_topic(
        self, queue: DeadLetterQueue | None, delivery: Delivery, failed: FailedRecords
    ) -> None:
        """The topic seems to be missing: ask again before its records become dead letters."""
        # A record that may be stored must neither become a dead letter nor be sent again.
        is_retried = queue is not None and queue.accepts(delivery.topic, failed)
        if is_retried and not failed.possibly_persisted:
            self.topics.await_answer(delivery.topic)
            self._send_again(delivery, failed)
        else:
            self._fail(delivery, failed)

    def _on_rejection(
        self,
        queue: DeadLetterQueue | None,
        delivery: Delivery,
        failed: FailedRecords,
        *,
        is_batch: bool = False,
    ) -> None:
        """Send the rejected records to the topic for dead letters, or fail them."""
        if queue is not None and queue.accepts(delivery.topic, failed):
            self._send_dead_letters(queue, delivery, failed)
        else:
            self._fail(delivery, failed, self._too_large(delivery, failed, is_batch=is_batch))

    def _fail(
        self, delivery: Delivery, failed: FailedRecords, too_large: TooLarge | None = None
    ) -> None:
        queue = self._dead_letters
        if queue is not None and queue.has_rejected_letters(delivery.topic, failed):
            delivery.dead_letter = delivery.dead_letter or queue.describe(
                self.deliveries.records(failed)
            )
        self.deliveries.fail(delivery, failed, too_large)

    def _end_failure(self, delivery: Delivery, failed: FailedRecords) -> None:
        if failed.code in STALE_METADATA_ERRORS:
            self.topics.request_update(delivery.topic)
        self._release_topic(delivery.topic)

    def _too_large(
        self, delivery: Delivery, failed: FailedRecords, *, is_batch: bool
    ) -> TooLarge | None:
        """The error for records that were rejected for their size; None for other failures."""
        if failed.code != ErrorCode.MSG_SIZE_TOO_LARGE or not failed.positions:
            return None
        records = self.deliveries.records(failed)
        size = batch_bytes(records) if is_batch else largest_bytes(records)
        if failed.partition == UNASSIGNED:  # by the client, whose only limit is max.request.size
            return TooLarge(failed.count, size, self._settings.max_request_bytes, is_batch)
        is_known = self.topics.are_limits_known(delivery.topic)
        limit = self.topics.limits(delivery.topic).max_batch_bytes if is_known else None
        return TooLarge(failed.count, size, limit, is_batch)

    def _send_again(self, delivery: Delivery, failed: FailedRecords) -> None:
        """Buffer rejected records again, before all later ones of their topic."""
        records = self.deliveries.records(failed)
        self._buffer.buffer_retries(self._bad_batches.retries(delivery, records, failed))

    def _on_broker_error(self, error: BrokerError) -> None:
        report = self.deliveries.report
        # ALL_BROKERS_DOWN follows every failed connection, but does not say why it failed.
        if error.code != ErrorCode.ALL_BROKERS_DOWN or not report.broker_error:
            report.broker_error = explained(error, self._settings)
        if error.code == ErrorCode.TRANSPORT:
            self.topics.request_update_of_all()

    def _release_topic(self, topic: str) -> None:
        if topic not in self.deliveries.topics:
            self.topics.release(topic)

    def _fetch_metadata(self) -> None:
        """Forget idle topics, and request the metadata of those that are due."""
        scan = self.topics.scan(self.deliveries.topics)
        self._buffer.forget(scan.evicted)
        self.deliveries.report.metadata_requests += self._fetcher.fetch(scan.due)

    # --- the end ---------------------------------------------------------------------------------

    def abort(self) -> None:
        """Fail all records that the client does not have, and accept no more."""
        self._on_unreported_failures(self._buffer.fail_all())
        self.deliveries.close_all()

    def fail_unreported(self) -> None:
        """Fail the records that the client has not reported in time."""
        # Retries and dead letters of rejections that were reported after ``abort``: never sent.
        self._on_unreported_failures(self._buffer.fail_all())
        self._on_unreported_failures(list(self.deliveries.outstanding()))


class DeadLetterQueue:
    """Which failed records become records of the topic for dead letters.

    Sends nothing: dead letters are deliveries like others, and the task waits for them.
    """

    def __init__(self, topic: str) -> None:
        self._topic = topic
        #: the task whose records are sent
        self.origin: Origin = UNKNOWN_ORIGIN

    def accepts(self, topic: str, failed: FailedRecords) -> bool:
        """Whether these are rejected records of another topic: only rejections have positions."""
        return bool(failed.positions) and topic != self._topic

    def has_rejected_letters(self, topic: str, failed: FailedRecords) -> bool:
        """Whether these are rejected records of the topic for dead letters."""
        return bool(failed.positions) and topic == self._topic

    def describe(self, letters: RecordColumns) -> str:
        """The row of the first of these dead letters, and why it is one."""
        from spark_kafka_sink.records.dead_letter import describe

        return describe(letters)

    def rejected(
        self,
        topic: str,
        records: RecordColumns,
        failed: FailedRecords,
        too_large: TooLarge | None,
    ) -> RejectedRecords:
        """The failed ``records`` of that topic, with the reason."""
        reason = rejection_reason(topic, failed.partition, failed.code, too_large=too_large)
        return RejectedRecords(records, error_name(failed.code), reason, topic.encode())

    def dead_letters(self, rejected: RejectedRecords) -> list[RecordColumns]:
        """Dead letters for records of the present task."""
        from spark_kafka_sink.records.dead_letter import dead_letters  # most tasks have none

        now_ms = round(time.time() * 1000)
        return dead_letters(rejected, self._topic, self.origin, now_ms)


def process_rack(options: RackOptions) -> str:
    """The rack of this process; raises InvalidOption if the variable is not set."""
    rack = options.name or os.environ.get(options.variable or "", "")
    if not rack:
        raise InvalidOption(
            f"the environment variable {options.variable} (client.rack.variable) is not set in "
            f"this Python worker on {socket.gethostname()}: set it on every executor, for "
            f"instance with spark.executorEnv.{options.variable}, or remove the option"
        )
    return rack


def assert_never(value: NoReturn) -> NoReturn:
    """Fails the type check if an event is left out (``typing.assert_never`` of Python 3.11)."""
    raise AssertionError(value)
