"""What a task finds in the ledger while a claim is open, and what a claim must know."""

from __future__ import annotations

import heapq
import itertools
import threading
from contextlib import nullcontext

import pytest

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import DeadlineExceeded, TransactionFenced
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.transactions import claim
from spark_kafka_sink.transactions.claim import (
    ClaimSchedule,
    LayoutClaim,
    LedgerReader,
    ledger_reader,
    ledger_wait,
)
from spark_kafka_sink.transactions.ledger import (
    BatchMarker,
    ClaimProgress,
    CommitEntry,
    Decision,
    Layout,
    Ledger,
    Task,
    read_claim_progress,
)
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
    assert reader.read_or_assume_claim(wait) == reader.read(wait) == Ledger(MARKER, None, OWN)
    offsets["p.layout"] = Layout(5, 3).to_offset()
    assert reader.read_or_assume_claim(wait).layout == Layout(5, 3)


def test_a_task_does_not_send_while_a_claim_is_open(reader, offsets, wait, clock):
    offsets["stub"].stable_at = clock() + 9.0
    ledger = reader.read_or_assume_claim(wait)
    assert ledger.layout == Layout(5, 0)
    assert ledger.decide(TASK) is Decision.CLAIM


def test_a_claim_waits_until_it_knows_the_former_layout(reader, offsets, wait, clock):
    offsets["p.layout"] = Layout(5, 3).to_offset()
    offsets["stub"].stable_at = clock() + 9.0
    assert reader.read(wait).layout == Layout(5, 3)
    offsets["stub"].stable_at = clock() + 9.0
    with pytest.raises(DeadlineExceeded):
        reader.read(wait)


# --- many tasks, on a clock that moves when all of them wait --------------------------------------


class Died(BaseException):
    """A task whose process was killed: nothing that follows happens."""


