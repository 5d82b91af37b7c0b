"""The streams of a run, in one Spark application; a query that fails starts again.

Arguments: bootstrap servers, milliseconds between micro-batches. ``CHAOS_FOLDER``: the run's
folder, with checkpoints. Writes the Spark partition of every key to a file there, for each number
of partitions. Obeys the lines of standard input, and ends at once when that closes: then whoever
started it is gone.

    arm TOPIC ROW ORDER    of orders.py, for the attempt that comes first to this row
    disarm TOPIC ROW ...
    stop TOPIC             the query, which starts again with the partitions that are ordered then
    end
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

import orders
from evidence import FAILURES, KEYS_FILE, error_name, partitions_change
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr
from query_kinds import (
    BAD_PARTITIONS,
    FORMAT,
    KEYS,
    LAYOUTS,
    QUERY_KINDS,
    ROWS_PER_ARROW_BATCH,
    ROWS_PER_BATCH,
    SPARK_PARTITIONS,
    QueryKind,
)

import spark_kafka_sink

_RESTART_SECONDS = 0.5
# A paused row takes one, so there are more than cores.
_TASKS_AT_ONCE = 6
_FOLDER = Path(os.environ["CHAOS_FOLDER"])
_KEY = f"cast(id % {KEYS} as string)"


def main() -> None:
    servers, milliseconds = sys.argv[1:]
    spark = session()
    tables = {number: _spark_partition_of_key(spark, number) for number in LAYOUTS}
    (_FOLDER / KEYS_FILE).write_text(json.dumps(tables))
    streams = {kind.topic: _Stream(spark, kind, servers, milliseconds) for kind in QUERY_KINDS}
    threading.Thread(target=_obey, args=(spark, streams), daemon=True).start()
    for stream in streams.values():
        stream.start()
    for stream in streams.values():
        stream.join()
    spark.stop()


def session() -> SparkSession:
    builder = (
        SparkSession.builder.master(f"local[{_TASKS_AT_ONCE},4]")
        .appName("chaos")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.local.dir", str(_FOLDER / "spark"))
        .config("spark.sql.shuffle.partitions", str(SPARK_PARTITIONS))
        .config("spark.sql.streaming.minBatchesToRetain", "20")
        .config("spark.sql.streaming.stopTimeout", "30s")
        # The state of finished micro-batches must not fill an hour's memory.
        .config("spark.sql.ui.retainedExecutions", "20")
        .config("spark.ui.retainedJobs", "50")
        .config("spark.ui.retainedStages", "50")
        .config("spark.ui.retainedTasks", "500")
    )
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _spark_partition_of_key(spark: SparkSession, number: int) -> list[int]:
    keys = spark.range(KEYS).selectExpr("id", f"pmod(hash({_KEY}), {number}) p")
    return [row.p for row in sorted(keys.collect())]


def _obey(spark: SparkSession, streams: dict[str, _Stream]) -> None:
    system = spark.sparkContext._jvm.java.lang.System
    for line in sys.stdin:
        what, *words = line.split()
        if what == "arm":
            topic, row, *order = words
            system.setProperty(orders.property_name(topic, row), " ".join(order))
        elif what == "disarm":
            topic, *rows = words
            for row in rows:
                if system.clearProperty(orders.property_name(topic, row)) is not None:
                    print(f"{topic}: no attempt came to row {row}", flush=True)
        elif what == "stop":
            streams[words[0]].stop_query()
        else:
            for stream in streams.values():
                stream.end()
    os._exit(1)


class _Stream(threading.Thread):
    """Runs a query until its ``end``."""

    def __init__(
        self, spark: SparkSession, kind: QueryKind, servers: str, milliseconds: str
    ) -> None:
        super().__init__(name=kind.topic)
        self._spark = spark.newSession()
        if kind.has_many_arrow_batches:
            settings = self._spark.conf
            settings.set("spark.sql.execution.arrow.maxRecordsPerBatch", ROWS_PER_ARROW_BATCH)
            # So each of them leaves Spark's Java at once.
            settings.set("spark.sql.execution.pandas.udf.buffer.size", "1024")
        self._kind = kind
        self._servers = servers
        self._milliseconds = milliseconds
        self._ending = threading.Event()
        self._query = None

    def end(self) -> None:
        self._ending.set()

    def stop_query(self) -> None:
        """Returns at once."""
        query = self._query
        if query is not None:
            threading.Thread(target=query.stop, daemon=True).start()

    def run(self) -> None:
        spark_kafka_sink.register(self._spark)
        while not self._ending.is_set():
            number = orders.partitions(_FOLDER, self._kind.topic)
            try:
                self._query = self._start(number)
                while not self._ending.is_set() and not self._query.awaitTermination(1):
                    pass
            except Exception as error:  # noqa: BLE001 - the run judges whatever ended the query
                self._note(str(error), number)
                self._ending.wait(_RESTART_SECONDS)
            finally:
                if self._query is not None:
                    self._query.stop()
                    self._query = None

    def _start(self, partitions: int):
        topic = self._kind.topic
        source = self._spark.readStream.format("rate-micro-batch").option("numPartitions", 1)
        rows = source.option("rowsPerBatch", ROWS_PER_BATCH).load().selectExpr("value as id")
        # From one partition of the source, so the rows of a key stay in its order.
        rows = orders.obeying(rows.repartition(partitions, expr(_KEY)), topic)
        value = "concat(id, ' ', repeat('x', 90))"
        columns = [f"{_KEY} as key", f"if(obeyed = 'yes', {value}, '') as value"]
        if self._kind.dead_letter_topic is not None:
            cases = (f"when {number} then {bad}" for number, bad in BAD_PARTITIONS.items())
            columns.append(f"case id % 100 {' '.join(cases)} end as partition")
        rows = rows.selectExpr(*columns)
        options = self._kind.options(self._servers, partitions, _FOLDER)
        writer = rows.writeStream.queryName(topic)
        if self._kind.api == FORMAT:
            writer = writer.format("kafka-nb").options(**options)
        else:
            writer = writer.foreachBatch(spark_kafka_sink.foreach_batch(options))
        writer = writer.option("checkpointLocation", str(_FOLDER / "checkpoints" / topic))
        return writer.trigger(processingTime=f"{self._milliseconds} milliseconds").start()

    def _note(self, text: str, partitions: int) -> None:
        topic = self._kind.topic
        failure = {
            "topic": topic,
            "text": text[:20_000],
            "at": time.monotonic(),
            "run": "" if self._query is None else str(self._query.runId),
            "partitions": partitions,
        }
        with (_FOLDER / FAILURES).open("a") as failures:
            failures.write(f"{json.dumps(failure)}\n")
        if (
            error_name(text) == "PartitionsChanged"
            and (change := partitions_change(text)) is not None
        ):
            # As the error advises.
            orders.set_partitions(_FOLDER, topic, change.former_partitions)


if __name__ == "__main__":
    main()
