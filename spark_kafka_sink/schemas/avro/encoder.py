"""[both] AvroEncoder: an Arrow column as Avro, all rows at once.

In this order: the encoder, the compiler of writers, the writer of each primitive type, the choice
of a union's branch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from spark_kafka_sink.errors import SchemaMismatch
from spark_kafka_sink.records import arrow_memory as memory
from spark_kafka_sink.records.arrow_memory import plain_type
from spark_kafka_sink.records.column_table import sql_name
from spark_kafka_sink.schemas.avro import writers
from spark_kafka_sink.schemas.avro.defaults import encoded_default, long_bytes
from spark_kafka_sink.schemas.avro.level import Level
from spark_kafka_sink.schemas.avro.mismatch import mismatch
from spark_kafka_sink.schemas.avro.schema import (
    Array,
    Branch,
    Enum,
    Field,
    Fixed,
    Map,
    Node,
    Primitive,
    Record,
    Union,
    parse_schema,
)
from spark_kafka_sink.schemas.avro.writers import Writer
from spark_kafka_sink.schemas.conversions import Element, MapValue, inner_path
from spark_kafka_sink.schemas.encoded import Encoded, encode_in_parts


class AvroEncoder:
    """Encodes columns of ``arrow_type`` with a writer's schema (JSON). Can be pickled.

    ``column``: its name, for messages. Raises SchemaMismatch, with a problem for each field that
    does not fit, if the schema is not valid or not that of the column.
    """

    def __init__(self, schema: str, arrow_type: pa.DataType, column: str) -> None:
        node = parse_schema(schema, column)
        compiler = _Compiler()
        self._writer = compiler.value(node, arrow_type, column)
        if problems := tuple(compiler.problems):
            raise SchemaMismatch(
                f"the column {column} does not fit its Avro schema: " + ". ".join(problems),
                problems=problems,
            )
        if isinstance(node, Primitive) and node.type == "bytes":
            self._writer = _remove_length(self._writer)

    def encode(self, array: pa.Array, prefix: bytes | pa.Array = b"") -> Encoded:
        """Each row as ``prefix``, or that of the row, and its value in Avro; a null stays null."""
        return encode_in_parts(self._encode, array, prefix)

    def _encode(self, array: pa.Array, prefix: bytes | pa.Array) -> Encoded:
        level = Level(len(array))
        valid = memory.validity(array)
        if isinstance(prefix, bytes):
            level.add_constant(prefix, valid)
        else:
            level.add_strings(*memory.byte_strings(prefix), valid)
        self._writer.write(level, array, valid)
        data, offsets = level.finish()
        if level.problems:
            valid = np.ones(len(array), dtype=bool) if valid is None else valid.copy()
            valid[np.concatenate([problem.rows for problem in level.problems])] = False
        is_large = memory.exceeds_binary(len(data))
        values = memory.binary_array(offsets, data, valid=valid, is_large=is_large)
        return Encoded(values, level.problems)


def _remove_length(writer: Writer) -> Writer:
    """A writer of ``bytes`` that are not a part of anything else.

    Confluent's clients write and read them without their length (AbstractKafkaAvroSerializer).
    """
    if not isinstance(writer, writers.Required):
        return writer
    if not isinstance(writer.inner, writers.Bytes | writers.Decimal):
        return writer
    return replace(writer, inner=replace(writer.inner, has_length=False))


_INTEGERS = {pa.int8(): "i1", pa.int16(): "i2", pa.int32(): "i4", pa.int64(): "i8"}


class _Compiler:
    """Makes the writers of a column. ``problems``: a sentence for each field that does not fit."""

    def __init__(self) -> None:
        self.problems: list[str] = []

    def value(
        self, node: Node, arrow_type: pa.DataType, path: str, *, is_nullable: bool = True
    ) -> Writer:
        """The writer of a value that may be null.

        ``is_nullable``: whether the column's type allows null. Null is checked in any case.
        """
        if isinstance(node, Primitive) and node.type == "null" and pa.types.is_null(arrow_type):
            return writers.Nothing()
        if not isinstance(node, Union):
            inner = self.writer(node, arrow_type, path)
            return writers.Required(path, inner, is_nullable=is_nullable)
        null = node.null
        if pa.types.is_null(arrow_type) and null is not None:
            return writers.Constant(long_bytes(null))
        others = [(i, branch) for i, branch in enumerate(node.branches) if i != null]
        if _has_members(arrow_type, len(others)):
            members = [
                (i, self.writer(branch, field.type, f"{path}.{field.name}"))
                for (i, branch), field in zip(others, arrow_type, strict=True)
            ]
            return writers.Members(path, null, members)
        branch, inner = self._branch(node, others, arrow_type, path)
        if null is None:
            return writers.Required(path, inner, long_bytes(branch), is_nullable)
        return writers.Nullable(null, branch, inner)

    def _branch(
        self,
        node: Union,
        others: list[tuple[int, Branch]],
        arrow_type: pa.DataType,
        path: str,
    ) -> tuple[int, Writer]:
        """The branch that fits best, and its writer. ``others``: all but null, with indices."""
        if len(others) == 1:
            index, branch = others[0]
            return index, self.writer(branch, arrow_type, path)
        fitting = []
        for index, branch in others:
            trial = _Compiler()
            writer = trial.writer(branch, arrow_type, path)
            if not trial.problems:
                fitting.append((index, writer))
        if not fitting:
            expression = _as_members(others, arrow_type, path)
            self.problems.append(mismatch(node, arrow_type, path, expression))
            return 0, writers.Nothing()
        return _best(fitting)

    def writer(self, node: Branch, arrow_type: pa.DataType, path: str) -> Writer:
        """The writer of values that are not null."""
        arrow_type = plain_type(arrow_type)
        if isinstance(node, Record | Array | Map):
            writer = self._nested(node, arrow_type, path)
        elif isinstance(node, Enum):
            is_text = arrow_type == pa.string()
            writer = writers.Symbols(path, node.name, tuple(node.symbols)) if is_text else None
        elif isinstance(node, Fixed):
            writer = _fixed(node, arrow_type, path)
        else:
            writer = _PRIMITIVES[node.type](node, arrow_type, path)
        if writer is None:
            expression = _only_field(node, arrow_type, path)
            self.problems.append(mismatch(node, arrow_type, path, expression))
            return writers.Nothing()
        return writer

    def _nested(
        self, node: Record | Array | Map, arrow_type: pa.DataType, path: str
    ) -> Writer | None:
        if isinstance(node, Record):
            # Spark's reader makes a struct with one member of a union with one type.
            is_member = (
                _only_field(node, arrow_type, path) and arrow_type.field(0).name == "member0"
            )
            is_record = pa.types.is_struct(arrow_type) and not is_member
            return self._record(node, arrow_type, path) if is_record else None
        if isinstance(node, Array):
            if not pa.types.is_list(arrow_type) and not pa.types.is_large_list(arrow_type):
                return None
            element = self._field(node.items, arrow_type.value_field, Element(f"{path}.element"))
            return writers.Lists([(None, element)])
        if not pa.types.is_map(arrow_type) or plain_type(arrow_type.key_type) != pa.string():
            return None
        key = writers.Required(f"{path}.key", writers.Text(f"{path}.key"), is_nullable=False)
        place = MapValue(f"{path}.value")
        value = self._field(node.values, arrow_type.item_field, place)
        return writers.Lists([(0, key), (1, value)])

    def _field(self, node: Node, field: pa.Field, path: str) -> Writer:
        return self.value(node, field.type, path, is_nullable=field.nullable)

    def _record(self, node: Record, arrow_type: pa.DataType, path: str) -> Writer:
        names = [arrow_type.field(i).name for i in range(arrow_type.num_fields)]
        fields: list[tuple[int | None, Writer]] = []
        for field, position in self._match_fields(node, names, path):
            inner = f"{path}.{field.name}"
            if position is None:
                fields.append((None, self._default(field, inner)))
            else:
                column = arrow_type.field(position)
                inner = inner_path(path, column.name)
                fields.append((position, self._field(field.type, column, inner)))
        return writers.Structs(fields)

    def _match_fields(
        self, record: Record, names: Sequence[str], path: str
    ) -> list[tuple[Field, int | None]]:
        """Each field of the record with the position of its name in ``names``.

        None: its default is written, or null if it has none. A name fits if it is the same, an
        alias, or the same but for its case. Each field without a partner is a problem.
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
                    candidates = ", ".join(names[i] for i in free)
                    self.problems.append(
                        f"{path}.{field.name}: several fields of the column fit it: {candidates}; "
                        "rename the one that is meant, and drop the others"
                    )
                if free:
                    partners[field.name] = free[0]
                    taken.update(dict.fromkeys(free, field.name))
        matched: list[tuple[Field, int | None]] = []
        for field in record.fields:
            if field.name not in partners and not field.has_default and not _may_be_null(field):
                self.problems.append(
                    f"{path}.{field.name}: the schema has this field without a default, the column "
                    "does not have it; add it to the column, or give it a default in the schema"
                )
            else:
                matched.append((field, partners.get(field.name)))
        self.problems += [
            f"{path}.{name}: the column has this field, the schema does not; add it to the schema, "
            "or drop it from the column"
            for i, name in enumerate(names)
            if i not in taken
        ]
        return matched

    def _default(self, field: Field, path: str) -> Writer:
        try:
            return writers.Constant(encoded_default(field.type, field.default))
        except ValueError as error:
            problem = str(error)
        except RecursionError:
            problem = "it contains itself, or is nested too deeply"
        self.problems.append(
            f"{path}: the schema's default is invalid: {problem}; correct the schema"
        )
        return writers.Nothing()


