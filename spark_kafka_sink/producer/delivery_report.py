"""DeliveryReport: what a task delivered and what it did not; a micro-batch's is their sum."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class DeliveryReport:
    """Records that were sent and records that failed, so far.

    ``sent_records``: by topic. ``failed_records``: by topic, partition (-1: not assigned yet) and
    librdkafka's error code. ``sent_bytes``: of keys and values. Without failures, what was sent was
    delivered: the brokers have acknowledged it.
    """

    sent_records: Counter[str] = field(default_factory=Counter)
    sent_bytes: int = 0
    failed_records: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    #: failed records that were dropped before they were sent
    unsent_records: int = 0
    #: failed records that may be in the topic anyway
    possibly_persisted_records: int = 0
    #: refused records by topic and error; their dead letters are among ``sent_records``
    dead_letters: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: the latest error between client and brokers, or ""
    broker_error: str = ""
    #: the micro-batch's id, in its report; None in a task's, and in a sum
    batch_id: int | None = None

    @property
    def total_sent(self) -> int:
        return sum(self.sent_records.values())

    @property
    def total_failed(self) -> int:
        return sum(self.failed_records.values())

    def __add__(self, other: DeliveryReport) -> DeliveryReport:
        return DeliveryReport(
            self.sent_records + other.sent_records,
            self.sent_bytes + other.sent_bytes,
            self.failed_records + other.failed_records,
            self.unsent_records + other.unsent_records,
            self.possibly_persisted_records + other.possibly_persisted_records,
            self.dead_letters + other.dead_letters,
            other.broker_error or self.broker_error,
        )

    def delivered_records(self) -> Counter[str]:
        """Records by topic that the brokers acknowledged; topics without any are left out."""
        delivered = self.sent_records.copy()
        for (topic, _, _), records in self.failed_records.items():
            delivered[topic] -= records
        return +delivered

    def counts(self) -> str:
        """A sentence on a task that failed: what became of its records, by topic."""
        failed: Counter[str] = Counter()
        for (topic, _, _), records in self.failed_records.items():
            failed[topic] += records
        by_topic = ", ".join(f"{topic}: {records}" for topic, records in sorted(failed.items()))
        refused = self.total_failed - self.unsent_records - self.possibly_persisted_records
        return (
            f"Of {self.total_sent} records, {self.total_sent - self.total_failed} were delivered, "
            f"{refused} failed, {self.unsent_records} were not sent, "
            f"{self.possibly_persisted_records} were in flight and may have arrived "
            f"({by_topic or 'none undelivered'})"
        )

    def to_json(self) -> str:
        """One line for a log: what was delivered, and the bytes that were sent."""
        delivered = self.delivered_records()
        return json.dumps(
            {
                "records": delivered.total(),
                "sent_bytes": self.sent_bytes,
                "records_by_topic": dict(sorted(delivered.items())),
                "dead_letters_by_topic": self.dead_letters_by_topic(),
            }
        )

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from spark_kafka_sink.producer.report_html import report_html

        return report_html(json.loads(self.to_json()))

    def dead_letters_by_topic(self) -> dict[str, dict[str, int]]:
        """How many records of each topic ("" for null) were refused with each error."""
        by_topic: dict[str, dict[str, int]] = {}
        for (topic, error), records in sorted(self.dead_letters.items()):
            by_topic.setdefault(topic, {})[error] = records
        return by_topic


def total(reports: Iterable[DeliveryReport]) -> DeliveryReport:
    """The report of a micro-batch, from those of its tasks."""
    return sum(reports, DeliveryReport())
