"""Columns and schemas that were not derived from each other: what fits, and what is reported."""

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from java_avro import avro_bytes, part_bytes

from spark_kafka_sink.errors import SchemaMismatch
from spark_kafka_sink.schemas.avro.encoder import AvroEncoder
from spark_kafka_sink.schemas.encoded import Encoded

UTC = pa.timestamp("us", "UTC")
NTZ = pa.timestamp("us")


def record(fields: dict[str, Any], **attributes: Any) -> Any:
    described = [{"name": name, "type": kind} for name, kind in fields.items()]
    return {"type": "record", "name": "R", "fields": described, **attributes}


def logical(base: str, name: str, **attributes: Any) -> Any:
    return {"type": base, "logicalType": name, **attributes}


def encode(schema: Any, array: pa.Array) -> Encoded:
    return AvroEncoder(json.dumps(schema), array.type, "value").encode(array)


def fastavro_bytes(schema: Any, rows: list[Any]) -> list[bytes | None]:
    return [None if row is None else avro_bytes(schema, row) for row in rows]


def problems_of(schema: Any, arrow_type: pa.DataType) -> list[str]:
    with pytest.raises(SchemaMismatch) as caught:
        AvroEncoder(json.dumps(schema), arrow_type, "value")
    assert all(problem in str(caught.value) for problem in caught.value.problems)
    return list(caught.value.problems)


def rejections(encoded: Encoded) -> list[tuple[list[int], str]]:
    assert all(problem.rows.dtype == np.int64 for problem in encoded.problems)
    return [(problem.rows.tolist(), problem.reason) for problem in encoded.problems]


FIXED: dict[str, Any] = {"type": "fixed", "name": "F"}
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
DECIMAL = {"logicalType": "decimal", "precision": 9, "scale": 3}
DICTIONARY = pa.dictionary(pa.int8(), pa.string())


def integers(bits: int) -> st.SearchStrategy[int]:
    limit = 2 ** (bits - 1)
    return st.sampled_from([-limit, limit - 1, 0, -1]) | st.integers(-limit, limit - 1)


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda number: Decimal(number).scaleb(-scale))


