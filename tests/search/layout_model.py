"""The protocol of exactly-once as a model that can be searched exhaustively.

Every step of a task or of the driver is atomic, and any of them may come next. A task that is not
chosen any more has crashed; one that is chosen late is a zombie. What a task decides is decided by
the functions of ``transactions.ledger``, which the sink itself calls.

Readers of the ledger outlive their task, as connections of a process: none of them keeps an answer.

A row is a number below ``ROWS``; its partition is the row modulo the number of partitions that the
stage has, which may not be that of the option. Of a micro-batch without rows, Spark may run tasks
or none. With ``send.from=driver``, the only task is the driver's. It has all rows, and does not
compare them with what it has committed before. Batches are the driver's, too: the user may give
one up, and pass the next id.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass
from functools import cache
from typing import NamedTuple

from spark_kafka_sink.config.producer_options import FROM_DRIVER
from spark_kafka_sink.transactions import ledger
from spark_kafka_sink.transactions.ledger import Decision, transaction_count

#: divisible by 1, 2 and 3, so that each number of partitions cuts them in other places
ROWS = 6

#: in the place of a partition's number
LAYOUT_ID = -1

INITIALIZE, MARKER, ENTRY, LAYOUT, COMMIT = "initialize", "marker", "entry", "layout", "commit"
CLAIM, LOOK, OPEN, FENCE, READ, SETTLE = "claim", "look", "open", "fence", "read", "settle"
DONE, FAILED = "done", "failed"
ENDED = (DONE, FAILED)

#: (batch id, partitions): a marker. Plain tuples, because the search hashes millions.
Marked = tuple[int, int]
#: (batch id, partitions that the option says, and that its stage had)
Recorded = tuple[int, int, int]
#: (batch id, partitions, is final, grown by)
Claimed = tuple[int, int, bool, str]


class Task(NamedTuple):
    """``actual``: how many partitions its stage has; ``partitions``: what the option says."""

    batch_id: int
    partition: int
    partitions: int
    actual: int
    stage: str
    is_batch: bool

    @property
    def is_driver(self) -> bool:
        return self.partitions == FROM_DRIVER


class Kafka(NamedTuple):
    """What the brokers know."""

    entries: tuple[Recorded | None, ...]
    marker: Marked | None
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
    marker: Marked | None = None
    entry: Recorded | None = None
    layout: Claimed | None = None
    former: int = 0
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
    remembers_lower_partitions: bool = True
    tells_of_higher_partitions: bool = True
    reads_entries_after_fencing: bool = True
    readers_wait_for_a_claim: bool = True
    initializes_before_looking: bool = True
    #: the step at which an answer that a process has read earlier is taken for the present state
    believes_earlier_answers: str = ""
    #: steps that follow the one before at once; fewer states, and fewer orders are searched
    joined: frozenset[str] = frozenset()
    driver_knows_executors_with_one_partition: bool = True
    driver_claims: bool = True
    driver_fences_executors: bool = True
    driver_looks_at_the_ledger: bool = True
    executors_fence_the_driver: bool = True
    #: their version of the sink takes the driver for one partition
    executors_are_of_0_3: bool = False

    @property
    def first_step(self) -> str:
        return INITIALIZE if self.initializes_before_looking else MARKER

    def does_claim(self, task: Task) -> bool:
        return self.claims and (self.driver_claims or not task.is_driver)

    def does_fence(self, task: Task, former: int) -> bool:
        """``former``: the number of partitions before its claim."""
        if task.is_driver:
            return self.fences and (self.driver_fences_executors or former == FROM_DRIVER)
        return self.fences and (self.executors_fence_the_driver or former != FROM_DRIVER)


@dataclass(frozen=True)
class Bounds:
    """How much is searched: numbers of partitions, micro-batches, and stages that Spark starts.

    ``numbers``: of the option and of the stage, or FROM_DRIVER; ``mistaken``: the same, where they
    differ. ``empty``: the micro-batches without rows. ``are_batches``: not of a query.
    """

    numbers: tuple[int, ...]
    batches: int
    stages: int
    empty: tuple[int, ...] = ()
    mistaken: tuple[tuple[int, int], ...] = ()
    are_batches: bool = False

    @property
    def starts(self) -> tuple[tuple[int, int], ...]:
        """What Spark may start: the option, and how many partitions there are."""
        right = ((number, transaction_count(number)) for number in self.numbers)
        return *right, *self.mistaken


@cache
def decide(
    task: Task, marker: Marked | None, layout: Claimed | None, entry: Recorded | None
) -> Decision:
    return known_ledger(marker, layout, entry).decide(ledger_task(task))


def ledger_task(task: Task) -> ledger.Task:
    return ledger.Task(
        task.batch_id, task.partition, task.partitions, stage=task.stage, is_batch=task.is_batch
    )


def known_ledger(
    marker: Marked | None, layout: Claimed | None, entry: Recorded | None
) -> ledger.Ledger:
    return ledger.Ledger(
        marker and ledger.BatchMarker(*marker),
        layout and ledger.Layout(*layout),
        entry and ledger.CommitEntry(*entry[:2], 0, ""),
    )


@cache
def partitions_of(task: Task, marker: Marked | None, layout: Claimed | None) -> int:
    return known_ledger(marker, layout, None).partitions(ledger_task(task)) or 0


@cache
def wanted(task: Task, marker: Marked | None, layout: Claimed | None) -> tuple[Claimed, int]:
    layout_wanted, former = known_ledger(marker, layout, None).wanted_layout(ledger_task(task))
    return astuple(layout_wanted), former


@cache
def claimed(claim: Claimed, former: int, entries: tuple[Recorded | None, ...]) -> Claimed:
    fenced = entries[: transaction_count(former)]
    known = [ledger.CommitEntry(*entry[:2], 0, "") for entry in fenced if entry]
    return astuple(ledger.claimed_layout(ledger.Layout(*claim), former, known))


def rows_of(partition: int, actual: int) -> tuple[bool, ...]:
    return tuple(row % actual == partition for row in range(ROWS))


def has_same_rows(task: Task, entry: Recorded) -> bool:
    """Whether the rows are those that were committed; those of the driver are not compared."""
    is_same = rows_of(task.partition, entry[2]) == rows_of(task.partition, task.actual)
    return entry[1] == FROM_DRIVER or is_same


@cache
def append_rows(task: Task, log: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    rows = zip(log[task.batch_id], rows_of(task.partition, task.actual), strict=False)
    return put(log, task.batch_id, tuple(times + is_own for times, is_own in rows))


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
    if attempt.task.is_driver and not variant.driver_looks_at_the_ledger:
        following = COMMIT
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


def understand(variant: Variant, task: Task, *known: tuple | None) -> Iterator[tuple | None]:
    """What the task takes the markers, layouts and entries for."""
    mistakes = {}
    if task.is_driver and not variant.driver_knows_executors_with_one_partition:
        mistakes = {1: FROM_DRIVER}
    if not task.is_driver and variant.executors_are_of_0_3:
        mistakes = {FROM_DRIVER: 1}
    for part in known:
        yield part and put(part, 1, mistakes.get(part[1], part[1]))


def _look_at_layout(variant, kafka, attempt):
    task = attempt.task
    present = kafka.layout if variant.initializes_before_looking else attempt.layout
    if kafka.pending is not None and variant.readers_wait_for_a_claim:
        # The claimer may have crashed: after some time, this one takes over.
        present = (task.batch_id, 0, False, "")
    for after, answer in _answers(variant, kafka, LAYOUT, LAYOUT_ID, present):
        marker, layout, entry = understand(variant, task, attempt.marker, answer, attempt.entry)
        decision = decide(task, marker, layout, entry)
        number = partitions_of(task, marker, layout)
        is_last = number == task.partitions and transaction_count(number) <= task.partition
        is_beyond = decision is Decision.CLAIM and is_last
        is_silent = is_beyond and not variant.tells_of_higher_partitions
        is_bold = decision is Decision.CLAIM and not variant.does_claim(task)
        if decision is Decision.SEND or is_silent or is_bold:
            yield after, Attempt(task, COMMIT, holds_id=attempt.holds_id), ()
        elif decision is Decision.CLAIM:
            yield after, Attempt(task, CLAIM), ()
        else:
            is_done = decision is Decision.VERIFY and has_same_rows(task, entry)
            yield after, Attempt(task, DONE if is_done else FAILED), ()


def _commit(variant, kafka, attempt):
    task = attempt.task
    if not attempt.holds_id:
        yield kafka, Attempt(task, FAILED), ()
        return
    entry = task.batch_id, task.partitions, task.actual
    entries = put(kafka.entries, task.partition, entry)
    log = append_rows(task, kafka.log)
    yield kafka._replace(entries=entries, log=log), Attempt(task, DONE), ()


def _claim(variant, kafka, attempt):
    """Take over the layout's transactional id, which aborts a claim that is open."""
    task = attempt.task
    taken_over = attempt._replace(step=LOOK, holds_layout=True)
    yield kafka._replace(pending=None), taken_over, (LAYOUT_ID,)
    number = partitions_of(task, *understand(variant, task, kafka.marker, kafka.layout))
    if kafka.pending is None and number == task.partitions:
        # Or wait for the others, and see that one of them has claimed.
        yield kafka, Attempt(task, variant.first_step), ()


