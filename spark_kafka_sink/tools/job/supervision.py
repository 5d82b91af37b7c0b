"""Runs several queries at once, each in a thread, until all have ended."""

from __future__ import annotations

import queue
import traceback
from collections.abc import Callable, Mapping

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import InvalidConfiguration, KafkaSinkError
from spark_kafka_sink.process_limits import start_thread
from spark_kafka_sink.tools.job.output import Output
from spark_kafka_sink.tools.job.restart import FAILED, INVALID, Failure, exit_code
from spark_kafka_sink.tools.job.stop import Stop

_POLL_SECONDS = 0.25

Run = Callable[[], Failure | None]


def run_all(
    runs: Mapping[str, Run],
    stop: Stop,
    output: Output,
    *,
    stops_all: bool,
    grace_seconds: float,
) -> int:
    """Run all queries, by name; returns the highest exit code.

    If ``stops_all``, a query that has failed for good ends the others after their micro-batches. A
    query that has not ended ``grace_seconds`` after the deadline of its micro-batch counts as
    failed. For the main thread, which gets signals meanwhile; every failure is named at the end.
    """
    ended: queue.Queue[tuple[str, Failure | None]] = queue.Queue()
    for name, run in runs.items():
        target = _thread_target(ended, name, run)
        # Daemons, so that one that hangs does not keep the process alive.
        start_thread(target, f"query {name}")
    running = list(runs)
    failures: dict[str, Failure] = {}
    deadline = _StopDeadline(stop, grace_seconds)
    while running and not deadline.is_expired:
        try:
            name, failure = ended.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            continue
        running.remove(name)
        if failure is not None:
            failures[name] = failure
            if stops_all and running and not stop.requested.is_set():
                output.say(f"{name} has failed: stopping {', '.join(running)}")
                stop.request_after_failure()
    late = Failure(f"the query did not end within {grace_seconds:g} s of its deadline")
    failures |= dict.fromkeys(running, late)
    for name in (each for each in runs if each in failures):
        output.say(f"{name} has failed: {failures[name].text}")
    return max(exit_code(failures.get(name)) for name in runs)


def _thread_target(
    ended: queue.Queue[tuple[str, Failure | None]], name: str, run: Run
) -> Callable[[], None]:
    def target() -> None:
        ended.put((name, _outcome(run)))

    return target


def _outcome(run: Run) -> Failure | None:
    """How the query ended, whatever it raises: a thread's error would be lost."""
    try:
        return run()
    except KafkaSinkError as error:
        name = type(error).__name__
        code = INVALID if isinstance(error, InvalidConfiguration) else FAILED
        return Failure(f"{name}: {error}", name, exit_code=code)
    except BaseException:  # noqa: BLE001 - such as py4j's, when Spark's process has ended
        return Failure(traceback.format_exc().strip())


class _StopDeadline:
    """How long to wait for queries that have to stop; without a stop, for as long as they run."""

    def __init__(self, stop: Stop, grace_seconds: float) -> None:
        self._stop = stop
        self._grace_seconds = grace_seconds
        self._micro_batches: Deadline | None = None
        self._grace: Deadline | None = None

    @property
    def is_expired(self) -> bool:
        """To be asked again and again."""
        if not self._stop.requested.is_set():
            return False
        if self._micro_batches is None:
            self._micro_batches = Deadline(self._stop.timeout_seconds, self._stop.clock)
        if self._grace is None and (self._stop.is_at_once or self._micro_batches.expired):
            self._grace = Deadline(self._grace_seconds, self._stop.clock)
        return self._grace is not None and self._grace.expired
