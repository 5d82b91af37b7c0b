"""Which writer writes which Arrow type as which Avro type, and what to do where none fits.

In this order: the branch of a union, the words of messages, the fields of a record, the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa

from spark_kafka_sink.avro import writers
from spark_kafka_sink.avro.defaults import encoded_default, long_bytes
from spark_kafka_sink.avro.parsed import (
    Array,
    Enum,
    Field,
    Fixed,
    Map,
    Node,
    Primitive,
    Record,
    Union,
)
from spark_kafka_sink.avro.writers import Writer
from spark_kafka_sink.encoding.arrow_memory import plain_type


def best(fitting: Sequence[tuple[int, Writer]]) -> tuple[int, Writer]:
    """The index and writer of the branch that rejects values of the fewest fields.

    Of several, the one that converts the fewest fields; of several, the first.
    """
    return min(fitting, key=lambda branch: (*_losses(branch[1]), branch[0]))


def _losses(writer: Writer) -> tuple[int, int]:
    every = list(_all_writers(writer))
    return sum(map(_rejects, every)), sum(map(_converts, every))


def _all_writers(writer: Writer) -> Iterator[Writer]:
    yield writer
    inner: list[Writer] = []
    if isinstance(writer, writers.Required | writers.Nullable):
        inner = [writer.inner]
    elif isinstance(writer, writers.Record):
        inner = [field for _, field in writer.fields]
    elif isinstance(writer, writers.Lists):
        inner = [part for _, part in writer.parts]
    elif isinstance(writer, writers.Members):
        inner = [member for _, member in writer.members]
    for nested in inner:
        yield from _all_writers(nested)


def _rejects(writer: Writer) -> bool:
    """Whether it rejects values that the column's type allows."""
    if isinstance(writer, writers.Required):
        return writer.is_nullable
    if isinstance(writer, writers.Integer):
        return writer.is_int
    if isinstance(writer, writers.Decimal):
        return writer.digits is not None
    return isinstance(writer, writers.FixedBytes | writers.Symbols | writers.Members)


def _converts(writer: Writer) -> bool:
    """Whether readers get values of another kind, or less precise ones."""
    if isinstance(writer, writers.Integer):
        return writer.ticks > 1
    if isinstance(writer, writers.Float):
        return not writer.dtype.startswith("f")
    return isinstance(writer, writers.Bytes) and writer.is_text_as_bytes


_NAMES = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    pa.null(): "void",
    pa.duration("us"): "interval",
    pa.time64("ns"): "time",
}
_MAX_DIGITS = 38


def spark_name(arrow_type: pa.DataType) -> str:
    """What Spark calls the type; Arrow's name if Spark does not have it."""
    arrow_type = plain_type(arrow_type)
    if pa.types.is_timestamp(arrow_type):
        return "timestamp_ntz" if arrow_type.tz is None else "timestamp"
    if pa.types.is_decimal128(arrow_type):
        return f"decimal({arrow_type.precision},{arrow_type.scale})"
    if pa.types.is_map(arrow_type):
        return f"map with keys of type {spark_name(arrow_type.key_type)}"
    if pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type):
        return "array"
    return "struct" if pa.types.is_struct(arrow_type) else _NAMES.get(arrow_type, str(arrow_type))


_NUMBERS = frozenset({"byte", "short", "int", "long", "float", "double", "decimal"})
_SCALARS = _NUMBERS | {"boolean", "string"}
_TIMES = frozenset({"date", "timestamp", "timestamp_ntz", "string"})

#: (logical) type -> the Spark type that fits, and those which Spark casts to it without a change of
#: their meaning: between times and numbers, a cast counts seconds
_CASTS = {
    "boolean": ("boolean", _SCALARS),
    "int": ("int", _SCALARS),
    "long": ("long", _SCALARS),
    "float": ("float", _SCALARS),
    "double": ("double", _SCALARS),
    "decimal": ("decimal", _SCALARS),
    "string": ("string", _SCALARS | _TIMES | {"binary", "time", "interval"}),
    "fixed": ("binary", frozenset({"string"})),
    "date": ("date", _TIMES),
    "time-millis": ("int", _NUMBERS),
    "time-micros": ("long", _NUMBERS),
    "timestamp-millis": ("timestamp", _TIMES),
    "timestamp-micros": ("timestamp", _TIMES),
    "local-timestamp-millis": ("timestamp_ntz", _TIMES),
    "local-timestamp-micros": ("timestamp_ntz", _TIMES),
}
_BY_UNIT = "timestamp_seconds({0}), timestamp_millis({0}) or timestamp_micros({0})"