class Simulation:
    """Brokers, and tasks that claim at the same time, each in a thread; one of them runs at a time.

    ``seconds_per_former``: how long it takes to fence a partition of the former number.
    """

    def __init__(self, former, answer_seconds, seconds_per_former):
        self.now = 0.0
        self.former = former
        self.answer_seconds, self.seconds_per_former = answer_seconds, seconds_per_former
        self.offsets = {"p.driver": BatchMarker(4, former).to_offset()}
        self.owner = self.open_claim = None
        #: whether brokers have lost the end of an earlier claim
        self.has_lost_end = False
        self.settled, self.fenced = [], []
        self.claims = 0
        self.dead = set()
        #: when tasks are woken up, and when they have ended
        self.wakes_at, self.woken = float("inf"), []
        self._waiting = []
        self._numbers = itertools.count()
        self._all_wait = threading.Event()

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        if threading.current_thread().name in self.dead:
            raise Died
        awake = threading.Event()
        heapq.heappush(self._waiting, (self.now + seconds, next(self._numbers), awake))
        self._all_wait.set()
        awake.wait()
        if threading.current_thread().name in self.dead:
            raise Died

    def run(self, starts, until=float("inf"), option=None):
        """The tasks begin at these seconds, and end when they have found a layout that suits them.

        ``option``: ``exactly.once.partitions``, if not the number of tasks.
        """
        tasks = [
            Task(5, partition, option or len(starts), stage="a stage")
            for partition in range(len(starts))
        ]
        threads = [
            threading.Thread(target=self._task, args=(at, task), daemon=True)
            for at, task in zip(starts, tasks, strict=True)
        ]
        for partition, thread in enumerate(threads):
            thread.name = f"task {partition}"
            self._all_wait.clear()
            thread.start()
            self._all_wait.wait()
        while self._waiting:
            self.now, _, awake = heapq.heappop(self._waiting)
            if self.now > until:
                self.dead.update(thread.name for thread in threads)
            self._all_wait.clear()
            awake.set()
            self._all_wait.wait()
        for thread in threads:
            thread.join()

    def _task(self, at, task):
        try:
            self.sleep(at)
            groups = "p.driver", "p.layout", f"p.{task.partition}"
            reader = LedgerReader(task, *(self.offset(None, "t", group) for group in groups))
            progress = self.offset(None, "t", "p.claim")
            arguments = OPTIONS, OPTIONS.exactly_once, "p", task, reader, progress, self
            layout_claim = LayoutClaim(*arguments, is_woken=lambda: self.now >= self.wakes_at)
            while (ledger := self._look(reader)).decide(task) is Decision.CLAIM:
                layout_claim.claim_or_wait(ledger)
        except Died:
            pass
        except InterruptedError:
            self.woken.append(self.now)
        else:
            assert ledger.decide(task) is Decision.SEND
            self.settled.append(self.now)
        finally:
            self._all_wait.set()

    def _look(self, reader):
        return reader.read_or_assume_claim(ledger_wait(OPTIONS, "looking", self))

    def kill(self, partition, at):
        def die():
            self.sleep(at)
            self.dead.add(f"task {partition}")
            self._all_wait.set()

        self._all_wait.clear()
        threading.Thread(target=die, daemon=True).start()
        self._all_wait.wait()

    # What the claim calls.

    def offset(self, _settings, _topic, group):
        simulation = self

        class Offset:
            def __init__(self):
                self.group = group

            def read(self, wait):
                wait.raise_if_woken()
                simulation.sleep(simulation.answer_seconds)
                while group == "p.layout" and (simulation.open_claim or simulation.has_lost_end):
                    simulation.sleep(min(wait.deadline.remaining(), 0.5) or 0.5)
                    if wait.deadline.expired:
                        raise wait.error(ErrorCode.TIMED_OUT)
                default = CommitEntry(4, simulation.former, 1, "f") if group[2:].isdigit() else None
                return simulation.offsets.get(group, default and default.to_offset())

            def write(self, offset, wait):
                wait.raise_if_woken()
                simulation.sleep(simulation.answer_seconds)
                simulation.offsets[group] = offset

        return Offset()

    def transaction(self, *_):
        simulation = self

        class FakeTransaction:
            pending = None

            def initialize(self, *_):
                simulation.claims += 1
                simulation.sleep(6 * simulation.answer_seconds + 0.03)
                claiming, simulation.owner, simulation.open_claim = (
                    simulation.open_claim,
                    self,
                    None,
                )
                self.name = threading.current_thread().name
                if claiming is not None and claiming.name not in simulation.dead:
                    simulation.fenced.append((self.name, claiming.name, simulation.now))

            def begin(self):
                pass

            def check_age(self):
                pass

            def send_offset(self, _group, _topic, offset, _wait):
                simulation.sleep(simulation.answer_seconds)
                self._check()
                simulation.open_claim, self.pending = self, offset

            def commit(self, _wait):
                simulation.sleep(simulation.answer_seconds)
                self._check()
                simulation.offsets["p.layout"], simulation.open_claim = self.pending, None

            def _check(self):
                if simulation.owner is not self:
                    raise TransactionFenced("")

            def close(self):
                simulation.abort(self)

        return FakeTransaction()

    def abort(self, transaction):
        if self.open_claim is transaction and transaction.name not in self.dead:
            self.open_claim, self.has_lost_end = None, False

    def fence(self, _options, ids, *_):
        self.sleep(len(ids) * self.seconds_per_former / 2)

    def read_offsets(self, _settings, _topic, groups, _wait):
        self.sleep(len(groups) * self.seconds_per_former / 2)
        return dict.fromkeys(groups)


@pytest.fixture
def simulate(monkeypatch):
    def create(*arguments):
        simulation = Simulation(*arguments)
        monkeypatch.setattr(claim, "Transaction", simulation.transaction)
        monkeypatch.setattr(claim, "fence", simulation.fence)
        monkeypatch.setattr(claim, "read_offsets", simulation.read_offsets)
        monkeypatch.setattr(
            BrokerWait, "pause", lambda wait, s=0.05: simulation.sleep(wait.deadline.slice(s))
        )
        return simulation

    return create


# Former partitions, seconds until an answer, seconds for a former partition: as measured.
SIZES = [(2, 0.001, 0.03), (200, 0.05, 0.12), (200, 0.5, 0.3), (10_000, 0.001, 0.03)]


