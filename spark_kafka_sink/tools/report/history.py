"""History: a stream's reports, added up; long ones are thinned while they are read."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar

from spark_kafka_sink.report.reading import Report

#: the parts of the tasks' time, and their names
PARTS: Mapping[str, str] = {
    "rows_wait_ms": "waiting for rows from Spark",
    "metadata_wait_ms": "waiting for metadata",
    "buffer_wait_ms": "waiting for room in the buffer",
    "acknowledgement_wait_ms": "waiting for acknowledgements",
    "own_ms": "the sink itself",
}

_SUMS = (
    "tasks",
    "failed_tasks",
    "records",
    "sent_bytes",
    "unsent_records",
    "possibly_persisted_records",
    "task_ms",
    "rows_wait_ms",
    "metadata_wait_ms",
    "buffer_wait_ms",
    "acknowledgement_wait_ms",
    "producers_created",
    "producers_reused",
)
_MAXIMA = ("longest_task_ms", "buffer_peak_bytes", "buffer_memory_bytes")
_SUMS_OF_INTERVALS = (
    "micro_batches",
    "failed_micro_batches",
    "elapsed_ms",
    "idle_ms",
    "longest_tasks_ms",
    "average_tasks_ms",
)
_BY_TOPIC = ("records_by_topic", "sent_bytes_by_topic", "failed_records_by_topic")
_COUNTERS_OF_INTERVALS = (
    "busiest_partitions",
    "failed_records_by_error",
    "dead_letters_by_topic",
    "dead_letters_by_error",
)

_Number = TypeVar("_Number", int, float)


@dataclass
class Interval:
    """One or more micro-batches in a row: sums, and maxima where the comment says so.

    Fields of a ``Report`` keep their names; None: not known.
    """

    first: Report
    last: Report
    micro_batches: int
    failed_micro_batches: int
    #: from the end of the micro-batch before to the end of this one
    elapsed_ms: float
    #: the part of it in which no task can have run, even if they ran one after another
    idle_ms: float
    tasks: int
    failed_tasks: int
    records: int
    sent_bytes: int
    unsent_records: int
    possibly_persisted_records: int
    task_ms: int
    rows_wait_ms: int
    metadata_wait_ms: int
    buffer_wait_ms: int
    acknowledgement_wait_ms: int
    producers_created: int
    producers_reused: int
    #: sums of each micro-batch's longest and average task
    longest_tasks_ms: int
    average_tasks_ms: float
    #: maxima
    longest_task_ms: int
    buffer_peak_bytes: int
    buffer_memory_bytes: int
    round_trip_p99_ms: float | None
    retried_requests: int | None
    cross_rack_records: int | None
    records_by_topic: Counter[str]
    sent_bytes_by_topic: Counter[str]
    #: the records of each micro-batch's busiest partition
    busiest_partitions: Counter[str]
    failed_records_by_topic: Counter[str]
    failed_records_by_error: Counter[str]
    dead_letters_by_topic: Counter[str]
    dead_letters_by_error: Counter[str]
    #: the latest
    broker_error: str

    @classmethod
    def of(cls, report: Report, previous_ended_at: datetime | None) -> Interval:
        """One micro-batch; ``previous_ended_at``: the end of the one before, None for the first."""
        gap = report.ended_at - (previous_ended_at or report.ended_at)
        # The clock may have been set back, and the first micro-batch follows none.
        elapsed_ms = max(gap / timedelta(milliseconds=1), report.longest_task_ms)
        dead_letters = report.dead_letters_by_topic
        by_error: Counter[str] = Counter()
        for each in dead_letters.values():
            by_error.update(each)
        return cls(
            first=report,
            last=report,
            micro_batches=1,
            failed_micro_batches=int(report.outcome != "delivered"),
            elapsed_ms=elapsed_ms,
            idle_ms=max(0, elapsed_ms - report.task_ms),
            longest_tasks_ms=report.longest_task_ms,
            average_tasks_ms=report.task_ms / max(1, report.tasks),
            round_trip_p99_ms=report.round_trip_p99_ms,
            retried_requests=report.retried_requests,
            cross_rack_records=report.cross_rack_records,
            busiest_partitions=Counter(
                {report.busiest_partition or "": report.busiest_partition_records}
            ),
            failed_records_by_error=report.failed_records_by_error.copy(),
            dead_letters_by_topic=Counter({t: each.total() for t, each in dead_letters.items()}),
            dead_letters_by_error=by_error,
            broker_error=report.broker_error,
            **{name: getattr(report, name) for name in (*_SUMS, *_MAXIMA)},
            **{name: getattr(report, name).copy() for name in _BY_TOPIC},
        )

    def add(self, later: Interval) -> None:
        """Add the micro-batches that follow."""
        self.last = later.last
        for name in (*_SUMS, *_SUMS_OF_INTERVALS):
            setattr(self, name, getattr(self, name) + getattr(later, name))
        for name in _MAXIMA:
            setattr(self, name, max(getattr(self, name), getattr(later, name)))
        for name in (*_BY_TOPIC, *_COUNTERS_OF_INTERVALS):
            getattr(self, name).update(getattr(later, name))
        retried = (self.retried_requests, later.retried_requests)
        self.retried_requests = _of_known(sum, retried)
        crossed = (self.cross_rack_records, later.cross_rack_records)
        self.cross_rack_records = _of_known(sum, crossed)
        round_trips = (self.round_trip_p99_ms, later.round_trip_p99_ms)
        self.round_trip_p99_ms = _of_known(max, round_trips)
        self.broker_error = later.broker_error or self.broker_error

    @property
    def own_ms(self) -> int:
        """Of ``task_ms``: without the waits."""
        return max(0, self.task_ms - self._waits_ms())

    def shares(self) -> dict[str, float]:
        """Of the tasks' time, by part (``PARTS``), from 0 to 1; empty if there is none."""
        whole = max(self.task_ms, self._waits_ms())
        return {name: getattr(self, name) / whole for name in PARTS} if whole else {}

    def _waits_ms(self) -> int:
        waits = (self.rows_wait_ms, self.metadata_wait_ms, self.buffer_wait_ms)
        return sum(waits) + self.acknowledgement_wait_ms

    @property
    def records_per_second(self) -> float | None:
        """Over the whole time, waits between micro-batches included."""
        return self.records * 1000 / self.elapsed_ms if self.elapsed_ms else None

    @property
    def records_per_task_second(self) -> float | None:
        """While the longest tasks ran."""
        return self.records * 1000 / self.longest_tasks_ms if self.longest_tasks_ms else None

    @property
    def failed_records(self) -> int:
        return self.failed_records_by_topic.total()

    @property
    def dead_letters(self) -> int:
        return self.dead_letters_by_topic.total()