#: (Spark type, (logical) type) -> what converts a column where a cast does not
_CONVERSIONS = {
    ("date", "long"): "unix_date({0})",
    ("timestamp", "timestamp-nanos"): "unix_micros({0}) * 1000",
    ("string", "uuid"): "unhex(replace({0}, '-', ''))",
    **{(number, "date"): "date_from_unix_date(int({0}))" for number in _NUMBERS},
    **{
        (number, f"timestamp-{unit}"): _BY_UNIT if is_whole else "timestamp_seconds({0})"
        for unit in ("millis", "micros")
        for numbers, is_whole in (
            (("byte", "short", "int"), True),
            (("float", "double", "decimal"), False),
        )
        for number in numbers
    },
}


def advice(node: Node, arrow_type: pa.DataType, path: str) -> str:
    """What to do if a column does not fit."""
    if isinstance(node, Union) and pa.types.is_struct(arrow_type):
        last = len(node.branches) - (1 if node.null is None else 2)
        return f"name its fields member0 to member{last}, one for each type, or change the schema"
    kind = _kind(node)
    has = spark_name(arrow_type).partition("(")[0]
    if expression := _CONVERSIONS.get((has, kind)):
        name = path.rpartition(".")[2]
        return f"convert it with {expression.format(name)}, or change the schema"
    wanted, castable = _CASTS.get(kind, ("", frozenset()))
    if isinstance(node, Primitive | Fixed) and kind == "decimal":
        wanted = f"decimal({node.precision},{node.scale})"
        has = "" if node.precision > _MAX_DIGITS or wanted == spark_name(arrow_type) else has
    if has in castable:
        return f"cast it to {wanted}, or change the schema"
    return "change the column or the schema"


def _kind(node: Node) -> str:
    if isinstance(node, Primitive):
        return node.logical_type or node.type
    if isinstance(node, Fixed):
        return node.logical_type or "fixed"
    return "string" if isinstance(node, Enum) else ""


def match_fields(
    record: Record, names: Sequence[str], path: str, problems: list[str]
) -> list[tuple[Field, int | None]]:
    """Each field of the record with the position of its name.

    None: its default is written, or null if it has none.
    A name is the same, an alias, or the same but for its case. Adds a sentence for each field
    without a partner.
    """
    taken: dict[int, str] = {}
    partners: dict[str, int] = {}
    exact = _positions(names)
    lower = _positions([name.lower() for name in names])
    for positions, accepted in (
        (exact, lambda field: [field.name]),
        (exact, lambda field: field.aliases),
        (lower, lambda field: [field.name.lower()]),
    ):
        for field in record.fields:
            if field.name in partners:
                continue
            fitting = {i for name in accepted(field) for i in positions.get(name, ())}
            free = sorted(i for i in fitting if i not in taken)
            if len(free) > 1:
                those = ", ".join(names[i] for i in free)
                problems.append(
                    f"{path}.{field.name}: several fields of the column fit it: {those}; rename "
                    "the one that is meant, and drop the others"
                )
            if free:
                partners[field.name] = free[0]
                taken.update(dict.fromkeys(free, field.name))
    matched: list[tuple[Field, int | None]] = []
    for field in record.fields:
        if field.name not in partners and not field.has_default and not _may_be_null(field):
            problems.append(
                f"{path}.{field.name}: the schema has this field without a default, the column "
                "does not have it; add it to the column, or give it a default in the schema"
            )
        else:
            matched.append((field, partners.get(field.name)))
    problems += [
        f"{path}.{name}: the column has this field, the schema does not; add it to the schema, or "
        "drop it from the column"
        for i, name in enumerate(names)
        if i not in taken
    ]
    return matched


def _may_be_null(field: Field) -> bool:
    return isinstance(field.type, Union) and field.type.null is not None


def _positions(names: Sequence[str]) -> dict[str, list[int]]:
    positions: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        positions.setdefault(name, []).append(i)
    return positions


_INTEGERS = {pa.int8(): "i1", pa.int16(): "i2", pa.int32(): "i4", pa.int64(): "i8"}


