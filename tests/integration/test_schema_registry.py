"""Columns of any type reach Kafka with a real registry's schemas, and every reader reads them."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deserializers import avro_deserializer
from pyspark.sql.avro.functions import from_avro

import spark_kafka_sink
from spark_kafka_sink.serialization.formats import derived_schema

AT = datetime.datetime(1969, 12, 31, 23, 59, 59, 500000, datetime.timezone.utc)
ORDERS = (
    "named_struct('id', id, 'name', if(id = 1, null, concat('n', id)), "
    "'at', timestamp'1969-12-31 23:59:59.5', 'tags', array('a', null)) AS value"
)
ORDER = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
    }
)


def write_by_format(df, bootstrap_servers, **options):
    writer = df.write.format("kafka-nb").option("kafka.bootstrap.servers", bootstrap_servers)
    writer.options(**options).mode("append").save()


def write_by_foreach_batch(df, bootstrap_servers, **options):
    options = {"kafka.bootstrap.servers": bootstrap_servers, **options}
    spark_kafka_sink.foreach_batch(options)(df, 0)


@pytest.fixture(params=[write_by_format, write_by_foreach_batch], ids=["format", "foreach_batch"])
def write(request):
    return request.param


@pytest.fixture
def registry(schema_registry):
    """Confluent's client of the registry; a new one, because it keeps answers."""
    with SchemaRegistryClient({"url": schema_registry}) as client:
        yield client


def deserialized(deserializer, records, part="value"):
    field = MessageField.KEY if part == "key" else MessageField.VALUE
    return [
        deserializer(getattr(record, part), SerializationContext(record.topic, field))
        for record in records
    ]


def ids(deserializer, records):
    return sorted(order["id"] for order in deserialized(deserializer, records))


def avro(url, **more):
    return {"value.format": "avro", "schema.registry.url": url, **more}


def test_avro_is_read_by_confluents_deserializer_and_by_spark(
    spark, write, bootstrap_servers, topics, schema_registry, registry
):
    topic = topics.create(partitions=2)
    write(
        spark.range(3).selectExpr("cast(id AS STRING) AS key", ORDERS),
        bootstrap_servers,
        topic=topic,
        **avro(schema_registry),
    )
    records = topics.read(topic)
    rows = [
        {"id": n, "name": None if n == 1 else f"n{n}", "at": AT, "tags": ["a", None]}
        for n in range(3)
    ]
    found = deserialized(avro_deserializer(registry), records)
    assert sorted(found, key=lambda order: order["id"]) == rows
    written = registry.get_latest_version(f"{topic}-value")
    assert {int.from_bytes(record.value[1:5], "big") for record in records} == {written.schema_id}
    frame = spark.createDataFrame([(record.value[5:],) for record in records], "value BINARY")
    frame = frame.select(from_avro("value", written.schema.schema_str).alias("order"))
    found = [order.asDict() for order in frame.select("order.*").collect()]
    for order in found:
        order["at"] = order["at"].astimezone(datetime.timezone.utc)
    assert sorted(found, key=lambda order: order["id"]) == rows


ALL_TYPES = """STRUCT<
    byte: BYTE, short: SHORT, int: INT, long: BIGINT, float: FLOAT, double: DOUBLE, is: BOOLEAN,
    text: STRING, bytes: BINARY, day: DATE, at: TIMESTAMP, at_ntz: TIMESTAMP_NTZ,
    price: DECIMAL(9, 2), wide: DECIMAL(38, 10),
    texts: ARRAY<STRING>, prices: MAP<STRING, DECIMAL(5, 1)>,
    inner: STRUCT<
        a: INT, items: ARRAY<STRUCT<sku: STRING, count: INT>>, lists: ARRAY<ARRAY<INT>>>>"""
EARLY, LATE = datetime.datetime(1582, 10, 15, 0, 0, 0, 1), datetime.datetime(9999, 12, 31, 23, 59)
A_ROW = (
    *(-128, -32768, -(2**31), -(2**63), -0.0, 1e308, False),
    *("\u00e9\U0001f600", b"\x00\xff", EARLY.date(), EARLY, EARLY),
    *(Decimal("-9999999.99"), Decimal("-1234567890123456789012345678.0123456789")),
    *(["", None, "b"], {"a": None, "": Decimal("-0.1")}),
    (None, [("x", 1), None, (None, None)], [[1, None], None, []]),
)
ANOTHER_ROW = (
    *(127, 32767, 2**31 - 1, 2**63 - 1, 1.5, float("inf"), True),
    *("", b"", LATE.date(), LATE, LATE, Decimal("0.01"), Decimal(0), [], {}, (1, [], None)),
)


