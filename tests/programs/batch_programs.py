"""Programs that write a DataFrame once.

They are sketches of our own of what public programs and libraries do: how they pass options, what
their frames look like, what they have left behind. Their texts are data: nobody tidies them.
"""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from enum import Enum

from program import MODE, Table
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import to_avro
from pyspark.sql.types import BinaryType, StructField, StructType
from users import CONNECTION_STRING, PASSWORD, TOKEN

from spark_kafka_sink import register  # noqa: F401 - for what Spark demands

BATCHES = Table()


@BATCHES.row(demands=(MODE,), is_fast=True)
def a_writers_class_with_settings_of_consumers(at):
    """A class that holds the format, with unprefixed serializers, a group and a checkpoint."""

    class Writer:
        format = "kafka"

        def __init__(self, **params):
            self.params = params

        @property
        def options(self):
            own = {"topic": at.topic, "kafka.bootstrap.servers": at.servers}
            return {**self.params, **own, "checkpointLocation": at.checkpoint}

        def execute(self, frame):
            writer = frame.write.format(self.format).options(**self.options)
            return writer.save()

    params = {
        "includeHeaders": "true",
        "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "value.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        "kafka.group.id": "test-group",
    }
    Writer(**params).execute(at.rows().selectExpr("customer AS key", "string(amount) AS value"))


class _IfExists(str, Enum):
    APPEND = "append"
    ERROR = "error"


@BATCHES.row(is_fast=True)
def a_connections_class_that_appends(at):
    """An enumeration as the mode, a login with SCRAM, a client.id with blanks and slashes."""
    app = at.spark.sparkContext
    options = {
        "kafka.bootstrap.servers": at.login_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="alice"\npassword="{PASSWORD}";',
        "kafka.client.id": f"{app.applicationId} {app.appName} onX/0.17.0 Spark/{app.version}",
        "includeHeaders": False,
        "topic": at.topic,
    }
    frame = at.rows().selectExpr("binary(customer) AS key", "string(id) AS value")
    frame.write.format("kafka").mode(_IfExists.APPEND).options(**options).save()


@BATCHES.row(demands=(("_IfExists.ERROR", "_IfExists.APPEND"),))
def a_connections_class_that_expects_no_topic(at):
    """The mode "error" after a check of the program's own; headers and partitions by row."""
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic, "includeHeaders": True}
    frame = at.rows().selectExpr(
        "customer AS key",
        "string(id) AS value",
        "int(id % 3) AS partition",
        "array(named_struct('key', 'id', 'value', binary(string(id)))) AS headers",
    )
    frame.write.format("kafka").mode(_IfExists.ERROR).options(**options).save()


@BATCHES.row(demands=(MODE,))
def a_feature_store(at):
    """Avro keys and values, headers of constants, options of the framework that are no text."""
    project = F.struct(F.lit("projectId").alias("key"), F.lit(b"119").alias("value"))
    group = F.struct(F.lit("featureGroupId").alias("key"), F.lit(b"7").alias("value"))
    key = to_avro(F.concat(F.col("customer")))
    frame = at.rows().select(key.alias("key"), to_avro(F.struct("id", "amount")).alias("value"))
    write_options = {
        "kafka.bootstrap.servers": at.servers,
        "kafka.security.protocol": "PLAINTEXT",
        "kafka.ssl.endpoint.identification.algorithm": "",
        "kafka.client.id": "feature-store",
    }
    write_options.update(
        {
            "wait_for_online_ingestion": True,
            "online_ingestion_options": {"timeout": 60, "period": 1},
            "start_offline_materialization": False,
            "internal_kafka": True,
        }
    )
    (
        frame.withColumn("headers", F.array(project, group))
        .write.format("kafka")
        .options(**write_options)
        .option("topic", at.topic)
        .save()
    )


