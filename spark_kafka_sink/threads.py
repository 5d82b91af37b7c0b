"""[both] Daemon threads, and calls in them: their caller returns by a deadline even if they hang.

Threads do not survive a fork, and what has them is cached ``per_process``.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, Generic, TypeVar

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.process_limits import thread_limit_reached

T = TypeVar("T")
A = TypeVar("A")

_NOT_STARTED = "can't start new thread"  # Python's text


def per_process(function: Callable[..., T]) -> Callable[..., T]:
    """``functools.cache``, but a fork calls the function again.

    For what has threads, connections or locks: a lock may be locked when its process is forked.
    """

    @cache
    def cached(_pid: int, *arguments: Any) -> T:
        return function(*arguments)

    @wraps(function)
    def cached_here(*arguments: Any) -> T:
        return cached(os.getpid(), *arguments)

    return cached_here


def start_thread(
    target: Callable[..., object], name: str, arguments: Sequence[Any] = ()
) -> threading.Thread:
    """A daemon thread that runs; raises LimitReached."""
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        if str(error) != _NOT_STARTED:  # Python 3.12.0 and 3.12.1 start none at exit
            raise
        raise thread_limit_reached(str(error)) from None
    return thread


def start_call(function: Callable[..., T], name: str, *arguments: Any) -> Future[T]:
    """A call's outcome, from a daemon thread of that name; raises LimitReached."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(function(*arguments))
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            future.set_exception(error)

    start_thread(run, name)
    return future


@dataclass(frozen=True)
class Call(Generic[T]):
    """A call that has ended: ``seconds`` it took, and its value or its error."""

    seconds: float
    value: T | None = None
    error: Exception | None = None


def call_all(
    function: Callable[[A], T], arguments: Sequence[A], deadline: Deadline
) -> list[Call[T]]:
    """Call ``function`` with all arguments at once, in as many threads.

    A call that has not ended by the deadline gets a TimeoutError; its thread continues to run.
    Raises LimitReached if a thread does not start.
    """
    started = time.monotonic()

    def timed_call(argument: A) -> Call[T]:
        try:
            value = function(argument)
        except Exception as error:  # noqa: BLE001 - the caller gets it
            return Call(time.monotonic() - started, error=error)
        return Call(time.monotonic() - started, value)

    futures = [start_call(timed_call, "bounded", argument) for argument in arguments]
    wait(futures, deadline.remaining())
    waited = time.monotonic() - started
    late: Call[T] = Call(waited, error=TimeoutError(f"no end after {waited:.1f} s"))
    return [future.result() if future.done() else late for future in futures]
