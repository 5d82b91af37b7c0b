"""Which subjects and schemas a query asks the registry for, before any row is serialized."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType, YearMonthIntervalType
from serializing import LATEST, REQUIRED, ROWS, batch, prepared

from spark_kafka_sink.errors import InvalidOption, SchemaMismatch, SchemaNotFound, UnsupportedType


@pytest.mark.parametrize(
    ("topic", "strategy", "subjects"),
    [
        ("t", "topic", ["t-value"]),
        ("t", "record", ["shop.Order"]),
        ("t", "topic-record", ["t-shop.Order"]),
        (None, "topic", []),
        (None, "record", ["shop.Order"]),
        (None, "topic-record", []),
    ],
)
def test_the_strategy_names_the_subject(registry, topic, strategy, subjects):
    """Before the tasks, unless it depends on topics that the column names."""
    serializer = prepared(
        registry, topic, value_schema=REQUIRED, value_subject_name_strategy=strategy
    )
    assert list(registry.subjects) == subjects
    rows = batch(ROWS[:1], topic=pa.array(["t"]))
    assert serializer.serialize(rows, topic).batch.column("value")[0].as_py()[0] == 0
    assert len(registry.requests) == 1


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


def test_nothing_is_registered_without_leave(registry):
    ways_out = "t-value.*auto.register.schemas=true.*normalize.schemas=true.*use.latest.version"
    with pytest.raises(SchemaNotFound, match=ways_out):
        prepared(registry, value_schema=REQUIRED, auto_register_schemas="false")
    registry.add("t-value", REQUIRED)
    assert prepared(registry, value_schema=REQUIRED, auto_register_schemas="false").known


@pytest.mark.parametrize("is_latest", [False, True])
@pytest.mark.parametrize(
    ("name", "problem"),
    [("größe", "not every library of Avro accepts"), ("order-id", "Avro does not allow")],
)
def test_a_name_that_is_not_portable_may_be_in_another_schema(registry, name, problem, is_latest):
    value = StructType([StructField(name, LongType())])
    with pytest.raises(SchemaMismatch, match=f"{problem} the name '{name}'; rename"):
        prepared(registry, value=value)
    named = {"name": name} if name.isidentifier() else {"name": "order_id", "aliases": [name]}
    fields = [{**named, "type": ["null", "long"]}]
    schema = json.dumps({"type": "record", "name": "R", "fields": fields})
    registry.add("t-value", schema)
    assert prepared(registry, value=value, **(LATEST if is_latest else {"value_schema": schema}))


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


@pytest.mark.parametrize("schema", ["{", "[" * 100_000])
@pytest.mark.parametrize("strategy", ["topic", "record"])
def test_a_schema_that_is_no_json_names_its_column(registry, strategy, schema):
    with pytest.raises(InvalidOption, match=r"^key\.schema is "):
        prepared(registry, key_format="avro", key_schema=schema, key_subject_name_strategy=strategy)


def test_a_type_that_avro_lacks_is_named_before_the_registry_is_asked(registry):
    with pytest.raises(UnsupportedType, match=r"value\.i: .*cast it to string"):
        prepared(registry, value=StructType([StructField("i", YearMonthIntervalType())]))
    assert not registry.requests
