"""What must hold after a run: pure functions of what was read, acknowledged and reported.

Each returns a Check. Rows are numbers: a micro-batch of ``rows_per_batch`` rows holds the rows from
``batch * rows_per_batch`` on; the key of a row is its number modulo ``keys``.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from evidence import ACKNOWLEDGED, INCONSISTENT, Attempt, Entry, Failure, Reading, partitions_change
from numpy.typing import NDArray
from producer_epochs import ProducerEpoch, WrittenIn

_SHOWN = 5

_PARTITIONS_CHANGED = "PartitionsChanged"

#: What brokers that are away for a while may do to a query, or an end of its rows before the last
#: one, or another number of partitions. It then restarts.
TRANSIENT_ERRORS = frozenset(
    {
        "BrokerUnavailable",
        "BufferExhausted",
        "DeadlineExceeded",
        "DeliveryFailed",
        "MetadataTimeout",
        _PARTITIONS_CHANGED,
        "ProducerClosed",
        "RowsIncomplete",
        "TransactionFailed",
        "TransactionFenced",
        "TransactionTimeout",
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


def doubles_are_explained(
    reading: Reading,
    attempts: Iterable[Attempt],
    rows_per_batch: int,
    written_by: Callable[[int, int], ProducerEpoch],
) -> Check:
    """At-least-once: a row is there twice only if a task of its micro-batch began twice.

    Or if its producer has begun a new epoch: a record that was stored is then sent again.
    ``written_by``: of a partition and an offset; for the other doubled rows only.
    """
    rows, times = np.unique(reading.row, return_counts=True)
    doubled = rows[times > 1]
    begun: dict[tuple[int, int], int] = {}
    for attempt in attempts:
        task = (attempt.batch, attempt.partition)
        begun[task] = begun.get(task, 0) + 1
    repeated = np.array(sorted({batch for (batch, _), n in begun.items() if n > 1}), dtype=np.int64)
    of_others = doubled[~np.isin(doubled // rows_per_batch, repeated)]
    unexplained = np.array(
        [row for row in of_others if not _is_sent_in_each_epoch(reading, row, written_by)],
        dtype=np.int64,
    )
    name = "rows are doubled only in repeated micro-batches, or in a new producer epoch"
    return _check(name, doubled.size, unexplained, "doubled")


def _is_sent_in_each_epoch(
    reading: Reading, row: int, written_by: Callable[[int, int], ProducerEpoch]
) -> bool:
    """Whether one producer has written all copies of the row, each in an epoch of its own."""
    copies = reading.row == row
    places = zip(reading.partition[copies].tolist(), reading.offset[copies].tolist(), strict=True)
    writers = [written_by(partition, offset) for partition, offset in places]
    ids = {writer.producer_id for writer in writers}
    return len(ids) == 1 and len({writer.epoch for writer in writers}) == len(writers)


def bad_rows_are_dead_letters(records: Reading, dead_letters: Reading, bad: Iterable[int]) -> Check:
    """The dead letters are the rows whose numbers modulo 100 are ``bad``, and no others."""
    numbers = np.array(sorted(bad), dtype=np.int64)
    wrong = np.concatenate(
        [
            records.row[np.isin(records.row % 100, numbers)],
            dead_letters.row[~np.isin(dead_letters.row % 100, numbers)],
        ]
    )
    name = "bad rows are dead letters, and no others"
    return _check(name, dead_letters.row.size, wrong, "in the wrong topic")


def readers_agree(concurrent: Reading, afterwards: Reading) -> Check:
    """Who reads concurrently sees the same rows at the same places as who reads afterwards."""
    seen, there = _places(concurrent), _places(afterwards)
    violations = _sentence(
        np.setxor1d(seen, there), "places seen by only one of the readers (offset + partition/16)"
    )
    _, first, second = np.intersect1d(seen, there, return_indices=True)
    differs = concurrent.row[first] != afterwards.row[second]
    violations += _sentence(concurrent.row[first][differs], "rows are others for the other reader")
    places, times = np.unique(seen, return_counts=True)
    violations += _sentence(places[times > 1], "places seen twice (offset + partition/16)")
    return Check(
        "the concurrent reader agrees with the one afterwards", concurrent.row.size, violations
    )


def micro_batches_are_transactions(
    reading: Reading, rows_per_batch: int, written_in: Callable[[int, int], WrittenIn]
) -> Check:
    """Exactly-once from the driver: all rows of a micro-batch are there, in one transaction.

    ``written_in``: of a partition and an offset.
    """
    batches, rows = np.unique(reading.row // rows_per_batch, return_counts=True)
    violations = [
        f"micro-batch {batch} has {number} rows"
        for batch, number in zip(batches.tolist(), rows.tolist(), strict=True)
        if number != rows_per_batch
    ]
    producers: defaultdict[int, set[ProducerEpoch]] = defaultdict(set)
    transactions: defaultdict[tuple[int, int], set[WrittenIn]] = defaultdict(set)
    places = (reading.row // rows_per_batch, reading.partition, reading.offset)
    for batch, partition, offset in zip(*(column.tolist() for column in places), strict=True):
        transaction = written_in(partition, offset)
        producers[batch].add(transaction.producer)
        transactions[batch, partition].add(transaction)
    split = {batch for batch, writers in producers.items() if len(writers) > 1}
    split |= {batch for (batch, _), parts in transactions.items() if len(parts) > 1}
    violations += [f"micro-batch {batch} has several transactions" for batch in sorted(split)]
    name = "a micro-batch is there whole, in one transaction"
    return Check(name, batches.size, _sentence(violations, "are not"))


def no_aborted_row(concurrent: Reading, committed: Reading, uncommitted: Reading) -> Check:
    """Places that only a read_uncommitted consumer sees belong to aborted transactions."""
    aborted = np.setdiff1d(_places(uncommitted), _places(committed))
    seen = np.intersect1d(_places(concurrent), aborted)
    return _check("no aborted row is read", aborted.size, seen, "aborted (offset + partition/16)")


def keys_keep_their_order(reading: Reading, attempts: Sequence[Attempt], keys: int) -> Check:
    """Of each key, rows are first seen in the order of the source, and in one partition.

    Without the rows of attempts that ended because brokers rejected records, and accepted those
    behind them.
    """
    disordered = [attempt.id for attempt in attempts if attempt.code == INCONSISTENT]
    others = ~np.isin(reading.attempt, np.array(disordered, dtype=np.uint64))
    rows, partitions = reading.row[others], reading.partition[others]
    _, first = np.unique(rows, return_index=True)
    first.sort()
    rows, partitions = rows[first], partitions[first]
    violations: tuple[str, ...] = ()
    for key in range(keys):
        of_key = rows % keys == key
        late = rows[of_key][1:][np.diff(rows[of_key]) < 0]
        violations += _sentence(late, f"rows of key {key} came after later ones")
        homes = np.unique(partitions[of_key])
        if homes.size > 1:
            violations += (f"key {key} is in the partitions {homes.tolist()}",)
    return Check("rows of a key are first seen in order", rows.size, violations)


def layouts(attempts: Iterable[Attempt], ledger: Mapping[int, Entry]) -> dict[int, set[int]]:
    """By micro-batch: the numbers of Spark partitions with which tasks have written it."""
    partitions: defaultdict[int, set[int]] = defaultdict(set)
    for attempt in attempts:
        if attempt.outcome == ACKNOWLEDGED:
            partitions[attempt.batch].add(attempt.partitions)
    for entry in ledger.values():
        partitions[entry.batch].add(entry.partitions)
    return dict(partitions)


def micro_batches_have_one_layout(layouts: Mapping[int, set[int]]) -> Check:
    """Exactly-once: tasks of two numbers of Spark partitions do not write the same micro-batch."""
    mixed = [
        f"micro-batch {batch} was written with {sorted(numbers)}"
        for batch, numbers in sorted(layouts.items())
        if len(numbers) > 1
    ]
    name = "a micro-batch has one number of Spark partitions"
    return Check(name, len(layouts), _sentence(mixed, "have more"))


def ledger_matches_records(
    reading: Reading,
    ledger: Mapping[int, Entry],
    layouts: Mapping[int, set[int]],
    spark_partition_of_key: Mapping[int, Sequence[int]],
    rows_per_batch: int,
) -> Check:
    """Exactly-once: a Spark partition's rows of a micro-batch are there iff its ledger says so.

    ``ledger``: by Spark partition. ``layouts``: of each micro-batch that a task has written.
    ``spark_partition_of_key``: of each key, by the number of Spark partitions.
    """
    keys = len(spark_partition_of_key[1])
    promised = []
    for batch, numbers in layouts.items():
        table = spark_partition_of_key[min(numbers)]
        rows = np.arange(batch * rows_per_batch, (batch + 1) * rows_per_batch)
        is_done = [p in ledger and ledger[p].batch >= batch for p in table]
        promised.append(rows[np.array(is_done)[rows % keys]])
    expected, there = np.concatenate([np.zeros(0, np.int64), *promised]), np.unique(reading.row)
    entries = ", ".join(
        f"{partition}: {entry.batch}" for partition, entry in sorted(ledger.items())
    )
    violations = (
        *_sentence(np.setdiff1d(expected, there), f"rows are missing; the ledger says {entries}"),
        *_sentence(np.setdiff1d(there, expected), f"rows are too early; the ledger says {entries}"),
    )
    name = "the ledger's last micro-batch is the last one that is there"
    return Check(name, expected.size, violations)


def rejected_micro_batches_are_completed(
    failures: Iterable[Failure],
    attempts: Sequence[Attempt],
    committed: Reading,
    uncommitted: Reading,
) -> Check:
    """Exactly-once: PartitionsChanged is true, and its advice helps.

    It names the number with which the micro-batch was begun, and that number completes it. Of the
    rejected query nothing is visible, and of the rejected tasks nothing is there at all.
    """
    rejected = [failure for failure in failures if failure.name == _PARTITIONS_CHANGED]
    violations = []
    for failure in rejected:
        said = partitions_change(failure.text)
        if said is None:
            violations.append(f"no micro-batch or number is named: {failure.text[-500:]}")
            continue
        number = said.former_partitions
        of_batch = [attempt for attempt in attempts if attempt.batch == said.batch]
        former = [attempt for attempt in of_batch if attempt.partitions == number]
        done = {attempt.partition for attempt in former if attempt.outcome == ACKNOWLEDGED}
        ours = [attempt for attempt in of_batch if failure.run and attempt.run == failure.run]
        wrong = {
            "was not begun with it": all(attempt.began_at > failure.at for attempt in former),
            "ran with it": number == failure.partitions,
            "was not completed with it": done != set(range(number)),
            "was acknowledged in part without it": any(e.outcome == ACKNOWLEDGED for e in ours),
            "is visible in part without it": _has_rows(committed, ours),
            "was sent in part by a rejected task": _has_rows(
                uncommitted, [attempt for attempt in ours if attempt.outcome == _PARTITIONS_CHANGED]
            ),
        }
        violations += [
            f"micro-batch {said.batch}, rejected with {failure.partitions} partitions instead of "
            f"{number}, {what}"
            for what, is_so in wrong.items()
            if is_so
        ]
    name = "a micro-batch that PartitionsChanged rejects is completed with the former number"
    return Check(name, len(rejected), _sentence(violations, "wrong"))


def _has_rows(reading: Reading, attempts: Iterable[Attempt]) -> bool:
    ids = np.array([attempt.id for attempt in attempts], dtype=np.uint64)
    return bool(np.isin(reading.attempt, ids).any())


def reports_match_records(committed: Reading, attempts: Sequence[Attempt]) -> Check:
    """What an attempt's report counts as acknowledged is there, partition by partition.

    What it counts as failed is not, except for what it counts as possibly persisted, and for what
    was dropped before it was sent again: a broker that has lost its leadership rejects records that
    the new leader has. A row that an attempt has sent twice counts once. Attempts that were killed
    have no report.
    """
    columns = (committed.attempt, committed.partition.astype(np.uint64), committed.row)
    written: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for attempt_id, partition in zip(
        *np.unique(np.stack([c.astype(np.uint64) for c in columns]), axis=1)[:2].tolist(),
        strict=True,
    ):
        written[attempt_id][partition] += 1
    violations = []
    reports = [(attempt, attempt.report) for attempt in attempts if attempt.report is not None]
    for attempt, report in reports:
        there = written[attempt.id]
        missing = sum(max(0, n - there[place]) for place, n in report.acknowledged.items())
        most = report.total_acknowledged + report.possibly_persisted + report.unsent
        more = max(0, there.total() - most)
        if missing or more:
            violations.append(
                f"micro-batch {attempt.batch} partition {attempt.partition} "
                f"({attempt.outcome}): {missing} acknowledged rows are missing, and {more} are "
                f"there of {report.failed} failed ones ({report.possibly_persisted} possibly)"
            )
    unknown = written.keys() - {attempt.id for attempt in attempts}
    return Check(
        "reports do not lie",
        len(reports),
        _sentence(violations, "lie") + _sentence(sorted(unknown), "attempts that nobody has begun"),
    )


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
    blocked = sorted(
        f"{topic}[{partition}]: last stable offset {last_stable.get((topic, partition))}, "
        f"high watermark {end}"
        for (topic, partition), end in high_watermark.items()
        if last_stable.get((topic, partition)) != end
    )
    return Check("no transaction hangs", len(high_watermark), _sentence(blocked, "blocked"))


def unexplained(
    failures: Iterable[Failure], explanations: Mapping[str, Sequence[float]], seconds: float
) -> list[Failure]:
    """The failures that are neither an error of ours that brokers explain, nor what we did.

    ``explanations``: of other names, when we did it. Such a failure follows within ``seconds``.
    """
    return [
        failure
        for failure in failures
        if failure.name not in TRANSIENT_ERRORS
        and not any(0 <= failure.at - at <= seconds for at in explanations.get(failure.name, ()))
    ]


def failures_are_named(
    failures: Sequence[Failure], explanations: Mapping[str, Sequence[float]], seconds: float
) -> Check:
    """No query ended for a reason that is unexplained."""
    strange = [
        f"{failure.topic}: {failure.name or 'unnamed'}: {failure.text[:300]}"
        for failure in unexplained(failures, explanations, seconds)
    ]
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


def rows_are_acknowledged_again(
    attempts: Iterable[Attempt], begin: float, end: float, seconds: float
) -> Check:
    """From the last fault's end until the end, a stream is never so long without such a row."""
    acknowledged = [
        attempt.ended_at
        for attempt in attempts
        if attempt.ended_at is not None
        and begin < attempt.ended_at < end
        and attempt.outcome == ACKNOWLEDGED
        and attempt.report is not None
        and attempt.report.total_acknowledged
    ]
    times = [begin, *sorted(acknowledged), end]
    longest = max(later - earlier for earlier, later in itertools.pairwise(times))
    violations = (f"none for {longest:.1f} s; {seconds:g} s are allowed",) * (longest > seconds)
    return Check("after the last fault, rows are acknowledged", len(acknowledged), violations)


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
    some = ", ".join(str(row) for row in bad[:_SHOWN])
    return (f"{len(bad)} {what}: {some}{', ...' if len(bad) > _SHOWN else ''}",)
