from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from spark_kafka_sink.errors import LedgerAhead, LedgerLost, PartitionsChanged, ReplayDiffers
from spark_kafka_sink.librdkafka.group_offsets import CommittedOffset
from spark_kafka_sink.transactions.ledger import (
    BatchMarker,
    CommitEntry,
    Decision,
    Layout,
    Ledger,
    Task,
    check_replay,
    claimed_layout,
    read_batch_marker,
    read_commit_entry,
    read_layout,
)

SEND, VERIFY, CLAIM = Decision.SEND, Decision.VERIFY, Decision.CLAIM
AHEAD, LOST, CHANGED = Decision.FAIL_AHEAD, Decision.FAIL_LOST, Decision.FAIL_CHANGED


def marker(batch_id: int | None, partitions: int = 2) -> BatchMarker | None:
    return None if batch_id is None else BatchMarker(batch_id, partitions)


def entry(batch_id: int | None, partitions: int = 2) -> CommitEntry | None:
    return None if batch_id is None else CommitEntry(batch_id, partitions, 3, "f")


# Of micro-batch 5, two partitions: what was marker, what this partition has committed.
@pytest.mark.parametrize(
    ("latest_marked", "latest_committed", "decision"),
    [
        (4, 4, SEND),
        (4, 5, VERIFY),
        (5, 5, VERIFY),
        (4, None, LOST),
        (4, 3, LOST),
        (5, 4, LOST),
        (5, None, LOST),
        (None, None, LOST),
        (None, 4, LOST),
        (None, 5, VERIFY),
        (3, 4, LOST),
        (3, 3, LOST),
        (4, 6, AHEAD),
        (6, 5, AHEAD),
        (6, None, AHEAD),
        (None, 6, AHEAD),
        (6, 6, AHEAD),
    ],
)
@pytest.mark.parametrize("layout", [None, Layout(1, 7), Layout(4, 2), Layout(5, 2)])
def test_what_a_task_does(latest_marked, latest_committed, layout, decision):
    task = Task(5, 0, 2)
    assert Ledger(marker(latest_marked), layout, entry(latest_committed)).decide(task) is decision


@pytest.mark.parametrize(
    ("batch_id", "first_batch", "latest_marked", "latest_committed", "decision"),
    [
        (0, 0, None, None, CLAIM),
        (0, 0, None, 0, VERIFY),
        (0, 0, 0, None, LOST),
        (1, 0, None, None, LOST),
        (5, 5, None, None, CLAIM),
        (5, 5, 2, 2, CLAIM),
        (5, 5, 4, None, SEND),
        (5, 5, None, 5, VERIFY),
        (5, 5, 6, 6, AHEAD),
        (6, 5, None, None, LOST),
        (6, 5, 5, 5, SEND),
    ],
)
def test_the_first_micro_batch_needs_no_ledger_and_is_claimed(
    batch_id, first_batch, latest_marked, latest_committed, decision
):
    task = Task(batch_id, 0, 2, first_batch)
    assert Ledger(marker(latest_marked), None, entry(latest_committed)).decide(task) is decision
    if decision is CLAIM:
        claimed = Layout(batch_id, 2)
        assert Ledger(marker(latest_marked), claimed, entry(latest_committed)).decide(task) is SEND


# Of micro-batch 5, after one with two partitions.
@pytest.mark.parametrize(
    ("task", "marker", "layout", "own", "decision"),
    [
        (Task(5, 0, 3), marker(4), None, entry(4), CLAIM),
        (Task(5, 2, 3), marker(4), None, None, CLAIM),
        (Task(5, 2, 3), marker(4), Layout(5, 3), None, SEND),
        (Task(5, 0, 2), marker(4), Layout(5, 3), entry(4), CLAIM),
        (Task(5, 0, 2), marker(4), Layout(5, 0), entry(4), CLAIM),
        (Task(5, 0, 2), marker(4), Layout(5, 0), entry(5), VERIFY),
        (Task(5, 2, 3), marker(4), Layout(5, 2, is_final=True), None, CHANGED),
        (Task(5, 0, 2), marker(4), Layout(5, 2, is_final=True), entry(4), SEND),
        (Task(5, 0, 1), marker(4), None, entry(4), CLAIM),
        (Task(5, 0, 1), marker(4), Layout(5, 1), None, LOST),
        (Task(5, 0, 3), marker(4), None, entry(5), CHANGED),
        (Task(5, 0, 3), marker(5), None, entry(5), CHANGED),
        (Task(5, 2, 3), marker(5), None, None, CHANGED),
        (Task(5, 0, 2), marker(5, 1), None, entry(5), CHANGED),
        (Task(5, 0, 2), marker(4), Layout(6, 2), entry(4), AHEAD),
        # While a claim is open, the number of a committed partition is not known either.
        (Task(5, 0, 3), marker(4), Layout(5, 0), entry(5), CLAIM),
    ],
)
def test_only_the_claimed_number_of_partitions_may_send(task, marker, layout, own, decision):
    assert Ledger(marker, layout, own).decide(task) is decision


