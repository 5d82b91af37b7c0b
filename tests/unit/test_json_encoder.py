"""JsonEncoder, derive_schema and check_fit against a model in plain Python, and special cases."""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import json
import math
import re
import struct
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest
from another_python import run_python
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spark_kafka_sink.errors import SchemaMismatch, UnsupportedType
from spark_kafka_sink.schemas.json.derived import derive_schema
from spark_kafka_sink.schemas.json.encoder import JsonEncoder
from spark_kafka_sink.schemas.json.fit import check_fit

quick = settings(
    deadline=None,
    derandomize=True,
    max_examples=250,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)

PREFIX = b"\x00\xff\x00\x00\x07"
WIDE = Context(prec=60)  # more digits than a Spark decimal has
US_PER_DAY = 86_400_000_000
DAYS = (-719_528, 2_932_896)  # of the years 0000 to 9999
DAYS_OF_PYTHON = (-719_162, 2_932_896)  # datetime begins with year 1


# --- the model: types, their values, and what JSON must have --------------------------------------


class Number(str):
    """A JSON number as it was written."""


@dataclass(frozen=True)
class Kind:
    """A type. ``problem`` is a value that has no JSON; None: there is none."""

    spark: Any
    values: st.SearchStrategy[Any]
    array: Callable[[st.DrawFn, list[Any]], pa.Array]
    is_same: Callable[[Any, Any], bool]
    has_problem: Callable[[Any], bool] = lambda value: False
    problem: Any = None


def arrow_array(*types: pa.DataType, hidden: Any = None) -> Callable[..., pa.Array]:
    """``hidden`` is in the memory of a null."""

    def array(draw: st.DrawFn, values: list[Any]) -> pa.Array:
        filled = [hidden if value is None else value for value in values]
        return null_where_none(pa.array(filled, draw(st.sampled_from(types))), values)

    return array


def null_where_none(array: pa.Array, values: list[Any]) -> pa.Array:
    _, *buffers = array.buffers()
    bits = pa.array([value is not None for value in values], pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(array.type, len(values), [bits, *buffers])


def viewed(of: pa.DataType, kind: pa.DataType) -> Callable[[st.DrawFn, list[Any]], pa.Array]:
    return lambda draw, values: pa.array(values, of).view(kind)


def strings(draw: st.DrawFn, values: list[Any]) -> pa.Array:
    """From bytes, which need not be UTF-8."""
    is_large = draw(st.booleans())
    filled = [b"\xff" if value is None else value for value in values]
    binaries = pa.array(filled, pa.large_binary() if is_large else pa.binary())
    text = pa.large_string() if is_large else pa.string()
    array = pa.Array.from_buffers(text, len(values), binaries.buffers())
    array = null_where_none(array, values)
    if not draw(st.booleans()) or not all(map(is_text, values)):
        return array
    return array.dictionary_encode()


def is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def is_integer(written: Any, value: Any) -> bool:
    return isinstance(written, Number) and written == str(value)


def is_float(code: str) -> Callable[[Any, Any], bool]:
    def is_same(written: Any, value: float) -> bool:
        assert isinstance(written, Number)
        assert re.search("[.e]", written)  # not an integer
        return struct.pack(code, float(written)) == struct.pack(code, value)

    return is_same


def day_text(days: int) -> str:
    return (dt.date(1970, 1, 1) + dt.timedelta(days=days)).isoformat()


def time_text(us: int) -> str:
    time = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=us)
    text = time.isoformat(timespec="microseconds")
    return text.rstrip("0").removesuffix(".") if time.microsecond else text[:-7]


def moments(per_day: int) -> st.SearchStrategy[int]:
    first, last = DAYS_OF_PYTHON
    edges = [first * per_day, (last + 1) * per_day - 1, 0, -1]
    return st.sampled_from(edges) | st.integers(first * per_day, (last + 1) * per_day - 1)


def is_outside_years(per_day: int) -> Callable[[int], bool]:
    return lambda ticks: not DAYS[0] <= ticks // per_day <= DAYS[1]


def integers(name: str, bits: int, kind: pa.DataType) -> Kind:
    edge = 2 ** (bits - 1)
    values = st.sampled_from([-edge, edge - 1]) | st.integers(-edge, edge - 1)
    return Kind(name, values, arrow_array(kind), is_integer)


