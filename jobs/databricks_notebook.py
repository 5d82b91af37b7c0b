# Databricks notebook source
# MAGIC %md
# MAGIC # Stream to Kafka
# MAGIC
# MAGIC Writes a stream to a Kafka topic with spark-kafka-sink, and shows what arrived. You need:
# MAGIC
# MAGIC - compute with Databricks Runtime 14.3 or later, from which the brokers can be reached;
# MAGIC - the wheel in a volume, and another folder in a volume for the checkpoint;
# MAGIC - a topic, and a login that may write to it: `username` and `password` in a secret scope.
# MAGIC
# MAGIC `docs/databricks.md` in the project's repository has more about compute and libraries.

# COMMAND ----------

# MAGIC %md
# MAGIC ## Install
# MAGIC
# MAGIC Installs the package for this notebook. Leave out this cell and the next one if the package
# MAGIC is a library of the cluster.

# COMMAND ----------

# MAGIC %pip install /Volumes/main/default/libraries/spark_kafka_sink-0.4.0-py3-none-any.whl

# COMMAND ----------

# MAGIC %md
# MAGIC Restarts Python, so that it finds the package.

# COMMAND ----------

dbutils.library.restartPython()

# COMMAND ----------

# MAGIC %md
# MAGIC ## Settings
# MAGIC
# MAGIC Shows the settings above the notebook; a job sets them with its parameters. Both modes write
# MAGIC the same records; `foreach_batch` also reports what the brokers acknowledged.

# COMMAND ----------

dbutils.widgets.dropdown("mode", "foreach_batch", ["format", "foreach_batch"])
dbutils.widgets.text("bootstrap_servers", "broker-1:9092,broker-2:9092")
dbutils.widgets.dropdown("security_protocol", "SASL_SSL", ["SASL_SSL", "SASL_PLAINTEXT"])
dbutils.widgets.text("secret_scope", "kafka")
dbutils.widgets.text("topic", "numbers")
dbutils.widgets.text("folder", "/Volumes/main/default/streams/numbers")
dbutils.widgets.text("run_seconds", "60")

# COMMAND ----------

# MAGIC %md
# MAGIC Collects the sink's options. Settings of Kafka's Java producer go here too, with `kafka.` in
# MAGIC front of their names.

# COMMAND ----------

scope = dbutils.widgets.get("secret_scope")
options = {
    "kafka.bootstrap.servers": dbutils.widgets.get("bootstrap_servers"),
    "kafka.security.protocol": dbutils.widgets.get("security_protocol"),
    "kafka.sasl.mechanism": "PLAIN",
    "kafka.sasl.username": dbutils.secrets.get(scope, "username"),
    "kafka.sasl.password": dbutils.secrets.get(scope, "password"),
    "topic": dbutils.widgets.get("topic"),
}

# COMMAND ----------

# MAGIC %md
# MAGIC Keeps the files of the two modes apart.

# COMMAND ----------

mode = dbutils.widgets.get("mode")
folder = f"{dbutils.widgets.get('folder')}/{mode}"

# COMMAND ----------

# MAGIC %md
# MAGIC ## Prepare
# MAGIC
# MAGIC Makes `format("kafka-nb")` known to this session. Spark 3.5 has only `foreach_batch`.

# COMMAND ----------

import spark_kafka_sink

if mode == "format":
    spark_kafka_sink.register(spark)

# COMMAND ----------

# MAGIC %md
# MAGIC Starts Spark's Python workers and connects them to Kafka, so that the first micro-batch does
# MAGIC not wait for that. Writes nothing, never fails; `problem` has the error, if any.

# COMMAND ----------

print(spark_kafka_sink.warm_up(spark, options))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Write
# MAGIC
# MAGIC Makes the rows, here 100 numbers in every micro-batch. Put your own source here: rows need a
# MAGIC `value`, and may have `key`, `headers` and `partition`.

# COMMAND ----------

numbers = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 100).load()
rows = numbers.selectExpr("string(value) AS key", "to_json(named_struct('number', value)) AS value")

# COMMAND ----------

# MAGIC %md
# MAGIC Saves the report of a micro-batch as a file in the volume. It does not collect reports in a
# MAGIC variable, because Spark may call it in a process other than the notebook's.

# COMMAND ----------

from pathlib import Path

reports = f"{folder}/reports"
Path(reports).mkdir(parents=True, exist_ok=True)


def save(report: spark_kafka_sink.DeliveryReport) -> None:
    Path(reports, f"{report.batch_id:08}.json").write_text(report.to_json())


# COMMAND ----------

# MAGIC %md
# MAGIC Attaches the sink.

# COMMAND ----------

if mode == "format":
    writer = rows.writeStream.format("kafka-nb").options(**options)
else:
    sink = spark_kafka_sink.foreach_batch(options, on_report=save)
    writer = rows.writeStream.foreachBatch(sink)

# COMMAND ----------

# MAGIC %md
# MAGIC Starts the stream. With the same checkpoint, the next start continues where this one ends.
# MAGIC On serverless compute, use `trigger(availableNow=True)`.

# COMMAND ----------

writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
query = writer.trigger(processingTime="10 seconds").start()

# COMMAND ----------

# MAGIC %md
# MAGIC Lets it run for a while. If the stream fails, this cell fails with its error.

# COMMAND ----------

query.awaitTermination(int(dbutils.widgets.get("run_seconds")))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Results
# MAGIC
# MAGIC Prints Spark's progress of the latest micro-batches.

# COMMAND ----------

for progress in query.recentProgress:
    seconds = progress.durationMs["triggerExecution"] / 1000
    print(f"micro-batch {progress.batchId}: {progress.numInputRows} rows in {seconds:.1f} s")

# COMMAND ----------

# MAGIC %md
# MAGIC Shows what the brokers acknowledged, a row for each micro-batch; none with `format`.

# COMMAND ----------

columns = "records LONG, sent_bytes LONG, records_by_topic MAP<STRING, LONG>"
acknowledged = spark.read.schema(columns).json(reports)
display(acknowledged.selectExpr("_metadata.file_name AS file", "*").orderBy("file"))

# COMMAND ----------

# MAGIC %md
# MAGIC ## Stop
# MAGIC
# MAGIC Ends the stream. A micro-batch that is interrupted runs again after the next start.

# COMMAND ----------

query.stop()
