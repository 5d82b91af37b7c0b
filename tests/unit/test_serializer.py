"""Key and value of Arrow batches become bytes with the ids of their schemas."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import subprocess
import sys
import threading
import uuid
from contextlib import nullcontext
from dataclasses import replace
from functools import cache

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deserializers import avro_deserializer
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    YearMonthIntervalType,
)
from record_rows import read as read_rows
from stub_registry import StubRegistry, basic, running_stub

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.errors import (
    InvalidOption,
    LimitReached,
    RegistryRejected,
    RegistryUnavailable,
    SchemaIncompatible,
    SchemaMismatch,
    SchemaNotFound,
    UnsupportedType,
)
from spark_kafka_sink.records.arrow import Serialized, _bytes_column, split_by_topic
from spark_kafka_sink.records.dead_letter import dead_letters
from spark_kafka_sink.records.fingerprint import Fingerprint
from spark_kafka_sink.records.rejection import UNKNOWN_ORIGIN
from spark_kafka_sink.schemas import known_schemas
from spark_kafka_sink.schemas.preparation import prepare
from spark_kafka_sink.schemas.serializer import replace_by_json
from spark_kafka_sink.spark.private_api import column_types

ORDER = StructType([StructField("id", LongType(), False), StructField("name", StringType())])
NUMBER = IntegerType()
ROWS = [{"id": 1, "name": "a"}, None, {"id": 3, "name": None}]
REQUIRED = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}],
    }
)
LATEST = {"auto_register_schemas": "false", "use_latest_version": "true"}


@pytest.fixture
def registry():
    with running_stub() as stub:
        yield stub


def options(registry, topic: str | None = "t", **more: str):
    texts = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "value.format": "avro",
        "schema.registry.url": registry.url,
        "schema.registry.request.timeout.ms": "60000",  # tests run on busy machines too
        **({} if topic is None else {"topic": topic}),
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    return parse(texts)


def prepared(registry, topic: str | None = "t", folder=None, value=ORDER, key=NUMBER, **more: str):
    schema = StructType([StructField("value", value), StructField("key", key)])
    parsed = options(registry, topic, **more)
    return prepare(parsed, column_types(schema, parsed.serialized_columns), folder)


def batch(rows=ROWS, **columns) -> pa.RecordBatch:
    value = pa.struct([pa.field("id", pa.int64()), pa.field("name", pa.string())])
    return pa.record_batch({"value": pa.array(rows, value), **columns})


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


def test_a_null_that_a_given_schema_does_not_allow_is_a_problem_of_its_row_in_both_formats(
    registry,
):
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
        return records.batch_bytes

    texts = pa.record_batch({"value": received.column("key")})
    whole = batch_bytes(texts)
    assert received.nbytes <= whole <= received.nbytes + 1000
    assert batch_bytes(texts.slice(5, 1)) == whole
    value = serializer.serialize(received.select(["value"]), "t")
    assert value.batch.nbytes <= batch_bytes(value) < value.batch.nbytes + 1000
    assert batch_bytes(serializer.serialize(received, "t")) == whole + batch_bytes(value)


def test_the_driver_registers_once_and_tasks_ask_nothing(registry):
    serializer = pickle.loads(pickle.dumps(prepared(registry)))
    assert len(registry.requests) == 1
    registry.failure = (500, b"")
    assert len(serializer.serialize(batch(), "t").batch) == 3
    assert len(registry.requests) == 1


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


def test_a_row_that_does_not_fit_is_rejected_as_json(registry):
    serializer = prepared(registry, value_schema=REQUIRED)
    result = serializer.serialize(batch(), "t")
    split = split_by_topic(result, "t", first_row=10)
    (rejected,) = split.rejected
    assert (rejected.error, rejected.records.rows.tolist()) == ("SERIALIZATION_FAILED", [12])
    assert "value.name" in rejected.reason
    assert json.loads(result.batch.column("value")[2].as_py()) == ROWS[2]
    assert split.records[0].rows.tolist() == [10, 11]


@pytest.mark.parametrize(
    ("strategy", "subject"),
    [("topic", "t-value"), ("record", "shop.Order"), ("topic-record", "t-shop.Order")],
)
def test_the_strategy_names_the_subject(registry, strategy, subject):
    prepared(registry, value_schema=REQUIRED, value_subject_name_strategy=strategy)
    assert list(registry.subjects) == [subject]


@pytest.mark.parametrize("schema", ["{", "[" * 100_000])
@pytest.mark.parametrize("strategy", ["topic", "record"])
def test_a_schema_that_is_no_json_names_its_column(registry, strategy, schema):
    with pytest.raises(InvalidOption, match=r"^key\.schema is "):
        prepared(registry, key_format="avro", key_schema=schema, key_subject_name_strategy=strategy)


def test_nothing_is_registered_without_leave(registry):
    ways_out = "t-value.*auto.register.schemas=true.*normalize.schemas=true.*use.latest.version"
    with pytest.raises(SchemaNotFound, match=ways_out):
        prepared(registry, value_schema=REQUIRED, auto_register_schemas="false")
    registry.add("t-value", REQUIRED)
    assert prepared(registry, value_schema=REQUIRED, auto_register_schemas="false").known


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
    ("rules", "is_rejected"),
    [
        ({"domainRules": [{"name": "e", "type": "ENCRYPT", "mode": "WRITEREAD"}]}, True),
        ({"domainRules": [{"name": "c", "type": "CEL", "kind": "CONDITION"}]}, True),
        ({"migrationRules": [{"name": "m", "type": "JSONATA", "mode": "UPGRADE"}]}, False),
        ({"domainRules": []}, False),
        (None, False),
    ],
)
def test_the_latest_schema_may_have_no_rules_for_writers(registry, rules, is_rejected):
    registry.add("t-value", REQUIRED)
    registry.subjects["t-value"][0]["ruleSet"] = rules
    rejected = pytest.raises(RegistryRejected, match="has rules, such as for the encryption")
    with rejected if is_rejected else nullcontext():
        prepared(registry, **LATEST)


def test_columns_with_the_same_latest_schema_must_both_fit(registry):
    registry.add("com.Order", REQUIRED)
    named = {
        f"{part}_{option}": value
        for part in ("key", "value")
        for option, value in (
            ("format", "avro"),
            ("record_name", "com.Order"),
            ("subject_name_strategy", "record"),
        )
    }
    with pytest.raises(SchemaMismatch, match="column key does not fit"):
        prepared(registry, **LATEST, **named)


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


@pytest.fixture
def new_process(monkeypatch):
    """Forgets schemas and clients, but those of other tests: their connections are open."""

    def forget() -> None:
        monkeypatch.setattr(known_schemas, "_known", {})
        monkeypatch.setattr(known_schemas, "_client", cache(known_schemas._client.__wrapped__))

    return forget


def test_a_schema_that_was_known_needs_no_registry_in_a_new_process(
    registry, tmp_path, new_process
):
    prepared(registry, folder=tmp_path)
    new_process()
    registry.failure = (503, b"gone")
    assert prepared(registry, folder=tmp_path).serialize(batch(), "t")
    new_process()
    with pytest.raises(RegistryUnavailable, match="503"):
        prepared(registry, folder=None)


STATIC_TOKEN = {
    "bearer.auth.credentials.source": "STATIC_TOKEN",
    "bearer.auth.identity.pool.id": "pool",  # older clients require it
}
TWO_LOGINS = {
    "user": [
        ({"basic.auth.user.info": login}, basic(login)) for login in ("dev:word", "prod:word")
    ],
    "password": [
        ({"basic.auth.user.info": login}, basic(login)) for login in ("me:dev", "me:prod")
    ],
    "token": [
        (
            {**STATIC_TOKEN, "bearer.auth.token": token, "bearer.auth.logical.cluster": "one"},
            f"Bearer {token}",
        )
        for token in ("dev", "prod")
    ],
    "logical cluster": [
        ({**STATIC_TOKEN, "bearer.auth.token": "mine", "bearer.auth.logical.cluster": name}, name)
        for name in ("dev", "prod")
    ],
}


@pytest.mark.parametrize("is_new_process", [True, False])
@pytest.mark.parametrize("topic", ["t", None])
@pytest.mark.parametrize("logins", TWO_LOGINS.values(), ids=TWO_LOGINS)
def test_the_answers_of_two_registries_at_one_url_do_not_mix(
    registry, tmp_path, new_process, logins, topic, is_new_process
):
    for number, (settings, name) in enumerate(logins):
        registry.tenants[name] = StubRegistry(first_id=100 + number)
        named = {f"schema.registry.{key}": value for key, value in settings.items()}
        serializer = prepared(registry, topic=topic, folder=tmp_path, **named)
        serializer.folder = tmp_path
        rows = batch() if topic else batch(topic=["t"] * len(ROWS))
        value = serializer.serialize(rows, topic).batch.column("value")[0].as_py()
        assert value[:5] == b"\0" + (100 + number).to_bytes(4, "big")
        if is_new_process:
            new_process()
    secret = [value for settings, name in logins for value in (name, *settings.values())]
    for file in tmp_path.iterdir():
        assert file.stat().st_mode & 0o077 == 0
        assert not any(value in file.name for value in secret)


def test_of_two_processes_that_ask_at_once_both_use_the_answer_of_the_first(
    registry, tmp_path, new_process, monkeypatch
):
    latest = {**LATEST, "folder": tmp_path}
    registry.add("t-value", REQUIRED)
    request = known_schemas._request
    first = []

    def overtaken(client, wanted):
        monkeypatch.setattr(known_schemas, "_request", request)
        new_process()
        first.append(prepared(registry, **latest).known)
        new_process()
        registry.add("t-value", REQUIRED.replace("Order", "NewOrder"))
        return request(client, wanted)

    monkeypatch.setattr(known_schemas, "_request", overtaken)
    second = prepared(registry, **latest).known
    assert len(registry.requests) == 2
    assert [second] == first
    new_process()
    assert [prepared(registry, **latest).known] == first
    assert len(list(tmp_path.iterdir())) == 2  # the answer, and the key of its name


def test_a_folder_without_hard_links_keeps_schemas_too(
    registry, tmp_path, new_process, monkeypatch
):
    def link(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    known = prepared(registry, folder=tmp_path).known
    new_process()
    assert prepared(registry, folder=tmp_path).known == known
    assert len(registry.requests) == 1
    assert len(list(tmp_path.iterdir())) == 2


def fingerprint(records) -> str:
    result = Fingerprint()
    result.add(records)
    return result.text()


def test_the_id_may_be_a_header_and_is_not_part_of_the_fingerprint(registry, new_process):
    texts = set()
    for location in ("prefix", "header"):
        for first_id in (1, 77):
            registry.subjects.clear()
            new_process()
            registry.first_id = first_id
            serializer = prepared(registry, schema_id_location=location)
            assert registry.subjects["t-value"][0]["id"] == first_id
            result = serializer.serialize(batch(), "t")
            (records,) = split_by_topic(result, "t").records
            texts.add(fingerprint(records))
    assert len(texts) == 1
    assert records.headers is not None
    assert records.headers.unique_names == [b"__value_schema_id"]
    assert records.headers.values.lengths.tolist() == [17, 0, 17]
    assert (records.headers.values.addresses == 0).tolist() == [False, True, False]
    other = replace(records, values=replace(records.values, lengths=records.values.lengths - 1))
    first = np.array([0])
    assert fingerprint(other.take(first)) != fingerprint(records.take(first))


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def test_ids_in_headers_leave_the_fingerprint_of_other_headers_as_it_is(registry):
    """Each in memory of its own: that of the batch, and one for each column's ids."""
    own = pa.array([[("h", b"x" * 200)], None, [("h", None), ("i", b"y")]], HEADERS)
    columns = {"key": pa.array([1, None, 3], pa.int32()), "headers": own}
    texts = set()
    for location in ("prefix", "header"):
        serializer = prepared(registry, schema_id_location=location, key_format="avro")
        (records,) = split_by_topic(serializer.serialize(batch(**columns), "t"), "t").records
        texts.add(fingerprint(records))
    assert len(texts) == 1
    assert records.headers is not None
    changed = own.take(pa.array([0, 1, 1]))
    (others,) = split_by_topic(
        serializer.serialize(batch(**columns | {"headers": changed}), "t"), "t"
    ).records
    assert fingerprint(others) not in texts


