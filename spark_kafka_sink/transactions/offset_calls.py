"""Reads and writes the ledger's offsets, repeating what brokers cannot answer yet."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import DeadlineExceeded, KafkaSinkError, TransactionFailed
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.error_texts import error_name, error_text
from spark_kafka_sink.librdkafka.events import TokenNeeded
from spark_kafka_sink.librdkafka.group_offsets import (
    CommittedOffset,
    OffsetsClient,
    fetch_offsets,
    store_offset,
)
from spark_kafka_sink.producer.oauth_token import TokenFunction

_REQUEST_SECONDS = 5.0
_PAUSE_SECONDS = 0.05
_FREE_SECONDS = 0.8

_REFUSED: Mapping[int, str] = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "grant this user Read on consumer groups that begin "
    "with transactional.id.prefix",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "grant this user Read on the topic of the ledger "
    "(exactly.once.ledger.topic, by default topic)",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant this user Write and Describe on "
    "transactional ids that begin with transactional.id.prefix",
}

T = TypeVar("T")


@dataclass(frozen=True)
class Wait:
    """A wait for the brokers, the option that bounds it, and what it is for."""

    deadline: Deadline
    option: str
    purpose: str

    def error(self, code: int, text: str = "") -> KafkaSinkError:
        """For what the brokers answered last."""
        said = f"{text or error_text(code)} ({error_name(code)})"
        if code in _REFUSED:
            return TransactionFailed(
                f"{self.purpose}: {said}; {_REFUSED[code]}", code=error_name(code)
            )
        return DeadlineExceeded(
            f"{self.purpose}: {said}, until the time was up ({self.option}). Check that the "
            "brokers are reachable, and that the coordinators of transactions and groups have "
            "enough replicas in sync; Spark's next attempt finds out what was committed"
        )

    def is_over(self, code: int) -> bool:
        return self.deadline.expired or code in _REFUSED

    def pause(self) -> None:
        time.sleep(self.deadline.slice(_PAUSE_SECONDS))


class Offsets:
    """Offsets of groups for partition 0 of a topic. Connects at once, in the background.

    ``group``: one that the user may read. Used by one thread, and closed at the end.
    """

    def __init__(self, settings: ClientSettings, topic: str, group: str) -> None:
        self._settings = settings
        self._topic = topic
        self._group = group
        self._tokens = TokenFunction(settings)
        self._client = self._connected()

    def _connected(self) -> OffsetsClient:
        client = OffsetsClient(
            self._settings, self._group, asks_for_tokens=bool(self._settings.oauth_callback)
        )
        #: it has not asked for its first token yet
        self._awaits_token = bool(self._settings.oauth_callback)
        client.connect(_REQUEST_SECONDS)
        return client

    def read(self, groups: Sequence[str], wait: Wait) -> dict[str, CommittedOffset | None]:
        """The groups' stable offsets; an error is never "no offset".

        Raises TransactionFailed or DeadlineExceeded.
        """
        found: dict[str, CommittedOffset | None] = {}

        def fetch(seconds: float) -> int:
            answers = fetch_offsets(self._client, groups, self._topic, seconds)
            found.update((group, answer.committed) for group, answer in answers.items())
            return next((answer.code for answer in answers.values() if answer.code), 0)

        self._repeat(fetch, wait)
        return found

    def write(self, group: str, offset: CommittedOffset, wait: Wait) -> None:
        """Commit a group's offset. Raises TransactionFailed or DeadlineExceeded."""
        self._repeat(
            lambda seconds: store_offset(self._client, group, self._topic, offset, seconds), wait
        )

    def _repeat(self, request: Callable[[float], int], wait: Wait) -> None:
        while True:
            self._log_in(wait)
            code = request(wait.deadline.slice(_REQUEST_SECONDS))
            if code == ErrorCode.NO_ERROR:
                return
            if wait.is_over(code):
                raise wait.error(code)
            wait.pause()
            if code != ErrorCode.UNSTABLE_OFFSET_COMMIT:
                # It may go on asking a broker that is no longer the coordinator.
                self.close()
                self._client = self._connected()

    def _log_in(self, wait: Wait) -> None:
        """Handle the client's events, and give a new client its token: requests wait for it."""
        while True:
            for event in self._client.poll(0.0):
                if isinstance(event, TokenNeeded):
                    self._tokens.call()
                    self._awaits_token = False
            self._tokens.pass_on(self._client)
            if wait.deadline.expired or not (self._awaits_token or self._tokens.is_pending):
                return
            wait.pause()

    def close(self) -> None:
        self._client.close(Deadline(_FREE_SECONDS))

    def __enter__(self) -> Offsets:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
