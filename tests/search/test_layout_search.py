"""The protocol of exactly-once holds in every order of its steps, and each part of it is needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from layout_model import ENTRY, FENCE, LAYOUT, LOOK, MARKER, OPEN, READ, Bounds, Variant
from search import search

EVERY_STEP = Variant()
# A task's looks at the ledger are one step, and a claim has three: open it, fence and read, settle.
JOINED = Variant(joined=frozenset({MARKER, ENTRY, LAYOUT, LOOK, OPEN, FENCE, READ}))


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


@pytest.mark.parametrize("step", [ENTRY, LAYOUT])
def test_a_process_that_believes_what_it_read_earlier_doubles_rows_or_gets_stuck(step):
    """So a reader that outlives its task asks the brokers each time."""
    assert search(replace(JOINED, believes_earlier_answers=step), Bounds((1, 2), 1, 2)).violation
