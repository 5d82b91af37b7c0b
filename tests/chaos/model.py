"""A model of brokers with transactions and of the sink's protocol, to be broken on purpose.

Attempts of tasks are generators: they pause after every request, so that a history may kill them
there, or let another attempt overtake them. Everything that happens follows from a seed.
"""

from __future__ import annotations

import random
from collections.abc import Generator
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from evidence import Attempt, Entry, Reading

KEYS, ROWS, BATCHES = 2, 4, 6
#: a Spark partition for each key, each with a transactional id of its own
SPARK_PARTITION_OF_KEY = [0, 1]
SPARK_PARTITIONS = 2

# Ways to break the protocol.
READS_LEDGER_FIRST = "the ledger is read before init_transactions"
REUSES_HANDLE = "a handle has more than one transaction"
SKIPS_OLDER = "a micro-batch before the ledger's is skipped"
SENDS_NO_OFFSETS = "the ledger is not part of the transaction"
COUNTS_AT_ENQUEUE = "a record counts as acknowledged when it is enqueued"
DROPS_A_ROW = "a row is dropped"
SENDS_A_ROW_TWICE = "a row is sent twice"
REORDERS = "a later row overtakes an earlier one"
READS_UNCOMMITTED = "the concurrent reader does not wait for commits"
NEVER_ENDS = "nobody ends an abandoned transaction"

_OPEN, _COMMITTED, _ABORTED, _MARKER = range(4)

Steps = Generator[None, None, None]


class Fenced(Exception):
    """A later init_transactions has bumped the epoch."""


class LedgerAhead(Exception):
    """The checkpoint was rolled back."""


@dataclass
class Brokers:
    """One topic; the partition of a row is its key."""

    log: dict[int, list[list[int]]] = field(
        default_factory=lambda: {key: [] for key in range(KEYS)}
    )
    epochs: dict[int, int] = field(default_factory=dict)
    ledger: dict[int, int] = field(default_factory=dict)
    #: of the open transaction, by transactional id
    rows: dict[int, list[list[int]]] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)

    def init(self, name: int) -> int:
        self._end(name, _ABORTED)
        self.epochs[name] = self.epochs.get(name, 0) + 1
        return self.epochs[name]

    def produce(self, name: int, epoch: int, row: int) -> None:
        self._check(name, epoch)
        entry = [row, _OPEN]
        self.log[row % KEYS].append(entry)
        self.rows.setdefault(name, []).append(entry)

    def send_offsets(self, name: int, epoch: int, batch: int) -> None:
        self._check(name, epoch)
        self.offsets[name] = batch

    def commit(self, name: int, epoch: int) -> None:
        self._check(name, epoch)
        if name in self.offsets:
            self.ledger[name] = self.offsets[name]
        self._end(name, _COMMITTED)

    def append(self, row: int) -> None:
        """Without a transaction."""
        self.log[row % KEYS].append([row, _COMMITTED])

    def expire(self) -> None:
        """Abort what was abandoned."""
        for name in list(self.epochs):
            self.init(name)

    def read(self, is_committed: bool) -> Reading:
        violations = []
        for partition, entries in self.log.items():
            for offset, (row, state) in enumerate(entries):
                if is_committed and state == _OPEN:
                    break
                if state == _COMMITTED or (state != _MARKER and not is_committed):
                    violations.append((partition, offset, row))
        columns = np.array(violations, dtype=np.int64).reshape(-1, 3).T
        return Reading(*columns, np.zeros(len(violations), dtype=np.uint64))

    def entries(self) -> dict[int, Entry]:
        return {name: Entry(batch, SPARK_PARTITIONS) for name, batch in self.ledger.items()}

    def ends(self, is_committed: bool) -> dict[tuple[str, int], int]:
        result = {}
        for partition, entries in self.log.items():
            states = [state for _, state in entries]
            is_held = is_committed and _OPEN in states
            result["topic", partition] = states.index(_OPEN) if is_held else len(states)
        return result

    def _check(self, name: int, epoch: int) -> None:
        if self.epochs[name] != epoch:
            raise Fenced

    def _end(self, name: int, state: int) -> None:
        for entry in self.rows.pop(name, []):
            entry[1] = state
            self.log[entry[0] % KEYS].append([-1, _MARKER])
        self.offsets.pop(name, None)


