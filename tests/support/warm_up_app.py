"""Warms up a fresh session and then writes; run by test_warm_up.py.

Arguments: bootstrap servers, topic. Prints what warm_up returned as JSON, waits for a line, writes
a micro-batch of 100 rows.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile

from local_session import session_builder

import spark_kafka_sink

servers, topic = sys.argv[1:]
spark = session_builder("local[2]").getOrCreate()
options = {"kafka.bootstrap.servers": servers, "topic": topic}
print(json.dumps(dataclasses.asdict(spark_kafka_sink.warm_up(spark, options, 150.0))), flush=True)
sys.stdin.readline()
rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
with tempfile.TemporaryDirectory() as checkpoint:
    writer = rows.selectExpr("cast(value as string) as value").writeStream.format("kafka-nb")
    writer = writer.options(**options).option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(60)
spark.stop()
