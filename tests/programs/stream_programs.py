"""Programs that start a query, or write in foreachBatch.

They are sketches of our own of what public programs and libraries do: how they pass options, modes
and triggers, and what they have left behind. Their texts are data: nobody tidies them.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

from pipeline import run_pipeline
from program import MODE, UPDATE, Table
from pyspark.sql import functions as F
from users import CONNECTION_STRING, PASSWORD

from spark_kafka_sink import foreach_batch, register  # noqa: F401 - for what Spark demands

STREAMS = Table()
_SECONDS = 60


@STREAMS.row(is_fast=True)
def a_writers_class_with_a_trigger(at):
    """A class that sets a trigger if it has one; no output mode."""
    trigger = {"availableNow": True}
    options = {"topic": at.topic, "kafka.bootstrap.servers": at.servers}
    options["checkpointLocation"] = at.checkpoint
    writer = at.lines().writeStream
    if trigger:
        writer = writer.trigger(**trigger)
    query = writer.format("kafka").options(**options).start()
    assert query.awaitTermination(_SECONDS)


@STREAMS.row(sets_partition=True)
def a_destination_of_event_hubs(at):
    """A connection string, key, headers and partition by row; settings of consumers that the class
    adds by itself.

    Its SASL_SSL is SASL_PLAINTEXT here.
    """
    options = {"kafka.bootstrap.servers": at.login_servers, "checkpointLocation": at.checkpoint}
    added = {
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="$ConnectionString" password="{CONNECTION_STRING}";',
        "kafka.request.timeout.ms": "60000",
        "kafka.session.timeout.ms": "60000",
        "kafka.group.id": "consumers",
        "includeHeaders": "true",
    }
    options = {**added, **options}
    frame = at.lines().select(
        F.to_json(F.struct("value")).alias("value"),
        F.substring("value", 1, 1).alias("key"),
        F.array(F.struct(F.lit("source").alias("key"), F.lit(b"tags").alias("value"))).alias(
            "headers"
        ),
        F.lit(at.topic).alias("topic"),
        (F.length("value") % 3).cast("int").alias("partition"),
    )
    query = (
        frame.writeStream.trigger(availableNow=True)
        .format("kafka")
        .options(**options)
        .queryName("destination")
        .start()
    )
    while query.isActive:
        query.awaitTermination(1)
    if query.exception():
        raise query.exception()


@STREAMS.row()
def a_writer_that_somebody_else_starts(at):
    """A function that returns the writer, made option by option; the caller starts it."""

    def to_kafka(frame, options):
        columns = [F.col(name).alias(name) for name in frame.columns]
        writer = frame.select(F.to_json(F.struct(columns)).alias("value")).writeStream
        writer = writer.format("kafka")
        for name, value in options.items():
            writer = writer.option(name, value)
        return writer

    at.lines().createOrReplaceTempView("lines")
    frame = at.spark.sql("SELECT split(value, ' ')[0] AS word, length(value) AS size FROM lines")
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    writer = to_kafka(frame, {**options, "checkpointLocation": at.checkpoint})
    query = writer.start()
    query.processAllAvailable()
    query.stop()


@STREAMS.row()
def a_dataset_with_a_path(at):
    """The path of a catalogue's entry as an option, the mode as text, arguments of a file."""
    save_args = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    writer = at.lines().writeStream.format("kafka")
    query = (
        writer.option("checkpointLocation", at.checkpoint)
        .option("path", ".")
        .outputMode("append")
        .options(**save_args)
        .start()
    )
    query.processAllAvailable()
    query.stop()


@STREAMS.row()
def foreach_batch_with_keywords(at):
    """outputMode("update") and foreachBatch with save(format=, mode=, **options)."""
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    counts = at.lines().groupBy(F.substring("value", 1, 1).alias("key")).count()
    frame = counts.selectExpr("key", "string(count) AS value")
    query = (
        frame.writeStream.trigger(processingTime="1 second")
        .outputMode("update")
        .option("checkpointLocation", at.checkpoint)
        .foreachBatch(lambda b, _: b.write.save(format="kafka", mode="append", **options))
        .start()
    )
    query.processAllAvailable()
    query.stop()


