"""Runs a configured job in a Spark session, or only checks it there."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from spark_kafka_sink.doctor import diagnose, report
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.job.configuration import Configuration
from spark_kafka_sink.job.metrics import served
from spark_kafka_sink.job.micro_batch import MicroBatch
from spark_kafka_sink.job.output import Output
from spark_kafka_sink.job.pipeline import build, start
from spark_kafka_sink.job.reports import Reports, reported
from spark_kafka_sink.job.spark_errors import SPARK_ERRORS, reason
from spark_kafka_sink.job.stop import Gate, Stop, handle_signals, handle_signals_of_java
from spark_kafka_sink.producer.delivery_report import DeliveryReport
from spark_kafka_sink.spark.datasource import is_classic, register
from spark_kafka_sink.spark.progress import is_micro_batch
from spark_kafka_sink.spark.query_error import sinks_own
from spark_kafka_sink.spark.warm_up import warm_up

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from spark_kafka_sink.spark.listener import KafkaSinkListener

DONE, FAILED = 0, 1

_DOCTOR_SECONDS = 60.0  # its own default is for people who wait
_POLL_SECONDS = 0.25
_STOP_POLL_SECONDS = 0.02
_INTERRUPTION_SECONDS = 30  # query.stop() may have to wait for a planner


def dry_run(configuration: Configuration, output: Output) -> int:
    """Check source, SQL and schema, then everything that doctor checks; writes nothing.

    Returns the exit code. Raises InvalidConfiguration if Spark refuses the source or the SQL text.
    """
    with session(configuration, output) as spark:
        output.waits_for("checking source and schema")
        build(spark, configuration)
        return ask_doctor(spark, configuration, output)


def ask_doctor(spark: SparkSession, configuration: Configuration, output: Output) -> int:
    """Let doctor check the sink's options and the brokers; returns the exit code."""
    output.waits_for("asking doctor")
    options = configuration.job.sink.options
    results = diagnose(options, timeout_seconds=_DOCTOR_SECONDS, spark=spark)
    return DONE if report.say_text(results, output.say) else FAILED


def run(configuration: Configuration, stop: Stop, output: Output) -> int:
    """Run the query until it ends or is stopped; returns the exit code.

    Raises InvalidConfiguration if Spark refuses the query.
    """
    with (
        reported(configuration) as (reporting, reports),
        served(reporting, output) as listener,
        session(reporting, output) as spark,
    ):
        frame = _built(spark, reporting, output)
        return execute(spark, frame, reporting, stop, output, reports, listener)


def execute(
    spark: SparkSession,
    frame: DataFrame,
    configuration: Configuration,
    stop: Stop,
    output: Output,
    reports: Reports,
    listener: KafkaSinkListener | None = None,
) -> int:
    """Write ``frame`` as the configuration says; otherwise as ``run``.

    ``listener``: to be told of the query, and of its reports.
    """

    def keep(report: DeliveryReport) -> None:
        reports.keep(report)
        if listener is not None:
            listener.on_report(report)

    if listener is not None:
        spark.streams.addListener(listener)
    stop.begin()
    handle_signals(stop)
    handle_signals_of_java(spark, stop)
    spark.conf.set("spark.sql.streaming.stopTimeout", f"{_INTERRUPTION_SECONDS}s")
    query = start(frame, configuration, Gate(stop), keep)
    return follow(query, stop, Progress(query, reports, output), output)


@contextmanager
def session(configuration: Configuration, output: Output) -> Iterator[SparkSession]:
    """The job's session, which ends with the job; raises KafkaSinkError if it is not classic."""
    output.say("starting Spark")
    spark = SparkSession.builder.appName(configuration.job.name).getOrCreate()
    if not is_classic(spark):
        raise KafkaSinkError("this job needs a classic Spark session; unset SPARK_REMOTE")
    try:
        register(spark)
        yield spark
    finally:
        output.waits_for("ending Spark")
        spark.stop()
        output.waits_for("ended")


def _built(spark: SparkSession, configuration: Configuration, output: Output) -> DataFrame:
    """The sink's rows, prepared while the workers start if ``warm_up`` is set."""
    if not configuration.job.warm_up:
        output.waits_for("preparing the source")
        return build(spark, configuration)
    output.waits_for("warming up")
    with ThreadPoolExecutor(max_workers=1) as pool:
        pool.submit(warm_up, spark, configuration.job.sink.options)  # if it fails, it logs why
        return build(spark, configuration)


# --- following the query --------------------------------------------------------------------------


class Progress:
    """Passes every micro-batch on to the output, once."""

    def __init__(self, query: StreamingQuery, reports: Reports, output: Output) -> None:
        self._query = query
        self._reports = reports
        self._output = output
        self._passed_on = -1

    def pass_on(self) -> None:
        """Pass on what is new. Spark keeps 100 entries, far more than arrive between two calls."""
        last: Any = self._query.lastProgress
        if last is None or last["batchId"] <= self._passed_on:
            return
        for entry in self._query.recentProgress:
            progress: Any = entry
            batch_id = progress["batchId"]
            if batch_id > self._passed_on and is_micro_batch(progress):
                self._passed_on = batch_id
                self._output.ended(MicroBatch.of(progress, self._reports.take(batch_id)))


def follow(query: StreamingQuery, stop: Stop, progress: Progress, output: Output) -> int:
    """Pass on what the query does until it has ended, or was stopped; returns the exit code."""
    _wait_for_end(query, stop, progress, output)
    has_ended = not query.isActive or _end(query, stop, output)
    progress.pass_on()
    return _exit_code(query, output) if has_ended else FAILED


def _wait_for_end(query: StreamingQuery, stop: Stop, progress: Progress, output: Output) -> None:
    """Returns when the query has ended, or has to be stopped now."""
    is_announced = False
    while query.isActive:
        progress.pass_on()
        if not stop.requested.is_set():
            output.waits_for(query.status["message"])
            stop.requested.wait(_POLL_SECONDS)
            continue
        if not is_announced:
            is_announced = True
            after = f"stopping after the micro-batch, within {stop.timeout_seconds:g} s"
            output.waits_for(after)
            output.say(f"{after}; a second signal stops at once")
        if stop.is_due(query):
            return
        time.sleep(_STOP_POLL_SECONDS)


def _end(query: StreamingQuery, stop: Stop, output: Output) -> bool:
    """Stop the query now; returns whether Spark has done it in time."""
    if stop.is_late or stop.is_at_once:
        why = "" if stop.is_at_once else f" after {stop.timeout_seconds:g} s"
        output.say(f"interrupting the micro-batch{why}; it runs again when the job starts again")
    try:
        query.stop()
    except SPARK_ERRORS as error:
        output.say(f"Spark did not stop the query in time: {reason(error)}")
        return False
    return True


def _exit_code(query: StreamingQuery, output: Output) -> int:
    error = query.exception()
    if error is None:
        return DONE
    output.say(f"the query failed: {sinks_own(str(error))}")
    return FAILED
