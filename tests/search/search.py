"""Exhaustive search of the model: every state that can be reached, and what is wrong in it."""

from __future__ import annotations

import re
import time
from collections import deque
from dataclasses import dataclass
from functools import cache

from layout_model import (
    DONE,
    ENDED,
    Bounds,
    Kafka,
    Run,
    Variant,
    begin,
    first_state,
    known_ledger,
    ledger_task,
    next_states,
    put,
    step,
    understand,
    write_marker,
)

from spark_kafka_sink.config.producer_options import FROM_DRIVER
from spark_kafka_sink.transactions.ledger import Decision


@dataclass(frozen=True)
class Result:
    """``violation``: "" if there is none; ``way``: the states that lead to it."""

    states: int
    seconds: float
    violation: str = ""
    way: tuple[Run, ...] = ()


def search(variant: Variant, bounds: Bounds) -> Result:
    """Look at every state that can be reached, until one violates the guarantee."""
    began = time.monotonic()
    first = first_state(bounds)
    came_from: dict[Run, Run | None] = {first: None}
    queue = deque([first])
    while queue:
        run = queue.popleft()
        for after in next_states(run, variant, bounds):
            known = len(came_from)
            came_from.setdefault(after, run)  # hashes a state, which takes long, only once
            if len(came_from) == known:
                continue
            wrong = violation(after, variant, bounds)
            if wrong:
                seconds = time.monotonic() - began
                return Result(len(came_from), seconds, wrong, _way(after, came_from))
            queue.append(after)
    return Result(len(came_from), time.monotonic() - began)


def violation(run: Run, variant: Variant, bounds: Bounds) -> str:
    log, marker = run.kafka.log, run.kafka.marker
    if any(times > 1 for batch in log for times in batch):
        return "doubled"
    if marker is not None and 0 in log[marker[0]]:
        return "lost"
    if not run.stages:
        return _end(run.kafka, run.batch_id, variant, bounds)
    return ""


@cache
def _end(kafka: Kafka, batch_id: int, variant: Variant, bounds: Bounds) -> str:
    """What is wrong if only one query runs from here on, and the user obeys its errors.

    Whatever the user starts with.
    """
    run = Run(kafka, (), (), batch_id, 0)
    ends = {_end_after(start, run, variant, bounds) for start in bounds.starts}
    return min(ends - {""}, default="")


def _end_after(start: tuple[int, int], run: Run, variant: Variant, bounds: Bounds) -> str:
    """``start``: the option, and how many partitions there are."""
    first = run.batch_id
    for attempt in range(4 * bounds.batches):
        if run.batch_id == bounds.batches:
            is_once = all(times == 1 for batch in run.kafka.log[first:] for times in batch)
            return "" if is_once else "doubled or lost"
        run = run._replace(running=begin(variant, bounds, run.batch_id, start, -1 - attempt))
        for index in range(start[1]):
            run = _finish(run, index, variant)
        if all(attempt.step == DONE for attempt in run.running):
            if start[0] != FROM_DRIVER:
                start = start[1], start[1]  # the driver names that number
            run = write_marker(run, run.running[0].task)
        elif (advised := _advised(run, variant)) is not None:
            start = advised
        else:
            break
    return "stuck"


def _advised(run: Run, variant: Variant) -> tuple[int, int] | None:
    """What PartitionsChanged says to start; None if no task raises it."""
    kafka = run.kafka
    for task in (attempt.task for attempt in run.running):
        known = kafka.marker, kafka.layout, kafka.entries[task.partition]
        known = known_ledger(*understand(variant, task, *known))
        if known.decide(ledger_task(task)) is not Decision.FAIL_CHANGED:
            continue
        text = str(known.error(Decision.FAIL_CHANGED, ledger_task(task), ""))
        if "as it was then, with send.from=driver, and change" in text:
            return FROM_DRIVER, 1
        executors = "send.from=executors, " if task.is_driver else ""
        assert f"as it was then, with {executors}its former repartition and" in text
        number = int(
            re.findall(r"exactly\.once\.partitions=(\d+)(?:, if it had them)?, and change", text)[0]
        )
        former = {e[2] for e in kafka.entries if e is not None and e[0] == task.batch_id}
        return number, former.pop()
    return None


def _finish(run: Run, index: int, variant: Variant) -> Run:
    """A task goes on alone. None of the others is beyond its first step, or before its last."""
    while run.running[index].step not in ENDED:
        kafka, moved, _ = next(step(variant, run.kafka, run.running[index]))
        run = run._replace(kafka=kafka, running=put(run.running, index, moved))
    return run


def _way(run: Run, came_from: dict[Run, Run | None]) -> tuple[Run, ...]:
    way = [run]
    while (before := came_from[way[-1]]) is not None:
        way.append(before)
    return tuple(reversed(way))
