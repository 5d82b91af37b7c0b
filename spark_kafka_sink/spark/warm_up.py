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

_SHORTEST_WAIT_SECONDS = 0.001  # Spark accepts no 0
QUERY_NAME = "kafka-nb warm-up"


@dataclass(frozen=True)
class WarmUpResult:
    """What ``warm_up`` did.

    ``seconds`` it took; ``micro_batch_seconds`` of it went into the micro-batch without rows, 0.0
    if it was not finished. ``problem`` says why not, in words, or is "".
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
    the metadata of the option ``topic``. Give it the ``options`` of the query that follows, so that
    this one finds its producers. Workers that stay idle for a minute are ended by Spark, and
    executors that come later are cold.

    May run in a thread of its own while the source is prepared. Never raises for what goes wrong:
    the result and a log line tell it.
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
    except Exception as error:  # noqa: BLE001 - whatever it is, the application goes on
        problem = str(error) or type(error).__name__
    if problem:
        _log.warning("warm-up: %s", problem)
    return WarmUpResult(time.monotonic() - started, micro_batch_seconds, problem)


def _run(
    spark: SparkSession, options: dict[str, str], checkpoint: str, deadline: Deadline
) -> tuple[float, str]:
    writer = _no_rows(spark).writeStream.format(FORMAT).options(**options).queryName(QUERY_NAME)
    writer = writer.option("checkpointLocation", f"file://{checkpoint}")
    # One micro-batch that ends by itself: to stop a second one would end its workers.
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
    """A stream with as many partitions as tasks run at a time, all of them empty."""
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    return stream.where("value < 0").selectExpr(
        "cast(null as string) as topic", "cast(null as string) as value"
    )
