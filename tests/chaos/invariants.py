"""What must hold after a run: pure functions of what was read, acknowledged and reported.

Each returns a Check. Rows are numbers: a micro-batch of ``rows_per_batch`` rows holds the rows from
``batch * rows_per_batch`` on; the key of a row is its number modulo ``keys``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from evidence import WORKER_KILLED, Attempt, Failure, Reading
from numpy.typing import NDArray

_SHOWN = 5

#: what brokers that are away for a while may do to a query, which then restarts
TRANSIENT_ERRORS = frozenset(
    {
        "BrokerUnavailable",
        "BufferExhausted",
        "DeadlineExceeded",
        "DeliveryFailed",
        "MetadataTimeout",
        "ProducerClosed",
        "TransactionFailed",
        "TransactionFenced",
        "TransactionTimeout",
        WORKER_KILLED,
    }
)


@dataclass(frozen=True)
class Check:
    """``checked``: how many things were looked at. ``violations``: a sentence for each kind."""

    name: str
    checked: int
    violations: tuple[str, ...] = ()


def completed_rows_are_read(reading: Reading, completed_batches: int, rows_per_batch: int) -> Check:
    """Nothing is lost: every row of the micro-batches 0 to ``completed_batches`` - 1 is there."""
    expected = np.arange(completed_batches * rows_per_batch)
    missing = np.setdiff1d(expected, reading.row)
    return _check("rows of completed micro-batches are read", expected.size, missing, "lost")


def only_rows_of_begun_batches(reading: Reading, begun_batches: int, rows_per_batch: int) -> Check:
    """Nothing is invented, and nothing is written before its micro-batch begins."""
    strange = reading.row[(reading.row < 0) | (reading.row >= begun_batches * rows_per_batch)]
    return _check("rows belong to micro-batches that began", reading.row.size, strange, "unknown")


def no_row_twice(reading: Reading) -> Check:
    """Exactly-once, together with the two checks before."""
    rows, times = np.unique(reading.row, return_counts=True)
    return _check("no row is read twice", reading.row.size, rows[times > 1], "doubled")


def doubles_only_in_repeated_batches(
    reading: Reading, attempts: Iterable[Attempt], rows_per_batch: int
) -> Check:
    """At-least-once: a row is there twice only if a task of its micro-batch began twice."""
    rows, times = np.unique(reading.row, return_counts=True)
    doubled = rows[times > 1]
    begun: dict[tuple[int, int], int] = {}
    for attempt in attempts:
        task = (attempt.batch, attempt.partition)
        begun[task] = begun.get(task, 0) + 1
    repeated = np.array(sorted({batch for (batch, _), n in begun.items() if n > 1}), dtype=np.int64)
    unexplained = doubled[~np.isin(doubled // rows_per_batch, repeated)]
    return _check(
        "rows are doubled only in repeated micro-batches", doubled.size, unexplained, "doubled"
    )


def readers_agree(along: Reading, afterwards: Reading) -> Check:
    """Who reads along sees the same rows at the same places as who reads afterwards."""
    seen, there = _places(along), _places(afterwards)
    violations = _sentence(
        np.setxor1d(seen, there), "places seen by only one of the readers (offset + partition/16)"
    )
    _, first, second = np.intersect1d(seen, there, return_indices=True)
    differs = along.row[first] != afterwards.row[second]
    violations += _sentence(along.row[first][differs], "rows are others for the other reader")
    places, times = np.unique(seen, return_counts=True)
    violations += _sentence(places[times > 1], "places seen twice (offset + partition/16)")
    return Check("the reader along agrees with the one afterwards", along.row.size, violations)


def no_aborted_row(along: Reading, committed: Reading, uncommitted: Reading) -> Check:
    """Places that only a read_uncommitted consumer sees belong to aborted transactions."""
    aborted = np.setdiff1d(_places(uncommitted), _places(committed))
    seen = np.intersect1d(_places(along), aborted)
    return _check("no aborted row is read", aborted.size, seen, "aborted (offset + partition/16)")


def keys_keep_their_order(reading: Reading, keys: int) -> Check:
    """Of each key, rows are first seen in the order of the source, and in one partition."""
    _, first = np.unique(reading.row, return_index=True)
    first.sort()
    rows, partitions = reading.row[first], reading.partition[first]
    violations: tuple[str, ...] = ()
    for key in range(keys):
        of_key = rows % keys == key
        late = rows[of_key][1:][np.diff(rows[of_key]) < 0]
        violations += _sentence(late, f"rows of key {key} came after later ones")
        homes = np.unique(partitions[of_key])
        if homes.size > 1:
            violations += (f"key {key} is in the partitions {homes.tolist()}",)
    return Check("rows of a key are first seen in order", rows.size, violations)


def ledger_tells_what_is_there(
    reading: Reading,
    ledger: Mapping[int, int],
    spark_partition_of_key: Sequence[int],
    rows_per_batch: int,
) -> Check:
    """Exactly-once: a Spark partition's rows of a micro-batch are there iff its ledger says so.

    ``ledger``: the latest micro-batch by Spark partition. ``spark_partition_of_key``: by key.
    """
    name = "the ledger's last micro-batch is the last one that is there"
    keys = len(spark_partition_of_key)
    partition_of_row = np.array(spark_partition_of_key, dtype=np.int64)[reading.row % keys]
    violations: tuple[str, ...] = ()
    partitions = sorted(set(spark_partition_of_key))
    for partition in partitions:
        if partition not in ledger:
            violations += (f"Spark partition {partition} has no ledger",)
            continue
        promised = np.arange((ledger[partition] + 1) * rows_per_batch)
        of_partition = np.array(spark_partition_of_key, dtype=np.int64)[promised % keys]
        there = np.unique(reading.row[partition_of_row == partition])
        promised = promised[of_partition == partition]
        ours = f"of Spark partition {partition}, whose ledger says {ledger[partition]},"
        violations += _sentence(np.setdiff1d(promised, there), f"rows {ours} are missing")
        violations += _sentence(np.setdiff1d(there, promised), f"rows {ours} are too early")
    return Check(name, len(partitions), violations)


def sentinel_is_last_completed(sentinel: int | None, completed_batches: int) -> Check:
    """Exactly-once: the driver's sentinel is that of Spark's last commit, or the one after it.

    The sink writes it just before Spark writes its commit.
    """
    name = "the driver's sentinel is the last completed micro-batch"
    if sentinel is not None and sentinel + 1 in (completed_batches, completed_batches + 1):
        return Check(name, 1)
    return Check(name, 1, (f"it is {sentinel}, but {completed_batches} were completed",))


def no_hanging_transaction(
    last_stable: Mapping[tuple[str, int], int], high_watermark: Mapping[tuple[str, int], int]
) -> Check:
    """Afterwards, no open transaction holds up readers of any partition."""
    held = sorted(
        f"{topic}[{partition}]: last stable offset {last_stable.get((topic, partition))}, "
        f"high watermark {end}"
        for (topic, partition), end in high_watermark.items()
        if last_stable.get((topic, partition)) != end
    )
    return Check("no transaction hangs", len(high_watermark), _sentence(held, "held up"))


def failures_are_named(
    failures: Sequence[Failure], worker_kills: Sequence[float], seconds: float
) -> Check:
    """Every query ended with an error of ours that brokers explain, or by our kill of a worker.

    ``worker_kills``: when workers were killed. Such a failure follows within ``seconds``.
    """
    strange = []
    for failure in failures:
        is_explained = failure.name in TRANSIENT_ERRORS
        if failure.name == WORKER_KILLED:
            is_explained = any(0 <= failure.at - kill <= seconds for kill in worker_kills)
        if not is_explained:
            strange.append(f"{failure.topic}: {failure.name or 'unnamed'}: {failure.text[:300]}")
    return Check("every failure has a name", len(failures), _sentence(strange, "failures"))


def nothing_crashes(crashes: Sequence[str]) -> Check:
    """No process of the streams ends in an assertion or a fatal error of its own."""
    violations = tuple(f"{n} times {text}" for text, n in sorted(Counter(crashes).items()))
    return Check("nothing crashes", len(crashes), violations)


def attempts_are_bounded(attempts: Sequence[Attempt], seconds: float) -> Check:
    """Every attempt that ended did so within its deadlines."""
    late = [
        f"{a.topic} micro-batch {a.batch} partition {a.partition}: {a.outcome} after "
        f"{a.ended_at - a.began_at:.1f} s"
        for a in attempts
        if a.ended_at is not None and a.ended_at - a.began_at > seconds
    ]
    return Check("every attempt ends by its deadline", len(attempts), _sentence(late, "too late"))


def _places(reading: Reading) -> NDArray[np.float64]:
    """Offset and partition as one exact number: 17.25 is offset 17 in partition 4 of 16."""
    assert reading.partition.size == 0 or reading.partition.max() < 16
    return reading.offset + reading.partition / 16


def _check(name: str, checked: int, bad: NDArray[np.int64], what: str) -> Check:
    return Check(name, checked, _sentence(bad, what))


def _sentence(bad: Sequence[object] | NDArray[np.int64], what: str) -> tuple[str, ...]:
    """How many there are and the first few, or nothing."""
    if not len(bad):
        return ()
    some = ", ".join(str(each) for each in bad[:_SHOWN])
    return (f"{len(bad)} {what}: {some}{', ...' if len(bad) > _SHOWN else ''}",)
