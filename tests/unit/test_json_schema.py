from __future__ import annotations

import json
import random
import re
import sys
from collections import Counter
from collections.abc import Callable
from itertools import product
from typing import Any

import jsonschema
import pyarrow as pa
import pytest
from jsonschema.validators import validator_for
from referencing import Registry

from spark_kafka_sink.errors import LibraryUnavailable, SchemaMismatch, UnsupportedType
from spark_kafka_sink.schemas.encoded import Encoded
from spark_kafka_sink.schemas.json.derived import derive_schema, json_type
from spark_kafka_sink.schemas.json.encoder import JsonEncoder
from spark_kafka_sink.schemas.json.fit import check_fit


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
            "tags": {"type": "array", "items": {"oneOf": [{"type": "null"}, {"type": "string"}]}},
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


def test_every_problem_is_in_one_message():
    schema = an_object(
        id={"type": "string"},
        name={"type": "string"},
        at={"type": ["integer", "boolean"]},
        tags={"type": "array", "items": {"type": "boolean"}},
        missing={"type": "string"},
    ) | {"required": ["id", "name", "missing"], "additionalProperties": False}
    at = "the column has timestamp (string); convert it with unix_millis(at)"
    tags = "the column has string; convert it with transform(tags, x -> boolean(x))"
    limits = "the column has map (object); drop it from the column, or add it to the schema"
    assert problems(schema, ROW) == [
        f"{ID_NO_TEXT}; convert it with string(id), or change the schema",
        f"column value.at: the schema allows integer or boolean, {at}, or change the schema",
        f"column value.tags.element: the schema allows boolean, {tags}, or change the schema",
        f"column value.limits: the schema allows nothing, {limits}",
        "column value: the schema requires missing, the column lacks it",
    ]


def test_a_name_with_a_dot_is_quoted_in_the_remedy():
    kind = struct(field("a.b", "long"), field("c.`d`", array("long")), field("e", "long"))
    texts = {"type": "array", "items": TEXT}
    schema = an_object(**{"a.b": TEXT, "c.`d`": texts, "e": TEXT})
    remedies = [re.search("convert it with (.*), or", text)[1] for text in problems(schema, kind)]
    assert remedies == ["string(`a.b`)", "transform(`c.``d```, x -> string(x))", "string(e)"]


NAMES = [field["name"] for field in ROW["fields"]]
DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
TEXT = {"type": "string"}


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
        an_object(limits=an_object(a={"type": "number"}) | {"additionalProperties": False}),
        an_object(limits=an_object(a={"type": "string"})),
        an_object(limits={"patternProperties": {"a": True}, "additionalProperties": False}),
        an_object(limits={"propertyNames": {"maxLength": 1}}),
        an_object(limits={"additionalProperties": {"type": "number"}}),
        an_object(tags={"items": {"type": "string"}}),
        {"properties": {"name": {"type": "string"}}, "required": ["name"]},
        an_object(at={"type": "string", "format": "date"}),
        an_object(name={"format": "email", "pattern": "^a", "maxLength": 1}),
        {"patternProperties": {"^[a-z]+$": True}, "additionalProperties": False},
        {"patternProperties": {r"^\p{L}+$": True}, "additionalProperties": False},
        {"propertyNames": {"pattern": "^[a-z]+$", "maxLength": 6, "not": {"const": "x"}}},
        {"$ref": "https://example.com/other.json"},
        {"$ref": "#anchor"},
        {"$ref": "#/definitions/missing"},
        {"type": "object", "properties": {"id": {"type": "integer"}}, "not": {}, "if": True},
        {"if": {"required": ["id"]}, "then": {"properties": dict.fromkeys(NAMES, True)}}
        | {"unevaluatedProperties": False},
        {"anyOf": [an_object(**{name: True}) for name in NAMES], "unevaluatedProperties": False},
        {"$schema": DRAFT_7, "unevaluatedProperties": False},
        {"$schema": DRAFT_7, "$ref": "#/definitions/any", "type": "string"}
        | {"definitions": {"any": True}},
        {"$schema": "https://example.com/dialect", "$ref": "https://example.com/other#a"},
    ],
)
def test_a_schema_that_the_row_can_fit_is_accepted(schema):
    assert problems(schema, ROW) == []


