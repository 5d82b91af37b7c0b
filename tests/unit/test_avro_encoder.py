"""Any column and its derived schema, byte for byte as fastavro writes it row by row."""

import io
import json
import math
import pickle
import struct
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from another_python import run_python
from hypothesis import given, settings
from hypothesis import strategies as st
from java_avro import avro_bytes

from spark_kafka_sink.records import arrow_memory
from spark_kafka_sink.schemas.avro.derived import derive_schema
from spark_kafka_sink.schemas.avro.encoder import AvroEncoder

PREFIX = b"\0\0\0\0\7"
DECIMALS = [(1, 0), (5, 2), (9, 9), (18, 3), (19, 0), (38, 0), (38, 10)]
NAMES = st.sampled_from(["a", "b", "B", "name", "_1"])

INTEGERS = {
    "byte": (8, pa.int8()),
    "short": (16, pa.int16()),
    "integer": (32, pa.int32()),
    "long": (64, pa.int64()),
    "date": (32, pa.date32()),
    "timestamp": (64, pa.timestamp("us", "Europe/Berlin")),
    "timestamp_ntz": (64, pa.timestamp("us")),
}
OTHERS = {
    "boolean": pa.bool_(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "varchar(9)": pa.string(),
    "binary": pa.binary(),
}
LEAVES = [*INTEGERS, *OTHERS, *(f"decimal({p},{s})" for p, s in DECIMALS)]


def array_of(element: Any, contains_null: bool) -> Any:
    return {"type": "array", "elementType": element, "containsNull": contains_null}


def map_of(value: Any, contains_null: bool) -> Any:
    contents = {"keyType": "string", "valueType": value, "valueContainsNull": contains_null}
    return {"type": "map", **contents}


def struct_of(fields: dict[str, tuple[Any, bool]]) -> Any:
    described = [
        {"name": name, "type": kind, "nullable": nullable, "metadata": {}}
        for name, (kind, nullable) in fields.items()
    ]
    return {"type": "struct", "fields": described}


def structs(types: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.dictionaries(NAMES, st.tuples(types, st.booleans()), max_size=5).map(struct_of)


SPARK_TYPES = structs(
    st.recursive(
        st.sampled_from(LEAVES),
        lambda types: st.one_of(
            structs(types),
            st.builds(array_of, types, st.booleans()),
            st.builds(map_of, types, st.booleans()),
        ),
        max_leaves=6,
    )
)


def decimal_of(spark_type: str) -> tuple[int, int]:
    precision, scale = spark_type[len("decimal(") : -1].split(",")
    return int(precision), int(scale)


def arrow_of(spark_type: Any) -> pa.DataType:
    if isinstance(spark_type, str):
        if spark_type.startswith("decimal"):
            return pa.decimal128(*decimal_of(spark_type))
        return INTEGERS[spark_type][1] if spark_type in INTEGERS else OTHERS[spark_type]
    if spark_type["type"] == "struct":
        return pa.struct([(f["name"], arrow_of(f["type"])) for f in spark_type["fields"]])
    if spark_type["type"] == "array":
        return pa.list_(arrow_of(spark_type["elementType"]))
    return pa.map_(pa.string(), arrow_of(spark_type["valueType"]))


def integers(bits: int) -> st.SearchStrategy[int]:
    limit = 2 ** (bits - 1)
    edges = [sign * (2**n + d) for n in range(bits) for d in (-1, 0) for sign in (1, -1)]
    allowed = [edge for edge in edges if -limit <= edge < limit]
    return st.one_of(st.sampled_from(allowed), st.integers(-limit, limit - 1), st.integers(-9, 9))


def decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    edges = [256**n // 2**k + d for n in range(17) for k in (0, 1) for d in (-1, 0, 1)]
    allowed = [edge for edge in edges if edge <= limit]
    numbers = st.one_of(
        st.sampled_from([*allowed, *(-edge for edge in allowed)]), st.integers(-limit, limit)
    )
    return numbers.map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))


TEXTS = st.one_of(
    st.text(max_size=9), st.sampled_from([7, 8, 16, 17, 33, 64, 1000]).map("x".__mul__)
)


def leaf_values(spark_type: str) -> st.SearchStrategy[Any]:
    if spark_type in INTEGERS:
        return integers(INTEGERS[spark_type][0])
    if spark_type.startswith("decimal"):
        return decimals(*decimal_of(spark_type))
    return {
        "boolean": st.booleans(),
        "float": st.floats(width=32),
        "double": st.floats(),
        "string": TEXTS,
        "varchar(9)": TEXTS,
        "binary": TEXTS.map(str.encode),
    }[spark_type]


def nullable(values: st.SearchStrategy[Any], is_nullable: bool) -> st.SearchStrategy[Any]:
    return st.none() | values if is_nullable else values


def values_of(spark_type: Any) -> st.SearchStrategy[Any]:
    """Values that are not null; a struct or map is a dict."""
    if isinstance(spark_type, str):
        return leaf_values(spark_type)
    if spark_type["type"] == "struct":
        fields = spark_type["fields"]
        return st.fixed_dictionaries(
            {f["name"]: nullable(values_of(f["type"]), f["nullable"]) for f in fields}
        )
    if spark_type["type"] == "array":
        element = nullable(values_of(spark_type["elementType"]), spark_type["containsNull"])
        return st.lists(element, max_size=4)
    value = nullable(values_of(spark_type["valueType"]), spark_type["valueContainsNull"])
    return st.dictionaries(st.text(max_size=3), value, max_size=3)


class Builder:
    """Arrow arrays with slices, dictionaries, large types, and values below nulls."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw

    def build(self, arrow_type: pa.DataType, values: list[Any]) -> pa.Array:
        before, after = (self.draw(st.integers(0, 2)) for _ in range(2)) if values else (0, 0)
        padded = values[:1] * before + values + values[-1:] * after
        # Below each null is the value of another row, if there is one.
        some = [value for value in values if value is not None]
        filler = self.draw(st.sampled_from(some)) if some else None
        filled = [filler if value is None else value for value in padded]
        array = self.filled(arrow_type, filled)
        if None in padded and filler is not None:
            array = set_nulls(array, [value is not None for value in padded])
        return array.slice(before, len(values))

    def filled(self, arrow_type: pa.DataType, values: list[Any]) -> pa.Array:
        if not values or values[0] is None:
            return pa.array(values, arrow_type)
        if pa.types.is_struct(arrow_type):
            fields = [arrow_type.field(i) for i in range(arrow_type.num_fields)]
            children = [self.build(f.type, [value[f.name] for value in values]) for f in fields]
            types = [pa.field(f.name, c.type) for f, c in zip(fields, children, strict=True)]
            return pa.Array.from_buffers(pa.struct(types), len(values), [None], children=children)
        if pa.types.is_list(arrow_type):
            elements = [element for value in values for element in value]
            child = self.build(arrow_type.value_type, elements)
            return lists(child, list(map(len, values)), self.draw(st.booleans()))
        if pa.types.is_map(arrow_type):
            return self.maps(arrow_type, values)
        return self.leaf(pa.array(values, arrow_type))

    def maps(self, arrow_type: pa.DataType, values: list[Any]) -> pa.Array:
        keys = self.build(arrow_type.key_type, [key for value in values for key in value])
        items = self.build(arrow_type.item_type, [value[key] for value in values for key in value])
        kind = pa.struct(
            [pa.field("key", keys.type, nullable=False), pa.field("value", items.type)]
        )
        entries = pa.Array.from_buffers(kind, len(keys), [None], children=[keys, items])
        as_lists = lists(entries, list(map(len, values)), is_large=False)
        buffers = as_lists.buffers()[:2]
        map_type = pa.map_(keys.type, items.type)
        return pa.Array.from_buffers(map_type, len(values), buffers, children=[as_lists.values])

    def leaf(self, array: pa.Array) -> pa.Array:
        if array.type not in {pa.string(), pa.binary()}:
            return array
        form = self.draw(st.sampled_from(["plain", "plain", "large", "dictionary"]))
        if form == "dictionary":
            return array.dictionary_encode()
        is_string = array.type == pa.string()
        if form == "large":
            return array.cast(pa.large_string() if is_string else pa.large_binary())
        return array


def lists(child: pa.Array, lengths: list[int], is_large: bool) -> pa.Array:
    ends = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    offsets = pa.array(ends, pa.int64() if is_large else pa.int32()).buffers()[1]
    kind = pa.large_list(child.type) if is_large else pa.list_(child.type)
    return pa.Array.from_buffers(kind, len(lengths), [None, offsets], children=[child])


def set_nulls(array: pa.Array, valid: list[bool]) -> pa.Array:
    """The array, null where it is not valid; the values below the nulls stay."""
    bits = pa.array(valid).buffers()[1]
    if pa.types.is_dictionary(array.type):
        return pa.DictionaryArray.from_arrays(set_nulls(array.indices, valid), array.dictionary)
    if pa.types.is_struct(array.type):
        children = [array.field(i) for i in range(array.type.num_fields)]
        return pa.Array.from_buffers(array.type, len(array), [bits], children=children)
    if pa.types.is_nested(array.type):
        buffers = [bits, array.buffers()[1]]
        return pa.Array.from_buffers(array.type, len(array), buffers, children=[array.values])
    return pa.Array.from_buffers(array.type, len(array), [bits, *array.buffers()[1:]])


def expected(schema: str, rows: list[Any]) -> list[bytes | None]:
    parsed = fastavro.parse_schema(json.loads(schema))
    return [None if row is None else PREFIX + avro_bytes(parsed, row) for row in rows]


@settings(max_examples=250, deadline=None, derandomize=True)
@given(st.data(), SPARK_TYPES)
def test_any_column_is_encoded_as_by_fastavro(data: st.DataObject, spark_type: Any) -> None:
    rows = data.draw(st.lists(st.none() | values_of(spark_type), max_size=12))
    array = Builder(data.draw).build(arrow_of(spark_type), rows)
    schema = derive_schema(spark_type, name="n.s.Row", column="value")
    encoded = AvroEncoder(schema, array.type, "value").encode(array, PREFIX)
    assert encoded.problems == []
    assert encoded.values.type == pa.binary()
    assert encoded.values.to_pylist() == expected(schema, rows)
    encoded.values.validate(full=True)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.data(), st.sampled_from(LEAVES))
def test_any_simple_column_is_encoded_as_by_fastavro(data: st.DataObject, spark_type: str) -> None:
    rows = data.draw(st.lists(st.none() | values_of(spark_type), min_size=1, max_size=40))
    array = Builder(data.draw).build(arrow_of(spark_type), rows)
    schema = derive_schema(spark_type, name="Row", column="value")
    encoded = AvroEncoder(schema, array.type, "value").encode(array, PREFIX)
    assert encoded.problems == []
    assert encoded.values.to_pylist() == expected(schema, rows)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.data(), st.integers(1, 400))
def test_a_large_column_is_encoded_in_parts(data: st.DataObject, at_once: int) -> None:
    spark_type = struct_of({"l": (array_of("string", True), True), "n": ("long", False)})
    rows = data.draw(st.lists(st.none() | values_of(spark_type), min_size=2, max_size=20))
    array = Builder(data.draw).build(arrow_of(spark_type), rows)
    schema = derive_schema(spark_type, name="R", column="v").replace(
        '"type":"long"', '"type":"int"'
    )
    encoder = AvroEncoder(schema, array.type, "v")
    assert '"int"' in schema
    whole = encoder.encode(array, PREFIX)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("spark_kafka_sink.schemas.encoded._BYTES_AT_ONCE", at_once)
        parts = encoder.encode(array, PREFIX)
        patch.setattr(arrow_memory, "MAX_BINARY", 20)
        large = encoder.encode(array, PREFIX)
    assert parts.values.to_pylist() == large.values.to_pylist() == whole.values.to_pylist()
    reasons = [
        sorted(
            (row, problem.reason) for problem in encoded.problems for row in problem.rows.tolist()
        )
        for encoded in (whole, parts, large)
    ]
    assert reasons[0] == reasons[1] == reasons[2]


def test_no_part_of_a_large_column_has_many_more_bytes_than_are_encoded_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes = []
    encode = AvroEncoder._encode

    def measured(self: AvroEncoder, array: pa.Array, prefix: bytes) -> Any:
        sizes.append(len(array))
        return encode(self, array, prefix)

    monkeypatch.setattr(AvroEncoder, "_encode", measured)
    monkeypatch.setattr("spark_kafka_sink.schemas.encoded._BYTES_AT_ONCE", 1000)
    AvroEncoder('"long"', pa.int64(), "v").encode(pa.array(range(1000)))
    assert sizes == [125] * 8


@pytest.mark.parametrize("length", [16, 17])
def test_more_bytes_than_a_binary_array_can_have(
    length: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = pa.array(["x" * length] * 3)
    encoder = AvroEncoder('"string"', array.type, "v")
    size = 3 * (length + 1)
    monkeypatch.setattr(arrow_memory, "MAX_BINARY", size)
    assert encoder.encode(array).values.type == pa.binary()
    monkeypatch.setattr(arrow_memory, "MAX_BINARY", size - 1)
    values = encoder.encode(array).values
    assert values.type == pa.large_binary()
    assert values.to_pylist() == [bytes([2 * length]) + b"x" * length] * 3


def test_a_long_string_column_alone_needs_no_prefix() -> None:
    array = pa.array(["x" * 100, None, ""])
    encoded = AvroEncoder('"string"', array.type, "v").encode(array)
    assert encoded.values.to_pylist() == [b"\xc8\1" + b"x" * 100, None, b"\0"]


def test_the_largest_number_of_a_column_may_have_any_number_of_bits() -> None:
    for spark_type, bits in (("long", 63), ("decimal(38,0)", 127)):
        schema = derive_schema(spark_type, name="R", column="v")
        encoder = AvroEncoder(schema, arrow_of(spark_type), "v")
        for number in (
            sign * 2**bit + d for bit in range(bits) for sign in (1, -1) for d in (-1, 0, 1)
        ):
            value = number if spark_type == "long" else Decimal(number)
            encoded = encoder.encode(pa.array([value, value - value, None], arrow_of(spark_type)))
            wanted = [avro_bytes(json.loads(schema), x) for x in (value, value - value)]
            assert encoded.values.to_pylist() == [*wanted, None]


def test_not_a_number_keeps_its_bits() -> None:
    array = pa.array([math.nan, math.inf, -0.0], pa.float64())
    encoded = AvroEncoder('"double"', array.type, "v").encode(array).values.to_pylist()
    assert encoded == [struct.pack("<d", x) for x in (math.nan, math.inf, -0.0)]


def test_an_encoder_can_be_pickled() -> None:
    kind = struct_of({"a": (array_of("string", True), True), "m": (map_of("long", True), True)})
    encoder = AvroEncoder(derive_schema(kind, name="R", column="v"), arrow_of(kind), "v")
    array = pa.nulls(2, arrow_of(kind))
    assert pickle.loads(pickle.dumps(encoder)).encode(array).values.to_pylist() == [None, None]


def test_encoding_imports_neither_fastavro_nor_pandas() -> None:
    columns = {
        "t": pa.array(["a" * 100, "b"]),
        "s": pa.array(["b", "c"]),
        "d": pa.array([7, None]).cast(pa.decimal128(20, 0)),
    }
    stream = io.BytesIO()
    with pa.ipc.new_stream(stream, pa.schema([(k, v.type) for k, v in columns.items()])) as writer:
        writer.write_batch(pa.record_batch(columns))
    program = f"""
import sys
import pyarrow as pa
from spark_kafka_sink.schemas.avro.encoder import AvroEncoder
batch = pa.ipc.open_stream({stream.getvalue()!r}).read_next_batch()
kind = pa.struct([batch.schema.field(i) for i in range(3)])
structs = pa.Array.from_buffers(kind, 2, [None], children=batch.columns)
"""
    program += """
schema = '''{"type":"record","name":"R","fields":[
    {"name":"t","type":["null","string"]},
    {"name":"s","type":{"type":"enum","name":"E","symbols":["b", "c"]}},
    {"name":"d","type":["null",{"type":"bytes","logicalType":"decimal","precision":9,"scale":2}]}
]}'''
encoded = AvroEncoder(schema, structs.type, "v").encode(structs)
assert [len(value.as_py()) for value in encoded.values] == [103 + 1 + 4, 3 + 1 + 1]
print([name for name in ("fastavro", "pandas", "pyspark") if name in sys.modules])
"""
    done = run_python("-c", program, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")
