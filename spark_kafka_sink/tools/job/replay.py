"""Replays dead letters in a Spark session, or only counts them there."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from spark_kafka_sink.errors import InvalidConfiguration, InvalidSchema, KafkaSinkError
from spark_kafka_sink.spark.private_api import scala_version
from spark_kafka_sink.spark.schema_check import check_schema
from spark_kafka_sink.tools.job.dead_letters import VIEW, is_selected, restored
from spark_kafka_sink.tools.job.micro_batch import MicroBatch
from spark_kafka_sink.tools.job.output import Output, Summary
from spark_kafka_sink.tools.job.replay_checkpoint import check_owner, claim, ends, refused
from spark_kafka_sink.tools.job.replay_job import Replay, wrong_argument
from spark_kafka_sink.tools.job.replay_report import Kind, ReplayReport
from spark_kafka_sink.tools.job.reports import Reports
from spark_kafka_sink.tools.job.restart import DONE, FAILED
from spark_kafka_sink.tools.job.run import QueryRun, run_doctor, session
from spark_kafka_sink.tools.job.spark_errors import SPARK_ERRORS, reason
from spark_kafka_sink.tools.job.stop import Stop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NO_SOURCE = "Failed to find data source: kafka"
_AFTER_FAILURE = (
    "nothing is lost: a restarted replay repeats the micro-batch that failed. If a record was "
    "refused again, fix the cause, or repair or exclude the record with --sql"
)


def dry_run(replay: Replay, output: Output) -> int:
    """Check everything and count the dead letters; writes nothing, not even the checkpoint.

    Returns the exit code. Raises InvalidConfiguration and KafkaSinkError.
    """
    with session(replay.configuration.job.name, output) as spark:
        output.waits_for("checking checkpoint and SQL")
        check_owner(spark, replay)
        rows = _rows(spark, replay)
        code = run_doctor(spark, replay.configuration, rows.schema, output)
        if code == DONE:  # or Spark might wait for brokers for minutes
            output.waits_for("counting the dead letters")
            output.sum_up(ReplayReport(Counter(), *counted(spark, replay)))
        return code


def run(replay: Replay, stop: Stop, output: Output) -> int:
    """Replay until all dead letters that are there have been read, or it is stopped or fails.

    Returns the exit code. Raises InvalidConfiguration and KafkaSinkError.
    """
    with session(replay.configuration.job.name, output) as spark:
        output.waits_for("checking checkpoint and SQL")
        rows = _rows(spark, replay)
        claim(spark, replay)
        counting = _Counting(output)
        code = QueryRun(spark, replay.configuration, stop, counting, Reports()).run(lambda: rows)
        if code != DONE:
            output.say(_AFTER_FAILURE)
        to_replay = passed_over = None
        if not stop.is_at_once:
            output.waits_for("counting the remaining dead letters")
            try:
                to_replay, passed_over = counted(spark, replay)
            except KafkaSinkError as error:
                output.say(str(error))
                code = FAILED
        output.sum_up(ReplayReport(counting.replayed, to_replay, passed_over))
        return code


class _Counting:
    """An output that adds up what was delivered."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self.replayed: Counter[str] = Counter()

    def ended(self, micro_batch: MicroBatch) -> None:
        self.replayed += micro_batch.delivered_records() or Counter()
        self._output.ended(micro_batch)

    def waits_for(self, what: str) -> None:
        self._output.waits_for(what)

    def say(self, message: str) -> None:
        self._output.say(message)

    def sum_up(self, summary: Summary) -> None:
        self._output.sum_up(summary)


# --- the query ------------------------------------------------------------------------------------


def _rows(spark: SparkSession, replay: Replay) -> DataFrame:
    """The sink's rows; raises InvalidConfiguration, or KafkaSinkError for transient errors."""
    rows = _dead_letters(spark, spark.readStream, replay).where(
        is_selected(replay.selection, replay.excluded)
    )
    if replay.sql is None:
        return rows
    rows.createOrReplaceTempView(VIEW)
    try:
        rows = spark.sql(replay.sql)
        if not rows.isStreaming:
            raise wrong_argument("--sql", f"does not read the stream, the view {VIEW}")
        serialized = replay.configuration.sink_options.serialized_columns
        check_schema(rows.schema, None, serialized)
    except InvalidSchema as error:
        raise wrong_argument("--sql", reason(error)) from None
    except SPARK_ERRORS as error:
        raise refused("--sql", reason(error), error) from None
    return rows


def _dead_letters(spark: SparkSession, reader: Any, replay: Replay) -> DataFrame:
    """All records of the dead letter topic; ``reader``: ``spark.read`` or ``spark.readStream``."""
    try:
        records = reader.format("kafka").options(**replay.configuration.job.source.options).load()
    except SPARK_ERRORS as error:
        if _NO_SOURCE not in str(error):
            what = f"Spark refuses the source: {reason(error)}"
            raise replay.configuration.invalid(("source",), what) from None
        package = f"org.apache.spark:spark-sql-kafka-0-10_{scala_version(spark)}:{spark.version}"
        raise InvalidConfiguration(
            "Spark's Kafka source, which reads the dead letters, is missing. Start with "
            f"spark-submit --packages {package}; or with python, after "
            f"export PYSPARK_SUBMIT_ARGS='--packages {package} pyspark-shell'"
        ) from None
    return restored(records)


# --- the remaining dead letters -------------------------------------------------------------------


def counted(spark: SparkSession, replay: Replay) -> tuple[Counter[Kind], Counter[Kind]]:
    """The dead letters that are still to be replayed, and those that are not selected.

    Reads the whole dead letter topic. Raises KafkaSinkError.
    """
    spark.conf.set("spark.sql.shuffle.partitions", "1")  # there are only a few kinds
    try:
        dead_letter_records = _dead_letters(spark, spark.read, replay)
        kinds = dead_letter_records.select(
            "error",
            "topic",
            is_selected(replay.selection, replay.excluded).alias("is_selected"),
            _is_replayed(ends(spark, replay)).alias("is_replayed"),
        )
        found = kinds.groupBy(*kinds.columns).count().collect()
    except SPARK_ERRORS as error:
        topic = replay.dead_letter_topic
        what = f"the dead letters in {topic} cannot be counted: {reason(error)}"
        raise KafkaSinkError(what) from None
    to_replay, passed_over = Counter[Kind](), Counter[Kind]()
    for row in found:
        if not row["is_selected"]:
            passed_over[row["error"], row["topic"]] += row["count"]
        elif not row["is_replayed"]:
            to_replay[row["error"], row["topic"]] += row["count"]
    return to_replay, passed_over


def _is_replayed(ends: dict[int, int]) -> Column:
    """Whether the checkpoint has passed a selected dead letter."""
    is_replayed = F.lit(False)
    for partition, end in ends.items():
        is_there = F.col("dead_letter_partition") == partition
        is_replayed |= is_there & (F.col("dead_letter_offset") < end)
    return is_replayed
