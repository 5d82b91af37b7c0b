"""A registry that fails, dies or answers late: nothing hangs, and known schemas are enough."""

from __future__ import annotations

import time

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from stub_registry import running_stub

import spark_kafka_sink

GONE = (503, b"gone")
ROWS = "named_struct('id', id) AS value"


@pytest.fixture
def stub():
    with running_stub() as stub:
        yield stub


def options(url, bootstrap_servers, **more):
    return {
        "kafka.bootstrap.servers": bootstrap_servers,
        "value.format": "avro",
        "schema.registry.url": url,
        **more,
    }


def write(df, sink_options):
    df.write.format("kafka-nb").options(**sink_options).mode("append").save()


def ids(stub, records):
    context = SerializationContext("", MessageField.VALUE)
    with SchemaRegistryClient({"url": stub.url}) as client:
        reader = AvroDeserializer(client)
        return [reader(record.value, context)["id"] for record in records]


@pytest.mark.parametrize(
    ("failure", "error"),
    [
        (GONE, "RegistryUnavailable.*503"),
        ((200, b"<html>a proxy's page</html>"), "RegistryUnavailable|RegistryRejected"),
        ((401, b'{"error_code": 401, "message": "who are you?"}'), "RegistryRejected.*who are you"),
        ((409, b'{"error_code": 409, "message": "READER_FIELD"}'), "SchemaIncompatible.*READER_"),
    ],
)
def test_what_a_registry_rejects_ends_the_query_before_a_record_moves(
    spark, bootstrap_servers, topics, stub, failure, error
):
    topic = topics.create()
    stub.failure = failure
    sink_options = options(stub.url, bootstrap_servers, topic=topic)
    sink_options["schema.registry.request.timeout.ms"] = "3000"
    with pytest.raises(Exception, match=rf"(?s)({error})") as caught:
        write(spark.range(1).selectExpr(ROWS), sink_options)
    assert stub.url in str(caught.value)
    assert topics.read(topic) == []


def test_a_silent_registry_is_given_up_at_the_deadline(spark, bootstrap_servers, topics, stub):
    stub.delay_seconds = 30.0
    sink_options = options(stub.url, bootstrap_servers, topic=topics.create())
    sink_options["schema.registry.request.timeout.ms"] = "1000"
    begin = time.monotonic()
    with pytest.raises(Exception, match="RegistryUnavailable"):
        write(spark.range(1).selectExpr(ROWS), sink_options)
    assert time.monotonic() - begin < 20  # far below the registry's delay, on a busy machine too
    stub.delay_seconds = 0.0


def test_a_type_that_avro_lacks_is_named_without_the_registry(spark, bootstrap_servers, stub):
    frame = spark.sql("SELECT named_struct('d', interval 1 month) AS value")
    with pytest.raises(Exception, match=r"value\.d: interval.*cast it to string"):
        write(frame, options(stub.url, bootstrap_servers, topic="t"))
    assert stub.requests == []


@pytest.mark.parametrize("topic_from", ["option", "column"])
def test_a_registry_that_dies_stops_no_stream_whose_schemas_are_known(
    spark, bootstrap_servers, topics, stub, tmp_path, topic_from
):
    topic = topics.create()
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    rows = source.selectExpr(f"'{topic}' AS topic", "named_struct('id', value) AS value")
    sink_options = options(stub.url, bootstrap_servers)
    if topic_from == "option":
        sink_options["topic"] = topic
    writer = rows.writeStream.format("kafka-nb").options(**sink_options)
    writer = writer.option("checkpointLocation", f"file://{tmp_path / 'checkpoint'}")
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        while query.lastProgress is None or query.lastProgress["batchId"] < 1:
            assert not query.awaitTermination(1)
        stub.failure = GONE
        last = query.lastProgress["batchId"]
        while query.lastProgress["batchId"] < last + 3:
            assert not query.awaitTermination(1)
    finally:
        query.stop()
    stub.failure = None
    ids_written = set(ids(stub, topics.read(topic)))
    # The micro-batch that stop() interrupted may be written in part.
    completed = 10 * (query.lastProgress["batchId"] + 1)
    assert set(range(completed)) <= ids_written <= set(range(completed + 10))


def test_a_topic_that_is_new_while_the_registry_is_away_fails_its_task_by_name(
    spark, bootstrap_servers, topics, stub
):
    known, new = topics.create(), topics.create()
    sink_options = options(stub.url, bootstrap_servers)
    sink_options["schema.registry.request.timeout.ms"] = "2000"
    frame = spark.range(10).selectExpr(f"'{known}' AS topic", ROWS)
    write(frame, sink_options)
    stub.failure = GONE
    write(frame, sink_options)
    with pytest.raises(Exception, match=rf"(?s)RegistryUnavailable.*{new}-value"):
        write(spark.range(0, 10, 1, 1).selectExpr(f"'{new}' AS topic", ROWS), sink_options)
    stub.failure = None
    assert sorted(ids(stub, topics.read(known))) == sorted([*range(10), *range(10)])
    assert topics.read(new) == []


def test_tasks_ask_once_for_each_topic_whatever_their_rows(spark, bootstrap_servers, topics, stub):
    names = [topics.create(partitions=1) for _ in range(3)]
    array = ", ".join(f"'{name}'" for name in names)
    sink_options = options(stub.url, bootstrap_servers)
    frame = spark.range(0, 90_000, 1, 1).selectExpr(f"array({array})[id % 3] AS topic", ROWS)
    write(frame, sink_options)  # several Arrow batches
    assert len(stub.requests) == 3
    assert sorted(i for name in names for i in ids(stub, topics.read(name))) == [*range(90_000)]


def test_foreach_batch_keeps_no_schema_where_another_application_would_find_it(
    spark, tmp_path, stub, monkeypatch
):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))  # of the machine
    sink = spark_kafka_sink.foreach_batch(options(stub.url, "127.0.0.1:1", topic="t"))
    with pytest.raises(spark_kafka_sink.BrokerUnavailable):
        sink(spark.range(1).selectExpr(ROWS), 0)
    assert list(stub.subjects) == ["t-value"]
    assert list(tmp_path.iterdir()) == []


def test_warm_up_registers_nothing(spark, bootstrap_servers, topics, stub):
    sink_options = options(stub.url, bootstrap_servers, topic=topics.create())
    assert not spark_kafka_sink.warm_up(spark, sink_options, 150.0).problem
    assert stub.requests == []


def test_exactly_once_repeats_nothing_under_another_id(spark, bootstrap_servers, topics, stub):
    topic = topics.create()
    exactly_once = {
        "topic": topic,
        "delivery.guarantee": "exactly-once",
        "exactly.once.partitions": "1",
        "transactional.id.prefix": f"registry-{topic}",
    }
    frame = spark.range(20).selectExpr(ROWS).repartition(1)
    sink_options = options(stub.url, bootstrap_servers, **exactly_once)
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "as-in-a-stream")
    try:
        spark_kafka_sink.foreach_batch(sink_options)(frame, 0)
        with running_stub() as other:
            other.first_id = 900
            sink_options = options(other.url, bootstrap_servers, **exactly_once)
            spark_kafka_sink.foreach_batch(sink_options)(frame, 0)  # as after a restart
            assert other.requests
    finally:
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)
    assert sorted(ids(stub, topics.read(topic))) == list(range(20))