def binaries(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


TEXTS, SYMBOLS = st.text(max_size=20), st.sampled_from("AB")
MICROS = integers(64) | st.sampled_from([999, 1000, -999, -1000, -1001])

#: a schema, the column's type, its values, and what fastavro writes of one if it is another value
CONVERSIONS: list[tuple[Any, pa.DataType, st.SearchStrategy[Any], Any]] = [
    *((schema, pa.int8(), integers(8), None) for schema in ("int", "long", "double")),
    *((schema, pa.int16(), integers(16), None) for schema in ("int", "double")),
    *((schema, pa.int32(), integers(32), None) for schema in ("long", "double")),
    ("int", pa.int64(), integers(32), None),
    ("double", pa.float32(), st.floats(width=32), None),
    ("bytes", pa.string(), TEXTS, str.encode),
    ("bytes", pa.binary(3), binaries(3), None),
    ("bytes", pa.dictionary(pa.int8(), pa.binary(3)), binaries(3), None),
    ({**FIXED, "size": 3}, pa.binary(), binaries(3), None),
    ({**FIXED, "size": 40}, pa.binary(), binaries(40), None),
    ({**FIXED, "size": 3}, pa.binary(3), binaries(3), None),
    *((ENUM, kind, SYMBOLS, None) for kind in (pa.string(), DICTIONARY)),
    *((logical("string", kind), pa.string(), TEXTS, None) for kind in ("uuid", "of-our-own")),
    (logical("int", "time-millis"), pa.int32(), integers(32), None),
    # As Spark's to_avro: numbers are written as they are, times without a logical type in ms.
    *((schema, pa.date32(), integers(32), None) for schema in ("int", logical("int", "date"))),
    *((logical("int", "date"), kind, integers(8), None) for kind in (pa.int8(), pa.int32())),
    *(
        (logical("long", kind), pa.int64(), integers(64), None)
        for kind in (
            "time-micros",
            "timestamp-millis",
            "timestamp-nanos",
            "local-timestamp-micros",
            "of-our-own",
        )
    ),
    *(
        (schema, pa.timestamp("us", zone), MICROS, lambda value: value // 1000)
        for zone, prefix in (("UTC", ""), (None, "local-"))
        for schema in (
            "long",
            logical("long", "timestamp"),
            logical("long", f"{prefix}timestamp-millis"),
        )
    ),
    (logical("long", "timestamp-micros"), UTC, MICROS, None),
    (logical("long", "local-timestamp-micros"), NTZ, MICROS, None),
    *(
        (schema, pa.duration("us"), integers(63), None)
        for schema in ("long", logical("long", "time-micros"))
    ),
    (
        logical("long", "time-micros"),
        pa.time64("ns"),
        st.integers(0, 86_399_999_999).map(lambda value: value * 1000),
        lambda value: value // 1000,
    ),
    ({"type": "bytes", **DECIMAL}, pa.binary(), st.binary(max_size=9), None),
    ({**FIXED, "size": 4, **DECIMAL}, pa.binary(), binaries(4), None),
    ({"type": "bytes", **DECIMAL}, pa.decimal128(7, 1), decimals(7, 1), None),
    *(
        ({**FIXED, "size": n, **DECIMAL}, pa.decimal128(9, 3), decimals(9, 3), None)
        for n in (4, 21)
    ),
    ({**FIXED, "size": 12, **DECIMAL}, pa.decimal128(7, 1), decimals(7, 1), None),
    ({"type": "array", "items": "long"}, pa.large_list(pa.int32()), st.lists(integers(32)), None),
]


@pytest.mark.parametrize(("schema", "arrow_type", "values", "conversion"), CONVERSIONS)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_a_column_of_another_type_is_written_as_by_fastavro(
    data: st.DataObject,
    schema: Any,
    arrow_type: pa.DataType,
    values: st.SearchStrategy[Any],
    conversion: Callable[[Any], Any] | None,
) -> None:
    rows = data.draw(st.lists(st.none() | values, min_size=1, max_size=8))
    convert = conversion or (lambda value: value)
    wanted = [None if row is None else avro_bytes(schema, convert(row)) for row in rows]
    array = pa.array([rows[0], *rows], arrow_type)[1:]
    encoded = encode(schema, array)
    assert (encoded.values.to_pylist(), encoded.problems) == (wanted, [])
    parts = [None if row is None else part_bytes(schema, convert(row)) for row in rows]
    fields = pa.StructArray.from_arrays([array], ["f"])
    for null, union in enumerate((["null", schema], [schema, "null"])):
        encoded = encode(record({"f": union}), fields)
        assert encoded.values.to_pylist() == [
            bytes([2 * null]) if part is None else bytes([2 - 2 * null]) + part for part in parts
        ]


LONG, INT = {"x": 2**40}, {"x": 5}
POINT = pa.struct({"x": pa.int64()})
FIVE_DIGITS = {"logicalType": "decimal", "precision": 5, "scale": 2}
TWENTY_DIGITS = {"logicalType": "decimal", "precision": 20, "scale": 2}


def pair(first: Any, second: Any) -> list[Any]:
    """A union of two records that differ in the type of their field."""
    return ["null", record({"x": first}, name="A"), record({"x": second}, name="B")]


@pytest.mark.parametrize(
    ("union", "arrow_type", "row", "index"),
    [
        # One that rejects no value.
        (pair("int", "long"), POINT, LONG, 2),
        (pair("int", ["null", "long"]), POINT, LONG, 2),
        (pair("long", ["null", "long"]), POINT, {"x": None}, 2),
        (pair({"type": "array", "items": "int"}, {"type": "array", "items": "long"}),
         pa.struct([pa.field("x", pa.list_(pa.field("element", pa.int64(), False)), False)]),
         {"x": [2**40]}, 2),
        (pair({"type": "map", "values": "int"}, {"type": "map", "values": "long"}),
         pa.struct({"x": pa.map_(pa.string(), pa.int64())}), {"x": {"k": 2**40}}, 2),
        (
            [
                {"type": "fixed", "name": "A", "size": 3, **FIVE_DIGITS},
                {"type": "fixed", "name": "B", "size": 9, **TWENTY_DIGITS},
            ],
            pa.decimal128(20, 2),
            Decimal("123456.00"),
            1,
        ),
        # One that converts no value.
        (["null", "bytes", "string"], pa.string(), "é", 2),
        (["double", "int"], pa.int32(), 5, 1),
        (pair("bytes", "string"), pa.struct({"x": pa.string()}), {"x": "é"}, 2),
        (pair(logical("long", "timestamp-millis"), ["null", logical("long", "timestamp-micros")]),
         pa.struct([pa.field("x", UTC, nullable=False)]), {"x": 1001}, 2),
        # Rather convert values than reject some.
        (["null", {"type": "enum", "name": "E", "symbols": ["A"]}, "bytes"], pa.string(), "C", 2),
        # The first of those that are as good.
        (pair("long", ["null", "long"]), pa.struct([pa.field("x", pa.int64(), False)]), INT, 1),
        (["float", "double"], pa.float32(), 0.5, 0),
        (["long", "int"], pa.int32(), 5, 0),
        (["string"], pa.string(), "x", 0),
        (pair("long", "long"), POINT, LONG, 1),
        # Only branches that reject some.
        (["null", "int"], pa.int64(), 5, 1),
        ([{"type": "enum", "name": n, "symbols": ["A"]} for n in "EF"], pa.string(), "A", 0),
    ],
)  # fmt: skip
def test_of_several_branches_the_one_that_fits_best_is_written(
    union: list[Any], arrow_type: pa.DataType, row: Any, index: int
) -> None:
    encoded = encode(union, pa.array([row], arrow_type))
    assert encoded.problems == []
    (value,) = encoded.values.to_pylist()
    assert value[0] == 2 * index
    array = pa.StructArray.from_arrays([pa.array([row], arrow_type)], ["f"])
    alone = encode(record({"f": union[index]}), array)
    assert value[1:] == alone.values[0].as_py()


#: a schema, the column's type, both in the words of the message, and the remedy
MISMATCHES = [
    ("int", pa.string(), "int", "string", "convert it with int("),
    ("float", pa.int32(), "float", "int", "convert it with float("),
    ("float", pa.float64(), "float", "double", "convert it with float("),
    ("double", pa.int64(), "double", "long", "convert it with double("),
    ("string", pa.binary(), "string", "binary", "convert it with string("),
    (
        "int",
        pa.dictionary(pa.int8(), pa.int32()),
        "int",
        "dictionary<values=int32, indices=int8, ordered=0>",
        "change the column",
    ),
    ("boolean", pa.int8(), "boolean", "byte", "convert it with boolean("),
    ("null", pa.int8(), "null", "byte", "change the column"),
    # A cast between a time and a number would count seconds.
    ("int", UTC, "int", "timestamp", "change the column"),
    ("double", UTC, "double", "timestamp", "change the column"),
    (logical("long", "time-micros"), UTC, "long (time-micros)", "timestamp", "change the column"),
    (
        logical("long", "time-micros"),
        pa.string(),
        "long (time-micros)",
        "string",
        "change the column",
    ),
    (
        {**FIXED, "size": 16, "logicalType": "uuid"},
        pa.string(),
        "fixed(16) (uuid)",
        "string",
        "convert it with unhex(replace(",
    ),
    (
        logical("long", "timestamp-millis"),
        NTZ,
        "long (timestamp-millis)",
        "timestamp_ntz",
        "convert it with timestamp(",
    ),
    (
        logical("long", "local-timestamp-micros"),
        UTC,
        "long (local-timestamp-micros)",
        "timestamp",
        "convert it with cast({0} AS timestamp_ntz), or change",
    ),
    (
        logical("long", "timestamp-nanos"),
        UTC,
        "long (timestamp-nanos)",
        "timestamp",
        "convert it with unix_micros(",
    ),
    (
        {"type": "bytes", **DECIMAL},
        pa.decimal128(9, 4),
        "bytes (decimal(9,3))",
        "decimal(9,4)",
        "convert it with cast({0} AS decimal(9,3)), or change",
    ),
    ("bytes", pa.decimal128(9, 3), "bytes", "decimal(9,3)", ""),
    ({**FIXED, "size": 3}, pa.string(), "fixed(3)", "string", "convert it with binary("),
    # 9 digits need 4 bytes; 8388607 is the largest number of 3.
    ({**FIXED, "size": 3, **DECIMAL}, pa.decimal128(9, 3), "fixed(3)", "decimal(9,3)", ""),
    (
        {**FIXED, "size": 3, "logicalType": "decimal", "precision": 7},
        pa.decimal128(7, 0),
        "fixed(3)",
        "decimal(7,0)",
        "",
    ),
    (ENUM, pa.int32(), "enum E", "int", "convert it with string("),
    (
        {"type": "map", "values": "int"},
        pa.map_(pa.int32(), pa.int32()),
        "map",
        "map with keys of type int",
        "change the column",
    ),
    ({"type": "array", "items": "int"}, pa.int32(), "array", "int", ""),
    ("string", pa.list_(pa.string()), "string", "array", ""),
    (record({}, name="X"), pa.string(), "record X", "string", ""),
    ("string", pa.struct({}), "string", "struct", ""),
    (
        ["null", "int", "string"],
        pa.struct({"member1": pa.string(), "member0": pa.int32()}),
        "[null, int, string]",
        "struct",
        "convert it with struct({0}.member0 AS member0, {0}.member1 AS member1), or change",
    ),
    (
        ["null", "int", record({"x": "int"}, name="a.A")],
        pa.struct({"member_A": pa.struct({"x": pa.int32()}), "member int": pa.int32()}),
        "[null, int, record a.A]",
        "struct",
        "convert it with struct({0}.`member int` AS member0, {0}.member_A AS member1), or change",
    ),
    (
        [record({"x": "int"}, name="A"), record({"x": "int"}, name="B")],
        pa.struct({f"u_{name}": pa.struct({"x": pa.int32()}) for name in "BA"}),
        "[record A, record B]",
        "struct",
        "convert it with struct({0}.u_A AS member0, {0}.u_B AS member1), or change",
    ),
    (
        ["null", "int", "string"],
        pa.struct({"a": pa.float32(), "b": pa.string()}),
        "[null, int, string]",
        "struct",
        "name its fields member0 to member1, one for each type, in the order of the types",
    ),
    ("long", pa.struct({"member0": pa.int64()}), "long", "struct", "convert it with {0}.member0,"),
    (
        record({"x": "int"}, name="A"),
        pa.struct({"member0": pa.struct({"x": pa.int32()})}),
        "record A",
        "struct",
        "convert it with {0}.member0,",
    ),
    # Precisions of time that Spark has are all of one Arrow type.
    (
        logical("int", "time-millis"),
        pa.time64("ns"),
        "int (time-millis)",
        "time",
        "convert it with int(time_to_millis({0})),",
    ),
    ("long", pa.time64("ns"), "long", "time", "convert it with time_to_micros({0}),"),
    ("string", pa.list_(pa.int32()), "string", "array", "convert it with to_json({0}),"),
    (
        {"type": "array", "items": record({"a": ["null", "long"]}, name="A")},
        pa.string(),
        "array",
        "string",
        "convert it with from_json({0}, 'array<struct<a:bigint>>'),",
    ),
    (
        ["null", "int", "string"],
        pa.float64(),
        "[null, int, string]",
        "double",
        "convert it with string({0}), or change",
    ),
]


@pytest.mark.parametrize(("schema", "arrow_type", "wanted", "has", "remedy"), MISMATCHES)
def test_a_column_that_does_not_fit_is_rejected(
    schema: Any, arrow_type: pa.DataType, wanted: str, has: str, remedy: str
) -> None:
    sentence = f"the schema wants {wanted}, the column has {has}; {remedy}"
    (problem,) = problems_of(schema, arrow_type)
    assert problem.startswith(f"value: {sentence.replace('{0}', 'value')}")
    union = schema if isinstance(schema, list) else ["null", schema]
    if schema != "null":
        (problem,) = problems_of(record({"f": union}), pa.struct({"f": arrow_type}))
        assert problem.startswith(f"value.f: {sentence.replace('{0}', 'f')}")


def test_what_converts_elements_and_values_of_maps_is_applied_inside_them() -> None:
    arrays = pa.struct({"a": pa.list_(pa.int32())})
    (problem,) = problems_of(record({"a": {"type": "array", "items": "string"}}), arrays)
    assert "; convert it with transform(a, x -> string(x)), or change the schema" in problem
    maps = pa.map_(pa.string(), pa.map_(pa.string(), pa.date32()))
    schema = {"type": "map", "values": {"type": "map", "values": "long"}}
    (problem,) = problems_of(schema, maps)
    assert "; convert it with transform_values(value, (k, x) -> unix_date(x)), or" in problem
    (problem,) = problems_of(record({"value": "long"}), pa.struct({"value": pa.date32()}))
    assert "; convert it with unix_date(value), or change the schema" in problem


def test_every_problem_is_reported_with_its_path() -> None:
    item = record({"price": "int", "missing": "int"}, name="Item")
    schema = record(
        {
            "items": ["null", {"type": "array", "items": item}],
            "tags": {"type": "map", "values": "long"},
            "deep": record({"x": "boolean"}, name="Deep"),
        }
    )
    arrow_type = pa.struct(
        {
            "items": pa.list_(pa.struct({"price": pa.string(), "extra": pa.int32()})),
            "tags": pa.map_(pa.string(), pa.float64()),
            "deep": pa.struct({"x": pa.int64()}),
            "more": pa.int32(),
        }
    )
    paths = [problem.split(":")[0] for problem in problems_of(schema, arrow_type)]
    assert sorted(paths) == [
        "value.deep.x",
        "value.items.element.extra",
        "value.items.element.missing",
        "value.items.element.price",
        "value.more",
        "value.tags.value",
    ]


def test_fields_match_by_name_then_alias_then_without_regard_to_case() -> None:
    schema = {
        "type": "record",
        "name": "R",
        "fields": [
            {"name": "id", "type": "int"},
            {"name": "ID", "type": "int"},
            {"name": "total", "type": "int", "aliases": ["sum", "amount"]},
            {"name": "userName", "type": "int"},
        ],
    }
    names = ["USERNAME", "amount", "ID", "id"]
    array = pa.array(
        [dict(zip(names, [4, 3, 2, 1], strict=True))], pa.struct(dict.fromkeys(names, pa.int32()))
    )
    assert encode(schema, array).values.to_pylist() == [bytes([2, 4, 6, 8])]


def test_a_match_without_regard_to_case_must_be_unambiguous() -> None:
    (problem,) = problems_of(
        record({"a_b": "int"}), pa.struct({"A_b": pa.int32(), "A_B": pa.int32()})
    )
    assert problem.startswith("value.a_b: several fields of the column fit it: A_b, A_B; rename")


DEFAULTS = [
    (["null", "int"], None, None),
    (["int", "null"], -3, -3),
    ("boolean", True, True),
    ("int", -(2**31), -(2**31)),
    ("long", 2**63 - 1, 2**63 - 1),
    ("float", 1, 1.0),
    (["float", "double"], 1e300, ("double", 1e300)),
    ("double", -0.5, -0.5),
    ("string", "é", "é"),
    ("bytes", "\u00ffa", b"\xffa"),
    ({"type": "fixed", "name": "F", "size": 2}, "\u00ffa", b"\xffa"),
    ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
    ({"type": "array", "items": "int"}, [], []),
    ({"type": "array", "items": "int"}, [1, -1], [1, -1]),
    ({"type": "map", "values": "string"}, {"a": "b" * 70}, {"a": "b" * 70}),
    (record({"x": "int"}, name="X"), {"x": 7}, {"x": 7}),
]


@pytest.mark.parametrize(("avro_type", "default", "value"), DEFAULTS)
def test_the_default_is_written_for_a_field_that_the_column_does_not_have(
    avro_type: Any, default: Any, value: Any
) -> None:
    schema = record({"a": "int"})
    schema["fields"].append({"name": "d", "type": avro_type, "default": default})
    array = pa.array([{"a": 1}, None, {"a": 2}], pa.struct({"a": pa.int32()}))
    wanted = fastavro_bytes(schema, [{"a": 1, "d": value}, None, {"a": 2, "d": value}])
    assert encode(schema, array).values.to_pylist() == wanted


@pytest.mark.parametrize(
    ("avro_type", "default"),
    [
        ("int", 2**31),
        ("int", "1"),
        ("int", True),
        ("string", None),
        ("bytes", "\u0100"),
        ({"type": "fixed", "name": "F", "size": 2}, "a"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "C"),
        ({"type": "array", "items": "int"}, {}),
        ({"type": "map", "values": "int"}, []),
        (["null", "int"], "x"),
        (record({"x": "int"}, name="X"), {}),
        (record({"x": "int"}, name="X"), 1),
        ("float", 1e300),
        pytest.param("double", 10**309, id="double-10**309"),
        (["null", "R"], {"a": 1}),  # whose own default is needed again
    ],
)
def test_a_default_of_another_type_is_rejected(avro_type: Any, default: Any) -> None:
    schema = record({"a": "int"})
    schema["fields"].append({"name": "d", "type": avro_type, "default": default})
    (problem,) = problems_of(schema, pa.struct({"a": pa.int32()}))
    assert problem.startswith("value.d: the schema's default is invalid: ")


def test_named_types_are_found_in_their_namespaces() -> None:
    color = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
    point = {"type": "record", "name": "o.Point", "fields": [{"name": "x", "type": "int"}]}
    schema = record(
        {
            "a": color,
            "b": "Color",
            "c": "n.s.Color",
            "d": point,
            "e": {"type": "array", "items": "o.Point"},
            "f": {"type": "fixed", "name": "Id", "namespace": "", "size": 1},
            "g": {"type": "Id"},
        },
        namespace="n.s",
    )
    x = pa.struct({"x": pa.int32()})
    fields = {k: pa.string() for k in "abc"} | {"d": x, "e": pa.list_(x)}
    arrow_type = pa.struct(fields | {"f": pa.binary(), "g": pa.binary()})
    row = {
        "a": "RED",
        "b": "BLUE",
        "c": "BLUE",
        "d": {"x": 1},
        "e": [{"x": 2}],
        "f": b"f",
        "g": b"g",
    }
    encoded = encode(schema, pa.array([row], arrow_type))
    assert encoded.values.to_pylist() == [bytes([0, 2, 2, 2, 2, 4, 0]) + b"fg"]


def test_a_recursive_schema_is_followed_as_far_as_the_column_goes() -> None:
    schema = record({"v": "int", "next": ["null", "R"]})
    schema["fields"][1]["default"] = None
    leaf = pa.struct({"v": pa.int32()})
    arrow_type = pa.struct({"v": pa.int32(), "next": pa.struct({"v": pa.int32(), "next": leaf})})
    rows = [{"v": 1, "next": {"v": 2, "next": {"v": 3}}}, {"v": 1, "next": None}]
    wanted = fastavro_bytes(schema, rows)
    assert encode(schema, pa.array(rows, arrow_type)).values.to_pylist() == wanted


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("{", "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"type": "array", "items":' * 700 + '"int"' + "}" * 700, "nested too deeply"),
        ('"nothing"', "nothing is not defined"),
        ("7", "7 is not a type"),
        ('{"name": "R"}', "is not a type"),
        ('["null", "null"]', "null twice"),
        ('["null", ["int"]]', "a union contains a union"),
        ("[]", "no branches"),
        ('{"type": "array"}', "array has no items"),
        ('{"type": "map"}', "map has no values"),
        ('{"type": "record", "name": "R"}', "R has no fields"),
        ('{"type": "record", "fields": []}', "record has no name"),
        ('{"type": "record", "name": "a-b", "fields": []}', "a-b is not a name"),
        ('{"type": "record", "name": 5, "fields": []}', "5 is not a name"),
        ('{"type": "record", "name": "R", "fields": ["x"]}', "is not a field"),
        ('{"type": "record", "name": "R", "fields": "x"}', "fields of R"),
        ('{"type": "record", "name": "R", "fields": [{"name": "x"}]}', "x has no type"),
        (
            json.dumps(record({"a": "int"}) | {"fields": [{"name": "a", "type": "int"}] * 2}),
            "twice",
        ),
        ('{"type": "fixed", "name": "F", "size": -1}', "the size of F is -1"),
        ('{"type": "enum", "name": "E", "symbols": ["A", "A"]}', "symbol twice"),
        ('{"type": "enum", "name": "E", "symbols": "A"}', "symbols of E"),
        (
            '[{"type": "fixed", "name": "F", "size": 1}, {"type": "record", "name": "F"}]',
            "F is defined twice",
        ),
        (
            json.dumps(record({"a": ENUM, "b": {**ENUM, "symbols": ["A"]}})),
            "E is defined twice",
        ),
        (
            json.dumps(record({"a": record({}, name="S"), "b": record({}, name="S")})),
            "S is defined twice",
        ),
    ],
)
def test_an_invalid_schema_is_rejected(schema: str, reason: str) -> None:
    with pytest.raises(
        SchemaMismatch, match=f"the schema of column value is not an Avro schema: .*{reason}"
    ):
        AvroEncoder(schema, pa.string(), "value")