@pytest.mark.parametrize("has_a_given_schema", [False, True])
def test_every_type_is_read_by_spark(
    spark, bootstrap_servers, topics, schema_registry, registry, has_a_given_schema
):
    topic = topics.create()
    rows = [(A_ROW,), (ANOTHER_ROW,), ((None,) * len(A_ROW),), (None,)]
    frame = spark.createDataFrame(rows, f"value {ALL_TYPES}").coalesce(1)
    options = avro(schema_registry, topic=topic)
    if has_a_given_schema:
        # Null is the second branch of each union, and the record has another name.
        derived = json.loads(
            derived_schema("avro", frame.schema["value"].dataType.jsonValue(), "value")
        )
        for field in derived["fields"]:
            field["type"] = field["type"][::-1]
            field.pop("default", None)
        options["value.schema"] = json.dumps({**derived, "name": "All", "namespace": "types"})
    write_by_format(frame, bootstrap_servers, **options)
    records = topics.read(topic)
    assert [record.value is None for record in records] == [False, False, False, True]
    schema = registry.get_latest_version(f"{topic}-value").schema.schema_str
    found = spark.createDataFrame(
        [(each.value and each.value[5:],) for each in records], "value BINARY"
    )
    found = found.coalesce(1).select(from_avro("value", schema).alias("value"))
    wider = frame.select(frame.value.cast(found.schema["value"].dataType).alias("value"))
    assert found.collect() == wider.collect()


def test_json_is_read_by_confluents_deserializer(
    spark, write, bootstrap_servers, topics, schema_registry, registry
):
    topic = topics.create()
    options = {"value.format": "json", "schema.registry.url": schema_registry, "topic": topic}
    write(spark.range(3).selectExpr(ORDERS), bootstrap_servers, **options)
    written = registry.get_latest_version(f"{topic}-value").schema
    assert written.schema_type == "JSON"
    reader = JSONDeserializer(written.schema_str)  # which validates them too
    found = deserialized(reader, topics.read(topic))
    assert sorted(found, key=lambda order: order["id"]) == [
        {"id": n, "at": "1969-12-31T23:59:59.5Z", "tags": ["a", None]}
        | ({} if n == 1 else {"name": f"n{n}"})
        for n in range(3)
    ]


def test_topics_of_the_column_have_their_own_subjects(
    spark, write, bootstrap_servers, topics, schema_registry, registry
):
    names = [topics.create(), topics.create()]
    frame = spark.range(100).selectExpr(
        f"if(id % 2 = 0, '{names[0]}', '{names[1]}') AS topic",
        "cast(id AS INT) AS key",
        "named_struct('id', id) AS value",
    )
    write(frame, bootstrap_servers, **avro(schema_registry), **{"key.format": "json"})
    for remainder, name in enumerate(names):
        records = topics.read(name)
        expected = list(range(remainder, 100, 2))
        assert ids(avro_deserializer(registry), records) == expected
        keys = JSONDeserializer(registry.get_latest_version(f"{name}-key").schema.schema_str)
        assert sorted(deserialized(keys, records, "key")) == expected


def test_a_stream_goes_on_with_a_field_more_and_both_schemas_are_read(
    spark, bootstrap_servers, topics, schema_registry, registry, tmp_path
):
    topic = topics.create()
    registry.set_compatibility(f"{topic}-value", level="BACKWARD")

    def run(value):
        """Rows up to which all micro-batches are completed; the next one may be written in part."""
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        writer = source.selectExpr(f"named_struct({value}) AS value").writeStream
        writer = writer.format("kafka-nb").options(**avro(schema_registry, topic=topic))
        writer = writer.option("kafka.bootstrap.servers", bootstrap_servers)
        writer = writer.option("checkpointLocation", f"file://{tmp_path / 'checkpoint'}")
        query = writer.trigger(processingTime="100 milliseconds").start()
        try:
            while query.lastProgress is None:
                assert not query.awaitTermination(0.2)
        finally:
            query.stop()
        return 10 * (query.lastProgress["batchId"] + 1)

    without_name = run("'id', value")
    completed = run("'id', value, 'name', concat('n', value)")
    first, second = (registry.get_version(f"{topic}-value", n) for n in (1, 2))
    assert registry.get_versions(f"{topic}-value") == [1, 2]
    reader = avro_deserializer(registry, second.schema.schema_str)
    found = {(order["id"], order["name"]) for order in deserialized(reader, topics.read(topic))}
    expected = {(i, f"n{i}" if i >= without_name else None) for i in range(completed)}
    assert expected <= found
    interrupted = {*range(without_name, without_name + 10), *range(completed, completed + 10)}
    assert {i for i, _ in found - expected} <= interrupted
    reader = avro_deserializer(registry, first.schema.schema_str)
    assert all(order.keys() == {"id"} for order in deserialized(reader, topics.read(topic)))


