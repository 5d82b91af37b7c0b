"""Claims the layout of a micro-batch: how many Spark partitions it has, before a record is sent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import ExactlyOnceOptions
from spark_kafka_sink.errors import DeadlineExceeded
from spark_kafka_sink.transactions.ledger import (
    BatchMarker,
    CommitEntry,
    Decision,
    Layout,
    Task,
    claimed_layout,
    commit_entry_group,
    decide,
    layout_group,
    ledger_error,
    marker_group,
    read_batch_marker,
    read_commit_entry,
    read_layout,
    wanted_layout,
)
from spark_kafka_sink.transactions.offset_calls import (
    BrokerWait,
    GroupOffset,
    borrow_offset,
    read_offsets,
)
from spark_kafka_sink.transactions.transaction import Transaction, fence

# A claim needs a tenth of a second, and about 0.02 s for each partition of the former number.
_OPEN_CLAIM_SECONDS = 3.0
_SECONDS_PER_FORMER = 0.04
# Parts of the time that a task has for the ledger.
_TURNS = (0.05, 0.1, 0.2, 0.4)
_LAST_TURNS = (0.6, 0.8)
# A claim that fences nobody needs less than that.
_GROWTH_SECONDS = 0.25
_PAUSE_SECONDS = (0.05, 1.0)


@dataclass(frozen=True)
class Ledger:
    """What the ledger contains for a task."""

    marker: BatchMarker | None
    layout: Layout | None
    entry: CommitEntry | None

    def decide(self, task: Task, prefix: str) -> Decision:
        """SEND, VERIFY or CLAIM; raises LedgerAhead, LedgerLost or PartitionsChanged."""
        decision = decide(task, self.marker, self.layout, self.entry)
        if decision in (Decision.SEND, Decision.VERIFY, Decision.CLAIM):
            return decision
        raise ledger_error(decision, task, self.marker, self.layout, self.entry, prefix)

    def is_claimed(self, task: Task) -> bool:
        """Whether the number of partitions of the task's micro-batch was claimed."""
        return self.layout is not None and self.layout.batch_id == task.batch_id


class LedgerReader:
    """Reads the parts of the ledger that concern a task. Used by one thread."""

    def __init__(
        self, task: Task, marker: GroupOffset, layout: GroupOffset, entry: GroupOffset
    ) -> None:
        self._task = task
        self._marker, self._layout, self._entry = marker, layout, entry

    def look(self, wait: BrokerWait) -> Ledger:
        """Like ``read``, but a late answer means an open claim, perhaps of a dead task."""
        marker, entry = self._read_marker_and_entry(wait)
        # Last: the layout stays valid until another task takes over the transactional id.
        return Ledger(marker, self._look_at_layout(wait), entry)

    def read(self, wait: BrokerWait) -> Ledger:
        """Raises LedgerLost, TransactionFailed or DeadlineExceeded."""
        marker, entry = self._read_marker_and_entry(wait)
        return Ledger(marker, read_layout(self._layout.read(wait), self._layout.group), entry)

    def _read_marker_and_entry(
        self, wait: BrokerWait
    ) -> tuple[BatchMarker | None, CommitEntry | None]:
        marker = read_batch_marker(self._marker.read(wait), self._marker.group)
        return marker, read_commit_entry(self._entry.read(wait), self._entry.group)

    def _look_at_layout(self, wait: BrokerWait) -> Layout | None:
        try:
            found = self._layout.read(wait.at_most(_OPEN_CLAIM_SECONDS))
        except DeadlineExceeded:
            if wait.deadline.expired:
                raise
            return Layout(self._task.batch_id, 0)
        return read_layout(found, self._layout.group)

    def await_claim(self, found: Ledger, wait: BrokerWait, seconds: float) -> bool:
        """Wait that long until a layout makes a claim needless, with what else was found."""
        turn = wait.at_most(seconds)
        pause, longest_pause = _PAUSE_SECONDS
        while not turn.deadline.expired:
            layout = self._look_at_layout(wait)
            if decide(self._task, found.marker, layout, found.entry) is not Decision.CLAIM:
                return True
            turn.pause(pause)
            pause = min(1.5 * pause, longest_pause)
        return False


def seconds_until_claim(task: Task, found: Ledger, was_fenced: bool, block_seconds: float) -> float:
    """How long a task waits for another's claim before it claims, of ``block_seconds`` in all.

    A claim fences an earlier one that is not complete, so tasks must not claim all at once. The
    first partition of a stage does so immediately, and each of the next waits twice as long as the
    one before. The others come last, one after another, as do tasks whose claim was fenced.
    """
    wanted, former = wanted_layout(task, found.marker, found.layout)
    if wanted.grown_by:
        return _GROWTH_SECONDS * (task.partition - task.partitions + was_fenced)
    turn = task.partition
    if turn == 0 and not was_fenced:
        return 0.0
    if was_fenced or turn > len(_TURNS):
        first, last = _LAST_TURNS
        part = first + (last - first) * turn / task.partitions
    else:
        part = _TURNS[turn - 1]
    return max(block_seconds * part, _SECONDS_PER_FORMER * former)


@contextmanager
def ledger_reader(
    options: SinkOptions, settings: ExactlyOnceOptions, prefix: str, task: Task
) -> Iterator[LedgerReader]:
    """A reader whose clients connect at once, in the background, unless an earlier task's are."""
    groups = marker_group(prefix), layout_group(prefix), commit_entry_group(prefix, task.partition)
    topic = settings.ledger_topic
    with ExitStack() as stack:
        offsets = (stack.enter_context(borrow_offset(options, topic, group)) for group in groups)
        yield LedgerReader(task, *offsets)


def claim(
    options: SinkOptions,
    settings: ExactlyOnceOptions,
    prefix: str,
    task: Task,
    reader: LedgerReader,
    wait: BrokerWait,
) -> None:
    """Make the task's number of partitions that of its micro-batch, if it can still be changed.

    Tasks that send with another number are fenced. If one of them has committed, their number
    becomes final instead. Read the ledger again afterwards. Raises TransactionFenced if another
    task claims meanwhile, LedgerAhead, LedgerLost, PartitionsChanged, and what Transaction raises.
    """
    group, topic = layout_group(prefix), settings.ledger_topic
    transaction = Transaction(options.producer, group, settings.transaction_timeout_ms)
    try:
        transaction.initialize([topic], wait)
        # The former layout must be known, because its tasks are fenced below.
        found = reader.read(wait)
        if found.decide(task, prefix) is not Decision.CLAIM:
            return
        wanted, former = wanted_layout(task, found.marker, found.layout)
        change = f"changing the number of partitions to {wanted.partitions}"
        wait = replace(wait, purpose=f"{task}: {change}")
        transaction.begin()
        # Until the transaction ends, readers of the layout wait. So a task of the former number has
        # either taken over its id by now, and is fenced below, or finds the new number.
        transaction.send_offset(group, topic, wanted.to_offset(), wait)
        ids = [commit_entry_group(prefix, partition) for partition in range(former)]
        fence(options.producer, ids, settings.transaction_timeout_ms, [topic], wait)
        claimed = claimed_layout(wanted, former, _entries(options, topic, ids, wait))
        if claimed != wanted:
            transaction.send_offset(group, topic, claimed.to_offset(), wait)
        transaction.commit(wait)
    finally:
        transaction.close()


def _entries(
    options: SinkOptions, topic: str, groups: list[str], wait: BrokerWait
) -> Iterable[CommitEntry]:
    for group, committed in read_offsets(options.producer.client, topic, groups, wait).items():
        entry = read_commit_entry(committed, group)
        if entry is not None:
            yield entry
