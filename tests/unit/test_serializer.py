"""Key and value of Arrow batches become bytes with the ids of their schemas."""

from __future__ import annotations

import io
import json
import pickle
from decimal import Decimal

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
)
from record_rows import read as read_rows
from serializing import LATEST, ORDER, REQUIRED, ROWS, batch, options, prepared

from spark_kafka_sink.errors import (
    RegistryRejected,
    SchemaMismatch,
    SchemaNotFound,
    UnsupportedType,
)
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.schemas.preparation import prepare
from spark_kafka_sink.schemas.serializer import replace_by_json
from spark_kafka_sink.spark.private_api import column_types


def read(schema: str, value: bytes | None) -> object:
    return (
        None if value is None else fastavro.schemaless_reader(io.BytesIO(value), json.loads(schema))
    )


def test_values_have_the_id_of_the_registered_schema_before_them(registry):
    registry.first_id = 513
    result = prepared(registry).serialize(batch(), "t")
    (entry,) = registry.subjects["t-value"]
    values = result.batch.column("value").to_pylist()
    assert [value and value[:5] for value in values] == [b"\0\0\0\2\1", None, b"\0\0\0\2\1"]
    assert [read(entry["schema"], value and value[5:]) for value in values] == ROWS


def test_json_has_the_id_too(registry):
    result = prepared(registry, value_format="json").serialize(batch(), "t")
    values = result.batch.column("value").to_pylist()
    assert [value and json.loads(value[5:]) for value in values] == [ROWS[0], None, {"id": 3}]
    assert registry.subjects["t-value"][0]["schemaType"] == "JSON"


def test_a_null_that_a_given_schema_does_not_allow_is_a_problem_of_its_row(registry):
    text = {"type": "string"}
    schema = json.dumps({"properties": {"id": {}, "name": text}, "required": ["id", "name"]})
    for topic, more in (("t", {"value_format": "json", "value_schema": schema}),
                        ("u", {"value_schema": REQUIRED})):  # fmt: skip
        result = prepared(registry, topic, **more).serialize(batch(), topic)
        values = result.batch.column("value").to_pylist()
        assert (values[0][:1], values[1:]) == (b"\0", [None, b'{"id": 3, "name": null}'])
        (problem,) = result.unserializable
        assert problem.rows.tolist() == [2]
        assert problem.reason == "value.name: null, but the schema requires a value"


@pytest.mark.parametrize("is_latest", [False, True])
def test_a_null_that_a_given_json_schema_requires_is_written(registry, is_latest):
    name = {"type": ["string", "null"]}
    schema = json.dumps({"properties": {"id": {}, "name": name}, "required": ["id", "name"]})
    more = {"value_schema": schema}
    if is_latest:
        registry.add("t-value", schema, "JSON")
        more = LATEST
    serializer = prepared(registry, value_format="json", **more)
    values = pickle.loads(pickle.dumps(serializer)).serialize(batch(), "t").batch.column("value")
    assert [value and json.loads(value[5:]) for value in values.to_pylist()] == ROWS


def test_records_count_the_unserialized_batch_as_long_as_they_keep_it(registry, tmp_path):
    """The columns of a batch that was read from a stream, as Spark's are, share one buffer."""
    rows = [{"id": i, "name": "n" * 100} for i in range(1000)]
    columns = {"key": pa.array([str(i) for i in range(1000)]), "other": pa.array(range(1000))}
    with (
        (tmp_path / "rows").open("wb") as target,
        pa.ipc.new_stream(target, batch(rows, **columns).schema) as stream,
    ):
        stream.write_batch(batch(rows, **columns))
    with (tmp_path / "rows").open("rb") as source:
        received = pa.ipc.open_stream(source).read_next_batch()
    serializer = prepared(registry)

    def batch_bytes(sent):
        (records,) = split_by_topic(sent, "t").records
        return records.arrow_batch_bytes

    texts = pa.record_batch({"value": received.column("key")})
    whole = batch_bytes(texts)
    assert received.nbytes <= whole <= received.nbytes + 1000
    assert batch_bytes(texts.slice(5, 1)) == whole
    value = serializer.serialize(received.select(["value"]), "t")
    assert value.batch.nbytes <= batch_bytes(value) < value.batch.nbytes + 1000
    assert batch_bytes(serializer.serialize(received, "t")) == whole + batch_bytes(value)


def test_every_topic_of_the_column_has_its_own_subject_and_id(registry):
    registry.add("a-value", '"string"')
    serializer = prepared(registry, topic=None)
    assert not registry.requests
    topics = pa.array(["b", "a", "b"])
    result = serializer.serialize(
        batch([{"id": n, "name": "x"} for n in (1, 2, 3)], topic=topics), None
    )
    values = result.batch.column("value").to_pylist()
    assert len(registry.requests) == 2
    assert sorted(registry.subjects) == ["a-value", "b-value"]
    schema = registry.subjects["b-value"][0]["schema"]
    assert [read(schema, value[5:])["id"] for value in values] == [1, 2, 3]
    serializer.serialize(batch([{"id": 1, "name": "x"}], topic=pa.array(["a"])), None)
    assert len(registry.requests) == 2