# Of micro-batch 5, after one with two partitions: the stage "now" has more of them.
@pytest.mark.parametrize(
    ("task", "marker", "layout", "own", "decision"),
    [
        (Task(5, 2, 2, stage="now"), marker(4), None, None, CLAIM),
        (Task(5, 2, 2, stage="now"), marker(4), Layout(5, 3, grown_by="now"), None, SEND),
        (Task(5, 3, 2, stage="now"), marker(4), Layout(5, 3, grown_by="now"), None, CLAIM),
        (Task(5, 0, 2, stage="now"), marker(4), Layout(5, 3, grown_by="now"), entry(4), SEND),
        (Task(5, 0, 2, stage="now"), marker(4), Layout(5, 3, grown_by="now"), entry(5), VERIFY),
        (Task(5, 0, 2, stage="later"), marker(4), Layout(5, 3, grown_by="now"), entry(5), CHANGED),
        (Task(5, 0, 2, stage="later"), marker(4), Layout(5, 3, grown_by="now"), entry(4), CLAIM),
        (Task(5, 0, 2), marker(4), Layout(5, 3, grown_by="now"), entry(4), CLAIM),
        (Task(5, 0, 2), marker(4), Layout(5, 3), entry(4), CLAIM),
        (Task(5, 0, 3, stage="later"), marker(4), Layout(5, 3, grown_by="now"), entry(5), VERIFY),
        (Task(5, 2, 3, stage="later"), marker(4), Layout(5, 3, grown_by="now"), None, SEND),
        (Task(5, 0, 3), marker(5, 3), Layout(5, 3, grown_by="now"), entry(5), VERIFY),
        (Task(5, 0, 2, stage="later"), marker(5, 3), None, entry(5), CHANGED),
    ],
)
def test_a_stage_with_more_partitions_than_the_option_goes_on(task, marker, layout, own, decision):
    assert Ledger(marker, layout, own).decide(task) is decision


def test_the_number_grows_to_that_of_a_task_beyond_the_option_and_fences_nobody():
    beyond = Task(5, 3, 2, stage="now")
    grown = Layout(5, 4, grown_by="now")
    assert Ledger(marker(4), None, None).wanted_layout(beyond) == (grown, 0)
    assert Ledger(None, None, None).wanted_layout(beyond) == (grown, 0)
    assert Ledger(marker(4), Layout(5, 3, grown_by="now"), None).wanted_layout(beyond) == (grown, 0)
    final = Layout(5, 2, is_final=True)
    assert Ledger(marker(4), final, None).wanted_layout(beyond) == (
        replace(grown, is_final=True),
        0,
    )
    # First, the number must be that of the option.
    assert Ledger(marker(4, 3), None, None).wanted_layout(beyond) == (Layout(5, 2), 3)
    other = Layout(5, 3, grown_by="before")
    assert Ledger(marker(4), other, None).wanted_layout(beyond) == (Layout(5, 2), 3)


# Of micro-batch 5, which was marked without rows or follows one that was.
@pytest.mark.parametrize(
    ("latest_marked", "layout", "own", "decision"),
    [
        (4, None, entry(3), CLAIM),
        (4, None, None, CLAIM),
        (4, Layout(5, 2), entry(3), SEND),
        (4, None, entry(5), VERIFY),
        (5, None, entry(3), CLAIM),
        (5, Layout(5, 2), None, SEND),
        (5, None, entry(5), VERIFY),
        (5, None, entry(5, 3), CHANGED),
    ],
)
def test_a_micro_batch_without_rows_leaves_no_entries(latest_marked, layout, own, decision):
    assert Ledger(marker(latest_marked, 0), layout, own).decide(Task(5, 0, 2)) is decision


