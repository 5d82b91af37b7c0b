"""Three brokers, seeded faults, every kind of query: ``run.py SECONDS [SEED]``; ``make chaos``.

Exits with 1, prints the seed and keeps the logs if an invariant does not hold.
"""

from __future__ import annotations

import faulthandler
import itertools
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import evidence
import invariants
from confluent_kafka import IsolationLevel
from evidence import ACKNOWLEDGED, Attempt, Entry, Failure, Reading
from fault_schedule import TRANSACTION_TIMEOUT_SECONDS, Fault, schedule
from faults import Effect, Injector
from hung_attempts import HungAttempts
from invariants import Check
from producer_epochs import ProducerEpochs, WrittenIn
from query_kinds import (
    ATTEMPT_SECONDS,
    BAD_PARTITIONS,
    EXACTLY_ONCE,
    KEYS,
    LAYOUTS,
    QUERY_KINDS,
    RECOVERY_SECONDS,
    ROWS_PER_BATCH,
    TOPIC_PARTITIONS,
    TOPICS,
    QueryKind,
    marker_group,
    transactional_id,
)
from readers import READ_COMMITTED, READ_UNCOMMITTED, ConcurrentReader, read_all
from stream_process import StreamProcess, processes_of
from three_brokers import ThreeBrokers

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import sink_error

_ERROR_CHARACTERS = 200
_MILLISECONDS_BETWEEN_BATCHES = 500
_START_SECONDS = 240.0
# For two micro-batches; streams have to acknowledge rows much sooner.
_COMPLETION_SECONDS = 180.0
_STABLE_SECONDS = TRANSACTION_TIMEOUT_SECONDS + 60.0
# Beyond this, something hangs that has no deadline: a defect of the run itself.
_OVERHEAD_SECONDS = 1200.0


@dataclass(frozen=True)
class Outcome:
    """All results of a run. Times are on the monotonic clock; faults began at ``began_at``."""

    began_at: float
    effects: list[Effect]
    attempts: list[Attempt]
    failures: list[Failure]
    completed_batches: dict[str, int]
    rows_read: dict[str, int]
    longest_read_delay_seconds: float
    starts: int
    unexpected_ends_of_brokers: int
    checks: dict[str, list[Check]]

    @property
    def violations(self) -> list[str]:
        return [
            f"{where}: {check.name}: {violation}"
            for where, checks in self.checks.items()
            for check in checks
            for violation in check.violations
        ]


def chaos(
    faults: list[Fault], seconds: float, folder: Path, say: Callable[[str], None], mutant: str = ""
) -> Outcome:
    """One run; its logs stay in the folder. Leaves no process."""
    with ExitStack() as stack:
        brokers = stack.enter_context(ThreeBrokers(folder))
        brokers.create_topics(TOPICS, TOPIC_PARTITIONS)
        concurrent = ConcurrentReader(brokers.internal_servers, TOPICS, TOPIC_PARTITIONS, folder)
        stack.enter_context(concurrent)
        streams = StreamProcess(
            folder, brokers.bootstrap_servers, _MILLISECONDS_BETWEEN_BATCHES, mutant
        )
        stack.enter_context(streams)
        hung = HungAttempts(folder, ATTEMPT_SECONDS)
        injector = Injector(brokers, streams, folder, hung, say)
        _start(streams, injector, faults, folder)
        say(f"{len(QUERY_KINDS)} streams run; {len(faults)} faults to come")
        injector.run([fault for fault in faults if fault.at_seconds > 0], seconds)
        late = _wait_for_batches(folder, injector, 2, _COMPLETION_SECONDS)
        say("all faults have ended; the streams are stopped, and everything is read")
        stopped_at = time.monotonic()
        has_stopped = streams.stop()
        return _judge(brokers, concurrent, streams, injector, folder, late, stopped_at, has_stopped)


def _start(streams: StreamProcess, injector: Injector, faults: list[Fault], folder: Path) -> None:
    """Start the streams, perhaps with a broker down, and wait for the first rows of each."""
    for fault in faults:
        if fault.at_seconds == 0:
            injector.begin(fault)
    streams.start()
    late = _wait_for_batches(folder, injector, 1, _START_SECONDS)
    if late:
        texts = [f"{failure.topic}: {failure.text[:300]}" for failure in evidence.failures(folder)]
        raise TimeoutError(f"no micro-batch was completed: {', '.join((*late, *texts))}")
    injector.end_all()


