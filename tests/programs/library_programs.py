"""Programs that write with a library from PyPI, as its documentation says.

Where the library fixes the format in its own code, only the patched way is possible.
"""

from __future__ import annotations

from program import Table
from pyspark.sql import functions as F
from users import PASSWORD

LIBRARIES = Table()
_ONLY_PATCHED = ("patched",)
_SECONDS = 60


def _finish(spark):
    """Wait for the queries that a library keeps for itself."""
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()


@LIBRARIES.row()
def koheesio_stream(at):
    """koheesio's KafkaWriter with a stream."""
    from koheesio.spark.writers.kafka import KafkaWriter

    writer = KafkaWriter(
        format="kafka",
        broker=at.servers,
        topic=at.topic,
        trigger={"availableNow": True},
        checkpointLocation=at.checkpoint,
    )
    writer.write(at.lines())
    assert writer.streaming_query.awaitTermination(_SECONDS)


@LIBRARIES.row(ways=_ONLY_PATCHED)
def koheesio_batch(at):
    """koheesio's KafkaWriter with a frame, and the options of its documentation."""
    from koheesio.spark.writers.kafka import KafkaWriter

    options = {
        "includeHeaders": "true",
        "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "value.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "kafka.group.id": "test-group",
    }
    writer = KafkaWriter(
        format="kafka",
        broker=at.servers,
        topic=at.topic,
        checkpointLocation=at.checkpoint,
        **options,
    )
    writer.write(at.rows().selectExpr("customer AS key", "string(amount) AS value"))


@LIBRARIES.row(ways=_ONLY_PATCHED)
def koheesio_foreach_batch(at):
    """koheesio's KafkaWriter for each micro-batch of its stream writer."""
    from koheesio.spark.writers.kafka import KafkaWriter
    from koheesio.spark.writers.stream import ForEachBatchStreamWriter, writer_to_foreachbatch

    kafka = KafkaWriter(
        format="kafka", broker=at.servers, topic=at.topic, checkpointLocation=at.checkpoint
    )
    stream = ForEachBatchStreamWriter(
        df=at.lines(),
        checkpoint_location=at.checkpoint,
        trigger={"availableNow": True},
        batch_function=writer_to_foreachbatch(kafka),
    )
    stream.execute()
    assert stream.streaming_query.awaitTermination(_SECONDS)


@LIBRARIES.row(ways=_ONLY_PATCHED)
def ibis_stream(at):
    """ibis: to_kafka with auto_format."""
    import ibis

    connection = ibis.pyspark.connect(at.spark, mode="streaming")
    at.lines().createOrReplaceTempView("ibis_lines")
    lines = connection.table("ibis_lines")
    expression = lines.mutate(size=lines.value.length()).filter(lines.value != "b 2")
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    options["checkpointLocation"] = at.checkpoint
    connection.to_kafka(expression, auto_format=True, options=options)
    _finish(at.spark)


@LIBRARIES.row(ways=_ONLY_PATCHED)
def onetl_append(at):
    """onetl: DBWriter to a Kafka with a SCRAM login, headers and keys."""
    from onetl.connection import Kafka
    from onetl.db import DBWriter

    connection = Kafka(
        addresses=[at.login_servers],
        cluster="orders",
        auth=Kafka.ScramAuth(user="alice", password=PASSWORD, digest="SHA-512"),
        spark=at.spark,
    ).check()
    frame = at.rows().select(
        F.col("customer").alias("key"),
        F.to_json(F.struct("id", "amount")).alias("value"),
        F.array(F.struct(F.lit("h").alias("key"), F.lit(b"1").alias("value"))).alias("headers"),
    )
    options = Kafka.WriteOptions(if_exists="append", includeHeaders=True)
    DBWriter(connection=connection, target=at.topic, options=options).run(frame)