def test_a_micro_batch_has_the_number_of_the_one_before_until_another_is_claimed():
    assert Ledger(None, None, None).partitions(5) is None
    assert Ledger(marker(3), None, None).partitions(5) is None
    assert Ledger(marker(4), None, None).partitions(5) == 2
    assert Ledger(marker(4), Layout(4, 3), None).partitions(5) == 2
    assert Ledger(marker(4), Layout(5, 3), None).partitions(5) == 3


def test_a_claim_ends_with_the_former_number_if_one_of_its_partitions_is_committed():
    wanted, former = Ledger(marker(4), None, None).wanted_layout(Task(5, 0, 3))
    assert (wanted, former) == (Layout(5, 3), 2)
    assert claimed_layout(wanted, former, []) == wanted
    assert claimed_layout(wanted, former, [entry(4)]) == wanted
    assert claimed_layout(wanted, former, [entry(4), entry(5)]) == Layout(5, 2, is_final=True)


def test_a_micro_batch_with_fewer_tasks_than_expected_is_repeated_with_their_number():
    assert Ledger(marker(5, 1), None, entry(5, 2)).decide(Task(5, 0, 1)) is VERIFY
    assert Ledger(marker(5, 1), None, entry(5, 2)).decide(Task(6, 0, 1)) is SEND
    error = Ledger(marker(5, 1), None, entry(5, 2)).error(CHANGED, Task(5, 0, 2), "orders")
    assert "was committed with 1 partitions" in str(error)
    assert "with its former repartition and exactly.once.partitions=1" in str(error)


def test_there_is_a_decision_for_everything_and_only_one_of_them_sends():
    numbers = [None, *range(4)]
    for s, e, first, partitions in itertools.product(numbers, numbers, range(3), (1, 2, 3)):
        task = Task(2, 0, partitions, first)
        decision = Ledger(marker(s), None, entry(e)).decide(task)
        if decision in (SEND, CLAIM):
            assert e is None or e < 2
            assert s is None or s < 2
            assert first == 2 or (s == 1 and e == 1)


@pytest.mark.parametrize(
    ("decision", "kind", "advice"),
    [
        (AHEAD, LedgerAhead, "restore the newer one"),
        (LOST, LedgerLost, "set exactly.once.first.batch=5"),
        (CHANGED, PartitionsChanged, "Start the query as it was then"),
    ],
)
def test_an_error_says_what_the_ledger_has_and_what_to_do(decision, kind, advice):
    error = Ledger(marker(4), None, entry(None)).error(decision, Task(5, 1, 2), "orders")
    assert type(error) is kind
    assert str(error).startswith("micro-batch 5, partition 1: ")
    assert (
        "in the ledger orders, the latest complete micro-batch is 4, and the latest one that this "
        "partition committed is none"
    ) in str(error)
    assert advice in str(error)


# What the error of micro-batch 5 must name.
SKIPPED, LOST_GROUPS, CAUGHT = "no isEmpty guard", "offsets.retention.minutes", "no try/except"
WORDS = {
    # the places of marker and entry, see PLACES
    ("none", "none"): ("ran before without exactly-once", LOST_GROUPS, SKIPPED),
    ("none", "older"): ("never marked as complete", CAUGHT),
    ("none", "previous"): ("never marked as complete", CAUGHT),
    ("older", "none"): ("in between", SKIPPED, LOST_GROUPS),
    ("older", "older"): ("in between", SKIPPED, LOST_GROUPS),
    ("older", "previous"): ("never marked as complete", CAUGHT, "marker is older"),
    ("previous", "none"): ("entry is missing", LOST_GROUPS),
    ("previous", "older"): ("entry is missing", LOST_GROUPS),
    ("now", "none"): ("entry is missing", LOST_GROUPS),
    ("now", "older"): ("entry is missing", LOST_GROUPS),
    ("now", "previous"): ("entry is missing", LOST_GROUPS),
}
PLACES = {"none": None, "older": 3, "previous": 4, "now": 5, "later": 6}


