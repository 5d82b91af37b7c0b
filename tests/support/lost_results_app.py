"""A micro-batch that exhausts the memory of the driver's Java, with send.from=driver; run by
test_killed_driver.py.

Arguments: bootstrap servers, topic, folder. Prints the error of the query as JSON, and starts it
again with small rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from held_drivers import options
from local_session import session_builder
from pyspark.errors import StreamingQueryException
from streams import run, stream_of

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.spark import from_driver

# Spark has a task's result three times, when it has fetched it: that is more than the driver has.
MEGABYTES, ROW_BYTES, DRIVER_MEMORY = 180, 1_000_000, "512m"

servers, topic, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])
from_driver._LOST_RESULTS_SECONDS = 5.0  # instead of 30
# Tasks are in another process, which has the memory. The driver's would end if they ran out of it.
builder = session_builder("local-cluster[1,1,1500]").config("spark.executor.memory", "1500m")
builder = builder.config("spark.driver.memory", DRIVER_MEMORY)
spark = builder.config("spark.driver.maxResultSize", "0").getOrCreate()


def send(row_bytes):
    words = stream_of(spark, folder / "words").coalesce(1)
    value = f"substring(repeat(value, {row_bytes}), 1, {row_bytes}) AS value"
    rows = words.selectExpr(value)
    run(rows.writeStream.foreachBatch(foreach_batch(options(servers, topic))), folder)


(folder / "words").mkdir()
(folder / "words" / "0.txt").write_text("\n".join(["a"] * MEGABYTES))
try:
    send(ROW_BYTES)
except StreamingQueryException as error:
    print(json.dumps(str(error)))
send(1)
spark.stop()
