"""Exactly-once, when Spark ends a task before it has passed all rows.

pyarrow takes the end of the connection between two Arrow batches for the end of the rows.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from long_micro_batch import (
    EVERY_TWENTIETH,
    RAISE,
    SETTINGS,
    SLEEP,
    LongMicroBatch,
    every_row_is_committed_once,
)
from pyspark.errors import StreamingQueryException
from standalone import standalone_cluster

APP = Path(__file__).parent.parent / "support" / "end_of_rows_app.py"


@pytest.fixture
def topics(own_topics):
    return own_topics


@pytest.fixture
def topic(topics):
    return topics.create(1)


@pytest.fixture
def batch(spark, topics, topic, tmp_path, way):
    session = spark.newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    folder = tmp_path / "checkpoint"
    batch = LongMicroBatch(session, topics.bootstrap_servers, topic, folder, way)
    yield batch
    batch.complete()
    assert every_row_is_committed_once(topics, topic)


# Before the first row, around the end of the first Arrow batch, in the middle, at the last row.
@pytest.mark.parametrize(
    ("way", "position"),
    [
        ("format", 0),
        *(
            pytest.param(way, row, marks=pytest.mark.slow)
            for way, row in [
                ("format", 10),
                ("format", 2_000),
                ("format", -1),
                ("foreach_batch", 10),
            ]
        ),
    ],
)
def test_a_query_that_fails_at_a_row(batch, position):
    row = batch.rows_of(0)[position]
    with pytest.raises(StreamingQueryException, match="the query fails here"):
        batch.start(f"value = {row}", RAISE).awaitTermination(60)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["format"])
def test_a_task_that_fails_while_another_one_sends(batch):
    row = batch.rows_of(1)[-1]
    slow = f"{EVERY_TWENTIETH} and spark_partition_id() = 0"
    failing = batch.start(f"{slow} or value = {row}", f"if(value = {row}, {RAISE}, {SLEEP})")
    with pytest.raises(StreamingQueryException, match="the query fails here"):
        failing.awaitTermination(60)


@pytest.mark.parametrize("way", [pytest.param("format", marks=pytest.mark.slow), "foreach_batch"])
def test_a_query_that_is_stopped(batch, topics, topic):
    batch.start_sending(topics, topic).stop()


@pytest.mark.slow
@pytest.mark.parametrize("way", ["foreach_batch"])
def test_a_job_group_that_is_cancelled(batch, topics, topic, spark):
    cancelled = batch.start_sending(topics, topic)
    spark.sparkContext.cancelJobGroup(str(cancelled.runId))
    with pytest.raises(StreamingQueryException, match="cancelled"):
        cancelled.awaitTermination(60)


def app(topics, folder, kind, *cases):
    """Run the application in a session of that kind; every row is there once then."""
    names = [topics.create(1) for _ in cases]
    ends = [f"{name}:{way}:{end}" for name, (way, end) in zip(names, cases, strict=True)]
    command = [sys.executable, str(APP), kind, topics.bootstrap_servers, str(folder), *ends]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert answer.returncode == 0, answer.stderr
    for name in names:
        assert every_row_is_committed_once(topics, name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "cases"),
    [
        ("connect", [("format", "raise"), ("foreach_batch", "stop")]),
        ("local-cluster[2,1,1024]", [("format", "kill")]),
    ],
)
def test_tasks_that_end_early_in_other_sessions(topics, tmp_path, kind, cases):
    app(topics, tmp_path, kind, *cases)


@pytest.mark.slow
def test_attempts_that_spark_speculates(topics, tmp_path):
    # Spark starts no second attempt on the host of the first one.
    with standalone_cluster(tmp_path, hosts=["127.0.0.1", "127.0.0.2"]) as master:
        app(topics, tmp_path, master, ("format", "speculate"))