def decimals(precision: int, scale: int) -> Kind:
    edge = 10**precision - 1
    values = st.integers(-edge, edge).map(lambda digits: Decimal(digits).scaleb(-scale, WIDE))
    return Kind(
        f"decimal({precision},{scale})",
        values,
        arrow_array(pa.decimal128(precision, scale)),
        lambda written, value: isinstance(written, Number) and Decimal(written) == value,
    )


def timestamps(name: str, zone: str | None, end: str) -> Kind:
    return Kind(
        name,
        moments(US_PER_DAY) | st.just((DAYS[1] + 1) * US_PER_DAY),
        viewed(pa.int64(), pa.timestamp("us", zone)),
        lambda written, value: written == time_text(value) + end,
        is_outside_years(US_PER_DAY),
        (DAYS[1] + 1) * US_PER_DAY,
    )


# st.text has control characters, quotes and surrogate-free Unicode; these make them common.
SOME_TEXT = st.text(max_size=5) | st.text('"\\\n\0\x1f/é€\U0001f600', max_size=5)
FLOATS = st.sampled_from([0.0, -0.0, 1.0, -5.0, 1e15, 1e16, 1e22, math.nan]) | st.floats()

SCALARS = [
    integers("byte", 8, pa.int8()),
    integers("short", 16, pa.int16()),
    integers("integer", 32, pa.int32()),
    integers("long", 64, pa.int64()),
    Kind(
        "double",
        FLOATS,
        arrow_array(pa.float64(), hidden=math.nan),
        is_float("d"),
        lambda v: not math.isfinite(v),
        math.nan,
    ),
    Kind(
        "float",
        st.sampled_from([0.0, -0.0, 1.0, 1e10, 16777216.0]) | st.floats(width=32),
        arrow_array(pa.float32(), hidden=math.inf),
        is_float("f"),
        lambda value: not math.isfinite(value),
        -math.inf,
    ),
    decimals(10, 2),
    decimals(38, 0),
    decimals(38, 38),
    decimals(7, 7),
    Kind(
        "boolean", st.booleans(), arrow_array(pa.bool_()), lambda written, value: written is value
    ),
    Kind(
        "string",
        SOME_TEXT.map(str.encode) | st.just(b"a\xe9"),
        strings,
        lambda written, value: written == value.decode(),
        lambda value: not is_text(value),
        b"\xff",
    ),
    Kind(
        "binary",
        st.binary(max_size=7),
        arrow_array(pa.binary(), pa.large_binary(), hidden=b"1"),
        lambda written, value: written == base64.b64encode(value).decode(),
    ),
    Kind(
        "date",
        moments(1) | st.sampled_from([DAYS[0] - 1, DAYS[1] + 1]),
        viewed(pa.int32(), pa.date32()),
        lambda written, value: written == day_text(value),
        is_outside_years(1),
        DAYS[1] + 1,
    ),
    timestamps("timestamp", "America/New_York", "Z"),
    timestamps("timestamp_ntz", None, ""),
]


def mask(values: list[Any]) -> pa.Array:
    return pa.array([value is None for value in values], pa.bool_())


def array_kind(element: Kind, *, has_nulls: bool) -> Kind:
    cell = element.values | st.none() if has_nulls else element.values

    def array(draw: st.DrawFn, values: list[Any]) -> pa.Array:
        # A null hides elements that must not be looked at.
        lists = [[element.problem] if value is None else value for value in values]
        elements = element.array(draw, [None, *(cell for cells in lists for cell in cells)])
        ends = np.cumsum([1, *map(len, lists)]).tolist()
        is_large = draw(st.booleans())
        build = pa.LargeListArray if is_large else pa.ListArray
        offsets = pa.array(ends, pa.int64() if is_large else pa.int32())
        return build.from_arrays(offsets, elements, mask=mask(values))

    return Kind(
        {"type": "array", "elementType": element.spark, "containsNull": has_nulls},
        st.lists(cell, max_size=3),
        array,
        lambda written, value: (
            isinstance(written, list)
            and len(written) == len(value)
            and all(map(null_or(element), written, value))
        ),
        lambda value: any(cell is not None and element.has_problem(cell) for cell in value),
        [element.problem],
    )


