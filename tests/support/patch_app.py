"""Writes with format("kafka") under Spark Connect after patch_pyspark(); run by test_patch.py.

Arguments: bootstrap servers, topic, folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

from local_session import session_builder
from streams import counts, patiently, run, stream_of

from spark_kafka_sink import UnsupportedSaveMode, patch_pyspark, unpatch_pyspark

servers, topic, folder = sys.argv[1:]
spark = session_builder("connect").getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", "2")
options = {"kafka.bootstrap.servers": servers, "topic": topic}
patch_pyspark()


def start(stream, name):
    (Path(folder) / name).mkdir()
    query = patiently(lambda: run(stream, Path(folder) / name))
    if query.exception():
        raise query.exception()


batch = spark.range(1).selectExpr("'batch' AS value")
batch.write.format("kafka").options(**options, truncate=None).partitionBy("value").save("ignored")
batch.write.save(format="KAFKA", mode="error", preflight=True, **options)
for mode in ("overwrite", "ignore"):
    try:
        batch.write.format("kafka").options(**options).mode(mode).save()
    except UnsupportedSaveMode as error:
        print(error)
batch.write.save(f"{folder}/json", format="json")
assert spark.read.json(f"{folder}/json").count() == 1

words = stream_of(spark, Path(folder) / "words", ["a"], ["b"])
start(words.writeStream.partitionBy("value").format("kafka").options(**options), "append")
updates = counts(words).selectExpr("concat('update-', key) AS value")
start(updates.writeStream.format("kafka").options(**options).outputMode("update"), "update")


def write(batch, batch_id):
    named = batch.selectExpr(f"concat('in-{batch_id}-', value) AS value")
    named.write.format("kafka").options(**options).save()


start(words.writeStream.foreachBatch(write), "function")
unpatch_pyspark()
spark.stop()
