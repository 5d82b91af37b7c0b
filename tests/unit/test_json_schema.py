from __future__ import annotations

import json
from typing import Any

import jsonschema
import pyarrow as pa
import pytest

from spark_kafka_sink.errors import SchemaMismatch, UnsupportedType
from spark_kafka_sink.schemas.json_derived import derive_schema
from spark_kafka_sink.schemas.json_encoder import JsonEncoder
from spark_kafka_sink.schemas.json_fit import check_fit


def field(name: str, kind: Any, *, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def array(element: Any, *, nulls: bool = True) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": nulls}


def mapping(value: Any, key: Any = "string", *, nulls: bool = True) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": nulls}


def derived(kind: Any) -> Any:
    schema = json.loads(derive_schema(kind, title="t", column="value"))
    jsonschema.Draft7Validator.check_schema(schema)
    assert schema.pop("$schema") == "http://json-schema.org/draft-07/schema#"
    assert schema.pop("title") == "t"
    return schema


# --- derive_schema --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        ("byte", {"type": "integer"}),
        ("short", {"type": "integer"}),
        ("integer", {"type": "integer"}),
        ("long", {"type": "integer"}),
        ("float", {"type": "number"}),
        ("double", {"type": "number"}),
        ("decimal(38,10)", {"type": "number"}),
        ("boolean", {"type": "boolean"}),
        ("string", {"type": "string"}),
        ("char(3)", {"type": "string"}),
        ("varchar(10)", {"type": "string"}),
        ("string collate UNICODE_CI", {"type": "string"}),
        ("binary", {"type": "string", "contentEncoding": "base64"}),
        ("date", {"type": "string", "format": "date"}),
        ("timestamp", {"type": "string", "format": "date-time"}),
        ("timestamp_ntz", {"type": "string"}),
    ],
)
def test_a_column_that_is_no_struct_has_the_bare_schema_of_its_type(kind, schema):
    assert derived(kind) == schema


def test_a_struct_is_a_closed_object_that_requires_what_is_not_nullable():
    kind = struct(
        field("id", "long", nullable=False),
        field("name", "string"),
        field("tags", array("string"), nullable=False),
        field("limits", mapping("double", nulls=False)),
        field("inner", struct(field("a", array("date", nulls=False)))),
    )
    assert derived(kind) == {
        "type": "object",
        "properties": {
            "id": {"type": "integer"},
            "name": {"oneOf": [{"type": "null"}, {"type": "string"}]},
            "tags": {
                "type": "array",
                "items": {"oneOf": [{"type": "null"}, {"type": "string"}]},
            },
            "limits": {
                "oneOf": [
                    {"type": "null"},
                    {"type": "object", "additionalProperties": {"type": "number"}},
                ]
            },
            "inner": {
                "oneOf": [
                    {"type": "null"},
                    {
                        "type": "object",
                        "properties": {
                            "a": {
                                "oneOf": [
                                    {"type": "null"},
                                    {
                                        "type": "array",
                                        "items": {"type": "string", "format": "date"},
                                    },
                                ]
                            }
                        },
                        "additionalProperties": False,
                    },
                ]
            },
        },
        "required": ["id", "tags"],
        "additionalProperties": False,
    }


def test_the_same_type_has_the_same_text():
    text = derive_schema(struct(field("é", "long", nullable=False)), title="orders", column="value")
    assert text == (
        '{"$schema":"http://json-schema.org/draft-07/schema#","title":"orders","type":"object",'
        '"properties":{"é":{"type":"integer"}},"required":["é"],"additionalProperties":false}'
    )


