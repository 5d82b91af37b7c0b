from __future__ import annotations

import itertools
import json
from dataclasses import replace

import pytest

from spark_kafka_sink.config.producer_options import FROM_DRIVER
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
    transaction_count,
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
    assert Ledger(None, None, None).partitions(Task(5, 0, 1)) is None
    assert Ledger(marker(3), None, None).partitions(Task(5, 0, 1)) is None
    assert Ledger(marker(4), None, None).partitions(Task(5, 0, 1)) == 2
    assert Ledger(marker(4), Layout(4, 3), None).partitions(Task(5, 0, 1)) == 2
    assert Ledger(marker(4), Layout(5, 3), None).partitions(Task(5, 0, 1)) == 3


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
    # What the error says to set helps.
    has_new_prefix = "a new transactional.id.prefix and exactly.once.first.batch=5" in said
    assert has_new_prefix or "exactly.once.first.batch=5" in said
    then = Ledger(None, None, None) if has_new_prefix else ledger
    assert then.decide(Task(5, 0, 2, first_batch=5)) in (SEND, CLAIM)


# Of micro-batch 5, after one of the driver.
@pytest.mark.parametrize(
    ("marker", "layout", "own", "decision"),
    [
        (marker(4, FROM_DRIVER), None, entry(4, FROM_DRIVER), SEND),
        (marker(4, FROM_DRIVER), None, entry(5, FROM_DRIVER), VERIFY),
        (marker(5, FROM_DRIVER), None, entry(5, FROM_DRIVER), VERIFY),
        (marker(4, FROM_DRIVER), Layout(5, 0), entry(4, FROM_DRIVER), CLAIM),
        (marker(4, FROM_DRIVER), Layout(5, 0), entry(5, FROM_DRIVER), VERIFY),
        (marker(4, FROM_DRIVER), Layout(5, FROM_DRIVER, is_final=True), entry(4), SEND),
        (marker(4, FROM_DRIVER), None, None, LOST),
        (marker(5, FROM_DRIVER), None, entry(4, FROM_DRIVER), LOST),
        (marker(3, FROM_DRIVER), None, entry(3, FROM_DRIVER), LOST),
        (None, None, None, LOST),
        (marker(6, FROM_DRIVER), None, entry(6, FROM_DRIVER), AHEAD),
        # after executors
        (marker(4, 1), None, entry(4, 1), CLAIM),
        (marker(4, 2), None, entry(4, 2), CLAIM),
        (marker(4, 2), Layout(5, 2), entry(4, 2), CLAIM),
        (marker(4, 2), Layout(5, FROM_DRIVER), entry(4, 2), SEND),
        (marker(4, 0), None, None, CLAIM),
        (marker(4, 0), Layout(5, FROM_DRIVER), None, SEND),
        # in the middle of theirs
        (marker(4, 1), None, entry(5, 1), CHANGED),
        (marker(4, 2), Layout(5, 2), entry(5, 2), CHANGED),
        (marker(4, 2), Layout(5, 2, is_final=True), entry(4, 2), CHANGED),
        (marker(4, 2), Layout(5, 0), entry(5, 2), CLAIM),
        (marker(5, 2), None, entry(5, 2), CHANGED),
    ],
)
def test_what_the_driver_does(marker, layout, own, decision):
    assert Ledger(marker, layout, own).decide(Task(5, 0, FROM_DRIVER)) is decision


@pytest.mark.parametrize(
    ("committed_by", "query_id", "decision"),
    [("one", "one", VERIFY), ("one", "two", AHEAD), ("", "two", VERIFY), ("one", "", VERIFY)],
)
def test_the_driver_skips_no_micro_batch_of_another_query(committed_by, query_id, decision):
    """A new checkpoint has the same ids, and other rows. Spark Connect passes no query id."""
    own = replace(entry(5, FROM_DRIVER), query_id=committed_by)
    assert read_commit_entry(own.to_offset(), "p.0") == own
    task = Task(5, 0, FROM_DRIVER, query_id=query_id)
    assert Ledger(marker(5, FROM_DRIVER), None, own).decide(task) is decision