@pytest.mark.parametrize("topic", [None, "no good"])
def test_a_row_without_a_topic_is_json_in_its_dead_letter(registry, topic):
    serializer = prepared(registry, topic=None)
    rows = [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]
    result = serializer.serialize(batch(rows, topic=pa.array(["a", topic])), None)
    split = split_by_topic(result, None)
    assert list(map(len, split.records)) == [1]
    assert len(split.rejected) == 1
    assert json.loads(result.batch.column("value")[1].as_py()) == rows[1]
    assert list(registry.subjects) == ["a-value"]


DEAD_LETTERS = {"on_record_error": "dead-letter", "dead_letter_topic": "dead"}
REGISTERED = {"value_schema": REQUIRED, "auto_register_schemas": "false"}
EXACTLY_ONCE = {"delivery_guarantee": "exactly-once", "exactly_once_ledger_topic": "ledger"}


@pytest.mark.parametrize("more", [REGISTERED, LATEST], ids=["given", "latest"])
@pytest.mark.parametrize("location", ["prefix", "header"])
def test_rows_of_a_topic_without_a_schema_are_rejected_as_json(registry, more, location):
    registry.add("orders-value", REQUIRED)
    more = {**more, "schema_id_location": location}
    serializer = prepared(registry, topic=None, **DEAD_LETTERS, **more)
    topics = ["ordrs", None, "orders", "ordrs", "oders"]
    rows = batch([{"id": n, "name": "x"} for n in range(5)], topic=pa.array(topics))
    for _ in range(2):
        result = serializer.serialize(rows, None)
        split = split_by_topic(result, None)
        (sent,) = split.records
        assert sent.rows.tolist() == [2]
        values = result.batch.column("value").to_pylist()
        assert [json.loads(values[n])["id"] for n in (0, 1, 3, 4)] == [0, 1, 3, 4]
        by_rows = {tuple(group.records.rows): group for group in split.rejected}
        assert by_rows[(0, 3)].error == by_rows[(4,)].error == "SERIALIZATION_FAILED"
        assert "no such schema for the subject ordrs-value" in by_rows[(0, 3)].reason
        assert by_rows[(1,)].error == "NULL_TOPIC"
    assert len(registry.requests) == 3


@pytest.mark.parametrize("more", [{}, {**DEAD_LETTERS, **EXACTLY_ONCE}], ids=str)
def test_a_topic_without_a_schema_fails_the_task_without_dead_letters(registry, more):
    serializer = prepared(registry, topic=None, **REGISTERED, **more)
    with pytest.raises(SchemaNotFound, match="ordrs-value"):
        serializer.serialize(batch(topic=pa.array(["ordrs"] * 3)), None)


def test_a_row_that_does_not_fit_is_rejected_as_json(registry):
    serializer = prepared(registry, value_schema=REQUIRED)
    result = serializer.serialize(batch(), "t")
    split = split_by_topic(result, "t", first_row=10)
    (rejected,) = split.rejected
    assert (rejected.error, rejected.records.rows.tolist()) == ("SERIALIZATION_FAILED", [12])
    assert "value.name" in rejected.reason
    assert json.loads(result.batch.column("value")[2].as_py()) == ROWS[2]
    assert split.records[0].rows.tolist() == [10, 11]


def test_the_latest_schema_of_the_subject_is_used(registry):
    registry.add("t-value", '"string"')
    with pytest.raises(SchemaMismatch, match="the latest of the subject t-value"):
        prepared(registry, **LATEST)
    registry.add("u-value", REQUIRED)
    result = prepared(registry, "u", **LATEST).serialize(batch(ROWS[:1]), "u")
    assert read(REQUIRED, result.batch.column("value")[0].as_py()[5:]) == ROWS[0]
    with pytest.raises(RegistryRejected, match="AVRO, not JSON"):
        prepared(registry, "u", value_format="json", **LATEST)


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("avro", '{"type":"record","name":"R","fields":[{"name":"id","type":"string"}]}'),
        ("json", '{"type":"object","properties":{"id":{"type":"string"}}}'),
    ],
)
def test_the_latest_schema_of_a_topic_of_the_column_must_fit_too(registry, kind, schema):
    registry.add("u-value", schema, kind.upper())
    serializer = pickle.loads(
        pickle.dumps(prepared(registry, topic=None, value_format=kind, **LATEST))
    )
    rows = batch(ROWS[:1], topic=pa.array(["u"]))
    with pytest.raises(SchemaMismatch, match=r"value\.id: .* the latest of the subject u-value"):
        serializer.serialize(rows, None)