def test_a_column_with_a_dot_is_quoted_in_the_remedy() -> None:
    """A schema names it as an alias."""
    schema = {**record({}), "fields": [{"name": "x", "type": "string", "aliases": ["a.b"]}]}
    (problem,) = problems_of(schema, pa.struct({"a.b": pa.int64()}))
    assert "convert it with string(`a.b`)" in problem


def test_an_enum_or_a_fixed_may_be_defined_twice_if_both_are_equal() -> None:
    """As in Java's Avro 1.12."""
    fixed = {**FIXED, "size": 1}
    schema = record({"a": ENUM, "b": ENUM, "c": fixed, "d": fixed})
    types = {"a": pa.string(), "b": pa.string(), "c": pa.binary(), "d": pa.binary()}
    array = pa.array([{"a": "A", "b": "A", "c": b"x", "d": b"y"}], pa.struct(types))
    assert encode(schema, array).values.to_pylist() == [b"\0\0xy"]


def test_names_may_have_letters_of_any_alphabet() -> None:
    """As in Java, and so in schemas that Spark's ``to_avro`` has derived."""
    schema = record({"größe": "int", "名前": "string"}, name="Größen.名簿")
    array = pa.array([{"größe": 1, "名前": "x"}])
    array = array.cast(pa.struct({"größe": pa.int32(), "名前": pa.string()}))
    assert encode(schema, array).values.to_pylist() == [b"\2\2x"]


