"""[both] Claims a micro-batch's layout, its number of Spark partitions, before records are sent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from uuid import uuid4

from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.config.producer_options import ExactlyOnceOptions
from spark_kafka_sink.deadline import Clock, Deadline
from spark_kafka_sink.errors import DeadlineExceeded, KafkaSinkError, TransactionFenced
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.transactions.ledger import (
    BatchMarker,
    ClaimProgress,
    CommitEntry,
    Decision,
    Layout,
    Ledger,
    Task,
    claim_group,
    claimed_layout,
    commit_entry_group,
    layout_group,
    marker_group,
    read_batch_marker,
    read_claim_progress,
    read_commit_entry,
    read_layout,
    transaction_count,
)
from spark_kafka_sink.transactions.offset_calls import (
    BrokerWait,
    GroupOffset,
    borrow_offset,
    in_parts,
    never,
    read_offsets,
)
from spark_kafka_sink.transactions.transaction import Transaction, fence


@dataclass(frozen=True)
class ClaimTiming:
    """How long tasks wait for each other. ``_fraction``: of ``kafka.max.block.ms``."""

    #: a claim that has made no progress for this long, or for the fraction if that is shorter, is
    #: taken over
    stalled_after_seconds: float = 15.0
    stalled_after_fraction: float = 0.25
    #: how much earlier than the others partition 0 may claim
    head_start_fraction: float = 0.05
    #: after the announcement of a claim, until those of others would be seen
    announcement_seconds: float = 1.0
    #: Brokers do not answer for an offset while a transaction that changes it is open (KIP-447).
    #: So no answer about the layout for this long means that a claim is open.
    open_claim_seconds: float = 3.0


TIMING = ClaimTiming()
_END_SECONDS = 1.0
_PAUSE_SECONDS = (0.05, 1.0)  # the first and the longest


class LedgerReader:
    """Reads the parts of the ledger that concern a task. Used by one thread."""

    def __init__(
        self, task: Task, marker: GroupOffset, layout: GroupOffset, entry: GroupOffset
    ) -> None:
        self._task = task
        self._marker, self._layout, self._entry = marker, layout, entry

    def read_or_assume_claim(self, wait: BrokerWait) -> Ledger:
        """Read the ledger; a late answer means an open claim, perhaps of a dead task."""
        marker, entry = self._read_marker_and_entry(wait)
        # Read last: a claim that changes the layout later fences this task's transactional id, so
        # the task cannot commit with this layout.
        return Ledger(marker, self.read_layout_or_assume_claim(wait), entry)

    def read(self, wait: BrokerWait) -> Ledger:
        """Raises LedgerLost, TransactionFailed or DeadlineExceeded."""
        marker, entry = self._read_marker_and_entry(wait)
        return Ledger(marker, read_layout(self._layout.read(wait), self._layout.group), entry)

    def _read_marker_and_entry(
        self, wait: BrokerWait
    ) -> tuple[BatchMarker | None, CommitEntry | None]:
        marker = read_batch_marker(self._marker.read(wait), self._marker.group)
        return marker, read_commit_entry(self._entry.read(wait), self._entry.group)

    def read_layout_or_assume_claim(self, wait: BrokerWait) -> Layout | None:
        try:
            committed = self._layout.read(wait.capped(TIMING.open_claim_seconds))
        except DeadlineExceeded:
            if wait.deadline.expired:
                raise
            return Layout.claiming(self._task.batch_id)
        return read_layout(committed, self._layout.group)


class ClaimSchedule:
    """When a task may claim the layout: never while the claim of another one makes progress.

    A claim fences an earlier one that is open. Partition 0 has a head start, and so has a task
    beyond ``exactly.once.partitions``, whose claim fences nobody. A task that sees another's claim
    waits until that has ended, or has made no progress for ``stalled_after_seconds``, however long
    it takes.
    """

    def __init__(self, task: Task, ledger: Ledger, block_seconds: float, clock: Clock) -> None:
        self._task = task
        self._clock = clock
        self._seen: ClaimProgress | None = None
        wanted, _ = ledger.wanted_layout(task)
        has_head_start = task.partition == 0 or bool(wanted.grown_by)
        self._behind_seconds = 0.0 if has_head_start else block_seconds * TIMING.head_start_fraction
        self._stalled_after_seconds = min(
            TIMING.stalled_after_seconds, TIMING.stalled_after_fraction * block_seconds
        )
        self._at = clock() + self._behind_seconds

    def observe(self, progress: ClaimProgress | None) -> bool:
        """Whether another claim of this micro-batch has made progress since the last look."""
        if progress is None or progress.batch_id != self._task.batch_id or progress == self._seen:
            return False
        self._seen = progress
        if progress.has_ended:
            self._at = self._clock() + self._behind_seconds
        else:
            self.wait_for_another()
        return True

    def wait_for_another(self) -> None:
        """Another claim is at work."""
        self._at = self._clock() + self._stalled_after_seconds + self._behind_seconds

    @property
    def seconds_left(self) -> float:
        """The time until this task may claim."""
        return max(0.0, self._at - self._clock())


def ledger_wait(options: SinkOptions, purpose: str, clock: Clock = time.monotonic) -> BrokerWait:
    """The time that a task has for the ledger."""
    budget = options.producer.budget
    option = f"{budget.metadata_option}, {budget.metadata_seconds:g} s"
    return BrokerWait(Deadline(budget.metadata_seconds, clock), option, purpose)


@contextmanager
def ledger_reader(
    options: SinkOptions, settings: ExactlyOnceOptions, prefix: str, task: Task
) -> Iterator[LedgerReader]:
    """A reader; its clients connect at once in the background, or are those of an earlier task."""
    groups = marker_group(prefix), layout_group(prefix), commit_entry_group(prefix, task.partition)
    topic = settings.ledger_topic
    with ExitStack() as stack:
        offsets = (stack.enter_context(borrow_offset(options, topic, group)) for group in groups)
        yield LedgerReader(task, *offsets)


class LayoutClaim:
    """A task's claim of the layout, or its wait until another task has claimed it.

    ``progress``: the group in which claims say how far they are. Used by one thread.
    """

    def __init__(
        self,
        options: SinkOptions,
        settings: ExactlyOnceOptions,
        prefix: str,
        task: Task,
        reader: LedgerReader,
        progress: GroupOffset,
        clock: Clock = time.monotonic,
        is_woken: Callable[[], bool] = never,
    ) -> None:
        self._options, self._settings, self._prefix = options, settings, prefix
        self._task, self._reader, self._progress, self._clock = task, reader, progress, clock
        self._is_woken = is_woken
        self._own = ClaimProgress(task.batch_id, f"{task.partition} {uuid4()}", 0)
        self._schedule: ClaimSchedule | None = None

    def claim_or_wait(self, ledger: Ledger) -> bool:
        """Claim, or wait while another task does. Then read the ledger again.

        True: the layout is settled, by this task or another one. False: call again if the ledger
        still decides on CLAIM, since another claim has fenced this one, or this one has only ended
        an earlier one.

        Raises LedgerAhead, LedgerLost, PartitionsChanged, DeadlineExceeded, and what Transaction
        raises; InterruptedError if ``is_woken``.
        """
        block_seconds = self._options.producer.budget.metadata_seconds
        schedule = self._schedule or ClaimSchedule(self._task, ledger, block_seconds, self._clock)
        self._schedule = schedule
        if not self._wait_to_claim(ledger, schedule):
            return True
        try:
            is_settled = self._claim()
        except TransactionFenced:
            # Its end would replace the progress of the other claim, so it is not written.
            schedule.wait_for_another()
            return False
        except BaseException:
            self._end()
            raise
        self._end()
        return is_settled

    def _step_wait(self, purpose: str) -> BrokerWait:
        """The time for one step: a claim that makes progress may take longer in all."""
        wait = ledger_wait(self._options, f"{self._task}: {purpose}", self._clock)
        return replace(wait, is_woken=self._is_woken)

    def _wait_to_claim(self, ledger: Ledger, schedule: ClaimSchedule) -> bool:
        """False: the layout, with the rest of the ledger, needs no claim any more."""
        pause, longest_pause = _PAUSE_SECONDS
        purpose = "waiting until another task has changed the number of partitions"
        wait = self._step_wait(purpose)
        while True:
            if schedule.observe(self._others_progress(wait)):
                wait = self._step_wait(purpose)
            # Read after the progress: a claim that has ended by then may have been the right one.
            layout = self._reader.read_layout_or_assume_claim(wait)
            if replace(ledger, layout=layout).decide(self._task) is not Decision.CLAIM:
                return False
            if schedule.seconds_left == 0.0:
                if self._announce_and_check(schedule, wait):
                    return True
                continue
            if wait.deadline.expired:
                raise wait.error(ErrorCode.TIMED_OUT)
            wait.pause(min(pause, schedule.seconds_left))
            pause = min(1.5 * pause, longest_pause)

    def _others_progress(self, wait: BrokerWait) -> ClaimProgress | None:
        progress = read_claim_progress(self._progress.read(wait), self._progress.group)
        is_own = progress is not None and progress.claim == self._own.claim
        return None if is_own else progress

    def _announce_and_check(self, schedule: ClaimSchedule, wait: BrokerWait) -> bool:
        """Whether this task may claim, because no other has announced a claim after it."""
        began = self._clock()
        self._report_progress(wait)
        if self._task.partition == 0:
            return True  # the others wait for it
        # Another task may have begun its announcement while this one was written. It may take as
        # long again.
        wait.pause(TIMING.announcement_seconds + 2 * (self._clock() - began))
        return not schedule.observe(self._others_progress(wait))

    def _report_progress(self, wait: BrokerWait) -> None:
        self._own = replace(self._own, steps=self._own.steps + 1)
        self._progress.write(self._own.to_offset(), wait)

    def _claim(self) -> bool:
        """Claim the micro-batch for this task's partition count, unless another count is final.

        Tasks that send with another count are fenced. If one of them has committed, their count
        becomes final instead. Returns False if it could only end an earlier claim. Raises
        TransactionFenced if another task claims meanwhile.
        """
        group, topic = layout_group(self._prefix), self._settings.ledger_topic
        options, timeout_ms = self._options.producer, self._settings.transaction_timeout_ms
        wait = self._step_wait("changing the number of partitions")
        transaction = Transaction(options, group, timeout_ms)
        try:
            transaction.initialize([topic], wait)
            # The previous layout must be known, because its tasks are fenced below.
            ledger = self._read_or_end_lost_claim(transaction, wait)
            if ledger is None:
                return False
            if ledger.decide_or_raise(self._task, self._prefix) is not Decision.CLAIM:
                return True
            wanted, previous_partition_count = ledger.wanted_layout(self._task)
            purpose = f"changing the number of partitions to {transaction_count(wanted.partitions)}"
            transaction.begin()
            # A task of the previous count initializes its id before it reads the layout, and that
            # read waits for the end of this transaction. So its id exists and is fenced below, or
            # it reads the new count.
            transaction.send_offset(group, topic, wanted.to_offset(), self._step_wait(purpose))
            ids = [
                commit_entry_group(self._prefix, partition)
                for partition in range(transaction_count(previous_partition_count))
            ]
            parts = in_parts(ids)
            # All are fenced before any entry is read: a task commits its entry until it is fenced.
            for part in parts:
                self._report_progress(self._step_wait(purpose))
                fence(options, part, timeout_ms, [topic], self._step_wait(purpose))
                transaction.check_age()
            entries: list[CommitEntry] = []
            for part in parts:
                self._report_progress(self._step_wait(purpose))
                entries += _entries(self._options, topic, part, self._step_wait(purpose))
            claimed = claimed_layout(wanted, previous_partition_count, entries)
            if claimed != wanted:
                transaction.send_offset(group, topic, claimed.to_offset(), self._step_wait(purpose))
            transaction.commit(self._step_wait(purpose))
            return True
        finally:
            transaction.close()

    def _read_or_end_lost_claim(self, transaction: Transaction, wait: BrokerWait) -> Ledger | None:
        """Read the ledger, for which no claim is open any more.

        None: the layout has no stable offset all the same, because the brokers have lost the end of
        an earlier claim. ``transaction`` is open then; its abort also ends that claim. Whether that
        was committed or aborted does not matter, because no task can have read it.
        """
        try:
            return self._reader.read(wait.capped(wait.deadline.remaining() / 2))
        except DeadlineExceeded:
            transaction.begin()
            offset = Layout.claiming(self._task.batch_id).to_offset()
            group, topic = layout_group(self._prefix), self._settings.ledger_topic
            transaction.send_offset(group, topic, offset, wait)
            return None

    def _end(self) -> None:
        """Tell the others not to wait for this claim; if that fails, they wait a little longer."""
        ended = replace(self._own, has_ended=True)
        with suppress(KafkaSinkError):
            wait = ledger_wait(self._options, f"{self._task}: ending its claim", self._clock)
            self._progress.write(ended.to_offset(), wait.capped(_END_SECONDS))


@contextmanager
def layout_claim(
    options: SinkOptions,
    settings: ExactlyOnceOptions,
    prefix: str,
    task: Task,
    reader: LedgerReader,
    is_woken: Callable[[], bool] = never,
) -> Iterator[LayoutClaim]:
    """A claim whose client for its progress is closed at the end."""
    group = claim_group(prefix)
    offset = GroupOffset(options.producer.client, settings.ledger_topic, group)
    with closing(offset) as progress:
        yield LayoutClaim(options, settings, prefix, task, reader, progress, is_woken=is_woken)


def _entries(
    options: SinkOptions, topic: str, groups: list[str], wait: BrokerWait
) -> Iterable[CommitEntry]:
    for group, committed in read_offsets(options.producer.client, topic, groups, wait).items():
        entry = read_commit_entry(committed, group)
        if entry is not None:
            yield entry