def test_a_row_that_was_not_serialized_is_rejected_for_that_whatever_else_is_wrong(registry):
    """A replay sends all others as they are."""
    serializer = prepared(registry, topic=None, value_schema=REQUIRED)
    rows = [{"id": 1, "name": "x"}, {"id": 2, "name": None}, {"id": 3, "name": "z"}]
    columns = {"topic": pa.array(["a", "a", None]), "partition": pa.array([-1, -1, -1], pa.int32())}
    result = serializer.serialize(batch(rows, **columns), None)
    rejected = split_by_topic(result, None).rejected
    assert [(group.error, group.records.rows.tolist()) for group in rejected] == [
        ("NEGATIVE_PARTITION", [0]),
        ("SERIALIZATION_FAILED", [1]),
        ("NULL_TOPIC", [2]),
    ]
    values = result.batch.column("value").to_pylist()
    assert [value[:1] for value in values] == [b"\0", b"{", b"{"]


@pytest.mark.parametrize("location", ["prefix", "header"])
def test_key_and_value_of_a_row_are_both_serialized_or_both_json(registry, location):
    symbols = '{"type": "enum", "name": "E", "symbols": ["A"]}'
    parsed = options(
        registry,
        key_format="avro",
        key_schema=symbols,
        value_schema=REQUIRED,
        schema_id_location=location,
    )
    schema = StructType([StructField("value", ORDER), StructField("key", StringType())])
    serializer = prepare(parsed, column_types(schema, parsed.serialized_columns), None)
    rows = [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}, {"id": 3, "name": None}]
    result = serializer.serialize(batch(rows, key=pa.array(["A", "B", "A"])), "t")
    assert [json.loads(value) for value in result.batch.column("value").to_pylist()[1:]] == rows[1:]
    assert result.batch.column("key").to_pylist()[1:] == [b'"B"', b'"A"']
    split = split_by_topic(result, "t")
    (sent,), rejected = split.records, split.rejected
    assert sent.rows.tolist() == [0]
    assert [group.records.rows.tolist() for group in rejected] == [[1], [2]]
    for group in rejected:
        names = [name for name, value in read_rows(group.records)[0].headers or [] if value]
        assert names == []


MICROS = pa.duration("us")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (pa.array([2932897], pa.int32()).cast(pa.date32()), "10000-01-01"),
        (pa.array([-719529], pa.int32()).cast(pa.date32()), "-0001-12-31"),
        (pa.array([0], pa.int64()).view(pa.timestamp("us", "Z")), "1970-01-01T00:00:00.000000Z"),
        (pa.array([0], pa.int64()).view(pa.timestamp("us", "-08")), "1970-01-01T00:00:00.000000Z"),
        (pa.array([1], pa.int64()).view(pa.timestamp("us")), "1970-01-01T00:00:00.000001"),
        (pa.array([float("nan")]), "NaN"),
        (pa.array([float("-inf")]), "-Infinity"),
        (pa.array([b"\xff"]), "/w=="),
        (pa.array([Decimal("-1.50")]), "-1.50"),
        (pa.array([93_600_000_000], MICROS), "INTERVAL '1 02:00:00' DAY TO SECOND"),
        (pa.array([-500_000], MICROS), "INTERVAL '-0 00:00:00.5' DAY TO SECOND"),
        (pa.array([-(2**63)], MICROS), "INTERVAL '-106751991 04:00:54.775808' DAY TO SECOND"),
    ],
)
def test_what_python_or_json_do_not_have_is_text_in_a_dead_letter(value, text):
    rows = np.array([0])
    replaced = replace_by_json(pa.nulls(1, pa.large_binary()), value, rows)
    assert json.loads(replaced[0].as_py()) == text


def test_a_null_inside_a_dictionary_is_null_in_a_dead_letter():
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array([None, "x"]))
    replaced = replace_by_json(pa.nulls(2, pa.large_binary()), dictionary, np.array([0, 1]))
    assert replaced.to_pylist() == [None, b'"x"']


