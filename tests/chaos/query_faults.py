"""Faults of a stream's own side: its rows fail, its query is stopped, its partitions change."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import orders
from evidence import ATTEMPTS, parse, spark_partition_of_key
from fault_schedule import Fault
from query_kinds import EXACTLY_ONCE, LAYOUTS, QUERY_KINDS, ROWS_PER_ARROW_BATCH
from stream_process import StreamProcess

# Spark gives a job up after as many failures of one task.
_MOST_FAILURES = 4
# While a task fails so often, its siblings stay where they are.
_BEFORE_FAILURE_MILLISECONDS, _PAUSE_MILLISECONDS = 500, 8000

End = Callable[[], None]


@dataclass(frozen=True)
class _Change:
    """Of a stream's number of Spark partitions, when the log of attempts had so many bytes."""

    topic: str
    former: int
    number: int
    log_bytes: int
    disarm: End


class QueryFaults:
    """``begin`` returns what it did, and what ends it. ``failures_ordered_at``: monotonic clock."""

    def __init__(self, streams: StreamProcess, folder: Path) -> None:
        self._streams = streams
        self._folder = folder
        self.failures_ordered_at: list[float] = []
        self._change: _Change | None = None

    def begin(self, fault: Fault) -> tuple[str, End]:
        begin = {
            "query": self._stop,
            "partitions": self._change_partitions,
            "sibling task": self._fail_sibling,
        }
        return begin.get(fault.target, self._fail_once)(fault)

    def _fail_once(self, fault: Fault) -> tuple[str, End]:
        """The attempt that comes first fails, and Spark repeats its task."""
        topic, tasks, pick = self._tasks(fault)
        rows = pick.choice(tasks)
        among = {
            "upstream in the first Arrow batch": rows[:ROWS_PER_ARROW_BATCH],
            "upstream between Arrow batches": orders.around_borders(rows),
            "upstream at the last row": rows[-1:],
        }
        return self._fail(topic, {pick.choice(among[fault.target]): orders.fail()})

    def _fail_sibling(self, fault: Fault) -> tuple[str, End]:
        """A task fails until Spark gives the job up, while its siblings are at any row."""
        topic, tasks, pick = self._tasks(fault)
        failing = tasks.pop(pick.randrange(len(tasks)))
        # One row for each attempt.
        first = pick.randrange(len(failing) - _MOST_FAILURES + 1)
        armed = {
            row: orders.fail(_BEFORE_FAILURE_MILLISECONDS)
            for row in failing[first : first + _MOST_FAILURES]
        }
        armed |= {pick.choice(rows): orders.pause(_PAUSE_MILLISECONDS) for rows in tasks}
        return self._fail(topic, armed)

    def _fail(self, topic: str, armed: dict[int, str]) -> tuple[str, End]:
        began_at = time.monotonic()
        disarm = self._arm(topic, armed)

        def end() -> None:
            disarm()
            self.failures_ordered_at += [began_at, time.monotonic()]

        rows = ", ".join(f"{row} ({order})" for row, order in armed.items())
        return f"of {topic}, at rows {rows}", end

    def _stop(self, fault: Fault) -> tuple[str, End]:
        topic, tasks, pick = self._tasks(fault)
        where, disarm = self._perhaps_pause(fault, topic, tasks, pick)

        def end() -> None:
            self._streams.send_command("stop", topic)
            disarm()

        return f"{topic}, {where}", end

    def _change_partitions(self, fault: Fault) -> tuple[str, End]:
        """Stop a query, which then has another number; the second fault of two goes back."""
        if fault.is_repeated and self._change is not None:
            return self._take_back(self._change)
        topics = [kind.topic for kind in QUERY_KINDS if kind.guarantee == EXACTLY_ONCE]
        topic = topics[fault.choice % len(topics)]
        pick = random.Random(fault.choice)
        former = orders.partitions(self._folder, topic)
        number = pick.choice([number for number in LAYOUTS if number != former])
        where, disarm = self._perhaps_pause(fault, topic, self._rows(former), pick)

        def end() -> None:
            log_bytes = (self._folder / ATTEMPTS).stat().st_size
            orders.set_partitions(self._folder, topic, number)
            self._streams.send_command("stop", topic)
            disarm()
            # So it is taken back while a micro-batch has begun with it.
            disarm_next = self._pause(topic, pick.choice(pick.choice(self._rows(number))))
            self._change = _Change(topic, former, number, log_bytes, disarm_next)

        return f"of {topic} from {former} to {number}, {where}", end

    def _take_back(self, change: _Change) -> tuple[str, End]:
        def end() -> None:
            orders.set_partitions(self._folder, change.topic, change.former)
            self._streams.send_command("stop", change.topic)
            change.disarm()

        return f"of {change.topic} back to {change.former}", end

    def has_changed(self) -> bool:
        """Whether an attempt has begun with the number that was ordered last."""
        change = self._change
        if change is None:
            return True
        with (self._folder / ATTEMPTS).open() as log:
            log.seek(change.log_bytes)
            begun = (parse(line) for line in log if line.endswith("\n"))
            return any(
                (line.get("topic"), line.get("partitions")) == (change.topic, change.number)
                for line in begun
            )

    def _perhaps_pause(
        self, fault: Fault, topic: str, tasks: list[list[int]], pick: random.Random
    ) -> tuple[str, End]:
        """With every second choice, a task waits at some row when the query is stopped.

        Then others may have committed. Otherwise it is between micro-batches as a rule.
        """
        row = pick.choice(pick.choice(tasks))
        if fault.choice // len(QUERY_KINDS) % 2:
            return f"at row {row}", self._pause(topic, row)
        return "at any time", lambda: None

    def _pause(self, topic: str, row: int) -> End:
        return self._arm(topic, {row: orders.pause(_PAUSE_MILLISECONDS)})

    def _arm(self, topic: str, armed: dict[int, str]) -> End:
        for row, order in armed.items():
            self._streams.send_command("arm", topic, row, order)
        return lambda: self._streams.send_command("disarm", topic, *armed)

    def _tasks(self, fault: Fault) -> tuple[str, list[list[int]], random.Random]:
        """A stream, the rows of each of its tasks, and what chooses among them."""
        topic = QUERY_KINDS[fault.choice % len(QUERY_KINDS)].topic
        rows = self._rows(orders.partitions(self._folder, topic))
        return topic, rows, random.Random(fault.choice)

    def _rows(self, number: int) -> list[list[int]]:
        table = spark_partition_of_key(self._folder)[number]
        return [orders.rows_of(partition, table) for partition in range(number)]