def test_all_types_that_json_does_not_have_are_listed_at_once():
    kind = struct(
        field("a", struct(field("b", "interval day to second"))),
        field("v", array("variant")),
        field("n", "void"),
        field("t", mapping("time(6)")),
        field("k", mapping("long", "integer")),
        field("kt", mapping("long", "timestamp_ntz")),
        field("ks", mapping("long", struct())),
        field("u", {"type": "udt", "class": "x.Point", "sqlType": "long"}),
        field("twice", "long"),
        field("twice", "string"),
        field("fine", mapping("long", "varchar(3)")),
    )
    with pytest.raises(UnsupportedType) as caught:
        derive_schema(kind, title="t", column="value")
    assert caught.value.problems == (
        "column value.a.b: interval day to second; cast it to string",
        "column value.v.element: variant; cast it with to_json",
        "column value.n: void; cast it to string",
        "column value.t.value: time(6); cast it to string",
        "column value.k: map with integer keys; cast its keys to string",
        "column value.kt: map with timestamp_ntz keys; cast its keys to string",
        "column value.ks: map with struct keys; cast its keys to string",
        "column value.u: user-defined type; select its fields instead",
        "column value.twice: two fields of this name; rename one",
    )
    for problem in caught.value.problems:
        assert problem in str(caught.value)


# --- check_fit ------------------------------------------------------------------------------------

ROW = struct(
    field("id", "long", nullable=False),
    field("name", "string"),
    field("at", "timestamp"),
    field("tags", array("string")),
    field("limits", mapping("double")),
)


def problems(schema: Any, kind: Any) -> list[str]:
    """What check_fit says; empty: it fits."""
    try:
        check_fit(json.dumps(schema), kind, "value")
    except SchemaMismatch as error:
        mismatch = error
    else:
        return []
    assert mismatch.problems
    assert all(problem in str(mismatch) for problem in mismatch.problems)
    return list(mismatch.problems)


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


NO_NULL = (
    "the schema requires a value, the column has it nullable; replace nulls, for instance with "
    "coalesce, or allow null in the schema"
)


def test_every_problem_is_in_one_message():
    schema = an_object(
        id={"type": "string"},
        name={"type": "string"},
        at={"type": ["integer", "boolean"]},
        tags={"type": "array", "items": {"type": "string"}},
        missing={"type": "string"},
    ) | {"required": ["id", "name", "missing"], "additionalProperties": False}
    assert problems(schema, ROW) == [
        "column value.id: the schema allows string, the column has long (integer)",
        f"column value.name: {NO_NULL}",
        "column value.at: the schema allows integer or boolean, the column has timestamp (string)",
        f"column value.tags.element: {NO_NULL}",
        "column value.limits: the schema allows nothing, the column has map (object)",
        "column value: the schema requires missing, the column lacks it",
    ]


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object"},
        {"type": ["null", "object"]},
        {"properties": {"id": {"type": "number"}, "name": {"enum": ["a"]}, "other": False}},
        {"additionalProperties": True, "required": ["id"]},
        {"oneOf": [{"type": "null"}, {"$ref": "#/definitions/row"}]}
        | {"definitions": {"row": an_object(id={"type": "integer"})}},
        {"$ref": "#/$defs/a~1b%20c", "$defs": {"a/b c": {"type": "object"}}},
        {"anyOf": [{"type": "string"}, {"type": "array"}, {"type": "object"}]},
        {"allOf": [{"required": ["id"]}, {"type": "object"}]},
        an_object(tags={"items": {"type": ["string", "null"]}}),
        an_object(tags={"items": {"anyOf": [{"type": "string"}, {"type": "null"}]}}),
        an_object(tags={"items": [{"type": "integer"}]}),
        an_object(tags={"prefixItems": [{"type": "integer"}], "items": False}),
        an_object(
            limits={"additionalProperties": {"oneOf": [{"type": "null"}, {"type": "number"}]}}
        ),
        an_object(limits=an_object(a={"type": "integer"}) | {"additionalProperties": False}),
        an_object(at={"type": "string", "format": "date"}),
        an_object(name={"format": "email", "pattern": "^a", "maxLength": 1}),
        {"patternProperties": {"^[a-z]+$": {"type": "null"}}, "additionalProperties": False},
        {"$ref": "https://example.com/other.json"},
        {"$ref": "#anchor"},
        {"$ref": "#/definitions/missing"},
        {"type": "object", "properties": {"id": {"type": "integer"}}, "not": {}, "if": True},
        {"properties": {"id": {}}, "unevaluatedProperties": False},
    ],
)
def test_a_schema_that_the_row_can_fit_is_accepted(schema):
    assert problems(schema, ROW) == []


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (False, "column value: the schema allows nothing, the column has struct (object)"),
        (
            {"type": "string"},
            "column value: the schema allows string, the column has struct (object)",
        ),
        (
            {"oneOf": [{"type": "null"}]},
            "column value: the schema allows null, the column has struct (object)",
        ),
        (
            {"oneOf": [{"type": "null"}, an_object(id={"type": "boolean"})]},
            "column value.id: the schema allows boolean, the column has long (integer)",
        ),
        (
            {"$ref": "#/$defs/any", "type": "string", "$defs": {"any": True}},
            "column value: the schema allows string, the column has struct (object)",
        ),
        (
            {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}},
            "it cannot be read: maximum recursion depth exceeded",
        ),
        (
            {"additionalProperties": {"type": ["integer", "array"]}},
            "column value.limits: the schema allows integer or array, the column has map (object)",
        ),
        (
            an_object(limits={"additionalProperties": {"type": "integer"}}),
            "column value.limits.value: the schema allows integer, the column has double (number)",
        ),
        (
            an_object(limits={"additionalProperties": {"type": "number"}}),
            f"column value.limits.value: {NO_NULL}",
        ),
        (
            an_object(limits={"additionalProperties": False}),
            "column value.limits.value: the schema allows nothing, the column has double (number)",
        ),
        (
            an_object(tags={"items": False}),
            "column value.tags.element: the schema allows nothing, the column has string",
        ),
    ],
)
def test_a_schema_that_no_row_can_fit_is_rejected(schema, problem):
    assert any(message.startswith(problem) for message in problems(schema, ROW))


