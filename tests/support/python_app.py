"""Writes rows to Kafka and prints where the driver and a task found PySpark, as JSON.

Arguments: kind of session ("submitted": by spark-submit), bootstrap servers, topic, "registered" or
"found".
"""

from __future__ import annotations

import json
import sys

import py4j
import pyarrow as pa
import pyspark
from local_session import session_builder

import spark_kafka_sink

kind, servers, topic, how = sys.argv[1:]
spark = session_builder(kind).getOrCreate()
if how == "registered":
    spark_kafka_sink.register(spark)


def origins(batches):
    import py4j
    import pyspark

    list(batches)
    yield pa.RecordBatch.from_pydict({"origin": [pyspark.__file__, py4j.__file__]})


rows = spark.range(3, numPartitions=1).selectExpr("concat('row-', id) as value")
options = {"kafka.bootstrap.servers": servers, "topic": topic}
rows.write.format("kafka-nb").options(**options).mode("append").save()
imported = spark.range(1, numPartitions=1).mapInArrow(origins, "origin string").collect()
task = [row.origin for row in imported]
print(json.dumps({"driver": [pyspark.__file__, py4j.__file__], "task": task}))
spark.stop()
