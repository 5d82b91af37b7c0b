"""QueryRun: one query of a job, attempt after attempt."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from spark_kafka_sink.connection.preflight import check
from spark_kafka_sink.errors import InvalidConfiguration, KafkaSinkError
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.spark.private_api import handle_java_signals
from spark_kafka_sink.spark.warm_up import warm_up
from spark_kafka_sink.tools.job.configuration import QueryConfiguration
from spark_kafka_sink.tools.job.following import Progress, follow
from spark_kafka_sink.tools.job.output import Output
from spark_kafka_sink.tools.job.pipeline import build, start
from spark_kafka_sink.tools.job.reports import Reports
from spark_kafka_sink.tools.job.restart import PERMANENT, Failure, until_done
from spark_kafka_sink.tools.job.stop import SIGNALS, QueryStop, Stop, handle_signals
from spark_kafka_sink.tools.job.stop_check import StopCheck
from spark_kafka_sink.tools.job.topic_creation import create_missing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from spark_kafka_sink.spark.listener import KafkaSinkListener

#: query.stop() may wait for the query's planner
INTERRUPTION_SECONDS = 30


@dataclass
class QueryRun:
    """A query from its topics to its end. One thread runs it."""

    spark: SparkSession
    configuration: QueryConfiguration
    stop: Stop
    output: Output
    reports: Reports
    listener: KafkaSinkListener | None = None
    _prepared: DataFrame | KafkaSinkError | None = field(default=None, init=False)

    @property
    def name(self) -> str:
        return self.configuration.job.name

    def run(self) -> Failure | None:
        """Run the query until it ends, is stopped, or has failed for good; returns why.

        Raises InvalidConfiguration if Spark refuses the query; KafkaSinkError if it cannot start.
        """
        state = "failed"
        try:
            restart = self.configuration.job.restart
            failure = until_done(self._attempt, restart, self.stop, self.output)
            state = "ended" if failure is None else "failed"
            return failure
        finally:
            self.output.waits_for(state)

    def prepare(self, *, is_required: bool) -> None:
        """What comes before any query starts: topics, the rows of the first attempt, the brokers.

        A failure here counts as the first attempt's: without ``restart`` it is final. Raises errors
        that no attempt can resolve; if the query ``is_required``, also its final failure.
        """
        try:
            self._prepared = self._rows()
            check(self.configuration.sink_options)
        except InvalidConfiguration:
            raise
        except KafkaSinkError as error:
            is_last = self.configuration.job.restart is None or isinstance(error, PERMANENT)
            if is_required and is_last:
                raise
            self._prepared = error

    def _attempt(self) -> Failure | None:
        prepared, self._prepared = self._prepared, None
        if isinstance(prepared, KafkaSinkError):
            raise prepared
        # Rebuilt, not only the query: a table may have another schema by now.
        return self.write(self._rows() if prepared is None else prepared)

    def _rows(self) -> DataFrame:
        """The sink's rows; with ``warm_up``, workers that are not warm start in the meantime."""
        create_missing(self.configuration, self.output)
        if not self.configuration.job.warm_up or self.stop.has_begun:
            self.output.waits_for("preparing the source")
            return build(self.spark, self.configuration)
        self.output.waits_for("warming up")
        with ThreadPoolExecutor(max_workers=1) as pool:
            # If it fails, it logs why.
            pool.submit(warm_up, self.spark, self.configuration.job.sink.options)
            return build(self.spark, self.configuration)

    def write(self, rows: DataFrame) -> Failure | None:
        """Run the query once, until it has ended; returns why it failed."""
        if not self.stop.has_begun:
            begin(self.spark, self.stop)
        stop = QueryStop(self.stop)
        query = start(rows, self.configuration, StopCheck(stop), self._keep)
        return follow(query, stop, Progress(query, self.reports, self.output), self.output)

    def _keep(self, report: DeliveryReport) -> None:
        self.reports.keep(report)
        if self.listener is not None:
            self.listener.on_report(report)


def begin(spark: SparkSession, stop: Stop) -> None:
    """From now on, signals end queries after their micro-batches. For the main thread."""
    stop.begin()
    handle_signals(stop)
    handle_java_signals(spark, SIGNALS, stop.request)
    spark.conf.set("spark.sql.streaming.stopTimeout", f"{INTERRUPTION_SECONDS}s")
