"""Exactly-once, when Spark ends a task before it has passed all rows.

A task has many Arrow batches of ten rows, so pyarrow takes the end of the connection between two of
them for the end of the rows.
"""

from __future__ import annotations

import time

import pytest
from exactly_once_sink import SETTINGS
from pyspark.errors import StreamingQueryException
from topics import Topics

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.local_kafka import LocalKafka

ROWS = 40_000
PARTITIONS = 2


@pytest.fixture(scope="module")
def kafka():
    with LocalKafka(settings=SETTINGS) as kafka:
        yield kafka


@pytest.fixture
def topics(kafka):
    topics = Topics(kafka.bootstrap_servers)
    yield topics
    topics.close()


@pytest.fixture
def small_batches(spark):
    """A session whose Arrow batches have ten rows."""
    session = spark.newSession()
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 10)
    session.conf.set("spark.sql.shuffle.partitions", PARTITIONS)
    return session


class Query:
    """A query with a micro-batch of ROWS rows; their value is their number."""

    def __init__(self, spark, topics, folder, way):
        self._spark, self._topics, self._folder, self._way = spark, topics, folder, way
        self.topic = topics.create(1)
        self._options = {
            "kafka.bootstrap.servers": topics.bootstrap_servers,
            "topic": self.topic,
            "delivery.guarantee": "exactly-once",
            "exactly.once.partitions": str(PARTITIONS),
        }

    def rows_of(self, partition):
        """The rows of a Spark partition, in the order in which it has them."""
        rows = self._spark.range(ROWS).where(f"pmod(hash(id), {PARTITIONS}) = {partition}")
        return sorted(row.id for row in rows.collect())

    def start(self, condition="false", effect="''"):
        """An effect for the rows that meet a condition, once they are in their partition."""
        source = self._spark.readStream.format("rate-micro-batch").option("numPartitions", 1)
        rows = source.option("rowsPerBatch", ROWS).load().where(f"value < {ROWS}")
        rows = rows.repartition(PARTITIONS, "value")
        rows = rows.selectExpr(f"concat(value, if({condition}, {effect}, '')) as value")
        writer = rows.writeStream.option("checkpointLocation", str(self._folder))
        if self._way == "format":
            writer = writer.format("kafka-nb").options(**self._options)
        else:
            writer = writer.foreachBatch(foreach_batch(self._options))
        return writer.start()

    def await_records(self):
        """Until a task of a query that runs has sent some rows."""
        deadline = Deadline(60)
        while not any(self._topics.ends(self.topic)[1].values()):
            assert not deadline.expired
            time.sleep(0.01)

    def complete(self):
        """Let the query complete the micro-batch; every row is committed once then."""
        query = self.start()
        try:
            deadline = Deadline(60)
            while query.lastProgress is None and query.exception() is None:
                assert not deadline.expired
                time.sleep(0.1)
            assert query.exception() is None
        finally:
            query.stop()
        values = self._topics.read_committed(self.topic)
        assert sorted(map(int, values)) == list(range(ROWS))


@pytest.fixture(params=["format", "foreach_batch"])
def query(small_batches, topics, tmp_path, request):
    return Query(small_batches, topics, tmp_path / "checkpoint", request.param)


RAISE = "raise_error('the query fails here')"
#: makes a micro-batch last for some seconds
SLEEP = "substring(reflect('java.lang.Thread', 'sleep', 20L), 1, 0)"


# Before the first row, around the end of the first Arrow batch, in the middle, around the last row.
@pytest.mark.parametrize("position", [0, 1, 9, 10, 11, 5_000, -11, -10, -2, -1])
def test_a_query_that_fails_at_a_row(query, position):
    row = query.rows_of(0)[position]
    with pytest.raises(StreamingQueryException, match="the query fails here"):
        query.start(f"value = {row}", RAISE).awaitTermination(60)
    query.complete()


def test_a_task_that_fails_while_another_one_sends(query):
    row = query.rows_of(1)[-1]
    slow = f"value % 100 = 0 and spark_partition_id() = 0 or value = {row}"
    effect = f"if(value = {row}, {RAISE}, {SLEEP})"
    failing = query.start(slow, effect)
    query.await_records()
    with pytest.raises(StreamingQueryException, match="the query fails here"):
        failing.awaitTermination(60)
    query.complete()


@pytest.mark.parametrize("seconds", [0.0, 0.2, 1.0])
def test_a_query_that_is_stopped(query, seconds):
    stopped = query.start("value % 100 = 0", SLEEP)
    query.await_records()
    time.sleep(seconds)
    stopped.stop()
    query.complete()


def test_a_job_group_that_is_cancelled(query, spark):
    cancelled = query.start("value % 100 = 0", SLEEP)
    query.await_records()
    spark.sparkContext.cancelJobGroup(str(cancelled.runId))
    with pytest.raises(StreamingQueryException, match="cancelled"):
        cancelled.awaitTermination(60)
    query.complete()
