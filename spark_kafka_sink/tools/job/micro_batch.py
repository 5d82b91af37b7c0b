"""MicroBatch: what is known about a micro-batch that has ended."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.report.progress import rows_per_second


@dataclass(frozen=True)
class MicroBatch:
    """From Spark's progress, and from the sink's report if there is one.

    ``report``: as ``DeliveryReport.to_dict``, or None if there is none: then it is not known what
    was delivered.
    """

    batch_id: int
    started_at: str
    duration_ms: int
    input_rows: int
    rows_per_second: float | None
    report: Mapping[str, Any] | None

    @classmethod
    def of(cls, progress: Mapping[str, Any], report: Mapping[str, Any] | None) -> MicroBatch:
        """From an entry of ``StreamingQuery.recentProgress``."""
        return cls(
            batch_id=progress["batchId"],
            started_at=progress["timestamp"],
            duration_ms=progress["durationMs"]["triggerExecution"],
            input_rows=progress["numInputRows"],
            rows_per_second=rows_per_second(progress),
            report=report,
        )

    def delivered_records(self) -> Counter[str] | None:
        """By topic; None if that is not known."""
        return None if self.report is None else Counter(self.report["records_by_topic"])

    def failed_records(self) -> Counter[str] | None:
        """By topic; None if that is not known."""
        return None if self.report is None else Counter(self.report["failed_records_by_topic"])

    def dead_letters(self) -> Counter[str] | None:
        """Refused records by the topic that they were meant for; None if that is not known."""
        if self.report is None:
            return None
        by_topic = self.report["dead_letters_by_topic"]
        return Counter({topic: sum(by_error.values()) for topic, by_error in by_topic.items()})

    def to_json(self) -> str:
        """One line: Spark's progress, and the names of ``DeliveryReport.to_json``.

        Null means not known.
        """
        report = self.report
        if report is None:
            report = dict.fromkeys(DeliveryReport().to_dict())
        return json.dumps(
            {
                **report,  # first: so that every line begins with {"version"
                "batch_id": self.batch_id,
                "started_at": self.started_at,
                "duration_ms": self.duration_ms,
                "input_rows": self.input_rows,
                "rows_per_second": _rounded(self.rows_per_second),
            }
        )


def _rounded(number: float | None) -> float | None:
    return None if number is None else round(number, 1)
