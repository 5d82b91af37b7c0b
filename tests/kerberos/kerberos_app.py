"""Writes streams with a login of Kerberos; run by test_kerberos.py with spark-submit.

Its argument is JSON: ``folder``, ``options``, ``topics`` by way of writing, and ``seconds``. Each
stream has two micro-batches, and the second one is repeated as after a crash of the driver. With
``seconds``, all streams write a number a second instead, side by side, for so long.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from streams import FROM_DRIVER, direct, exactly_once, forget_commit, stream_of

from spark_kafka_sink import foreach_batch

arguments = json.loads(sys.argv[1])
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("WARN")


def write(way, options, folder):
    words = [[f"{batch}-{number}" for number in range(500)] for batch in range(2)]
    rows = stream_of(spark, folder / "words", *words).repartition(2)
    once = options | exactly_once(options["topic"], 2)
    if way == "from_driver":
        del once["exactly.once.partitions"]
        writer = rows.writeStream.foreachBatch(foreach_batch(once | FROM_DRIVER))
    else:
        writer = direct(rows.writeStream, way, once)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()
    forget_commit(folder / "checkpoint", 1)
    writer.start().awaitTermination()


def start(way, options, folder):
    rows = spark.readStream.format("rate").option("rowsPerSecond", 1).load()
    writer = direct(rows.selectExpr("string(value) AS value").writeStream, way, options)
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(processingTime="1 second").start()


queries = []
for way, topic in arguments["topics"].items():
    folder = Path(arguments["folder"], way)
    folder.mkdir()
    options = arguments["options"] | {"topic": topic}
    if arguments["seconds"]:
        queries.append(start(way, options, folder))
    else:
        write(way, options, folder)
end = time.monotonic() + arguments["seconds"]
while time.monotonic() < end and all(query.isActive for query in queries):
    time.sleep(1)
for query in queries:
    assert query.exception() is None, query.exception()
    query.stop()
spark.stop()