def test_a_dead_letter_with_a_header_that_cannot_be_sent_keeps_the_id(registry):
    serializer = prepared(registry, schema_id_location="header")
    bad = pa.array([[(None, b"x")], None, None], HEADERS)
    (rejected,) = split_by_topic(serializer.serialize(batch(headers=bad), "t"), "t").rejected
    ((letter,),) = map(read_rows, dead_letters(rejected, "dead", UNKNOWN_ORIGIN, 0))
    (name, value), *about = letter.headers
    assert (name, len(value)) == (b"__value_schema_id", 17)
    assert all(name.startswith(b"kafka-nb.") for name, _ in about)
    assert dict(about)[b"kafka-nb.headers"] == b'[{"key": null, "value": "eA=="}]'


# --- headers of rows that were copied from Kafka --------------------------------------------------

ID_NAMES = ("__key_schema_id", "__value_schema_id")
STALE = [("a", b"1"), *((name, b"\1stale id of 16 b.") for name in ID_NAMES * 2), ("b", None)]


def as_pairs(headers):
    return [(name.decode(), value) for name, value in headers]


def decoded(client, schema_format, topic, record):
    """Key and value as Confluent's deserializers of this format read them."""
    results = []
    for field, data in ((MessageField.KEY, record.key), (MessageField.VALUE, record.value)):
        context = SerializationContext(topic, field, as_pairs(record.headers))
        if schema_format == "avro":
            deserialize = avro_deserializer(client)
        else:
            schema = client.get_latest_version(f"{topic}-{field}").schema.schema_str
            conf = {"subject.name.strategy.type": "TOPIC"}
            deserialize = JSONDeserializer(schema, conf=conf, schema_registry_client=client)
        results.append(deserialize(data, context))
    return results


