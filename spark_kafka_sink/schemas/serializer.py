"""[both] Serializer: turns key and value of Arrow batches into bytes, with their schemas' ids.

The driver prepares it, and Spark passes it to the tasks. They request only what it lacks: the
schemas of topics that come from the column.
"""

from __future__ import annotations

import base64
import json
import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from spark_kafka_sink.config.serialization_options import ColumnFormat, SerializationOptions
from spark_kafka_sink.errors import (
    RegistryRejected,
    SchemaMismatch,
    SchemaNotFound,
    add_sentence,
)
from spark_kafka_sink.names import is_topic_name
from spark_kafka_sink.records import arrow_memory as memory
from spark_kafka_sink.records.arrow import Serialized, topic_codes
from spark_kafka_sink.records.columns import BytesColumn
from spark_kafka_sink.records.rejection import RowProblem
from spark_kafka_sink.schemas.formats import Encoder, encoder
from spark_kafka_sink.schemas.known_schemas import WantedSchema, look_for, resolve
from spark_kafka_sink.schemas.registry_client import RegisteredSchema

# Confluent's wire format: zero and the id in big-endian order, or in a header one and the GUID.
_PREFIX_MAGIC = b"\0"
_HEADER_MAGIC = b"\1"
_ID_BYTES = 4

# JSON has no such numbers; Spark's from_json reads these texts.
_NOT_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


@dataclass(frozen=True)
class ColumnSchema:
    """A column's schema. ``text`` None: the subject's latest. ``name``: of its record, or "".

    ``spark_type``: the column's, as ``DataType.jsonValue`` gives it; None: not known.
    """

    format: ColumnFormat
    text: str | None
    name: str
    spark_type: Any

    def has_subject(self, topic: str | None) -> bool:
        """Whether the subject is known; ``topic`` None: the column ``topic`` names it."""
        return topic is not None or self.format.subject_name_strategy == "record"

    def wanted(self, topic: str | None, options: SerializationOptions) -> WantedSchema:
        """The schema to request from the registry for a topic, if it ``has_subject``."""
        subject = {
            "topic": f"{topic}-{self.format.column}",
            "record": self.name,
            "topic-record": f"{topic}-{self.name}",
        }[self.format.subject_name_strategy]
        return WantedSchema(
            subject, self.format.format, self.text, options.auto_register, options.normalize
        )

    def encoder(self, schema: str, arrow_type: pa.DataType, subject: str) -> Encoder:
        """The encoder for a schema of the subject; raises SchemaMismatch if they do not fit."""
        column = self.format
        try:
            return encoder(column.format, schema, self.spark_type, arrow_type, column.column)
        except SchemaMismatch as error:
            if self.text is None:
                add_sentence(error, f"The schema is the latest of the subject {subject}")
            raise


