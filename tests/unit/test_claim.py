"""What a task finds in the ledger while a claim is open, and what a claim must know."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from fake_clock import FakeClock

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import DeadlineExceeded
from spark_kafka_sink.transactions import claim
from spark_kafka_sink.transactions.claim import Ledger, ledger_reader, seconds_until_claim
from spark_kafka_sink.transactions.ledger import BatchMarker, CommitEntry, Decision, Layout, Task
from spark_kafka_sink.transactions.offset_calls import BrokerWait

OPTIONS = parse(
    {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "topic": "t",
        "delivery.guarantee": "exactly-once",
        "exactly.once.partitions": "2",
    }
)
TASK = Task(5, 1, 2)
MARKER, OWN = BatchMarker(4, 2), CommitEntry(4, 2, 1, "f")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def wait(clock):
    return BrokerWait(Deadline(10.0, clock), "kafka.max.block.ms, 10 s", "reading")


@pytest.fixture
def offsets(monkeypatch, clock):
    """By group: an offset, or a layout that no one can read until ``stable_at``."""
    known = {"p.driver": MARKER.to_offset(), "p.1": OWN.to_offset()}

    class Stub:
        stable_at = 0.0

        def __init__(self, group):
            self.group = group

        def read(self, wait):
            if self.group == "p.layout" and clock() < Stub.stable_at:
                clock.now += min(wait.deadline.remaining(), Stub.stable_at - clock())
                if wait.deadline.expired:
                    raise wait.error(0)
            return known.get(self.group)

    monkeypatch.setattr(claim, "borrow_offset", lambda *args: nullcontext(Stub(args[-1])))
    known["stub"] = Stub
    return known


@pytest.fixture
def reader(offsets):
    with ledger_reader(OPTIONS, OPTIONS.exactly_once, "p", TASK) as reader:
        yield reader


def test_a_task_reads_marker_layout_and_its_own_entry(reader, offsets, wait):
    assert reader.look(wait) == reader.read(wait) == Ledger(MARKER, None, OWN)
    offsets["p.layout"] = Layout(5, 3).to_offset()
    assert reader.look(wait).layout == Layout(5, 3)


def test_a_task_does_not_send_while_a_claim_is_open(reader, offsets, wait, clock):
    offsets["stub"].stable_at = clock() + 9.0
    found = reader.look(wait)
    assert found.layout == Layout(5, 0)
    assert found.decide(TASK, "p") is Decision.CLAIM


def test_a_claim_waits_until_it_knows_the_former_layout(reader, offsets, wait, clock):
    offsets["p.layout"] = Layout(5, 3).to_offset()
    offsets["stub"].stable_at = clock() + 9.0
    assert reader.read(wait).layout == Layout(5, 3)
    offsets["stub"].stable_at = clock() + 9.0
    with pytest.raises(DeadlineExceeded):
        reader.read(wait)


@pytest.mark.parametrize("layout", [Layout(5, 2), Layout(5, 3, is_final=True)])
def test_a_task_waits_for_a_claim_of_its_number_or_a_final_one(
    reader, offsets, wait, clock, layout
):
    offsets["p.layout"] = layout.to_offset()
    began = clock()
    assert reader.await_claim(Ledger(BatchMarker(4, 3), None, OWN), wait, 3.0)
    assert clock() == began


def test_a_task_does_not_wait_for_a_claim_that_is_not_needed(reader, offsets, wait, clock):
    """Its layout was only late, as that of a slow broker is."""
    offsets["p.layout"] = Layout(1, 2).to_offset()
    offsets["stub"].stable_at = clock() + 4.0
    found = reader.look(wait)
    assert found.decide(TASK, "p") is Decision.CLAIM
    began = clock()
    assert reader.await_claim(found, wait, 6.0)
    assert clock() - began == pytest.approx(1.0)


def test_a_task_does_not_wait_for_a_claim_for_ever(reader, offsets, wait, clock, monkeypatch):
    pauses = []

    def pause(wait, seconds):
        pauses.append(wait.deadline.slice(seconds))
        clock.now += pauses[-1]

    monkeypatch.setattr(BrokerWait, "pause", pause)
    offsets["p.layout"] = Layout(5, 3).to_offset()
    began = clock()
    assert not reader.await_claim(Ledger(MARKER, None, OWN), wait, 4.0)
    assert clock() - began == pytest.approx(4.0)
    # Many tasks wait at the same time, so each asks less and less often.
    assert pauses[:2] == pytest.approx([0.05, 0.075])
    assert max(pauses) == 1.0


def turns(partitions, was_fenced=False, former=2):
    found = Ledger(BatchMarker(4, former), None, None)
    tasks = (Task(5, partition, partitions) for partition in range(partitions))
    return [seconds_until_claim(task, found, was_fenced, 60.0) for task in tasks]


def test_the_tasks_of_a_stage_do_not_claim_all_at_once():
    seconds = turns(1000)
    assert seconds[:5] == pytest.approx([0.0, 3.0, 6.0, 12.0, 24.0])
    assert seconds == sorted(set(seconds))
    # Enough time is left for a claim.
    assert max(seconds) <= 48.0


def test_a_task_whose_claim_was_fenced_claims_after_those_that_have_not():
    assert turns(4, was_fenced=True) == pytest.approx([36.0, 39.0, 42.0, 45.0])


def test_a_claim_that_must_fence_many_tasks_has_the_time_for_it():
    assert turns(5, former=256) == pytest.approx([0.0, 10.24, 10.24, 12.0, 24.0])


@pytest.mark.parametrize("claim_seconds", [0.1, 2.0, 10.0])
@pytest.mark.parametrize("tasks", [2, 7, 200])
@pytest.mark.parametrize("late_seconds", [0.0, 1.0, 10.0])
def test_one_of_the_tasks_of_a_stage_completes_its_claim(tasks, claim_seconds, late_seconds):
    """Each task is that much later than the one before, until the last is 10 s late."""
    begun = [min(late_seconds * partition, 10.0) for partition in range(tasks)]
    turn = [at + seconds for at, seconds in zip(begun, turns(tasks), strict=True)]
    fenced = turns(tasks, was_fenced=True)
    claiming, ends_at = None, float("inf")
    while (now := min(turn)) < ends_at:
        assert now < 60.0, "they fence each other"
        if claiming is not None:
            turn[claiming] = now + fenced[claiming]
        claiming, ends_at = turn.index(now), now + claim_seconds
        turn[claiming] = float("inf")
    assert ends_at <= 50.0
