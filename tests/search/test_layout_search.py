"""The protocol of exactly-once holds in every order of its steps, and each part of it is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from layout_model import ENTRY, FENCE, LAYOUT, LOOK, MARKER, OPEN, READ, Bounds, Variant
from search import search

from spark_kafka_sink.config.producer_options import FROM_DRIVER

EVERY_STEP = Variant()
# A task's looks at the ledger are one step, and a claim has three: open it, fence and read, settle.
JOINED = Variant(joined=frozenset({MARKER, ENTRY, LAYOUT, LOOK, OPEN, FENCE, READ}))

# A downgrade, or tasks from before an upgrade that are late.
EXECUTORS_OF_0_3 = replace(JOINED, executors_are_of_0_3=True)


@pytest.mark.parametrize(
    ("variant", "bounds"),
    [
        pytest.param(EVERY_STEP, Bounds((1, 2), 1, 2), id="every step, numbers 1 and 2"),
        pytest.param(
            JOINED,
            Bounds((1, 2), 3, 4),
            id="three micro-batches, four stages",
            marks=pytest.mark.slow,
        ),
        pytest.param(JOINED, Bounds((1, 2, 3), 3, 2), id="numbers 1 to 3, three micro-batches"),
        pytest.param(JOINED, Bounds((1, 2), 3, 3, empty=(1,)), id="the second one has no rows"),
        pytest.param(JOINED, Bounds((1, 2), 2, 3, empty=(0,)), id="the first one has no rows"),
        pytest.param(JOINED, Bounds((2,), 2, 2, mistaken=((1, 2), (3, 2))), id="mistaken numbers"),
        pytest.param(JOINED, Bounds((3,), 2, 2, mistaken=((1, 2),)), id="and then another query"),
        pytest.param(EVERY_STEP, Bounds((FROM_DRIVER, 1, 2), 1, 2), id="every step, the driver"),
        pytest.param(
            EVERY_STEP,
            Bounds((FROM_DRIVER, 2), 2, 2),
            id="every step, the driver, two micro-batches",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            JOINED,
            Bounds((FROM_DRIVER, 1, 2), 3, 3),
            id="the driver, 1 and 2, three micro-batches",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            JOINED, Bounds((FROM_DRIVER, 2), 3, 3), id="the driver and 2, three micro-batches"
        ),
        pytest.param(
            JOINED, Bounds((FROM_DRIVER, 2), 3, 3, empty=(1,)), id="the driver, then no rows"
        ),
        pytest.param(
            JOINED, Bounds((FROM_DRIVER, 2), 2, 3, empty=(0,)), id="no rows, then the driver"
        ),
        pytest.param(
            JOINED,
            Bounds((FROM_DRIVER, 2), 2, 2, mistaken=((1, 2), (3, 2))),
            id="the driver and mistaken numbers",
        ),
        pytest.param(
            JOINED,
            Bounds((FROM_DRIVER,), 1, 3, mistaken=((1, 2),)),
            id="the driver and mistaken numbers, three stages",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            JOINED,
            Bounds((FROM_DRIVER, 2), 2, 3, mistaken=((3, 2),)),
            id="the driver and mistaken numbers, two micro-batches and three stages",
            marks=pytest.mark.slow,
        ),
        pytest.param(JOINED, Bounds((FROM_DRIVER,), 3, 4, are_batches=True), id="batches"),
        pytest.param(
            EVERY_STEP, Bounds((FROM_DRIVER,), 3, 3, are_batches=True), id="every step, batches"
        ),
        pytest.param(
            EXECUTORS_OF_0_3,
            Bounds((FROM_DRIVER, 1, 2), 3, 2),
            id="the driver, and executors of version 0.3",
        ),
    ],
)
def test_every_row_is_written_once_and_the_numbers_that_errors_name_complete(
    variant, bounds, record_property, capsys
):
    result = search(variant, bounds)
    assert result.violation == "", result.way
    record_property("states", result.states)
    with capsys.disabled():
        print(f"\n{bounds}: {result.states:,} states in {result.seconds:.1f} s")


@pytest.mark.parametrize(
    "part",
    [
        "claims",
        "fences",
        "reads_entries_after_fencing",
        "readers_wait_for_a_claim",
        "initializes_before_looking",
        "remembers_lower_partitions",
        "tells_of_higher_partitions",
    ],
)
def test_a_protocol_that_lacks_a_part_doubles_rows_or_gets_stuck(part):
    is_mistaken = part == "tells_of_higher_partitions"
    bounds = Bounds((3,), 1, 2, mistaken=((1, 2),)) if is_mistaken else Bounds((1, 2), 1, 2)
    variant = replace(JOINED if is_mistaken else EVERY_STEP, **{part: False})
    assert search(variant, bounds).violation


@pytest.mark.parametrize(
    ("part", "bounds"),
    [
        (
            "driver_knows_executors_with_one_partition",
            Bounds((FROM_DRIVER,), 1, 2, mistaken=((1, 2),)),
        ),
        ("driver_claims", Bounds((FROM_DRIVER, 2), 1, 2)),
        ("driver_fences_executors", Bounds((FROM_DRIVER, 2), 1, 2)),
        ("driver_looks_at_the_ledger", Bounds((FROM_DRIVER,), 1, 2)),
        ("executors_fence_the_driver", Bounds((FROM_DRIVER, 2), 1, 2)),
    ],
)
def test_a_driver_that_lacks_a_part_doubles_or_loses_rows_or_gets_stuck(part, bounds):
    assert search(JOINED, bounds).violation == ""
    assert search(replace(JOINED, **{part: False}), bounds).violation


@pytest.mark.parametrize("step", [ENTRY, LAYOUT])
def test_a_process_that_believes_what_it_read_earlier_doubles_rows_or_gets_stuck(step):
    """So a reader that outlives its task asks the brokers each time."""
    variant = replace(JOINED, believes_earlier_answers=step)
    assert search(variant, Bounds((1, 2), 1, 2)).violation
    assert search(variant, Bounds((FROM_DRIVER, 2), 1, 2)).violation


def test_a_driver_that_believes_what_it_read_earlier_doubles_rows():
    variant = replace(JOINED, believes_earlier_answers=ENTRY)
    assert search(variant, Bounds((FROM_DRIVER,), 1, 2)).violation == "doubled"
