"""Reads and writes the ledger's offsets, repeating what brokers cannot answer yet."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import DeadlineExceeded, KafkaSinkError, TransactionFailed
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.error_texts import error_name, error_text
from spark_kafka_sink.librdkafka.group_offsets import (
    CommittedOffset,
    fetch_offsets,
    store_offset,
)
from spark_kafka_sink.producer.producer import NonBlockingProducer

_REQUEST_SECONDS = 5.0
_PAUSE_SECONDS = 0.05

_REFUSED: Mapping[int, str] = {
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "grant this user Read on consumer groups that begin "
    "with transactional.id.prefix",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "grant this user Read on the topic of the ledger "
    "(exactly.once.ledger.topic, by default topic)",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "grant this user Write and Describe on "
    "transactional ids that begin with transactional.id.prefix",
}


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


def read_offsets(
    producer: NonBlockingProducer, groups: Sequence[str], topic: str, wait: Wait
) -> dict[str, CommittedOffset | None]:
    """The groups' stable offsets for partition 0 of the topic; an error is never "no offset".

    Raises TransactionFailed or DeadlineExceeded.
    """
    while True:
        with producer.client_turn() as client:
            seconds = wait.deadline.slice(_REQUEST_SECONDS)
            answers = fetch_offsets(client, groups, topic, seconds)
        producer.poll()  # a login may need a token
        codes = [answer.code for answer in answers.values() if answer.code]
        if not codes:
            return {group: answer.committed for group, answer in answers.items()}
        if wait.is_over(codes[0]):
            raise wait.error(codes[0])
        wait.pause()


def write_offset(
    producer: NonBlockingProducer, group: str, topic: str, offset: CommittedOffset, wait: Wait
) -> None:
    """Commit a group's offset. Raises TransactionFailed or DeadlineExceeded."""
    while True:
        with producer.client_turn() as client:
            seconds = wait.deadline.slice(_REQUEST_SECONDS)
            code = store_offset(client, group, topic, offset, seconds)
        producer.poll()
        if code == ErrorCode.NO_ERROR:
            return
        if wait.is_over(code):
            raise wait.error(code)
        wait.pause()