@BATCHES.row(is_fast=True)
def statistics_of_a_checker(at):
    """All columns as JSON, and a source's failOnDataLoss among the library's own options."""
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic, "failOnDataLoss": "true"}
    frame = at.rows().selectExpr("to_json(struct(*)) AS value")
    frame.write.format("kafka").mode("append").options(**options).save()


@BATCHES.row(demands=(MODE,))
def features_in_some_writes(at):
    """Bytes from an RDD, not nullable; a leftover column counts the writes."""
    schema = StructType([StructField("value", BinaryType(), nullable=False)])

    def encoded(rows):
        for row in rows:
            yield (b"\x08" + row.customer.encode() + b"\x00",)

    frame = at.rows().rdd.mapPartitions(encoded).toDF(schema)
    config = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    config.update({"kafka.compression.type": "zstd"})
    frame = frame.withColumn("batch_no", F.length("value").cast("bigint") % 2)
    for number in range(2):
        some = frame.filter(F.col("batch_no") == number)
        some.write.format("kafka").options(**config).save()


@BATCHES.row(demands=(MODE,))
def avro_for_event_hubs(at):
    """Event Hubs' own page, and an int for batch.size: settings of consumers, a connection string.

    Its SASL_SSL is SASL_PLAINTEXT here.
    """
    at.rows().select(
        to_avro(F.struct("id")).alias("key"), to_avro(F.struct("*")).alias("value")
    ).write.format("kafka").option("topic", at.topic).option(
        "kafka.bootstrap.servers", at.login_servers
    ).option("kafka.sasl.mechanism", "PLAIN").option(
        "kafka.security.protocol", "SASL_PLAINTEXT"
    ).option(
        "kafka.sasl.jaas.config",
        "org.apache.kafka.common.security.plain.PlainLoginModule required"
        f' username="$ConnectionString" password="{CONNECTION_STRING}";',
    ).option("kafka.session.timeout.ms", "60000").option(
        "kafka.request.timeout.ms", "30000"
    ).option("kafka.group.id", "$Default").option("kafka.batch.size", 5000).option(
        "failOnDataLoss", "false"
    ).save()


@BATCHES.row(demands=(MODE,))
def serializers_of_a_registry(at):
    """to_avro, and the settings that Java's serializers would read: they are left behind."""
    schema = (
        '{"type":"record","name":"order","fields":['
        '{"name":"id","type":"long"},{"name":"customer","type":"string"}]}'
    )
    value = to_avro(F.struct("id", "customer"), schema).alias("value")
    (
        at.rows()
        .select(value)
        .write.format("kafka")
        .option("kafka.bootstrap.servers", at.servers)
        .option("flushInterval", "100ms")
        .option("key.serializer", "org.apache.kafka.common.serialization.StringSerializer")
        .option("value.serializer", "io.confluent.kafka.serializers.KafkaAvroSerializer")
        .option("schema.registry.url", "http://localhost:8081")
        .option("topic", at.topic)
        .save()
    )


@BATCHES.row(is_fast=True)
def records_of_an_old_table(at):
    """A column timestamp, years old, which Spark's sink ignores; a consumer's product as text.

    Its SASL_SSL is SASL_PLAINTEXT here.
    """
    frame = at.rows().withColumn("LastModifiedDate", F.lit("2019-05-04 03:02:01"))
    (
        frame.selectExpr(
            "CAST(id AS STRING) AS key",
            "CAST(customer AS STRING) AS value",
            "CAST(LastModifiedDate AS TIMESTAMP) AS timestamp",
        )
        .write.format("kafka")
        .option("kafka.bootstrap.servers", at.login_servers)
        .option("kafka.enable.idempotence", "false")
        .option("kafka.sasl.mechanism", "PLAIN")
        .option("kafka.security.protocol", "SASL_PLAINTEXT")
        .option(
            "kafka.sasl.jaas.config",
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            f" username='etl' password='{TOKEN}';",
        )
        .option("kafka.max.partition.fetch.bytes", "1024 * 1024")
        .option("checkpointLocation", at.checkpoint)
        .option("topic", at.topic)
        .mode("append")
        .save()
    )