def map_kind(item: Kind, *, has_nulls: bool) -> Kind:
    cell = item.values | st.none() if has_nulls else item.values

    def array(draw: st.DrawFn, values: list[Any]) -> pa.Array:
        maps = [{b"\xfe": item.problem} if value is None else value for value in values]
        keys = [key for value in maps for key in value]
        buffers = pa.array(keys, pa.binary()).buffers()
        items = item.array(draw, [cell for value in maps for cell in value.values()])
        offsets = pa.array(np.cumsum([0, *map(len, maps)]).tolist(), pa.int32())
        bits = pa.array([value is not None for value in values], pa.bool_()).buffers()[1]
        entries = pa.StructArray.from_arrays(
            [pa.Array.from_buffers(pa.string(), len(keys), buffers), items],
            fields=[pa.field("key", pa.string(), nullable=False), pa.field("value", items.type)],
        )
        return pa.Array.from_buffers(
            pa.map_(pa.string(), items.type),
            len(values),
            [bits, offsets.buffers()[1]],
            children=[entries],
        )

    return Kind(
        {
            "type": "map",
            "keyType": "string",
            "valueType": item.spark,
            "valueContainsNull": has_nulls,
        },
        st.dictionaries(SOME_TEXT.map(str.encode), cell, max_size=3),
        array,
        lambda written, value: (
            isinstance(written, dict)
            and list(written) == [key.decode() for key in value]
            and all(map(null_or(item), written.values(), value.values()))
        ),
        lambda value: any(cell is not None and item.has_problem(cell) for cell in value.values()),
        {b"k": item.problem},
    )


def struct_kind(fields: dict[str, tuple[Kind, bool]]) -> Kind:
    def array(draw: st.DrawFn, values: list[Any]) -> pa.Array:
        columns = [
            kind.array(draw, [kind.problem if value is None else value[name] for value in values])
            for name, (kind, _) in fields.items()
        ]
        if not columns:
            return pa.array(values, pa.struct([]))
        return pa.StructArray.from_arrays(columns, list(fields), mask=mask(values))

    def is_same(written: Any, value: dict[str, Any]) -> bool:
        present = {name: value[name] for name in fields if value[name] is not None}
        return (
            isinstance(written, dict)
            and list(written) == list(present)
            and all(fields[name][0].is_same(written[name], cell) for name, cell in present.items())
        )

    return Kind(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind.spark, "nullable": nullable, "metadata": {}}
                for name, (kind, nullable) in fields.items()
            ],
        },
        st.fixed_dictionaries(
            {
                name: kind.values | st.none() if null else kind.values
                for name, (kind, null) in fields.items()
            }
        ),
        array,
        is_same,
        lambda value: any(
            cell is not None and fields[name][0].has_problem(cell) for name, cell in value.items()
        ),
        {name: kind.problem for name, (kind, _) in fields.items()},
    )


def null_or(kind: Kind) -> Callable[[Any, Any], bool]:
    return lambda written, value: (
        written is None if value is None else written is not None and kind.is_same(written, value)
    )


def structs(inner: st.SearchStrategy[Kind], fewest: int) -> st.SearchStrategy[Kind]:
    fields = st.tuples(inner, st.booleans())
    names = st.text(max_size=3)
    return st.dictionaries(names, fields, min_size=fewest, max_size=4).map(struct_kind)


def nested(inner: st.SearchStrategy[Kind]) -> st.SearchStrategy[Kind]:
    return (
        structs(inner, 0)
        | st.builds(array_kind, inner, has_nulls=st.booleans())
        | st.builds(map_kind, inner, has_nulls=st.booleans())
    )


KINDS = st.recursive(st.sampled_from(SCALARS), nested, max_leaves=6)
STRUCTS = structs(KINDS, 1)


def a_column(draw: st.DrawFn, kind: Kind) -> tuple[pa.Array, list[Any]]:
    """A slice of an array, and its values."""
    cell = st.integers(0, 3).flatmap(lambda choice: kind.values if choice else st.none())
    values = draw(st.lists(cell, min_size=2, max_size=8))
    start = draw(st.integers(0, 2))
    stop = len(values) - draw(st.integers(0, len(values) - start))
    stop = draw(st.sampled_from([stop, len(values)]))
    return kind.array(draw, values).slice(start, stop - start), values[start:stop]


def written(text: bytes) -> Any:
    def reject(name: str) -> None:
        raise AssertionError(name)

    return json.loads(text, parse_float=Number, parse_int=Number, parse_constant=reject)


# --- any column -----------------------------------------------------------------------------------


