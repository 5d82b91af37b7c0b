"""Delivery: what becomes of the rows of one send."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from spark_kafka_sink.librdkafka.events import ReportedRecords


class Delivery:
    """A handle for the rows that one ``send`` put into the buffer (KIP-286).

    ``acknowledged_rows``, ``failed_rows`` by partition (-1: not assigned) and error code, and
    ``possibly_persisted_records``, those of the failed that may have arrived all the same.
    """

    def __init__(
        self, delivery_id: int, topic: str, look: Callable[[], None], wait: Callable[..., None]
    ) -> None:
        self.delivery_id = delivery_id
        self.topic = topic
        self.rows = 0
        self.is_sending = True  # until send has handed over all it will
        self.acknowledged_rows = 0
        self.failed_rows: Counter[tuple[int, int]] = Counter()
        self.possibly_persisted_records = 0
        self._look = look
        self._wait = wait

    def done(self) -> bool:
        """Whether every row was acknowledged or has failed. Does not wait."""
        if not self.is_settled:
            self._look()
        return self.is_settled

    def failed(self) -> bool:
        """Whether a row is known to have failed. Does not wait."""
        if not self.is_settled:
            self._look()
        return bool(self.failed_rows)

    def result(self, timeout_seconds: float) -> None:
        """Wait until every row was acknowledged.

        Raises DeliveryFailed if a row failed, MetadataTimeout or TopicUnavailable if the rows'
        topic has no metadata in time, DeadlineExceeded after ``timeout_seconds``, ProducerClosed
        if the producer is closed meanwhile.
        """
        self._wait(self, timeout_seconds)

    @property
    def is_settled(self) -> bool:
        if self.is_sending:
            return False
        return self.outstanding_rows == 0

    @property
    def outstanding_rows(self) -> int:
        return self.rows - self.acknowledged_rows - self.total_failed

    @property
    def total_failed(self) -> int:
        return sum(self.failed_rows.values())

    def note(self, report: ReportedRecords) -> None:
        """Count the rows of one report."""
        if report.code == 0:
            self.acknowledged_rows += report.count
            return
        self.failed_rows[report.partition, report.code] += report.count
        if report.possibly_persisted:
            self.possibly_persisted_records += report.count
