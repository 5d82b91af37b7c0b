"""DeliveryReport: what a task delivered, what it did not, and what it waited for; and their sum."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from spark_kafka_sink.librdkafka.error_texts import error_name
from spark_kafka_sink.records.topic_name import OTHER_TOPICS

#: of the JSON lines; rises when a name disappears or changes its meaning
VERSION = 1

# Rows may name any number of topics that do not exist.
_MOST_REFUSED_TOPICS = 100

_COUNTERS = (
    "sent_records",
    "sent_bytes_by_topic",
    "failed_records",
    "acknowledged_records",
    "dead_letters",
)


class Wait(Enum):
    """What a task waits for; the values are names in JSON."""

    ROWS = "rows_wait_ms"
    METADATA = "metadata_wait_ms"
    BUFFER = "buffer_wait_ms"
    ACKNOWLEDGEMENT = "acknowledgement_wait_ms"


@dataclass
class DeliveryReport:
    """Records that were sent and records that failed, so far.

    ``sent_records``: by topic; ``sent_bytes_by_topic``: of keys and values. ``failed_records``: by
    topic, partition (-1: not assigned yet) and librdkafka's error code.
    ``acknowledged_records``: by topic and partition.
    """

    sent_records: Counter[str] = field(default_factory=Counter)
    sent_bytes_by_topic: Counter[str] = field(default_factory=Counter)
    failed_records: Counter[tuple[str, int, int]] = field(default_factory=Counter)
    acknowledged_records: Counter[tuple[str, int]] = field(default_factory=Counter)
    #: failed records that were dropped before they were sent
    unsent_records: int = 0
    #: failed records that may be in the topic anyway
    possibly_persisted_records: int = 0
    #: refused records by topic ("" for null) and error; their dead letters are in ``sent_records``
    dead_letters: Counter[tuple[str, str]] = field(default_factory=Counter)
    #: the latest error between client and brokers, or ""
    broker_error: str = ""
    #: tasks that ended, and those of them that failed
    tasks: int = 0
    failed_tasks: int = 0
    #: the sum of the tasks' times, and the longest one
    task_seconds: float = 0.0
    longest_task_seconds: float = 0.0
    #: of ``task_seconds``, in microseconds
    wait_us: Counter[Wait] = field(default_factory=Counter)
    #: the longest time of any task from its first send to its first acknowledgement
    first_acknowledgement_seconds: float | None = None
    metadata_requests: int = 0
    #: the most that a task had in its buffer, and the most that it may have
    buffer_peak_bytes: int = 0
    buffer_memory_bytes: int = 0
    producers_created: int = 0
    producers_reused: int = 0
    #: produce requests that the client repeated; None: it has not said yet
    retried_requests: int | None = None
    #: acknowledged records whose leader is in another rack; None: the client has no rack
    cross_rack_records: int | None = None
    #: of requests to the slowest broker: the median, and the 99th percentile
    round_trip_ms: tuple[float, float] | None = None
    #: the micro-batch's id, in its report; None in a task's, and in a sum
    batch_id: int | None = None
    query_id: str | None = None
    #: of the micro-batch: delivered or failed
    outcome: str = "delivered"
    #: by the clock of the process that made it, or added it up
    ended_at: datetime = field(default_factory=lambda: datetime.now(timezone.utc), compare=False)

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
        return DeliveryReport(
            self.sent_records + other.sent_records,
            self.sent_bytes_by_topic + other.sent_bytes_by_topic,
            self.failed_records + other.failed_records,
            self.acknowledged_records + other.acknowledged_records,
            self.unsent_records + other.unsent_records,
            self.possibly_persisted_records + other.possibly_persisted_records,
            self.dead_letters + other.dead_letters,
            other.broker_error or self.broker_error,
            self.tasks + other.tasks,
            self.failed_tasks + other.failed_tasks,
            self.task_seconds + other.task_seconds,
            max(self.longest_task_seconds, other.longest_task_seconds),
            self.wait_us + other.wait_us,
            _most(self.first_acknowledgement_seconds, other.first_acknowledgement_seconds),
            self.metadata_requests + other.metadata_requests,
            max(self.buffer_peak_bytes, other.buffer_peak_bytes),
            max(self.buffer_memory_bytes, other.buffer_memory_bytes),
            self.producers_created + other.producers_created,
            self.producers_reused + other.producers_reused,
            _sum(self.retried_requests, other.retried_requests),
            _sum(self.cross_rack_records, other.cross_rack_records),
            _slower(self.round_trip_ms, other.round_trip_ms),
            query_id=other.query_id or self.query_id,
        )

    def with_failed_tasks(self, failed: DeliveryReport) -> DeliveryReport:
        """The report of a micro-batch, with what its failed tasks told.

        ``failed_tasks`` of both are the same tasks, unless one was repeated.
        """
        both = self + failed
        both.tasks = max(self.tasks, failed.tasks)
        both.failed_tasks = max(self.failed_tasks, failed.failed_tasks)
        both.batch_id, both.outcome = self.batch_id, self.outcome
        return both

    def delivered_records(self) -> Counter[str]:
        """Records by topic that the brokers acknowledged; topics without any are left out."""
        delivered: Counter[str] = Counter()
        for (topic, _), records in self.acknowledged_records.items():
            delivered[topic] += records
        return delivered

    def counts(self) -> str:
        """A sentence on a task that failed: what became of its records, by topic."""
        failed = self.failed_records_by_topic()
        by_topic = ", ".join(f"{topic}: {records}" for topic, records in sorted(failed.items()))
        refused = self.total_failed - self.unsent_records - self.possibly_persisted_records
        return (
            f"Of {self.total_sent} records, {self.acknowledged_records.total()} were delivered, "
            f"{refused} failed, {self.unsent_records} were not sent, "
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
        """What ``to_json`` says."""
        delivered = self.delivered_records()
        by_error: Counter[str] = Counter()
        for (_, _, code), records in self.failed_records.items():
            by_error[error_name(code)] += records
        p50, p99 = self.round_trip_ms or (None, None)
        busiest = self.acknowledged_records.most_common(1)
        first = self.first_acknowledgement_seconds
        return {
            "version": VERSION,
            "query_id": self.query_id,
            "batch_id": self.batch_id,
            "outcome": self.outcome,
            "ended_at": self.ended_at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "tasks": self.tasks,
            "failed_tasks": self.failed_tasks,
            "records": delivered.total(),
            "sent_bytes": self.sent_bytes,
            "records_by_topic": _sorted(delivered),
            "sent_bytes_by_topic": _sorted(self.sent_bytes_by_topic),
            "busiest_partition": "{}-{}".format(*busiest[0][0]) if busiest else None,
            "busiest_partition_records": busiest[0][1] if busiest else 0,
            "failed_records_by_topic": _sorted(self.failed_records_by_topic()),
            "failed_records_by_error": _sorted(by_error),
            "dead_letters_by_topic": self.dead_letters_by_topic(),
            "unsent_records": self.unsent_records,
            "possibly_persisted_records": self.possibly_persisted_records,
            "retried_requests": self.retried_requests,
            "cross_rack_records": self.cross_rack_records,
            "task_ms": _ms(self.task_seconds),
            "longest_task_ms": _ms(self.longest_task_seconds),
            **{wait.value: round(self.wait_us[wait] / 1000) for wait in Wait},
            "first_acknowledgement_ms": None if first is None else _ms(first),
            "metadata_requests": self.metadata_requests,
            "buffer_peak_bytes": self.buffer_peak_bytes,
            "buffer_memory_bytes": self.buffer_memory_bytes,
            "producers_created": self.producers_created,
            "producers_reused": self.producers_reused,
            "round_trip_p50_ms": p50,
            "round_trip_p99_ms": p99,
            "broker_error": self.broker_error,
        }

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        from spark_kafka_sink.report.html import report_html

        return report_html(json.loads(self.to_json()))

    def to_plain(self) -> dict[str, Any]:
        """All fields as JSON can hold them, for ``from_plain``."""
        return {each.name: _plain(getattr(self, each.name)) for each in fields(self)}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> DeliveryReport:
        """A report from what ``to_plain`` made of it; raises KeyError, TypeError or ValueError."""
        report = cls(**plain)
        for name in _COUNTERS:
            setattr(report, name, Counter({_hashable(key): n for key, n in plain[name]}))
        report.wait_us = Counter({Wait(name): us for name, us in plain["wait_us"]})
        if report.round_trip_ms is not None:
            report.round_trip_ms = tuple(plain["round_trip_ms"])
        report.ended_at = datetime.fromisoformat(plain["ended_at"])
        return report

    def dead_letters_by_topic(self) -> dict[str, dict[str, int]]:
        """How many records of each topic ("" for null) were refused with each error.

        Only the topics with the most are named, so that a report and all that keeps it stay small.
        """
        totals: Counter[str] = Counter()
        for (topic, _), records in sorted(self.dead_letters.items()):
            totals[topic] += records
        named = {topic for topic, _ in totals.most_common(_MOST_REFUSED_TOPICS)}
        by_topic: dict[str, Counter[str]] = {}
        for (topic, error), records in sorted(self.dead_letters.items()):
            place = topic if topic in named else OTHER_TOPICS
            by_topic.setdefault(place, Counter())[error] += records
        return {topic: dict(by_error) for topic, by_error in by_topic.items()}


def total(reports: Iterable[DeliveryReport]) -> DeliveryReport:
    """The report of a micro-batch, from those of its tasks."""
    return sum(reports, DeliveryReport())


def _plain(value: Any) -> Any:
    if isinstance(value, Counter):
        return [[key.value if isinstance(key, Wait) else key, n] for key, n in value.items()]
    return value.isoformat() if isinstance(value, datetime) else value


def _hashable(key: Any) -> Any:
    return tuple(key) if isinstance(key, list) else key


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return dict(sorted((+counts).items()))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _most(*seconds: float | None) -> float | None:
    return max((each for each in seconds if each is not None), default=None)


def _sum(*counts: int | None) -> int | None:
    known = [each for each in counts if each is not None]
    return sum(known) if known else None


def _slower(*pairs: tuple[float, float] | None) -> tuple[float, float] | None:
    return max((each for each in pairs if each is not None), default=None)