def _look_again(variant, kafka, attempt):
    # Marker, entry and layout at once: with another layout, it does not hold the id any more.
    task = attempt.task
    known = kafka.marker, kafka.layout, kafka.entries[task.partition]
    marker, layout, entry = understand(variant, task, *known)
    if decide(task, marker, layout, entry) is Decision.CLAIM:
        claim, former = wanted(task, marker, layout)
        unfenced = transaction_count(former)
        following = attempt._replace(step=OPEN, claim=claim, former=former, unfenced=unfenced)
        yield kafka, following, ()
    else:
        yield kafka, Attempt(task, variant.first_step), ()


def _open_claim(variant, kafka, attempt):
    task = attempt.task
    if not attempt.holds_layout:
        yield kafka, Attempt(task, variant.first_step), ()
        return
    after = kafka._replace(pending=attempt.claim)
    if not variant.reads_entries_after_fencing:
        claim = claimed(attempt.claim, attempt.former, kafka.entries)
        attempt = attempt._replace(claim=claim, former=0)
    does_fence = attempt.unfenced and variant.does_fence(task, attempt.former)
    yield after, attempt._replace(step=FENCE if does_fence else READ), ()


def _fence(variant, kafka, attempt):
    partition = attempt.unfenced - 1
    following = FENCE if partition else READ
    yield kafka, attempt._replace(step=following, unfenced=partition), (partition,)