# Of micro-batch 5, after one of the driver, or in the middle of one.
@pytest.mark.parametrize(
    ("task", "marker", "layout", "own", "decision"),
    [
        (Task(5, 0, 1), marker(4, FROM_DRIVER), None, entry(4, FROM_DRIVER), CLAIM),
        (Task(5, 1, 2), marker(4, FROM_DRIVER), None, None, CLAIM),
        (Task(5, 0, 1), marker(4, FROM_DRIVER), Layout(5, FROM_DRIVER), None, LOST),
        (Task(5, 1, 2), marker(4, FROM_DRIVER), Layout(5, FROM_DRIVER), None, CLAIM),
        (Task(5, 0, 1), marker(4, FROM_DRIVER), Layout(5, 1), entry(4, FROM_DRIVER), SEND),
        (Task(5, 1, 2), marker(4, FROM_DRIVER), Layout(5, 2), None, SEND),
        (Task(5, 0, 1), marker(4, FROM_DRIVER), None, entry(5, FROM_DRIVER), CHANGED),
        (Task(5, 0, 1), marker(5, FROM_DRIVER), None, entry(5, FROM_DRIVER), CHANGED),
        (Task(5, 1, 2), marker(5, FROM_DRIVER), None, None, CHANGED),
        (Task(5, 1, 2), marker(4, 2), Layout(5, FROM_DRIVER, is_final=True), None, CHANGED),
        (Task(5, 0, 1), marker(4, 1), Layout(5, 0), entry(5, FROM_DRIVER), CLAIM),
        # more tasks than the option says
        (Task(5, 1, 1, stage="now"), marker(4, FROM_DRIVER), None, None, CLAIM),
        (Task(5, 1, 1, stage="now"), marker(5, FROM_DRIVER), None, None, CHANGED),
    ],
)
def test_what_executors_do_after_the_driver(task, marker, layout, own, decision):
    assert Ledger(marker, layout, own).decide(task) is decision


def test_a_claim_from_executors_to_the_driver_and_back_fences_all_ids_of_the_former():
    driver, first, third = Task(5, 0, FROM_DRIVER), Task(5, 0, 3), Task(5, 2, 3)
    assert transaction_count(FROM_DRIVER) == 1
    wanted, former = Ledger(marker(4, 3), None, entry(4, 3)).wanted_layout(driver)
    assert (wanted, transaction_count(former)) == (Layout(5, FROM_DRIVER), 3)
    assert claimed_layout(wanted, former, [entry(4, 3)]) == wanted
    assert claimed_layout(wanted, former, [entry(5, 3)]) == Layout(5, 3, is_final=True)
    for task in (first, third):
        wanted, former = Ledger(marker(4, FROM_DRIVER), None, None).wanted_layout(task)
        assert (wanted, transaction_count(former)) == (Layout(5, 3), 1)
        final = Layout(5, FROM_DRIVER, is_final=True)
        assert claimed_layout(wanted, former, [entry(5, FROM_DRIVER)]) == final
    # in the middle of a micro-batch, and there and back again
    layout = Layout(5, 3)
    wanted, former = Ledger(marker(4, FROM_DRIVER), layout, None).wanted_layout(driver)
    assert (wanted, transaction_count(former)) == (Layout(5, FROM_DRIVER), 3)
    wanted, former = Ledger(marker(4, 3), wanted, None).wanted_layout(first)
    assert (wanted, transaction_count(former)) == (Layout(5, 3), 1)
    # tasks beyond the option: first, their number must be that of the option
    beyond = Task(5, 2, 1, stage="now")
    wanted, former = Ledger(marker(4, FROM_DRIVER), None, None).wanted_layout(beyond)
    assert (wanted, transaction_count(former)) == (Layout(5, 1), 1)
    grown = Layout(5, 3, grown_by="now")
    wanted, former = Ledger(marker(4, FROM_DRIVER), grown, None).wanted_layout(driver)
    assert (wanted, transaction_count(former)) == (Layout(5, FROM_DRIVER), 3)
    # the first micro-batch
    wanted, former = Ledger(None, None, None).wanted_layout(driver)
    assert (wanted, transaction_count(former)) == (Layout(5, FROM_DRIVER), 0)