# Each for a property, which the column has as a nullable string.
WITH_NULL = [
    {},
    True,
    {"type": ["string", "null"]},
    {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Optional"},
    {"oneOf": [{"type": "null"}, {"type": "string"}]},
    {"$ref": "#/definitions/maybe"},
    {"anyOf": [{"$ref": "#/definitions/text"}, {"type": "null"}]},
    {"allOf": [{"$ref": "#/definitions/maybe"}, {"maxLength": 5}]},
    {"enum": ["x", None]},
    {"const": None},
    {"not": {"type": "integer"}},
]
WITHOUT_NULL = [
    {"type": "string"},
    {"$ref": "#/definitions/text"},
    {"enum": ["x"]},
    {"const": "x"},
    {"anyOf": [{"type": "string"}, {"enum": ["x"]}]},
    {"allOf": [{"type": ["string", "null"]}, {"$ref": "#/definitions/text"}]},
    {"oneOf": [{}, {"type": "null"}]},
    {"type": ["string", "null"], "not": {"type": "null"}},
]


def requires(a: Any) -> dict[str, Any]:
    return an_object(a=a) | {"required": ["a"]}


# Where a property is required, with the property's schema.
PLACES = {
    "object": requires,
    "not in properties": lambda a: {"required": ["a"], "additionalProperties": a},
    "reference": lambda a: {"$ref": "#/definitions/row"},
    "nullable": lambda a: {"anyOf": [{"type": "null"}, requires(a)]},
    "second alternative": lambda a: {"oneOf": [an_object(a={"type": "integer"}), requires(a)]},
    "apart from its schema": lambda a: {"allOf": [{"required": ["a"]}, an_object(a=a)]},
}
A_STRUCT = pa.struct({"a": pa.string()})
COLUMNS = {
    "root": (lambda a: a, struct(field("a", "string")), {"a": None}, A_STRUCT),
    "nested": (
        lambda a: an_object(o=a),
        struct(field("o", struct(field("a", "string")))),
        {"o": {"a": None}},
        pa.struct({"o": A_STRUCT}),
    ),
    "element": (
        lambda a: {"items": a},
        array(struct(field("a", "string")), nulls=False),
        [{"a": None}],
        pa.list_(A_STRUCT),
    ),
    "map": (
        lambda a: {"additionalProperties": a},
        mapping(struct(field("a", "string")), nulls=False),
        {"k": {"a": None}},
        pa.map_(pa.string(), A_STRUCT),
    ),
}


def add_definitions(schema: Any, a: Any) -> Any:
    """References are relative to the whole schema, wherever they are."""
    text = {"type": "string"}
    return schema | {
        "definitions": {"maybe": {"type": ["string", "null"]}, "text": text, "row": requires(a)}
    }


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_null_is_written_where_the_schema_requires_the_property_and_allows_null(column, place):
    around, kind, value, arrow_type = COLUMNS[column]
    for a in WITH_NULL:
        schema = add_definitions(around(PLACES[place](a)), a)
        encoder = JsonEncoder(arrow_type, "value", check_fit(json.dumps(schema), kind, "value"))
        (text,) = encoder.encode(pa.array([value], arrow_type)).values.to_pylist()
        assert json.loads(text) == value, schema
        jsonschema.Draft202012Validator(schema).validate(json.loads(text))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("column", COLUMNS)
def test_a_required_property_without_null_needs_a_column_without_null(column, place):
    around, kind, _, _ = COLUMNS[column]
    for a in WITHOUT_NULL:
        schema = add_definitions(around(PLACES[place](a)), a)
        assert any(message.endswith(f".a: {NO_NULL}") for message in problems(schema, kind)), schema
        fits = json.loads(json.dumps(kind).replace('"nullable": true', '"nullable": false'))
        assert problems(schema, fits) == []


def test_a_null_that_the_schema_does_not_require_is_left_out():
    schema = an_object(a={"type": ["string", "null"]}, b={"type": "string"}) | {"required": ["b"]}
    kind = struct(field("a", "string"), field("b", "string", nullable=False))
    encoder = JsonEncoder(
        pa.struct({"a": pa.string(), "b": pa.string()}),
        "value",
        check_fit(json.dumps(schema), kind, "value"),
    )
    rows = pa.array([{"a": None, "b": "x"}, {"a": "y", "b": "x"}])
    assert encoder.encode(rows).values.to_pylist() == [b'{"b":"x"}', b'{"a":"y","b":"x"}']


def test_if_no_alternative_fits_the_problems_of_each_are_named():
    schema = {"anyOf": [{"type": "string"}, {"type": "null"}, {"type": "integer"}]}
    assert problems(schema, "double") == [
        "column value: the schema allows string, the column has double (number)",
        "column value: the schema allows integer, the column has double (number)",
    ]


def test_a_schema_that_contains_itself_is_followed_as_deep_as_the_column():
    tree = an_object(id={"type": "integer"}, child={"$ref": "#"})
    leaf = struct(field("id", "string"))
    assert problems(tree, struct(field("id", "long"), field("child", leaf))) == [
        "column value.child.id: the schema allows integer, the column has string"
    ]


@pytest.mark.parametrize(
    ("kind", "wanted", "fits"),
    [
        ("decimal(10,0)", "integer", True),
        ("decimal(10,2)", "integer", False),
        ("decimal(10,2)", "number", True),
        ("long", "number", True),
        ("double", "integer", False),
        ("binary", "string", True),
        ("timestamp", "integer", False),
        ("boolean", "string", False),
    ],
)
def test_types_fit_as_json_writes_them(kind, wanted, fits):
    assert (problems({"type": wanted}, kind) == []) is fits


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '"string"',
        "[" * 100_000,
        '{"type": 1}',
        '{"properties": {"id": 1}}',
        '{"properties": []}',
        '{"required": 1}',
        '{"oneOf": 1}',
        '{"anyOf": [1]}',
        '{"properties": {"tags": {"items": 1}}}',
        '{"$ref": 1}',
    ],
)
def test_text_that_is_no_json_schema_is_rejected(text):
    with pytest.raises(SchemaMismatch, match=r"column value .* JSON Schema: it cannot be read: "):
        check_fit(text, ROW, "value")
