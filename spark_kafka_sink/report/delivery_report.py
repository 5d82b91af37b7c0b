"""[both] DeliveryReport: what a task delivered, what failed, what it awaited; sums of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from spark_kafka_sink.report.figures import (
    COUNTS,
    MAXIMUM,
    OTHER_TOPICS,
    SUM,
    Kind,
    TaskFigures,
    Wait,
    added_up,
    parse_time,
    table,
)

__all__ = ["DeliveryReport", "Wait", "total", "uncommitted"]

#: codes of ``failed_records`` beside librdkafka's, which end at -200
TRANSACTION_ABORTED, COMMIT_NOT_CONFIRMED = -1001, -1002

# Records that the sink or the client gave up; no broker rejected them. -152 is librdkafka's
# PURGE_QUEUE, -151 its PURGE_INFLIGHT.
_OWN_NAMES = {
    -152: "DROPPED_BEFORE_SEND",
    -151: "DROPPED_IN_FLIGHT",
    TRANSACTION_ABORTED: "TRANSACTION_ABORTED",
    COMMIT_NOT_CONFIRMED: "COMMIT_NOT_CONFIRMED",
}

# Rows may name any number of topics that do not exist.
_MAX_REJECTED_TOPICS = 100


@dataclass
class DeliveryReport(TaskFigures):
    """Records that were sent and records that failed, so far.

    ``sent_records``: by topic; ``sent_bytes_by_topic``: of keys and values. ``failed_records``: by
    topic, partition (-1: not assigned yet) and error code, librdkafka's or the sink's own.
    ``acknowledged_records``: by topic and partition. Nothing changes a report whose task has ended.
    """

    sent_records: Counter[str] = field(default_factory=Counter, metadata=COUNTS)
    sent_bytes_by_topic: Counter[str] = field(default_factory=Counter, metadata=COUNTS)
    failed_records: Counter[tuple[str, int, int]] = field(default_factory=Counter, metadata=COUNTS)
    acknowledged_records: Counter[tuple[str, int]] = field(default_factory=Counter, metadata=COUNTS)
    #: rejected records by topic ("" for null) and error; their dead letters are in ``sent_records``
    dead_letters: Counter[tuple[str, str]] = field(default_factory=Counter, metadata=COUNTS)
    #: the sum of the tasks' times, and the longest one
    task_seconds: float = field(default=0.0, metadata=SUM)
    longest_task_seconds: float = field(default=0.0, metadata=MAXIMUM)
    #: the tasks' waits, which are a part of ``task_seconds``, in microseconds
    wait_us: Counter[Wait] = field(default_factory=Counter, metadata=COUNTS)
    #: the longest time of any task from its first send to its first acknowledgement
    first_acknowledgement_seconds: float | None = field(default=None, metadata=MAXIMUM)
    #: the median, and the 99th percentile, of requests to the slowest broker
    round_trip_ms: tuple[float, float] | None = field(default=None, metadata=MAXIMUM)

    @property
    def total_sent(self) -> int:
        return self.sent_records.total()

    @property
    def sent_bytes(self) -> int:
        return self.sent_bytes_by_topic.total()

    @property
    def total_failed(self) -> int:
        return self.failed_records.total()

    def __add__(self, other: DeliveryReport) -> DeliveryReport:
        return DeliveryReport(**added_up(self, other))

    def with_failed_tasks(self, failed: DeliveryReport) -> DeliveryReport:
        """The report of a micro-batch, including the reports of its failed tasks."""
        return replace(
            self + failed,
            tasks=self.tasks,  # each failed attempt left a report
            # the same tasks, unless one was repeated
            failed_tasks=max(self.failed_tasks, failed.failed_tasks),
            batch_id=self.batch_id,
            outcome=self.outcome,
        )

    def delivered_records(self) -> Counter[str]:
        """Acknowledged records by topic; topics without any are left out."""
        delivered: Counter[str] = Counter()
        for (topic, _), records in self.acknowledged_records.items():
            delivered[topic] += records
        return delivered

    def counts(self) -> str:
        """A sentence about a failed task: what happened to its records, by topic."""
        failed = self.failed_records_by_topic()
        by_topic = ", ".join(f"{topic}: {records}" for topic, records in sorted(failed.items()))
        rejected = self.total_failed - self.unsent_records - self.possibly_persisted_records
        return (
            f"Of {self.total_sent} records, {self.acknowledged_records.total()} were delivered, "
            f"{rejected} failed, {self.unsent_records} were not sent, "
            f"{self.possibly_persisted_records} were in flight and may have arrived "
            f"({by_topic or 'none undelivered'})"
        )

    def failed_records_by_topic(self) -> Counter[str]:
        failed: Counter[str] = Counter()
        for (topic, _, _), records in self.failed_records.items():
            failed[topic] += records
        return failed

    def to_json(self) -> str:
        """One line; docs/report_format.md says what the names mean."""
        return json.dumps(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """The content of ``to_json``."""
        # Imported here: tasks make no JSON.
        from spark_kafka_sink.report.batch_figures import FIGURES, VERSION

        known = self.to_plain() | self._derived()
        return {"version": VERSION, **{name: known[name] for name in FIGURES}}

    def _derived(self) -> dict[str, Any]:
        """The figures that follow from what was counted."""
        delivered = self.delivered_records()
        p50, p99 = self.round_trip_ms or (None, None)
        busiest = self.acknowledged_records.most_common(1)
        first = self.first_acknowledgement_seconds
        return {
            "records": delivered.total(),
            "sent_bytes": self.sent_bytes,
            "records_by_topic": _sorted(delivered),
            "sent_bytes_by_topic": _sorted(self.sent_bytes_by_topic),
            "busiest_partition": "{}-{}".format(*busiest[0][0]) if busiest else None,
            "busiest_partition_records": busiest[0][1] if busiest else 0,
            "failed_records_by_topic": _sorted(self.failed_records_by_topic()),
            "failed_records_by_error": _sorted(self._failed_records_by_error()),
            "dead_letters_by_topic": self.dead_letters_by_topic(),
            "task_ms": _ms(self.task_seconds),
            "longest_task_ms": _ms(self.longest_task_seconds),
            **{wait.value: round(self.wait_us[wait] / 1000) for wait in Wait},
            "first_acknowledgement_ms": None if first is None else _ms(first),
            "round_trip_p50_ms": p50,
            "round_trip_p99_ms": p99,
        }

    def _failed_records_by_error(self) -> Counter[str]:
        if not self.failed_records:
            return Counter()
        # Imported here: the driver, which adds reports up, needs no client unless records failed.
        from spark_kafka_sink.librdkafka.error_codes import error_name

        by_error: Counter[str] = Counter()
        for (_, _, code), records in self.failed_records.items():
            by_error[_OWN_NAMES.get(code) or error_name(code)] += records
        return by_error

    def to_plain(self) -> dict[str, Any]:
        """What was counted, in the types of JSON, for ``from_plain``."""
        plain = {
            name: [*value.items()] if isinstance(value, Counter) else value
            for name, value in vars(self).items()
        }
        plain["ended_at"] = self.ended_at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return plain

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> DeliveryReport:
        """A report from what ``to_plain`` made of it; raises KeyError, TypeError or ValueError."""
        values = {name: _tuples(value) for name, value in dict(plain).items()}
        for name, figure in table(cls).items():
            if figure.kind is Kind.INTEGERS_BY_NAME:
                values[name] = Counter(dict(values[name]))
            elif figure.kind is Kind.TIMESTAMP:
                values[name] = parse_time(values[name])
        return cls(**values)

    def dead_letters_by_topic(self) -> dict[str, dict[str, int]]:
        """Rejected records by topic ("" for null) and error.

        Only the topics with the most are named.
        """
        totals: Counter[str] = Counter()
        for (topic, _), records in sorted(self.dead_letters.items()):
            totals[topic] += records
        named = {topic for topic, _ in totals.most_common(_MAX_REJECTED_TOPICS)}
        by_topic: dict[str, Counter[str]] = {}
        for (topic, error), records in sorted(self.dead_letters.items()):
            place = topic if topic in named else OTHER_TOPICS
            by_topic.setdefault(place, Counter())[error] += records
        return {topic: dict(by_error) for topic, by_error in by_topic.items()}


def total(reports: Iterable[DeliveryReport]) -> DeliveryReport:
    """The report of a micro-batch, from those of its tasks."""
    return sum(reports, DeliveryReport())


def uncommitted(report: DeliveryReport, *, is_aborted: bool) -> DeliveryReport:
    """The report of a transaction that did not commit, as far as known: all records failed.

    It has no dead letters. Unless it was aborted, its commit may have arrived after all.
    """
    failed = report.failed_records.copy()
    code = TRANSACTION_ABORTED if is_aborted else COMMIT_NOT_CONFIRMED
    for (topic, partition), records in report.acknowledged_records.items():
        failed[topic, partition, code] += records
    in_doubt = 0 if is_aborted else report.acknowledged_records.total()
    return replace(
        report,
        failed_records=failed,
        acknowledged_records=Counter(),
        dead_letters=Counter(),
        oldest_timestamp_ms=None,
        possibly_persisted_records=report.possibly_persisted_records + in_doubt,
    )


def _tuples(plain: Any) -> Any:
    return tuple(map(_tuples, plain)) if isinstance(plain, list) else plain


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted((+counts).items()))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
