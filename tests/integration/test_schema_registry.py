"""Columns of any type reach Kafka as Avro and JSON that Confluent's deserializers read."""

from __future__ import annotations

import datetime
import json

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from stub_registry import running_stub

import spark_kafka_sink

AT = datetime.datetime(1969, 12, 31, 23, 59, 59, 500000, datetime.timezone.utc)
ORDERS = (
    "named_struct('id', id, 'name', if(id = 1, null, concat('n', id)), "
    "'at', timestamp'1969-12-31 23:59:59.5', 'tags', array('a', null)) AS value"
)


def write_by_format(df, bootstrap_servers, **options):
    writer = df.write.format("kafka-nb").option("kafka.bootstrap.servers", bootstrap_servers)
    writer.options(**options).mode("append").save()


def write_by_foreach_batch(df, bootstrap_servers, **options):
    options = {"kafka.bootstrap.servers": bootstrap_servers, **options}
    spark_kafka_sink.foreach_batch(options)(df, 0)


@pytest.fixture
def registry():
    with running_stub() as stub:
        yield stub


@pytest.fixture(params=[write_by_format, write_by_foreach_batch], ids=["format", "foreach_batch"])
def write(request):
    return request.param


def deserialized(registry, records):
    reader = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    return [
        reader(record.value, SerializationContext(record.topic, MessageField.VALUE))
        for record in records
    ]


def avro(registry, **more):
    return {"value.format": "avro", "schema.registry.url": registry.url, **more}


def test_confluents_deserializer_reads_the_rows(spark, write, bootstrap_servers, topics, registry):
    topic = topics.create(partitions=2)
    frame = spark.range(3).selectExpr(ORDERS)
    write(frame, bootstrap_servers, topic=topic, **avro(registry))
    found = sorted(deserialized(registry, topics.read(topic)), key=lambda order: order["id"])
    assert found == [
        {"id": n, "name": None if n == 1 else f"n{n}", "at": AT, "tags": ["a", None]}
        for n in range(3)
    ]
    assert list(registry.subjects) == [f"{topic}-value"]


def test_topics_of_the_column_have_their_own_schemas(
    spark, write, bootstrap_servers, topics, registry
):
    names = [topics.create(), topics.create()]
    frame = spark.range(100).selectExpr(
        f"if(id % 2 = 0, '{names[0]}', '{names[1]}') AS topic",
        "cast(id AS INT) AS key",
        "named_struct('id', id) AS value",
    )
    write(frame, bootstrap_servers, **avro(registry), **{"key.format": "json"})
    for remainder, name in enumerate(names):
        records = topics.read(name)
        ids = sorted(order["id"] for order in deserialized(registry, records))
        assert ids == list(range(remainder, 100, 2))
        assert sorted(json.loads(record.key[5:]) for record in records) == ids
    expected = sorted(f"{name}-{part}" for name in names for part in ("key", "value"))
    assert sorted(registry.subjects) == expected


def test_an_incompatible_schema_ends_the_query_before_a_record_moves(
    spark, write, bootstrap_servers, topics, registry
):
    topic = topics.create()
    registry.failure = (409, b'{"error_code": 409, "message": "READER_FIELD_MISSING id"}')
    with pytest.raises(Exception, match="as incompatible: READER_FIELD_MISSING") as caught:
        write(spark.range(1).selectExpr(ORDERS), bootstrap_servers, topic=topic, **avro(registry))
    assert f"{topic}-value" in str(caught.value)
    assert topics.read(topic) == []


def test_a_type_that_avro_lacks_is_named(spark, write, bootstrap_servers, registry):
    frame = spark.sql("SELECT named_struct('d', interval 1 day) AS value")
    with pytest.raises(Exception, match=r"value\.d: interval.*cast it to string"):
        write(frame, bootstrap_servers, topic="t", **avro(registry))
    assert registry.requests == []


@pytest.mark.parametrize("topic_from", ["option", "column"])
def test_a_registry_that_dies_stops_no_stream_whose_schemas_are_known(
    spark, bootstrap_servers, topics, registry, tmp_path, topic_from
):
    topic = topics.create()
    source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    rows = source.selectExpr(f"'{topic}' AS topic", "named_struct('id', value) AS value")
    options = {"kafka.bootstrap.servers": bootstrap_servers, **avro(registry)}
    if topic_from == "option":
        options["topic"] = topic
    writer = rows.writeStream.format("kafka-nb").options(**options)
    writer = writer.option("checkpointLocation", f"file://{tmp_path / 'checkpoint'}")
    query = writer.trigger(processingTime="100 milliseconds").start()
    try:
        while query.lastProgress is None or query.lastProgress["batchId"] < 1:
            assert not query.awaitTermination(1)
        registry.failure = (503, b"gone")
        last = query.lastProgress["batchId"]
        while query.lastProgress["batchId"] < last + 3:
            assert not query.awaitTermination(1)
    finally:
        query.stop()
    registry.failure = None
    found = deserialized(registry, topics.read(topic))
    assert len(found) >= 40
    assert {order["id"] for order in found} == set(range(len({order["id"] for order in found})))


def test_a_row_that_the_schema_forbids_is_a_dead_letter(
    spark, write, bootstrap_servers, topics, registry
):
    topic, dead = topics.create(), topics.create()
    schema = json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
        }
    )
    frame = spark.range(3).selectExpr(
        "named_struct('id', id, 'name', if(id = 1, null, 'x')) AS value"
    )
    options = avro(registry, **{"value.schema": schema})
    with pytest.raises(Exception, match=r"InvalidRecord.*value\.name"):
        write(frame, bootstrap_servers, topic=topic, **options)
    options.update({"on.record.error": "dead-letter", "dead.letter.topic": dead})
    write(frame, bootstrap_servers, topic=topic, **options)
    assert {order["id"] for order in deserialized(registry, topics.read(topic))} == {0, 2}
    (letter,) = topics.read(dead)
    assert json.loads(letter.value) == {"id": 1, "name": None}
    assert dict(letter.headers)["kafka-nb.error"] == b"SERIALIZATION_FAILED"


def test_warm_up_registers_nothing(spark, bootstrap_servers, topics, registry):
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topics.create()}
    assert not spark_kafka_sink.warm_up(spark, {**options, **avro(registry)}).problem
    assert registry.requests == []


def test_exactly_once_repeats_nothing_when_the_schema_has_another_id(
    spark, bootstrap_servers, topics, registry, tmp_path
):
    topic = topics.create()
    options = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "topic": topic,
        "delivery.guarantee": "exactly-once",
        "exactly.once.partitions": "1",
        "transactional.id.prefix": f"registry-{topic}",
    }
    frame = spark.range(20).selectExpr("named_struct('id', id) AS value").repartition(1)
    spark_kafka_sink.foreach_batch({**options, **avro(registry)})(frame, 0)
    with running_stub() as other:
        other.first_id = 900
        spark_kafka_sink.foreach_batch({**options, **avro(other)})(frame, 0)  # as after a restart
    records = topics.read(topic)
    assert sorted(order["id"] for order in deserialized(registry, records)) == list(range(20))
