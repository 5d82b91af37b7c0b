"""Runs a configured job in a Spark session until it ends, or only checks it there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.errors import KafkaSinkError, sink_error, sink_error_name
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.report.metrics import is_micro_batch
from spark_kafka_sink.report.storage import local_path
from spark_kafka_sink.spark.datasource import ensure_registered
from spark_kafka_sink.spark.listener import KafkaSinkListener
from spark_kafka_sink.spark.micro_batch import warn_of_session
from spark_kafka_sink.spark.private_api import handle_java_signals, is_classic
from spark_kafka_sink.spark.spark_errors import SPARK_ERRORS, reason
from spark_kafka_sink.spark.warm_up import warm_up
from spark_kafka_sink.threads import start_call
from spark_kafka_sink.tools.doctor import diagnose
from spark_kafka_sink.tools.doctor.result import say_text
from spark_kafka_sink.tools.job.configuration import Configuration
from spark_kafka_sink.tools.job.output import Output
from spark_kafka_sink.tools.job.pipeline import build, start
from spark_kafka_sink.tools.job.reports import MicroBatch, Reports, collected_reports
from spark_kafka_sink.tools.job.restart import DONE, FAILED, Failure, run_attempts
from spark_kafka_sink.tools.job.stop import SIGNALS, Stop, StopCheck, handle_signals
from spark_kafka_sink.tools.job.topic_creation import create_missing

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

BuildRows = Callable[[SparkSession, Configuration], DataFrame]

_DOCTOR_SECONDS = 60.0  # its own default is shorter, for interactive use
_INTERRUPTION_SECONDS = 30  # query.stop() may wait for the query's planner
_POLL_SECONDS = 0.25
_TERMINATION_SECONDS = 10
_STOP_POLL_SECONDS = 0.02
_WARM_UP_SECONDS = 70.0  # it stops its own query after 60 s


def dry_run(configuration: Configuration, output: Output, build_rows: BuildRows = build) -> int:
    """Check source, SQL and schema, then everything that doctor checks; writes nothing.

    Returns the exit code. Raises KafkaSinkError.
    """
    with session(configuration.job.name, output) as spark:
        output.show_state("checking source and schema")
        rows = build_rows(spark, configuration)
        output.show_state("running doctor")
        results = diagnose(
            configuration.job.sink.options,
            timeout_seconds=_DOCTOR_SECONDS,
            spark=spark,
            created_topics=configuration.created_topics(),
            schema=rows.schema,
        )
        return DONE if say_text(results, output.say) else FAILED


def run(
    configuration: Configuration, stop: Stop, output: Output, build_rows: BuildRows = build
) -> int:
    """Run the query until it ends or is stopped; returns the exit code.

    ``build_rows``: makes the sink's rows. Raises InvalidConfiguration if Spark rejects the query;
    KafkaSinkError if it cannot start.
    """
    with (
        collected_reports(configuration) as (reporting, reports),
        _metrics_listener(reporting, output) as listener,
        session(configuration.job.name, output) as spark,
    ):
        if listener is not None:
            spark.streams.addListener(listener)
        return _QueryRun(spark, reporting, stop, output, build_rows, reports, listener).run()


@dataclass(frozen=True)
class _QueryRun:
    """The job's query, attempt after attempt."""

    spark: SparkSession
    configuration: Configuration
    stop: Stop
    output: Output
    build_rows: BuildRows
    reports: Reports
    listener: KafkaSinkListener | None

    def run(self) -> int:
        """Run the query, again after failures if the file says so; returns the exit code."""
        restart = self.configuration.job.restart
        failure = run_attempts(self._attempt, restart, self.stop, self.output)
        return DONE if failure is None else FAILED

    def _attempt(self) -> Failure | None:
        """Run the query once, until it has ended; returns why it failed."""
        rows = self._rows()  # built again for each attempt: a table's schema may have changed
        if not self.stop.has_begun:
            self._handle_signals()
        query = start(rows, self.configuration, StopCheck(self.stop), self._keep_report)
        return follow(query, self.stop, Progress(query, self.reports, self.output), self.output)

    def _rows(self) -> DataFrame:
        """The sink's rows; with ``warm_up``, workers start in the meantime."""
        create_missing(self.configuration, self.output)
        if not self.configuration.job.warm_up or self.stop.has_begun:
            self.output.show_state("preparing the source")
            return self.build_rows(self.spark, self.configuration)
        self.output.show_state("warming up")
        # If it fails, it logs why. Neither an error nor a signal waits for it.
        options = self.configuration.job.sink.options
        warming_up = start_call(warm_up, "warm-up", self.spark, options)
        rows = self.build_rows(self.spark, self.configuration)
        wait([warming_up], _WARM_UP_SECONDS)
        return rows

    def _handle_signals(self) -> None:
        """Make signals end the query after its micro-batch, from now on."""
        self.stop.begin()
        handle_signals(self.stop)
        handle_java_signals(self.spark, SIGNALS, self.stop.request)
        self.spark.conf.set("spark.sql.streaming.stopTimeout", f"{_INTERRUPTION_SECONDS}s")

    def _keep_report(self, report: DeliveryReport) -> None:
        self.reports.keep(report)
        if self.listener is not None:
            self.listener.on_report(report)


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


@contextmanager
def _metrics_listener(
    configuration: Configuration, output: Output
) -> Iterator[KafkaSinkListener | None]:
    """The listener whose metrics and health are served until the end of the job, or None.

    With ``mode: format`` it reads the reports from ``report.path``. Raises KafkaSinkError.
    """
    metrics = configuration.job.metrics
    path = configuration.sink_options.values[table.REPORT_PATH]
    if metrics is None:
        yield None
        return
    folders: list[str] = []
    if (
        configuration.job.sink.mode == "format"
        and path is not None
        and local_path(path) is not None
    ):
        folders.append(path)
    listener = KafkaSinkListener(folders)
    with listener.serve_metrics(metrics.port, metrics.address) as server:
        output.say(f"metrics: {server.url}")
        yield listener


@contextmanager
def session(name: str, output: Output) -> Iterator[SparkSession]:
    """The job's session, which ends with the job.

    Raises KafkaSinkError if Spark does not start, or the session is not classic.
    """
    output.say("starting Spark")
    try:
        spark = SparkSession.builder.appName(name).getOrCreate()
    except SPARK_ERRORS as error:
        raise KafkaSinkError(
            f"Spark does not start: {reason(error).rstrip('.')}. Check JAVA_HOME, Spark's "
            "properties, and Spark's own lines above"
        ) from None
    if not is_classic(spark):
        raise KafkaSinkError("this job needs a classic Spark session; unset SPARK_REMOTE")
    try:
        ensure_registered(spark)
        warn_of_session(spark)
        yield spark
    finally:
        output.show_state("ending Spark")
        spark.stop()
        output.show_state("ended")
