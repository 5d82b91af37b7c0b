"""Whether and when a failed query is restarted."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from spark_kafka_sink import errors
from spark_kafka_sink.errors import InvalidConfiguration, KafkaSinkError
from spark_kafka_sink.tools.job.model import Restart
from spark_kafka_sink.tools.job.output import Output
from spark_kafka_sink.tools.job.stop import Stop

#: exit codes
DONE, FAILED, INVALID = 0, 1, 2

# Like Kafka's clients: queries that failed together do not start together.
_JITTER = 0.2


@dataclass(frozen=True)
class Failure:
    """Why a query failed.

    ``error_name``: the sink's error, or None for any other. ``has_progressed``: whether a
    micro-batch ended before the failure.
    """

    text: str
    error_name: str | None = None
    has_progressed: bool = False


def report_error(error: KafkaSinkError, output: Output) -> int:
    """Write an error that ends the job or its dry run; returns the exit code."""
    if isinstance(error, InvalidConfiguration):
        output.say(str(error))
        return INVALID
    output.say(f"{type(error).__name__}: {error}")
    return FAILED


class Backoff:
    """The times between failures and restarts, which double up to a maximum."""

    def __init__(
        self, restart: Restart, random_between: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._restart = restart
        self._random_between = random_between
        self.max_attempts = restart.attempts
        #: restarts since the last micro-batch that ended
        self.attempts = 0

    def reset(self) -> None:
        """Begin again, because a micro-batch has ended."""
        self.attempts = 0

    def next_seconds(self) -> float | None:
        """How long to wait before the next restart, or None after too many in a row."""
        if self.attempts >= self.max_attempts:
            return None
        seconds = self._restart.initial_backoff_seconds * 2.0**self.attempts
        self.attempts += 1
        seconds *= self._random_between(1 - _JITTER, 1 + _JITTER)
        return min(seconds, self._restart.max_backoff_seconds)


def run_attempts(
    attempt: Callable[[], Failure | None], restart: Restart | None, stop: Stop, output: Output
) -> Failure | None:
    """Repeat a failed attempt as often as ``restart`` says; returns the last failure, if any.

    Without ``restart`` there is one attempt, whose errors are raised.
    """
    backoff = None if restart is None else Backoff(restart)
    while True:
        failure = attempt() if backoff is None else _attempt(attempt)
        if failure is None:
            return None
        output.say(failure.text)
        if backoff is None or stop.requested.is_set():
            return failure
        seconds = _seconds_to_restart(failure, backoff, output)
        if seconds is None:
            return failure
        output.show_state(f"waiting {seconds:.1f} s before restarting")
        if stop.requested.wait(seconds):
            output.say("stopped before the query restarted")
            return None


def _attempt(attempt: Callable[[], Failure | None]) -> Failure | None:
    """An attempt whose transient errors are failures, too; raises the permanent errors."""
    try:
        return attempt()
    except KafkaSinkError as error:
        if error.is_permanent:
            raise
        name = type(error).__name__
        return Failure(f"the query cannot start: {name}: {error}", name)


def _seconds_to_restart(failure: Failure, backoff: Backoff, output: Output) -> float | None:
    error = getattr(errors, failure.error_name or "", KafkaSinkError)
    if error.is_permanent:
        output.say(f"{failure.error_name}: restarting the query would not help")
        return None
    if failure.has_progressed:
        backoff.reset()
    seconds = backoff.next_seconds()
    if seconds is None:
        output.say(f"giving up after {backoff.attempts} failed restarts in a row")
        return None
    count = f"{backoff.attempts} of {backoff.max_attempts}"
    output.say(f"restarting the query in {seconds:.1f} s, {count}")
    return seconds
