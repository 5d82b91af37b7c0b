"""[both] The columns of a record: all that depends on a column follows from this table.

The driver imports it to check schemas, so it needs neither Arrow nor numpy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum

TEXT = ("string", "binary")


class Kind(Enum):
    """What a column is inside ``RecordColumns``."""

    BYTES = "a BytesColumn"
    NUMBERS = "an array of integers"
    HEADERS = "a HeaderColumn"
    TOPIC = "no column: a RecordColumns has one topic"


class Kept(Enum):
    """Where a dead letter keeps a column, so that a replay restores it."""

    AS_IT_IS = "in the same part of the record, or in a header if Kafka would reject it again"
    AS_HEADER = "as text in a header of its own: in a dead letter, that part means something else"


class Column:
    """A column of a DataFrame, and how it is sent and kept.

    ``types``: those allowed, as Spark writes them (``DataType.simpleString``). ``field``: of
    ``RecordColumns``. ``factor``: the index of the fingerprint's constant for this column; a
    new column gets the next number, and numbers never change, because ledgers store
    fingerprints. ``if_null``: the number that stands for null.
    """

    # Not a NamedTuple, which would compile every annotation while a cold worker imports this.
    def __init__(
        self,
        name: str,
        types: tuple[str, ...],
        kind: Kind,
        kept: Kept,
        field: str = "",
        factor: int = 0,
        if_null: int = 0,
    ) -> None:
        self.name, self.types, self.kind, self.kept = name, types, kind, kept
        self.field, self.factor, self.if_null = field, factor, if_null


#: by name
COLUMNS: Mapping[str, Column] = {
    column.name: column
    for column in (
        Column("value", TEXT, Kind.BYTES, Kept.AS_IT_IS, "values", factor=0),
        Column("key", TEXT, Kind.BYTES, Kept.AS_IT_IS, "keys", factor=1),
        Column("topic", ("string",), Kind.TOPIC, Kept.AS_HEADER),
        Column(
            "partition",
            ("int",),
            Kind.NUMBERS,
            Kept.AS_HEADER,
            "partitions",
            factor=2,
            if_null=-1,  # the partitioner chooses
        ),
        Column(
            "headers",
            ("array<struct<key:string,value:binary>>",),
            Kind.HEADERS,
            Kept.AS_IT_IS,
            "headers",
            factor=4,
        ),
        Column(
            "timestamp",
            ("timestamp",),
            Kind.NUMBERS,  # milliseconds since the epoch
            Kept.AS_IT_IS,
            "timestamps_ms",
            factor=3,
            if_null=0,  # the time of sending
        ),
    )
}

#: in a DataFrame, the column that the option ``timestamp.column`` names, if any
TIMESTAMP = COLUMNS["timestamp"]


def sql_name(name: str) -> str:
    """A column's name as it is written in Spark SQL."""
    return name if re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) else f"`{name.replace('`', '``')}`"


def column_names(timestamp_column: str | None) -> dict[str, Column]:
    """The columns by their names in a DataFrame, without the timestamp's if no column is one."""
    names = {name: column for name, column in COLUMNS.items() if column is not TIMESTAMP}
    return names if timestamp_column is None else names | {timestamp_column: TIMESTAMP}


#: those that are columns of a ``RecordColumns``
RECORD_COLUMNS = tuple(column for column in COLUMNS.values() if column.field)
