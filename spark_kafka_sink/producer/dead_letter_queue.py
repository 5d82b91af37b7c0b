"""DeadLetterQueue: sends records that were refused for their own sake to another topic."""

from __future__ import annotations

import time

from spark_kafka_sink.librdkafka.error_codes import BATCH_ERRORS, ErrorCode
from spark_kafka_sink.librdkafka.error_texts import error_name
from spark_kafka_sink.librdkafka.events import FailedRecords
from spark_kafka_sink.producer.deliveries import Delivery, IncompleteDeliveries
from spark_kafka_sink.producer.error_messages import refusal
from spark_kafka_sink.producer.send_buffer import SendBuffer, Sending
from spark_kafka_sink.producer.topic_metadata import TopicMetadata
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.dead_letter import UNKNOWN_ORIGIN, Origin, dead_letters
from spark_kafka_sink.records.refusal import RefusedRecords


class DeadLetterQueue:
    """Used by one thread at a time, like everything it works with.

    Dead letters are deliveries like others: the task waits for them, and fails if one fails.
    """

    def __init__(
        self,
        topic: str,
        deliveries: IncompleteDeliveries,
        topics: TopicMetadata,
        buffer: SendBuffer,
    ) -> None:
        self._topic = topic
        self._deliveries = deliveries
        self._topics = topics
        self._buffer = buffer
        #: the task whose records are sent
        self.origin: Origin = UNKNOWN_ORIGIN

    def takes(self, delivery: Delivery, failed: FailedRecords) -> bool:
        """Whether these are records of another topic that were refused."""
        return bool(failed.positions) and delivery.topic != self._topic

    def apply(self, delivery: Delivery, failed: FailedRecords, *, by_broker: bool) -> None:
        """Send dead letters for the records, or the records again.

        ``by_broker``: the whole batch was refused, perhaps because of only some of its records.
        """
        records = self._deliveries.records(failed)
        if by_broker and _may_be_good(failed):
            # The topic's configuration has changed, or does not tell.
            self._topics.renew_limits(delivery.topic)
            self._buffer.send_again(delivery, records, failed)
            return
        reason = refusal(delivery.topic, failed.partition, failed.code)
        refused = RefusedRecords(records, error_name(failed.code), reason, delivery.topic.encode())
        for letters in self.dead_letters(refused):
            self._send(letters)
        self._deliveries.refuse(delivery, refused)

    def dead_letters(self, refused: RefusedRecords) -> list[RecordColumns]:
        """Dead letters for records of the present task."""
        now_ms = round(time.time() * 1000)
        return dead_letters(refused, self._topic, self.origin, now_ms)

    def _send(self, letters: RecordColumns) -> None:
        sending = Sending(self._deliveries.begin(self._topic), letters)
        # Without waiting for room: their Arrow batch is in the buffer already.
        self._deliveries.admit_anyway(sending.delivery, letters)
        self._topics.await_metadata(self._topic)
        self._buffer.hold(sending)
        self._deliveries.seal(sending.delivery, letters.total_bytes)


def _may_be_good(failed: FailedRecords) -> bool:
    if failed.code in BATCH_ERRORS:
        return failed.count > 1
    return failed.code == ErrorCode.INVALID_DIFFERENT_RECORD