def _has_members(arrow_type: pa.DataType, count: int) -> bool:
    """Whether it is what Spark's ``from_avro`` makes of a union: a field for each branch."""
    if count < 2 or not pa.types.is_struct(arrow_type):
        return False
    return [field.name for field in arrow_type] == [f"member{i}" for i in range(count)]


def _as_members(
    others: Sequence[tuple[int, Branch]], arrow_type: pa.DataType, path: str
) -> str | None:
    """What names and orders the fields of a struct ``{0}`` as the members of a union."""
    if not pa.types.is_struct(arrow_type) or arrow_type.num_fields != len(others):
        return None
    free = list(arrow_type)
    members = []
    for i, (_, branch) in enumerate(others):
        fitting = [field for field in free if _fits(branch, field.type, path)]
        if not fitting:
            return None
        kind = str(branch).rpartition(".")[2].rpartition(" ")[2]
        # Spark's reader names them by their types, if told so.
        best = max(fitting, key=lambda f: (f.name == f"member{i}", f.name.endswith(f"_{kind}")))
        free.remove(best)
        members.append(f"{{0}}.{sql_name(best.name)} AS member{i}")
    return f"struct({', '.join(members)})"


def _fits(node: Branch, arrow_type: pa.DataType, path: str) -> bool:
    trial = _Compiler()
    trial.writer(node, arrow_type, path)
    return not trial.problems