@pytest.mark.parametrize("schema_format", ["avro", "json"])
@pytest.mark.parametrize("location", ["prefix", "header"])
def test_confluents_readers_read_what_was_written_whatever_headers_it_was_copied_with(
    registry, schema_format, location
):
    formats = {"value_format": schema_format, "key_format": schema_format}
    # With less than six bytes, Confluent's reader does not look at the header.
    keys = pa.array(["customer 7", "customer 8"])
    text = StringType()
    client = SchemaRegistryClient({"url": registry.url})
    # Its fields fit the bytes of the other topic's records, prefix included.
    zeros = StructType([StructField("zero", LongType(), False), StructField("no", StringType())])
    first = prepared(registry, "a", value=zeros, key=text, schema_id_location="header", **formats)
    original = pa.array([{"zero": 0, "no": "x"}] * 2)
    original_batch = pa.record_batch({"value": original, "key": keys})
    (records,) = split_by_topic(first.serialize(original_batch, "a"), "a").records
    copied = [record.headers for record in read_rows(records)]
    assert all(len(headers) == 2 for headers in copied)

    rows = [{"id": 1, "name": "abc"}, {"id": 2, "name": "def"}]
    own = pa.array([as_pairs(copied[0]), [*STALE, *as_pairs(copied[1])]], HEADERS)
    second = prepared(registry, "b", key=text, schema_id_location=location, **formats)
    result = second.serialize(batch(rows, key=keys, headers=own), "b")
    (records,) = split_by_topic(result, "b").records
    written = read_rows(records)
    results = [decoded(client, schema_format, "b", record) for record in written]
    assert results == [list(pair) for pair in zip(keys.to_pylist(), rows, strict=True)]
    names = [[name.decode() for name, _ in record.headers] for record in written]
    ours = [] if location == "prefix" else list(ID_NAMES)
    assert [sorted(own) for own in names] == [sorted(ours), sorted(["a", "b", *ours])]


