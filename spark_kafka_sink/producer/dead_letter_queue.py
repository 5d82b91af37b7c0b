"""[both] Which failed records become dead letters, and what these say."""

from __future__ import annotations

import time

from spark_kafka_sink.librdkafka.error_codes import error_name
from spark_kafka_sink.librdkafka.events import FailedRecords
from spark_kafka_sink.producer.error_messages import rejection_reason
from spark_kafka_sink.producer.sends import TooLarge
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.rejection import UNKNOWN_ORIGIN, Origin, RejectedRecords


class DeadLetterQueue:
    """Which failed records become records of the topic for dead letters.

    Sends nothing: dead letters are sends like others, and the task waits for them.
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