@pytest.mark.parametrize(
    ("layout", "own", "number"),
    [
        (None, entry(5, 1), 1),
        (Layout(5, 3), entry(5, 3), 3),
        (Layout(5, 3, is_final=True), entry(4, 3), 3),
    ],
)
def test_a_driver_in_the_middle_of_the_executors_micro_batch_is_told_to_go_back(
    layout, own, number
):
    task = Task(5, 0, FROM_DRIVER)
    with pytest.raises(PartitionsChanged) as raised:
        Ledger(marker(4, 3), layout, own).decide_or_raise(task, "orders")
    said = str(raised.value)
    assert said.startswith(
        f"micro-batch 5: a part of this micro-batch was committed with {number} partitions, "
        "but now send.from=driver; in the ledger orders, "
    )
    assert said.endswith(
        "Start the query as it was then, with send.from=executors, its former repartition and "
        f"exactly.once.partitions={number}, if it had them, and change it when this micro-batch "
        "is complete"
    )


@pytest.mark.parametrize(
    ("task", "marker", "layout", "own"),
    [
        (Task(5, 0, 1), marker(4, 1), None, entry(5, FROM_DRIVER)),
        (Task(5, 1, 2), marker(4, 2), Layout(5, FROM_DRIVER, is_final=True), None),
        (Task(5, 0, 2), marker(5, FROM_DRIVER), None, entry(5, FROM_DRIVER)),
    ],
)
def test_executors_that_repeat_a_micro_batch_of_the_driver_are_told_to_go_back(
    task, marker, layout, own
):
    with pytest.raises(PartitionsChanged) as raised:
        Ledger(marker, layout, own).decide_or_raise(task, "orders")
    said = str(raised.value)
    assert said.startswith(
        f"micro-batch 5, partition {task.partition}: this micro-batch was committed by the driver, "
        f"but now exactly.once.partitions={task.partitions}; in the ledger orders, "
    )
    assert said.endswith(
        "Start the query as it was then, with send.from=driver, and change it when this "
        "micro-batch is complete"
    )


# Of batch 50: their ids are times, or other numbers that grow.
@pytest.mark.parametrize(
    ("marker", "layout", "own", "decision"),
    [
        (None, None, None, CLAIM),
        (None, Layout(50, FROM_DRIVER), None, SEND),
        (marker(7, FROM_DRIVER), None, entry(7, FROM_DRIVER), SEND),
        (marker(49, FROM_DRIVER), None, entry(49, FROM_DRIVER), SEND),
        (marker(7, FROM_DRIVER), Layout(7, FROM_DRIVER), entry(7, FROM_DRIVER), SEND),
        (marker(7, 2), None, entry(7, 2), CLAIM),
        (marker(7, 2), Layout(50, FROM_DRIVER), entry(7, 2), SEND),
        # the marker of batch 20 was not written, and nor was one before
        (marker(7, FROM_DRIVER), None, entry(20, FROM_DRIVER), SEND),
        (None, None, entry(20, FROM_DRIVER), CLAIM),
        (None, Layout(50, FROM_DRIVER), entry(20, FROM_DRIVER), SEND),
        # batch 20 was given up after its claim
        (marker(7, FROM_DRIVER), Layout(20, FROM_DRIVER), entry(7, FROM_DRIVER), SEND),
        # the same id
        (marker(7, FROM_DRIVER), None, entry(50, FROM_DRIVER), VERIFY),
        (None, Layout(50, FROM_DRIVER), entry(50, FROM_DRIVER), VERIFY),
        (marker(50, FROM_DRIVER), None, entry(50, FROM_DRIVER), VERIFY),
        (marker(50, 2), None, entry(50, 2), CHANGED),
        # a smaller one
        (marker(51, FROM_DRIVER), None, entry(51, FROM_DRIVER), AHEAD),
        (marker(7, FROM_DRIVER), None, entry(51, FROM_DRIVER), AHEAD),
        (marker(7, FROM_DRIVER), Layout(51, FROM_DRIVER), entry(7, FROM_DRIVER), AHEAD),
        # entries that are missing
        (marker(7, FROM_DRIVER), None, None, LOST),
        (marker(20, FROM_DRIVER), None, entry(7, FROM_DRIVER), LOST),
        (marker(50, FROM_DRIVER), None, entry(7, FROM_DRIVER), LOST),
    ],
)
def test_the_ids_of_batches_may_have_gaps(marker, layout, own, decision):
    task = Task(50, 0, FROM_DRIVER, is_batch=True)
    assert Ledger(marker, layout, own).decide(task) is decision


