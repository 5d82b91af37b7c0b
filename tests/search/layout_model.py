"""The protocol of exactly-once as a model that can be searched exhaustively.

Every step of a task or of the driver is atomic, and any of them may come next. A task that is not
chosen any more has crashed; one that is chosen late is a zombie. What a task decides is decided by
the functions of ``transactions.ledger``, which the sink itself calls.

Readers of the ledger outlive their task, as connections of a process: none of them keeps an answer.

A row is a number below ``ROWS``; its partition is the row modulo the number of partitions. Of a
micro-batch without rows, Spark may run tasks or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from spark_kafka_sink.transactions import ledger
from spark_kafka_sink.transactions.ledger import Decision

#: divisible by 1, 2 and 3, so that each number of partitions cuts them in other places
ROWS = 6

#: in the place of a partition's number
LAYOUT_ID = -1

INITIALIZE, MARKER, ENTRY, LAYOUT, COMMIT = "initialize", "marker", "entry", "layout", "commit"
CLAIM, LOOK, OPEN, FENCE, READ, SETTLE = "claim", "look", "open", "fence", "read", "settle"
DONE, FAILED = "done", "failed"
ENDED = (DONE, FAILED)

#: (batch id, partitions): a marker or an entry. Plain tuples, because the search hashes millions.
Recorded = tuple[int, int]
#: (batch id, partitions, is final)
Claimed = tuple[int, int, bool]


class Task(NamedTuple):
    batch_id: int
    partition: int
    partitions: int


class Kafka(NamedTuple):
    """What the brokers know."""

    entries: tuple[Recorded | None, ...]
    marker: Recorded | None
    layout: Claimed | None
    #: a layout in an open transaction: readers of the group wait until it has ended
    pending: Claimed | None
    #: by micro-batch, how often each row is visible
    log: tuple[tuple[int, ...], ...]
    #: what processes have read, and a mutant believes later: (partition, answer)
    answers: frozenset[tuple[int, Recorded | Claimed | None]] = frozenset()


class Attempt(NamedTuple):
    """An attempt of a task: what its next step is, and what it has seen."""

    task: Task
    step: str
    #: no other attempt has taken over its transactional id since, or that of the layout
    holds_id: bool = False
    holds_layout: bool = False
    marker: Recorded | None = None
    entry: Recorded | None = None
    layout: Claimed | None = None
    unfenced: int = 0
    claim: Claimed | None = None


class Run(NamedTuple):
    """A state of the search. ``running``: the tasks of the stage that Spark waits for."""

    kafka: Kafka
    running: tuple[Attempt, ...]
    zombies: tuple[Attempt, ...]
    batch_id: int
    #: how many stages may still begin
    stages: int


@dataclass(frozen=True)
class Variant:
    """The protocol, or what a mutant does otherwise."""

    claims: bool = True
    fences: bool = True
    reads_entries_after_fencing: bool = True
    readers_wait_for_a_claim: bool = True
    initializes_before_looking: bool = True
    #: the step at which an answer that a process has read earlier is taken for the present state
    believes_earlier_answers: str = ""
    #: steps that follow the one before at once; fewer states, and fewer orders are searched
    joined: frozenset[str] = frozenset()

    @property
    def first_step(self) -> str:
        return INITIALIZE if self.initializes_before_looking else MARKER


@dataclass(frozen=True)
class Bounds:
    """How much is searched: numbers of partitions, micro-batches, and stages that Spark starts.

    ``empty``: the micro-batches without rows.
    """

    numbers: tuple[int, ...]
    batches: int
    stages: int
    empty: tuple[int, ...] = ()


@cache
def decide(
    task: Task, marker: Recorded | None, layout: Claimed | None, entry: Recorded | None
) -> Decision:
    return ledger.decide(
        ledger.Task(*task),
        marker and ledger.BatchMarker(*marker),
        layout and ledger.Layout(*layout),
        entry and ledger.CommitEntry(*entry, 0, ""),
    )


@cache
def partitions_of(batch_id: int, marker: Recorded | None, layout: Claimed | None) -> int:
    known = marker and ledger.BatchMarker(*marker), layout and ledger.Layout(*layout)
    return ledger.partitions_of(batch_id, *known) or 0


@cache
def claimed(task: Task, entries: tuple[Recorded | None, ...]) -> Claimed:
    known = [ledger.CommitEntry(*entry, 0, "") for entry in entries if entry is not None]
    layout = ledger.claimed_layout(ledger.Task(*task), known)
    return layout.batch_id, layout.partitions, layout.is_final


@cache
def with_rows_of(task: Task, log: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    rows = tuple(
        times + (row % task.partitions == task.partition)
        for row, times in enumerate(log[task.batch_id])
    )
    return put(log, task.batch_id, rows)


def put(values: tuple, index: int, value) -> tuple:
    return (*values[:index], value, *values[index + 1 :])


def step(
    variant: Variant, kafka: Kafka, attempt: Attempt
) -> Iterator[tuple[Kafka, Attempt, tuple[int, ...]]]:
    """Everything that may follow when this attempt goes on.

    The numbers: which transactional ids it has taken over; ``LAYOUT_ID`` is that of the layout.
    """
    for outcome in _STEPS[attempt.step](variant, kafka, attempt):
        after, moved, taken_over = outcome
        if moved.step not in variant.joined:
            yield outcome
            continue
        for later, last, more in step(variant, after, moved):
            yield later, last, taken_over + more


def _initialize(variant, kafka, attempt):
    following = MARKER if variant.initializes_before_looking else ENTRY
    yield kafka, attempt._replace(step=following, holds_id=True), (attempt.task.partition,)


def _answers(variant, kafka, step_name, partition, present):
    """What a reader says: the present state. A mutant's process may have an answer already."""
    if variant.believes_earlier_answers != step_name:
        yield kafka, present
        return
    yield kafka._replace(answers=kafka.answers | {(partition, present)}), present
    for place, answer in kafka.answers:
        if place == partition:
            yield kafka, answer


