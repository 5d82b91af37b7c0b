"""What users see when a job is wrong or Kafka fails."""

from __future__ import annotations

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from streams import direct, write_by_format

from spark_kafka_sink import register


def test_schema_errors_are_raised_on_the_driver_for_all_columns_at_once(spark, bootstrap_servers):
    df = spark.range(1).select(F.col("id").alias("value"), F.lit(1.5).alias("key"))
    with pytest.raises(Exception, match="InvalidSchema") as raised:
        write_by_format(df, bootstrap_servers)
    message = str(raised.value)
    assert "column value has type bigint; allowed: string or binary" in message
    assert "column key has type double; allowed: string or binary" in message
    assert "no topic: set the option topic, or add a column topic (string)" in message


def test_a_streaming_query_fails_on_the_driver_before_any_task(spark, bootstrap_servers, tmp_path):
    rows = spark.readStream.format("rate").load().selectExpr("string(value) as value")
    writer = rows.writeStream.format("kafka-nb").option("topic", "t")
    writer = writer.option("kafka.bootstrap.servers", bootstrap_servers)
    writer = writer.option("kafka.linger.ms", "soon")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match=r"kafka\.linger\.ms='soon' is invalid; allowed: 0"):
        query.awaitTermination(30)


HIDE = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"


@pytest.mark.parametrize("api", ["format", "foreach_batch", "from_driver"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("value", "InvalidSchema: column value has type bigint"),  # on the driver
        ("repeat('x', 10000)", "DeliveryFailed: topic"),  # in a task
    ],
)
def test_the_sinks_own_error_is_in_the_first_line_of_a_querys_exception(
    spark, bootstrap_servers, topics, tmp_path, api, value, error
):
    spark = spark.newSession()
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topics.create()}
    options["kafka.max.request.size"] = "5000"
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    writer = rows.selectExpr(f"{value} AS value").writeStream
    if api == "format":
        register(spark)
        spark.conf.set(HIDE, "true")  # otherwise Spark begins with its traceback
        writer = writer.format("kafka-nb").options(**options)
    else:
        writer = direct(writer, api, options)
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(60)
    assert f" spark_kafka_sink.errors.{error}" in str(query.exception()).partition("\n")[0]


@pytest.mark.parametrize("mode", ["error", "ignore"])
def test_spark_rejects_the_modes_that_depend_on_existing_data(spark, bootstrap_servers, mode):
    df = spark.createDataFrame([("v",)], "value string")
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": "t"}
    with pytest.raises(Exception, match="UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        df.write.format("kafka-nb").options(**options).mode(mode).save()


def test_a_partition_that_does_not_exist_fails_the_task_by_name(spark, bootstrap_servers, topics):
    topic = topics.create(partitions=2)
    df = spark.createDataFrame([("v", 2)], "value string, partition int")
    with pytest.raises(Exception, match=f"DeliveryFailed: topic {topic}.*_UNKNOWN_PARTITION"):
        write_by_format(df, bootstrap_servers, topic=topic)
