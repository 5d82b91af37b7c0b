"""[driver] Checks whether the rows of a DataFrame can become records."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.errors import InvalidSchema
from spark_kafka_sink.records.column_table import (
    COLUMNS,
    TEXT,
    TIMESTAMP,
    Column,
    column_names,
    sql_name,
)

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from spark_kafka_sink.config.serialization_options import SerializationOptions


class Conversion(NamedTuple):
    """The Spark SQL for record columns that have another type.

    ``types``: for docs/format.md. ``pattern``: of the type, as Spark writes it
    (``DataType.simpleString``). ``expressions``: of the column ``{}``, the likeliest first.
    """

    columns: tuple[str, ...]
    types: str
    pattern: str
    expressions: tuple[str, ...]


_HEADERS = "array<struct<key:string,value:binary>>"
_HEADER = "struct(string(h.key) AS key, binary(string(h.value)) AS value)"
_DROP = 'drop("{}")'
#: string, with a collation or a length too
_ANY_TEXT = r"(string|(var)?char)\b[^<>,]*"

#: The first that matches applies.
CONVERSIONS = (
    Conversion(
        ("value", "key"),
        "struct, array, map, variant",
        r"(struct|array|map)<.*|variant",
        ("to_json({})",),
    ),
    Conversion(("value", "key"), "any other", ".*", ("string({})",)),
    Conversion(
        ("topic",),
        "binary, a number, char, varchar, collated string",
        rf"binary|(\w*int|decimal).*|{_ANY_TEXT}",
        ("string({})",),
    ),
    Conversion(
        ("partition",),
        "another number, string, void",
        rf"(tiny|small|big)int|float|double|decimal.*|{_ANY_TEXT}|void",
        ("int({})",),
    ),
    Conversion(
        ("timestamp",),
        "bigint",
        "bigint",
        ("timestamp_millis({})", "timestamp_seconds({})"),
    ),
    Conversion(
        ("timestamp",),
        "another number",
        r"(tiny|small|)int|float|double|decimal.*",
        ("timestamp_seconds({})",),
    ),
    Conversion(
        ("timestamp",),
        "timestamp_ntz, date, string, void",
        rf"timestamp_ntz|date|{_ANY_TEXT}|void",
        ("timestamp({})",),
    ),
    Conversion(("headers",), "`map<string,binary>`", "map<string,binary>", ("map_entries({})",)),
    Conversion(
        ("headers",),
        "another map",
        "map<.*",
        (f"transform(map_entries({{}}), h -> {_HEADER})",),
    ),
    Conversion(
        ("headers",),
        "array of structs with the fields `key` and `value` among others, or of other types",
        r"array<struct<(?=([^<]*,)?key:)(?=([^<]*,)?value:).*>>",
        (f"transform({{}}, h -> {_HEADER})",),
    ),
    Conversion(
        ("headers",),
        "array of structs of a key and a text or binary value, with other names; void",
        rf"array<struct<[^<,]*,[^<,]*:({_ANY_TEXT}|binary)>>|void",
        (f"cast({{}} AS {_HEADERS})",),
    ),
    Conversion(
        ("headers",),
        "`struct<key:string,value:binary>`",
        "struct<key:string,value:binary>",
        ("array({})",),
    ),
    Conversion(
        ("headers",),
        "struct with the fields `key` and `value` among others, or of other types",
        r"struct<(?=([^<]*,)?key:)(?=([^<]*,)?value:).*>",
        (f"transform(array({{}}), h -> {_HEADER})",),
    ),
    Conversion(
        ("headers",), "string, from `to_json`", _ANY_TEXT, (f"from_json({{}}, '{_HEADERS}')",)
    ),
    Conversion(
        tuple(column for column in COLUMNS if column not in ("value", "key", TIMESTAMP.name)),
        "any other",
        ".*",
        (_DROP,),
    ),
)

_OPTION = table.TIMESTAMP_COLUMN.name
_TIMESTAMP_UNUSED = (
    f"column {TIMESTAMP.name} is not written to Kafka, as with Spark's own sink: records get the "
    f"time of sending. If it is the records' time, set {_OPTION}={TIMESTAMP.name}, and see that "
    "the topic's retention.ms keeps records of that age; if not, drop the column"
)

#: what a column may be already: the format's name, Spark's function, and the types that it returns
_ALREADY = {"json": ("JSON", "to_json", TEXT), "avro": ("Avro", "to_avro", ("binary",))}

# Of 1; keys is 0.86 like key, vaule 0.8 like value.
_SIMILARITY = 0.8


def check_schema(
    schema: StructType,
    topic: str | None,
    serialized: Collection[str] = (),
    timestamp_column: str | None = None,
) -> None:
    """Raise InvalidSchema, with one message for all problems, if rows cannot become records.

    ``serialized``: the columns of any type, which a format turns into bytes.
    """
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    used = used_columns(topic, timestamp_column)
    problems = [
        f"column {name} has type {types[name]}; allowed: {' or '.join(column.types)}"
        f"{_advice(name, column, types[name])}"
        for name, column in used.items()
        if name in types
        and name not in serialized
        # Of structs, the names of fields may be in any case.
        and types[name].lower() not in column.types
    ]
    problems += [
        f"{problem}: rename one"
        for field in schema.fields
        if field.name in serialized
        for problem in _repeated_fields(field.dataType, f"column {field.name}")
    ]
    problems += [
        f"column {column}, which {column}.format serializes, is missing{_hint(column, types)}"
        for column in serialized
        if column not in types and column != "value"
    ]
    if "value" not in types:
        problems.append(
            f"column value ({' or '.join(TEXT)}) is required but missing"
            f"{_hint('value', types) or _value_of(types, is_serialized='value' in serialized)}"
        )
    if "topic" not in types and topic is None:
        hint = _hint("topic", types)
        problems.append(f"no topic: set the option topic, or add a column topic (string){hint}")
    if timestamp_column is not None and timestamp_column not in types:
        hint = _hint(timestamp_column, types)
        problems.append(f"column {timestamp_column}, which {_OPTION} names, is missing{hint}")
    repeated = [name for name in _repeated(schema.names) if name in used]
    if repeated:
        names = ", ".join(repeated)
        problems.append(f"more than one column is named {names}; select one, and rename the others")
    if problems:
        raise InvalidSchema("; ".join(problems))


def check_schema_for_format(schema: StructType) -> None:
    """Raise InvalidSchema for columns of any name that Spark cannot pass: it passes all."""
    from pyspark.sql.types import YearMonthIntervalType

    problems = [f"more than one column is named {name}" for name in _repeated(schema.names)]
    for field in schema.fields:
        problems += _repeated_fields(field.dataType, f"column {field.name}")
        # pyarrow has no class for it, but needs one only for whole columns.
        if isinstance(field.dataType, YearMonthIntervalType):
            problems.append(f"column {field.name} has type {field.dataType.simpleString()}")
    if problems:
        raise InvalidSchema(
            f"{'; '.join(problems)}. Spark cannot pass that to the format: select the record's "
            "columns, or use foreach_batch"
        )


def conversions(column: str, kind: str, name: str | None = None) -> list[str]:
    """What turns a column of a type, as Spark writes it, into one that is allowed; may be nothing.

    ``column``: in the table of columns. ``name``: in the DataFrame, if it is another one.
    """
    for candidate in CONVERSIONS:
        if column in candidate.columns and re.fullmatch(candidate.pattern, kind, re.IGNORECASE):
            return [e.format(sql_name(name or column)) for e in candidate.expressions]
    return []


def _advice(name: str, column: Column, kind: str) -> str:
    """The end of the sentence about a column of a wrong type."""
    expressions = " or ".join(conversions(column.name, kind, name))
    instead = f", for instance {expressions}" if expressions else ""
    if column is TIMESTAMP:
        return f"{instead}; or remove {_OPTION}"
    return instead + _or_format(name, kind)


def _repeated(names: Iterable[str]) -> list[str]:
    return sorted(name for name, count in Counter(names).items() if count > 1)


def _repeated_fields(kind: DataType, place: str) -> Iterator[str]:
    """A sentence for each name that a struct has twice, at any depth."""
    from pyspark.sql.types import ArrayType, MapType, StructType, UserDefinedType

    if isinstance(kind, UserDefinedType):
        kind = kind.sqlType()
    if isinstance(kind, StructType):
        yield from (f"{place} has more than one field {name}" for name in _repeated(kind.names))
        for field in kind.fields:
            yield from _repeated_fields(field.dataType, f"{place}.{field.name}")
    elif isinstance(kind, ArrayType):
        yield from _repeated_fields(kind.elementType, f"{place}.element")
    elif isinstance(kind, MapType):
        yield from _repeated_fields(kind.keyType, f"{place}.key")
        yield from _repeated_fields(kind.valueType, f"{place}.value")


def used_columns(topic: str | None, timestamp_column: str | None = None) -> dict[str, Column]:
    """The columns that make up a record, by their names in the DataFrame.

    The option ``topic`` replaces the column ``topic``.
    """
    names = column_names(timestamp_column)
    return {name: column for name, column in names.items() if name != "topic" or topic is None}


def unused_columns(
    schema: StructType, topic: str | None, timestamp_column: str | None = None
) -> list[str]:
    """A sentence for each column that is not written, and may be meant to be.

    That is one that resembles a missing one, and ``timestamp`` if no column is the record's
    timestamp. Other columns are not written either, as in Spark's own sink.
    """
    used = used_columns(topic, timestamp_column)
    unused = set(schema.names) - set(used)
    missing = set(used) - set(schema.names) if unused else set()
    sentences = [
        f"column {similar} is not written to Kafka; did you mean {column}?"
        for column in sorted(missing)
        if (similar := _similar(column, unused))
    ]
    if timestamp_column is None and TIMESTAMP.name in unused:
        sentences.append(_TIMESTAMP_UNUSED)
    return sentences


def columns_serialized_twice(schema: StructType, options: SerializationOptions | None) -> list[str]:
    """A sentence for each column, without a given schema, that may have been serialized before."""
    if options is None or options.use_latest_version:
        return []
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    return [
        f"column {column.column} ({types[column.column]}) is serialized by {column.column}.format="
        f"{column.format}: if it is {name} already, write the struct itself, not {function}; "
        f"if not, {column.column}.schema ends this warning"
        for column in options.columns
        for name, function, kinds in [_ALREADY[column.format]]
        if column.schema is None and types.get(column.column) in kinds
    ]


def _similar(column: str, names: Iterable[str]) -> str | None:
    """The name that is most likely a misspelt ``column``."""
    import difflib  # needed only if a column is missing

    lower = {name.lower(): name for name in names}
    matches = difflib.get_close_matches(column.lower(), lower, n=1, cutoff=_SIMILARITY)
    return lower[matches[0]] if matches else None


def _or_format(column: str, kind: str) -> str:
    is_nested = kind.startswith(("struct<", "array<", "map<"))
    can_be_serialized = column in ("value", "key") and is_nested
    return f", or set {column}.format=avro or json" if can_be_serialized else ""


def _value_of(types: Mapping[str, str], *, is_serialized: bool) -> str:
    """How to make a value of the columns that there are."""
    if not types:
        return ""
    if is_serialized:
        return "; for instance struct(*) AS value"
    if len(types) > 1:
        return "; for instance to_json(struct(*)) AS value"
    ((name, kind),) = types.items()
    bytes_or_text = [sql_name(name)] if kind == "binary" else conversions("value", kind, name)
    return f"; for instance {bytes_or_text[0]} AS value"


def _hint(column: str, names: Iterable[str]) -> str:
    similar = _similar(column, names)
    if similar is None:
        return ""
    is_case = similar.lower() == column.lower()
    return f" (found {similar}{'; names are case-sensitive' if is_case else ''})"
