"""Origin: the task that a row comes from, as its dead letter and its transaction name it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Origin:
    """None: unknown. ``stage``: names the task's stage, and no other one."""

    query_id: str | None = None
    batch_id: str | None = None
    task_partition: int | None = None
    stage: str | None = None


UNKNOWN_ORIGIN = Origin()