def test_a_primitive_may_be_named_without_quotes() -> None:
    array = pa.array(["x"])
    assert AvroEncoder("string", array.type, "v").encode(array).values.to_pylist() == [b"\2x"]


REJECTED_ROWS = [
    (
        "int",
        pa.int64(),
        [1, 2**31, -(2**31) - 1, None, 2**31],
        ["2147483648 is outside the range of int", "-2147483649 is outside the range of int"],
    ),
    (
        {"type": "fixed", "name": "F", "size": 2},
        pa.binary(),
        [b"ab", b"", b"abc" * 20, None, b""],
        ["0 bytes, but the schema requires 2", "60 bytes, but the schema requires 2"],
    ),
    (
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        pa.string(),
        ["B", "C", "", None, "C"],
        ["'C' is no symbol of the enum E", "'' is no symbol of the enum E"],
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 3},
        pa.decimal128(38, 1),
        [Decimal("99.9"), Decimal("100.0"), Decimal(-(10**36)), None, Decimal("100.0")],
        [
            "100.0 has too many digits for the schema",
            f"-{10**36}.0 has too many digits for the schema",
        ],
    ),
    (
        {"type": "fixed", "name": "F", "size": 3, "logicalType": "decimal", "precision": 5},
        pa.decimal128(38, 0),
        [Decimal(-99999), Decimal(100000), Decimal(-100000), None, Decimal(100000)],
        ["100000 has too many digits for the schema", "-100000 has too many digits for the schema"],
    ),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 40, "scale": 1},
        pa.decimal128(38, 0),
        [Decimal(10**37 - 1), Decimal(10**37), Decimal(-(10**37)), None, Decimal(10**37)],
        [
            f"{10**37} needs more than Arrow's 38 digits in the schema's scale",
            f"-{10**37} needs more than Arrow's 38 digits in the schema's scale",
        ],
    ),
]


