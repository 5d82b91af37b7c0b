"""Ids of schemas in headers, and the headers of rows that were copied from Kafka."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deserializers import avro_deserializer
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import LongType, StringType, StructField, StructType
from record_rows import read as read_rows
from serializing import NUMBER, ROWS, batch, prepared

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.records.arrow import Serialized, _bytes_column, split_by_topic
from spark_kafka_sink.records.dead_letter import dead_letters
from spark_kafka_sink.records.fingerprint import Fingerprint
from spark_kafka_sink.records.rejection import UNKNOWN_ORIGIN
from spark_kafka_sink.schemas.preparation import prepare
from spark_kafka_sink.spark.private_api import column_types


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
def test_confluents_readers_read_values_whatever_their_headers(registry, schema_format, location):
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
def test_the_id_of_a_column_without_a_format_stays_as_it_is(registry, location, serialized):
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
def test_records_have_their_rows_headers_but_for_the_ids(lists, serialized, is_header, data):
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
