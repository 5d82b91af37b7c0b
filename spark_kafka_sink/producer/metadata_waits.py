"""Which topics' records wait for metadata, since when, and how they fail."""

from __future__ import annotations

import time
from itertools import chain

from spark_kafka_sink.config.producer_options import MISSING_TOPIC_SECONDS
from spark_kafka_sink.deadline import Clock
from spark_kafka_sink.librdkafka.error_codes import NON_RETRIABLE_TOPIC_ERRORS, ErrorCode
from spark_kafka_sink.producer.topic_state import TopicError


class MetadataWaits:
    """With a ``dead_letter_topic``, records of other topics become dead letters instead of failing.

    No call searches all topics, except for those that are unusable.
    """

    def __init__(self, clock: Clock = time.monotonic, dead_letter_topic: str | None = None) -> None:
        self._clock = clock
        self._dead_letter_topic = dead_letter_topic
        #: when the wait of each topic began; longest wait first
        self._since: dict[str, float] = {}
        #: the code of the latest answer about each of them, if that is an error
        self._errors: dict[str, int] = {}
        #: those of them that are forbidden or invalid
        self._non_retriable: dict[str, None] = {}
        #: those of them whose records become dead letters if the next answer is late enough
        self._missing: set[str] = set()
        #: those of them whose records become dead letters now
        self._unusable: dict[str, None] = {}

    def __bool__(self) -> bool:
        return bool(self._since)

    def __contains__(self, topic: str) -> bool:
        return topic in self._since

    def start(self, topic: str) -> None:
        """Records wait for the topic from now on, unless some do already."""
        self._since.setdefault(topic, self._clock())

    def stop(self, topic: str) -> None:
        """No record waits for the topic any longer."""
        if self._since.pop(topic, None) is not None:
            self.clear_error(topic)
            self._non_retriable.pop(topic, None)

    def clear_error(self, topic: str) -> None:
        """The latest answer is no error."""
        self._errors.pop(topic, None)
        self._missing.discard(topic)
        self._unusable.pop(topic, None)

    def note_silence(self, topic: str) -> None:
        """The latest request got no answer: the budget of a missing topic counts again."""
        self._missing.discard(topic)

    def set_error(self, topic: str, error: TopicError) -> None:
        """The latest answer is an error."""
        if topic not in self._since:
            return
        self.clear_error(topic)
        self._errors[topic] = error.code
        if error.code in NON_RETRIABLE_TOPIC_ERRORS:
            self._non_retriable[topic] = None
        if self._becomes_dead_letters(topic, error.code):
            since = error.missing_since
            if since is not None and self._clock() - since < MISSING_TOPIC_SECONDS:
                self._missing.add(topic)
            else:
                self._unusable[topic] = None

    def unusable(self) -> list[tuple[str, int]]:
        """Topics whose records become dead letters now, each with its error.

        They are forbidden or invalid, or answers say that they are missing, the first and the
        latest of them at least ``MISSING_TOPIC_SECONDS`` apart.
        """
        return [(topic, self._errors[topic]) for topic in self._unusable]

    def first_failure(
        self, budget_seconds: float, topic: str | None = None
    ) -> tuple[str, int] | None:
        """The topic that has failed after the longest wait, with its latest error, else None.

        A topic fails on a non-retriable error, or after waiting ``budget_seconds``. With
        ``topic``, only that topic counts.
        """
        if not self._since:
            return None
        if topic is None:
            waiting = chain(self._non_retriable, self._since)
            topic = next((each for each in waiting if not self._is_rejected(each)), None)
        if topic is None or topic not in self._since or self._is_rejected(topic):
            return None
        is_overdue = self._clock() - self._since[topic] >= budget_seconds
        if not is_overdue and topic not in self._non_retriable:
            return None
        return topic, self._errors.get(topic, ErrorCode.NO_ERROR)

    def _is_rejected(self, topic: str) -> bool:
        """Whether the topic's records become dead letters, or will, instead of failing."""
        return topic in self._unusable or topic in self._missing

    def _becomes_dead_letters(self, topic: str, code: int) -> bool:
        return self._dead_letter_topic not in (None, topic) and (
            code in NON_RETRIABLE_TOPIC_ERRORS or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
