"""A query whose tasks have many Arrow batches, so that Spark can end them between two of them."""

from __future__ import annotations

from streams import direct, patiently
from waiting import wait_until

from spark_kafka_sink.deadline import Deadline

ROWS = 8_000
PARTITIONS = 2
#: for the session
SETTINGS = {
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
}

RAISE = "raise_error('the query fails here')"
#: makes a micro-batch last for some seconds, if every twentieth row does it
SLEEP = "substring(reflect('java.lang.Thread', 'sleep', 20L), 1, 0)"
EVERY_TWENTIETH = "value % 20 = 0"

_SECONDS = 60


class LongMicroBatch:
    """An exactly-once query with a micro-batch of ROWS rows; their value is their number."""

    def __init__(self, spark, servers, topic, folder, way):
        self._spark, self._folder, self._way = spark, folder, way
        self.options = {
            "kafka.bootstrap.servers": servers,
            "topic": topic,
            "delivery.guarantee": "exactly-once",
            "exactly.once.partitions": str(PARTITIONS),
            "transactional.id.prefix": topic,
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
        writer = direct(writer, self._way, self.options)
        return patiently(writer.start)

    def complete(self):
        """Start the query without any effect, until the micro-batch is complete."""
        deadline = Deadline(_SECONDS)
        while True:
            query = self.start()
            try:
                await_micro_batch(query)
            finally:
                query.stop()
            error = query.exception()
            if error is None:
                return
            assert is_of_earlier_task(error), error
            assert not deadline.expired

    def start_sending(self, topics, topic):
        """Start the query with rows that take time; a task of it has sent some, and it runs."""
        deadline = Deadline(_SECONDS)
        while True:
            query = self.start(EVERY_TWENTIETH, SLEEP)
            wait_until(
                lambda query=query: query.exception() or has_records(topics, topic), _SECONDS
            )
            if (error := query.exception()) is None:
                return query
            assert is_of_earlier_task(error), error
            assert not deadline.expired


def is_of_earlier_task(error):
    """Whether a task failed because of one that Spark had interrupted some seconds before.

    If that one was still starting its transaction, it fences the next attempt. And Spark 3.5 may
    end a Python worker of that task that it has given to another one.
    """
    return "TransactionFenced" in str(error) or "java.net.SocketException: Socket" in str(error)


def await_micro_batch(query):
    """Until it is complete, or the query has failed."""
    wait_until(lambda: query.lastProgress or query.exception(), _SECONDS)


def has_records(topics, topic):
    """Whether a task of a query that runs has sent some rows."""
    return any(topics.ends(topic)[1].values())


def await_records(topics, topic):
    wait_until(lambda: has_records(topics, topic), _SECONDS)


def every_row_is_committed_once(topics, topic):
    return sorted(map(int, topics.read_committed(topic))) == list(range(ROWS))