@pytest.mark.parametrize(("schema", "arrow_type", "rows", "reasons"), REJECTED_ROWS)
def test_rows_that_do_not_fit_are_named_and_harm_no_other(
    schema: Any, arrow_type: pa.DataType, rows: list[Any], reasons: list[str]
) -> None:
    """Row 0 fits, row 3 is null, rows 1 and 4 have the same value."""
    good = fastavro_bytes(schema, [rows[0]])[0]
    encoded = encode(schema, pa.array(rows, arrow_type))
    wanted = [([1, 4], f"value: {reasons[0]}"), ([2], f"value: {reasons[1]}")]
    assert rejections(encoded) == wanted
    assert encoded.values.to_pylist() == [good, None, None, None, None]
    encoded.values.validate(full=True)

    fields = {"before": pa.string(), "f": arrow_type, "after": pa.int32()}
    array = pa.array(
        [{"before": "x" * 40 * i, "f": f, "after": i} for i, f in enumerate(rows)],
        pa.struct(fields),
    )
    encoded = encode(record({"before": "string", "f": ["null", schema], "after": "int"}), array)
    assert rejections(encoded) == [(bad, f"value.f{text[5:]}") for bad, text in wanted]
    part = part_bytes(schema, rows[0])
    assert encoded.values.to_pylist() == [
        b"\0\2" + part + b"\0",
        None,
        None,
        b"\xf0\1" + b"x" * 120 + b"\0\6",
        None,
    ]

    # In the elements of an array, which belong to other rows.
    lists = pa.array([[rows[0]], [], [rows[0], rows[1]], None, [rows[2]], [rows[0]] * 2])
    lists = lists.cast(pa.list_(arrow_type))
    encoded = encode({"type": "array", "items": schema}, lists)
    assert rejections(encoded) == [
        ([2], f"value.element: {reasons[0]}"),
        ([4], f"value.element: {reasons[1]}"),
    ]
    assert encoded.values.to_pylist() == [
        b"\2" + part + b"\0",
        b"\0",
        None,
        None,
        None,
        b"\4" + part * 2 + b"\0",
    ]


