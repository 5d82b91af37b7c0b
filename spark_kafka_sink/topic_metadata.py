"""Which topics have metadata, which rows wait for it, and when to ask again."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from spark_kafka_sink.deadline import Clock

_FIRST_RETRY_SECONDS = 0.1
_LAST_RETRY_SECONDS = 1.0


@dataclass
class _Topic:
    is_known: bool = False
    #: the error of the latest answer, 0 if there was none
    code: int = 0
    #: when its first row was buffered without metadata
    waiting_since: float | None = None
    is_asked: bool = False
    ask_at: float = 0.0
    retry_seconds: float = _FIRST_RETRY_SECONDS


class TopicMetadata:
    """Topics and the state of their metadata, against an injected clock. Sends nothing itself."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._topics: dict[str, _Topic] = {}

    def mention(self, topics: Iterable[str]) -> None:
        """Topics that will be needed."""
        for topic in topics:
            self._topics.setdefault(topic, _Topic())

    def buffered(self, topic: str) -> None:
        """A row for the topic waits in the buffer: from the first one its budget runs."""
        state = self._topics.setdefault(topic, _Topic())
        if not state.is_known and state.waiting_since is None:
            state.waiting_since = self._clock()

    def answered(self, topic: str, code: int) -> None:
        """Note an answer: 0 for metadata, else an error; one that passes is asked about again."""
        state = self._topics.setdefault(topic, _Topic())
        state.is_asked = False
        state.code = code
        if code == 0:
            state.is_known, state.waiting_since = True, None
            state.retry_seconds = _FIRST_RETRY_SECONDS
        else:
            state.is_known = False
            self._ask_later(state)

    def unanswered(self) -> None:
        """A request failed as a whole; everything it asked for is asked again."""
        for state in self._topics.values():
            if state.is_asked:
                state.is_asked = False
                self._ask_later(state)

    def _ask_later(self, state: _Topic) -> None:
        state.ask_at = self._clock() + state.retry_seconds
        state.retry_seconds = min(2 * state.retry_seconds, _LAST_RETRY_SECONDS)

    def take_due(self) -> list[str]:
        """Topics to ask for now, all in one request; they count as asked from here on."""
        now = self._clock()
        due = [
            topic
            for topic, state in self._topics.items()
            if not state.is_known and not state.is_asked and state.ask_at <= now
        ]
        for topic in due:
            self._topics[topic].is_asked = True
        return sorted(due)

    def is_known(self, topic: str) -> bool:
        return topic in self._topics and self._topics[topic].is_known

    def waiting(self) -> list[tuple[str, float, int]]:
        """Topics with rows but without metadata, the longest wait first.

        Each with the seconds it has waited and the error of its latest answer (0: none yet).
        """
        now = self._clock()
        waiting = [
            (topic, now - state.waiting_since, state.code)
            for topic, state in self._topics.items()
            if state.waiting_since is not None
        ]
        return sorted(waiting, key=lambda each: each[1], reverse=True)

    def settled(self) -> None:
        """No rows wait any more."""
        for state in self._topics.values():
            state.waiting_since = None