@pytest.mark.parametrize("location", ["prefix", "header"])
@pytest.mark.parametrize("serialized", ["key", "value"])
def test_the_id_of_a_column_without_a_format_stays_as_the_row_has_it(
    registry, location, serialized
):
    """Its bytes are copied, and their id is in the header."""
    parsed = parse(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "schema.registry.url": registry.url,
            "topic": "t",
            f"{serialized}.format": "avro",
            "schema.id.location": location,
        }
    )
    schema = StructType([StructField(serialized, NUMBER)])
    serializer = prepare(parsed, column_types(schema, [serialized]), None)
    bytes_and_headers = {"key": [b"k"], "value": [b"v"], "headers": pa.array([STALE], HEADERS)}
    columns = bytes_and_headers | {serialized: pa.array([1], pa.int32())}
    result = serializer.serialize(pa.record_batch(columns), "t")
    ((record,),) = map(read_rows, split_by_topic(result, "t").records)
    name = f"__{serialized}_schema_id"
    kept = [header for header in STALE if header[0] != name]
    (entry,) = registry.subjects[f"t-{serialized}"]
    ours = [(name, b"\1" + uuid.UUID(entry["guid"]).bytes)] if location == "header" else []
    assert as_pairs(record.headers) == [*kept, *ours]


def test_without_formats_rows_keep_all_their_headers():
    split = split_by_topic(
        pa.record_batch({"value": ["v"], "headers": pa.array([STALE], HEADERS)}), "t"
    )
    ((record,),) = map(read_rows, split.records)
    assert as_pairs(record.headers) == STALE