UNION = ["null", record({"x": "int"}, name="A"), record({"y": "string"}, name="B")]
A_OR_B = pa.struct(
    {"member0": pa.struct({"x": pa.int32()}), "member1": pa.struct({"y": pa.string()})}
)
A, B = {"member0": {"x": 1}}, {"member1": {"y": "b"}}
SEVERAL = "several members are not null, but a union has one value"
NO_MEMBER = "null, but the schema requires a value"


@pytest.mark.parametrize(
    ("union", "arrow_type", "rows", "values", "reasons"),
    [
        (UNION, A_OR_B, [A, B, {}, None], ["0202", "040262", "00", "00"], {}),
        # Members are in the order of the branches, null is not counted.
        ([*UNION[1:], "null"], A_OR_B, [A, B, {}, None], ["0002", "020262", "04", "04"], {}),
        (
            ["int", "null", "string", {"type": "array", "items": "int"}],
            pa.struct(
                {"member0": pa.int32(), "member1": pa.string(), "member2": pa.list_(pa.int32())}
            ),
            [{"member0": 7}, {"member1": ""}, {"member2": [7, 8]}, {"member2": []}, {}],
            ["000e", "0400", "06040e1000", "0600", "02"],
            {},
        ),
        # What a branch or the union does not allow is a problem of its row alone.
        (
            ["int", {"type": "enum", "name": "E", "symbols": ["S"]}],
            pa.struct({"member0": pa.int64(), "member1": pa.string()}),
            [
                {"member0": 7},
                {},
                {"member0": 7, "member1": "S"},
                {"member1": "S"},
                {"member1": "T"},
                {"member0": 2**31},
                None,
            ],
            ["000e", None, None, "0200", None, None, None],
            {
                2: SEVERAL,
                1: NO_MEMBER,
                6: NO_MEMBER,
                5: "2147483648 is outside the range of int",
                4: "'T' is no symbol of the enum E",
            },
        ),
    ],
)
def test_a_union_is_a_struct_with_a_member_for_each_of_its_types(
    union: list[Any],
    arrow_type: pa.DataType,
    rows: list[Any],
    values: list[str | None],
    reasons: dict[int, str],
) -> None:
    fields = [{"f": row, "after": i} for i, row in enumerate(rows)]
    array = pa.array([None, *fields], pa.struct({"f": arrow_type, "after": pa.int32()}))[1:]
    encoded = encode(record({"f": union, "after": "int"}), array)
    wanted = [
        None if value is None else bytes.fromhex(value) + bytes([2 * i])
        for i, value in enumerate(values)
    ]
    assert encoded.values.to_pylist() == wanted
    rejected = {row: reason for rows, reason in rejections(encoded) for row in rows}
    assert rejected.keys() == reasons.keys()
    for row, reason in reasons.items():
        assert rejected[row].endswith(f": {reason}")
    # As elements of an array, too.
    encoded = encode({"type": "array", "items": union}, pa.array([rows], pa.list_(arrow_type)))
    good = None if reasons else b"".join(bytes.fromhex(value or "") for value in values)
    assert encoded.values.to_pylist() == [good and bytes([2 * len(rows)]) + good + b"\0"]


