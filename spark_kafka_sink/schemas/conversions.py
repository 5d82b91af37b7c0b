"""[both] What converts a column that does not fit a schema: one table for both formats."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spark_kafka_sink.records.column_table import sql_name

#: how deep the structs, arrays and maps of an expression's Spark type may be
LEVELS = 4


class Element(str):
    """The path of the elements of an array."""

    __slots__ = ()


class MapValue(str):
    """The path of the values of a map."""

    __slots__ = ()


_WHOLE = ("byte", "short", "int", "long")
_NUMBERS = (*_WHOLE, "float", "double", "decimal")
_SCALARS = (*_NUMBERS, "boolean", "string")
_MOMENTS = ("timestamp", "timestamp_ntz")
_TIMES = ("date", *_MOMENTS, "string")
_NESTED = ("struct", "array", "map")
#: one that is not in a quoted name
_DOT = re.compile(r"\.(?=(?:[^`]*`[^`]*`)*[^`]*$)")
_BY_UNIT = "timestamp_seconds({0}), timestamp_millis({0}) or timestamp_micros({0})"

#: Spark types, what the schema wants, and Spark SQL that makes the latter of a column {0} and keeps
#: its meaning: a cast between times and numbers would count seconds. The first match applies.
#: Wanted is an Avro type, or the logical one that it has, or a type of JSON; {1} is its Spark type.
CONVERSIONS: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (_NESTED, ("string",), "to_json({0})"),
    (_NESTED, ("bytes",), "binary(to_json({0}))"),
    ((*_SCALARS, *_TIMES, "binary", "time", "interval"), ("string",), "string({0})"),
    ((*_NUMBERS, "boolean", *_TIMES, "time", "interval"), ("bytes",), "binary(string({0}))"),
    (("string",), ("fixed",), "binary({0})"),
    (("string",), ("uuid",), "unhex(replace({0}, '-', ''))"),
    (_SCALARS, ("boolean",), "boolean({0})"),
    (_SCALARS, ("int",), "int({0})"),
    (_SCALARS, ("long", "integer"), "bigint({0})"),
    (_SCALARS, ("float",), "float({0})"),
    (_SCALARS, ("double", "number"), "double({0})"),
    (_SCALARS, ("decimal",), "cast({0} AS {1})"),
    (("date",), ("long", "integer", "number"), "unix_date({0})"),
    (("timestamp",), ("integer", "number"), "unix_millis({0})"),
    (("timestamp_ntz",), ("integer", "number"), "unix_millis(timestamp({0}))"),
    (_TIMES, ("date",), "date({0})"),
    (_NUMBERS, ("date",), "date_from_unix_date(int({0}))"),
    (("time",), ("int", "time-millis"), "int(time_to_millis({0}))"),
    (("time",), ("long",), "time_to_micros({0})"),
    (_NUMBERS, ("time-millis",), "int({0})"),
    (_NUMBERS, ("time-micros",), "bigint({0})"),
    (_TIMES, ("timestamp-millis", "timestamp-micros"), "timestamp({0})"),
    (_WHOLE[:3], ("timestamp-millis", "timestamp-micros"), _BY_UNIT),
    (_NUMBERS[4:], ("timestamp-millis", "timestamp-micros"), "timestamp_seconds({0})"),
    (_TIMES, ("local-timestamp-millis", "local-timestamp-micros"), "cast({0} AS timestamp_ntz)"),
    (("timestamp",), ("timestamp-nanos",), "unix_micros({0}) * 1000"),
    (("string",), ("array", "map", "record", "object"), "from_json({0}, '{1}')"),
)  # fmt: skip


def conversion(has: str, wanted: str, spark_type: str = "") -> str | None:
    """What makes of a column ``{0}`` of a Spark type what the schema wants; None: nothing does."""
    kind = plain_kind(has)
    for kinds, targets, expression in CONVERSIONS:
        if kind in kinds and wanted in targets and (spark_type or "{1}" not in expression):
            return expression.replace("{1}", spark_type)
    return None


def struct_type(fields: Mapping[str, str | None]) -> str | None:
    """The Spark type of a struct; None: a field has none, or there are no fields."""
    if not fields or not all(fields.values()):
        return None
    return f"struct<{','.join(f'{sql_name(name)}:{kind}' for name, kind in fields.items())}>"


def inner_path(path: str, name: str) -> str:
    """The path of what is inside; a name with a dot is quoted, because dots separate names."""
    return f"{path}.{sql_name(name) if '.' in name or '`' in name else name}"


def remedy(path: str, expression: str | None) -> str:
    """The end of the sentence about a field that does not fit; ``path``: from the column on."""
    if expression is None:
        return "change the column or the schema"
    names = _DOT.split(path.removeprefix("column "))
    around, name = ["", *(n if n.startswith("`") else sql_name(n) for n in names)][-2:]
    field = "x" if isinstance(path, Element | MapValue) else name
    sql = expression.replace("{0}", field)
    if isinstance(path, Element):
        sql = f"transform({around}, x -> {sql})"
    elif isinstance(path, MapValue):
        sql = f"transform_values({around}, (k, x) -> {sql})"
    return f"convert it with {sql}, or change the schema"


def plain_kind(spark_type: str) -> str:
    """The type without its digits, length, collation or unit."""
    word = re.split(r"[ (]", spark_type, maxsplit=1)[0]
    return {"integer": "int", "char": "string", "varchar": "string"}.get(word, word)