def test_ids_that_a_row_brings_along_leave_its_fingerprint_as_it_was(registry):
    """A ledger may have the entry of an earlier version, which kept them."""
    own = pa.array([STALE, STALE[::-1], [], None], HEADERS)
    rows = [ROWS[0]] * 4
    texts = set()
    for location in ("prefix", "header"):
        serializer = prepared(registry, schema_id_location=location, key_format="avro")
        columns = {"key": pa.array([1, 2, None, 4], pa.int32()), "headers": own}
        result = serializer.serialize(batch(rows, **columns), "t")
        (records,) = split_by_topic(result, "t").records
        texts.add(fingerprint(records))
        texts.add(fingerprint(records.take(np.arange(4))))
    (with_all,) = split_by_topic(result.batch, "t").records  # without prefixes
    assert texts == {fingerprint(with_all)}


def test_a_header_that_cannot_be_sent_brings_no_stale_ids_into_the_dead_letter(registry):
    bad = pa.array([[*STALE, (None, b"x")]], HEADERS)
    rejected_headers = []
    for more in ({}, {"key_format": "avro"}):
        keys = pa.array([1], pa.int32()) if more else pa.array([b"k"])
        result = prepared(registry, **more).serialize(batch(ROWS[:1], headers=bad, key=keys), "t")
        (rejected,) = split_by_topic(result, "t").rejected
        ((letter,),) = map(read_rows, dead_letters(rejected, "dead", UNKNOWN_ORIGIN, 0))
        headers = json.loads(dict(letter.headers)[b"kafka-nb.headers"])
        rejected_headers.append([header["key"] for header in headers])
    assert rejected_headers == [
        ["a", "__key_schema_id", "__key_schema_id", "b", None],
        ["a", "b", None],
    ]


HEADER_NAMES = st.sampled_from(["a", "__Value_schema_id", "__value_schema_idx", *ID_NAMES])
HEADER_LISTS = st.lists(st.tuples(HEADER_NAMES, st.none() | st.binary(max_size=3)), max_size=6)


