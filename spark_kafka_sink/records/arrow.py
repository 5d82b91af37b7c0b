"""[both] Arrow batch -> RecordColumns per topic, without copying keys, values or headers.

pyarrow.compute is imported only where it is needed. The most common batches, with only keys and
values, do not need it; that saves a cold worker 45 ms and 8 MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.errors import InvalidSchema
from spark_kafka_sink.names import is_topic_name, topic_name_rule
from spark_kafka_sink.records import arrow_memory as memory
from spark_kafka_sink.records.column_table import (
    COLUMNS,
    RECORD_COLUMNS,
    TIMESTAMP,
    Column,
    Kind,
    column_names,
    sql_name,
)
from spark_kafka_sink.records.columns import (
    BytesColumn,
    HeaderColumn,
    RecordColumns,
    appended,
    containing_rows,
    is_utf8,
    ranges,
)
from spark_kafka_sink.records.rejection import (
    INVALID_HEADER,
    INVALID_TIMESTAMP,
    INVALID_TOPIC,
    NEGATIVE_PARTITION,
    NULL_TOPIC,
    RejectedRecords,
    RowProblem,
    RowProblems,
    rejected_records,
)

#: by column: the header with the id of its schema, as Confluent's serializers name it; their
#: deserializers look for it before they look at the prefix
ID_HEADERS: Mapping[str, bytes] = {"key": b"__key_schema_id", "value": b"__value_schema_id"}


@dataclass(frozen=True)
class Serialized:
    """An Arrow batch with the columns ``key`` and ``value`` as they are sent.

    ``unserializable``: rows whose key or value does not fit its schema; in ``batch``, both are
    JSON, for their dead letters.
    ``id_bytes``: by column, how many bytes at the beginning of every value are its schema's id.
    ``id_headers``: by column, the ids that become headers.
    """

    batch: pa.RecordBatch
    unserializable: list[RowProblem] = field(default_factory=list)
    id_bytes: Mapping[str, int] = field(default_factory=dict)
    id_headers: Mapping[str, BytesColumn] = field(default_factory=dict)


# Provides an address for empty strings whose array has no buffer; 0 would mean null.
_NOTHING = np.zeros(1, dtype=np.uint8)

# Later seconds have no milliseconds of 64 bits, and brokers reject even this one.
_LAST_SECOND = 2**53
#: ticks of a timestamp's unit per millisecond
_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}
#: what Spark's source shows for a record without a timestamp
_NO_TIMESTAMP_MS = -1


@dataclass(frozen=True)
class SplitBatch:
    """``records`` by topic, each in the order of the rows; ``rejected``: the other rows."""

    records: list[RecordColumns]
    rejected: list[RejectedRecords]


def split_by_topic(
    batch: pa.RecordBatch | Serialized,
    topic: str | None,
    first_row: int = 0,
    timestamp_column: str | None = None,
) -> SplitBatch:
    """The records of an Arrow batch, topic by topic.

    Columns: ``value`` and optionally ``key`` (string, large_string, binary, large_binary, or
    dictionary of one), ``topic`` (string, likewise; ignored if the argument ``topic`` is given),
    ``partition`` (int32), ``headers`` (list<struct<string, binary>>), and the one that
    ``timestamp_column`` names (timestamp of any unit). Others are ignored. ``first_row`` is the
    number of the batch's first row. A row with several problems is rejected for one of them.
    Raises InvalidSchema for a column of another type.
    """
    serialized = batch if isinstance(batch, Serialized) else Serialized(batch)
    batch = serialized.batch
    _check_types(batch.schema, topic is None, timestamp_column)
    columns = {
        column.name: _Named(name, batch.column(index))
        for name, column in column_names(timestamp_column).items()
        if (index := batch.schema.get_field_index(name)) >= 0
    }
    problems = RowProblems(serialized.unserializable)
    all_records = RecordColumns(
        topic=topic or "",
        **_record_columns(columns, problems),
        rows=np.arange(first_row, first_row + batch.num_rows, dtype=np.int64),
        arrow_batch=batch,
        arrow_batch_bytes=_kept_bytes(batch),
    )
    all_records = _add_schema_ids(all_records, serialized)
    if topic is not None:
        names = [topic.encode()]
        codes = np.zeros(batch.num_rows, dtype=np.int64)
    else:
        names, codes = _topics(columns["topic"].array, problems)
    rejected: list[RejectedRecords] = []
    if problems:
        headers = columns["headers"].array if "headers" in columns else None
        rejected = rejected_records(problems, all_records, names, codes, headers)
        rejected_code = len(names)
        for problem in problems:
            codes[problem.rows] = rejected_code
    records = [
        replace(all_records if rows is None else all_records.take(rows), topic=names[code].decode())
        for code, rows in _rows_by_code(codes, len(names), has_rejected=bool(rejected))
    ]
    return SplitBatch(records, rejected)


@lru_cache(maxsize=16)
def _check_types(schema: pa.Schema, reads_topic: bool, timestamp_column: str | None) -> None:
    """Raise InvalidSchema if a column's memory is not what the functions below read."""
    for name, column in column_names(timestamp_column).items():
        index = schema.get_field_index(name)
        is_used = index >= 0 and (reads_topic or column.kind is not Kind.TOPIC)
        if is_used and not _is_read(column, schema.field(index).type):
            raise InvalidSchema(
                f"column {name} has the Arrow type {schema.field(index).type}, which this sink "
                f"does not read; cast it to {column.types[0]}"
            )