ID_NO_TEXT = "column value.id: the schema allows string, the column has long (integer)"
#: a schema whose properties are what the document around it calls a node
LIST_OF_ANY = {
    "list": {
        "$id": "list",
        "properties": {"id": {"$dynamicRef": "#node"}},
        "$defs": {"any": {"$dynamicAnchor": "node"}},
    }
}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        (False, "column value: the schema allows nothing, the column has struct (object)"),
        ({"type": "string"},
         "column value: the schema allows string, the column has struct (object)"),
        ({"oneOf": [{"type": "null"}]},
         "column value: the schema allows null, the column has struct (object)"),
        ({"oneOf": [{"type": "null"}, an_object(id={"type": "boolean"})]},
         "column value.id: the schema allows boolean, the column has long (integer)"),
        (
            {"$ref": "#/$defs/any", "type": "string", "$defs": {"any": True}},
            "column value: the schema allows string, the column has struct (object)",
        ),
        (
            {"$ref": "#/definitions/a", "definitions": {"a": {"$ref": "#/definitions/a"}}},
            "it cannot be read: it is nested too deeply, or refers to itself",
        ),
        *(
            (
                an_object(name={"type": "array", "items": items}) | definitions,
                "column value.name: the schema allows array, the column has string",
            )
            for items, definitions in (
                ([TEXT, {"type": "integer"}], {"$schema": DRAFT_7}),
                ({"$ref": "#/$defs/a"}, {"$defs": {"a": {"$ref": "#/$defs/a"}}}),
            )
        ),
        ({"additionalProperties": {"type": ["integer", "array"]}},
         "column value.limits: the schema allows integer or array, the column has map (object)"),
        (an_object(limits={"additionalProperties": {"type": "integer"}}),
         "column value.limits.value: the schema allows integer, the column has double (number)"),
        *(
            (
                {"properties": dict.fromkeys(NAMES[:-1], True)} | closed,
                "column value.limits: the schema allows nothing, the column has map (object)",
            )
            for closed in (
                {"additionalProperties": False},
                {"unevaluatedProperties": False},
                {"patternProperties": {"^n": True}, "additionalProperties": False},
                {"allOf": [{"properties": {"tags": True}}], "unevaluatedProperties": False},
                {"$ref": "#/$defs/a", "unevaluatedProperties": False}
                | {"$defs": {"a": {"patternProperties": {"a": True}}}},
                {"allOf": [{"unevaluatedProperties": False} | an_object(id=True)]},
            )
        ),
        ({"patternProperties": {"^n": {"type": "integer"}}},
         "column value.name: the schema allows integer, the column has string"),
        ({"propertyNames": {"enum": NAMES[1:]}},
         "column value.id: the schema's propertyNames does not allow the name 'id'; change it"),
        (an_object(limits=an_object(a=TEXT) | {"additionalProperties": False}),
         "column value.limits.value: the schema allows nothing, the column has double (number)"),
        *(
            ({"$defs": {"text": anchor | TEXT}, **around}, ID_NO_TEXT)
            for anchor, around in (
                ({"$anchor": "text"}, an_object(id={"$ref": "#text"})),
                ({"$id": "text.json"}, an_object(id={"$ref": "text.json"})),
                (
                    {"$id": "https://example.com/text"},
                    an_object(id={"$ref": "https://example.com/text"}),
                ),
                ({"$dynamicAnchor": "text"}, an_object(id={"$dynamicRef": "#text"})),
            )
        ),
        (
            {"$id": "https://example.com/row", "$ref": "list", "$defs": {}}
            | {"$defs": LIST_OF_ANY | {"own": {"$dynamicAnchor": "node", **TEXT}}},
            "column value.id: the schema allows string, the column has long (integer)",
        ),
        (
            {"$schema": DRAFT_2019, "$recursiveAnchor": True, "type": ["object", "string"]}
            | {"properties": {"tags": {"items": {"$recursiveRef": "#"}}, "id": TEXT}},
            ID_NO_TEXT,
        ),
        (
            {"$schema": DRAFT_2019, "properties": {"id": {"$recursiveRef": "#"}}}
            | {"type": "object"},
            "column value.id: the schema allows object, the column has long (integer)",
        ),
        (
            {"$schema": DRAFT_7, "properties": {"id": {"$ref": "#text"}}}
            | {"definitions": {"text": {"$id": "#text", **TEXT}}},
            ID_NO_TEXT,
        ),
        (an_object(limits={"additionalProperties": False}),
         "column value.limits.value: the schema allows nothing, the column has double (number)"),
        (an_object(tags={"items": False}),
         "column value.tags.element: the schema allows nothing, the column has string"),
    ],
)  # fmt: skip
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
def test_a_null_is_a_problem_of_its_row_where_the_schema_allows_none(column, place):
    around, kind, value, arrow_type = COLUMNS[column]
    good = json.loads(json.dumps(value).replace("null", '"x"'))
    for a in WITHOUT_NULL:
        schema = add_definitions(around(PLACES[place](a)), a)
        encoded = encode(schema, kind, [good, value, good, None], arrow_type)
        text = json.dumps(good, separators=(",", ":")).encode()
        assert encoded.values.to_pylist() == [text, None, text, None], schema
        (problem,) = encoded.problems
        assert problem.rows.tolist() == [1]
        assert problem.reason.endswith(".a: null, but the schema requires a value")


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
    assert [problem.partition(";")[0] for problem in problems(schema, "double")] == [
        "column value: the schema allows string, the column has double (number)",
        "column value: the schema allows integer, the column has double (number)",
    ]


