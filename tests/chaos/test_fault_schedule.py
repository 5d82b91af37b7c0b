"""The schedule of faults: the same for a seed, and of every kind."""

from __future__ import annotations

import itertools
from collections import Counter

from fault_schedule import (
    BROKER_ACTIONS,
    BROKER_TARGETS,
    CONNECTION_ACTIONS,
    TRANSACTION_TIMEOUT_SECONDS,
    UPSTREAM_TARGETS,
    schedule,
)
from hypothesis import given
from hypothesis import strategies as st

SEEDS = st.integers(min_value=0, max_value=2**32)
SECONDS = st.floats(min_value=0, max_value=600)


@given(SEEDS, SECONDS)
def test_a_seed_always_gives_the_same_faults(seed, seconds):
    assert schedule(seed, seconds) == schedule(seed, seconds)


@given(SEEDS, SECONDS)
def test_faults_come_in_order_and_end_before_the_run_does(seed, seconds):
    faults = schedule(seed, seconds)
    times = [fault.at_seconds for fault in faults]
    assert times == sorted(times)
    assert all(
        fault.at_seconds + fault.hold_seconds < seconds for fault in faults if fault.at_seconds
    )


@given(SEEDS, SECONDS)
def test_faults_of_brokers_do_not_overlap(seed, seconds):
    faults = [fault for fault in schedule(seed, seconds) if fault.concerns_broker]
    for one, other in itertools.pairwise(faults):
        assert one.at_seconds + one.hold_seconds < other.at_seconds


@given(SEEDS)
def test_every_kind_comes_in_a_long_run(seed):
    kinds = {fault.kind for fault in schedule(seed, 600)}
    assert {f"{action} {target}" for action in BROKER_ACTIONS for target in BROKER_TARGETS} < kinds
    assert {f"{action} connections" for action in CONNECTION_ACTIONS} < kinds
    assert {
        "pause two brokers",
        "reassign replicas",
        "restart brokers in turn",
        "kill worker",
        "pause worker",
        "kill worker before acknowledgement",
        "kill worker after acknowledgement",
        "repeat task",
        "kill streams",
        "fail sibling task",
        "stop query",
        "change partitions",
        *(f"fail {target}" for target in UPSTREAM_TARGETS),
    } < kinds


@given(SEEDS)
def test_leader_and_controller_are_also_killed_twice_in_a_row(seed):
    faults = schedule(seed, 600)
    repeated = Counter(fault.kind for fault in faults if fault.is_repeated)
    assert set(repeated) == {"kill leader", "kill controller", "change partitions"}
    brokers = [fault for fault in faults if fault.concerns_broker]
    for one, other in itertools.pairwise(brokers):
        if other.is_repeated:
            assert other.kind == one.kind
            assert other.at_seconds - one.at_seconds - one.hold_seconds < 1


@given(SEEDS)
def test_the_number_of_partitions_goes_back_soon_after_it_has_changed(seed):
    changes = [fault for fault in schedule(seed, 600) if fault.kind == "change partitions"]
    assert [fault.is_repeated for fault in changes[:2]] == [False, True]
    for one, other in itertools.pairwise(changes):
        if other.is_repeated:
            assert 0 < other.at_seconds - one.at_seconds - one.hold_seconds < 1


@given(SEEDS)
def test_two_brokers_and_workers_are_paused_beyond_the_transaction_timeout(seed):
    paused = [
        fault
        for fault in schedule(seed, 600)
        if fault.kind in ("pause two brokers", "pause worker")
    ]
    assert all(fault.hold_seconds > TRANSACTION_TIMEOUT_SECONDS for fault in paused)