def test_any_column_is_encoded_as_in_the_model_and_is_valid_under_its_derived_schema():
    seen = Counter()

    @quick
    @given(st.data())
    def check(data: st.DataObject) -> None:
        kind = data.draw(KINDS)
        array, values = a_column(data.draw, kind)
        encoded = JsonEncoder(array.type, "value").encode(array, PREFIX)
        encoded.values.validate(full=True)
        schema = json.loads(derive_schema(kind.spark, title="t", column="value"))
        validator = jsonschema.Draft7Validator(schema)
        bad_rows = []
        for row, (value, written_row) in enumerate(
            zip(values, encoded.values.to_pylist(), strict=True)
        ):
            if value is None or kind.has_problem(value):
                assert written_row is None
                bad_rows += [row] if value is not None else []
                seen["null" if value is None else "problem"] += 1
            else:
                assert written_row[: len(PREFIX)] == PREFIX
                text = written_row[len(PREFIX) :]
                assert kind.is_same(written(text), value), (text, value)
                validator.validate(json.loads(text))
                seen["text"] += 1
        rows = [row for problem in encoded.problems for row in problem.rows.tolist()]
        assert sorted(rows) == bad_rows  # each once
        for problem in encoded.problems:
            assert problem.rows.dtype == np.int64
            assert problem.rows.tolist() == sorted(problem.rows.tolist())
            assert problem.reason.startswith("value")

    check()
    assert min(seen["text"], seen["null"], seen["problem"]) > 10


def test_a_column_that_fits_a_schema_is_valid_under_it_and_its_own_schema_fits_it():
    """The schemas are those derived from other types, which often differ by little."""
    seen = Counter()

    @quick
    @given(st.data())
    def check(data: st.DataObject) -> None:
        kind = data.draw(STRUCTS)
        check_fit(derive_schema(kind.spark, title="t", column="value"), kind.spark, "value")
        other = data.draw(changed(kind.spark, is_looser=data.draw(st.booleans())))
        schema = json.loads(derive_schema(other, title="t", column="value"))
        more = sum(require_some(data.draw, inner) for inner in objects_of(schema))
        with contextlib.suppress(SchemaMismatch):
            fit = check_fit(json.dumps(schema), kind.spark, "value")
            array, _ = a_column(data.draw, kind)
            validator = jsonschema.Draft7Validator(schema)
            for text in JsonEncoder(array.type, "value", fit).encode(array).values.to_pylist():
                if text is not None:
                    validator.validate(json.loads(text))
                    seen["requires more"] += more > 0
            seen["fits a changed type" if other != kind.spark else "fits"] += len(array)
            return
        seen["rejected"] += 1

    check()
    assert min(seen["fits a changed type"], seen["rejected"], seen["requires more"]) > 15


def objects_of(schema: Any) -> Iterator[dict[str, Any]]:
    """The schemas of structs inside a schema."""
    if isinstance(schema, list | dict):
        for inner in schema.values() if isinstance(schema, dict) else schema:
            yield from objects_of(inner)
    if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
        yield schema


def require_some(draw: st.DrawFn, schema: dict[str, Any]) -> bool:
    """Require some properties that are not; the schema of a nullable one allows null."""
    optional = [name for name in schema["properties"] if name not in schema.get("required", [])]
    more = [name for name in optional if draw(st.integers(0, 5))]
    schema["required"] = [*schema.get("required", []), *more]
    return bool(more)


@st.composite
def changed(draw: st.DrawFn, spark: Any, *, is_looser: bool) -> Any:
    """The type with other nullability, other fields or other scalars in some places.

    ``is_looser``: only nulls are allowed in more places, so a column of the type fits.
    """
    if isinstance(spark, str):
        others = ["long", "double", "decimal(5,0)", "string", "boolean", "date"]
        return (
            spark if is_looser else draw(st.just(spark) | st.just(spark) | st.sampled_from(others))
        )
    flags = [key for key in ("containsNull", "valueContainsNull") if key in spark]
    new = spark | {flag: draw(st.booleans()) or (is_looser and spark[flag]) for flag in flags}
    for inner in ("elementType", "valueType"):
        if inner in spark:
            new[inner] = draw(changed(spark[inner], is_looser=is_looser))
    if "fields" in spark:
        new["fields"] = [
            field
            | {
                "type": draw(changed(field["type"], is_looser=is_looser)),
                "nullable": draw(st.booleans()) or (is_looser and field["nullable"]),
            }
            for field in spark["fields"]
            if is_looser or draw(st.integers(0, 4))
        ]
    return new


# --- exact texts ----------------------------------------------------------------------------------


