"""A micro-batch that is ended early in one kind of Spark session; run by test_end_of_rows.py.

Arguments: kind of session, bootstrap servers, topic, folder, format or foreach_batch, and how it is
ended: "raise", "stop", "kill" (an executor; Spark repeats its tasks) or "speculate" (Spark repeats
tasks that are slow). At the end, the micro-batch is complete.
"""

from __future__ import annotations

import os
import signal
import sys

import psutil
from long_micro_batch import (
    EVERY_HUNDREDTH,
    RAISE,
    SETTINGS,
    SLEEP,
    LongMicroBatch,
    await_records,
)
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from topics import Topics

kind, servers, topic, folder, way, end = sys.argv[1:]
os.environ["PYSPARK_PYTHON"] = sys.executable
if kind == "connect":
    builder = SparkSession.builder.remote("local[2]")
else:
    builder = SparkSession.builder.master(kind)
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
if end == "speculate":
    builder = builder.config("spark.speculation", "true")
    builder = builder.config("spark.speculation.multiplier", "1.0")
    builder = builder.config("spark.speculation.quantile", "0.1")
    builder = builder.config("spark.speculation.interval", "10ms")
    builder = builder.config("spark.speculation.minTaskRuntime", "1ms")
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
for name, value in SETTINGS.items():
    spark.conf.set(name, value)

topics = Topics(servers)
batch = LongMicroBatch(spark, servers, topic, folder, way)
if end == "raise":
    row = batch.rows_of(0)[10_000]
    try:
        batch.start(f"value = {row}", RAISE).awaitTermination(60)
    except StreamingQueryException as error:
        assert "the query fails here" in str(error)  # noqa: PT017 - no test framework here
    else:
        raise AssertionError("the query did not fail")
elif end == "stop":
    query = batch.start(EVERY_HUNDREDTH, SLEEP)
    await_records(topics, topic)
    query.stop()
elif end == "kill":
    query = batch.start(EVERY_HUNDREDTH, SLEEP)
    await_records(topics, topic)
    processes = psutil.Process().children(recursive=True)
    executors = [p for p in processes if "CoarseGrainedExecutorBackend" in " ".join(p.cmdline())]
    os.kill(executors[0].pid, signal.SIGKILL)
    query.processAllAvailable()
    query.stop()
else:
    # One partition is slower than the other, so its task gets a twin.
    query = batch.start(f"{EVERY_HUNDREDTH} and spark_partition_id() = 0", SLEEP)
    try:
        query.processAllAvailable()
    except StreamingQueryException as error:
        # Attempts fence each other, perhaps until Spark gives up.
        assert "TransactionFenced" in str(error)  # noqa: PT017
    query.stop()
batch.complete()
topics.close()
spark.stop()
