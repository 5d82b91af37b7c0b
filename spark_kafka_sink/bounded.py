"""Calls that return by a deadline even if they hang: a name look-up cannot be interrupted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.process_limits import start_thread

T = TypeVar("T")
A = TypeVar("A")


@dataclass(frozen=True)
class Call(Generic[T]):
    """A call that has ended: ``seconds`` it took, and its value or its error."""

    seconds: float
    value: T | None = None
    error: Exception | None = None


def call_each(
    function: Callable[[A], T], arguments: Sequence[A], deadline: Deadline
) -> list[Call[T]]:
    """Call ``function`` with each argument, all at once, each in a daemon thread.

    A call that has not ended by the deadline gets a TimeoutError; its thread continues to run.
    Raises LimitReached if a thread does not start.
    """
    started = time.monotonic()
    calls: dict[int, Call[T]] = {}

    def run(number: int, argument: A) -> None:
        try:
            value = function(argument)
        except Exception as error:  # noqa: BLE001 - handed to the caller
            calls[number] = Call(time.monotonic() - started, error=error)
        else:
            calls[number] = Call(time.monotonic() - started, value)

    for thread in [
        start_thread(run, "bounded", call_arguments) for call_arguments in enumerate(arguments)
    ]:
        thread.join(deadline.remaining())
    waited = time.monotonic() - started
    late: Call[T] = Call(waited, error=TimeoutError(f"no end after {waited:.1f} s"))
    return [calls.get(number, late) for number in range(len(arguments))]
