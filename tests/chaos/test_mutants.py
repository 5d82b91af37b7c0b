"""The invariants have teeth: they hold for the protocol as designed, and not if it is broken."""

from __future__ import annotations

import invariants
import model
import pytest
from model import BATCHES, KEYS, ROWS, SPARK_PARTITION_OF_KEY, SPARK_PARTITIONS, History
from producer_epochs import ProducerEpoch

HISTORIES = 300


def violated(history: History) -> set[str]:
    """The names of the invariants that do not hold after a history."""
    brokers = history.brokers
    committed, uncommitted = brokers.read(is_committed=True), brokers.read(is_committed=False)
    concurrent = uncommitted if history.mutant == model.READS_UNCOMMITTED else committed
    # With one row as a micro-batch, a history may end after any of them.
    checks = [
        invariants.completed_rows_are_read(committed, history.completed_rows, 1),
        invariants.readers_agree(concurrent, committed),
        invariants.keys_keep_their_order(concurrent, history.attempts, KEYS),
        invariants.no_hanging_transaction(
            brokers.ends(is_committed=True), brokers.ends(is_committed=False)
        ),
    ]
    if not history.is_exactly_once:
        checks.append(
            invariants.doubles_are_explained(
                committed, history.attempts, ROWS, lambda *_: ProducerEpoch(1, 0)
            )
        )
    else:
        checks += [
            invariants.no_row_twice(committed),
            invariants.no_aborted_row(concurrent, committed, uncommitted),
            invariants.ledger_matches_records(
                committed,
                brokers.entries(),
                {batch: {SPARK_PARTITIONS} for batch in range(BATCHES + 1)},
                {1: [0] * KEYS, SPARK_PARTITIONS: SPARK_PARTITION_OF_KEY},
                ROWS,
            ),
        ]
    return {check.name for check in checks if check.violations}


def any_violated(mutant: str, *, is_exactly_once: bool) -> set[str]:
    """All invariants that some history violates."""
    histories = (History(seed, is_exactly_once, mutant).run() for seed in range(HISTORIES))
    return set().union(*map(violated, histories))


@pytest.mark.parametrize("is_exactly_once", [True, False])
def test_the_protocol_as_designed_violates_nothing(is_exactly_once):
    assert any_violated("", is_exactly_once=is_exactly_once) == set()


def test_histories_have_faults_that_matter():
    histories = [History(seed, is_exactly_once=True).run() for seed in range(HISTORIES)]
    assert {history.error for history in histories} == {None, "LedgerAhead"}
    assert any(len(history.attempts) > 3 * BATCHES for history in histories)
    aborted = [history.brokers.read(is_committed=False).row.size for history in histories]
    assert max(aborted) > ROWS * BATCHES


LOST = "rows of completed micro-batches are read"
TWICE = "no row is read twice"
LEDGER = "the ledger's last micro-batch is the last one that is there"


@pytest.mark.parametrize(
    ("mutant", "invariant"),
    [
        (model.READS_LEDGER_FIRST, TWICE),
        (model.REUSES_HANDLE, TWICE),
        (model.REUSES_HANDLE, LEDGER),
        (model.SKIPS_OLDER, LOST),
        (model.SENDS_NO_OFFSETS, TWICE),
        (model.DROPS_A_ROW, LOST),
        (model.DROPS_A_ROW, LEDGER),
        (model.SENDS_A_ROW_TWICE, TWICE),
        (model.REORDERS, "rows of a key are first seen in order"),
        (model.READS_UNCOMMITTED, "no aborted row is read"),
        (model.READS_UNCOMMITTED, "the concurrent reader agrees with the one afterwards"),
        (model.NEVER_ENDS, "no transaction hangs"),
    ],
)
def test_an_invariant_of_exactly_once_catches_its_mutant(mutant, invariant):
    assert invariant in any_violated(mutant, is_exactly_once=True)


@pytest.mark.parametrize(
    ("mutant", "invariant"),
    [
        (model.COUNTS_AT_ENQUEUE, LOST),
        (model.DROPS_A_ROW, LOST),
        (
            model.SENDS_A_ROW_TWICE,
            "rows are doubled only in repeated micro-batches, or in a new producer epoch",
        ),
        (model.REORDERS, "rows of a key are first seen in order"),
    ],
)
def test_an_invariant_of_at_least_once_catches_its_mutant(mutant, invariant):
    assert invariant in any_violated(mutant, is_exactly_once=False)
