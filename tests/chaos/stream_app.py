"""The streams of a run, in one Spark application; a query that fails starts again.

Arguments: bootstrap servers, milliseconds between micro-batches. ``CHAOS_FOLDER``: the run's
folder, with checkpoints. Writes the Spark partition of every key to a file there. Ends after the
line "stop" on standard input, and at once when that closes: then whoever started it is gone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from evidence import FAILURES, KEYS_FILE
from pyspark.sql import SparkSession
from pyspark.sql.functions import expr
from ways import ALL_WAYS, FORMAT, KEYS, ROWS_PER_BATCH, SPARK_PARTITIONS, Way

import spark_kafka_sink

_RESTART_SECONDS = 0.5
_FOLDER = Path(os.environ["CHAOS_FOLDER"])
_KEY = f"cast(id % {KEYS} as string)"


def main() -> None:
    servers, milliseconds = sys.argv[1:]
    stopping = threading.Event()
    threading.Thread(target=_listen, args=(stopping,), daemon=True).start()
    spark = session()
    keys = spark.range(KEYS).selectExpr("id", f"pmod(hash({_KEY}), {SPARK_PARTITIONS}) p")
    (_FOLDER / KEYS_FILE).write_text(json.dumps([row.p for row in sorted(keys.collect())]))
    threads = [
        threading.Thread(target=_keep_running, args=(spark, way, servers, milliseconds, stopping))
        for way in ALL_WAYS
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spark.stop()


def session() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        SparkSession.builder.master(f"local[{SPARK_PARTITIONS},4]")
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


def _listen(stopping: threading.Event) -> None:
    line = sys.stdin.readline()
    if not line:
        os._exit(1)
    stopping.set()
    sys.stdin.read()
    os._exit(1)


def _keep_running(
    spark: SparkSession, way: Way, servers: str, milliseconds: str, stopping: threading.Event
) -> None:
    spark_kafka_sink.register(spark)
    while not stopping.is_set():
        query = None
        try:
            query = _start(spark, way, servers, milliseconds)
            while not stopping.is_set() and not query.awaitTermination(1):
                pass
        except Exception as error:  # noqa: BLE001 - the run judges whatever ended the query
            _report(way, str(error))
            stopping.wait(_RESTART_SECONDS)
        finally:
            if query is not None:
                query.stop()


def _start(spark: SparkSession, way: Way, servers: str, milliseconds: str):
    source = spark.readStream.format("rate-micro-batch").option("numPartitions", 1)
    rows = source.option("rowsPerBatch", ROWS_PER_BATCH).load().selectExpr("value as id")
    # From one partition of the source, so the rows of a key stay in its order.
    rows = rows.repartition(SPARK_PARTITIONS, expr(_KEY))
    rows = rows.selectExpr(f"{_KEY} as key", "concat(id, ' ', repeat('x', 90)) as value")
    options = way.options(servers)
    writer = rows.writeStream.queryName(way.topic)
    if way.api == FORMAT:
        writer = writer.format("kafka-nb").options(**options)
    else:
        writer = writer.foreachBatch(spark_kafka_sink.foreach_batch(options))
    writer = writer.option("checkpointLocation", str(_FOLDER / "checkpoints" / way.topic))
    return writer.trigger(processingTime=f"{milliseconds} milliseconds").start()


def _report(way: Way, text: str) -> None:
    line = json.dumps({"topic": way.topic, "text": text[:20_000], "at": time.monotonic()})
    with (_FOLDER / FAILURES).open("a") as failures:
        failures.write(f"{line}\n")


if __name__ == "__main__":
    main()