@given(
    st.lists(st.none() | HEADER_LISTS, min_size=1, max_size=5),
    st.sets(st.sampled_from(["key", "value"])),
    st.booleans(),
    st.data(),
)
def test_records_have_the_headers_of_their_rows_but_for_the_ids_of_serialized_columns(
    lists, serialized, is_header, data
):
    rows = len(lists)
    texts = {name: [b"%d" % row for row in range(rows)] for name in ("key", "value")}
    sides = sorted(serialized)
    ids = {side: _bytes_column(pa.array([b"id"] * rows)) for side in sides if is_header}
    columns = {**texts, "headers": pa.array(lists, HEADERS)}
    made = Serialized(pa.record_batch(columns), [], dict.fromkeys(sides, 0), ids)
    left_out = {f"__{side}_schema_id" for side in sides}
    added = [(f"__{side}_schema_id", b"id") for side in ids]
    expected = [
        [*(header for header in own or [] if header[0] not in left_out), *added] for own in lists
    ]
    (records,) = split_by_topic(made, "t").records
    assert [as_pairs(row.headers) for row in read_rows(records)] == expected
    indices = data.draw(st.lists(st.integers(0, rows - 1), max_size=5))
    taken = records.take(np.array(indices, dtype=np.int64))
    assert [as_pairs(row.headers) for row in read_rows(taken)] == [expected[i] for i in indices]


def test_a_row_that_was_not_serialized_is_rejected_for_that_whatever_else_is_wrong(registry):
    """A replay sends all others as they are."""
    serializer = prepared(registry, topic=None, value_schema=REQUIRED)
    rows = [{"id": 1, "name": "x"}, {"id": 2, "name": None}, {"id": 3, "name": "z"}]
    columns = {
        "topic": pa.array(["a", "a", None]),
        "partition": pa.array([-1, -1, -1], pa.int32()),
    }
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


def test_a_type_that_avro_lacks_is_named_before_the_registry_is_asked(registry):
    with pytest.raises(UnsupportedType, match=r"value\.i: .*cast it to string"):
        prepared(registry, value=StructType([StructField("i", YearMonthIntervalType())]))
    assert not registry.requests


def test_an_incompatible_schema_is_rejected_with_every_way_out(registry):
    registry.failure = (409, b'{"error_code": 409, "message": "NAME_MISMATCH"}')
    ways_out = r"t-value .*NAME_MISMATCH.*value\.schema.*use\.latest\.version.*value\.record\.name"
    with pytest.raises(SchemaIncompatible, match=ways_out):
        prepared(registry)


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
def test_a_type_is_serialized_up_to_64_levels_and_rejected_by_name_beyond(
    registry, schema_format, has_schema
):
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


@pytest.mark.parametrize(
    ("schema_format", "attributes"),
    [("avro", {"name": "Order", "namespace": "com.acme"}), ("json", {"title": "com.acme.Order"})],
)
@pytest.mark.parametrize(
    ("strategy", "subject"),
    [("topic", "t-value"), ("record", "com.acme.Order"), ("topic-record", "t-com.acme.Order")],
)
def test_the_record_of_a_derived_schema_has_the_name_of_the_option(
    registry, schema_format, attributes, strategy, subject
):
    named = {
        "value_format": schema_format,
        "value_record_name": "com.acme.Order",
        "value_subject_name_strategy": strategy,
    }
    prepared(registry, **named).serialize(batch(), "t")
    ((name, (entry,)),) = registry.subjects.items()
    assert name == subject
    schema = json.loads(entry["schema"])
    assert {attribute: schema[attribute] for attribute in attributes} == attributes
    if strategy != "topic":  # the latest of the subject that is named after it
        known = prepared(registry, **named, **LATEST).known
        assert [schema.id for schema in known.values()] == [entry["id"]]


