"""Follows a query until it ends, fails or is stopped."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

from spark_kafka_sink.errors import sink_error, sink_error_name
from spark_kafka_sink.report.metrics import is_micro_batch
from spark_kafka_sink.spark.spark_errors import SPARK_ERRORS, reason
from spark_kafka_sink.tools.job.output import Output
from spark_kafka_sink.tools.job.reports import MicroBatch, Reports
from spark_kafka_sink.tools.job.restart import Failure
from spark_kafka_sink.tools.job.stop import Stop

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_POLL_SECONDS = 0.25
_TERMINATION_SECONDS = 10
_STOP_POLL_SECONDS = 0.02


class Progress:
    """Shows every micro-batch once."""

    def __init__(self, query: StreamingQuery, reports: Reports, output: Output) -> None:
        self._query = query
        self._reports = reports
        self._output = output
        self._last_batch_id = -1

    @property
    def has_any(self) -> bool:
        """Whether a micro-batch has ended since the query started."""
        return self._last_batch_id >= 0

    def report_new(self) -> None:
        """Show new micro-batches. Spark keeps 100, far more than end between two calls."""
        last: Any = self._query.lastProgress
        if last is None or last["batchId"] <= self._last_batch_id:
            return
        for entry in self._query.recentProgress:
            progress: Any = entry
            batch_id = progress["batchId"]
            if batch_id > self._last_batch_id and is_micro_batch(progress):
                self._last_batch_id = batch_id
                self._output.show_micro_batch(
                    MicroBatch.from_progress(progress, self._reports.take(batch_id))
                )


def follow(query: StreamingQuery, stop: Stop, progress: Progress, output: Output) -> Failure | None:
    """Show the query's progress until it has ended or was stopped; returns why it failed."""
    _wait_for_end(query, stop, progress, output)
    stop_failure = _end(query, stop, output) if query.isActive else None
    progress.report_new()
    return stop_failure or _failure(query, progress)


def _wait_for_end(query: StreamingQuery, stop: Stop, progress: Progress, output: Output) -> None:
    """Return when the query has ended, or has to be stopped now."""
    is_announced = False
    while query.isActive:
        progress.report_new()
        if not stop.requested.is_set():
            output.show_state(query.status["message"])
            stop.requested.wait(_POLL_SECONDS)
            continue
        if not is_announced:
            is_announced = True
            state = f"stopping after the micro-batch, within {stop.timeout_seconds:g} s"
            output.show_state(state)
            output.say(f"{state}; a second signal stops at once")
        if stop.is_due(query):
            return
        time.sleep(_STOP_POLL_SECONDS)


def _end(query: StreamingQuery, stop: Stop, output: Output) -> Failure | None:
    """Stop the query now; returns a failure if Spark does not stop it in time."""
    if stop.is_late or stop.is_immediate:
        why = "" if stop.is_immediate else f" after {stop.timeout_seconds:g} s"
        output.say(f"interrupting the micro-batch{why}; it runs again when the job restarts")
    try:
        query.stop()
    except SPARK_ERRORS as error:
        return Failure(f"Spark did not stop the query in time: {reason(error)}")
    return None


def _failure(query: StreamingQuery, progress: Progress) -> Failure | None:
    error = query.exception()
    if error is None:
        return None
    with suppress(StreamingQueryException):
        # Until then, no other query can take its name.
        query.awaitTermination(_TERMINATION_SECONDS)
    text = str(error)
    return Failure(f"the query failed: {sink_error(text)}", sink_error_name(text), progress.has_any)