@dataclass
class History:
    """A stream with seeded faults: run it, then look at its fields."""

    seed: int
    is_exactly_once: bool
    mutant: str = ""
    brokers: Brokers = field(default_factory=Brokers)
    attempts: list[Attempt] = field(default_factory=list)
    #: rows of micro-batches that Spark believes are written, and the last one's number
    completed_rows: int = 0
    completed_batch: int = -1
    #: None, or why the query ended for good
    error: str | None = None

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._zombies: list[Steps] = []
        self._late_commits: list[tuple[int, int]] = []
        self._epochs: dict[int, int] = {}

    def run(self) -> History:
        is_rolled_back = self.is_exactly_once and self._random.random() < 0.2
        try:
            for batch in range(BATCHES):
                self._micro_batch(batch, batch * ROWS, (batch + 1) * ROWS)
            if is_rolled_back:
                # Two micro-batches are gone from the checkpoint, and now hold more rows.
                first = BATCHES - 2
                for batch, begin in ((first, first * ROWS), (first + 1, (first + 2) * ROWS)):
                    self._micro_batch(batch, begin, begin + 2 * ROWS)
            else:
                self._begin_another()
        except LedgerAhead:
            self.error = "LedgerAhead"
        if self.mutant != NEVER_ENDS:
            self.brokers.expire()
        return self

    # --- Spark ------------------------------------------------------------------------------------

    def _micro_batch(self, batch: int, begin: int, end: int) -> None:
        for partition in range(len(SPARK_PARTITION_OF_KEY)):
            rows = [r for r in range(begin, end) if SPARK_PARTITION_OF_KEY[r % KEYS] == partition]
            while not self._attempt(batch, partition, rows):
                pass
        self.completed_batch, self.completed_rows = batch, max(end, self.completed_rows)

    def _begin_another(self) -> None:
        """The query is stopped while it writes one more micro-batch."""
        rows = [row for row in range(BATCHES * ROWS, (BATCHES + 1) * ROWS) if row % KEYS == 1]
        write = self._exactly_once if self.is_exactly_once else self._write_at_least_once
        steps = write(BATCHES, SPARK_PARTITION_OF_KEY[1], rows)
        with suppress(StopIteration, Fenced):
            for _ in range(self._random.randrange(8)):
                next(steps)
                self._others()

    def _attempt(self, batch: int, partition: int, rows: list[int]) -> bool:
        """Whether it succeeded. If not, it was killed, or lives on as a zombie."""
        number = len(self.attempts)
        self.attempts.append(
            Attempt(number, "topic", "", batch, partition, SPARK_PARTITIONS, 0.0, 1.0, "", None)
        )
        write = self._exactly_once if self.is_exactly_once else self._write_at_least_once
        steps = write(batch, partition, rows)
        try:
            while True:
                next(steps)
                fate = self._random.random()
                if fate < 0.06:  # killed
                    self._epochs.pop(partition, None)
                    return False
                if fate < 0.12:  # paused: Spark gives it up, and starts another attempt
                    self._zombies.append(steps)
                    self._epochs.pop(partition, None)
                    return False
                self._others()
        except StopIteration:
            # Killed before Spark hears of it.
            return self._random.random() > 0.1
        except Fenced:
            self._epochs.pop(partition, None)
            return False

    def _others(self) -> None:
        """Zombies go on for a step, and requests arrive late."""
        if self._zombies and self._random.random() < 0.5:
            zombie = self._random.choice(self._zombies)
            try:
                next(zombie)
            except (StopIteration, Fenced, LedgerAhead):
                self._zombies.remove(zombie)
        if self._late_commits and self._random.random() < 0.3:
            name, epoch = self._late_commits.pop()
            if self.brokers.epochs[name] == epoch:
                self.brokers.commit(name, epoch)

    # --- the sink ---------------------------------------------------------------------------------

    def _exactly_once(self, batch: int, name: int, rows: list[int]) -> Steps:
        brokers = self.brokers
        ledger: int | None = None
        if self.mutant == READS_LEDGER_FIRST:
            ledger = brokers.ledger.get(name)
            yield
        if self.mutant == REUSES_HANDLE and name in self._epochs:
            epoch = self._epochs[name]
        else:
            epoch = self._epochs[name] = brokers.init(name)
        yield
        if self.mutant != READS_LEDGER_FIRST:
            ledger = brokers.ledger.get(name)
            yield
        if ledger is not None and ledger >= batch:
            if ledger > batch and self.mutant != SKIPS_OLDER:
                raise LedgerAhead
            return
        for row in self._sent(rows):
            brokers.produce(name, epoch, row)
            yield
        if self.mutant == SENDS_NO_OFFSETS:
            brokers.commit(name, epoch)
            yield
            brokers.ledger[name] = batch
            return
        brokers.send_offsets(name, epoch, batch)
        yield
        brokers.commit(name, epoch)
        if self._random.random() < 0.3:  # it was sent twice, and one copy is still on its way
            self._late_commits.append((name, epoch))
        yield

    def _write_at_least_once(self, batch: int, partition: int, rows: list[int]) -> Steps:
        if self.mutant == COUNTS_AT_ENQUEUE:
            self._zombies.append(self._deliveries(rows))
            yield
            return
        yield from self._deliveries(rows)

    def _deliveries(self, rows: list[int]) -> Steps:
        for row in self._sent(rows):
            self.brokers.append(row)
            yield

    def _sent(self, rows: list[int]) -> list[int]:
        if self.mutant == DROPS_A_ROW and 13 in rows:
            return [row for row in rows if row != 13]
        if self.mutant == SENDS_A_ROW_TWICE and 13 in rows:
            return [*rows, 13]
        if self.mutant == REORDERS and 13 in rows:
            return rows[::-1]
        return rows
