"""[both] Engine: passes records to the client, and handles its reports and answers. Never waits."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NoReturn

import numpy as np

from spark_kafka_sink.clients.session import explained
from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.producer_options import MAX_REQUEST_SIZE, ProducerOptions, RackOptions
from spark_kafka_sink.deadline import Clock
from spark_kafka_sink.errors import InvalidOption, InvalidRecord, KafkaSinkError
from spark_kafka_sink.librdkafka.error_codes import (
    MISSING_ERRORS,
    STALE_METADATA_ERRORS,
    ErrorCode,
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
from spark_kafka_sink.producer import error_messages
from spark_kafka_sink.producer.batch_gate import BatchGate
from spark_kafka_sink.producer.dead_letter_queue import DeadLetterQueue
from spark_kafka_sink.producer.sends import IncompleteSends, Send, TooLarge
from spark_kafka_sink.producer.topic_limits import NO_LIMITS
from spark_kafka_sink.producer.topic_metadata import MetadataFetcher, TopicMetadata
from spark_kafka_sink.producer.topic_queues import TopicQueues
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import Partitioner
from spark_kafka_sink.records.record_size import batch_bytes, largest_bytes
from spark_kafka_sink.records.rejection import Origin, RejectedRecords
from spark_kafka_sink.report.delivery_report import DeliveryReport, Wait


class Engine:
    """A producer without its waits; used by one thread at a time.

    No method waits: the caller polls the client, and passes the events to ``on_events``;
    ``send_due`` then sends the records and requests that have become due.
    """

    def __init__(
        self, options: ProducerOptions, client: ProducerClient, clock: Clock = time.monotonic
    ) -> None:
        self._client = client
        self._settings = options.client
        self._budget = options.budget
        self._dead_letter_topic = options.dead_letter_topic
        self.sends = IncompleteSends(options.buffer_memory_bytes, clock)
        rack = process_rack(options.rack) if options.rack is not None else None
        self._is_transactional = options.is_transactional
        self.topics = TopicMetadata(
            options.lifetime,
            clock,
            options.dead_letter_topic,
            rack,
            needs_limits=options.needs_limits,
        )
        prefers_rack = options.rack is not None and options.rack.is_preferred
        partitioner = Partitioner(is_rack_aware=prefers_rack)
        self._gate = BatchGate(options, self.topics)
        # Without a topic for dead letters, a rejected record fails its task.
        self._dead_letters: DeadLetterQueue | None = None
        if options.dead_letter_topic is not None:
            self._dead_letters = DeadLetterQueue(options.dead_letter_topic)
        self._queues = TopicQueues(client, self.topics, partitioner, self._gate)
        self._fetcher = MetadataFetcher(client, self.topics)

    # --- sending ---------------------------------------------------------------------------------

    def prefetch(self, topics: Iterable[str]) -> None:
        """Request the topics' metadata, all at once; without any topic, only connect."""
        self.topics.add(topics)
        self._fetch_metadata()
        if not self.topics:
            # Find the brokers now, so that the first topic request does not have to.
            self._fetcher.connect()

    def send(self, records: RecordColumns) -> Send | None:
        """Accept all records and enqueue those that may be sent; None if there is no room.

        Records of a topic without metadata are accepted too; the budget for its metadata starts
        with them.
        """
        send = self.sends.admit(records)
        if send is None:
            self.topics.add([records.topic])  # its metadata may arrive before there is room
        elif len(records):
            self._append(send, records)
            self._on_local_failures(self._queues.drain(records.topic))
        return send

    def _append(self, send: Send, records: RecordColumns) -> None:
        self.topics.await_metadata(send.topic)
        self._queues.append(send, records)

    @property
    def has_waiting_records(self) -> bool:
        """Whether accepted records wait until they may be enqueued."""
        return bool(self._queues)

    @property
    def awaits_reports(self) -> bool:
        """Whether accepted records wait until the client has reported earlier ones.

        Their topic is not OPEN (``batch_gate``).
        """
        return self._queues.awaits_reports

    def send_due(self) -> None:
        """Send the records and requests that have become due."""
        for topic, code in self.topics.waits.unusable():
            self._on_local_failures(self._queues.fail_topic(topic, code))
        self._on_local_failures(self._queues.drain_all())
        self._fetch_metadata()

    # --- questions of the producer ---------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether no send is incomplete."""
        return not self.sends

    @property
    def is_idle(self) -> bool:
        """Whether no send is incomplete, and no record has failed since the last report."""
        return self.is_empty and self.sends.first_failed is None

    @property
    def acknowledged(self) -> int:
        """Records acknowledged so far."""
        return self.sends.acknowledged

    def failure(self, topic: str | None = None) -> KafkaSinkError | None:
        """The error for the first failure since the last report, or None.

        With ``topic``, only its metadata counts: each send counts its own failed records.
        """
        if topic is None and self.sends.first_failed is not None:
            return self.send_failure(self.sends.first_failed)
        failure = self.topics.waits.first_failure(self._budget.metadata_seconds, topic)
        if failure is None:
            return None
        return error_messages.no_metadata(
            *failure, self._budget, self.sends.report, self._dead_letter_topic
        )

    def send_failure(self, send: Send) -> KafkaSinkError:
        """The error for a send with failed records."""
        return error_messages.delivery_failed(send, self.sends.report, self._dead_letter_topic)

    def buffer_exhausted(self, topic: str) -> KafkaSinkError:
        """The error for records that found no room in time."""
        return error_messages.buffer_exhausted(topic, self._budget, self.sends.report)

    def deadline_exceeded(self, timeout_seconds: float, topic: str | None = None) -> KafkaSinkError:
        """The error for records that were not acknowledged in time, of any topic or of one."""
        waiting = self.topics.waits.first_failure(0.0, topic)
        return error_messages.deadline_exceeded(timeout_seconds, self.sends.report, waiting)

    def count_wait(self, wait: Wait, seconds: float) -> None:
        """Count the time; while records await metadata, it counts as a wait for metadata."""
        wait = Wait.METADATA if self.topics.waits else wait
        self.sends.report.wait_us[wait] += round(seconds * 1e6)

    def collect_report(self) -> DeliveryReport:
        """The report of what happened since the last call; the next one begins empty."""
        report = self.sends.collect_report()
        crossed = self.topics.cross_rack_records(report.acknowledged_records)
        return replace(report, cross_rack_records=crossed)

    @property
    def broker_error(self) -> str:
        """The latest error between client and brokers since the last report, or ""."""
        return self.sends.report.broker_error

    def live_topics(self) -> list[str]:
        """Topics that were used within ``metadata.evict.ms``."""
        return self.topics.live()

    # --- dead letters ----------------------------------------------------------------------------

    def begin_task(self, origin: Origin) -> None:
        """Set the origin of this task's dead letters."""
        if self._dead_letters is not None:
            self._dead_letters.origin = origin

    def dead_letters(self, rejected: RejectedRecords) -> list[RecordColumns]:
        """Dead letters for rows that cannot become records.

        Raises InvalidRecord if there is no topic for them.
        """
        if self._dead_letters is None:
            raise InvalidRecord(rejected.reason)
        return self._dead_letters.dead_letters(rejected)

    def count_dead_letters(self, rejected: RejectedRecords) -> None:
        """Count rows that are dead letters now."""
        self.sends.count_dead_letters(rejected)

    def _send_dead_letters(
        self, dead_letters: DeadLetterQueue, send: Send, failed: FailedRecords
    ) -> None:
        too_large = self._too_large(send, failed, is_batch=False)
        records = self.sends.records(failed)
        rejected = dead_letters.rejected(send.topic, records, failed, too_large)
        for letters in dead_letters.dead_letters(rejected):
            # Even if the buffer is full: the rejected records' Arrow batch, which they share, is
            # counted already.
            self._append(self.sends.admit_unbounded(letters), letters)
        self.sends.replace_by_dead_letters(send, rejected)

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
                self._on_failed_delivery(event)
            case TopicDescription():
                is_in_use = event.topic in self.sends.topics
                self._fetcher.on_description(event, is_in_use=is_in_use)
                self._queues.on_metadata_change(event.topic)
            case ConfigurationDescription():
                self.topics.update_limits(event)
                self._queues.on_metadata_change(event.resource)
            case RequestFailed():
                for topic in self._fetcher.on_request_failed(event.topics):
                    self._queues.on_metadata_change(topic)
            case BrokerError():
                self._on_broker_error(event)
            case Statistics():
                self.sends.update_statistics(event)
            case ClusterDescription() | TokenNeeded() | TokenRequestFailed() | ApiVersion():
                pass  # the first answers prefetch; the others are the session's and preflight's
            case _:
                assert_never(event)

    def _on_acknowledged(self, acknowledged: AcknowledgedRecords) -> None:
        for topic in self.sends.acknowledge(acknowledged):
            self.topics.on_acknowledged(topic)
            self._release_if_unused(topic)

    def _on_local_failures(self, failures: Iterable[FailedRecords]) -> None:
        """Handle failures that no delivery report announced.

        The pre-check or the client did not accept the records, their queue was dropped, or the
        client has not reported them in time.
        """
        for failed in failures:
            send = self.sends.find(failed.send_id)
            if send is None:
                continue
            for part, is_missing in self._split_missing(failed):
                if is_missing:
                    self._on_missing_topic(self._dead_letters, send, part)
                else:
                    self._on_rejection(self._dead_letters, send, part)
            self._end_failure(send, failed)

    def _split_missing(self, failed: FailedRecords) -> Iterator[tuple[FailedRecords, bool]]:
        """The failed records in parts, each with whether it has to wait for new metadata.

        It has to if the client does not know a partition that the partitioner chose: the topic was
        created again with fewer partitions. A partition that the column chose is the row's mistake:
        a recent answer lacked it.
        """
        if failed.code != ErrorCode.UNKNOWN_PARTITION:
            yield failed, failed.code == ErrorCode.UNKNOWN_TOPIC
            return
        chosen = self.sends.records(failed).partitions
        if chosen is None:
            yield failed, True
            return
        positions = np.array(failed.positions, dtype=np.int64)
        for is_missing in (False, True):
            some = positions[(chosen < 0) == is_missing].tolist()
            if some:
                yield replace(failed, count=len(some), positions=tuple(some)), is_missing

    def _on_failed_delivery(self, failed: FailedRecords) -> None:
        """A broker rejected a batch, or the client dropped records.

        The client drops a topic's records as soon as one metadata answer lacks the topic.
        """
        send = self.sends.find(failed.send_id)
        if send is None:
            return
        self._gate.on_failed(send.topic)
        # In a transaction, a failed delivery aborts all of it, so there is nothing to make dead
        # letters of. Records that never reached the client do become dead letters.
        dead_letters = None if self._is_transactional else self._dead_letters
        if failed.code in MISSING_ERRORS:
            self._on_missing_topic(dead_letters, send, failed)
        elif self._gate.may_contain_good(send.topic, failed):
            # The topic's limits are not known, have changed, or are not what this batch exceeded.
            self._send_again(send, failed)
        else:
            self._on_rejection(dead_letters, send, failed, is_batch=failed.count > 1)
        self._end_failure(send, failed)

    def _on_missing_topic(
        self, dead_letters: DeadLetterQueue | None, send: Send, failed: FailedRecords
    ) -> None:
        """The topic seems to be missing: ask again before its records become dead letters."""
        # A record that may be stored must neither become a dead letter nor be sent again.
        is_sent_again = dead_letters is not None and dead_letters.accepts(send.topic, failed)
        if is_sent_again and not failed.possibly_persisted:
            self.topics.on_client_lost_topic(send.topic)
            self._send_again(send, failed)
        else:
            self._fail(send, failed)

    def _on_rejection(
        self,
        dead_letters: DeadLetterQueue | None,
        send: Send,
        failed: FailedRecords,
        *,
        is_batch: bool = False,
    ) -> None:
        """Send the rejected records to the topic for dead letters, or fail them."""
        if dead_letters is not None and dead_letters.accepts(send.topic, failed):
            self._send_dead_letters(dead_letters, send, failed)
        else:
            self._fail(send, failed, self._too_large(send, failed, is_batch=is_batch))

    def _fail(self, send: Send, failed: FailedRecords, too_large: TooLarge | None = None) -> None:
        if failed.code == ErrorCode.FATAL and (error := self._client.fatal_error()) is not None:
            self._on_broker_error(error)  # its event may not have been read yet
        letters = self._dead_letters
        if letters is not None and letters.has_rejected_letters(send.topic, failed):
            send.dead_letter = send.dead_letter or letters.describe(self.sends.records(failed))
        self.sends.fail(send, failed, too_large)

    def _end_failure(self, send: Send, failed: FailedRecords) -> None:
        if failed.code in STALE_METADATA_ERRORS:
            self.topics.request_update(send.topic)
        self._release_if_unused(send.topic)

    def _too_large(self, send: Send, failed: FailedRecords, *, is_batch: bool) -> TooLarge | None:
        """The details, if the records were rejected for their size."""
        if failed.code != ErrorCode.MSG_SIZE_TOO_LARGE or not failed.positions:
            return None
        records = self.sends.records(failed)
        size = batch_bytes(records) if is_batch else largest_bytes(records)
        return TooLarge(failed.count, size, *self._size_limit(send.topic, failed), is_batch)

    def _size_limit(self, topic: str, failed: FailedRecords) -> tuple[str, int | None]:
        if not failed.is_by_client:
            limits = self.topics.limits(topic) or NO_LIMITS
            most = limits.max_batch_bytes if limits.has_max_batch_bytes else None
            return "max.message.bytes", most
        if topic == self._dead_letter_topic:  # see ``sending_settings``
            return table.BUFFER_MEMORY.name, self.sends.limit_bytes
        return MAX_REQUEST_SIZE, self._settings.max_request_bytes

    def _send_again(self, send: Send, failed: FailedRecords) -> None:
        """Let rejected records wait again, before all later ones of their topic."""
        records = self.sends.records(failed)
        self._queues.add_resends(self._gate.on_rejected(send, records, failed))

    def _on_broker_error(self, error: BrokerError) -> None:
        report = self.sends.report
        # ALL_BROKERS_DOWN follows every failed connection, but does not say why it failed.
        if error.code != ErrorCode.ALL_BROKERS_DOWN or not report.broker_error:
            report.broker_error = explained(error, self._settings)
        if error.code == ErrorCode.TRANSPORT:
            self.topics.request_update_of_all()

    def _release_if_unused(self, topic: str) -> None:
        if topic not in self.sends.topics:
            self.topics.release(topic)

    def _fetch_metadata(self) -> None:
        """Forget idle topics, and request the metadata of those that are due."""
        scan = self.topics.scan(self.sends.topics)
        self._queues.forget(scan.evicted)
        self.sends.report.metadata_requests += self._fetcher.fetch(scan.due)

    # --- the end ---------------------------------------------------------------------------------

    def abort(self) -> None:
        """Fail all records that the client does not have."""
        self._on_local_failures(self._queues.fail_all())

    def fail_unreported(self) -> None:
        """Fail the records that the client has not reported in time."""
        # Resends and dead letters of rejections that were reported after ``abort``: never sent.
        self._on_local_failures(self._queues.fail_all())
        self._on_local_failures(self.sends.outstanding())


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