@pytest.mark.parametrize("tasks", [1, 3])
def test_a_claim_whose_end_the_brokers_have_lost_is_ended_by_the_next_one(simulate, tasks):
    """Initializing its id does not end it: for the coordinator of transactions, it has ended."""
    simulation = simulate(2, 0.001, 0.03)
    simulation.has_lost_end = True
    simulation.run([0.0] * tasks)
    assert len(simulation.settled) == tasks
    assert not simulation.has_lost_end


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "starts",
    [[0.0] * 12, [1.0 * partition for partition in range(12)], [30.0, *[0.0] * 11]],
    ids=["at once", "one after another", "the first one late"],
)
def test_a_claim_that_works_is_never_fenced_by_a_task_that_waits(simulate, size, starts):
    simulation = simulate(*size)
    simulation.run(starts)
    assert simulation.fenced == []
    former, _, seconds_per_former = size
    assert len(simulation.settled) == 12
    assert max(simulation.settled) <= max(starts) + former * seconds_per_former + 40.0


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("dies_at", [0.2, 1.5, 9.0])
def test_a_claim_that_died_is_taken_over(simulate, size, dies_at):
    simulation = simulate(*size)
    simulation.kill(0, dies_at)
    simulation.run([0.0] * 12)
    former, _, seconds_per_former = size
    assert simulation.fenced == []
    assert len(simulation.settled) >= 11
    assert max(simulation.settled) <= dies_at + former * seconds_per_former + 50.0


@pytest.mark.parametrize(("first_at", "claimed_by"), [(0.0, 6.0), (30.0, 10.0)])
def test_two_hundred_tasks_need_one_claim(simulate, first_at, claimed_by):
    simulation = simulate(100, 0.01, 0.05)
    simulation.run([first_at, *(0.05 * (partition % 7) for partition in range(1, 200))])
    assert simulation.claims == 1
    assert min(simulation.settled) <= claimed_by
    assert max(simulation.settled) <= 31.0


@pytest.mark.parametrize(("former", "option", "seconds"), [(1, 1, 5.0), (200, 2, 45.0)])
def test_more_tasks_than_the_option_says_need_few_claims(simulate, former, option, seconds):
    """Each of those beyond it could claim a layout that is larger by one."""
    simulation = simulate(former, 0.05, 0.12)
    simulation.run([0.0] * 12, option=option)
    assert simulation.fenced == []
    assert len(simulation.settled) == 12
    assert max(simulation.settled) <= seconds


@pytest.mark.parametrize("partition", [1, 150])
def test_a_stage_of_which_only_some_tasks_run_begins_soon(simulate, partition):
    simulation = simulate(100, 0.01, 0.05)
    starts = [1e6] * 200
    starts[partition] = starts[partition + 1] = 0.0
    simulation.run(starts)
    assert simulation.fenced == []
    assert min(simulation.settled) <= 25.0


def announce_only(layout_claim, wait, step=LayoutClaim._report_progress):
    """A claim that does not say later how far it is."""
    if layout_claim._own.steps == 0:
        step(layout_claim, wait)


@pytest.mark.parametrize(
    ("owner", "part", "mutant"),
    [
        (ClaimSchedule, "observe", lambda *_: False),
        (LayoutClaim, "_report_progress", announce_only),
    ],
)
def test_the_simulation_notices_that_a_claim_is_fenced(simulate, monkeypatch, owner, part, mutant):
    monkeypatch.setattr(owner, part, mutant)
    simulation = simulate(200, 0.05, 0.12)
    simulation.run([0.0] * 12, until=60.0)
    assert simulation.fenced
    assert simulation.settled == []


def test_a_task_does_not_wait_for_ever_for_a_claim_that_never_ends(simulate):
    """Its layout is never known, and it makes no progress: the task claims itself."""
    simulation = simulate(2, 0.001, 0.03)
    simulation.offsets["p.claim"] = ClaimProgress(5, "dead", 3).to_offset()
    simulation.run([0.0])
    assert 15.0 <= simulation.settled[0] <= 20.0


def test_a_task_that_is_woken_up_waits_for_no_claim(simulate):
    simulation = simulate(2, 0.001, 0.03)
    simulation.offsets["p.claim"] = ClaimProgress(5, "dead", 3).to_offset()
    simulation.wakes_at = 5.0
    simulation.run([0.0])
    assert simulation.settled == []
    assert 5.0 <= simulation.woken[0] <= 6.0


def test_a_claim_that_is_woken_up_says_that_it_has_ended(simulate):
    """Otherwise the others would wait for it."""
    simulation = simulate(200, 0.001, 0.03)
    simulation.wakes_at = 4.0
    simulation.run([0.0])
    assert simulation.settled == []
    assert 4.0 <= simulation.woken[0] <= 6.0
    progress = read_claim_progress(simulation.offsets["p.claim"], "p.claim")
    assert progress.steps > 1
    assert progress.has_ended