def test_a_schema_that_contains_itself_is_followed_as_deep_as_the_column():
    tree = an_object(id={"type": "integer"}, child={"$ref": "#"})
    leaf = struct(field("id", "string"))
    (problem,) = problems(tree, struct(field("id", "long"), field("child", leaf)))
    assert problem.startswith("column value.child.id: the schema allows integer, the column has")


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
        '{"$id": 5, "$ref": "#"}',
        '{"allOf": [{"$id": [], "$ref": "#/x"}]}',
        '{"properties": {"id": {"$ref": "#x"}}, "$defs": {"x": 1}}',
    ],
)
def test_text_that_is_no_json_schema_is_rejected(text):
    with pytest.raises(SchemaMismatch, match=r"column value .* JSON Schema: it cannot be read: "):
        check_fit(text, ROW, "value")


def encode(schema: Any, kind: Any, rows: list[Any], arrow_type: pa.DataType) -> Encoded:
    fit = check_fit(json.dumps(schema), kind, "value")
    return JsonEncoder(arrow_type, "value", fit).encode(pa.array(rows, arrow_type))


def reasons(encoded: Encoded) -> dict[int, str]:
    """The first reason of each row that has a problem."""
    return {row: problem.reason for problem in encoded.problems for row in problem.rows.tolist()}


def test_an_element_and_a_value_of_a_map_may_not_be_null_where_the_schema_says_so():
    schema = an_object(tags={"items": TEXT}, limits={"additionalProperties": {"type": "integer"}})
    kind = struct(field("tags", array("string")), field("limits", mapping("integer")))
    arrow_type = pa.struct(
        {"tags": pa.list_(pa.string()), "limits": pa.map_(pa.string(), pa.int32())}
    )
    rows = [
        {"tags": ["a"], "limits": {"k": 1}},
        {"tags": ["a", None], "limits": {}},
        {"tags": None, "limits": None},
        {"tags": [], "limits": {"k": 1, "l": None}},
        {"tags": [None], "limits": {"k": None}},
    ]
    encoded = encode(schema, kind, rows, arrow_type)
    null = "null, but the schema requires a value"
    assert reasons(encoded) == {
        1: f"value.tags.element: {null}",
        3: f"value.limits.value: {null}",
        4: f"value.tags.element: {null}",
    }
    assert encoded.values.to_pylist() == [
        b'{"tags":["a"],"limits":{"k":1}}', None, b"{}", None, None,
    ]  # fmt: skip


def test_each_row_may_take_the_alternative_that_it_fits():
    """Events of several kinds, in a struct that has the fields of all: most of them are null."""
    order = an_object(kind={"const": "order"}, id=TEXT) | {"required": ["kind", "id"]}
    move = an_object(kind={"const": "move"}, to=TEXT, note={"type": ["string", "null"]})
    schema = {"oneOf": [order, move | {"required": ["kind", "to", "note"]}]}
    names = ["kind", "id", "to", "note"]
    kind = struct(*(field(name, "string") for name in names))
    rows = [
        {"kind": "move", "to": "x"},
        {"kind": "order", "id": "a"},
        {"kind": "move", "to": "y", "note": "n"},
        {"kind": "order"},
    ]
    encoded = encode(schema, kind, rows, pa.struct(dict.fromkeys(names, pa.string())))
    assert encoded.values.to_pylist() == [
        b'{"kind":"move","to":"x","note":null}',
        b'{"kind":"order","id":"a"}',
        b'{"kind":"move","to":"y","note":"n"}',
        None,
    ]
    assert reasons(encoded) == {3: "value.id: null, but the schema requires a value"}


