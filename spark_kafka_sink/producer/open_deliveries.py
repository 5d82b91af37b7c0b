"""The sends whose rows are not all reported, and the report on those that are."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from spark_kafka_sink.librdkafka.events import ReportedRecords
from spark_kafka_sink.producer.delivery import Delivery
from spark_kafka_sink.producer.delivery_report import DeliveryReport

PURGED_IN_FLIGHT = -151
PURGED_UNSENT = -152


class OpenDeliveries:
    """Deliveries by number, until each is settled; ``settled`` is called for each then."""

    def __init__(self, settled: Callable[[Delivery], None]) -> None:
        self._settled = settled
        self._ids = count(1)
        self._open: dict[int, Delivery] = {}
        self.report = DeliveryReport()
        self.first_failed: Delivery | None = None
        #: of all deliveries ever, so that one can see whether anything moves
        self.reported_rows = 0

    def __bool__(self) -> bool:
        return bool(self._open)

    def begin(self, topic: str, look: Callable[[], None], wait: Callable[..., None]) -> Delivery:
        """A delivery of no rows yet."""
        delivery = Delivery(next(self._ids), topic, look, wait)
        self._open[delivery.delivery_id] = delivery
        return delivery

    def handed_over(self, delivery: Delivery, sent_bytes: int) -> None:
        """Its send is over: it gets no more rows."""
        self.report.sent_rows[delivery.topic] += delivery.rows
        self.report.sent_bytes += sent_bytes
        delivery.is_sending = False
        self._settle(delivery)

    def note(self, report: ReportedRecords) -> Delivery | None:
        """Count what became of some rows; returns their delivery, if it is open."""
        delivery = self._open.get(report.delivery_id)
        if delivery is None:
            return None
        delivery.note(report)
        self.reported_rows += report.count
        if report.code:
            self.first_failed = self.first_failed or delivery
            self.report.failed_rows[delivery.topic, report.partition, report.code] += report.count
            if report.possibly_persisted:
                self.report.possibly_persisted_records += report.count
            elif report.code in (PURGED_UNSENT, PURGED_IN_FLIGHT):
                self.report.unsent_rows += report.count
        self._settle(delivery)
        return delivery

    def unreported(self) -> list[Delivery]:
        """Deliveries with rows of which nothing was heard yet."""
        return [each for each in self._open.values() if each.outstanding_rows]

    def take_report(self) -> DeliveryReport:
        """What happened since the last call; the next report begins empty."""
        report, self.report = self.report, DeliveryReport()
        self.first_failed = None
        return report

    def _settle(self, delivery: Delivery) -> None:
        if delivery.is_settled and self._open.pop(delivery.delivery_id, None) is not None:
            self._settled(delivery)
