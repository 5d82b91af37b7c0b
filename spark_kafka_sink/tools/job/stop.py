"""Ends a query after its micro-batch: on SIGTERM or Ctrl-C, within a bounded time."""

from __future__ import annotations

import logging
import signal
import threading
import time
from typing import Any, Protocol

from spark_kafka_sink.deadline import Clock, Deadline

#: the signals that end a job
SIGNALS = ("TERM", "INT")
# Ctrl-C in a terminal reaches Python and, with spark-submit, Java too.
_SAME_SIGNAL_SECONDS = 0.5


class Query(Protocol):
    """The part of StreamingQuery that we use."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802 - Spark's name

    @property
    def status(self) -> dict[str, Any]: ...

    @property
    def lastProgress(self) -> Any: ...  # noqa: N802 - Spark's name


class Stop:
    """A request to stop, from whichever process received the signal.

    After the first signal, queries end with their running micro-batch; after a second one, at once.
    Before ``begin``, when nothing has been written, a signal raises KeyboardInterrupt. Of several
    queries, each has a ``QueryStop`` of its own.
    """

    def __init__(self, timeout_seconds: float, clock: Clock = time.monotonic) -> None:
        self.timeout_seconds = timeout_seconds
        self.clock = clock
        self.has_begun = False
        self._requests = 0
        self._requested_at: float | None = None
        #: set by the first signal, or if a query's failure ends the others; main loops wait on it
        self.requested = threading.Event()

    def begin(self) -> None:
        """The query is about to start."""
        self.has_begun = True

    def request(self, *_: object) -> None:
        """One more signal. May run in a signal handler and, after ``begin``, in any thread."""
        if not self.has_begun:
            raise KeyboardInterrupt
        now = self.clock()
        if self._requested_at is not None and now - self._requested_at < _SAME_SIGNAL_SECONDS:
            return
        self._requested_at = now
        self._requests += 1
        self.requested.set()

    def request_after_failure(self) -> None:
        """A query has failed, and the others end after their micro-batches. Counts as no signal."""
        self.requested.set()

    @property
    def is_at_once(self) -> bool:
        return self._requests > 1


class QueryStop:
    """When to stop one query, once a stop was requested. Only the query's main loop calls it."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self.requested = stop.requested
        self.timeout_seconds = stop.timeout_seconds
        self._deadline: Deadline | None = None
        self._running: int | None = None
        #: the next micro-batch is blocked before it begins; set by Spark's thread
        self.is_blocking = False

    def is_due(self, query: Query) -> bool:
        """Whether to stop the query now; to be called repeatedly once a stop was requested."""
        if self.is_at_once or self.is_blocking:
            return True
        last = _last_batch_id(query)
        if self._deadline is None:
            self._deadline = Deadline(self.timeout_seconds, self._stop.clock)
            self._running = last
        if last != self._running or self._deadline.expired:
            return True
        # Between micro-batches, while it waits for data or for the trigger.
        return not query.status["isTriggerActive"]

    @property
    def is_at_once(self) -> bool:
        return self._stop.is_at_once

    @property
    def is_late(self) -> bool:
        """Whether the micro-batch took longer than the timeout."""
        return self._deadline is not None and self._deadline.expired


def _last_batch_id(query: Query) -> int | None:
    """The number of the micro-batch that ended last."""
    progress = query.lastProgress
    return None if progress is None else int(progress["batchId"])


def handle_signals(stop: Stop) -> None:
    """Make SIGTERM and Ctrl-C request the stop in this process.

    A new Spark session replaces the handler of Ctrl-C, so this has to be repeated then.
    """
    logging.getLogger().addFilter(_is_not_py4j_traceback)
    for name in SIGNALS:
        signal.signal(getattr(signal, f"SIG{name}"), stop.request)


def _is_not_py4j_traceback(record: logging.LogRecord) -> bool:
    """False for the traceback that py4j logs if a signal arrives during a call of Java."""
    return record.msg != "KeyboardInterrupt while sending command."
