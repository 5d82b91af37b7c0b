"""Ends a query after its micro-batch: on SIGTERM or Ctrl-C, within a bounded time."""

from __future__ import annotations

import logging
import signal
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

from spark_kafka_sink.deadline import Clock, Deadline
from spark_kafka_sink.report.metrics import is_micro_batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: the signals that end a job
SIGNALS = ("TERM", "INT")
# With spark-submit, Ctrl-C in a terminal reaches both Python and Java.
_SAME_SIGNAL_SECONDS = 0.5
_POLL_SECONDS = 0.02
_BLOCK_SECONDS = 30.0  # more than enough: the main loop stops a query that is blocked


class Query(Protocol):
    """The part of StreamingQuery that we use."""

    @property
    def isActive(self) -> bool: ...  # noqa: N802 - Spark's name

    @property
    def status(self) -> dict[str, Any]: ...

    @property
    def lastProgress(self) -> Any: ...  # noqa: N802 - Spark's name


class Stop:
    """A request to stop, from a signal that Python or Java received.

    After the first signal the query ends with its running micro-batch; after a second one, at once.
    Before ``begin``, when no record has been written, a signal raises KeyboardInterrupt.
    """

    def __init__(self, timeout_seconds: float, clock: Clock = time.monotonic) -> None:
        self.timeout_seconds = timeout_seconds
        self.has_begun = False
        #: set by the first signal; the main loop waits on it
        self.requested = threading.Event()
        #: whether the next micro-batch is blocked before it begins; set by Spark's thread
        self.is_blocking = False
        self._clock = clock
        self._signals = 0
        self._last_signal_at: float | None = None
        # Set by ``is_due``, which only the main loop calls.
        self._deadline: Deadline | None = None
        self._last_batch_id: int | None = None

    def begin(self) -> None:
        """The query is about to start."""
        self.has_begun = True

    def request(self, *_: object) -> None:
        """Count a signal. May run in a signal handler and, after ``begin``, in any thread."""
        if not self.has_begun:
            raise KeyboardInterrupt
        now, last = self._clock(), self._last_signal_at
        if last is not None and now - last < _SAME_SIGNAL_SECONDS:
            return
        self._last_signal_at = now
        self._signals += 1
        self.requested.set()

    def is_due(self, query: Query) -> bool:
        """Whether to stop the query now; called repeatedly once a stop is requested."""
        if self.is_immediate or self.is_blocking:
            return True
        last_batch_id = _last_batch_id(query.lastProgress)
        if self._deadline is None:
            self._deadline = Deadline(self.timeout_seconds, self._clock)
            self._last_batch_id = last_batch_id
        if last_batch_id != self._last_batch_id or self._deadline.expired:
            return True
        # Between micro-batches, while it waits for data or for the trigger.
        return not query.status["isTriggerActive"]

    @property
    def is_immediate(self) -> bool:
        return self._signals > 1

    @property
    def is_late(self) -> bool:
        """Whether the micro-batch took longer than the timeout."""
        return self._deadline is not None and self._deadline.expired


def _last_batch_id(progress: Any) -> int:
    """The latest micro-batch that has ended, or -1. An idle query's progress has the next id."""
    if progress is None:
        return -1
    return int(progress["batchId"]) - (not is_micro_batch(progress))


class StopCheck:
    """Blocks the next micro-batch of foreachBatch until the query is stopped, then ends it.

    With ``mode: format`` this is not possible: the next micro-batch may begin, and is interrupted.
    """

    def __init__(self, stop: Stop) -> None:
        self._stop = stop
        self.query: Query | None = None

    def wait_if_stopping(self) -> None:
        """Return at once; or if a stop is requested, raise InterruptedError once the query ends."""
        if not self._stop.requested.is_set():
            return
        # Imported here: the job's configuration is checked before PySpark is loaded.
        from spark_kafka_sink.spark.private_api import INTERRUPTION

        self._stop.is_blocking = True
        deadline = Deadline(_BLOCK_SECONDS)
        while (self.query is None or self.query.isActive) and not deadline.expired:
            time.sleep(_POLL_SECONDS)
        raise InterruptedError(INTERRUPTION)

    def guarded(self, write: Any) -> Any:
        """``write``, a function for foreachBatch, which waits first if the query is stopping."""

        def guarded(batch: DataFrame, batch_id: int) -> None:
            self.wait_if_stopping()
            write(batch, batch_id)

        return guarded


def handle_signals(stop: Stop) -> None:
    """Make SIGTERM and Ctrl-C request the stop in this process.

    To be called again after Spark's session starts, which replaces the handler of Ctrl-C.
    """
    logging.getLogger().addFilter(_is_not_py4j_traceback)
    for name in SIGNALS:
        signal.signal(getattr(signal, f"SIG{name}"), stop.request)


def _is_not_py4j_traceback(record: logging.LogRecord) -> bool:
    """False for the traceback that py4j logs if a signal arrives during a call of Java."""
    return record.msg != "KeyboardInterrupt while sending command."
