"""Writes rows to Kafka and prints where the driver and a task found PySpark, as JSON.

Arguments: kind of session ("submitted": by spark-submit), bootstrap servers, topic.
"""

from __future__ import annotations

import json
import sys

import py4j
import pyarrow as pa
import pyspark
from pyspark.sql import SparkSession

kind, servers, topic = sys.argv[1:]
builder = SparkSession.builder
if kind == "connect":
    builder = builder.remote("local[1]")
else:
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.bindAddress", "127.0.0.1")
    if kind != "submitted":
        builder = builder.master(kind)
spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()


def origins(batches):
    import py4j
    import pyspark

    yield from batches
    yield pa.RecordBatch.from_pydict({"origin": [pyspark.__file__, py4j.__file__]})


rows = spark.range(3, numPartitions=1).selectExpr("concat('row-', id) as value")
rows.write.format("kafka-nb").option("kafka.bootstrap.servers", servers).option(
    "topic", topic
).mode("append").save()
nothing = spark.range(0, numPartitions=1).selectExpr("cast(id as string) as origin")
task = [row.origin for row in nothing.mapInArrow(origins, "origin string").collect()]
print(json.dumps({"driver": [pyspark.__file__, py4j.__file__], "task": task}))
spark.stop()
