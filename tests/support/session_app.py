"""Writes a stream and a batch to Kafka in one kind of Spark session; run by test_sessions.py.

Arguments: kind of session, bootstrap servers, topic, folder, "registered" or "found", and the URL
of a schema registry, whose schemas the topic ``<topic>-avro`` gets.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import redaction
from local_session import session_builder
from pyspark.sql import functions as F
from streams import patiently
from waiting import wait_until

import spark_kafka_sink
from spark_kafka_sink.spark import private_api

kind, servers, topic, folder, how, registry = sys.argv[1:]
Path(folder, "events").mkdir()
builder = (
    session_builder(kind)
    .config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.compress", "false")
    .config("spark.eventLog.dir", f"file://{folder}/events")
    .config("spark.sql.ui.explainMode", "extended")
)
for name, pattern in redaction.redaction_settings().items():
    builder = builder.config(name, pattern)
if how == "registered":
    os.environ["PYSPARK_PYTHON"] = sys.executable  # with PySpark from Spark's zip
    # A local master never speculates.
    builder = builder.config("spark.speculation", "true")
spark = builder.getOrCreate()
if how == "registered":
    spark_kafka_sink.register(spark)
spark.conf.set("spark.sql.shuffle.partitions", "2")
options = {"kafka.bootstrap.servers": servers, "topic": topic, **redaction.LOGIN}

batch = spark.range(0, 500, numPartitions=4).selectExpr("concat('batch-', id) as value")
batch.write.format("kafka-nb").options(**options).mode("append").save()

words = Path(folder) / "words"
words.mkdir()
(words / "1.txt").write_text("stream-a\nstream-b\nstream-a")
stream = spark.readStream.format("text").load(str(words))


def finish(writer, checkpoint):
    writer = writer.option("checkpointLocation", f"{folder}/{checkpoint}")
    query = patiently(writer.trigger(availableNow=True).start)
    assert query.awaitTermination(240), f"{checkpoint}: {query.status}"
    if query.exception():
        raise query.exception()


def seconds_since_change(path):
    return time.time() - path.stat().st_mtime if path.exists() else 6


finish(stream.writeStream.format("kafka-nb").options(**options), "append")

avro = {
    "kafka.bootstrap.servers": servers,
    "topic": f"{topic}-avro",
    "value.format": "avro",
    "schema.registry.url": registry,
}
structs = stream.selectExpr("named_struct('word', value) AS value")
finish(structs.writeStream.format("kafka-nb").options(**avro), "avro")
sink = spark_kafka_sink.foreach_batch(avro)
finish(structs.writeStream.foreachBatch(sink), "avro-in-foreach-batch")
counts = stream.groupBy("value").count()
updates = counts.select(F.concat_ws("=", "value", "count").alias("value"))
sink = spark_kafka_sink.foreach_batch(
    options, lambda report: Path(folder, f"report-{report.batch_id}").write_text(report.to_json())
)
finish(updates.writeStream.outputMode("update").foreachBatch(sink), "update")

if how == "found":
    once = {**options, "delivery.guarantee": "exactly-once", "exactly.once.partitions": "2"}
    rows = stream.selectExpr("concat('once-', value) AS value").repartition(2, "value")
    finish(rows.writeStream.format("kafka-nb").options(**once), "once")
    prefix = {"transactional.id.prefix": f"{topic}-updates"}  # Connect does not give the query's id
    del once["exactly.once.partitions"]  # foreach_batch repartitions
    sink = spark_kafka_sink.foreach_batch(once | prefix)
    updates = updates.selectExpr("concat('once-', value) AS value")
    finish(updates.writeStream.outputMode("update").foreachBatch(sink), "updates-once")

    sink = spark_kafka_sink.foreach_batch({**options, "send.from": "driver"})
    rows = stream.selectExpr("concat('driver-', value) AS value")
    finish(rows.writeStream.foreachBatch(sink), "driver")
    sink(spark.sql("SELECT 'driver-batch' AS value"), None)
    once = {**options, "send.from": "driver", "delivery.guarantee": "exactly-once"}
    write_once = spark_kafka_sink.foreach_batch(
        {**once, "transactional.id.prefix": f"{topic}-driver"}
    )

    def write(frame, batch_id):
        # Without it, exactly-once would take the micro-batch for a batch outside of a stream.
        Path(folder, "in-query").write_text(str(private_api.is_in_query(None)))
        write_once(frame, batch_id)

    rows = stream.selectExpr("concat('driver-once-', value) AS value")
    finish(rows.writeStream.foreachBatch(write), "driver-once")

    bad = spark.range(1).select(
        F.lit(None).cast("string").alias("topic"), F.lit("v").alias("value")
    )
    try:
        bad.write.format("kafka-nb").option("kafka.bootstrap.servers", servers).mode(
            "append"
        ).save()
    except Exception as error:  # noqa: BLE001 - the test is about its text
        print(error)
if kind == "connect" and how == "found":
    # The first row cannot be sent, and it comes when Spark has begun to compute the other one,
    # which takes a minute.
    ticks = Path(folder, "ticks")
    for name in ("large", "slow"):
        Path(folder, name).mkdir()
        Path(folder, name, "1.txt").write_text(name)
    large, slow = (
        spark.readStream.format("text").load(f"{folder}/{name}") for name in ("large", "slow")
    )

    def compute(value):
        if value == "large":
            deadline = time.monotonic() + 60
            while not ticks.exists() and time.monotonic() < deadline:
                time.sleep(0.1)
            return 2_000_000 * "x"
        for _ in range(60):
            with ticks.open("a") as file:
                file.write(".")
            time.sleep(1)
        return value

    rows = large.union(slow).select(F.udf(compute, "string")("value").alias("value"))
    sink = spark_kafka_sink.foreach_batch({**options, "send.from": "driver"})
    try:
        finish(rows.writeStream.foreachBatch(sink), "failing")
    except Exception as error:  # noqa: BLE001 - the test is about its text
        print(error)
    wait_until(lambda: seconds_since_change(ticks) > 5, 90)
spark.stop()