@dataclass
class Serializer:
    """Makes bytes of keys and values by their schemas. Can be pickled; a copy makes its encoders.

    ``known``: what the driver has resolved. ``rejects_absent``: a topic without its schema rejects
    its rows, not the task. ``folder``: the application's where it runs, or None.
    """

    options: SerializationOptions
    columns: Sequence[ColumnSchema]
    known: Mapping[WantedSchema, RegisteredSchema | SchemaNotFound]
    rejects_absent: bool = False
    folder: Path | None = None
    _encoders: dict[tuple[str, str, pa.DataType], Encoder] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_encoders": {}}

    def serialize(self, batch: pa.RecordBatch, topic: str | None) -> Serialized:
        """The batch with key and value as binary; ``topic`` None: the column ``topic`` names it.

        Rows that will be rejected, because they have no valid topic or no schema, or because their
        schema does not allow them, become JSON.
        Raises RegistryUnavailable, RegistryRejected, SchemaIncompatible or SchemaNotFound for new
        topics, and SchemaMismatch if the latest schema of one does not fit.
        """
        present = [column for column in self.columns if column.format.column in batch.schema.names]
        groups = _groups_by_topic(batch, topic)
        registered, unserializable = self._registered(present, groups)
        encoded = []
        for column, schemas in zip(present, registered, strict=True):
            array = batch.column(column.format.column)
            values, problems = self._encode(column, array, groups, schemas)
            encoded.append(values)
            unserializable += problems
        lost = [problem.rows for problem in unserializable]
        lost += [group.rows for group in groups if group.topic is None]
        # Both become JSON: the reader of a dead letter cannot tell which one was not serialized.
        json_rows = np.unique(np.concatenate(lost)) if lost else np.zeros(0, dtype=np.int64)
        id_headers = {}
        is_header = self.options.id_location == "header"
        for column, schemas, values in zip(present, registered, encoded, strict=True):
            name = column.format.column
            if is_header:
                id_headers[name] = _id_header(groups, schemas, values, json_rows)
            index = batch.schema.get_field_index(name)
            column_values = replace_by_json(values, batch.column(name), json_rows)
            batch = batch.set_column(index, name, column_values)
        size = 0 if is_header else len(_PREFIX_MAGIC) + _ID_BYTES
        sizes = {column.format.column: size for column in present}
        return Serialized(batch, unserializable, sizes, id_headers)

    def _registered(
        self, columns: Sequence[ColumnSchema], groups: Sequence[_TopicGroup]
    ) -> tuple[list[list[RegisteredSchema | None]], list[RowProblem]]:
        """Each column's schemas by group; those of new topics are requested at once.

        Also the rows of the topics whose schemas the registry does not have.
        """
        topics = [group.topic for group in groups]
        wanted = [
            [None if topic is None else column.wanted(topic, self.options) for topic in topics]
            for column in columns
        ]
        missing = [key for keys in wanted for key in keys if key and key not in self.known]
        if missing:
            ask = look_for if self.rejects_absent else resolve
            self.known = {**self.known, **ask(self.options.registry, missing, self.folder)}
        registered, problems = list[list[RegisteredSchema | None]](), list[RowProblem]()
        for keys in wanted:
            answers = [self.known[key] if key else None for key in keys]
            registered.append([None if isinstance(a, SchemaNotFound) else a for a in answers])
            problems += [
                RowProblem(group.rows, str(answer))
                for group, answer in zip(groups, answers, strict=True)
                if isinstance(answer, SchemaNotFound)
            ]
        return registered, problems

    def _encode(
        self,
        column: ColumnSchema,
        array: pa.Array,
        groups: Sequence[_TopicGroup],
        schemas: Sequence[RegisteredSchema | None],
    ) -> tuple[pa.Array, list[RowProblem]]:
        """All rows of a schema at once, whatever their topics."""
        by_text: dict[str | None, list[_TopicGroup]] = {}
        for group, schema in zip(groups, schemas, strict=True):
            by_text.setdefault(schema.schema if schema else None, []).append(group)
        is_header = self.options.id_location == "header"
        prefix = b"" if is_header else _prefix(groups, schemas, len(array))
        unions, parts, problems = [], [], []
        for text, own_groups in by_text.items():
            union = _united(own_groups, len(array))
            unions.append(union)
            if text is None or union.topic is None:
                parts.append(pa.nulls(len(union.rows), pa.large_binary()))
                continue
            subject = column.wanted(union.topic, self.options).subject
            encoded = self._encoder(column, subject, text, array.type).encode(
                union.select(array), prefix if isinstance(prefix, bytes) else union.select(prefix)
            )
            parts.append(encoded.values)
            problems += [
                RowProblem(union.rows[problem.rows], problem.reason) for problem in encoded.problems
            ]
        return _joined(unions, parts), problems

    def _encoder(
        self, column: ColumnSchema, subject: str, schema: str, arrow_type: pa.DataType
    ) -> Encoder:
        key = (column.format.column, schema, arrow_type)
        if key not in self._encoders:
            self._encoders[key] = column.encoder(schema, arrow_type, subject)
        return self._encoders[key]


def _prefix(
    groups: Sequence[_TopicGroup], schemas: Sequence[RegisteredSchema | None], count: int
) -> bytes | pa.Array:
    """The bytes before the values: the same for all rows, or one prefix for each row."""
    width = len(_PREFIX_MAGIC) + _ID_BYTES
    prefixes = np.zeros((count, width), dtype=np.uint8)
    for group, schema in zip(groups, schemas, strict=True):
        if schema is not None:
            prefix = _PREFIX_MAGIC + schema.id.to_bytes(_ID_BYTES, "big")
            if group.is_whole:
                return prefix
            prefixes[group.rows] = np.frombuffer(prefix, dtype=np.uint8)
    ends = np.arange(count + 1, dtype=np.int64) * width
    return memory.binary_array(ends, prefixes.reshape(-1), is_large=True)


def _id_header(
    groups: Sequence[_TopicGroup],
    schemas: Sequence[RegisteredSchema | None],
    values: pa.Array,
    json_rows: npt.NDArray[np.int64],
) -> BytesColumn:
    """The header with the schema's GUID; null for records without it."""
    texts = [b"" if schema is None else id_header(schema) for schema in schemas]
    buffer = np.frombuffer(b"".join(texts) + b"\0", dtype=np.uint8)
    addresses = np.zeros(len(values), dtype=np.uint64)
    lengths = np.zeros(len(values), dtype=np.int64)
    start = buffer.ctypes.data
    for group, text in zip(groups, texts, strict=True):
        addresses[group.rows] = start if text else 0
        lengths[group.rows] = len(text)
        start += len(text)
    valid = memory.validity(values)
    if valid is not None:
        addresses[~valid], lengths[~valid] = 0, 0
    addresses[json_rows], lengths[json_rows] = 0, 0
    return BytesColumn(addresses, lengths, buffer)


def id_header(schema: RegisteredSchema) -> bytes:
    """The header's value. Raises RegistryRejected if the registry gave the schema no GUID."""
    if schema.guid is None:
        raise RegistryRejected(
            "schema.id.location=header needs GUIDs, which this schema registry does not give; "
            "remove the option: a prefix needs only the id"
        )
    return _HEADER_MAGIC + uuid.UUID(schema.guid).bytes