@STREAMS.row()
def a_publisher_that_runs_once(at):
    """trigger(once=True), options as a dictionary and one by one, columns as JSON."""
    config = {"kafka.bootstrap.servers": at.servers, "kafka.compression.type": "snappy"}
    frame = at.lines().select(
        F.col("value").substr(1, 1).alias("key"), F.to_json(F.struct(F.col("*"))).alias("value")
    )
    query = (
        frame.writeStream.format("kafka")
        .outputMode("append")
        .option("checkpointLocation", at.checkpoint)
        .options(**config)
        .trigger(once=True)
        .option("topic", at.topic)
        .start()
    )
    assert query.awaitTermination(_SECONDS)


@STREAMS.row(demands=(MODE,))
def a_publisher_in_batches(at):
    """The same class for a frame that is no stream."""
    frame = at.rows().select(
        F.col("id").cast("string").alias("key"), F.to_json(F.struct(F.col("*"))).alias("value")
    )
    writer = frame.write if not frame.isStreaming else frame.writeStream
    writer = writer.format("kafka").options(**{"kafka.bootstrap.servers": at.servers})
    writer.option("topic", at.topic).save()


@STREAMS.row()
def constants_as_key_and_topic(at):
    """The topic and the key as constants of SQL."""
    (
        query := at.lines()
        .selectExpr(f"'{at.topic}' as topic", "'1' as key", "value")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", at.servers)
        .option("checkpointLocation", at.checkpoint)
        .start()
    ).processAllAvailable()
    query.stop()


@STREAMS.row()
def options_of_the_console(at):
    """The console's truncate and numRows left behind, a URI as checkpoint, a trigger of 2 s."""
    query = (
        at.lines()
        .writeStream.format("kafka")
        .outputMode("append")
        .trigger(processingTime="2 seconds")
        .option("checkpointLocation", (at.folder / "checkpoint").as_uri())
        .option("truncate", False)
        .option("numRows", 100)
        .option("kafka.bootstrap.servers", at.servers)
        .option("topic", at.topic)
        .start()
    )
    query.processAllAvailable()
    query.stop()