def _is_read(column: Column, arrow_type: pa.DataType) -> bool:
    if column is TIMESTAMP:
        return bool(pa.types.is_timestamp(arrow_type))
    if column.kind is Kind.NUMBERS:
        return bool(arrow_type == pa.int32())
    if column.kind is Kind.HEADERS:
        return _are_headers(arrow_type)
    return _is_bytes(arrow_type)


def _are_headers(arrow_type: pa.DataType) -> bool:
    if pa.types.is_map(arrow_type):  # in memory, a list of structs
        return _is_bytes(arrow_type.key_type) and _is_bytes(arrow_type.item_type)
    if not (pa.types.is_list(arrow_type) or pa.types.is_large_list(arrow_type)):
        return False
    pair = arrow_type.value_type
    is_pair = pa.types.is_struct(pair) and pair.num_fields == 2
    return is_pair and all(_is_bytes(pair.field(index).type) for index in range(2))


def _is_bytes(arrow_type: pa.DataType) -> bool:
    return memory.plain_type(arrow_type) in (pa.string(), pa.binary())


def _kept_bytes(batch: pa.RecordBatch) -> int:
    """The memory that a batch keeps alive.

    The columns of a batch from Spark are slices of one buffer, which each of them keeps, even if a
    format has replaced the others.
    """
    sizes = {}
    for column in batch.columns:
        is_dictionary = pa.types.is_dictionary(column.type)
        for array in (column, column.dictionary) if is_dictionary else (column,):
            for buffer in filter(None, array.buffers()):
                whole = buffer
                while whole.parent is not None:
                    whole = whole.parent
                sizes[whole.address] = whole.size
    return sum(sizes.values())


class _Named(NamedTuple):
    """A column of an Arrow batch, which may have another name than in the table of columns."""

    name: str
    array: pa.Array


def _record_columns(columns: Mapping[str, _Named], problems: RowProblems) -> dict[str, Any]:
    """The fields of RecordColumns; None: there is no such column."""
    return {
        column.field: _record_column(column, columns[column.name], problems)
        if column.name in columns
        else None
        for column in RECORD_COLUMNS
    }