# The rows of a batch by topic, and columns that were encoded schema by schema as one.


@dataclass(frozen=True)
class _TopicGroup:
    """The ``rows`` (int64[], ascending) of a topic; ``topic`` None: they have no valid one."""

    topic: str | None
    rows: npt.NDArray[np.int64]
    is_whole: bool

    def select(self, array: pa.Array) -> pa.Array:
        """The group's rows of a column of the batch."""
        return array if self.is_whole else array.take(memory.integer_array(self.rows))


def _groups_by_topic(batch: pa.RecordBatch, topic: str | None) -> list[_TopicGroup]:
    """One group per topic; ``topic`` None: the column ``topic`` has them."""
    everything = np.arange(batch.num_rows, dtype=np.int64)
    if topic is not None or not batch.num_rows:
        return [_TopicGroup(topic, everything, is_whole=True)]
    names, codes = topic_codes(batch.column("topic"))
    topics = [_valid_topic(name) for name in names]
    is_invalid = np.array([*(name is None for name in topics), True])  # -1, of null, is the last
    codes[is_invalid[codes]] = -1
    if len(topics) == 1 and (codes == 0).all():
        return [_TopicGroup(topics[0], everything, is_whole=True)]
    order = np.argsort(codes, kind="stable")
    used, starts = np.unique(codes[order], return_index=True)
    return [
        _TopicGroup(topics[code] if code >= 0 else None, rows, is_whole=False)
        for code, rows in zip(used.tolist(), np.split(order, starts[1:]), strict=True)
    ]


def _united(groups: Sequence[_TopicGroup], count: int) -> _TopicGroup:
    """The rows of all groups, of which the batch has ``count``; the topic of the first."""
    if len(groups) == 1:
        return groups[0]
    rows = np.sort(np.concatenate([group.rows for group in groups]))
    return _TopicGroup(groups[0].topic, rows, is_whole=len(rows) == count)


def _valid_topic(name: bytes) -> str | None:
    # Spark's cast from binary does not check UTF-8.
    text = name.decode(errors="backslashreplace")
    return text if is_topic_name(text) else None


def _joined(groups: Sequence[_TopicGroup], parts: Sequence[pa.Array]) -> pa.Array:
    """The parts, one for each group, in the order of the rows."""
    if len(groups) == 1:
        return parts[0]
    order = np.concatenate([group.rows for group in groups])
    places = np.empty_like(order)
    places[order] = np.arange(len(order))
    values = pa.concat_arrays([pc.cast(part, pa.large_binary()) for part in parts])
    return values.take(memory.integer_array(places))


# Rows that a schema does not allow, as JSON: what a person reads in a dead letter.


def replace_by_json(values: pa.Array, array: pa.Array, rows: npt.NDArray[np.int64]) -> pa.Array:
    """The ``values``, with JSON of what ``array`` has in those rows instead; null stays null."""
    if not len(rows):
        return values
    mask = np.zeros(len(values), dtype=bool)
    mask[rows] = True
    texts = [_json(array[row]) for row in rows.tolist()]
    return pc.replace_with_mask(
        values, pa.array(mask.tolist(), pa.bool_()), pa.array(texts, values.type)
    )


def _json(scalar: pa.Scalar) -> bytes | None:
    value = _plain(scalar)
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, default=str).encode()


def _plain(scalar: pa.Scalar) -> Any:  # noqa: PLR0911 - one per kind of type
    """A value that JSON has. Unlike ``as_py``, accepts text that is not UTF-8."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pa.types.is_dictionary(kind):
        return _plain(scalar.dictionary[scalar.index.as_py()])
    if pa.types.is_struct(kind):
        return {field.name: _plain(scalar[i]) for i, field in enumerate(kind)}
    if pa.types.is_map(kind):
        return {str(_plain(entry[0])): _plain(entry[1]) for entry in scalar.values}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [_plain(element) for element in scalar.values]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return bytes(scalar.as_buffer()).decode(errors="backslashreplace")
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _time(scalar)
    if pa.types.is_duration(kind):
        return _interval(scalar.value)
    value = scalar.as_py()
    if isinstance(value, float) and not math.isfinite(value):
        return _NOT_FINITE[str(value)]
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _time(scalar: pa.Scalar) -> str:
    """The text in UTC. ``as_py`` knows neither years beyond 9999 nor all of Spark's time zones."""
    kind = scalar.type
    if pa.types.is_date(kind):
        return str(scalar.cast(pa.string()))
    ticks = pa.array([scalar.value], pa.int64()).view(pa.timestamp(kind.unit))
    text = str(ticks.cast(pa.string())[0]).replace(" ", "T")
    return text if kind.tz is None else f"{text}Z"


def _interval(microseconds: int) -> str:
    """The text that Spark's ``from_json`` reads as ``interval day to second``."""
    seconds, fraction = divmod(abs(microseconds), 10**6)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{days} {hours:02}:{minutes:02}:{seconds:02}.{fraction:06}".rstrip("0").rstrip(".")
    return f"INTERVAL '{'-' if microseconds < 0 else ''}{text}' DAY TO SECOND"