def _only_field(node: Branch, arrow_type: pa.DataType, path: str) -> str | None:
    """The field ``{0}.name`` of a struct with only this one, if it is what the schema wants."""
    if not pa.types.is_struct(arrow_type) or arrow_type.num_fields != 1:
        return None
    field = arrow_type.field(0)
    return f"{{0}}.{sql_name(field.name)}" if _fits(node, field.type, path) else None


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
    """The writer of a long, which Spark's ``to_avro`` writes as it is for any logical type."""
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
    # These have the column's scale; a rescaled value still has to fit the 38 digits of Arrow.
    digits = min(node.precision, 38) - node.scale + arrow_type.scale
    scale = node.scale if node.scale > arrow_type.scale else None
    if digits < 0:
        return None
    rule = "has too many digits for the schema"
    if node.precision > 38:
        rule = "needs more than Arrow's 38 digits in the schema's scale"
    return writers.Decimal(
        path, size, digits if digits < arrow_type.precision else None, scale, rule
    )


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


def _may_be_null(field: Field) -> bool:
    return isinstance(field.type, Union) and field.type.null is not None


def _positions(names: Sequence[str]) -> dict[str, list[int]]:
    positions: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        positions.setdefault(name, []).append(i)
    return positions


def _best(fitting: Sequence[tuple[int, Writer]]) -> tuple[int, Writer]:
    """The index and writer of the branch that rejects values of the fewest fields.

    Among several, it is the one that converts the fewest fields; among these, the first.
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
    elif isinstance(writer, writers.Structs):
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