def compile_writer(
    node: Node, arrow_type: pa.DataType, path: str, problems: list[str], *, is_nullable: bool = True
) -> Writer:
    """The writer of a value that may be null. Adds a sentence for each field that does not fit.

    ``is_nullable``: whether the column's type allows null. Null is checked in any case.
    """
    if isinstance(node, Primitive) and node.type == "null" and pa.types.is_null(arrow_type):
        return writers.Nothing()
    if not isinstance(node, Union):
        inner = _writer(node, arrow_type, path, problems)
        return writers.Required(path, inner, is_nullable=is_nullable)
    null = node.null
    if pa.types.is_null(arrow_type) and null is not None:
        return writers.Constant(long_bytes(null))
    others = [(i, branch) for i, branch in enumerate(node.branches) if i != null]
    if _has_members(arrow_type, len(others)):
        members = [
            (i, _writer(branch, field.type, f"{path}.{field.name}", problems))
            for (i, branch), field in zip(others, arrow_type, strict=True)
        ]
        return writers.Members(path, null, members)
    branch, inner = _branch(node, others, arrow_type, path, problems)
    if null is None:
        return writers.Required(path, inner, long_bytes(branch), is_nullable)
    return writers.Nullable(null, branch, inner)


def _has_members(arrow_type: pa.DataType, count: int) -> bool:
    """Whether it is what Spark's ``from_avro`` makes of a union: a field for each branch."""
    if count < 2 or not pa.types.is_struct(arrow_type):
        return False
    return [field.name for field in arrow_type] == [f"member{i}" for i in range(count)]


def _branch(
    node: Union,
    others: list[tuple[int, Node]],
    arrow_type: pa.DataType,
    path: str,
    problems: list[str],
) -> tuple[int, Writer]:
    """The branch that fits best, and its writer. ``others``: all but null, with their indices."""
    if len(others) == 1:
        index, branch = others[0]
        return index, _writer(branch, arrow_type, path, problems)
    fitting = []
    for index, branch in others:
        mismatches: list[str] = []
        writer = _writer(branch, arrow_type, path, mismatches)
        if not mismatches:
            fitting.append((index, writer))
    if not fitting:
        problems.append(_mismatch(node, arrow_type, path))
        return 0, writers.Nothing()
    return best(fitting)


def _writer(node: Node, arrow_type: pa.DataType, path: str, problems: list[str]) -> Writer:
    """The writer of values that are not null."""
    arrow_type = plain_type(arrow_type)
    if isinstance(node, Record | Array | Map):
        writer = _nested(node, arrow_type, path, problems)
    elif isinstance(node, Enum):
        is_text = arrow_type == pa.string()
        writer = writers.Symbols(path, node.name, tuple(node.symbols)) if is_text else None
    elif isinstance(node, Fixed):
        writer = _fixed(node, arrow_type, path)
    elif isinstance(node, Primitive):
        writer = _PRIMITIVES[node.type](node, arrow_type, path)
    else:
        writer = None  # a union in a union, which no schema has
    if writer is None:
        problems.append(_mismatch(node, arrow_type, path))
        return writers.Nothing()
    return writer


def _nested(
    node: Record | Array | Map, arrow_type: pa.DataType, path: str, problems: list[str]
) -> Writer | None:
    if isinstance(node, Record):
        is_struct = pa.types.is_struct(arrow_type)
        return _record(node, arrow_type, path, problems) if is_struct else None
    if isinstance(node, Array):
        if not pa.types.is_list(arrow_type) and not pa.types.is_large_list(arrow_type):
            return None
        element = _field_writer(node.items, arrow_type.value_field, f"{path}.element", problems)
        return writers.Lists([(None, element)])
    if not pa.types.is_map(arrow_type) or plain_type(arrow_type.key_type) != pa.string():
        return None
    key = writers.Required(f"{path}.key", writers.Text(f"{path}.key"), is_nullable=False)
    value = _field_writer(node.values, arrow_type.item_field, f"{path}.value", problems)
    return writers.Lists([(0, key), (1, value)])


def _field_writer(node: Node, field: pa.Field, path: str, problems: list[str]) -> Writer:
    return compile_writer(node, field.type, path, problems, is_nullable=field.nullable)


def _mismatch(node: Node, arrow_type: pa.DataType, path: str) -> str:
    has = spark_name(arrow_type)
    return (
        f"{path}: the schema wants {node}, the column has {has}; {advice(node, arrow_type, path)}"
    )


def _record(node: Record, arrow_type: pa.DataType, path: str, problems: list[str]) -> Writer:
    names = [arrow_type.field(i).name for i in range(arrow_type.num_fields)]
    fields: list[tuple[int | None, Writer]] = []
    for field, position in match_fields(node, names, path, problems):
        inner = f"{path}.{field.name}"
        if position is None:
            fields.append((None, _default(field, inner, problems)))
        else:
            column = arrow_type.field(position)
            inner = f"{path}.{column.name}"
            fields.append((position, _field_writer(field.type, column, inner, problems)))
    return writers.Record(fields)


