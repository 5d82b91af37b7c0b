"""Checks on the driver whether the rows of a DataFrame can become records."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from spark_kafka_sink.errors import InvalidSchema
from spark_kafka_sink.records.column_table import COLUMNS, TEXT

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

# Of 1; keys is 0.86 like key, vaule 0.8 like value.
_SIMILARITY = 0.8


def check_schema(schema: StructType, topic: str | None, serialized: Collection[str] = ()) -> None:
    """Raise InvalidSchema, with one message for all problems, if rows cannot become records.

    ``serialized``: the columns of any type, which a format turns into bytes.
    """
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    used = used_columns(topic)
    problems = [
        f"column {column} has type {types[column]}; allowed: {' or '.join(COLUMNS[column].types)}"
        f"{_cast(column, types[column])}"
        for column in used
        if column in types
        and column not in serialized
        and types[column] not in COLUMNS[column].types
    ]
    problems += [
        f"column {column}, which {column}.format serializes, is missing{_found(column, types)}"
        for column in serialized
        if column not in types and column != "value"
    ]
    if "value" not in types:
        problems.append(
            f"column value ({' or '.join(TEXT)}) is required but missing{_found('value', types)}"
        )
    if "topic" not in types and topic is None:
        found = _found("topic", types)
        problems.append(f"no topic: set the option topic, or add a column topic (string){found}")
    repeated = sorted(name for name in used if schema.names.count(name) > 1)
    if repeated:
        problems.append(f"more than one column is named {', '.join(repeated)}")
    if problems:
        raise InvalidSchema("; ".join(problems))


def used_columns(topic: str | None) -> list[str]:
    """The columns that make up a record; the option ``topic`` replaces the column ``topic``."""
    return [column for column in COLUMNS if column != "topic" or topic is None]


def warn_of_unused_columns(schema: StructType, topic: str | None) -> None:
    """Issue a UserWarning, at our caller's caller, for each of ``unused_columns``."""
    for problem in unused_columns(schema, topic):
        warnings.warn(problem, stacklevel=3)


def unused_columns(schema: StructType, topic: str | None) -> list[str]:
    """A sentence for each column that is not written, and resembles one that is missing.

    Other columns are not written either, as in Spark's own sink.
    """
    used = used_columns(topic)
    unused = set(schema.names) - set(used)
    missing = set(used) - set(schema.names) if unused else set()
    return [
        f"column {similar} is not written to Kafka; did you mean {column}?"
        for column in sorted(missing)
        if (similar := _similar(column, unused))
    ]


def _cast(column: str, given: str) -> str:
    if COLUMNS[column].types != TEXT:
        return ""
    is_nested = given.startswith(("struct", "array", "map"))
    return f", for instance {'to_json' if is_nested else 'string'}({column})"


def _similar(column: str, names: Iterable[str]) -> str | None:
    """The name that is most likely a misspelt ``column``."""
    import difflib  # needed only if a column is missing

    lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(column, lower, n=1, cutoff=_SIMILARITY)
    return lower[found[0]] if found else None


def _found(column: str, names: Iterable[str]) -> str:
    similar = _similar(column, names)
    if similar is None:
        return ""
    is_case = similar.lower() == column
    return f" (found {similar}{'; names are case-sensitive' if is_case else ''})"
