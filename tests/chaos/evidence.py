"""What a run leaves behind: rows that were read, attempts of tasks, failures of queries."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: the files in a run's folder; a process appends a line in one call, so lines stay whole
ATTEMPTS, FAILURES = "attempts.jsonl", "failures.jsonl"
KEYS_FILE = "spark_partition_of_key.json"

ACKNOWLEDGED = "acknowledged"
#: the name of a query's failure that our own kill of a Python worker explains
WORKER_KILLED = "Python worker killed"


@dataclass(frozen=True)
class Reading:
    """Rows of one topic in the order in which a consumer saw them, as columns.

    ``row``: the row's number in the source.
    """

    partition: NDArray[np.int64]
    offset: NDArray[np.int64]
    row: NDArray[np.int64]


@dataclass
class GrowingReading:
    """A Reading while it is made: 24 bytes per row."""

    partition: array[int] = field(default_factory=lambda: array("q"))
    offset: array[int] = field(default_factory=lambda: array("q"))
    row: array[int] = field(default_factory=lambda: array("q"))

    def append(self, partition: int, offset: int, row: int) -> None:
        self.partition.append(partition)
        self.offset.append(offset)
        self.row.append(row)

    def done(self) -> Reading:
        columns = (self.partition, self.offset, self.row)
        return Reading(*(np.array(column, dtype=np.int64) for column in columns))


@dataclass(frozen=True)
class Attempt:
    """An attempt of a task to write its partition of a micro-batch.

    Times in seconds on the machine's monotonic clock. ``outcome``: ``acknowledged``, the name of
    an error, or "" if the attempt did not end, because its process was killed.
    """

    topic: str
    batch: int
    partition: int
    began_at: float
    ended_at: float | None
    outcome: str
    rows: int


@dataclass(frozen=True)
class Failure:
    """A query that ended. ``name``: of our error, WORKER_KILLED, or "" if it is neither."""

    topic: str
    name: str
    text: str
    at: float


def attempts(folder: Path) -> list[Attempt]:
    """All attempts, in the order in which they began."""
    begun: dict[str, dict[str, Any]] = {}
    ended: dict[str, dict[str, Any]] = {}
    for line in _lines(folder / ATTEMPTS):
        (ended if "outcome" in line else begun)[line["attempt"]] = line
    result = []
    for name, line in begun.items():
        end = ended.get(name, {})
        result.append(
            Attempt(
                line["topic"],
                line["batch"],
                line["partition"],
                line["at"],
                end.get("at"),
                end.get("outcome", ""),
                end.get("rows", 0),
            )
        )
    return sorted(result, key=lambda attempt: attempt.began_at)


def failures(folder: Path) -> list[Failure]:
    return [
        Failure(line["topic"], error_name(line["text"]), line["text"], line["at"])
        for line in _lines(folder / FAILURES)
    ]


def spark_partition_of_key(folder: Path) -> list[int]:
    return list(json.loads((folder / KEYS_FILE).read_text()))


def parse(line: str) -> dict[str, Any]:
    return dict(json.loads(line))


def error_name(text: str) -> str:
    """The sink's error in the text of one of Spark's exceptions."""
    found = re.findall(r"spark_kafka_sink\.errors\.(\w+)", text)
    if found:
        return found[-1]
    is_killed = "Python worker exited unexpectedly" in text or "crashed" in text
    return WORKER_KILLED if is_killed else ""


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with path.open() as lines:
            yield from map(parse, lines)