def _wait_for_batches(folder: Path, injector: Injector, more: int, seconds: float) -> list[str]:
    """Wait until every stream has completed so many more; returns those that did not in time.

    Does not wait for those that failed, and no fault explains why.
    """
    targets = {kind.topic: _completed_batches(folder, kind) + more for kind in QUERY_KINDS}
    deadline = Deadline(seconds)
    while True:
        late = {
            kind.topic
            for kind in QUERY_KINDS
            if _completed_batches(folder, kind) < targets[kind.topic]
        }
        failed = {
            failure.topic
            for failure in invariants.unexplained(
                evidence.failures(folder), injector.explanations, ATTEMPT_SECONDS
            )
        }
        if late <= failed or deadline.expired:
            return sorted(late)
        injector.wait(0.2)


def _completed_batches(folder: Path, kind: QueryKind) -> int:
    """How many micro-batches Spark has committed: it keeps the files of the last ones."""
    commits = folder / "checkpoints" / kind.topic / "commits"
    names = [path.name for path in commits.glob("[0-9]*")] if commits.exists() else []
    return max((int(name) for name in names if name.isdigit()), default=-1) + 1


def _judge(
    brokers: ThreeBrokers,
    concurrent: ConcurrentReader,
    streams: StreamProcess,
    injector: Injector,
    folder: Path,
    late: list[str],
    stopped_at: float,
    has_stopped: bool,
) -> Outcome:
    left = _wait_for_end(folder)
    hanging, ends = _wait_until_stable(brokers, TOPICS)
    stable = brokers.ends(TOPICS, TOPIC_PARTITIONS, IsolationLevel.READ_COMMITTED, Deadline(60))
    seen, lacking = concurrent.finish(stable)
    servers = brokers.internal_servers
    committed = read_all(servers, TOPICS, TOPIC_PARTITIONS, READ_COMMITTED, stable)
    uncommitted = read_all(servers, TOPICS, TOPIC_PARTITIONS, READ_UNCOMMITTED, ends)
    attempts, failures = evidence.attempts(folder), evidence.failures(folder)
    completed = {kind.topic: _completed_batches(folder, kind) for kind in QUERY_KINDS}
    checks = {
        kind.topic: _checks(
            kind,
            seen,
            committed,
            uncommitted,
            completed[kind.topic],
            [attempt for attempt in attempts if attempt.topic == kind.topic],
            [failure for failure in failures if failure.topic == kind.topic],
            (injector.ended_at, stopped_at),
            brokers,
            ProducerEpochs(folder, kind.topic),
            ProducerEpochs(folder, f"{kind.dead_letter_topic}"),
            evidence.spark_partition_of_key(folder),
        )
        for kind in QUERY_KINDS
    }
    checks["all"] = [
        hanging,
        Check("the concurrent reader reaches the ends", len(stable), tuple(lacking)),
        invariants.failures_are_named(failures, injector.explanations, ATTEMPT_SECONDS),
        invariants.attempts_are_bounded(attempts, ATTEMPT_SECONDS),
        Check(
            "Spark's driver ends only if it is killed",
            streams.starts,
            (f"{injector.unexpected_ends} times it ended by itself",)
            * (injector.unexpected_ends > 0),
        ),
        invariants.nothing_crashes(streams.crashes()),
        Check("no attempt hangs", len(attempts), tuple(injector.hung.sentences)),
        Check(
            "streams complete micro-batches after the last fault",
            len(QUERY_KINDS),
            tuple(f"{topic} did not" for topic in late),
        ),
        Check(
            "the streams end when they are asked to",
            1,
            () if has_stopped and not left else (f"still there: {left or 'the driver'}",),
        ),
    ]
    return Outcome(
        injector.began_at,
        injector.effects,
        attempts,
        failures,
        completed,
        {kind.topic: _stream_reading(kind, committed).row.size for kind in QUERY_KINDS},
        concurrent.longest_delay_seconds,
        streams.starts,
        brokers.unexpected_ends,
        checks,
    )