@pytest.mark.parametrize("is_large", [False, True])
def test_a_string_that_is_not_utf_8_is_rejected(is_large: bool) -> None:
    kind, binary = (
        (pa.large_string(), pa.large_binary()) if is_large else (pa.string(), pa.binary())
    )
    texts = pa.array([b"hidden\xff", "é".encode(), b"\xff\xfe", None, b"\xed\xa0\x80", b""], binary)
    texts = texts.view(kind)[1:]
    good, rule = [b"\4\xc3\xa9", None, None, None, b"\0"], "a string is not UTF-8; make the column"
    encoded = encode("string", texts)
    assert encoded.values.to_pylist() == good
    ((rows, reason),) = rejections(encoded)
    assert rows == [1, 3]
    assert reason.startswith(f"value: {rule}")
    # Nested, as a map's key, in a dictionary; and below a null, where it does no harm.
    fields = pa.StructArray.from_arrays([texts], ["f"])
    encoded = encode(record({"f": ["null", "string"]}), fields)
    assert encoded.values.to_pylist() == [b"\2\4\xc3\xa9", None, b"\0", None, b"\2\0"]
    hidden = pa.StructArray.from_arrays(
        [texts], ["f"], mask=pa.array([False, True, True, True, False])
    )
    encoded = encode(
        record({"s": ["null", record({"f": "string"}, name="S")]}),
        pa.StructArray.from_arrays([hidden], ["s"]),
    )
    assert encoded.values.to_pylist() == [b"\2\4\xc3\xa9", b"\0", b"\0", b"\0", b"\2\0"]
    assert rejections(encoded) == []
    keys = texts.drop_null()
    for names, others in ((keys, pa.array(["v"] * 4)), (pa.array(["k"] * 4), keys)):
        maps = pa.MapArray.from_arrays([0, 1, 2, 3, 4], names, others)
        encoded = encode({"type": "map", "values": "string"}, maps)
        assert [value is None for value in encoded.values.to_pylist()] == [False, True, True, False]
        ((rows, reason),) = rejections(encoded)
        assert (rows, rule in reason) == ([1, 2], True)
    if not is_large:
        encoded = encode("string", texts.dictionary_encode())
        assert encoded.values.to_pylist() == good
    # Bytes are any.
    assert encode("bytes", texts).values.to_pylist()[1] == b"\xff\xfe"


def test_a_reason_contains_only_the_beginning_of_a_value() -> None:
    schema = {"type": "enum", "name": "E", "symbols": ["A"]}
    ((_, reason),) = rejections(encode(schema, pa.array(["x" * 1_000_000])))
    assert reason.startswith("value: 'xxx")
    assert len(reason) < 400
    schema = record({"a": "int"})
    schema["fields"].append({"name": "d", "type": "int", "default": "x" * 1_000_000})
    (problem,) = problems_of(schema, pa.struct({"a": pa.int32()}))
    assert len(problem) < 500


def test_a_field_that_may_be_null_and_has_no_default_need_not_be_in_the_column() -> None:
    schema = record({"a": "int", "b": ["string", "null"]})
    array = pa.array([{"a": 1}], pa.struct({"a": pa.int32()}))
    assert encode(schema, array).values.to_pylist() == fastavro_bytes(schema, [{"a": 1, "b": None}])


def test_a_symbol_that_is_not_utf_8_is_rejected() -> None:
    array = pa.array([b"A", b"\xff"]).view(pa.string())
    encoded = encode({"type": "enum", "name": "E", "symbols": ["A"]}, array)
    assert rejections(encoded) == [([1], r"value: '\\xff' is no symbol of the enum E")]
    assert encoded.values.to_pylist() == [b"\0", None]


