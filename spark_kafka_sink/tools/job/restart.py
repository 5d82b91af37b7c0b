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

# As Kafka's clients do it, so that queries that failed together do not start together.
_JITTER = 0.2


@dataclass(frozen=True)
class Failure:
    """Why a query failed.

    ``error_name``: of the sink's error, None for another one. ``has_progressed``: whether a
    micro-batch ended before it failed.
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
    """The times between failures and restarts: each twice the one before it, up to the maximum."""

    def __init__(
        self, restart: Restart, random_between: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._restart = restart
        self._random_between = random_between
        self.max_attempts = restart.attempts
        #: restarts since a micro-batch last ended
        self.attempts = 0

    def reset(self) -> None:
        """A micro-batch has ended."""
        self.attempts = 0

    def next_seconds(self) -> float | None:
        """How long to wait for the next restart, or None after too many of them in a row."""
        if self.attempts >= self.max_attempts:
            return None
        seconds = self._restart.initial_backoff_seconds * 2.0**self.attempts
        self.attempts += 1
        seconds *= self._random_between(1 - _JITTER, 1 + _JITTER)
        return min(seconds, self._restart.max_backoff_seconds)


def run_attempts(
    attempt: Callable[[], Failure | None], restart: Restart | None, stop: Stop, output: Output
) -> Failure | None:
    """Attempt again after failures, if ``restart`` says how often; returns the final one.

    Without ``restart``, what ``attempt`` raises is raised.
    """
    backoff = None if restart is None else Backoff(restart)
    while True:
        failure = attempt() if backoff is None else _attempted(attempt)
        if failure is None:
            return None
        output.say(failure.text)
        if backoff is None or stop.requested.is_set():
            return failure
        seconds = _seconds_to_restart(failure, backoff, output)
        if seconds is None:
            return failure
        output.waits_for(f"waiting {seconds:.1f} s before restarting")
        if stop.requested.wait(seconds):
            output.say("stopped before the query restarted")
            return None


def _attempted(attempt: Callable[[], Failure | None]) -> Failure | None:
    """The outcome, also if the query could not start; raises the permanent errors."""
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
    of = f"{backoff.attempts} of {backoff.max_attempts}"
    output.say(f"restarting the query in {seconds:.1f} s, {of}")
    return seconds