@pytest.mark.parametrize("first", [0, 5])
@pytest.mark.parametrize("entry_at", PLACES)
@pytest.mark.parametrize("marker_at", PLACES)
def test_every_state_of_a_ledger_that_fails_has_the_causes_that_fit(marker_at, entry_at, first):
    task = Task(5, 0, 2, first)
    ledger = Ledger(marker(PLACES[marker_at]), None, entry(PLACES[entry_at]))
    decision = ledger.decide(task)
    if decision in (SEND, VERIFY, CLAIM):
        return
    said = str(ledger.error(decision, task, "orders"))
    if decision is AHEAD:
        assert "later" in (marker_at, entry_at)
        words = ("older than the topics", "new (deleted or moved)", "another query has used")
    else:
        words = WORDS[marker_at, entry_at]
    assert [word for word in words if word not in said] == []
    # Nobody who lost the entry of one partition has skipped a micro-batch.
    assert ("entry is missing" in words) == (SKIPPED not in said and decision is LOST)


def test_a_replay_with_other_rows_names_a_second_call_and_a_new_checkpoint():
    with pytest.raises(ReplayDiffers) as raised:
        check_replay(Task(5, 0, 2), CommitEntry(5, 2, 3, "f"), 4, "f")
    assert "a second call of foreach_batch's function" in str(raised.value)
    assert "the checkpoint is new (deleted or moved)" in str(raised.value)


def test_a_marker_that_was_set_back_is_named():
    error = Ledger(marker(2), None, entry(4)).error(LOST, Task(5, 1, 2), "orders")
    assert "the driver's marker is older" in str(error)
    assert "set exactly.once.first.batch=5" in str(error)


def test_a_replay_must_bring_the_same_rows():
    check_replay(Task(5, 0, 2), CommitEntry(5, 2, 3, "f"), 3, "f")
    with pytest.raises(ReplayDiffers, match="has committed 3 rows, not 4"):
        check_replay(Task(5, 0, 2), CommitEntry(5, 2, 3, "f"), 4, "f")
    with pytest.raises(ReplayDiffers, match="has committed 3 different rows"):
        check_replay(Task(5, 0, 2), CommitEntry(5, 2, 3, "f"), 3, "g")


def test_entries_markers_and_layouts_come_back_from_their_offsets():
    kept = CommitEntry(7, 2, 1000, "0123")
    assert kept.to_offset().offset == 7
    assert read_commit_entry(kept.to_offset(), "p.0") == kept
    assert read_batch_marker(BatchMarker(7, 2).to_offset(), "p.driver") == BatchMarker(7, 2)
    for layout in (Layout(7, 2), Layout(7, 2, is_final=True), Layout(7, 3, grown_by="now")):
        assert read_layout(layout.to_offset(), "p.layout") == layout
    older = CommittedOffset(7, '{"version": 1, "partitions": 2, "is_final": false}')
    assert read_layout(older, "p.layout") == Layout(7, 2)
    assert read_layout(None, "p.layout") is None
    assert read_commit_entry(None, "p.0") is None
    assert read_batch_marker(None, "p.driver") is None


@pytest.mark.parametrize(
    "metadata",
    [
        "a consumer's",
        "7",
        "[]",
        "{}",
        '{"version": 2, "partitions": 2, "rows": 1, "fingerprint": ""}',
        '{"version": 1, "partitions": 2}',
        '{"version": 1, "partitions": "2", "rows": 1, "fingerprint": ""}',
    ],
)
def test_an_offset_that_is_no_entry_is_not_taken_for_a_missing_one(metadata):
    with pytest.raises(LedgerLost, match=r"group p\.0 has the offset 7, which this version"):
        read_commit_entry(CommittedOffset(7, metadata), "p.0")


def test_brokers_that_drop_the_metadata_of_offsets_are_named():
    for read in (read_commit_entry, read_batch_marker, read_layout):
        with pytest.raises(LedgerLost, match=r"offset 7 without .* do not keep the metadata"):
            read(CommittedOffset(7, ""), "p.0")
