"""warm_up: pays a session's start-up costs before its first real micro-batch."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.spark.datasource import FORMAT, make_known
from spark_kafka_sink.spark.speculation import warn_of_speculation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger("spark_kafka_sink")

_SHORTEST_WAIT_SECONDS = 0.001  # Spark does not accept 0
QUERY_NAME = "kafka-nb warm-up"


@dataclass(frozen=True)
class WarmUpResult:
    """The outcome of ``warm_up``.

    ``seconds``: how long it took. ``micro_batch_seconds``: how long the micro-batch without rows
    took, or 0.0 if it did not finish. ``problem``: why it did not finish, or "".
    """

    seconds: float
    micro_batch_seconds: float
    problem: str


def warm_up(
    spark: SparkSession, options: Mapping[str, str], timeout_seconds: float = 60.0
) -> WarmUpResult:
    """Run one micro-batch without rows through ``format("kafka-nb")``; changes nothing in Kafka.

    Starts what the first micro-batch of a session would wait for: Spark's four kinds of Python
    worker with their imports, a producer in each worker that may run a task, its connections, and
    the metadata of the option ``topic``. Pass the ``options`` of the query that follows, so that it
    finds its producers. Spark stops workers that are idle for a minute, and executors that start
    later are cold.

    May run in its own thread while the source is being prepared. If something goes wrong it does
    not raise; the result and the log say what.
    Issues a UserWarning if the session has ``spark.speculation``.
    """
    started = time.monotonic()
    deadline = Deadline(timeout_seconds)
    micro_batch_seconds, problem = 0.0, ""
    try:
        make_known(spark)
        warn_of_speculation(spark)
        with tempfile.TemporaryDirectory(prefix="kafka-nb-warm-up-") as checkpoint:
            micro_batch_seconds, problem = _run(spark, dict(options), checkpoint, deadline)
    except Exception as error:  # noqa: BLE001 - the application must go on
        problem = str(error) or type(error).__name__
    if problem:
        _log.warning("warm-up: %s", problem)
    return WarmUpResult(time.monotonic() - started, micro_batch_seconds, problem)


def _run(
    spark: SparkSession, options: dict[str, str], checkpoint: str, deadline: Deadline
) -> tuple[float, str]:
    writer = _no_rows(spark).writeStream.format(FORMAT).options(**options).queryName(QUERY_NAME)
    writer = writer.option("checkpointLocation", f"file://{checkpoint}")
    # The query ends after one micro-batch; stopping it during a second one would end its workers.
    query = writer.trigger(availableNow=True).start()
    try:
        seconds = max(_SHORTEST_WAIT_SECONDS, deadline.remaining())
        is_over = query.awaitTermination(seconds)  # type: ignore[arg-type] # takes a float too
    finally:
        query.stop()
    progress = query.lastProgress
    if not is_over or progress is None:
        return 0.0, "not finished in time"
    return progress["durationMs"]["triggerExecution"] / 1000, ""


def _no_rows(spark: SparkSession) -> DataFrame:
    """A stream with as many partitions as tasks run at a time, all empty."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    return stream.where("value < 0").selectExpr(
        "cast(null as string) as topic", "cast(null as string) as value"
    )
