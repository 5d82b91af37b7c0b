"""Sends the metadata requests that TopicMetadata plans, and applies the answers."""

from __future__ import annotations

from collections.abc import Container, Iterable

from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import TopicDescription
from spark_kafka_sink.librdkafka.protocol import ProducerClient
from spark_kafka_sink.producer.topic_metadata import TopicMetadata

# One broker gets the request for all topics. If it does not answer, the next request has a longer
# timeout, and the client gets the records: it then requests metadata from other brokers too.
_FIRST_REQUEST_SECONDS = 5.0
_LONGEST_REQUEST_SECONDS = 20.0


class MetadataFetcher:
    """Sends one request per plan; never waits."""

    def __init__(self, client: ProducerClient, topics: TopicMetadata) -> None:
        self._client = client
        self._topics = topics
        self._request_seconds = _FIRST_REQUEST_SECONDS

    def connect(self) -> None:
        """Find the brokers now, so that the first topic request does not have to."""
        self._client.connect(self._request_seconds)

    def fetch_due(self, in_use: Container[str]) -> bool:
        """Request all topics that are due; returns whether there were any.

        ``in_use``: topics with incomplete deliveries.
        """
        due = self._topics.next_request(in_use)
        if limits_due := self._topics.next_limits_request():
            self._client.fetch_topic_configurations(limits_due, _FIRST_REQUEST_SECONDS)
        if not due:
            return False
        if not self._client.has_bootstrapped:
            # Before the client connects, so that its own first requests name the topics too.
            # Otherwise they name none, and brokers would answer both of them before ours.
            for topic in due:
                self._client.open_topic(topic)
        self._client.fetch_metadata(due, self._request_seconds)
        return True

    def apply(self, answer: TopicDescription, *, is_in_use: bool) -> None:
        """Apply the answer for one topic."""
        self._request_seconds = _FIRST_REQUEST_SECONDS
        self._topics.update(answer, is_in_use=is_in_use)
        is_missing = answer.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if is_missing and answer.topic in self._topics.waits:
            self._client.open_topic(answer.topic)  # this request makes brokers create it

    def apply_failure(self, topics: Iterable[str]) -> list[str]:
        """Handle a request without an answer; returns the topics delegated to the client."""
        self._request_seconds = min(2 * self._request_seconds, _LONGEST_REQUEST_SECONDS)
        awaited = self._topics.fail_request(topics)
        for topic in awaited:
            self._topics.delegate_to_client(topic)
        return awaited