@BATCHES.row(demands=(MODE,), shaded=True)
def any_column_as_the_key(at):
    """Databricks' shaded SCRAM module, all options in one dictionary, a key of any type, cast."""
    options = {
        "kafka.sasl.jaas.config": "kafkashaded.org.apache.kafka.common.security.scram"
        f'.ScramLoginModule required username="alice" password="{PASSWORD}";',
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.bootstrap.servers": at.login_servers,
        "topic": at.topic,
    }

    def publish(frame, key):
        value = F.to_json(F.struct(*frame.columns)).alias("value")
        frame.select(F.col(key).cast("string").alias("key"), value).write.format("kafka").options(
            **options
        ).save()

    publish(at.rows(), "amount")


@BATCHES.row(demands=(MODE,), refused="databricks.servicecredential")
def a_service_credential(at):
    """Databricks' databricks.serviceCredential as the only login, for MSK."""
    options = {
        "kafka.bootstrap.servers": at.login_servers,
        "databricks.serviceCredential": "msk-credential",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "AWS_MSK_IAM",
        "topic": at.topic,
    }
    at.rows().selectExpr("customer AS value").write.format("kafka").options(**options).save()


@BATCHES.row(demands=(MODE,), refused="sasl_gssapi")
def a_kerberos_login(at):
    """Kerberos with a key tab. Nothing here could log in with it: both refuse."""
    options = {
        "kafka.bootstrap.servers": at.login_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.kerberos.service.name": "kafka",
        "kafka.sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required"
        ' useKeyTab=true storeKey=true keyTab="/etc/etl.keytab" principal="etl@EXAMPLE.NET";',
        "topic": at.topic,
    }
    at.rows().selectExpr("customer AS value").write.format("kafka").options(**options).save()


@BATCHES.row(refused="overwrite")
def the_mode_overwrite(at):
    """mode("overwrite")."""
    frame = at.rows().selectExpr("customer AS value")
    frame.write.format("kafka").mode("overwrite").option(
        "kafka.bootstrap.servers", at.servers
    ).option("topic", at.topic).save()


@BATCHES.row(refused="ignore")
def the_mode_ignore(at):
    """mode("ignore")."""
    frame = at.rows().selectExpr("customer AS value")
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    frame.write.mode("ignore").format("kafka").options(**options).save()


# Spark looks for a data source in the session of the calling Java thread, which has none.
_IN_THE_POOL = ("def produce(number):", "def produce(number):\n        register(at.spark)")
_IN_THE_THREAD = ("def drain():", "def drain():\n        register(at.spark)")
_AFTER_CTRL_C = ("    last =", "    register(at.spark)\n    last =")


@BATCHES.row(demands=(MODE, _IN_THE_POOL))
def a_pool_of_threads_that_swallows_errors(at):
    """Three threads, acks 1, and a handler that only prints: an error is a loss."""

    def produce(number):
        try:
            frame = at.spark.range(number * 10, number * 10 + 10)
            (
                frame.selectExpr("string(id) AS key", "concat('event-', id) AS value")
                .write.format("kafka")
                .option("kafka.bootstrap.servers", at.servers)
                .option("kafka.acks", "1")
                .option("topic", at.topic)
                .save()
            )
        except Exception as error:  # noqa: BLE001 - this is the program's mistake
            print(f"could not produce: {error}")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(produce, range(3)))


@BATCHES.row(demands=(MODE, _IN_THE_THREAD))
def a_daemon_thread(at):
    """threading.Thread with a name, writing while the main thread waits."""
    failures = []

    def drain():
        spark = at.spark
        try:
            frame = spark.createDataFrame(
                [("k", "v"), (None, "w"), ("k", None)], "key string, value string"
            )
            options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
            frame.write.format("kafka").options(**options).save()
        except Exception as error:  # noqa: BLE001 - raised below
            failures.append(error)

    thread = threading.Thread(target=drain, name="drain", daemon=True)
    thread.start()
    thread.join(60)
    if failures:
        raise failures[0]


