"""Faults of a stream's own side: its rows fail, its query is stopped, its partitions change."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orders
from evidence import ACKNOWLEDGED, ATTEMPTS, parse, spark_partition_of_key
from fault_schedule import Fault
from query_kinds import (
    KINDS_WITH_LAYOUTS,
    KINDS_WITH_TASKS,
    LAYOUTS,
    QUERY_KINDS,
    ROWS_PER_ARROW_BATCH,
)
from stream_process import StreamProcess

from spark_kafka_sink.deadline import Deadline

# Spark gives a job up after as many failures of one task.
_MAX_FAILURES = 4
# While a task fails so often, its siblings stay where they are.
_BEFORE_FAILURE_MILLISECONDS, _PAUSE_MILLISECONDS = 500, 8000
# On a busy machine, a micro-batch may begin only after this time.
_PARTIAL_COMMIT_SECONDS = 10.0
# Then the driver has sent the rows of a Spark partition that does not wait.
_PARTIAL_SEND_SECONDS = 1.0

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
        first = pick.randrange(len(failing) - _MAX_FAILURES + 1)
        armed = {
            row: orders.fail(_BEFORE_FAILURE_MILLISECONDS)
            for row in failing[first : first + _MAX_FAILURES]
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
        where, await_pause, disarm = self._perhaps_pause(fault, topic, tasks, pick)

        def end() -> None:
            await_pause()
            self._streams.send_command("stop", topic)
            disarm()

        return f"{topic}, {where}", end

    def _change_partitions(self, fault: Fault) -> tuple[str, End]:
        """Stop a query, which then has another number; the second fault of two goes back."""
        if fault.is_repeated and self._change is not None:
            return self._take_back(self._change)
        topic = KINDS_WITH_LAYOUTS[fault.choice % len(KINDS_WITH_LAYOUTS)].topic
        pick = random.Random(fault.choice)
        former = orders.partitions(self._folder, topic)
        number = pick.choice([number for number in LAYOUTS if number != former])
        where, await_pause, disarm = self._perhaps_pause(fault, topic, self._rows(former), pick)

        def end() -> None:
            await_pause()
            log_bytes = self._log_bytes()
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
        return any(
            (line.get("topic"), line.get("partitions")) == (change.topic, change.number)
            for line in self._attempts_after(change.log_bytes)
        )

    def _log_bytes(self) -> int:
        log = self._folder / ATTEMPTS
        return log.stat().st_size if log.exists() else 0

    def _attempts_after(self, log_bytes: int) -> list[dict[str, Any]]:
        """What the log of attempts has got since it had so many bytes."""
        with (self._folder / ATTEMPTS).open() as log:
            log.seek(log_bytes)
            return [parse(line) for line in log if line.endswith("\n")]

    def _await_partial_commit(self, topic: str, log_bytes: int) -> None:
        """Wait until a task of a micro-batch has committed, and another one has not ended.

        Without tasks, until the driver has probably sent some rows.
        """
        has_tasks = topic in [kind.topic for kind in KINDS_WITH_TASKS]
        deadline = Deadline(_PARTIAL_COMMIT_SECONDS)
        while not deadline.expired:
            batch_ids, begun_at, outcomes = {}, {}, {}
            for line in self._attempts_after(log_bytes):
                if line.get("topic") == topic:
                    batch_ids[line["attempt"]] = line["batch"]
                    begun_at[line["attempt"]] = line["at"]
                elif "outcome" in line and line["attempt"] in batch_ids:
                    outcomes[line["attempt"]] = line["outcome"]
            committed = {
                batch_ids[attempt] for attempt in outcomes if outcomes[attempt] == ACKNOWLEDGED
            }
            running = batch_ids.keys() - outcomes.keys()
            if committed & {batch_ids[attempt] for attempt in running}:
                return
            latest = time.monotonic() - _PARTIAL_SEND_SECONDS
            if not has_tasks and any(begun_at[attempt] < latest for attempt in running):
                return
            time.sleep(0.1)

    def _perhaps_pause(
        self, fault: Fault, topic: str, tasks: list[list[int]], pick: random.Random
    ) -> tuple[str, End, End]:
        """With every second choice, a task waits at some row when the query is stopped.

        Then others have committed, if there are any. Otherwise it is between micro-batches as a
        rule. Also returns what waits for that, and what ends the pause.
        """
        row = pick.choice(pick.choice(tasks))
        if not fault.choice // len(QUERY_KINDS) % 2:
            return "at any time", lambda: None, lambda: None
        log_bytes, disarm = self._log_bytes(), self._pause(topic, row)

        def await_pause() -> None:
            if len(tasks) > 1:
                self._await_partial_commit(topic, log_bytes)

        return f"at row {row}", await_pause, disarm

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