@pytest.mark.parametrize("schema_format", ["avro", "json"])
@pytest.mark.parametrize("location", ["prefix", "header"])
def test_rows_of_many_topics_have_the_ids_of_their_own_subjects(registry, schema_format, location):
    """In any order, with rows that are rejected, and two schemas."""
    avro = [REQUIRED, REQUIRED.replace("Order", "Other")]
    name = {"type": ["string", "null"]}
    closed = {"properties": {"id": {}, "name": name}, "additionalProperties": False}
    json_schemas = [json.dumps(closed), json.dumps({"required": ["name"], **closed})]
    schemas = avro if schema_format == "avro" else json_schemas
    for n in range(10):
        registry.add(f"t{n}-value", schemas[n % 3 == 0], schema_format.upper())
    numbers = [7, 3, None, 0, 7, 9, 1, 3, 2, 4, 6, 5, 8, 0]
    topics = pa.array([None if n is None else f"t{n}" for n in numbers])
    rows = [{"id": i, "name": None if i % 4 == 1 else f"n{i}"} for i in range(len(numbers))]
    rows[4] = None
    serializer = prepared(
        registry, topic=None, value_format=schema_format, schema_id_location=location, **LATEST
    )
    alone = prepared(
        registry, topic=None, value_format=schema_format, schema_id_location=location, **LATEST
    )
    split = split_by_topic(serializer.serialize(batch(rows, topic=topics), None), None)
    sent = {}
    for records in split.records:
        for row, record in zip(records.rows.tolist(), read_rows(records), strict=True):
            sent[row] = (records.topic, record.value, record.headers)
    assert len(sent) + sum(len(group.records) for group in split.rejected) == len(rows)
    assert (len(sent) < len(rows) - 1) is (schema_format == "avro")
    for i, (topic, value, headers) in sent.items():
        one = alone.serialize(batch([rows[i]], topic=pa.array([topic])), None)
        (records,) = split_by_topic(one, None).records
        (record,) = read_rows(records)
        assert (topic, value, headers) == (f"t{numbers[i]}", record.value, record.headers)


def test_a_registry_without_guids_is_told_apart(registry):
    registry.gives_guids = False
    with pytest.raises(RegistryRejected, match="GUID"):
        prepared(registry, schema_id_location="header")
    serializer = prepared(registry, topic=None, schema_id_location="header")
    with pytest.raises(RegistryRejected, match="GUID"):
        serializer.serialize(batch(topic=pa.array(["t"] * 3)), None)


def test_both_columns_have_formats(registry):
    serializer = prepared(registry, key_format="json")
    result = serializer.serialize(batch(key=pa.array([1, None, 3], pa.int32())), "t")
    assert sorted(registry.subjects) == ["t-key", "t-value"]
    keys = result.batch.column("key").to_pylist()
    assert [key and key[5:] for key in keys] == [b"1", None, b"3"]


def nested(levels: int) -> StructType | ArrayType:
    kind = LongType()
    for level in range(levels):
        kind = ArrayType(kind) if level % 3 == 1 else StructType([StructField("a", kind)])
    return kind


def beneath(frames: int, call):
    """Call it as deep in the stack as notebooks and Spark do."""
    return beneath(frames - 1, call) if frames else call()


@pytest.mark.parametrize("schema_format", ["avro", "json"])
@pytest.mark.parametrize("has_schema", [False, True])
def test_a_type_has_64_levels_at_most_or_is_rejected_by_name(registry, schema_format, has_schema):
    formats = {"value_format": schema_format}
    with pytest.raises(UnsupportedType, match=r"value has 65 levels .*, and at most 64"):
        prepared(registry, value=nested(65), **formats)
    with pytest.raises(UnsupportedType, match="value has 300 levels"):
        prepared(registry, value=MapType(StringType(), nested(299)), **formats)
    assert not registry.requests

    def serialize():
        serializer = prepared(registry, value=nested(64), **formats)
        if has_schema:
            (schema,) = {entry["schema"] for entry in registry.subjects["t-value"]}
            serializer = prepared(registry, value=nested(64), value_schema=schema, **formats)
        serializer = pickle.loads(pickle.dumps(serializer))
        kind = column_types(StructType([StructField("value", nested(64))]), ["value"])
        return serializer.serialize(
            pa.record_batch({"value": pa.array([None], kind["value"].arrow)}), "t"
        )

    assert beneath(300, serialize).batch.column("value").to_pylist() == [None]


@pytest.mark.parametrize("schema_format", ["avro", "json"])
@pytest.mark.parametrize("column", ["key", "value"])
def test_a_string_that_is_not_utf_8_makes_its_row_unserializable(registry, schema_format, column):
    schema = StructType([StructField("key", StringType()), StructField("value", StringType())])
    parsed = options(registry, value_format=schema_format, key_format=schema_format)
    serializer = prepare(parsed, column_types(schema, parsed.serialized_columns), None)
    texts = {"key": pa.array(["k", "k"]), "value": pa.array(["v", "v"])}
    texts[column] = pa.array([b"\xff\xfe", b"good"]).view(pa.string())
    result = serializer.serialize(pa.record_batch(texts), "t")
    (rows,) = result.unserializable
    assert rows.rows.tolist() == [0]
    assert rows.reason.startswith(f"{column}: a string is not UTF-8")
    assert result.batch.column(column)[1].as_py()[5:].strip(b'"\x08') == b"good"