@BATCHES.row(demands=(MODE, _AFTER_CTRL_C))
def a_last_write_after_ctrl_c(at):
    """Ctrl-C ends a wait for a query; then the main thread writes a last record."""
    spark = at.spark
    rows = at.lines().writeStream.format("noop")
    query = rows.option("checkpointLocation", at.checkpoint).start()
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    try:
        query.processAllAvailable()
        timer.start()
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()
    finally:
        timer.join(60)
    last = spark.createDataFrame([("stopped",)], "value string")
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    last.write.format("kafka").options(**options).save()


@BATCHES.row()
def save_with_keywords(at):
    """save(format=, mode=, **options)."""
    frame = at.rows().selectExpr("customer AS key", "string(id) AS value")
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    frame.write.save(format="kafka", mode="append", **options)


@BATCHES.row(demands=(("**options)", 'mode="append", **options)'),))
def save_with_keywords_and_no_mode(at):
    """save(format=, **options), in a loop over two topics."""
    for number, topic in enumerate([at.topic, at.second_topic]):
        options = {"kafka.bootstrap.servers": at.servers, "topic": topic}
        frame = at.rows().filter(f"id % 2 = {number}").selectExpr("customer AS value")
        frame.write.save(format="kafka", **options)


@BATCHES.row(demands=(MODE,))
def options_before_the_format(at):
    """A writer that is passed on: options first, then the format, in capitals."""

    def with_servers(writer):
        return writer.option("Kafka.Bootstrap.Servers", at.servers)

    def with_topic(writer):
        return writer.option("TOPIC", at.topic)

    frame = at.rows().selectExpr("customer AS key", "string(id) AS value")
    writer = with_topic(with_servers(frame.write))
    writer.format("KAFKA").save()


@BATCHES.row(demands=(MODE,), is_fast=True)
def values_that_are_no_text(at):
    """None, bool, int and float as values of options; a path of None."""
    options = {
        "kafka.bootstrap.servers": at.servers,
        "topic": at.topic,
        "checkpointLocation": None,
        "includeHeaders": True,
        "kafka.linger.ms": 5,
        "kafka.retries": 3,
        "truncate": False,
        "numRows": 50,
        "fraction": 0.5,
    }
    at.rows().selectExpr("customer AS value").write.format("kafka").options(**options).save()


@BATCHES.row(demands=(MODE,))
def the_dictionary_of_tutorials(at):
    """acks, retries, batch.size, linger.ms, buffer.memory, 10 requests in flight, compression."""
    options = {
        "kafka.bootstrap.servers": at.servers,
        "kafka.acks": "all",
        "kafka.retries": "3",
        "kafka.batch.size": "16384",
        "kafka.linger.ms": "5",
        "kafka.buffer.memory": "33554432",
        "kafka.max.in.flight.requests.per.connection": "10",
        "kafka.compression.type": "lz4",
        "topic": at.topic,
    }
    frame = at.rows().selectExpr("customer AS key", "to_json(struct(*)) AS value")
    frame.write.format("kafka").options(**options).save()


@BATCHES.row(demands=(MODE,))
def no_acknowledgement_and_no_retry(at):
    """acks=0, retries=0."""
    options = {"kafka.acks": "0", "kafka.retries": 0, "kafka.bootstrap.servers": at.servers}
    frame = at.rows().selectExpr("customer AS value")
    frame.write.format("kafka").options(**options).option("topic", at.topic).save()