def _wait_for_end(folder: Path) -> list[int]:
    """Wait until no process of the streams is left; zombies of tasks have deadlines too."""
    deadline = Deadline(ATTEMPT_SECONDS)
    while (left := processes_of(folder)) and not deadline.expired:
        time.sleep(0.5)  # there is no event for processes that are not our children
    return [process.pid for process in left]


def _wait_until_stable(
    brokers: ThreeBrokers, topics: list[str]
) -> tuple[Check, dict[tuple[str, int], int]]:
    """The check for hanging transactions, and the high watermarks.

    A transaction whose task was killed stays open until its time-out.
    """
    deadline = Deadline(_STABLE_SECONDS)
    while True:
        stable = brokers.ends(topics, TOPIC_PARTITIONS, IsolationLevel.READ_COMMITTED, deadline)
        ends = brokers.ends(topics, TOPIC_PARTITIONS, IsolationLevel.READ_UNCOMMITTED, deadline)
        check = invariants.no_hanging_transaction(stable, ends)
        if not check.violations or deadline.expired:
            return check, ends
        time.sleep(0.5)  # there is no event when a transaction ends


def _checks(
    kind: QueryKind,
    every_concurrent: dict[str, Reading],
    every_committed: dict[str, Reading],
    every_uncommitted: dict[str, Reading],
    completed: int,
    attempts: list[Attempt],
    failures: list[Failure],
    without_faults: tuple[float, float],
    brokers: ThreeBrokers,
    producer_epochs: ProducerEpochs,
    dead_letter_epochs: ProducerEpochs,
    spark_partition_of_key: dict[int, list[int]],
) -> list[Check]:
    begun = max((attempt.batch for attempt in attempts), default=-1) + 1
    concurrent, committed, uncommitted = (
        _stream_reading(kind, every)
        for every in (every_concurrent, every_committed, every_uncommitted)
    )
    checks = [
        invariants.completed_rows_are_read(committed, completed, ROWS_PER_BATCH),
        invariants.completed_rows_are_read(concurrent, completed, ROWS_PER_BATCH),
        invariants.only_rows_of_begun_batches(uncommitted, begun, ROWS_PER_BATCH),
        invariants.readers_agree(concurrent, committed),
        invariants.keys_keep_their_order(every_concurrent[kind.topic], attempts, KEYS),
        invariants.reports_match_records(committed, attempts),
        invariants.rows_are_acknowledged_again(attempts, *without_faults, RECOVERY_SECONDS),
    ]
    if kind.guarantee != EXACTLY_ONCE:
        return [
            *checks,
            invariants.doubles_are_explained(
                committed, attempts, ROWS_PER_BATCH, producer_epochs.epoch_of
            ),
        ]
    if kind.dead_letter_topic is not None:
        dead_letters = every_committed[kind.dead_letter_topic]
        checks.append(
            invariants.bad_rows_are_dead_letters(
                every_committed[kind.topic], dead_letters, BAD_PARTITIONS
            )
        )
    ledger = _ledger(brokers, kind.topic)
    layouts = invariants.layouts(attempts, ledger)
    marked = brokers.committed_offset(marker_group(kind.topic), kind.topic)
    if kind.has_layouts:
        checks += [
            invariants.micro_batches_have_one_layout(layouts),
            invariants.rejected_micro_batches_are_completed(
                failures, attempts, committed, uncommitted
            ),
        ]
    else:
        checks.append(
            invariants.micro_batches_are_transactions(
                committed, ROWS_PER_BATCH, _written_in(producer_epochs, dead_letter_epochs)
            )
        )
    return [
        *checks,
        invariants.no_row_twice(concurrent),
        invariants.no_row_twice(committed),
        invariants.no_aborted_row(concurrent, committed, uncommitted),
        invariants.ledger_matches_records(
            committed, ledger, layouts, spark_partition_of_key, ROWS_PER_BATCH
        ),
        invariants.sentinel_is_last_completed(marked and marked[0], completed),
    ]


def _stream_reading(kind: QueryKind, readings: dict[str, Reading]) -> Reading:
    """The stream's rows, dead letters included."""
    if kind.dead_letter_topic is None:
        return readings[kind.topic]
    dead_letters = readings[kind.dead_letter_topic]
    return evidence.joined(readings[kind.topic], dead_letters, TOPIC_PARTITIONS)


