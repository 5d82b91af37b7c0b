"""Asks the brokers for the metadata that TopicMetadata plans to fetch."""

from __future__ import annotations

from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.events import TopicDescription
from spark_kafka_sink.producer.topic_metadata import UNKNOWN_TOPIC_OR_PARTITION, TopicMetadata

# One broker is asked for all topics. If it does not answer, the next request is more patient, and
# the client gets the rows, which makes it ask the others by itself.
_FIRST_REQUEST_SECONDS = 5.0
_LONGEST_REQUEST_SECONDS = 20.0


class MetadataFetcher:
    """Sends one request for a whole plan and takes the answers; never waits."""

    def __init__(self, client: Client, topics: TopicMetadata) -> None:
        self._client = client
        self._topics = topics
        self._request_seconds = _FIRST_REQUEST_SECONDS

    def connect(self) -> None:
        """Find the brokers, so that the first request for topics need not."""
        self._client.connect(self._request_seconds)

    def fetch_due(self) -> None:
        """Ask for all topics that are due, in one request."""
        if due := self._topics.take_due():
            self._client.fetch_metadata(due, self._request_seconds)

    def answered(self, answer: TopicDescription) -> None:
        self._request_seconds = _FIRST_REQUEST_SECONDS
        self._topics.answered(
            answer.topic, answer.code, answer.partition_count, answer.available_partitions
        )
        if answer.code == UNKNOWN_TOPIC_OR_PARTITION and self._topics.is_awaited(answer.topic):
            self._client.open_topic(answer.topic)  # the request that brokers create it for

    def failed(self) -> list[str]:
        """A request got no answer at all; returns the topics whose rows need not be held now."""
        self._request_seconds = min(2 * self._request_seconds, _LONGEST_REQUEST_SECONDS)
        awaited = [topic for topic in self._topics.unanswered() if self._topics.is_awaited(topic)]
        for topic in awaited:
            self._topics.entrust(topic)
        return awaited
