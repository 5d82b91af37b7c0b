"""Columns of any type reach Kafka with a real registry's schemas, and every reader reads them."""

from __future__ import annotations

import datetime
import json
import re
import uuid
from collections import defaultdict
from decimal import Decimal
from itertools import product, zip_longest

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deserializers import avro_deserializer
from java_avro import avro_bytes, avro_value
from pyspark.sql import DataFrame
from pyspark.sql.avro.functions import from_avro, to_avro
from streams import write_by_format

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.errors import SchemaIncompatible, SchemaMismatch, UnsupportedType
from spark_kafka_sink.schemas.avro.encoder import AvroEncoder
from spark_kafka_sink.schemas.conversions import CONVERSIONS
from spark_kafka_sink.schemas.formats import derived_schema, encoder
from spark_kafka_sink.schemas.preparation import prepare
from spark_kafka_sink.spark.private_api import column_types

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


needs_to_arrow = pytest.mark.skipif(
    not hasattr(DataFrame, "toArrow"), reason="this Spark has no DataFrame.toArrow"
)


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
    orders = deserialized(avro_deserializer(registry), records)
    assert sorted(orders, key=lambda order: order["id"]) == rows
    written = registry.get_latest_version(f"{topic}-value")
    assert {int.from_bytes(record.value[1:5], "big") for record in records} == {written.schema_id}
    frame = spark.createDataFrame([(record.value[5:],) for record in records], "value BINARY")
    frame = frame.select(from_avro("value", written.schema.schema_str).alias("order"))
    orders = [order.asDict() for order in frame.select("order.*").collect()]
    for order in orders:
        order["at"] = order["at"].astimezone(datetime.timezone.utc)
    assert sorted(orders, key=lambda order: order["id"]) == rows


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


@pytest.mark.needs_format
@pytest.mark.parametrize("has_own_schema", [False, True])
def test_every_type_is_read_by_spark(
    spark, bootstrap_servers, topics, schema_registry, registry, has_own_schema
):
    topic = topics.create()
    rows = [(A_ROW,), (ANOTHER_ROW,), ((None,) * len(A_ROW),), (None,)]
    frame = spark.createDataFrame(rows, f"value {ALL_TYPES}").coalesce(1)
    options = avro(schema_registry, topic=topic)
    if has_own_schema:
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
    written = spark.createDataFrame(
        [(record.value and record.value[5:],) for record in records], "value BINARY"
    )
    read = written.coalesce(1).select(from_avro("value", schema).alias("value"))
    wider = frame.select(frame.value.cast(read.schema["value"].dataType).alias("value"))
    assert read.collect() == wider.collect()


