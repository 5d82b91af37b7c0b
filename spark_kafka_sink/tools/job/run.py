"""Runs a configured job in a Spark session, or only checks it there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from spark_kafka_sink.errors import InvalidConfiguration, KafkaSinkError
from spark_kafka_sink.spark.datasource import make_known
from spark_kafka_sink.spark.private_api import is_classic
from spark_kafka_sink.spark.speculation import warn_of_speculation
from spark_kafka_sink.tools.doctor import diagnose, report
from spark_kafka_sink.tools.job.configuration import JobFile, QueryConfiguration
from spark_kafka_sink.tools.job.metrics import served
from spark_kafka_sink.tools.job.output import JobOutput, Output
from spark_kafka_sink.tools.job.pipeline import build
from spark_kafka_sink.tools.job.query_run import INTERRUPTION_SECONDS, QueryRun, begin
from spark_kafka_sink.tools.job.reports import Reports, reported
from spark_kafka_sink.tools.job.restart import (
    DONE,
    FAILED,
    Failure,
    exit_code,
    report_error,
    until_done,
)
from spark_kafka_sink.tools.job.spark_errors import SPARK_ERRORS, reason
from spark_kafka_sink.tools.job.stop import Stop
from spark_kafka_sink.tools.job.supervision import run_all

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_DOCTOR_SECONDS = 60.0  # its own default is shorter, for interactive use
# For a query that was interrupted: Spark's own time, that of its planner, and a busy machine's.
_GRACE_SECONDS = 2.0 * INTERRUPTION_SECONDS + 30


def dry_run(file: JobFile, output: Output) -> int:
    """Check source, SQL and schema, then everything that doctor checks; writes nothing.

    Returns the exit code, of several sinks the highest.
    """
    with session(file.job.name, output) as spark:
        return max(_dry_run(spark, file, query, output) for query in file.queries)


def _dry_run(spark: SparkSession, file: JobFile, query: QueryConfiguration, output: Output) -> int:
    if file.has_several_sinks:
        output.say(f"checking {query.job.name}")
    output.waits_for("checking source and schema")
    try:
        rows = build(spark, query)
        return run_doctor(spark, query, rows.schema, output)
    except KafkaSinkError as error:
        return report_error(error, output)


def run_doctor(
    spark: SparkSession, query: QueryConfiguration, schema: StructType, output: Output
) -> int:
    """Run doctor on the sink's options, the rows' schema and the brokers; returns the exit code."""
    output.waits_for("running doctor")
    results = diagnose(
        query.job.sink.options,
        timeout_seconds=_DOCTOR_SECONDS,
        spark=spark,
        created_topics=query.created_topics(),
        schema=schema,
    )
    return DONE if report.say_text(results, output.say) else FAILED


def run(file: JobFile, stop: Stop, output: JobOutput) -> int:
    """Run the queries until they end or are stopped; returns the exit code.

    Raises InvalidConfiguration if Spark refuses a query; KafkaSinkError if it cannot start.
    """
    with ExitStack() as stack:
        reporting = [stack.enter_context(reported(query)) for query in file.queries]
        listener = stack.enter_context(served([query for query, _ in reporting], output))
        spark = stack.enter_context(session(file.job.name, output))
        if listener is not None:
            spark.streams.addListener(listener)
        runs = [
            QueryRun(spark, query, stop, _output_of(query, file, output), reports, listener)
            for query, reports in reporting
        ]
        if file.has_several_sinks:
            return _run_several(runs, stop, output, stops_all=file.stops_all)
        return exit_code(runs[0].run())


def _output_of(query: QueryConfiguration, file: JobFile, output: JobOutput) -> Output:
    return output.of_query(query.job.name) if file.has_several_sinks else output


def _run_several(runs: Sequence[QueryRun], stop: Stop, output: Output, *, stops_all: bool) -> int:
    for each in runs:
        try:
            each.prepare(is_required=stops_all)
        except InvalidConfiguration:
            raise
        except KafkaSinkError as error:
            output.say(f"{each.name} has failed: {type(error).__name__}: {error}")
            return FAILED
    begin(runs[0].spark, stop)
    by_name = {each.name: partial(_run_in_thread, each) for each in runs}
    return run_all(by_name, stop, output, stops_all=stops_all, grace_seconds=_GRACE_SECONDS)


def _run_in_thread(run: QueryRun) -> Failure | None:
    # Spark looks for the format in the thread's active session, and only the main thread has one.
    make_known(run.spark)
    return run.run()


def execute(
    spark: SparkSession, rows: DataFrame, query: QueryConfiguration, stop: Stop, output: Output
) -> int:
    """Write ``rows`` once, as the configuration says, with foreachBatch; otherwise as ``run``."""
    once = QueryRun(spark, query, stop, output, Reports())
    return exit_code(until_done(lambda: once.write(rows), None, stop, output))


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
        make_known(spark)
        warn_of_speculation(spark)
        yield spark
    finally:
        output.waits_for("ending Spark")
        spark.stop()
        output.waits_for("ended")