def test_very_many_alternatives_are_no_more_work_than_many():
    names = [f"{letter}{i}" for letter in "ab" for i in range(20)]
    schema = {"allOf": [{"anyOf": [requires_text(f"a{i}"), requires_text(f"b{i}")]}
                        for i in range(20)]}  # fmt: skip
    kind = struct(*(field(name, "string") for name in names))
    full = dict.fromkeys(names, "x")
    rows = [full, full | {"b19": None}, full | {"a19": None}, full | {"a19": None, "b19": None}]
    encoded = encode(schema, kind, rows, pa.struct(dict.fromkeys(names, pa.string())))
    assert [value is None for value in encoded.values.to_pylist()] == [False, False, False, True]


def requires_text(name: str) -> dict[str, Any]:
    return an_object(**{name: TEXT}) | {"required": [name]}


def test_the_keys_of_a_map_are_compared_with_the_properties_by_row():
    rules = an_object(n={"type": "integer"}, t=TEXT, o={"type": ["integer", "null"]})
    schema = an_object(m=rules | {"additionalProperties": False})
    kind = struct(field("m", mapping("long")))
    rows = [{"m": m} for m in ({"n": 1}, {"t": 1}, {"n": 1, "x": 1}, {"n": None}, {"o": None}, {})]
    arrow_type = pa.struct({"m": pa.map_(pa.string(), pa.int64())})
    encoded = encode(schema, kind, rows, arrow_type)
    assert reasons(encoded) == {
        1: "value.m: key 't': the schema allows string, the column has long (integer)",
        2: "value.m: key 'x': the schema allows nothing, the column has long (integer)",
        3: "value.m.value: null, but the schema requires a value",
    }
    assert [value is None for value in encoded.values.to_pylist()] == [0, 1, 1, 1, 0, 0]


# What the driver accepts and the rows decide, against the library jsonschema.

DRAFTS = [DRAFT_7, DRAFT_2019, "https://json-schema.org/draft/2020-12/schema"]
FIELDS = ["a", "b", "c"]
SIMPLE = {"long": pa.int64(), "string": pa.string(), "boolean": pa.bool_()}


#: a type, as Spark and Arrow have it, and a function that makes a value
Kind = tuple[Any, pa.DataType, Callable[[], Any]]


class Draws(random.Random):
    """Draws types and schemas for them, which they fit more often than not."""

    def happens(self, often: float) -> bool:
        return self.random() < often

    def names(self, most: int = 3) -> list[str]:
        return self.sample(FIELDS, self.randint(0, most))

    def kind(self, depth: int = 2) -> Kind:
        choice = self.choice(["scalar", "scalar", "struct", "struct", "array", "map"])
        if depth == 0 or choice == "scalar":
            name = self.choice([*SIMPLE])
            return name, SIMPLE[name], lambda: {"long": 7, "string": "x"}.get(name, True)
        if choice == "struct":
            return self.struct(depth)
        kind, arrow_type, value = self.kind(depth - 1)
        nulls = self.choice([0.0, 0.3])

        def inner() -> Any:
            return None if self.happens(nulls) else value()

        if choice == "array":
            as_list = array(kind, nulls=nulls > 0), pa.list_(arrow_type)
            return *as_list, lambda: [inner() for _ in range(self.randint(1, 2))]
        as_map = mapping(kind, nulls=nulls > 0), pa.map_(pa.string(), arrow_type)
        return *as_map, lambda: {name: inner() for name in self.sample("abcx", self.randint(1, 2))}

    def struct(self, depth: int = 2) -> Kind:
        kinds = {name: self.kind(depth - 1) for name in self.names() or ["a"]}
        nulls = {name: self.choice([0.0, 0.3]) for name in kinds}
        fields = (field(name, kinds[name][0], nullable=nulls[name] > 0) for name in kinds)
        return (
            struct(*fields),
            pa.struct({name: arrow_type for name, (_, arrow_type, _) in kinds.items()}),
            lambda: {
                name: None if self.happens(nulls[name]) else value()
                for name, (_, _, value) in kinds.items()
            },
        )

    def schema(self, kind: Any, depth: int = 3) -> Any:
        if depth and self.happens(0.15):
            return {"$ref": self.choice(["#/definitions/p", "#r", "other"])}
        if depth and self.happens(0.2):
            keyword = self.choice(["anyOf", "allOf"])
            parts = [self.schema(kind, depth - 1) for _ in range(self.randint(1, 2))]
            closed = {"unevaluatedProperties": False} if self.happens(0.5) else {}
            return {keyword: parts, **closed}
        own = self.choice(["string", "object"]) if self.happens(0.1) else json_type(kind)
        schema: dict[str, Any] = {"type": [own, "null"] if self.happens(0.3) else own}
        if own == "array" and self.happens(0.9):
            schema["items"] = self.schema(inner_kind(kind), depth - 1) if depth else {}
        return schema | self.rules(kind, depth) if own == "object" else schema

    def rules(self, kind: Any, depth: int) -> Any:
        """Keywords for an object."""
        kinds = {field["name"]: field["type"] for field in fields_of(kind)}

        def schema_of(name: str) -> Any:
            return self.schema(kinds.get(name, inner_kind(kind)), depth - 1) if depth else True

        names = {*self.names(), *(kinds if self.happens(0.7) else ())}
        rules: dict[str, Any] = {"properties": {name: schema_of(name) for name in sorted(names)}}
        if self.happens(0.3):
            rules["required"] = self.names(2)
        if self.happens(0.2):
            rules["patternProperties"] = {self.choice(["a", "[bc]"]): schema_of("a")}
        if self.happens(0.2):
            rules["propertyNames"] = {"enum": [*self.names(), "a"]}
        if self.happens(0.3):
            keyword = self.choice(["additionalProperties", "unevaluatedProperties"])
            rules[keyword] = self.choice([False, schema_of("x")])
        return rules