def _record_column(column: Column, named: _Named, problems: RowProblems) -> Any:
    """The column as a field of RecordColumns; adds the rows that cannot be sent because of it."""
    if column.kind is Kind.BYTES:
        return _bytes_column(named.array)
    if column.kind is Kind.HEADERS:
        return _headers(named.array, problems)
    numbers = _numbers(named.array, column.if_null)
    convert = _CONVERTERS.get(column.name)
    return numbers if convert is None else convert(numbers, named, problems)


def _add_schema_ids(records: RecordColumns, serialized: Serialized) -> RecordColumns:
    """The records, with what is known of the ids of their schemas."""
    changed: dict[str, Any] = {}
    for name, count in serialized.id_bytes.items():
        field = COLUMNS[name].field
        changed[field] = replace(getattr(records, field), id_bytes=count)
    headers = records.headers
    if headers is not None and serialized.id_bytes:
        # A row that was copied from Kafka has headers about the bytes that it had there.
        stale = {ID_HEADERS[name] for name in serialized.id_bytes}
        changed["headers"] = headers = headers.without(stale.__contains__)
    if serialized.id_headers:
        names = [ID_HEADERS[name] for name in serialized.id_headers]
        ids = list(serialized.id_headers.values())
        changed["headers"] = appended(headers, names, ids, len(records))
    return replace(records, **changed) if changed else records


def topic_codes(column: pa.Array) -> tuple[list[bytes], npt.NDArray[np.int64]]:
    """The topics, in the order of their first rows, and for every row its index; -1: null."""
    encoded = memory.plain(column).dictionary_encode()
    return _byte_strings(encoded.dictionary), _codes(encoded, -1)


def _topics(column: pa.Array, problems: RowProblems) -> tuple[list[bytes], npt.NDArray[np.int64]]:
    """``topic_codes``; adds the rows whose topic is null or has a name that Kafka forbids."""
    names, codes = topic_codes(column)
    reason = "null topic; give every row a topic or set the option `topic`"
    problems.add(np.flatnonzero(codes < 0), reason, NULL_TOPIC)
    for code, name in enumerate(names):
        # Spark's cast from binary does not check UTF-8; escaped bytes fail the check of names.
        text = name.decode(errors="backslashreplace")
        if not is_topic_name(text):
            problems.add(np.flatnonzero(codes == code), topic_name_rule(text), INVALID_TOPIC)
    return names, codes


def _rows_by_code(
    codes: npt.NDArray[np.int64], count: int, *, has_rejected: bool
) -> list[tuple[int, npt.NDArray[np.int64] | None]]:
    """Each topic's index with the positions of its rows, ascending; None: all rows.

    ``codes``: each row's index, below ``count``; ``count`` itself for rejected rows.
    """
    if count < 2 and not has_rejected:
        return [(code, None) for code in range(count)]
    # numpy radix-sorts 16-bit integers, several times faster than wider ones.
    narrow = codes.astype(np.uint16) if count < 2**16 else codes
    sizes = np.bincount(codes, minlength=count + 1)
    groups = np.split(np.argsort(narrow, kind="stable"), np.cumsum(sizes)[:-1])
    return [(code, groups[code]) for code in range(count) if len(groups[code])]


def _bytes_column(array: pa.Array) -> BytesColumn:
    if pa.types.is_dictionary(array.type):
        values = _bytes_column(array.dictionary)
        codes = _codes(array, 0)
        if len(values) == 0:
            zero = np.zeros(1, dtype=np.int64)
            values = BytesColumn(zero.view(np.uint64), zero, _NOTHING)
        column = values.take(codes)
    else:
        column = _addresses(array)
    if array.null_count:
        nulls = ~memory.valid_rows(array)
        column.addresses[nulls] = 0
        column.lengths[nulls] = 0
    return column


def _addresses(array: pa.Array) -> BytesColumn:
    """The strings of a (large_)string or (large_)binary array; nulls are not marked yet."""
    ends, data = memory.byte_strings(array)
    buffer = data if data.size else _NOTHING
    starts = (ends[:-1] + buffer.ctypes.data).astype(np.uint64)
    return BytesColumn(starts, np.diff(ends), buffer)


