import json
import re
from typing import Any

import fastavro
import pytest

from spark_kafka_sink.errors import SchemaMismatch, UnsupportedType
from spark_kafka_sink.schemas.avro.derived import derive_schema


def field(name: str, spark_type: Any, nullable: bool = True) -> Any:
    return {"name": name, "type": spark_type, "nullable": nullable, "metadata": {}}


def struct(*fields: Any) -> Any:
    return {"type": "struct", "fields": list(fields)}


def array(element: Any, contains_null: bool = True) -> Any:
    return {"type": "array", "elementType": element, "containsNull": contains_null}


def string_map(value: Any, keys: Any = "string") -> Any:
    return {"type": "map", "keyType": keys, "valueType": value, "valueContainsNull": True}


def derive(spark_type: Any, **names: Any) -> Any:
    schema = json.loads(derive_schema(spark_type, **{"name": "Row", "column": "value"} | names))
    fastavro.parse_schema(schema)
    return schema


@pytest.mark.parametrize(
    ("spark_type", "avro_type"),
    [
        ("boolean", "boolean"),
        ("byte", "int"),
        ("short", "int"),
        ("integer", "int"),
        ("long", "long"),
        ("float", "float"),
        ("double", "double"),
        ("string", "string"),
        ("char(3)", "string"),
        ("varchar(3)", "string"),
        ("string collate UNICODE_CI", "string"),
        ("binary", "bytes"),
        ("date", {"type": "int", "logicalType": "date"}),
        ("timestamp", {"type": "long", "logicalType": "timestamp-micros"}),
        ("timestamp_ntz", {"type": "long", "logicalType": "local-timestamp-micros"}),
        *(
            (
                f"time({digits})",
                {"type": "long", "logicalType": "time-micros"}
                | {"spark.sql.catalyst.type": f"time({digits})"},
            )
            for digits in (0, 6)
        ),
        ("interval hour", {"type": "long", "spark.sql.catalyst.type": "interval hour"}),
        (
            "interval day to second",
            {"type": "long", "spark.sql.catalyst.type": "interval day to second"},
        ),
        (array("void"), {"type": "array", "items": "null"}),
        ("decimal(10,2)", {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}),
        (array("long"), {"type": "array", "items": ["null", "long"]}),
        (array("long", False), {"type": "array", "items": "long"}),
        (string_map("long"), {"type": "map", "values": ["null", "long"]}),
        (string_map("long", "varchar(5)"), {"type": "map", "values": ["null", "long"]}),
    ],
)
def test_each_spark_type_has_the_avro_type_of_to_avro(spark_type: Any, avro_type: Any) -> None:
    assert derive(spark_type) == avro_type


def test_nullable_fields_have_the_default_null() -> None:
    assert derive(struct(field("a", "long"), field("b", "long", False)), name="n.s.Row") == {
        "type": "record",
        "name": "Row",
        "namespace": "n.s",
        "fields": [
            {"name": "a", "type": ["null", "long"], "default": None},
            {"name": "b", "type": "long"},
        ],
    }


def test_a_nested_record_is_named_for_its_field_in_the_namespace_of_the_one_around_it() -> None:
    inner = struct(field("x", "long", False))
    spark_type = struct(
        field("a", struct(field("a", inner, False)), False),
        field("b", array(inner, False), False),
        field("c", string_map(inner), False),
    )
    names = []

    def visit(schema: Any) -> None:
        if isinstance(schema, list):
            for branch in schema:
                visit(branch)
        elif isinstance(schema, dict):
            if schema["type"] == "record":
                names.append(f"{schema.get('namespace', '')}.{schema['name']}")
            for inner_field in schema.get("fields", []):
                visit(inner_field["type"])
            visit(schema.get("items"))
            visit(schema.get("values"))

    visit(derive(spark_type, name="n.Row"))
    assert names == ["n.Row", "n.Row.a", "n.Row.a.a", "n.Row.b", "n.Row.c"]


def test_the_text_is_the_same_every_time_and_short() -> None:
    spark_type = struct(field("a", "long"))
    text = derive_schema(spark_type, name="Row", column="value")
    assert text == (
        '{"type":"record","name":"Row","fields":'
        '[{"name":"a","type":["null","long"],"default":null}]}'
    )


def test_fields_that_differ_only_in_case_are_allowed() -> None:
    schema = derive(struct(field("id", "long"), field("ID", "long")))
    assert [inner["name"] for inner in schema["fields"]] == ["id", "ID"]


UNSUPPORTED = [
    ("interval year to month", "interval year to month; cast it to string"),
    ("interval", "interval; cast it to string"),
    ("variant", "variant; cast it with to_json"),
    ("geometry(4326)", "geometry(4326); convert it with st_asbinary"),
    ("decimal(5,-2)", "decimal(5,-2); cast it to string"),
    (
        {"type": "udt", "class": "c", "sqlType": "long"},
        "user-defined type; convert it to structs or arrays",
    ),
    (
        string_map("long", "integer"),
        "map with keys of type integer; cast its keys to string, or use an array of structs",
    ),
    (
        string_map("long", struct()),
        "map with keys of type struct; cast its keys to string, or use an array of structs",
    ),
]


@pytest.mark.parametrize(("spark_type", "problem"), UNSUPPORTED)
def test_a_type_that_avro_does_not_have_is_rejected_with_a_remedy(
    spark_type: Any, problem: str
) -> None:
    with pytest.raises(UnsupportedType) as caught:
        derive(spark_type)
    assert caught.value.problems == (f"value: {problem}",)


def test_a_column_of_type_void_is_rejected() -> None:
    with pytest.raises(UnsupportedType, match="void; cast it to the type that it should have"):
        derive("void")


def test_all_problems_are_reported_at_once() -> None:
    fields = [field(f"f{i}", array(kind)) for i, (kind, _) in enumerate(UNSUPPORTED)]
    with pytest.raises(UnsupportedType) as caught:
        derive(struct(field("s", struct(*fields)), field("no name", "long")))
    assert caught.value.problems == (
        *(f"value.s.f{i}.element: {problem}" for i, (_, problem) in enumerate(UNSUPPORTED)),
        (
            "value.no name: Avro does not allow the name 'no name'; rename the field, such as to "
            "no_name"
        ),
    )
    assert all(problem in str(caught.value) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("name", "allowed"), [("a-b", "a_b"), ("1a", "_1a"), ("é", "_"), ("", "_"), ("a\n", "a_")]
)
def test_a_name_that_avro_forbids_is_rejected_with_one_that_it_allows(
    name: str, allowed: str
) -> None:
    words = f"Avro does not allow the name {name!r}; rename the field, such as to {allowed}"
    if name == "é":  # Java's Avro accepts it
        words = words.replace("Avro does not allow", "not every library of Avro accepts")
        words += ", or give the schema as value.schema"
    with pytest.raises(SchemaMismatch, match=f"{re.escape(words)}$") as caught:
        derive(struct(field("s", struct(field(name, "long")))))
    assert not isinstance(caught.value, UnsupportedType)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(f"value.s.{name}: ")
    derive(struct(field(allowed, "long")))


def test_two_fields_of_the_same_name_are_rejected() -> None:
    with pytest.raises(SchemaMismatch) as caught:
        derive(struct(field("a", "long"), field("a", "string")))
    assert caught.value.problems == ("value.a: two fields have this name; rename one of them",)
