"""Exhaustive search of the model: every state that can be reached, and what is wrong in it."""

from __future__ import annotations

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
    next_states,
    put,
    step,
    write_marker,
)


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
            if after in came_from:
                continue
            came_from[after] = run
            wrong = violation(after, variant, bounds)
            if wrong:
                seconds = time.monotonic() - began
                return Result(len(came_from), seconds, wrong, _way(after, came_from))
            queue.append(after)
    return Result(len(came_from), time.monotonic() - began)


def violation(run: Run, variant: Variant, bounds: Bounds) -> str:
    log = run.kafka.log
    if any(times > 1 for batch in log for times in batch):
        return "doubled"
    if any(0 in batch for batch in log[: run.batch_id]):
        return "lost"
    if not run.stages and not _completes(run.kafka, run.batch_id, variant, bounds):
        return "stuck"
    return ""


@cache
def _completes(kafka: Kafka, batch_id: int, variant: Variant, bounds: Bounds) -> bool:
    """Whether a number of partitions, from here on and alone, completes all micro-batches."""
    return any(
        _completes_with(number, Run(kafka, (), (), batch_id, 0), variant, bounds)
        for number in bounds.numbers
    )


def _completes_with(number: int, run: Run, variant: Variant, bounds: Bounds) -> bool:
    while run.batch_id < bounds.batches:
        run = run._replace(running=begin(variant, run.batch_id, number))
        for index in range(number):
            run = _to_its_end(run, index, variant)
        if any(attempt.step != DONE for attempt in run.running):
            return False
        run = write_marker(run, number)
    return all(times == 1 for batch in run.kafka.log for times in batch)


def _to_its_end(run: Run, index: int, variant: Variant) -> Run:
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