def _partitions(
    numbers: npt.NDArray[np.int32], column: _Named, problems: RowProblems
) -> npt.NDArray[np.int32]:
    negative = np.flatnonzero((numbers < 0) & memory.valid_rows(column.array))
    problems.add(negative, "negative partition", NEGATIVE_PARTITION)
    return numbers


def _timestamps(
    ticks: npt.NDArray[np.int64], column: _Named, problems: RowProblems
) -> npt.NDArray[np.int64]:
    """Milliseconds since the epoch; like null, -1 is the time of sending."""
    unit = column.array.type.unit
    if unit == "s":
        milliseconds = np.clip(ticks, -_LAST_SECOND, _LAST_SECOND) * 1000
    else:
        milliseconds = ticks // _PER_MS[unit]
    has_none = milliseconds == _NO_TIMESTAMP_MS
    impossible = np.flatnonzero((milliseconds <= 0) & ~has_none & memory.valid_rows(column.array))
    milliseconds[has_none] = TIMESTAMP.if_null
    name = sql_name(column.name)
    reason = (
        f"column {column.name} is 1970-01-01 00:00:00 UTC or before, which this client cannot "
        f"send; if(unix_millis({name}) > 0, {name}, null) is then the time of sending"
    )
    problems.add(impossible, reason, INVALID_TIMESTAMP)
    return milliseconds


# Columns whose numbers are restricted: column -> its conversion, which also finds rejected rows.
_CONVERTERS: Mapping[str, Callable[[Any, _Named, RowProblems], Any]] = {
    "partition": _partitions,
    "timestamp": _timestamps,
}


def _headers(array: pa.Array, problems: RowProblems) -> HeaderColumn:
    offsets = memory.list_offsets(array)
    # A null list may have a non-empty range in the child array.
    counts = np.diff(offsets) * memory.valid_rows(array)
    used, starts = ranges(offsets[:-1], counts)
    headers = array.values
    # Spark's own sink reads fields by position too: their names may be in any case.
    names = memory.plain(headers.field(0))
    nameless = ~(memory.valid_rows(headers) & memory.valid_rows(names))[used]

    def reject(is_bad: npt.NDArray[np.bool_], reason: str) -> None:
        problems.add(containing_rows(starts, np.flatnonzero(is_bad)), reason, INVALID_HEADER)

    reject(nameless, "header without a key")
    encoded = names.dictionary_encode()
    unique_names = _byte_strings(encoded.dictionary)
    codes = _codes(encoded, 0)[used]
    for problem, has_problem in (
        ("with a zero byte", _has_zero_byte),
        ("that is not UTF-8", lambda name: not is_utf8(name)),
    ):
        if bad_codes := [code for code, name in enumerate(unique_names) if has_problem(name)]:
            reject(np.isin(codes, bad_codes) & ~nameless, f"header key {problem}")
    return HeaderColumn(starts, codes, unique_names, _bytes_column(headers.field(1)).take(used))


def _codes(array: pa.DictionaryArray, if_null: int) -> npt.NDArray[np.int64]:
    codes: npt.NDArray[np.int64] = _numbers(array.indices, if_null).astype(np.int64)
    return codes


def _byte_strings(texts: pa.Array) -> list[bytes]:
    """A string array without nulls as bytes; unlike ``to_pylist``, accepts invalid UTF-8."""
    return [text.as_buffer().to_pybytes() for text in texts]


def _has_zero_byte(text: bytes) -> bool:
    return b"\0" in text


def _numbers(array: pa.Array, if_null: int) -> npt.NDArray[Any]:
    """Integers or times as a copy."""
    kind = "u" if pa.types.is_unsigned_integer(array.type) else "i"
    numbers = memory.numbers(array, f"{kind}{array.type.bit_width // 8}").copy()
    if array.null_count:
        numbers[~memory.valid_rows(array)] = if_null
    return numbers