def _look_at_marker(variant, kafka, attempt):
    for after, marker in _answers(variant, kafka, MARKER, LAYOUT_ID, kafka.marker):
        seen = attempt._replace(marker=marker)
        if variant.initializes_before_looking:
            yield after, seen._replace(step=ENTRY), ()
        else:
            yield after, seen._replace(step=INITIALIZE, layout=kafka.layout), ()


def _look_at_entry(variant, kafka, attempt):
    partition = attempt.task.partition
    for after, entry in _answers(variant, kafka, ENTRY, partition, kafka.entries[partition]):
        yield after, attempt._replace(step=LAYOUT, entry=entry), ()


def _look_at_layout(variant, kafka, attempt):
    task = attempt.task
    present = kafka.layout if variant.initializes_before_looking else attempt.layout
    if kafka.pending is not None and variant.readers_wait_for_a_claim:
        # The claimer may have crashed: after some time, this one takes over.
        present = (task.batch_id, 0, False)
    for after, layout in _answers(variant, kafka, LAYOUT, LAYOUT_ID, present):
        decision = decide(task, attempt.marker, layout, attempt.entry)
        if decision is Decision.SEND or (decision is Decision.CLAIM and not variant.claims):
            yield after, Attempt(task, COMMIT, holds_id=attempt.holds_id), ()
        elif decision is Decision.CLAIM:
            yield after, Attempt(task, CLAIM), ()
        else:
            yield after, Attempt(task, DONE if decision is Decision.VERIFY else FAILED), ()


def _commit(variant, kafka, attempt):
    task = attempt.task
    if not attempt.holds_id:
        yield kafka, Attempt(task, FAILED), ()
        return
    entries = put(kafka.entries, task.partition, (task.batch_id, task.partitions))
    log = with_rows_of(task, kafka.log)
    yield kafka._replace(entries=entries, log=log), Attempt(task, DONE), ()


def _claim(variant, kafka, attempt):
    """Take over the layout's transactional id, which aborts a claim that is open."""
    task = attempt.task
    taken_over = attempt._replace(step=LOOK, holds_layout=True)
    yield kafka._replace(pending=None), taken_over, (LAYOUT_ID,)
    number = partitions_of(task.batch_id, kafka.marker, kafka.layout)
    if kafka.pending is None and number == task.partitions:
        # Or wait for the others, and see that one of them has claimed.
        yield kafka, Attempt(task, variant.first_step), ()


def _look_again(variant, kafka, attempt):
    # Marker, entry and layout at once: with another layout, it does not hold the id any more.
    task = attempt.task
    entry = kafka.entries[task.partition]
    if decide(task, kafka.marker, kafka.layout, entry) is Decision.CLAIM:
        number = partitions_of(task.batch_id, kafka.marker, kafka.layout)
        yield kafka, attempt._replace(step=OPEN, unfenced=number), ()
    else:
        yield kafka, Attempt(task, variant.first_step), ()


def _open_claim(variant, kafka, attempt):
    task = attempt.task
    if not attempt.holds_layout:
        yield kafka, Attempt(task, variant.first_step), ()
        return
    after = kafka._replace(pending=(task.batch_id, task.partitions, False))
    if not variant.reads_entries_after_fencing:
        attempt = attempt._replace(claim=claimed(task, kafka.entries))
    following = FENCE if variant.fences and attempt.unfenced else READ
    yield after, attempt._replace(step=following), ()


def _fence(variant, kafka, attempt):
    partition = attempt.unfenced - 1
    following = FENCE if partition else READ
    yield kafka, attempt._replace(step=following, unfenced=partition), (partition,)


def _read_entries(variant, kafka, attempt):
    claim = attempt.claim or claimed(attempt.task, kafka.entries)
    yield kafka, attempt._replace(step=SETTLE, claim=claim, unfenced=0), ()


