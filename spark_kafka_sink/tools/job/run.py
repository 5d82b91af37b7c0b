"""Runs a configured job in a Spark session, or only checks it there."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.spark.datasource import register
from spark_kafka_sink.spark.private_api import is_classic
from spark_kafka_sink.spark.warm_up import warm_up
from spark_kafka_sink.tools.doctor import diagnose, report
from spark_kafka_sink.tools.job.configuration import Configuration
from spark_kafka_sink.tools.job.following import Progress, follow
from spark_kafka_sink.tools.job.metrics import served
from spark_kafka_sink.tools.job.output import Output
from spark_kafka_sink.tools.job.pipeline import build, start
from spark_kafka_sink.tools.job.reports import Reports, reported
from spark_kafka_sink.tools.job.restart import DONE, FAILED, Failure, until_done
from spark_kafka_sink.tools.job.stop import Gate, Stop, handle_signals, handle_signals_of_java
from spark_kafka_sink.tools.job.topic_creation import create_missing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_kafka_sink.spark.listener import KafkaSinkListener

_DOCTOR_SECONDS = 60.0  # its own default is for people who wait
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

    Raises InvalidConfiguration if Spark refuses the query; KafkaSinkError if it cannot start.
    """
    with (
        reported(configuration) as (reporting, reports),
        served(reporting, output) as listener,
        session(reporting, output) as spark,
    ):
        if listener is not None:
            spark.streams.addListener(listener)

        def attempt() -> Failure | None:
            create_missing(reporting, output)
            # From the start, not only the query: a table may have another schema by now.
            frame = _built(spark, reporting, output, is_warm=stop.has_begun)
            return _write(spark, frame, reporting, stop, output, reports, listener)

        return until_done(attempt, reporting.job.restart, stop, output)


def execute(
    spark: SparkSession,
    frame: DataFrame,
    configuration: Configuration,
    stop: Stop,
    output: Output,
) -> int:
    """Write ``frame`` once, as the configuration says, with foreachBatch; otherwise as ``run``."""

    def attempt() -> Failure | None:
        return _write(spark, frame, configuration, stop, output, Reports(), None)

    return until_done(attempt, None, stop, output)


def _write(
    spark: SparkSession,
    frame: DataFrame,
    configuration: Configuration,
    stop: Stop,
    output: Output,
    reports: Reports,
    listener: KafkaSinkListener | None,
) -> Failure | None:
    """Run a query until it has ended; returns why it failed."""

    def keep(report: DeliveryReport) -> None:
        reports.keep(report)
        if listener is not None:
            listener.on_report(report)

    if not stop.has_begun:
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


def _built(
    spark: SparkSession, configuration: Configuration, output: Output, *, is_warm: bool
) -> DataFrame:
    """The sink's rows; with ``warm_up``, workers that are not warm start in the meantime."""
    if not configuration.job.warm_up or is_warm:
        output.waits_for("preparing the source")
        return build(spark, configuration)
    output.waits_for("warming up")
    with ThreadPoolExecutor(max_workers=1) as pool:
        pool.submit(warm_up, spark, configuration.job.sink.options)  # if it fails, it logs why
        return build(spark, configuration)
