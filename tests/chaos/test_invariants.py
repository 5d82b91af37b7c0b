"""Each invariant holds for a faultless history, and catches its violation."""

from __future__ import annotations

import invariants
import numpy as np
import pytest
from evidence import WORKER_KILLED, Attempt, Failure, Reading, error_name
from hypothesis import given
from hypothesis import strategies as st

ROWS, KEYS, PARTITIONS, BATCHES = 12, 4, 3, 5
SPARK_PARTITION_OF_KEY = [0, 1, 1, 0]


def reading(rows, offsets=None):
    """A topic with the rows in this order; the partition follows from the key."""
    rows = np.array(rows, dtype=np.int64)
    partition = rows % KEYS % PARTITIONS
    if offsets is None:
        offsets = np.arange(rows.size)
    return Reading(partition, np.array(offsets, dtype=np.int64), rows)


GOOD = reading(range(ROWS * BATCHES))


def without(one, index):
    return Reading(*(np.delete(column, index) for column in (one.partition, one.offset, one.row)))


def attempt(batch, partition=0, began_at=0.0, ended_at=1.0, outcome="acknowledged"):
    return Attempt("topic", batch, partition, began_at, ended_at, outcome, ROWS)


def holds(check):
    assert check.violations == ()
    return True


ANY_ROW = st.integers(0, ROWS * BATCHES - 1)


@given(ANY_ROW)
def test_a_lost_row_is_found(row):
    assert holds(invariants.completed_rows_are_read(GOOD, BATCHES, ROWS))
    check = invariants.completed_rows_are_read(without(GOOD, row), BATCHES, ROWS)
    assert check.violations == (f"1 lost: {row}",)


def test_rows_of_a_micro_batch_that_was_not_completed_may_be_missing():
    assert holds(
        invariants.completed_rows_are_read(without(GOOD, ROWS * BATCHES - 1), BATCHES - 1, ROWS)
    )


def test_a_row_from_nowhere_is_found():
    assert holds(invariants.only_rows_of_begun_batches(GOOD, BATCHES, ROWS))
    assert invariants.only_rows_of_begun_batches(GOOD, BATCHES - 1, ROWS).violations
    assert invariants.only_rows_of_begun_batches(reading([-1]), BATCHES, ROWS).violations


@given(ANY_ROW)
def test_a_doubled_row_is_found(row):
    assert holds(invariants.no_row_twice(GOOD))
    doubled = reading([*range(ROWS * BATCHES), row])
    assert invariants.no_row_twice(doubled).violations == (f"1 doubled: {row}",)


@given(ANY_ROW)
def test_a_doubled_row_is_explained_by_a_repeated_task_of_its_micro_batch_alone(row):
    doubled = reading([*range(ROWS * BATCHES), row])
    once = [attempt(batch, partition) for batch in range(BATCHES) for partition in (0, 1)]
    batch = row // ROWS

    def check(*more):
        return invariants.doubles_only_in_repeated_batches(doubled, [*once, *more], ROWS)

    assert check().violations == (f"1 doubled: {row}",)
    assert check(attempt((batch + 1) % BATCHES)).violations
    assert holds(check(attempt(batch)))


@given(ANY_ROW)
def test_a_reader_along_that_misses_or_repeats_a_row_is_found(row):
    assert holds(invariants.readers_agree(GOOD, GOOD))
    assert invariants.readers_agree(without(GOOD, row), GOOD).violations
    repeated = Reading(*(np.append(c, c[row]) for c in (GOOD.partition, GOOD.offset, GOOD.row)))
    assert invariants.readers_agree(repeated, GOOD).violations
    other = Reading(GOOD.partition, GOOD.offset, np.where(GOOD.row == row, 999, GOOD.row))
    assert invariants.readers_agree(other, GOOD).violations


@given(ANY_ROW)
def test_an_aborted_row_is_found(row):
    committed = without(GOOD, row)
    assert holds(invariants.no_aborted_row(committed, committed, GOOD))
    assert invariants.no_aborted_row(committed, committed, GOOD).checked == 1
    assert invariants.no_aborted_row(GOOD, committed, GOOD).violations


def test_rows_of_a_key_in_the_wrong_order_are_found():
    assert holds(invariants.keys_keep_their_order(GOOD, KEYS))
    rows = list(range(ROWS * BATCHES))
    rows[0], rows[KEYS] = rows[KEYS], rows[0]
    (violation,) = invariants.keys_keep_their_order(reading(rows), KEYS).violations
    assert violation == "1 rows of key 0 came after later ones: 0"


