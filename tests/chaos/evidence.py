"""What a run leaves behind: rows that were read, attempts of tasks and their reports, failures."""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from orders import FAILED

#: the files in a run's folder; a process appends a line in one call, so lines stay whole
ATTEMPTS, FAILURES = "attempts.jsonl", "failures.jsonl"
KEYS_FILE = "spark_partition_of_key.json"

ACKNOWLEDGED = "acknowledged"
#: the code of an error: brokers rejected records, and accepted those behind them
INCONSISTENT = "_INCONSISTENT"
#: the names of a query's failures that our own kill of a Python worker explains, or our order
WORKER_KILLED, UPSTREAM_FAILED = "Python worker killed", "upstream failed"
#: The end of every value: hexadecimal digits that name the attempt that sent it.
ATTEMPT_DIGITS = 16


@dataclass(frozen=True)
class Reading:
    """Rows of one topic in the order in which a consumer saw them, as columns.

    ``row``: the row's number in the source. ``attempt``: the id of the one that sent it.
    """

    partition: NDArray[np.int64]
    offset: NDArray[np.int64]
    row: NDArray[np.int64]
    attempt: NDArray[np.uint64]


def joined(records: Reading, dead_letters: Reading, partitions: int) -> Reading:
    """The rows of a topic of so many partitions, and its dead letters as in further partitions."""
    return Reading(
        np.concatenate([records.partition, dead_letters.partition + partitions]),
        np.concatenate([records.offset, dead_letters.offset]),
        np.concatenate([records.row, dead_letters.row]),
        np.concatenate([records.attempt, dead_letters.attempt]),
    )


@dataclass
class GrowingReading:
    """A Reading while it is made: 32 bytes per row."""

    partition: array[int] = field(default_factory=lambda: array("q"))
    offset: array[int] = field(default_factory=lambda: array("q"))
    row: array[int] = field(default_factory=lambda: array("q"))
    attempt: array[int] = field(default_factory=lambda: array("Q"))

    def append(self, partition: int, offset: int, value: bytes) -> None:
        self.partition.append(partition)
        self.offset.append(offset)
        self.row.append(int(value.split(b" ", 1)[0]))
        self.attempt.append(int(value[-ATTEMPT_DIGITS:], 16))

    def done(self) -> Reading:
        columns = (self.partition, self.offset, self.row)
        places = (np.array(column, dtype=np.int64) for column in columns)
        return Reading(*places, np.array(self.attempt, dtype=np.uint64))


@dataclass(frozen=True)
class Report:
    """What an attempt's DeliveryReport says. ``acknowledged``: records by partition, as ``joined``.

    ``failed`` includes ``possibly_persisted`` and ``unsent``.
    """

    acknowledged: Mapping[int, int]
    failed: int
    possibly_persisted: int
    unsent: int = 0

    @property
    def total_acknowledged(self) -> int:
        return sum(self.acknowledged.values())


@dataclass(frozen=True)
class Attempt:
    """An attempt of a task to write its partition of a micro-batch.

    ``run``: of the query, one for each start. ``partitions``: ``exactly.once.partitions``; 1 from
    the driver; or 0.
    Times in seconds on the machine's monotonic clock. ``outcome``: ``acknowledged``, the name of
    an error, or "" if the attempt did not end, because its process was killed; then there is no
    report. ``code``: the error's, or "".
    """

    id: int
    topic: str
    run: str
    batch: int
    partition: int
    partitions: int
    began_at: float
    ended_at: float | None
    outcome: str
    report: Report | None
    code: str = ""


@dataclass(frozen=True)
class Entry:
    """What the ledger says of a Spark partition: its latest micro-batch, and its layout."""

    batch: int
    partitions: int


@dataclass(frozen=True)
class Failure:
    """A query that ended. ``name``: of our error, or of what we did to it, or "" if it is neither.

    ``run`` is "" if it had not started. ``partitions``: with which it ran.
    """

    topic: str
    name: str
    text: str
    at: float
    run: str = ""
    partitions: int = 0


@dataclass(frozen=True)
class PartitionsChange:
    """What a PartitionsChanged says: this micro-batch was begun with another number."""

    batch: int
    former_partitions: int


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
                int(name, 16),
                line["topic"],
                line["run"],
                line["batch"],
                line["partition"],
                line["partitions"],
                line["at"],
                end.get("at"),
                end.get("outcome", ""),
                _report(end.get("report")),
                end.get("code", ""),
            )
        )
    return sorted(result, key=lambda attempt: attempt.began_at)


def _report(values: dict[str, Any] | None) -> Report | None:
    if values is None:
        return None
    return Report(
        dict(values["acknowledged"]),
        values["failed"],
        values["possibly_persisted"],
        values["unsent"],
    )


def failures(folder: Path) -> list[Failure]:
    return [
        Failure(
            line["topic"],
            error_name(line["text"]),
            line["text"],
            line["at"],
            line["run"],
            line["partitions"],
        )
        for line in _lines(folder / FAILURES)
    ]


def spark_partition_of_key(folder: Path) -> dict[int, list[int]]:
    """By the number of Spark partitions: the one of every key."""
    tables = json.loads((folder / KEYS_FILE).read_text())
    return {int(number): table for number, table in tables.items()}


def parse(line: str) -> dict[str, Any]:
    return dict(json.loads(line))


def error_name(text: str) -> str:
    """The sink's error in the text of one of Spark's exceptions."""
    names = re.findall(r"spark_kafka_sink\.errors\.(\w+)", text)
    if names:
        return names[-1]
    if FAILED in text:
        return UPSTREAM_FAILED
    is_killed = "Python worker exited unexpectedly" in text or "crashed" in text
    return WORKER_KILLED if is_killed else ""


def partitions_change(text: str) -> PartitionsChange | None:
    """What the PartitionsChanged in the text says; None if it does not name the number to set."""
    rejections = re.findall(
        r"errors\.PartitionsChanged: micro-batch (\d+)\b.*?\bwith (\d+) partitions", text, re.DOTALL
    )
    return PartitionsChange(*map(int, rejections[-1])) if rejections else None


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        with path.open() as lines:
            yield from map(parse, lines)