def _settle(variant, kafka, attempt):
    again = Attempt(attempt.task, variant.first_step)
    if attempt.holds_layout:
        yield kafka._replace(layout=attempt.claim, pending=None), again, ()
    else:
        yield kafka, again, ()


_STEPS = {
    INITIALIZE: _initialize,
    MARKER: _look_at_marker,
    ENTRY: _look_at_entry,
    LAYOUT: _look_at_layout,
    COMMIT: _commit,
    CLAIM: _claim,
    LOOK: _look_again,
    OPEN: _open_claim,
    FENCE: _fence,
    READ: _read_entries,
    SETTLE: _settle,
}


def first_state(bounds: Bounds) -> Run:
    log = tuple(() if each in bounds.empty else (0,) * ROWS for each in range(bounds.batches))
    return Run(
        Kafka((None,) * max(bounds.numbers), None, None, None, log), (), (), 0, bounds.stages
    )


def begin(variant: Variant, batch_id: int, partitions: int) -> tuple[Attempt, ...]:
    """The tasks of a stage."""
    return tuple(
        Attempt(Task(batch_id, partition, partitions), variant.first_step)
        for partition in range(partitions)
    )


def next_states(run: Run, variant: Variant, bounds: Bounds) -> Iterator[Run]:
    """Every state that one step leads to: of a task, of the driver, or of Spark."""
    yield from _after_a_running_task(run, variant)
    yield from _after_a_zombie(run, variant)
    if run.running and all(attempt.step == DONE for attempt in run.running):
        yield write_marker(run, run.running[0].task.partitions)
    if run.stages:
        yield from _new_stages(run, variant, bounds)


def _after_a_running_task(run: Run, variant: Variant) -> Iterator[Run]:
    for index, attempt in enumerate(run.running):
        if attempt.step in ENDED:
            continue
        for kafka, moved, taken_over in step(variant, run.kafka, attempt):
            running = put(_without(run.running, taken_over), index, moved)
            zombies = _sorted(_without(run.zombies, taken_over), kafka)
            yield run._replace(kafka=kafka, running=running, zombies=zombies)


def _after_a_zombie(run: Run, variant: Variant) -> Iterator[Run]:
    for index, attempt in enumerate(run.zombies):
        for kafka, moved, taken_over in step(variant, run.kafka, attempt):
            zombies = _sorted(put(_without(run.zombies, taken_over), index, moved), kafka)
            yield run._replace(
                kafka=kafka, running=_without(run.running, taken_over), zombies=zombies
            )


def _new_stages(run: Run, variant: Variant, bounds: Bounds) -> Iterator[Run]:
    kafka, running, zombies, batch_id, stages = run
    for number in bounds.numbers:
        if batch_id < bounds.batches:
            # The stage before has failed, or the driver has died, at whatever step the tasks are.
            given_up = _sorted(zombies + running, kafka)
            yield Run(kafka, begin(variant, batch_id, number), given_up, batch_id, stages - 1)
            if batch_id in bounds.empty:
                yield write_marker(Run(kafka, (), given_up, batch_id, stages - 1), 0)
        if batch_id and not running:
            # The driver has died before Spark recorded the marked micro-batch as done.
            again = begin(variant, batch_id - 1, number)
            yield Run(kafka, again, zombies, batch_id - 1, stages - 1)


def write_marker(run: Run, tasks: int) -> Run:
    """The driver's step when all tasks have ended well; Spark goes on with the next micro-batch."""
    marker = (run.batch_id, tasks)
    kafka = run.kafka._replace(marker=marker)
    return Run(kafka, (), _sorted(run.zombies, kafka), run.batch_id + 1, run.stages)


def _without(attempts: tuple[Attempt, ...], taken_over: tuple[int, ...]) -> tuple[Attempt, ...]:
    """The attempts after some ids were taken over; the caller replaces the one that took them."""
    if not taken_over:
        return attempts
    return tuple(
        a._replace(
            holds_id=a.holds_id and a.task.partition not in taken_over,
            holds_layout=a.holds_layout and LAYOUT_ID not in taken_over,
        )
        if a.holds_id or a.holds_layout
        else a
        for a in attempts
    )


def _sorted(zombies: tuple[Attempt, ...], kafka: Kafka) -> tuple[Attempt, ...]:
    """In an order that makes equal states equal, without those that cannot change anything."""
    return tuple(sorted((a for a in zombies if _matters(a, kafka)), key=_order))


@cache
def _order(attempt: Attempt) -> str:
    return repr(attempt)


def _matters(attempt: Attempt, kafka: Kafka) -> bool:
    """False: it can only make others fail, which they may do anyway."""
    if attempt.step in ENDED:
        return False
    if attempt.step == COMMIT:
        return attempt.holds_id
    is_complete = kafka.marker is not None and kafka.marker[0] >= attempt.task.batch_id
    return not (is_complete and attempt.step in (INITIALIZE, CLAIM))