def test_a_replay_may_repeat_rows_in_order():
    assert holds(invariants.keys_keep_their_order(reading([0, 1, 4, 5, 0, 1, 4, 5, 8, 9]), KEYS))


def test_a_key_in_two_partitions_is_found():
    moved = Reading(np.where(GOOD.row == 8, 1, GOOD.partition), GOOD.offset, GOOD.row)
    assert "key 0 is in the partitions [0, 1]" in (
        invariants.keys_keep_their_order(moved, KEYS).violations
    )


def ledger_check(ledger, rows=GOOD):
    return invariants.ledger_tells_what_is_there(rows, ledger, SPARK_PARTITION_OF_KEY, ROWS)


def test_a_ledger_that_differs_from_what_is_there_is_found():
    assert holds(ledger_check({0: BATCHES - 1, 1: BATCHES - 1}))
    assert "are missing" in ledger_check({0: BATCHES, 1: BATCHES - 1}).violations[0]
    assert "are too early" in ledger_check({0: BATCHES - 2, 1: BATCHES - 1}).violations[0]
    assert ledger_check({0: BATCHES - 1}).violations == ("Spark partition 1 has no ledger",)


@given(ANY_ROW)
def test_a_row_that_the_ledger_promises_is_missed(row):
    assert ledger_check({0: BATCHES - 1, 1: BATCHES - 1}, without(GOOD, row)).violations


def test_spark_partitions_may_be_at_different_micro_batches():
    half = [key for key, partition in enumerate(SPARK_PARTITION_OF_KEY) if partition == 0]
    last = np.flatnonzero((GOOD.row // ROWS == BATCHES - 1) & np.isin(GOOD.row % KEYS, half))
    assert holds(ledger_check({0: BATCHES - 2, 1: BATCHES - 1}, without(GOOD, last)))


@pytest.mark.parametrize(
    ("sentinel", "is_good"), [(4, True), (5, True), (3, False), (6, False), (None, False)]
)
def test_the_sentinel_is_that_of_the_last_commit_or_one_ahead(sentinel, is_good):
    assert bool(invariants.sentinel_is_last_completed(sentinel, 5).violations) != is_good


def test_a_hanging_transaction_is_found():
    ends = {("topic", 0): 7, ("topic", 1): 9}
    assert holds(invariants.no_hanging_transaction(ends, ends))
    held = invariants.no_hanging_transaction(ends | {("topic", 1): 8}, ends)
    assert "topic[1]: last stable offset 8, high watermark 9" in held.violations[0]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("... spark_kafka_sink.errors.DeadlineExceeded: 3 of ...", "DeadlineExceeded"),
        ("SparkException: Python worker exited unexpectedly (crashed)", WORKER_KILLED),
        ("java.lang.NullPointerException", ""),
    ],
)
def test_a_failure_is_named_by_the_sinks_error(text, name):
    assert error_name(text) == name


@pytest.mark.parametrize("name", ["", "LedgerAhead", "ReplayDiffers", "InvalidOption"])
def test_a_failure_that_no_fault_explains_is_found(name):
    failure = Failure("topic", name, "text", 1.0)
    assert invariants.failures_are_named([failure], [], 60).violations


def test_a_killed_worker_explains_a_failure_soon_afterwards():
    failure = Failure("topic", WORKER_KILLED, "text", 100.0)
    assert holds(invariants.failures_are_named([failure], [50.0], 60))
    assert invariants.failures_are_named([failure], [30.0, 101.0], 60).violations
    assert holds(
        invariants.failures_are_named([Failure("topic", "DeliveryFailed", "", 1.0)], [], 60)
    )


def test_an_attempt_beyond_its_deadline_is_found():
    attempts = [attempt(0), attempt(1, ended_at=None, outcome="")]
    assert holds(invariants.attempts_are_bounded(attempts, 60))
    late = attempt(2, ended_at=61.5, outcome="DeadlineExceeded")
    (violation,) = invariants.attempts_are_bounded([*attempts, late], 60).violations
    assert "micro-batch 2 partition 0: DeadlineExceeded after 61.5 s" in violation


def test_a_crash_is_found():
    assert holds(invariants.nothing_crashes([]))
    crashes = ["Assertion `a' failed", "Assertion `a' failed"]
    assert invariants.nothing_crashes(crashes).violations == ("2 times Assertion `a' failed",)