def test_a_column_without_a_record_has_no_subject_that_is_named_after_one(registry):
    named = {"value_record_name": "a.B", "value_subject_name_strategy": "record"}
    with pytest.raises(SchemaMismatch, match="the schema of value needs a record with a name"):
        prepared(registry, value=StringType(), **named)


def test_a_login_that_is_rejected_is_named_and_hides_the_password(registry):
    registry.authorization = "Basic nobody"
    with pytest.raises(RegistryRejected, match="the login") as caught:
        prepared(registry, **{"schema.registry.basic.auth.user.info": "me:swordfish"})
    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        ((500, b"{}"), "500"),
        ((200, b"<html>"), "usable answer"),
        ((200, b"{}"), "no id"),
        ((200, b"[]"), "usable answer"),
    ],
)
def test_an_answer_that_is_none_is_named(registry, failure, words):
    registry.failure = failure
    with pytest.raises(RegistryUnavailable, match=words):
        prepared(registry)


def test_a_reason_that_is_a_sentence_keeps_one_full_stop(registry, monkeypatch):
    def fail(*_):
        raise OSError("Server disconnected without sending a response.")

    monkeypatch.setattr(SchemaRegistryClient, "register_schema_full_response", fail)
    with pytest.raises(RegistryUnavailable, match=r"sending a response\. \w"):
        prepared(registry)


def test_a_slow_registry_is_given_up_in_time(registry):
    registry.delay_seconds = 5
    with pytest.raises(RegistryUnavailable, match="300 ms"):
        prepared(registry, schema_registry_request_timeout_ms="300")


@pytest.fixture
def topics():
    return batch(ROWS[:1] * 200, topic=[f"t{number}" for number in range(200)])


def test_many_new_topics_are_asked_for_a_few_at_a_time(registry, topics):
    registry.delay_seconds = 0.01
    serializer = prepared(registry, topic=None)
    serializer.serialize(topics, None)
    assert len(serializer.known) == len(registry.requests) == 200
    assert registry.most_at_once <= 16


def test_a_thread_for_a_question_that_does_not_start_names_the_limit(registry, monkeypatch):
    def fail(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as limited:
        limited.setattr(threading.Thread, "start", fail)
        with pytest.raises(LimitReached, match=r"no more threads .*ulimit -u"):
            prepared(registry)
    assert not registry.requests


def test_a_failure_ends_the_questions_and_loses_no_answer(registry, topics):
    registry.failing_subject = "t3-value"
    serializer = prepared(registry, topic=None)
    with pytest.raises(RegistryRejected, match="t3-value"):
        serializer.serialize(topics, None)
    asked = set(registry.requests)
    assert len(asked) < 200
    registry.failing_subject = ""
    registry.requests.clear()
    serializer.serialize(topics, None)
    assert asked & set(registry.requests) == {"POST /subjects/t3-value/versions?normalize=False"}
    assert len(asked) + len(registry.requests) == 201


@pytest.mark.parametrize("schema_format", ["avro", "json"])
def test_a_worker_whose_schemas_are_known_loads_neither_pandas_nor_the_registrys_client(
    registry, tmp_path, schema_format
):
    serializer = prepared(registry, value_format=schema_format)
    (tmp_path / "serializer").write_bytes(pickle.dumps(serializer))
    rows = batch()
    with (
        pa.OSFile(str(tmp_path / "rows"), "wb") as file,
        pa.ipc.new_stream(file, rows.schema) as to,
    ):
        to.write_batch(rows)
    code = """
import pickle, sys
from pathlib import Path
import pyarrow as pa

folder = Path(sys.argv[1])
serializer = pickle.loads((folder / "serializer").read_bytes())
batch = pa.ipc.open_stream(pa.OSFile(str(folder / "rows"))).read_next_batch()
assert len(serializer.serialize(batch, "t").batch) == 3
heavy = ("pandas", "confluent_kafka.schema_registry", "httpx", "fastavro")
assert [name for name in heavy if name in sys.modules] == []
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], timeout=60, check=True)
