"""History: a stream's reports, added up; a long one is downsampled while it is read."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from spark_kafka_sink.report.batch_figures import BatchFigures
from spark_kafka_sink.report.figures import NOT_ADDED, SUM, Wait, added_up

#: the components of the tasks' time, and their names
COMPONENTS: Mapping[str, str] = {
    Wait.ROWS.value: "waiting for rows from Spark",
    Wait.METADATA.value: "waiting for metadata",
    Wait.BUFFER.value: "waiting for room in the buffer",
    Wait.ACKNOWLEDGEMENT.value: "waiting for acknowledgements",
    "own_ms": "the sink itself",
}


@dataclass(kw_only=True)
class Interval(BatchFigures):
    """Consecutive micro-batches: their figures, added up, and what is derived from these.

    Figures that cannot be added up are those of the last micro-batch.
    """

    first: BatchFigures = field(metadata=NOT_ADDED)
    last: BatchFigures = field(metadata=NOT_ADDED)
    micro_batches: int = field(metadata=SUM)
    failed_micro_batches: int = field(metadata=SUM)
    #: from the end of the previous micro-batch to the end of this one
    elapsed_ms: float = field(metadata=SUM)
    #: the part of ``elapsed_ms`` in which no task ran, even if tasks ran one after another
    idle_ms: float = field(metadata=SUM)
    #: of each micro-batch the longest task, added up
    longest_tasks_ms: int = field(metadata=SUM)
    #: of each delivered micro-batch the longest task and the average task, added up; in failed
    #: ones, not all tasks have run
    delivered_longest_tasks_ms: int = field(metadata=SUM)
    delivered_average_tasks_ms: float = field(metadata=SUM)
    #: the records of each micro-batch's busiest partition
    busiest_partitions: Counter[str] = field(metadata=SUM)

    @classmethod
    def from_report(cls, report: BatchFigures, previous_ended_at: datetime | None) -> Interval:
        """One micro-batch; ``previous_ended_at``: the previous one's end, None for the first."""
        gap = report.ended_at - (previous_ended_at or report.ended_at)
        # The clock may have been set back, and the first micro-batch follows none.
        elapsed_ms = max(gap / timedelta(milliseconds=1), report.longest_task_ms)
        busiest = {report.busiest_partition or "": report.busiest_partition_records}
        is_delivered = report.outcome == "delivered"
        average_task_ms = report.task_ms / max(1, report.tasks)
        return cls(
            **vars(report),
            first=report,
            last=report,
            micro_batches=1,
            failed_micro_batches=int(not is_delivered),
            elapsed_ms=elapsed_ms,
            idle_ms=max(0, elapsed_ms - report.task_ms),
            longest_tasks_ms=report.longest_task_ms,
            delivered_longest_tasks_ms=report.longest_task_ms if is_delivered else 0,
            delivered_average_tasks_ms=average_task_ms if is_delivered else 0.0,
            busiest_partitions=Counter(busiest),
        )

    def __add__(self, later: Interval) -> Interval:
        """Both intervals together; ``later`` follows this one."""
        return replace(later, first=self.first, **added_up(self, later))

    @property
    def own_ms(self) -> int:
        """``task_ms`` without the waits."""
        return max(0, self.task_ms - self._waits_ms())

    def shares(self) -> dict[str, float]:
        """The share of each component in the tasks' time, from 0 to 1; empty if unknown."""
        whole = max(self.task_ms, self._waits_ms())
        return {name: getattr(self, name) / whole for name in COMPONENTS} if whole else {}

    def _waits_ms(self) -> int:
        waits = (self.rows_wait_ms, self.metadata_wait_ms, self.buffer_wait_ms)
        return sum(waits) + self.acknowledgement_wait_ms

    @property
    def records_per_second(self) -> float | None:
        """The rate over the whole time, including waits between micro-batches."""
        return self.records * 1000 / self.elapsed_ms if self.elapsed_ms else None

    @property
    def records_per_task_second(self) -> float | None:
        """The rate while the longest tasks ran."""
        return self.records * 1000 / self.longest_tasks_ms if self.longest_tasks_ms else None

    @property
    def failed_records(self) -> int:
        return self.failed_records_by_topic.total()

    @property
    def dead_letters(self) -> int:
        return sum(errors.total() for errors in self.dead_letters_by_topic.values())

    def total_dead_letters_by_topic(self) -> Counter[str]:
        """The dead letters of each topic, whatever their errors."""
        return Counter(
            {topic: by_error.total() for topic, by_error in self.dead_letters_by_topic.items()}
        )

    def dead_letters_by_error(self) -> Counter[str]:
        return sum(self.dead_letters_by_topic.values(), Counter[str]())


class History:
    """All micro-batches together, the latest ones, and at most ``max_samples`` to plot.

    When there would be more samples, neighbours are merged in pairs. So all samples but the last
    have the same number of micro-batches, a power of two, and no micro-batch is missing.
    """

    def __init__(self, first: BatchFigures, max_samples: int = 240, latest: int = 50) -> None:
        self.total = Interval.from_report(first, None)
        self.latest = deque([self.total], maxlen=latest)
        self.samples = [self.total]
        self.micro_batches_per_sample = 1
        self.query_ids = {first.query_id: None}  # a set that keeps the order
        self._max_samples = max_samples

    def add(self, report: BatchFigures) -> None:
        """Add the next micro-batch."""
        added = Interval.from_report(report, self.total.last.ended_at)
        self.total += added
        self.latest.append(added)
        if self.samples[-1].micro_batches < self.micro_batches_per_sample:
            self.samples[-1] += added
        else:
            self.samples.append(added)
        if len(self.samples) > self._max_samples:
            self._halve()
        self.query_ids.pop(report.query_id, None)
        self.query_ids[report.query_id] = None

    def _halve(self) -> None:
        pairs = zip(self.samples[::2], self.samples[1::2], strict=False)
        last = self.samples[-1:] if len(self.samples) % 2 else []
        self.samples = [earlier + later for earlier, later in pairs] + last
        self.micro_batches_per_sample *= 2