def test_a_claim_of_a_batch_fences_the_ids_of_the_latest_complete_one():
    task = Task(50, 0, FROM_DRIVER, is_batch=True)
    wanted = Layout(50, FROM_DRIVER)
    assert Ledger(None, None, None).wanted_layout(task) == (wanted, 0)
    assert Ledger(marker(7, 3), Layout(7, 3), entry(7, 3)).wanted_layout(task) == (wanted, 3)


def test_a_smaller_id_of_a_batch_is_refused_in_the_words_of_batches():
    task = Task(6, 0, FROM_DRIVER, is_batch=True)
    with pytest.raises(LedgerAhead) as raised:
        Ledger(marker(7, FROM_DRIVER), None, entry(7, FROM_DRIVER)).decide_or_raise(task, "orders")
    said = str(raised.value)
    assert said.startswith("batch 6: in the ledger orders, ")
    assert "A later batch was written, or begun, before: pass ids that grow" in said
    assert "For a backfill" in said
    assert "a transactional.id.prefix of its own, such as orders-6" in said
    assert "micro-batch" not in said
    assert "checkpoint" not in said


@pytest.mark.parametrize(
    ("marked", "committed"), [(7, None), (20, 7), (49, None), (50, None), (50, 7)]
)
def test_a_batch_whose_ledger_lacks_its_entry_does_not_blame_skipped_micro_batches(
    marked, committed
):
    ledger = Ledger(marker(marked, FROM_DRIVER), None, entry(committed, FROM_DRIVER))
    with pytest.raises(LedgerLost) as raised:
        ledger.decide_or_raise(Task(50, 0, FROM_DRIVER, is_batch=True), "orders")
    assert "entry is missing" in str(raised.value)
    assert SKIPPED not in str(raised.value)


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


def test_a_replay_of_what_the_driver_committed_may_bring_other_rows_but_not_more():
    task, committed = Task(5, 0, FROM_DRIVER), CommitEntry(5, FROM_DRIVER, 3, "f")
    for rows in (0, 2, 3):
        check_replay(task, committed, rows, "g")
    with pytest.raises(ReplayDiffers) as raised:
        check_replay(task, committed, 4, "f")
    said = str(raised.value)
    assert said.startswith(
        "micro-batch 5: its number of rows was 3 when it was committed, and is 4 now. "
    )
    assert "checkpoint is older than the topics" in said
    assert "set a new transactional.id.prefix and exactly.once.first.batch=5" in said
    # A task of version 0.3 was late: it took the driver's layout for one with one partition.
    with pytest.raises(ReplayDiffers, match="has committed 3 different rows"):
        check_replay(task, CommitEntry(5, 1, 3, "f"), 3, "g")


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


def test_the_driver_is_one_partition_to_version_0_3_and_is_told_from_it_since():
    kept, marked = CommitEntry(7, FROM_DRIVER, 3, "f"), BatchMarker(7, FROM_DRIVER)
    layout = Layout(7, FROM_DRIVER, is_final=True)
    assert read_commit_entry(kept.to_offset(), "p.0") == kept
    assert read_batch_marker(marked.to_offset(), "p.driver") == marked
    assert read_layout(layout.to_offset(), "p.layout") == layout
    for written in (kept, marked, layout):
        fields = json.loads(written.to_offset().metadata)
        assert (fields["version"], fields["partitions"]) == (1, 1)  # what version 0.3 reads
        assert fields["sent_from"] == "driver"
    for written in (CommitEntry(7, 1, 3, "f"), BatchMarker(7, 1), Layout(7, 1)):
        assert "sent_from" not in json.loads(written.to_offset().metadata)


def test_an_entry_of_version_0_3_is_that_of_executors():
    fields = '"version": 1, "partitions": 1'
    kept = CommittedOffset(7, f'{{{fields}, "rows": 3, "fingerprint": "f"}}')
    assert read_commit_entry(kept, "p.0") == CommitEntry(7, 1, 3, "f")
    assert read_batch_marker(CommittedOffset(7, f"{{{fields}}}"), "p.driver") == BatchMarker(7, 1)
    layout = CommittedOffset(7, f'{{{fields}, "is_final": false, "grown_by": ""}}')
    assert read_layout(layout, "p.layout") == Layout(7, 1)


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