def _written_in(
    records: ProducerEpochs, dead_letters: ProducerEpochs
) -> Callable[[int, int], WrittenIn]:
    """Of the places of a joined Reading."""

    def written_in(partition: int, offset: int) -> WrittenIn:
        if partition < TOPIC_PARTITIONS:
            return records.transaction_of(partition, offset)
        return dead_letters.transaction_of(partition - TOPIC_PARTITIONS, offset)

    return written_in


def _ledger(brokers: ThreeBrokers, topic: str) -> dict[int, Entry]:
    """By Spark partition, of any layout."""
    offsets = {
        partition: committed
        for partition in range(max(LAYOUTS))
        if (committed := brokers.committed_offset(transactional_id(topic, partition), topic))
    }
    return {
        partition: Entry(offset, json.loads(metadata)["partitions"])
        for partition, (offset, metadata) in offsets.items()
    }


def report(outcome: Outcome) -> str:
    """What happened, in lines."""
    lines = ["", f"faults: {len(outcome.effects)}"]
    kinds = Counter(effect.fault.kind for effect in outcome.effects)
    lines += [f"  {times:5} {kind}" for kind, times in sorted(kinds.items())]
    lines.append("streams:")
    for topic, batches in outcome.completed_batches.items():
        attempts = [attempt for attempt in outcome.attempts if attempt.topic == topic]
        acknowledged = [attempt for attempt in attempts if attempt.outcome == ACKNOWLEDGED]
        gap_seconds, gap_began_at = _longest_gap(acknowledged)
        lines.append(
            f"  {topic}: {batches} micro-batches, {outcome.rows_read[topic]} rows read, "
            f"{len(attempts)} attempts of tasks, {len(acknowledged)} acknowledged, "
            f"with {sorted({attempt.partitions for attempt in attempts})} partitions, "
            f"longest gap {gap_seconds:.1f} s, at {gap_began_at - outcome.began_at:.1f} s"
        )
    lines.append(f"restarts of queries: {len(outcome.failures)}")
    for failure in outcome.failures:
        error = sink_error(failure.text)
        text = error if error.startswith(failure.name) else failure.name
        at = failure.at - outcome.began_at
        lines.append(f"  {at:7.1f} s  {failure.topic}: {text[:_ERROR_CHARACTERS]}")
    lines.append(f"restarts of Spark: {outcome.starts - 1}")
    delay = outcome.longest_read_delay_seconds
    lines.append(f"the concurrent reader saw a row at most {delay:.1f} s after its timestamp")
    if outcome.unexpected_ends_of_brokers:
        lines.append(f"brokers ended by themselves: {outcome.unexpected_ends_of_brokers}")
    for where, checks in outcome.checks.items():
        lines.append(f"invariants of {where}:")
        for check in checks:
            verdict = "VIOLATED" if check.violations else "holds"
            lines.append(f"  {verdict:8} {check.name} ({check.checked} checked)")
            lines += [f"           {violation}" for violation in check.violations]
    return "\n".join(lines)


def _longest_gap(acknowledged: list[Attempt]) -> tuple[float, float]:
    """Seconds between two acknowledgements, at most, and when they began."""
    times = sorted(
        attempt.ended_at
        for attempt in acknowledged
        if attempt.ended_at is not None and attempt.report and attempt.report.total_acknowledged
    )
    return max(((b - a, a) for a, b in itertools.pairwise(times)), default=(0.0, 0.0))


def main(arguments: list[str]) -> int:
    seconds = float(arguments[0])
    seed = int(arguments[1]) if arguments[1:] else random.randrange(1_000_000)
    faulthandler.dump_traceback_later(seconds + _OVERHEAD_SECONDS, exit=True)
    faulthandler.register(signal.SIGUSR1)  # shows where it is
    # Ends everything in order, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"chaos for {seconds:g} s, SEED={seed}, logs in {folder}", flush=True)
    try:
        faults = schedule(seed, seconds)
        outcome = chaos(faults, seconds, folder, lambda line: print(line, flush=True))
    except BaseException as error:
        print(f"failed: {type(error).__name__}: {error}\nSEED={seed}, logs in {folder}", flush=True)
        raise
    print(report(outcome), flush=True)
    if outcome.violations:
        print(f"\n{len(outcome.violations)} violations; SEED={seed}, logs in {folder}", flush=True)
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print(f"\nall invariants hold; SEED={seed}", flush=True)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("interrupted")