def encode(array: pa.Array, column: str = "value") -> list[bytes | None]:
    encoded = JsonEncoder(array.type, column).encode(array)
    assert encoded.problems == []
    return encoded.values.to_pylist()


def reasons(array: pa.Array) -> list[tuple[list[int], str]]:
    problems = JsonEncoder(array.type, "value").encode(array).problems
    return [(problem.rows.tolist(), problem.reason) for problem in problems]


def test_every_type_has_its_text():
    row = {
        "byte": (1, pa.int8()),
        "long": (-(2**63), pa.int64()),
        "float": (0.1, pa.float32()),
        "double": (1e300, pa.float64()),
        "whole": (-0.0, pa.float64()),
        "decimal": (Decimal("-12345678901234567890.0000000010"), pa.decimal128(38, 10)),
        "boolean": (True, pa.bool_()),
        'a "string"': ('é"\\/\b\f\n\r\t\x00\x7f', pa.string()),
        "binary": (b"\xff\xfe\xfd\xfc", pa.binary()),
        "date": (dt.date(2024, 2, 29), pa.date32()),
        "timestamp": (dt.datetime(2024, 1, 1, 12, 30, 0, 120), pa.timestamp("us", "UTC")),
        "ntz": (dt.datetime(2024, 1, 1), pa.timestamp("us")),
        "array": ([1, None], pa.list_(pa.int32())),
        "map": ([("k", 1), ("n", None)], pa.map_(pa.string(), pa.int64())),
        "empty": ({}, pa.struct([])),
        "left out": (None, pa.int64()),
    }
    kind = pa.struct([pa.field(name, arrow_type) for name, (_, arrow_type) in row.items()])
    values = {name: value for name, (value, _) in row.items()}
    assert encode(pa.array([values], kind)) == [
        (
            '{"byte":1,"long":-9223372036854775808,"float":0.1,"double":1e+300,"whole":-0.0,'
            '"decimal":-12345678901234567890.0000000010,"boolean":true,'
            '"a \\"string\\"":"é\\"\\\\/\\b\\f\\n\\r\\t\\u0000\x7f","binary":"//79/A==",'
            '"date":"2024-02-29","timestamp":"2024-01-01T12:30:00.00012Z",'
            '"ntz":"2024-01-01T00:00:00","array":[1,null],"map":{"k":1,"n":null},"empty":{}}'
        ).encode()
    ]


def test_a_row_whose_fields_are_all_null_is_an_empty_object():
    kind = pa.struct([("a", pa.int64()), ("b", pa.string())])
    rows = [{"a": None, "b": None}, {"a": 1, "b": None}, {"a": None, "b": "x"}, None]
    assert encode(pa.array(rows, kind)) == [b"{}", b'{"a":1}', b'{"b":"x"}', None]


def test_an_empty_column_has_no_values():
    assert encode(pa.array([], pa.struct([("a", pa.list_(pa.string()))]))) == []


def test_a_problem_names_its_field_and_its_row_in_the_column():
    kind = pa.struct(
        [
            ("price", pa.float64()),
            ("tags", pa.list_(pa.struct([("weight", pa.float32())]))),
            ("limits", pa.map_(pa.string(), pa.float64())),
        ]
    )
    rows = [
        {"price": 1.0, "tags": [], "limits": []},
        {"price": math.nan, "tags": [{"weight": math.inf}], "limits": []},
        None,
        {"price": math.inf, "tags": None, "limits": None},
        {"price": 1.0, "tags": [{"weight": 1.0}, None, {"weight": -math.inf}], "limits": []},
        {"price": 1.0, "tags": [], "limits": [("a", 1.0), ("b", math.nan)]},
        {"price": math.nan, "tags": [], "limits": []},
    ]
    assert reasons(pa.array(rows, kind)) == [
        ([1, 6], "value.price: NaN has no JSON number; filter or replace it"),
        ([3], "value.price: Infinity has no JSON number; filter or replace it"),
        ([4], "value.tags.element.weight: Infinity has no JSON number; filter or replace it"),
        ([5], "value.limits.value: NaN has no JSON number; filter or replace it"),
    ]