def test_a_decimal_that_arrow_cannot_rescale_is_rejected() -> None:
    schema = logical("bytes", "decimal", precision=50, scale=10)
    rows = [Decimal(10**28 - 1), Decimal(10**28), Decimal(-(10**37))]
    encoded = encode(schema, pa.array(rows, pa.decimal128(38, 0)))
    good = fastavro_bytes(schema, [rows[0]])[0]
    assert encoded.values.to_pylist() == [good, None, None]
    assert [rows for rows, _ in rejections(encoded)] == [[1], [2]]


def test_very_many_bad_rows_share_a_reason() -> None:
    encoded = encode("int", pa.array([2**31 + i for i in range(1000)]))
    assert sum(len(problem.rows) for problem in encoded.problems) == 1000
    assert len(encoded.problems) < 50
    assert encoded.values.null_count == 1000


def test_a_null_that_the_schema_does_not_allow_is_rejected() -> None:
    schema = record(
        {
            "a": "int",
            "s": record({"b": ["string"]}, name="S"),
            "l": {"type": "array", "items": "int"},
        }
    )
    fields = {"a": pa.int32(), "s": pa.struct({"b": pa.string()}), "l": pa.list_(pa.int32())}
    good = {"a": 1, "s": {"b": "x"}, "l": [1]}
    rows = [
        good,
        {**good, "a": None},
        {**good, "s": None},
        {**good, "s": {"b": None}},
        {**good, "l": [1, None]},
        {**good, "l": None},
        None,
        {"a": None, "s": None, "l": None},
        good,
    ]
    encoded = encode(schema, pa.array(rows, pa.struct(fields)))
    rule = "null, but the schema requires a value"
    assert rejections(encoded) == [
        ([1, 7], f"value.a: {rule}"),
        ([2], f"value.s: {rule}"),
        ([3], f"value.s.b: {rule}"),
        ([5], f"value.l: {rule}"),
        ([4], f"value.l.element: {rule}"),
    ]
    wanted = bytes([2, 0, 2]) + b"x" + bytes([2, 2, 0])
    assert encoded.values.to_pylist() == [wanted, *[None] * 7, wanted]


def test_values_below_a_null_are_no_problem() -> None:
    inner = pa.array([2**40, 1, None], pa.int64())
    structs = pa.StructArray.from_arrays([inner], ["x"], mask=pa.array([True, False, True]))
    schema = ["null", record({"x": "int"}, name="X")]
    array = pa.StructArray.from_arrays([structs], ["s"])
    encoded = encode(record({"s": schema}), array)
    assert rejections(encoded) == []
    assert encoded.values.to_pylist() == [b"\0", b"\2\2", b"\0"]
    elements = pa.array([2**40, None, 1], pa.int64())
    offsets = pa.array([0, 2, 3], pa.int32())
    lists = pa.ListArray.from_arrays(offsets, elements, mask=pa.array([True, False]))
    array = pa.StructArray.from_arrays([lists], ["l"])
    encoded = encode(record({"l": ["null", {"type": "array", "items": "int"}]}), array)
    assert rejections(encoded) == []
    assert encoded.values.to_pylist() == [b"\0", bytes([2, 2, 2, 0])]


def test_a_column_of_type_void_is_the_null_of_a_union() -> None:
    array = pa.array([{"n": None, "i": 1}, None], pa.struct({"n": pa.null(), "i": pa.int32()}))
    encoded = encode(record({"n": ["int", "null"], "i": "int"}), array)
    assert (encoded.values.to_pylist(), rejections(encoded)) == ([b"\2\2", None], [])
    encoded = encode(record({"n": "null", "i": "int"}), array)
    assert (encoded.values.to_pylist(), rejections(encoded)) == ([b"\2", None], [])
    encoded = encode("null", pa.nulls(2))
    assert (encoded.values.to_pylist(), rejections(encoded)) == ([None, None], [])


def test_a_dictionary_may_contain_null() -> None:
    texts = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), pa.array(["x", None]))
    assert encode("string", texts).values.to_pylist() == [b"\2x", None, None, b"\2x"]
    array = pa.StructArray.from_arrays([texts], ["t"])
    encoded = encode(record({"t": ["null", "string"]}), array)
    assert encoded.values.to_pylist() == [b"\2\2x", b"\0", b"\0", b"\2\2x"]
    assert [rows for rows, _ in rejections(encode(record({"t": "string"}), array))] == [[1, 2]]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1),
    st.lists(st.none() | st.integers(-(2**33), 2**33)),
)
def test_only_the_rows_out_of_range_are_rejected(ticks: list[Any], numbers: list[Any]) -> None:
    millis = encode(logical("long", "timestamp-millis"), pa.array(ticks, UTC))
    wanted = [None if tick is None else tick // 1000 for tick in ticks]
    assert millis.values.to_pylist() == fastavro_bytes("long", wanted)
    encoded = encode("int", pa.array(numbers, pa.int64()))
    fits = [number is not None and -(2**31) <= number < 2**31 for number in numbers]
    kept = [number if fit else None for number, fit in zip(numbers, fits, strict=True)]
    assert encoded.values.to_pylist() == fastavro_bytes("int", kept)
    bad = sorted(row for problem in encoded.problems for row in problem.rows.tolist())
    assert bad == [i for i, fit in enumerate(fits) if not fit and numbers[i] is not None]