class History:
    """All micro-batches together, the latest ones, and at most ``most_points`` to plot.

    When there would be more points, each two that follow each other become one. So all points but
    the last stand for the same number of micro-batches, a power of two, and none is left out.
    """

    def __init__(self, first: Report, most_points: int = 240, latest: int = 50) -> None:
        self.total = Interval.of(first, None)
        self.latest = deque([Interval.of(first, None)], maxlen=latest)
        self.points = [Interval.of(first, None)]
        self.micro_batches_per_point = 1
        self.query_ids = {first.query_id: None}  # a set that keeps the order
        self._most_points = most_points

    def add(self, report: Report) -> None:
        """Add the micro-batch that follows."""
        previous_ended_at = self.total.last.ended_at
        self.total.add(Interval.of(report, previous_ended_at))
        self.latest.append(Interval.of(report, previous_ended_at))
        point = Interval.of(report, previous_ended_at)
        if self.points[-1].micro_batches < self.micro_batches_per_point:
            self.points[-1].add(point)
        else:
            self.points.append(point)
        if len(self.points) > self._most_points:
            self._halve()
        self.query_ids.pop(report.query_id, None)
        self.query_ids[report.query_id] = None

    def _halve(self) -> None:
        for earlier, later in zip(self.points[::2], self.points[1::2], strict=False):
            earlier.add(later)
        self.points = self.points[::2]
        self.micro_batches_per_point *= 2


def _of_known(
    function: Callable[[Iterable[_Number]], _Number], values: Iterable[_Number | None]
) -> _Number | None:
    known = [value for value in values if value is not None]
    return function(known) if known else None