def test_years_that_rfc_3339_lacks_are_problems_at_their_first_and_last_microsecond():
    first, end = DAYS[0] * US_PER_DAY, (DAYS[1] + 1) * US_PER_DAY
    array = pa.array([first, first - 1, end, end - 1]).view(pa.timestamp("us", "UTC"))
    ((rows, reason),) = reasons(array)
    assert (rows, reason.split(":")[0]) == ([1, 2], "value")
    values = JsonEncoder(array.type, "value").encode(array).values.to_pylist()
    assert values[0] == b'"0000-01-01T00:00:00Z"'
    assert values[3] == b'"9999-12-31T23:59:59.999999Z"'


def test_a_character_split_between_two_rows_is_in_neither_of_them():
    split = pa.array(["é".encode()[:1], "é".encode()[1:], b"ok"], pa.binary())
    array = pa.Array.from_buffers(pa.string(), 3, split.buffers())
    ((rows, reason),) = reasons(array)
    assert (rows, reason.startswith("value: a string is not UTF-8;")) == ([0, 1], True)


def test_keys_of_maps_are_escaped_and_checked():
    kind = pa.map_(pa.string(), pa.int32())
    assert encode(pa.array([[('"', 1)], [("é", None)]], kind)) == [
        b'{"\\"":1}',
        '{"é":null}'.encode(),
    ]


def test_many_rows_of_long_strings_are_complete():
    texts = [("x" * (i % 700)) + ('"' if i % 3 else "") for i in range(20_000)]
    assert [json.loads(text) for text in encode(pa.array(texts))] == texts


NESTED = [
    {"id": i * 10**9, "name": f"name {i}", "tags": [{"k": f"k{i}", "w": i / 7}] * (i % 4)}
    | {"limits": [("a", i)] * (i % 3), "place": {"x": i, "y": "z" * (i % 9)}}
    for i in range(1_000)
]
NESTED_TYPE = pa.struct(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("tags", pa.list_(pa.struct([("k", pa.string()), ("w", pa.float64())]))),
        ("limits", pa.map_(pa.string(), pa.int32())),
        ("place", pa.struct([("x", pa.int32()), ("y", pa.string())])),
    ]
)
POOLS = []  # arrays must not outlive the pool of their memory


@pytest.mark.parametrize(
    ("rows", "copies"),
    [
        (pa.array([bytes([i]) * 8_000 for i in range(256)]), 8),
        (pa.array(['"' * 200] * 1_000), 80),
        (pa.array(NESTED, NESTED_TYPE), 200),
    ],
    ids=["binary", "quotes", "nested"],
)
def test_a_large_column_is_encoded_with_little_memory(rows, copies):
    array = pa.concat_arrays([rows] * copies)
    encoder = JsonEncoder(array.type, "value")
    default = pa.default_memory_pool()
    POOLS.append(pa.proxy_memory_pool(default))
    pa.set_memory_pool(POOLS[-1])
    tracemalloc.start()
    try:
        values = encoder.encode(array, b"\0\0\0\0\7").values
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(default)
    assert most + POOLS[-1].max_memory() < 4 * array.nbytes
    assert values.to_pylist() == encoder.encode(rows, b"\0\0\0\0\7").values.to_pylist() * copies


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (pa.struct([("a", pa.list_(pa.duration("us")))]), "column value.a.element: duration[us]"),
        (pa.map_(pa.int32(), pa.int32()), "column value: map with int32 keys"),
        (pa.null(), "column value: null"),
    ],
)
def test_an_arrow_type_without_json_is_rejected(kind, path):
    with pytest.raises(UnsupportedType, match=re.escape(path)):
        JsonEncoder(kind, "value")


def test_encoding_does_not_load_pandas(tmp_path):
    program = """if True:
        import sys
        import pyarrow as pa
        from spark_kafka_sink.schemas.json.encoder import JsonEncoder
        data = [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")]
        integers = pa.Array.from_buffers(pa.int32(), 1, data[:2])
        texts = pa.Array.from_buffers(pa.string(), 1, data)
        nulls = pa.nulls(1, pa.date32())
        lists = pa.Array.from_buffers(pa.list_(pa.int32()), 1, data[:2], children=[integers])
        floats = pa.Array.from_buffers(pa.float64(), 1, data[:2])
        array = pa.StructArray.from_arrays([integers, texts, nulls, lists, floats], list("abcde"))
        values = JsonEncoder(array.type, "value").encode(array, b"-").values
        print(values[0].as_buffer().to_pybytes())
        assert "pandas" not in sys.modules
    """
    done = run_python("-c", program, check=False)
    assert done.stderr == ""
    assert done.stdout == """b'-{"a":0,"b":"","d":[],"e":0.0}'\n"""