def _default(field: Field, path: str, problems: list[str]) -> Writer:
    try:
        return writers.Constant(encoded_default(field.type, field.default))
    except ValueError as error:
        problem = str(error)
    except RecursionError:
        problem = "it contains itself, or is nested too deeply"
    problems.append(f"{path}: the schema's default is invalid: {problem}; correct the schema")
    return writers.Nothing()


def _boolean(_node: Primitive, arrow_type: pa.DataType, _path: str) -> Writer | None:
    return writers.Boolean() if arrow_type == pa.bool_() else None


def _int(node: Primitive, arrow_type: pa.DataType, path: str) -> Writer | None:
    if arrow_type == pa.date32():
        return writers.Integer(path, "i4")
    dtype = _INTEGERS.get(arrow_type)
    if dtype is None or (dtype == "i8" and node.logical_type == "date"):
        return None
    return writers.Integer(path, dtype, is_int=dtype == "i8")


def _long(node: Primitive, arrow_type: pa.DataType, path: str) -> Writer | None:
    """As Spark's ``to_avro``: a long is written as it is, whatever the logical type says."""
    if arrow_type in {pa.int64(), pa.duration("us")}:
        return writers.Integer(path, "i8")
    kind = node.logical_type
    if arrow_type in _INTEGERS and kind in {None, "time-micros"}:
        return writers.Integer(path, _INTEGERS[arrow_type])
    if arrow_type == pa.time64("ns") and kind == "time-micros":
        return writers.Integer(path, "i8", ticks=1000)
    if not pa.types.is_timestamp(arrow_type) or arrow_type.unit != "us":
        return None
    prefix = "local-timestamp-" if arrow_type.tz is None else "timestamp-"
    ticks = {None: 1000, f"{prefix}millis": 1000, f"{prefix}micros": 1}.get(kind)
    return None if ticks is None else writers.Integer(path, "i8", ticks=ticks)


def _float(_node: Primitive, arrow_type: pa.DataType, _path: str) -> Writer | None:
    return writers.Float("f4", 4) if arrow_type == pa.float32() else None


def _double(_node: Primitive, arrow_type: pa.DataType, _path: str) -> Writer | None:
    if arrow_type == pa.int64():
        return None
    dtype = {pa.float32(): "f4", pa.float64(): "f8"}.get(arrow_type, _INTEGERS.get(arrow_type))
    return None if dtype is None else writers.Float(dtype, 8)


def _is_binary(arrow_type: pa.DataType) -> bool:
    return bool(arrow_type == pa.binary() or pa.types.is_fixed_size_binary(arrow_type))


def _bytes(node: Primitive, arrow_type: pa.DataType, path: str) -> Writer | None:
    if _is_binary(arrow_type):
        return writers.Bytes()
    if node.logical_type == "decimal":
        return _decimal(node, arrow_type, path, 0)
    return writers.Bytes(is_text_as_bytes=True) if arrow_type == pa.string() else None


def _string(_node: Primitive, arrow_type: pa.DataType, path: str) -> Writer | None:
    return writers.Text(path) if arrow_type == pa.string() else None


def _fixed(node: Fixed, arrow_type: pa.DataType, path: str) -> Writer | None:
    if _is_binary(arrow_type):
        return writers.FixedBytes(path, node.size)
    is_decimal = node.logical_type == "decimal"
    return _decimal(node, arrow_type, path, node.size) if is_decimal else None


def _decimal(
    node: Primitive | Fixed, arrow_type: pa.DataType, path: str, size: int
) -> Writer | None:
    if not pa.types.is_decimal128(arrow_type) or arrow_type.scale > node.scale:
        return None
    # In the column's scale; a rescaled value still has to fit the 38 digits of Arrow.
    digits = min(node.precision, 38) - node.scale + arrow_type.scale
    scale = node.scale if node.scale > arrow_type.scale else None
    if digits < 0:
        return None
    return writers.Decimal(path, size, digits if digits < arrow_type.precision else None, scale)


_PRIMITIVES: dict[str, Callable[[Any, pa.DataType, str], Writer | None]] = {
    "null": lambda *_: None,
    "boolean": _boolean,
    "int": _int,
    "long": _long,
    "float": _float,
    "double": _double,
    "bytes": _bytes,
    "string": _string,
}
