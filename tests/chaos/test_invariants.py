"""Each invariant holds for a faultless history, and catches what no mutant of the model does."""

from __future__ import annotations

from dataclasses import replace

import invariants
import numpy as np
import pytest
from evidence import (
    INCONSISTENT,
    UPSTREAM_FAILED,
    WORKER_KILLED,
    Attempt,
    Entry,
    Failure,
    PartitionsChange,
    Reading,
    Report,
    error_name,
    partitions_change,
)
from hypothesis import given
from hypothesis import strategies as st
from producer_epochs import ProducerEpoch, WrittenIn

ROWS, KEYS, PARTITIONS, BATCHES = 12, 4, 3, 5
#: by the number of Spark partitions
SPARK_PARTITION_OF_KEY = {1: [0, 0, 0, 0], 2: [0, 1, 1, 0], 3: [0, 1, 2, 0]}


def reading(rows):
    """A topic with the rows in this order; the partition follows from the key.

    A micro-batch's rows of a Spark partition, of two, were sent by the attempt with its number.
    """
    rows = np.array(rows, dtype=np.int64)
    spark_partition = np.array(SPARK_PARTITION_OF_KEY[2])[rows % KEYS]
    attempt = number_of(rows // ROWS, spark_partition).astype(np.uint64)
    return Reading(rows % KEYS % PARTITIONS, np.arange(rows.size), rows, attempt)


def number_of(batch, partition):
    """The id of the attempt of a task."""
    return 1 + 2 * batch + partition


GOOD = reading(range(ROWS * BATCHES))


def one_epoch(partition, offset):
    return ProducerEpoch(7, 0)


def columns(one):
    return one.partition, one.offset, one.row, one.attempt


def remove_row(one, index):
    return Reading(*(np.delete(column, index) for column in columns(one)))


def attempt(
    batch,
    partition=0,
    began_at=0.0,
    ended_at=1.0,
    outcome="acknowledged",
    partitions=2,
    run="first",
    attempt_id=None,
    report=None,
):
    number = number_of(batch, partition) if attempt_id is None else attempt_id
    return Attempt(
        number, "topic", run, batch, partition, partitions, began_at, ended_at, outcome, report
    )


def holds(check):
    assert check.violations == ()
    return True


ANY_ROW = st.integers(0, ROWS * BATCHES - 1)


def test_rows_of_a_micro_batch_that_was_not_completed_may_be_missing():
    assert holds(
        invariants.completed_rows_are_read(remove_row(GOOD, ROWS * BATCHES - 1), BATCHES - 1, ROWS)
    )


def test_a_row_from_nowhere_is_found():
    assert holds(invariants.only_rows_of_begun_batches(GOOD, BATCHES, ROWS))
    assert invariants.only_rows_of_begun_batches(GOOD, BATCHES - 1, ROWS).violations
    assert invariants.only_rows_of_begun_batches(reading([-1]), BATCHES, ROWS).violations


def test_a_row_in_the_wrong_topic_is_found():
    records, dead_letters = reading([0, 1, 101]), reading([7, 107])
    assert holds(invariants.bad_rows_are_dead_letters(records, dead_letters, {7}))
    assert invariants.bad_rows_are_dead_letters(reading([0, 107]), dead_letters, {7}).violations
    assert invariants.bad_rows_are_dead_letters(records, reading([1]), {7}).violations


@given(ANY_ROW)
def test_a_doubled_row_is_explained_by_a_repeated_task_of_its_micro_batch_alone(row):
    doubled = reading([*range(ROWS * BATCHES), row])
    once = [attempt(batch, partition) for batch in range(BATCHES) for partition in (0, 1)]
    batch = row // ROWS

    def check(*more):
        return invariants.doubles_are_explained(doubled, [*once, *more], ROWS, one_epoch)

    assert check().violations == (f"1 doubled: {row}",)
    assert check(attempt((batch + 1) % BATCHES)).violations
    assert holds(check(attempt(batch)))


@given(ANY_ROW)
def test_a_doubled_row_is_explained_by_a_new_epoch_of_its_producer_alone(row):
    again = ROWS * BATCHES  # its offset
    doubled = reading([*range(again), row])

    def check(first, second, rows=doubled):
        return invariants.doubles_are_explained(
            rows, [], ROWS, lambda _, offset: second if offset >= again else first
        )

    assert holds(check(ProducerEpoch(7, 0), ProducerEpoch(7, 1)))
    assert check(ProducerEpoch(7, 0), ProducerEpoch(8, 1)).violations == (f"1 doubled: {row}",)
    assert check(ProducerEpoch(7, 0), ProducerEpoch(7, 0)).violations
    twice_in_one = reading([*range(again), row, row])
    assert check(ProducerEpoch(7, 0), ProducerEpoch(7, 1), twice_in_one).violations


def whole(rows, written_in=None):
    """``written_in``: by default, one transaction for each micro-batch."""

    def transaction_of(_, offset):
        return WrittenIn(ProducerEpoch(7, rows.row[offset] // ROWS), 0)

    return invariants.micro_batches_are_transactions(rows, ROWS, written_in or transaction_of)


@given(ANY_ROW)
def test_a_micro_batch_from_the_driver_of_which_a_row_is_not_there_is_found(row):
    assert holds(whole(GOOD))
    assert holds(whole(reading(range(ROWS * (BATCHES - 1)))))
    without = reading([other for other in range(ROWS * BATCHES) if other != row])
    violation = f"1 are not: micro-batch {row // ROWS} has {ROWS - 1} rows"
    assert whole(without).violations == (violation,)


@given(st.integers(1, ROWS - 1))
def test_a_micro_batch_from_the_driver_in_two_transactions_is_found(first_of_second):
    def check(epoch, ends):
        def written_in(_, offset):
            if GOOD.row[offset] < first_of_second:
                return WrittenIn(ProducerEpoch(7, 0), 0)
            return WrittenIn(ProducerEpoch(7, epoch), ends)

        return whole(GOOD, written_in)

    assert holds(check(0, 0))
    violation = "1 are not: micro-batch 0 has several transactions"
    assert check(1, 0).violations == (violation,)
    assert check(0, 1).violations == (violation,)


def test_rows_that_brokers_accepted_although_they_rejected_those_before_do_not_count():
    rows = reading([4, 8, 0, 4, 8])
    first = replace(rows, attempt=np.array([1, 1, 2, 2, 2], dtype=np.uint64))
    inconsistent = replace(attempt(0, 0), id=1, outcome="DeliveryFailed", code=INCONSISTENT)
    assert holds(invariants.keys_keep_their_order(first, [inconsistent], KEYS))
    failed = replace(inconsistent, code="_MSG_TIMED_OUT")
    assert invariants.keys_keep_their_order(first, [failed], KEYS).violations


def test_a_replay_may_repeat_rows_in_order():
    assert holds(
        invariants.keys_keep_their_order(reading([0, 1, 4, 5, 0, 1, 4, 5, 8, 9]), [], KEYS)
    )


def test_a_key_in_two_partitions_is_found():
    moved = replace(GOOD, partition=np.where(GOOD.row == 8, 1, GOOD.partition))
    assert "key 0 is in the partitions [0, 1]" in (
        invariants.keys_keep_their_order(moved, [], KEYS).violations
    )


def ledger_check(latest, rows=GOOD, layouts=None):
    """``latest``: micro-batch and number of partitions, by Spark partition."""
    ledger = {partition: Entry(*entry) for partition, entry in latest.items()}
    if layouts is None:
        layouts = {batch: {2} for batch in range(BATCHES)}
    layouts = layouts | {entry.batch: {entry.partitions} for entry in ledger.values()}
    return invariants.ledger_matches_records(rows, ledger, layouts, SPARK_PARTITION_OF_KEY, ROWS)


def test_a_ledger_that_differs_from_what_is_there_is_found():
    last, two = BATCHES - 1, 2
    assert holds(ledger_check({0: (last, two), 1: (last, two)}))
    assert "are missing" in ledger_check({0: (BATCHES, two), 1: (last, two)}).violations[0]
    assert "are too early" in ledger_check({0: (last - 1, two), 1: (last, two)}).violations[0]
    assert "are too early" in ledger_check({0: (last, two)}).violations[0]


def positions_of(batch, spark_partition, partitions):
    """Where the rows of a Spark partition are in GOOD."""
    table = np.array(SPARK_PARTITION_OF_KEY[partitions])
    return np.flatnonzero((GOOD.row // ROWS == batch) & (table[GOOD.row % KEYS] == spark_partition))


def test_spark_partitions_may_be_at_different_micro_batches():
    last = positions_of(BATCHES - 1, 0, 2)
    assert holds(ledger_check({0: (BATCHES - 2, 2), 1: (BATCHES - 1, 2)}, remove_row(GOOD, last)))


def test_the_ledger_tells_what_is_there_of_micro_batches_with_other_numbers_of_partitions():
    layouts = {0: {2}, 1: {3}, 2: {1}, 3: {2}}
    # Partition 2 was last there in micro-batch 1, and the last one, with 3, is incomplete.
    latest = {0: (4, 3), 1: (3, 2), 2: (1, 3)}
    rows = remove_row(GOOD, np.concatenate([positions_of(4, 1, 3), positions_of(4, 2, 3)]))
    assert holds(ledger_check(latest, rows, layouts))
    assert "are missing" in ledger_check({**latest, 2: (4, 3)}, rows, layouts).violations[0]
    assert "are too early" in ledger_check({**latest, 2: (0, 3)}, rows, layouts).violations[0]
    assert "are too early" in ledger_check(latest, GOOD, layouts).violations[0]


def test_a_micro_batch_that_is_written_with_two_numbers_of_partitions_is_found():
    two, three = attempt(7), attempt(8, 2, partitions=3)
    ledger = {0: Entry(8, 3), 1: Entry(7, 2)}
    assert holds(invariants.micro_batches_have_one_layout(invariants.layouts([two, three], ledger)))
    failed = attempt(7, partitions=3, outcome="PartitionsChanged")
    assert holds(invariants.micro_batches_have_one_layout(invariants.layouts([two, failed], {})))
    for mixed in (
        invariants.layouts([two, attempt(7, 2, partitions=3)], {}),
        invariants.layouts([two], {2: Entry(7, 3)}),
    ):
        (violation,) = invariants.micro_batches_have_one_layout(mixed).violations
        assert "micro-batch 7 was written with [2, 3]" in violation


REJECTED = Failure(
    "topic",
    "PartitionsChanged",
    "spark_kafka_sink.errors.PartitionsChanged: micro-batch 4, partition 1: this micro-batch was "
    "begun with another number of Spark partitions than exactly.once.partitions=3; the ledger t "
    "has micro-batch 3 as the latest complete one, with 2 partitions. Set",
    10.0,
    run="second",
    partitions=3,
)
#: the former number begins, is stopped, and goes on when the other one was rejected
AROUND_REJECTION = [
    attempt(4, 0),
    attempt(4, 1, outcome=""),
    *(
        attempt(4, p, 5.0, 6.0, "PartitionsChanged", 3, "second", attempt_id=100 + p)
        for p in range(3)
    ),
    attempt(4, 0, 11.0, 12.0, run="third", attempt_id=200),
    attempt(4, 1, 11.0, 12.0, run="third", attempt_id=201),
]


def rejection_check(failure=REJECTED, attempts=AROUND_REJECTION, committed=GOOD, uncommitted=GOOD):
    return invariants.rejected_micro_batches_are_completed(
        [failure], attempts, committed, uncommitted
    )


def test_what_partitions_changed_says_is_understood():
    assert partitions_change(REJECTED.text) == PartitionsChange(4, 2)
    assert (
        partitions_change("spark_kafka_sink.errors.PartitionsChanged: micro-batch 4 was begun")
        is None
    )


def test_a_rejected_micro_batch_is_completed_with_the_former_number():
    assert holds(rejection_check())
    assert rejection_check().checked == 1
    incomplete = rejection_check(attempts=[a for a in AROUND_REJECTION if a.id != 201])
    assert "was not completed with it" in incomplete.violations[0]


def test_a_rejection_without_a_reason_is_found():
    other = [attempt for attempt in AROUND_REJECTION if attempt.run == "second"]
    assert "was not begun with it" in rejection_check(attempts=other).violations[0]
    itself = rejection_check(replace(REJECTED, partitions=2))
    assert "ran with it" in itself.violations[0]
    silent = replace(REJECTED, text="spark_kafka_sink.errors.PartitionsChanged: micro-batch 4")
    assert "no micro-batch or number" in rejection_check(silent).violations[0]


def test_a_rejected_query_that_sends_is_found():
    acknowledged = [
        replace(attempt, outcome="acknowledged") if attempt.id == 102 else attempt
        for attempt in AROUND_REJECTION
    ]
    assert "was acknowledged in part" in rejection_check(attempts=acknowledged).violations[0]
    sent = replace(GOOD, attempt=np.where(GOOD.row == 50, 101, GOOD.attempt).astype(np.uint64))
    assert "is visible in part" in rejection_check(committed=sent).violations[0]
    assert "was sent in part" in rejection_check(uncommitted=sent).violations[0]


def reported(batch, partition, acknowledged=None, failed=0, possibly_persisted=0, unsent=0):
    """An attempt; by default its report counts what is there of it."""
    if acknowledged is None:
        of_attempt = GOOD.partition[GOOD.attempt == number_of(batch, partition)]
        acknowledged = dict(zip(*np.unique(of_attempt, return_counts=True), strict=True))
    report = Report(acknowledged, failed, possibly_persisted, unsent)
    return attempt(batch, partition, report=report)


TRUE_REPORTS = [reported(batch, partition) for batch in range(BATCHES) for partition in (0, 1)]


@given(ANY_ROW)
def test_a_report_that_counts_a_row_that_is_not_there_is_found(row):
    assert holds(invariants.reports_match_records(GOOD, TRUE_REPORTS))
    (violation,) = invariants.reports_match_records(remove_row(GOOD, row), TRUE_REPORTS).violations
    assert "1 acknowledged rows are missing" in violation


@given(ANY_ROW)
def test_a_row_that_is_there_although_its_report_counts_it_as_failed_is_found(row):
    index = int(GOOD.attempt[row]) - 1
    true = TRUE_REPORTS[index].report
    place = int(GOOD.partition[row])
    fewer = {**true.acknowledged, place: true.acknowledged[place] - 1}
    others = [report for report in TRUE_REPORTS if report is not TRUE_REPORTS[index]]
    batch, partition = divmod(index, 2)

    def check(possibly_persisted, unsent=0):
        one = reported(batch, partition, fewer, 1, possibly_persisted, unsent)
        return invariants.reports_match_records(GOOD, [*others, one])

    (violation,) = check(0).violations
    assert "0 acknowledged rows are missing, and 1 are there of 1 failed ones" in violation
    assert holds(check(1))
    assert holds(check(0, 1))


def test_rows_are_compared_with_the_report_partition_by_partition():
    true = TRUE_REPORTS[1].report.acknowledged
    first, second = list(true)[:2]
    moved = reported(0, 1, {**true, first: true[first] - 1, second: true[second] + 1})
    check = invariants.reports_match_records(GOOD, [TRUE_REPORTS[0], moved, *TRUE_REPORTS[2:]])
    assert "1 acknowledged rows are missing" in check.violations[0]


def test_a_row_sent_twice_does_not_stand_for_one_that_is_missing():
    rows = [*range(ROWS * BATCHES)]
    rows[9] = 5  # of the same attempt and partition
    assert number_of(0, 1) == GOOD.attempt[5] == GOOD.attempt[9]
    check = invariants.reports_match_records(reading(rows), TRUE_REPORTS)
    assert "1 acknowledged rows are missing" in check.violations[0]


def test_killed_attempts_have_no_report_and_rows_of_unknown_attempts_are_found():
    killed = [replace(TRUE_REPORTS[0], outcome="", report=None), *TRUE_REPORTS[1:]]
    assert holds(invariants.reports_match_records(GOOD, killed))
    assert invariants.reports_match_records(GOOD, TRUE_REPORTS[1:]).violations == (
        "1 attempts that nobody has begun: 1",
    )


def acknowledged_at(*times, report=None):
    report = report or Report({0: 1}, 0, 0)
    return [attempt(n, ended_at=time, report=report) for n, time in enumerate(times)]


def test_a_stream_that_acknowledges_nothing_for_too_long_after_the_last_fault_is_found():
    def check(attempts):
        return invariants.rows_are_acknowledged_again(attempts, 100.0, 400.0, 120.0)

    assert holds(check(acknowledged_at(50.0, 190.0, 300.0)))
    for times in ((250.0, 300.0), (190.0, 275.0), (110.0, 240.0, 300.0), (), (99.0, 401.0)):
        assert check(acknowledged_at(*times)).violations
    # A repeated task that had been committed sends nothing.
    assert check(acknowledged_at(190.0, 300.0, report=Report({}, 0, 0))).violations
    failed = [
        replace(attempt, outcome="DeadlineExceeded") for attempt in acknowledged_at(190.0, 300.0)
    ]
    assert check(failed).violations


@pytest.mark.parametrize(
    ("sentinel", "is_good"), [(4, True), (5, True), (3, False), (6, False), (None, False)]
)
def test_the_sentinel_is_that_of_the_last_commit_or_one_ahead(sentinel, is_good):
    assert bool(invariants.sentinel_is_last_completed(sentinel, 5).violations) != is_good


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("... spark_kafka_sink.errors.DeadlineExceeded: 3 of ...", "DeadlineExceeded"),
        ("SparkException: Python worker exited unexpectedly (crashed)", WORKER_KILLED),
        ("SparkRuntimeException: [USER_RAISED_EXCEPTION] chaos: upstream fails", UPSTREAM_FAILED),
        ("java.lang.NullPointerException", ""),
        ("java.lang.NullPointerException ... Project [raise_error(chaos: upstream fails)]", ""),
    ],
)
def test_a_failure_is_named_by_the_sinks_error(text, name):
    assert error_name(text) == name


@pytest.mark.parametrize("name", ["", "LedgerAhead", "ReplayDiffers", "InvalidOption"])
def test_a_failure_that_no_fault_explains_is_found(name):
    failure = Failure("topic", name, "text", 1.0)
    assert invariants.failures_are_named([failure], {}, 60).violations


@pytest.mark.parametrize("name", [WORKER_KILLED, UPSTREAM_FAILED])
def test_what_was_done_to_a_query_explains_its_failure_soon_afterwards(name):
    def check(*done_at):
        failure = Failure("topic", name, "text", 100.0)
        return invariants.failures_are_named([failure], {"else": [99.0], name: done_at}, 60)

    assert holds(check(50.0))
    assert check().violations
    assert check(30.0, 101.0).violations


@pytest.mark.parametrize("name", ["DeliveryFailed", "RowsIncomplete", "PartitionsChanged"])
def test_a_failure_that_brokers_or_faults_explain_at_any_time_has_a_name(name):
    assert holds(invariants.failures_are_named([Failure("topic", name, "", 1.0)], {}, 60))


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
