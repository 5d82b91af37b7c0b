from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from spark_kafka_sink.errors import SchemaMismatch, UnsupportedType
from spark_kafka_sink.json_schema.derived import derive_schema
from spark_kafka_sink.json_schema.given import check_fit


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
        found = error
    else:
        return []
    assert found.problems
    assert all(problem in str(found) for problem in found.problems)
    return list(found.problems)


def an_object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def test_every_problem_is_in_one_message():
    schema = an_object(
        id={"type": "string"},
        name={"type": ["integer", "null"]},
        at={"type": "string", "format": "date"},
        tags={"type": "array", "items": {"type": "string"}},
        missing={"type": "string"},
    ) | {"required": ["id", "name", "missing"], "additionalProperties": False}
    assert problems(schema, ROW) == [
        "column value.name: the schema requires it, the column has it nullable",
        "column value: the schema requires missing, the column does not have it",
        "column value.id: the schema wants string, the column has long (integer)",
        "column value.name: the schema wants integer, the column has string",
        "column value.at: the schema wants the format date, the column has timestamp (string)",
        "column value.tags.element: the schema does not allow null, the column has it nullable",
        "column value.limits: the schema does not have it, and allows no others",
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
        an_object(at={"type": "string", "format": "date-time"}),
        an_object(name={"type": "string", "format": "date-time"}),
        an_object(name={"format": "email", "pattern": "^a", "maxLength": 1}),
        {"patternProperties": {"^(id|name)$": {}, "^[a-z]+$": True}, "additionalProperties": False},
        {"$ref": "https://example.com/other.json"},
        {"type": "object", "properties": {"id": {"type": "integer"}}, "not": {}, "if": True},
        {"properties": {"id": {}}, "unevaluatedProperties": False},
    ],
)
def test_a_schema_that_the_row_can_fit_is_accepted(schema):
    assert problems(schema, ROW) == []


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (False, "column value: the schema allows no value, the column has struct (object)"),
        (
            {"type": "string"},
            "column value: the schema wants string, the column has struct (object)",
        ),
        (
            {"type": "null"},
            "column value: the schema wants only null, the column has struct (object)",
        ),
        (
            {"oneOf": [{"type": "null"}]},
            "column value: the schema wants only null, the column has struct (object)",
        ),
        (
            {"oneOf": [{"type": "null"}, an_object(id={"type": "boolean"})]},
            "column value.id: the schema wants boolean, the column has long (integer)",
        ),
        (
            {"allOf": [{}, {"required": ["name"]}]},
            "column value.name: the schema requires it, the column has it nullable",
        ),
        (
            {"$ref": "#/definitions/a"},
            "column value: the schema refers to #/definitions/a, which it does not have",
        ),
        (
            {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}},
            "column value: the schema's #/definitions/a refers only to itself",
        ),
        (
            {"additionalProperties": {"type": ["integer", "array"]}},
            "column value.limits: the schema wants integer or array, the column has map (object)",
        ),
        (
            an_object(limits={"additionalProperties": {"type": "integer"}}),
            "column value.limits.value: the schema wants integer, the column has double (number)",
        ),
        (
            an_object(limits={"additionalProperties": {"type": "number"}}),
            "column value.limits.value: the schema does not allow null, the column has it nullable",
        ),
        (
            an_object(limits={"additionalProperties": False}),
            "column value.limits.value: the schema allows no value, the column has double (number)",
        ),
        (
            an_object(tags={"items": False}),
            "column value.tags.element: the schema allows no value, the column has string",
        ),
        (
            {"patternProperties": {"^t": {"type": "string"}}},
            "column value.tags: the schema wants string, the column has array",
        ),
    ],
)
def test_a_schema_that_no_row_can_fit_is_refused(schema, problem):
    assert problem in problems(schema, ROW)


def test_alternatives_of_which_none_fits_are_one_problem_that_says_why():
    schema = {"anyOf": [{"type": "string"}, {"type": "integer"}]}
    (problem,) = problems(schema, "double")
    assert problem == (
        "column value: the column has double (number), which fits none of the schema's 2 "
        "alternatives (column value: the schema wants string, the column has double (number); "
        "column value: the schema wants integer, the column has double (number))"
    )


def test_a_schema_that_contains_itself_is_followed_as_deep_as_the_column():
    tree = an_object(id={"type": "integer"}, child={"$ref": "#"})
    leaf = struct(field("id", "string"))
    assert problems(tree, struct(field("id", "long"), field("child", leaf))) == [
        "column value.child.id: the schema wants integer, the column has string"
    ]


def test_keywords_beside_a_reference_apply_only_in_newer_drafts():
    schema = {"$ref": "#/$defs/any", "type": "string", "$defs": {"any": True}}
    newer = schema | {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    assert problems(schema, "long") == []
    assert problems(newer, "long") == [
        "column value: the schema wants string, the column has long (integer)"
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
    ("kind", "wanted", "fits"),
    [
        ("timestamp", "date-time", True),
        ("timestamp_ntz", "date-time", False),
        ("date", "date-time", False),
        ("date", "date", True),
        ("string", "date", True),
    ],
)
def test_formats_of_dates_and_times_are_compared(kind, wanted, fits):
    assert (problems({"type": "string", "format": wanted}, kind) == []) is fits


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "it is not JSON"),
        ('"string"', "# is neither an object nor a boolean"),
        ("[" * 100_000, "it is not JSON"),
        ('{"type": "long"}', "#/type is not a type, or a list of types"),
        ('{"type": []}', "#/type is not a type"),
        ('{"properties": {"a": {"type": 1}}}', "#/properties/a/type is not a type"),
        ('{"properties": {"a": 1}}', "#/properties/a is neither an object nor a boolean"),
        ('{"properties": []}', "#/properties is not an object of schemas"),
        ('{"required": "id"}', "#/required is not a list of names"),
        ('{"oneOf": []}', "#/oneOf is not a list of schemas"),
        ('{"anyOf": [{}, 1]}', "#/anyOf/1 is neither"),
        ('{"items": [1]}', "#/items/0 is neither"),
        ('{"items": 1}', "#/items is neither"),
        ('{"definitions": {"a": {"additionalProperties": 1}}}', "additionalProperties is neither"),
        ('{"$ref": 1}', "#/$ref is not a string"),
    ],
)
def test_text_that_is_no_json_schema_is_refused(text, problem):
    with pytest.raises(
        SchemaMismatch, match="the schema of column value is not a JSON Schema"
    ) as e:
        check_fit(text, ROW, "value")
    assert problem in str(e.value)


def test_a_column_that_json_cannot_have_is_refused_before_any_comparison():
    with pytest.raises(UnsupportedType, match=r"column value\.v: variant; cast it with to_json"):
        check_fit("true", struct(field("v", "variant")), "value")
