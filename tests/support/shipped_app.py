"""Writes one micro-batch per topic; run by test_packed_environment.py on a cluster.

Arguments: bootstrap servers, folder, then "format=<topic>" or "foreach_batch=<topic>" in the order
of writing. A key is the JSON of sys.prefix and of the files of pyspark and spark_kafka_sink in the
task that made the row.
"""

from __future__ import annotations

import json
import sys

import pyarrow as pa
from pyspark.sql import SparkSession

from spark_kafka_sink import foreach_batch

servers, folder, *sinks = sys.argv[1:]
spark = SparkSession.builder.getOrCreate()


def add_origin(batches):
    import pyspark

    import spark_kafka_sink

    origin = json.dumps([sys.prefix, pyspark.__file__, spark_kafka_sink.__file__])
    for batch in batches:
        columns = {"key": pa.array([origin] * batch.num_rows), "value": batch.column("value")}
        yield pa.RecordBatch.from_pydict(columns)


stream = spark.readStream.format("rate-micro-batch")
stream = stream.option("rowsPerBatch", 20).option("numPartitions", 2).load()
rows = stream.selectExpr("string(value) AS value").mapInArrow(
    add_origin, "key string, value string"
)
for number, sink in enumerate(sinks):
    how, topic = sink.split("=")
    options = {"kafka.bootstrap.servers": servers, "topic": topic}
    writer = rows.writeStream.option("checkpointLocation", f"{folder}/checkpoint-{number}")
    if how == "format":
        writer = writer.format("kafka-nb").options(**options)
    else:
        writer = writer.outputMode("update").foreachBatch(foreach_batch(options))
    writer.trigger(availableNow=True).start().awaitTermination()
spark.stop()
