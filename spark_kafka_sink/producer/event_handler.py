"""Applies the client's events, then sends the records and requests that they make due."""

from __future__ import annotations

from collections.abc import Iterable

from spark_kafka_sink.connection.oauth_token import TokenFunction
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.error_codes import STALE_METADATA_ERRORS, ErrorCode
from spark_kafka_sink.librdkafka.events import (
    AcknowledgedRecords,
    BrokerError,
    Configuration,
    Event,
    FailedRecords,
    RequestFailed,
    Statistics,
    TokenNeeded,
    TopicDescription,
)
from spark_kafka_sink.producer.dead_letter_queue import DeadLetterQueue
from spark_kafka_sink.producer.deliveries import Delivery, IncompleteDeliveries
from spark_kafka_sink.producer.metadata_fetcher import MetadataFetcher
from spark_kafka_sink.producer.send_buffer import SendBuffer
from spark_kafka_sink.producer.topic_metadata import TopicMetadata


class EventHandler:
    """Used by one thread at a time, like everything it works with."""

    def __init__(
        self,
        client: Client,
        deliveries: IncompleteDeliveries,
        topics: TopicMetadata,
        buffer: SendBuffer,
        tokens: TokenFunction,
        dead_letters: DeadLetterQueue | None = None,
    ) -> None:
        self._client = client
        self._deliveries = deliveries
        self._topics = topics
        self._buffer = buffer
        self._tokens = tokens
        self._dead_letters = dead_letters
        self._fetcher = MetadataFetcher(client, topics)

    def handle(self, seconds: float) -> None:
        """Apply all events, waiting that long for the first; then send what has become sendable.

        Handlers of the client's log lines run inside this call.
        """
        self.collect(seconds)
        for topic, code in self._topics.unusable():
            self.apply_failures(self._buffer.refuse(topic, code))
        self.apply_failures(self._buffer.drain())
        self.fetch_metadata()

    def collect(self, seconds: float) -> None:
        """Apply all events, waiting that long for the first; send nothing more."""
        for event in self._client.poll(seconds):
            self._apply(event)
        self._tokens.pass_on(self._client)

    def fetch_metadata(self) -> None:
        """Forget idle topics, and request the metadata of those that are due."""
        in_use = self._deliveries.topics
        self._buffer.forget(self._topics.evict_idle(in_use))
        self._deliveries.report.metadata_requests += self._fetcher.fetch_due(in_use)

    def connect(self) -> None:
        """Find the brokers now, so that the first topic request does not have to."""
        self._fetcher.connect()

    def _apply_acknowledgements(self, acknowledged: AcknowledgedRecords) -> None:
        for topic in self._deliveries.acknowledge(acknowledged):
            self._topics.acknowledged(topic)
            self._release_topic(topic)

    def apply_failures(self, failures: Iterable[FailedRecords]) -> None:
        """Apply what the client did not accept to the deliveries and to their topics' metadata."""
        for failed in failures:
            self._apply_failure(failed, by_broker=False)

    def _apply_failure(self, failed: FailedRecords, *, by_broker: bool) -> None:
        delivery = self._deliveries.find(failed.delivery_id)
        if delivery is None:
            return
        if self._dead_letters is not None and self._dead_letters.takes(delivery, failed):
            self._dead_letters.apply(delivery, failed, by_broker=by_broker)
        else:
            self._deliveries.fail(delivery, failed)
        if failed.code in STALE_METADATA_ERRORS:
            self._topics.request_update(delivery.topic)
        self._release_topic(delivery.topic)

    def seal(self, delivery: Delivery, sent_bytes: int) -> None:
        """End the delivery's send."""
        self._deliveries.seal(delivery, sent_bytes)
        self._release_topic(delivery.topic)

    def _apply(self, event: Event) -> None:
        if isinstance(event, AcknowledgedRecords):
            self._apply_acknowledgements(event)
        elif isinstance(event, FailedRecords):
            self._apply_failure(event, by_broker=True)
        elif isinstance(event, TopicDescription):
            self._fetcher.apply(event, is_in_use=event.topic in self._deliveries.topics)
            self._buffer.on_metadata_change(event.topic)
        elif isinstance(event, Configuration):
            self._topics.update_limits(event)
            self._buffer.on_metadata_change(event.resource)
        elif isinstance(event, RequestFailed):
            for topic in self._fetcher.apply_failure(event.topics):
                self._buffer.on_metadata_change(topic)
        elif isinstance(event, BrokerError):
            self._apply_broker_error(event)
        elif isinstance(event, TokenNeeded):
            self._tokens.call()
        elif isinstance(event, Statistics):
            self._deliveries.note(event)

    def _apply_broker_error(self, error: BrokerError) -> None:
        report = self._deliveries.report
        # ALL_BROKERS_DOWN follows every failed connection, but does not say why it failed.
        if error.code != ErrorCode.ALL_BROKERS_DOWN or not report.broker_error:
            report.broker_error = error.text
        if error.code == ErrorCode.AUTHENTICATION:
            self._tokens.discard()
        elif error.code == ErrorCode.TRANSPORT:
            self._topics.request_update_of_all()

    def _release_topic(self, topic: str) -> None:
        if topic not in self._deliveries.topics:
            self._topics.release(topic)
