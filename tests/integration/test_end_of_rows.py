"""Exactly-once, when Spark ends a task before it has passed all rows.

A task has many Arrow batches of ten rows, so pyarrow takes the end of the connection between two of
them for the end of the rows.
"""

from __future__ import annotations

import threading
import time

import pytest
from exactly_once_sink import SETTINGS
from pyspark.errors import StreamingQueryException
from topics import Topics

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.local_kafka import LocalKafka

# Enough that Spark cannot have buffered them all when a row in the middle fails.
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
    """A query with one micro-batch of ROWS rows, whose partitions have every other one of them."""

    def __init__(self, spark, topics, folder, way):
        self._spark, self._folder, self._way = spark, folder, way
        self._topics = topics
        self.topic = topics.create(1)
        self.options = {
            "kafka.bootstrap.servers": topics.bootstrap_servers,
            "topic": self.topic,
            "delivery.guarantee": "exactly-once",
            "exactly.once.partitions": str(PARTITIONS),
        }

    def start(self, value="string(value)"):
        """``value``: an expression of the column value, which is the row's number."""
        source = self._spark.readStream.format("rate-micro-batch").option("numPartitions", 1)
        rows = source.option("rowsPerBatch", ROWS).load().where("value < 40000")
        # A partition keeps the order of its rows.
        rows = rows.repartition(PARTITIONS, "value").selectExpr(f"{value} as value")
        writer = rows.writeStream.option("checkpointLocation", str(self._folder))
        if self._way == "format":
            writer = writer.format("kafka-nb").options(**self.options)
        else:
            writer = writer.foreachBatch(foreach_batch(self.options))
        return writer.start()

    def complete(self):
        """Let the micro-batch be completed, by the same query without the fault."""
        query = self.start()
        try:
            while query.lastProgress is None and query.exception() is None:
                time.sleep(0.1)
            assert query.exception() is None
        finally:
            query.stop()
        values = [int(value) for value in self.committed()]
        assert sorted(values) == list(range(ROWS))

    def committed(self):
        return self._topics.read_committed(self.topic)


@pytest.fixture(params=["format", "foreach_batch"])
def query(small_batches, topics, tmp_path, request):
    return Query(small_batches, topics, tmp_path / "checkpoint", request.param)


# Of a partition's about 20,000 rows, which are in Arrow batches of ten.
@pytest.mark.parametrize("position", [0, 9, 10, 11, 5_000, 19_000])
def test_a_query_that_fails_in_the_middle_of_a_partition(query, position):
    failing = query.start(
        f"if(monotonically_increasing_id() % 8589934592 = {position} and spark_partition_id() = 0, "
        "raise_error('the query fails here'), string(value))"
    )
    with pytest.raises(StreamingQueryException, match="the query fails here"):
        failing.awaitTermination(60)
    assert len(query.committed()) in (0, ROWS - partition_size(query))
    query.complete()