def fields_of(kind: Any) -> list[Any]:
    return kind["fields"] if isinstance(kind, dict) and "fields" in kind else []


def inner_kind(kind: Any) -> Any:
    """The type of the elements or values."""
    if not isinstance(kind, dict):
        return kind
    return kind.get("elementType") or kind.get("valueType") or "long"


def texts_of(kind: Any, value: Any) -> list[Any]:
    """What could be written of a value: null fields of structs, or not."""
    if value is None or not isinstance(kind, dict):
        return [value]
    if kind["type"] == "array":
        every = [texts_of(kind["elementType"], element) for element in value]
        return [list(elements) for elements in product(*every)]
    if kind["type"] == "map":
        every = [texts_of(kind["valueType"], inner) for inner in value.values()]
        return [dict(zip(value, values, strict=True)) for values in product(*every)]
    absent = object()
    every = [
        [*texts_of(field["type"], value[field["name"]])]
        + ([absent] if value[field["name"]] is None else [])
        for field in kind["fields"]
    ]
    return [
        {name: inner for name, inner in zip(value, values, strict=True) if inner is not absent}
        for values in product(*every)
    ]


def has_null(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is None or any(map(has_null, inner))


def test_what_is_written_is_valid_and_what_could_be_valid_is_written():
    seen = Counter()
    for seed in range(2000):
        draws = Draws(seed)
        kind, arrow_type, value = draws.struct()
        schema = {"$schema": (draft := draws.choice(DRAFTS)), **draws.schema(kind)}
        others = [draws.schema(draws.kind()[0], 0) for _ in range(3)]
        ids = [{}, {"$id": "#r"} if draft == DRAFT_7 else {"$anchor": "r"}, {"$id": "other"}]
        schema["definitions"] = {f"{'pro'[i]}": ids[i] | others[i] for i in range(3)}
        validator = validator_for(schema)(schema, registry=Registry())
        rows = [value() for _ in range(3)]
        is_valid = [any(map(validator.is_valid, texts_of(kind, row))) for row in rows]
        try:
            encoded = encode(schema, kind, rows, arrow_type)
        except SchemaMismatch:
            for row, valid in zip(rows, is_valid, strict=True):
                assert has_null(row) or not valid, (seed, schema, kind, row)
            seen["refused"] += 1
            continue
        rejected = reasons(encoded)
        for i, text in enumerate(encoded.values.to_pylist()):
            case = (seed, schema, kind, rows[i], text, rejected.get(i))
            assert (text is None) == (i in rejected), case
            assert text is None or validator.is_valid(json.loads(text)), case
            # Rows choose among the alternatives that fit the type, even with a null.
            assert text or not is_valid[i] or "anyOf" in json.dumps(schema), case
            seen["rejected" if text is None else "written"] += 1
    assert min(seen["refused"], seen["rejected"], seen["written"]) > 100, seen


@pytest.mark.parametrize("module", ["referencing", "referencing.jsonschema", "rpds"])
def test_a_library_for_references_that_cannot_be_loaded_is_named(monkeypatch, module):
    for name in [name for name in sys.modules if name.startswith(("referencing", "rpds"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    schema = json.dumps({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}})
    with pytest.raises(LibraryUnavailable, match=f"(?s){module.partition('.')[0]}.*pip install"):
        check_fit(schema, "string", "value")