@BATCHES.row(demands=(MODE,))
def two_limits_for_a_request(at):
    """max.request.size, and librdkafka's message.max.bytes beside it."""
    (
        at.rows()
        .selectExpr("customer AS value")
        .write.format("kafka")
        .option("kafka.bootstrap.servers", at.servers)
        .option("kafka.max.request.size", "5242880")
        .option("kafka.message.max.bytes", "5242880")
        .option("topic", at.topic)
        .save()
    )


@BATCHES.row(demands=(MODE,))
def sizes_of_zero_and_of_half_a_mebibyte(at):
    """batch.size=0, and buffer.memory below 1 MiB."""
    options = {"kafka.batch.size": 0, "kafka.buffer.memory": 524288}
    writer = at.rows().selectExpr("customer AS key", "customer AS value").write.format("kafka")
    writer.options(**options, topic=at.topic, **{"kafka.bootstrap.servers": at.servers}).save()


@BATCHES.row(demands=(MODE,), sets_partition=True)
def rows_copied_from_kafka(at):
    """A batch from Kafka, all of its columns: old timestamps, the source's topic and partitions."""
    reader = at.spark.read.format("kafka").option("kafka.bootstrap.servers", at.servers)
    rows = reader.option("subscribe", at.source).option("includeHeaders", "true").load()
    (
        rows.write.format("kafka")
        .option("kafka.bootstrap.servers", at.servers)
        .option("topic", at.topic)
        .save()
    )


@BATCHES.row(demands=(MODE,))
def one_dictionary_to_read_and_write(at):
    """One dictionary for the source and the sink: offsets, limits, a group's prefix."""
    kafka_options = {
        "kafka.bootstrap.servers": at.servers,
        "subscribe": at.source,
        "startingOffsets": "earliest",
        "endingOffsets": "latest",
        "failOnDataLoss": "false",
        "minPartitions": "2",
        "groupIdPrefix": "orders",
        "kafkaConsumer.pollTimeoutMs": "20000",
        "fetchOffset.numRetries": "3",
        "kafka.max.poll.records": "500",
        "topic": at.topic,
    }
    rows = at.spark.read.format("kafka").options(**kafka_options).load()
    rows.selectExpr("key", "value").write.format("kafka").options(**kafka_options).save()


@BATCHES.row(demands=(MODE,))
def headers_of_every_kind(at):
    """Headers: null, none, twice the same, without a value, and not nullable fields."""
    frame = at.rows().selectExpr(
        "customer AS value",
        """CASE WHEN id % 4 = 0 THEN NULL
                WHEN id % 4 = 1 THEN array()
                WHEN id % 4 = 2 THEN array(struct('a' AS key, X'00FF' AS value),
                                           struct('a' AS key, X'' AS value))
                ELSE array(struct('b' AS key, CAST(NULL AS BINARY) AS value)) END AS headers""",
    )
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    frame.write.format("kafka").options(includeHeaders="true", **options).save()


@BATCHES.row(demands=(MODE,))
def keys_and_values_that_are_null(at):
    """Null and empty keys and values; a column that no record has."""
    frame = at.spark.createDataFrame(
        [("k", "v", 1.0), (None, "w", 2.0), ("", "", 3.0), ("gone", None, None)],
        "key string, value string, price double",
    )
    frame.write.format("kafka").option("kafka.bootstrap.servers", at.servers).option(
        "topic", at.topic
    ).save()


@BATCHES.row(demands=(MODE,))
def a_topic_per_row(at):
    """The topic as an expression of the row, no option."""
    topic = F.when(F.col("id") % 2 == 0, F.lit(at.topic)).otherwise(F.lit(at.second_topic))
    frame = at.rows().select(topic.alias("topic"), F.col("customer").alias("value"))
    frame.write.format("kafka").option("kafka.bootstrap.servers", at.servers).save()


@BATCHES.row(demands=(MODE,))
def a_topic_column_and_the_option(at):
    """The column topic and the option topic: the option wins."""
    frame = at.rows().selectExpr(f"'{at.second_topic}' AS topic", "customer AS value")
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    frame.write.format("kafka").options(**options).save()