@STREAMS.row()
def from_kafka_to_kafka(at):
    """A stream from Kafka, cast, filtered, to Kafka."""
    source = (
        at.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", at.servers)
        .option("subscribe", at.source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 4)
        .load()
    )
    query = (
        source.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
        .filter("value <> 'w'")
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", at.servers)
        .option("topic", at.topic)
        .option("checkpointLocation", at.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(_SECONDS)


@STREAMS.row(sets_partition=True)
def one_dictionary_for_both_streams(at):
    """One dictionary for source and sink; the stream has all columns of the source."""
    common = {
        "kafka.bootstrap.servers": at.servers,
        "subscribe": at.source,
        "startingOffsets": json.dumps({at.source: {"0": -2, "1": -2, "2": -2}}),
        "failOnDataLoss": "false",
        "maxOffsetsPerTrigger": "4",
        "includeHeaders": "true",
        "kafka.security.protocol": "PLAINTEXT",
        "kafka.ssl.protocol": "TLSv1.2",
    }
    rows = at.spark.readStream.format("kafka").options(**common).load()
    query = (
        rows.drop("topic")
        .writeStream.format("kafka")
        .options(**common)
        .option("topic", at.topic)
        .option("checkpointLocation", at.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(_SECONDS)


@STREAMS.row(demands=(MODE,))
def cleaned_rows_of_kafka(at):
    """foreachBatch: sorted, without duplicates, with the source's old timestamps."""
    source = (
        at.spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", at.servers)
        .option("subscribe", at.source)
        .option("startingOffsets", "earliest")
        .load()
    )

    def clean(frame, batch_id):
        rows = frame.orderBy("offset").dropDuplicates(["key", "value"])
        (
            rows.selectExpr("CAST(key as STRING)", "CAST(value AS STRING)", "timestamp")
            .write.format("kafka")
            .option("kafka.bootstrap.servers", at.servers)
            .option("kafka.compression.type", "zstd")
            .option("topic", at.topic)
            .save()
        )

    query = source.writeStream.foreachBatch(clean).option("checkpointLocation", at.checkpoint)
    query = query.trigger(availableNow=True).start()
    assert query.awaitTermination(_SECONDS)


# Update mode: with the format, the plain program has to use foreach_batch, or append mode where
# nothing is aggregated.
_APPEND_MODE = ('outputMode("update")', 'outputMode("append")')


@STREAMS.row(demands=(_APPEND_MODE,))
def update_mode_without_an_aggregation(at):
    """outputMode("update") for rows that never change; a consumer's enable.partition.eof."""
    query = (
        at.lines()
        .selectExpr("upper(value) AS value")
        .writeStream.format("kafka")
        .outputMode("update")
        .option("kafka.bootstrap.servers", at.servers)
        .option("topic", at.topic)
        .option("enable.partition.eof", "false")
        .option("checkpointLocation", at.checkpoint)
        .start()
    )
    query.processAllAvailable()
    query.stop()


@STREAMS.row(demands=(UPDATE,))
def sums_of_windows_in_update_mode(at):
    """A watermark, sums by window, outputMode("update")."""
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    events = at.lines().selectExpr(
        "split(value, ' ')[0] AS word", "timestamp_seconds(bigint(split(value, ' ')[1]) * 60) AS at"
    )
    sums = (
        events.withWatermark("at", "10 minutes")
        .groupBy(F.window("at", "2 minutes"), "word")
        .agg(F.count("*").alias("n"))
    )
    rows = sums.selectExpr("to_json(struct(word, n)) AS value")
    writer = rows.writeStream.format("kafka").options(**options).outputMode("update")
    writer = writer.option("checkpointLocation", at.checkpoint).trigger(availableNow=True)
    query = writer.start()
    assert query.awaitTermination(_SECONDS)


@STREAMS.row(demands=(UPDATE,))
def windows_as_keys_and_a_path(at):
    """outputMode("update"), the window as the key, start(path)."""
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    events = at.lines().selectExpr("value", "timestamp_seconds(ascii(value) * 60) AS at")
    counts = events.groupBy(F.window("at", "2 minutes", "1 minute")).count()
    rows = counts.selectExpr("CAST(window AS STRING) AS key", "CAST(count AS STRING) AS value")
    writer = rows.writeStream.outputMode("update").option("checkpointLocation", at.checkpoint)
    query = writer.format("kafka").options(**options).start(at.topic)
    query.processAllAvailable()
    query.stop()


@STREAMS.row(demands=(MODE,))
def a_join_in_update_mode(at):
    """A join with a static frame, update mode, foreachBatch with a function that writes."""
    names = at.spark.createDataFrame([("a", "Ada"), ("b", "Bob")], "letter string, name string")
    joined = at.lines().join(names, F.expr("substring(value, 1, 1) = letter"), "left_outer")

    def send(frame, epoch_id):
        frame.selectExpr("to_json(struct(*)) AS value").write.format("kafka").option(
            "kafka.bootstrap.servers", at.servers
        ).option("topic", at.topic).save()

    query = joined.writeStream.outputMode("update").foreachBatch(send)
    query = query.option("checkpointLocation", at.checkpoint).start()
    query.processAllAvailable()
    query.stop()


@STREAMS.row(demands=(MODE,))
def complete_counts_with_the_epoch(at):
    """outputMode("complete") and foreachBatch; the epoch is the key."""
    counts = at.lines().groupBy("value").count()

    def write(df, epoch_id):
        df = df.withColumn("key", F.lit(str(epoch_id)))
        df = df.withColumn("value", F.concat_ws(":", "value", "count"))
        (
            df.write.format("kafka")
            .option("kafka.bootstrap.servers", at.servers)
            .option("topic", at.topic)
            .save()
        )

    query = counts.writeStream.outputMode("complete").foreachBatch(write)
    query = query.option("checkpointLocation", at.checkpoint).start()
    query.processAllAvailable()
    query.stop()


@STREAMS.row(demands=(UPDATE,))
def complete_mode(at):
    """outputMode("complete") with the format itself."""
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    counts = at.lines().groupBy(F.col("value").alias("key")).count()
    rows = counts.selectExpr("key", "string(count) AS value")
    writer = rows.writeStream.format("kafka").options(**options).outputMode("complete")
    query = writer.option("checkpointLocation", at.checkpoint).start()
    query.processAllAvailable()
    query.stop()


@STREAMS.row(shaded=True)
def the_name_as_an_option(at):
    """option("queryName"), a larger max.request.size, Databricks' shaded PLAIN module."""
    query = (
        at.lines()
        .writeStream.format("kafka")
        .option("kafka.bootstrap.servers", at.login_servers)
        .option("kafka.security.protocol", "SASL_PLAINTEXT")
        .option("kafka.sasl.mechanism", "PLAIN")
        .option(
            "kafka.sasl.jaas.config",
            "kafkashaded.org.apache.kafka.common.security.plain.PlainLoginModule required"
            f" username='alice' password='{PASSWORD}';",
        )
        .option("kafka.ssl.endpoint.identification.algorithm", "https")
        .option("kafka.max.request.size", "1100000")
        .option("queryName", "to-kafka")
        .option("topic", at.topic)
        .option("checkpointLocation", at.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(_SECONDS)


@STREAMS.row(shaded=True)
def one_dictionary_with_a_token_login(at):
    """Databricks' OAuth login with ssl.protocol in it, one dictionary for source and sink.

    Its SASL_SSL is SASL_PLAINTEXT here.
    """
    kafka_options = {
        "kafka.bootstrap.servers": at.login_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": "kafkashaded.org.apache.kafka.common.security.oauthbearer"
        f'.OAuthBearerLoginModule required clientId="alice" clientSecret="{PASSWORD}"'
        ' scope="kafka" ssl.protocol="SSL";',
        "kafka.sasl.oauthbearer.token.endpoint.url": at.token_url,
        "kafka.sasl.login.callback.handler.class": "kafkashaded.org.apache.kafka.common.security"
        ".oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        "subscribe": "lines",
        "startingOffsets": "earliest",
    }
    query = (
        at.lines()
        .writeStream.format("kafka")
        .options(**kafka_options)
        .option("topic", at.topic)
        .option("checkpointLocation", at.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(_SECONDS)


@STREAMS.row()
def start_with_keywords(at):
    """start(format=, outputMode=, queryName=, **options)."""
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    query = at.lines().writeStream.start(
        format="kafka",
        outputMode="append",
        queryName="with-keywords",
        checkpointLocation=at.checkpoint,
        **options,
    )
    query.processAllAvailable()
    query.stop()


@STREAMS.row()
def two_queries_of_one_stream(at):
    """One frame, two queries, two topics; a wait for any of them."""
    lines = at.lines()
    queries = []
    for number, topic in enumerate([at.topic, at.second_topic]):
        queries.append(
            lines.filter(f"length(value) % 2 = {number} OR value LIKE 'a%'")
            .writeStream.queryName(f"to-{number}")
            .format("kafka")
            .option("kafka.bootstrap.servers", at.servers)
            .option("topic", topic)
            .option("checkpointLocation", f"{at.checkpoint}/{number}")
            .trigger(availableNow=True)
            .start()
        )
    for query in queries:
        assert query.awaitTermination(_SECONDS)


@STREAMS.row(demands=(MODE,))
def two_writes_of_one_micro_batch(at):
    """foreachBatch: persisted, good rows to one topic, the others to a second one."""

    def split(frame, batch_id):
        frame.persist()
        for condition, topic in [("value < 'b'", at.topic), ("value >= 'b'", at.second_topic)]:
            frame.filter(condition).write.format("kafka").option(
                "kafka.bootstrap.servers", at.servers
            ).option("topic", topic).save()
        frame.unpersist()

    query = at.lines().writeStream.foreachBatch(split)
    query = query.option("checkpointLocation", at.checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(_SECONDS)


@STREAMS.row(demands=(("def job():", "def job():\n        register(at.spark)"),))
def a_query_that_a_thread_starts(at):
    """A scheduler's thread starts the query, and waits for it."""

    def job():
        query = (
            at.lines()
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", at.servers)
            .option("topic", at.topic)
            .option("checkpointLocation", at.checkpoint)
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(_SECONDS)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(job).result()


@STREAMS.row(shaded=True, has_own_process=True)
def a_sink_of_a_declarative_pipeline(at):
    """create_sink and append_flow, run by spark-pipelines; failOnDataLoss, a login in its options.

    Its SASL_SSL is SASL_PLAINTEXT here.
    """
    options = {
        "kafka.bootstrap.servers": at.login_servers,
        "topic": at.topic,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": "kafkashaded.org.apache.kafka.common.security.plain"
        f".PlainLoginModule required username='alice' password='{PASSWORD}' ;",
        "kafka.ssl.endpoint.identification.algorithm": "https",
        "failOnDataLoss": "false",
    }
    (at.folder / "lines").mkdir()
    (at.folder / "lines" / "1.txt").write_text("a 1\nb 2\n")
    run_pipeline(
        at,
        f"""
        dp.create_sink("orders", "kafka", {options})

        @dp.append_flow(target="orders")
        def lines():
            return spark.readStream.format("text").load({str(at.folder / "lines")!r})
        """,
    )