def test_json_is_read_by_confluents_deserializer(
    spark, write, bootstrap_servers, topics, schema_registry, registry
):
    topic = topics.create()
    options = {"value.format": "json", "schema.registry.url": schema_registry, "topic": topic}
    write(spark.range(3).selectExpr(ORDERS), bootstrap_servers, **options)
    written = registry.get_latest_version(f"{topic}-value").schema
    assert written.schema_type == "JSON"
    reader = JSONDeserializer(written.schema_str)  # which validates them too
    orders = deserialized(reader, topics.read(topic))
    assert sorted(orders, key=lambda order: order["id"]) == [
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


@pytest.mark.needs_format
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
    orders = {(order["id"], order["name"]) for order in deserialized(reader, topics.read(topic))}
    expected = {(i, f"n{i}" if i >= without_name else None) for i in range(completed)}
    assert expected <= orders
    interrupted = {*range(without_name, without_name + 10), *range(completed, completed + 10)}
    assert {i for i, _ in orders - expected} <= interrupted
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


@pytest.mark.needs_format
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
    with pytest.raises(
        Exception, match=r"InvalidRecord.*value\.name|^micro-batch 0, .*value\.name"
    ):
        write(frame, bootstrap_servers, **options)
    options.update({"on.record.error": "dead-letter", "dead.letter.topic": dead})
    write(frame, bootstrap_servers, **options)
    assert set(ids(avro_deserializer(registry), topics.read(topic))) == {0, 2}
    (letter,) = topics.read(dead)
    assert json.loads(letter.value) == {"id": 1, "name": None}
    assert dict(letter.headers)["kafka-nb.error"] == b"SERIALIZATION_FAILED"


def logical(base, name, **more):
    return {"type": base, "logicalType": name, **more}


def named(kind, name, **more):
    return {"type": kind, "name": name, **more}


INTS = ["int", *(logical("int", kind) for kind in ("date", "time-millis", "of-our-own"))]
LONGS = [
    *("timestamp-millis", "timestamp-micros", "timestamp-nanos", "time-micros", "of-our-own"),
    *("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
]
LONGS = ["long", *(logical("long", kind) for kind in LONGS)]
DECIMAL = {"logicalType": "decimal", "precision": 9, "scale": 2}
WIDE = {"logicalType": "decimal", "precision": 38, "scale": 2}
FIXED = named("fixed", "F", size=3)
ENUM = named("enum", "E", symbols=["a", "b"])
RECORD = named("record", "A", fields=[{"name": "x", "type": "int"}])
OTHER_RECORD = named("record", "B", fields=[{"name": "y", "type": "string"}])
MORE = named("record", "More", fields=[*RECORD["fields"], {"name": "n", "type": ["int", "null"]}])
TIMES = "'1969-12-31 23:59:59.9995', '2024-02-29 12:00:00.123456', '0001-01-01 00:00:00'"

#: the values of a column, as SQL -> Avro types that Spark's to_avro accepts for it
ACCEPTED_BY_TO_AVRO = {
    "true, false": ["boolean"],
    "-128Y, 127Y": INTS,
    "-32768S, 32767S": INTS,
    "cast(-2147483648 as int), 19723": INTS,
    "-9223372036854775808L, 1704067200123L": [*LONGS, ["int", "long"], ["null", "long", "int"]],
    "float(0.1), float(-0.0), float('nan')": ["float"],
    "1e308D, double('-infinity')": ["double", ["float", "double"], ["null", "float", "double"]],
    "-1.28BD, 1.27BD, -327.68BD, 9999999.99BD": [
        {"type": "bytes", **DECIMAL},
        named("fixed", "F", size=4, **DECIMAL),
        named("fixed", "F", size=12, **DECIMAL),
    ],
    "cast(-99999999999999999999999999.99 as decimal(38, 2)), 0": [
        {"type": "bytes", **WIDE},
        named("fixed", "F", size=16, **WIDE),
    ],
    "'a', 'b'": ["string", logical("string", "uuid"), ENUM],
    "'', '\u00e9\U0001f600', repeat('x', 200)": ["string"],
    "X'616263', X'FF0080'": ["bytes", {"type": "bytes", **DECIMAL}, FIXED, {**FIXED, **DECIMAL}],
    "date'1969-12-31', date'0001-01-01', date'9999-12-31'": INTS,
    f"timestamp{TIMES.replace(', ', ', timestamp')}": [
        *("long", LONGS[1], LONGS[2], LONGS[5], logical("long", "date")),
    ],
    f"timestamp_ntz{TIMES.replace(', ', ', timestamp_ntz')}": [
        *("long", LONGS[5], LONGS[6], LONGS[7], logical("long", "date")),
    ],
    "interval '-1 02:03:04.5' day to second, interval '0 00:00:00' day to second": LONGS,
    "interval 3 hour": LONGS,
    "array(1, null), array()": [{"type": "array", "items": ["int", "null"]}],
    "map('k', 1), map()": [{"type": "map", "values": ["null", "int"]}],
    # nullif: toArrow does not accept null where a literal has made a field not nullable.
    "struct(nullif(1, 0) AS x)": [RECORD, MORE],
    "struct(nullif(7, 0) AS member0, nullif('', '') AS member1), "
    "struct(null AS member0, 'b' AS member1), struct(null AS member0, null AS member1)": [
        ["null", "int", "string"],
        ["int", "string", "null"],
    ],
    "struct(struct(nullif(7, 0) AS x) AS member0, null AS member1), "
    "struct(null AS member0, struct(nullif('b', '') AS y) AS member1)": [
        [RECORD, "null", OTHER_RECORD]
    ],
    "null": ["null"],
}


@needs_to_arrow
def test_what_to_avro_accepts_is_written_as_the_same_bytes(spark):
    """As the fields of one record, whose bytes follow one another."""
    values = [
        f"get(array({values}), int(id)) AS v{i}" for i, values in enumerate(ACCEPTED_BY_TO_AVRO)
    ]
    frame = spark.range(5).coalesce(1).selectExpr(*values).localCheckpoint()
    expressions, types = [], []
    for i, accepted in enumerate(ACCEPTED_BY_TO_AVRO.values()):
        for avro_type in accepted:
            branches = avro_type if isinstance(avro_type, list) else [avro_type]
            union = json.dumps(branches if "null" in branches else ["null", *branches])
            number = len(types)
            expressions.append(f"v{i} AS f{number}")
            types.append(re.sub(r'"name": "([A-Z]\w*)"', rf'"name": "\g<1>{number}"', union))
    fields = [{"name": f"f{i}", "type": json.loads(text)} for i, text in enumerate(types)]
    frame = frame.selectExpr(f"struct({', '.join(expressions)}) AS value")
    schema = json.dumps(named("record", "All", fields=fields))
    table = frame.select("value", to_avro("value", schema).alias("by_spark")).toArrow()
    rest = table["by_spark"].to_pylist()
    for column, avro_type in zip(table["value"].combine_chunks().flatten(), types, strict=True):
        field = json.dumps(
            named("record", "R", fields=[{"name": "f", "type": json.loads(avro_type)}])
        )
        array = pa.StructArray.from_arrays([column], ["f"])
        encoded = AvroEncoder(field, array.type, "value").encode(array)
        assert encoded.problems == [], avro_type
        own = encoded.values.to_pylist()
        assert own == [row[: len(data)] for row, data in zip(rest, own, strict=True)], (
            column.type,
            avro_type,
        )
        rest = [row[len(data) :] for row, data in zip(rest, own, strict=True)]
    assert not any(rest)


UNIONS = [
    ["null", "int", "string"],
    ["string", "null", "int"],
    ["int", "string"],
    ["null", RECORD, OTHER_RECORD],
    [RECORD, OTHER_RECORD, FIXED, ENUM, {"type": "array", "items": ["null", "int", "string"]}],
]


def test_the_column_that_from_avro_makes_of_a_union_is_written_as_it_was(spark):
    branches = {
        "int": 7,
        "string": "s",
        "null": None,
        "A": ("A", {"x": 1}),
        "B": ("B", {"y": "b"}),
        "F": ("F", b"abc"),
        "E": ("E", "b"),
        "array": [7, None, "s"],
    }
    schemas = [named("record", "R", fields=[{"name": "f", "type": union}]) for union in UNIONS]
    written = []
    for schema, union in zip(schemas, UNIONS, strict=True):
        names = [kind if isinstance(kind, str) else kind.get("name", "array") for kind in union]
        written.append([avro_bytes(schema, {"f": branches[name]}) for name in names])
    names = [f"c{i}" for i in range(len(UNIONS))]
    frame = spark.createDataFrame(
        list(zip_longest(*written)), ", ".join(f"{name} BINARY" for name in names)
    ).coalesce(1)
    frame = frame.select(
        *(
            from_avro(name, json.dumps(schema)).alias(name)
            for name, schema in zip(names, schemas, strict=True)
        )
    )
    rows, types = frame.collect(), column_types(frame.schema, names)
    for name, schema, wanted in zip(names, schemas, written, strict=True):
        values = [row[name] and row[name].asDict(recursive=True) for row in rows]
        column = pa.array(values, types[name].arrow).drop_null()
        encoded = AvroEncoder(json.dumps(schema), column.type, "value").encode(column)
        assert (encoded.problems, encoded.values.to_pylist()) == ([], wanted)


#: a value of each Spark type, as SQL
VALUES = {
    **{kind: f"cast(7 AS {kind})" for kind in ("byte", "short", "int", "long", "float", "double")},
    "boolean": "true",
    "decimal": "cast(7 AS decimal(9, 3))",
    "binary": "X'37'",
    "string": "'7'",
    "date": "date'2024-02-29'",
    "timestamp": "timestamp'2024-02-29 12:00:00.123456'",
    "timestamp_ntz": "timestamp_ntz'2024-02-29 12:00:00.123456'",
    "interval": "interval '1 02:03:04.5' day to second",
    "time": "time'12:00:00.123456'",
    "struct": "named_struct('x', 7)",
    "array": "array(7)",
    "map": "map('x', 7)",
}
#: texts that mean something as the type
TEXTS = {
    "boolean": "'true'",
    "uuid": "'00112233-4455-6677-8899-aabbccddeeff'",
    "fixed": "'abc'",
    "date": "'2024-02-29'",
    **{kind["logicalType"]: "'2024-02-29'" for kind in LONGS[1:] if "stamp" in str(kind)},
    "array": "'[7]'",
    **dict.fromkeys(("map", "record", "object"), """'{"x": 7}'"""),
}
SIMPLE = ("boolean", "int", "long", "float", "double", "string", "bytes")
#: the schemas of what the table of conversions calls a type
SCHEMAS = [
    *(("avro", kind, kind) for kind in SIMPLE),
    *(("avro", kind.get("logicalType"), kind) for kind in [*INTS[1:3], *LONGS[1:]]),
    ("avro", "fixed", FIXED),
    ("avro", "uuid", named("fixed", "F", size=16, logicalType="uuid")),
    ("avro", "decimal", {"type": "bytes", **DECIMAL}),
    ("avro", "array", {"type": "array", "items": ["null", "int"]}),
    ("avro", "map", {"type": "map", "values": ["int", "null"]}),
    ("avro", "record", RECORD),
    *(("json", kind, {"type": kind}) for kind in ("boolean", "integer", "number", "string")),
    ("json", "array", {"type": "array", "items": {"type": "integer"}}),
    ("json", "object", {"type": "object", "properties": {"x": {"type": "integer"}}}),
    ("json", "object", {"type": "object", "additionalProperties": {"type": ["null", "integer"]}}),
]
DAYS, MILLIS = 19782, 1709208000123
#: (Spark type, schema's type) -> what its conversion writes
MEANINGS = {
    ("date", "long"): [DAYS],
    ("date", "integer"): [DAYS],
    ("timestamp", "integer"): [MILLIS],
    ("timestamp_ntz", "number"): [MILLIS],
    ("long", "boolean"): [True, True],
    ("string", "array"): [[7], [7]],
    ("string", "object"): [{"x": 7}, {"x": 7}],
    ("int", "timestamp-millis"): [7000, 7, 0],
    ("byte", "timestamp-micros"): [7_000_000, 7000, 7],
    ("double", "timestamp-millis"): [7000],
    ("decimal", "timestamp-micros"): [7_000_000],
    ("long", "date"): [7],
    ("timestamp", "timestamp-nanos"): [MILLIS * 1_000_000 + 456_000],
    ("timestamp", "date"): [DAYS],
    ("string", "date"): [DAYS],
    ("string", "timestamp-millis"): [DAYS * 86_400_000],
    ("date", "timestamp-micros"): [DAYS * 86_400_000_000],
    ("timestamp_ntz", "timestamp-millis"): [MILLIS],
    ("timestamp", "local-timestamp-millis"): [MILLIS],
    ("string", "uuid"): [bytes.fromhex("00112233445566778899aabbccddeeff")],
    ("time", "time-millis"): [43_200_123],
    ("time", "long"): [43_200_123_456],
}


@pytest.fixture
def time_type(spark):
    """Spark's type time, which is off by default."""
    spark.conf.set("spark.sql.timeType.enabled", "true")
    yield
    spark.conf.unset("spark.sql.timeType.enabled")


@needs_to_arrow
@pytest.mark.usefixtures("time_type")
def test_every_conversion_that_a_message_advises_fits_and_keeps_the_meaning(spark):
    """In Spark's ANSI mode, in which a cast that loses a value fails."""
    has_time = spark.catalog.functionExists("time_to_millis")
    values = {kind: sql for kind, sql in VALUES.items() if kind != "time" or has_time}
    types = fields_of(spark.sql(f"SELECT {', '.join(values.values())}"))
    cases, fitting = [], set()  # (Spark type, schema's type, format, schema, expression)
    for (kind, value), column_type in zip(values.items(), types, strict=True):
        for schema_format, wanted, schema in SCHEMAS:
            try:
                encoder(schema_format, json.dumps(schema), *column_type, "value.f")
            except SchemaMismatch as error:
                text = TEXTS.get(wanted, value) if kind == "string" else value
                advised = re.search(r"convert it with (.*), or change", str(error))
                for expression in re.split(r", (?=\w+\()| or ", advised[1]) if advised else ():
                    converted = re.sub(r"\bf\b", text.replace("\\", ""), expression)
                    cases.append((kind, wanted, schema_format, schema, converted))
            except UnsupportedType:
                assert (kind, schema_format) in {("time", "json"), ("interval", "json")}
            else:
                fitting.add((kind, wanted))
    frame = spark.sql(f"SELECT {', '.join(f'{case[-1]} AS c{i}' for i, case in enumerate(cases))}")
    written = defaultdict(list)
    for case, column_type, array in zip(cases, fields_of(frame), frame.toArrow(), strict=True):
        kind, wanted, schema_format, schema, _ = case
        encode = encoder(schema_format, json.dumps(schema), *column_type, "value.f").encode
        (data,) = encode(array.combine_chunks()).values.to_pylist()
        value = avro_value(schema, data) if schema_format == "avro" else json.loads(data)
        written[kind, wanted].append(value)
    meanings = {pair: wanted for pair, wanted in MEANINGS.items() if has_time or "time" not in pair}
    assert {pair: written[pair] for pair in meanings} == meanings
    table = {pair for kinds, wanted, _ in CONVERSIONS for pair in product(kinds, wanted)}
    applied = {pair for pair in written if written[pair]}
    assert {pair for pair in table - applied - fitting if pair[0] in values} == set()
    # What no function converts: nothing is advised.
    for pair in [("timestamp", "int"), ("timestamp", "double"), ("string", "time-micros")]:
        assert not written[pair]


def fields_of(frame):
    """The types of each column, as Spark and Arrow have them."""
    types = column_types(frame.schema, frame.columns)
    return [(types[name].spark, types[name].arrow) for name in frame.columns]


MOVED = "STRUCT<id: BIGINT, at: TIMESTAMP, tags: ARRAY<STRING>, to: STRUCT<zip: STRING>>"
WITH_DECIMAL = "STRUCT<id: BIGINT, price: DECIMAL(12, 2)>"
BY_NAME = {"value.record.name": "com.acme.Order"}
LATEST = {"auto.register.schemas": "false", "use.latest.version": "true"}
AS_SET = {"auto.register.schemas": "false", "value.schema": "{schema}"}


@pytest.mark.parametrize(
    ("column", "is_nullable", "name", "reason", "options"),
    [
        (MOVED, False, "topLevelRecord", None, [{}]),
        (MOVED, False, "com.acme.Order", "expected: com.acme.Order", [BY_NAME, LATEST, AS_SET]),
        (MOVED, True, "topLevelRecord", "writer type: NULL", [LATEST, AS_SET]),
        (WITH_DECIMAL, False, "topLevelRecord", "FIXED", [LATEST, AS_SET]),
        (WITH_DECIMAL, True, "com.acme.Order", "FIXED", [LATEST, AS_SET]),
    ],
)
@pytest.mark.parametrize("level", ["BACKWARD", "FULL_TRANSITIVE"])
def test_a_subject_of_to_avro_or_abris_goes_on_as_the_page_says(
    spark, schema_registry, registry, column, is_nullable, name, reason, options, level
):
    """A registry that checks as Avro's own rules do, and schemas that ABRiS' toAvroSchema makes."""
    topic = f"moved-{uuid.uuid4()}"
    frame = spark.createDataFrame([], f"value {column}")
    namespace, _, record = name.rpartition(".")
    converters = spark._jvm.org.apache.spark.sql.avro.SchemaConverters
    java_type = frame._jdf.schema().apply(0).dataType()
    schema = converters.toAvroType(java_type, is_nullable, record, namespace).toString()
    registry.set_compatibility(f"{topic}-value", level=level)
    registry.register_schema(f"{topic}-value", Schema(schema, "AVRO"))

    def written(**more):
        options = parse(
            {"kafka.bootstrap.servers": "none:1", **avro(schema_registry, topic=topic), **more}
        )
        types = column_types(frame.schema, ["value"])
        rows = pa.array([{"id": 7}, None], types["value"].arrow)
        serializer = prepare(options, types, None)
        return (
            serializer.serialize(pa.record_batch({"value": rows}), topic).batch["value"].to_pylist()
        )

    if reason is not None:
        with pytest.raises(SchemaIncompatible, match=rf"(?s){reason}.*use\.latest\.version"):
            written()
    for more in options:
        data, null = written(
            **{
                key: text.format(schema=schema) if "{" in text else text
                for key, text in more.items()
            }
        )
        assert null is None
        context = SerializationContext(topic, MessageField.VALUE)
        assert avro_deserializer(registry)(data, context)["id"] == 7
        assert avro_deserializer(registry, schema)(data, context)["id"] == 7
