"""DeliveryReport: what a task delivered and what it did not; adds up over a micro-batch."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass
class DeliveryReport:
    """Rows handed over and rows that failed, so far.

    ``sent_rows`` by topic; ``failed_rows`` by topic, partition (-1: not assigned yet) and
    librdkafka's error code. ``sent_bytes`` are those of keys and values.
    """

    sent_rows: Counter[str] = field(default_factory=Counter)
    sent_bytes: int = 0
    failed_rows: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    #: of the failed: given up before they were sent, and those that may have arrived all the same
    unsent_rows: int = 0
    possibly_persisted_records: int = 0
    #: the latest trouble between client and brokers, or ""
    broker_error: str = ""

    @property
    def total_sent(self) -> int:
        return sum(self.sent_rows.values())

    @property
    def total_failed(self) -> int:
        return sum(self.failed_rows.values())

    def __add__(self, other: DeliveryReport) -> DeliveryReport:
        return DeliveryReport(
            self.sent_rows + other.sent_rows,
            self.sent_bytes + other.sent_bytes,
            self.failed_rows + other.failed_rows,
            self.unsent_rows + other.unsent_rows,
            self.possibly_persisted_records + other.possibly_persisted_records,
            other.broker_error or self.broker_error,
        )

    def delivered_rows(self) -> Counter[str]:
        """Rows by topic that the brokers acknowledged; topics without any are left out."""
        delivered = self.sent_rows.copy()
        for (topic, _, _), rows in self.failed_rows.items():
            delivered[topic] -= rows
        return +delivered

    def counts(self) -> str:
        """A sentence on a task that failed: how many rows met which end, and of which topics."""
        failed: Counter[str] = Counter()
        for (topic, _, _), rows in self.failed_rows.items():
            failed[topic] += rows
        by_topic = ", ".join(f"{topic}: {rows}" for topic, rows in sorted(failed.items()))
        refused = self.total_failed - self.unsent_rows - self.possibly_persisted_records
        return (
            f"Of {self.total_sent} rows {self.total_sent - self.total_failed} were delivered, "
            f"{refused} failed, {self.unsent_rows} were not sent, "
            f"{self.possibly_persisted_records} were in flight and may have arrived "
            f"({by_topic or 'none undelivered'})"
        )

    def to_json(self) -> str:
        """One line for a log: what was delivered, and the bytes that were sent."""
        delivered = self.delivered_rows()
        return json.dumps(
            {
                "rows": delivered.total(),
                "sent_bytes": self.sent_bytes,
                "rows_by_topic": dict(sorted(delivered.items())),
            }
        )


def total(reports: Iterable[DeliveryReport]) -> DeliveryReport:
    """The report of a micro-batch, from those of its tasks."""
    return sum(reports, DeliveryReport())