@BATCHES.row(demands=(MODE,), refused="null")
def a_topic_that_is_null(at):
    """A row without a topic."""
    frame = at.rows().selectExpr(
        f"CASE WHEN id <> 7 THEN '{at.topic}' END AS topic", "customer AS value"
    )
    frame.write.format("kafka").option("kafka.bootstrap.servers", at.servers).save()


@BATCHES.row(demands=(MODE,), refused="value")
def a_value_that_is_a_number(at):
    """A value of type bigint, not cast."""
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    at.rows().selectExpr("id AS value").write.format("kafka").options(**options).save()


@BATCHES.row(demands=(MODE,), refused="partition")
def a_partition_that_is_a_bigint(at):
    """A partition of type bigint, not cast."""
    frame = at.rows().selectExpr("customer AS value", "id % 3 AS partition")
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    frame.write.format("kafka").options(**options).save()


@BATCHES.row(demands=(MODE,), refused="value")
def columns_in_capitals(at):
    """KEY and VALUE."""
    frame = at.rows().selectExpr("customer AS KEY", "string(id) AS VALUE")
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    frame.write.format("kafka").options(**options).save()


@BATCHES.row(demands=(MODE,))
def a_client_id_with_quotation_marks(at):
    """The application's name, with quotation marks and a backslash, as the client.id."""
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    writer = at.rows().selectExpr("customer AS value").write.format("kafka").options(**options)
    writer.option("kafka.client.id", 'etl "orders" of a\\b').save()


@BATCHES.row(demands=(MODE,), refused="value")
def no_column_value(at):
    """The column is called payload."""
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    frame = at.rows().selectExpr("customer AS key", "to_json(struct(*)) AS payload")
    frame.write.format("kafka").options(**options).save()


@BATCHES.row(demands=(MODE,), sets_partition=True)
def partitions_by_row(at):
    """Partitions, some null, for rows with keys, by salting."""
    frame = at.rows().selectExpr(
        "customer AS key", "string(amount) AS value", "int(pmod(hash(id), 3)) AS partition"
    )
    options = {"kafka.bootstrap.servers": at.servers, "topic": at.topic}
    frame.repartition(3, "key").write.format("kafka").options(**options).save()


@BATCHES.row(demands=(MODE,))
def a_frame_of_sql(at):
    """A temporary view, SQL with an aggregation, a sort and a limit, cached."""
    at.rows().createOrReplaceTempView("orders")
    frame = at.spark.sql(
        "SELECT customer AS key, to_json(named_struct('n', count(*), 'sum', sum(amount))) AS value"
        " FROM orders GROUP BY customer ORDER BY customer LIMIT 3"
    ).cache()
    writer = frame.write
    writer = writer.format("kafka")
    for name, value in {"kafka.bootstrap.servers": at.servers, "topic": at.topic}.items():
        writer = writer.option(name, value)
    writer.save()
    frame.unpersist()


@BATCHES.row(demands=(MODE,))
def a_token_login(at):
    """Java's OAuth login with ssl.protocol among the module's options, as Microsoft's page has it.

    Its SASL_SSL is SASL_PLAINTEXT here.
    """
    kafka_options = {
        "kafka.bootstrap.servers": at.login_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer"
        f'.OAuthBearerLoginModule required clientId="alice" clientSecret="{PASSWORD}"'
        ' scope="kafka" ssl.protocol="SSL";',
        "kafka.sasl.oauthbearer.token.endpoint.url": at.token_url,
        "kafka.sasl.login.callback.handler.class": "org.apache.kafka.common.security"
        ".oauthbearer.secured.OAuthBearerLoginCallbackHandler",
        "subscribe": at.source,
        "startingOffsets": "earliest",
    }
    frame = at.rows().selectExpr("customer AS key", "string(id) AS value")
    frame.write.format("kafka").options(**kafka_options).option("topic", at.topic).save()