def test_an_incompatible_schema_ends_the_query_before_a_record_moves(
    spark, write, bootstrap_servers, topics, schema_registry, registry
):
    topic = topics.create()
    subject = f"{topic}-value"
    registry.set_compatibility(subject, level="BACKWARD")
    options = avro(schema_registry, topic=topic)
    write(spark.sql("SELECT named_struct('id', 1L) AS value"), bootstrap_servers, **options)
    changed = spark.sql("SELECT named_struct('id', 'one') AS value")
    with pytest.raises(Exception, match=rf"{subject} as incompatible: .*STRING.*LONG"):
        write(changed, bootstrap_servers, **options)
    assert len(topics.read(topic)) == 1
    assert len(registry.get_versions(subject)) == 1


@pytest.mark.parametrize(
    ("strategy", "subject"), [("record", "shop.Order"), ("topic-record", "{topic}-shop.Order")]
)
def test_subjects_are_named_after_the_record(
    spark, bootstrap_servers, topics, schema_registry, registry, strategy, subject
):
    topic = topics.create()
    frame = spark.range(2).selectExpr("named_struct('id', id, 'name', 'n') AS value")
    options = {"value.schema": ORDER, "value.subject.name.strategy": strategy, "topic": topic}
    write_by_format(frame, bootstrap_servers, **avro(schema_registry, **options))
    assert ids(avro_deserializer(registry), topics.read(topic)) == [0, 1]
    assert subject.format(topic=topic) in registry.get_subjects()
    assert f"{topic}-value" not in registry.get_subjects()


def test_the_subjects_latest_schema_is_used_and_nothing_is_registered(
    spark, write, bootstrap_servers, topics, schema_registry, registry
):
    topic = topics.create()
    frame = spark.range(2).selectExpr("named_struct('id', cast(id AS INT), 'name', 'n') AS value")
    options = {"auto.register.schemas": "false", "use.latest.version": "true", "topic": topic}
    with pytest.raises(Exception, match=rf"no such schema for the subject {topic}-value"):
        write(frame, bootstrap_servers, **avro(schema_registry, **options))
    number = registry.register_schema(f"{topic}-value", Schema(ORDER, "AVRO"))
    write(frame, bootstrap_servers, **avro(schema_registry, **options))
    records = topics.read(topic)
    assert ids(avro_deserializer(registry), records) == [0, 1]
    assert {int.from_bytes(record.value[1:5], "big") for record in records} == {number}
    assert registry.get_versions(f"{topic}-value") == [1]
    narrow = spark.range(2).selectExpr("named_struct('id', id) AS value")
    with pytest.raises(Exception, match=r"(?s)does not fit.*value\.name.*the latest of"):
        write(narrow, bootstrap_servers, **avro(schema_registry, **options))
    assert len(topics.read(topic)) == 2


def test_a_row_that_the_schema_forbids_is_a_dead_letter(
    spark, write, bootstrap_servers, topics, schema_registry, registry
):
    topic, dead = topics.create(), topics.create()
    frame = spark.range(3).selectExpr(
        "named_struct('id', id, 'name', if(id = 1, null, 'x')) AS value"
    )
    options = avro(schema_registry, topic=topic, **{"value.schema": ORDER})
    with pytest.raises(Exception, match=r"InvalidRecord.*value\.name"):
        write(frame, bootstrap_servers, **options)
    options.update({"on.record.error": "dead-letter", "dead.letter.topic": dead})
    write(frame, bootstrap_servers, **options)
    assert set(ids(avro_deserializer(registry), topics.read(topic))) == {0, 2}
    (letter,) = topics.read(dead)
    assert json.loads(letter.value) == {"id": 1, "name": None}
    assert dict(letter.headers)["kafka-nb.error"] == b"SERIALIZATION_FAILED"
