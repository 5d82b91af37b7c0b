"""Micro-batches that are ended early in one kind of Spark session; run by test_end_of_rows.py.

Arguments: kind of session, bootstrap servers, folder, and for each micro-batch <topic>:<way>:<end>,
with format or foreach_batch as the way. How it is ended: "raise", "stop", "kill" (an executor;
Spark repeats its tasks) or "speculate" (while a second attempt of a slow task runs, Spark or the
sink ends the first one). At the end, the micro-batches are complete.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
from local_session import session_builder
from long_micro_batch import (
    EVERY_TWENTIETH,
    RAISE,
    SETTINGS,
    SLEEP,
    LongMicroBatch,
    await_micro_batch,
    await_records,
)
from pyspark.errors import StreamingQueryException
from topics import Topics

from spark_kafka_sink.deadline import Deadline

kind, servers, folder, *cases = sys.argv[1:]
builder = session_builder(kind)
if any(case.endswith(":speculate") for case in cases):
    builder = builder.config("spark.speculation", "true").config(
        "spark.speculation.quantile", "0.5"
    )
    builder = builder.config("spark.speculation.multiplier", "1.01")
spark = builder.getOrCreate()
for name, value in SETTINGS.items():
    spark.conf.set(name, value)


def executors():
    """Their process ids."""
    tasks = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):  # it may have ended
            if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                tasks.append(process.pid)
    return tasks


def attempts_beside_a_speculative_one():
    """The states of the first attempts of tasks that Spark has begun a second time."""
    store = spark.sparkContext._jsc.sc().statusStore()
    for stage in spark.sparkContext.statusTracker().getActiveStageIds():
        page = store.taskList(stage, 0, 100)
        tasks = [page.apply(number) for number in range(page.size())]
        twice = {task.index() for task in tasks if task.speculative()}
        yield from (
            task.status() for task in tasks if task.attempt() == 0 and task.index() in twice
        )


def end_at_a_row(batch, topics, topic):
    row = batch.rows_of(0)[2_000]
    try:
        batch.start(f"value = {row}", RAISE).awaitTermination(60)
    except StreamingQueryException as error:
        assert "the query fails here" in str(error)  # noqa: PT017 - no test framework here
    else:
        raise AssertionError("the query did not fail")


def stop_the_query(batch, topics, topic):
    query = batch.start(EVERY_TWENTIETH, SLEEP)
    await_records(topics, topic)
    query.stop()


def await_speculation(batch, topics, topic):
    slow = SLEEP.replace("20L", "100L")
    query = batch.start(f"{EVERY_TWENTIETH} and spark_partition_id() = 0", slow)
    deadline = Deadline(90)
    while not {"FAILED", "KILLED", "SUCCESS"}.intersection(attempts_beside_a_speculative_one()):
        assert not deadline.expired
        assert query.exception() is None
        time.sleep(0.1)
    query.stop()


def kill_an_executor(batch, topics, topic):
    query = batch.start(EVERY_TWENTIETH, SLEEP)
    await_records(topics, topic)
    os.kill(executors()[0], signal.SIGKILL)
    await_micro_batch(query)
    assert query.exception() is None
    query.stop()


ENDS = {
    "raise": end_at_a_row,
    "stop": stop_the_query,
    "kill": kill_an_executor,
    "speculate": await_speculation,
}
topics = Topics(servers)
for case in cases:
    topic, way, end = case.split(":")
    batch = LongMicroBatch(spark, servers, topic, Path(folder, topic), way)
    ENDS[end](batch, topics, topic)
    batch.complete()
topics.close()
spark.stop()