def _read_entries(variant, kafka, attempt):
    claim = attempt.claim
    if variant.remembers_lower_partitions:
        claim = claimed(claim, attempt.former, kafka.entries)
    yield kafka, attempt._replace(step=SETTLE, claim=claim, former=0, unfenced=0), ()


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
    log = tuple(() if number in bounds.empty else (0,) * ROWS for number in range(bounds.batches))
    most = max(max(transaction_count(option), actual) for option, actual in bounds.starts)
    return Run(Kafka((None,) * most, None, None, None, log), (), (), 0, bounds.stages)


def begin(
    variant: Variant, bounds: Bounds, batch_id: int, start: tuple[int, int], left: int
) -> tuple[Attempt, ...]:
    """The tasks of a stage. ``left``: how many stages may follow, which names this one."""
    partitions, actual = start
    # Only those that can grow need a name; with it, fewer states are equal.
    stage = f"{left} left" if actual > transaction_count(partitions) else ""
    tasks = (
        Task(batch_id, partition, partitions, actual, stage, bounds.are_batches)
        for partition in range(actual)
    )
    return tuple(Attempt(task, variant.first_step) for task in tasks)


def next_states(run: Run, variant: Variant, bounds: Bounds) -> Iterator[Run]:
    """Every state that one step leads to: of a task, of the driver, or of Spark."""
    yield from _steps_of_running_tasks(run, variant)
    yield from _steps_of_zombies(run, variant)
    if run.running and all(attempt.step == DONE for attempt in run.running):
        yield write_marker(run, run.running[0].task)
    if run.stages:
        yield from _new_stages(run, variant, bounds)


@cache
def _outcomes(
    variant: Variant, kafka: Kafka, attempt: Attempt
) -> tuple[tuple[Kafka, Attempt, tuple[int, ...]], ...]:
    """Of ``step``; many states differ only in other attempts."""
    return tuple(step(variant, kafka, attempt))


def _steps_of_running_tasks(run: Run, variant: Variant) -> Iterator[Run]:
    for index, attempt in enumerate(run.running):
        if attempt.step in ENDED:
            continue
        for kafka, moved, taken_over in _outcomes(variant, run.kafka, attempt):
            running = put(_take_over(run.running, taken_over), index, moved)
            zombies = _sorted(_take_over(run.zombies, taken_over), kafka)
            yield run._replace(kafka=kafka, running=running, zombies=zombies)


def _steps_of_zombies(run: Run, variant: Variant) -> Iterator[Run]:
    for index, attempt in enumerate(run.zombies):
        for kafka, moved, taken_over in _outcomes(variant, run.kafka, attempt):
            zombies = _sorted(put(_take_over(run.zombies, taken_over), index, moved), kafka)
            yield run._replace(
                kafka=kafka, running=_take_over(run.running, taken_over), zombies=zombies
            )


def _new_stages(run: Run, variant: Variant, bounds: Bounds) -> Iterator[Run]:
    kafka, running, zombies, batch_id, stages = run
    left = stages - 1
    last = batch_id + 1 if bounds.are_batches else batch_id
    for start in bounds.starts:
        for number in range(batch_id, min(last + 1, bounds.batches)):
            # The stage before has failed, or the driver has died, at whatever step the tasks are.
            given_up = _sorted(zombies + running, kafka)
            yield Run(kafka, begin(variant, bounds, number, start, left), given_up, number, left)
            if number in bounds.empty:
                yield write_marker(Run(kafka, (), given_up, number, left), None)
        if kafka.marker is not None and kafka.marker[0] == batch_id - 1 and not running:
            # The driver has died before Spark recorded the marked micro-batch as done.
            again = begin(variant, bounds, batch_id - 1, start, left)
            yield Run(kafka, again, zombies, batch_id - 1, left)


def write_marker(run: Run, task: Task | None) -> Run:
    """The driver's step when all tasks have ended well; Spark goes on with the next micro-batch.

    Unless the option is not the number of tasks: then the query fails with PartitionsChanged.
    ``task``: any of them, or None.
    """
    is_true = task is None or transaction_count(task.partitions) == task.actual
    number = 0
    if task is not None:
        number = FROM_DRIVER if task.is_driver else task.actual
    kafka = run.kafka._replace(marker=(run.batch_id, number))
    return Run(kafka, (), _sorted(run.zombies, kafka), run.batch_id + is_true, run.stages)


def _take_over(attempts: tuple[Attempt, ...], taken_over: tuple[int, ...]) -> tuple[Attempt, ...]:
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
