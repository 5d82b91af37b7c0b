"""[both] Partitioned records -> librdkafka's own arrays, filled column by column."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.librdkafka import _prototypes as c
from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.partitioner import UNASSIGNED, PartitionedRecords

# The arguments that every record has, in this order; headers follow.
_FIXED_ARGUMENTS = (
    c.VTYPE_RKT,
    c.VTYPE_PARTITION,
    c.VTYPE_VALUE,
    c.VTYPE_KEY,
    c.VTYPE_TIMESTAMP,
    c.VTYPE_OPAQUE,
)


@dataclass(frozen=True)
class MessageArray:
    """Keys and values only: one foreign call per partition (``rd_kafka_produce_batch``).

    The messages of ``partitions[i]`` are ``starts[i]:starts[i + 1]``.
    """

    topic: int
    messages: npt.NDArray[np.void]
    partitions: list[int]
    starts: list[int]
    #: keeps the memory alive that the array points to
    records: RecordColumns

    def __len__(self) -> int:
        return len(self.messages)


@dataclass(frozen=True)
class ProducevaArguments:
    """Records with headers or timestamp: one foreign call each (``rd_kafka_produceva``).

    Record i has the arguments ``starts[i]:starts[i + 1]``.
    """

    topic: int
    arguments: npt.NDArray[np.void]
    starts: npt.NDArray[np.int64]
    #: keep the memory alive that the array points to
    records: RecordColumns
    header_names: Any

    def __len__(self) -> int:
        return len(self.starts) - 1


class Rejection(NamedTuple):
    """A record that librdkafka did not accept: its position in the send, and why."""

    position: int
    code: int


def prepare(
    topic: int, partitioned: PartitionedRecords, send_id: int
) -> MessageArray | ProducevaArguments:
    """Convert records to librdkafka's arrays; ``topic`` is their ``rd_kafka_topic_t`` pointer.

    ``send_id`` and the record's position come back with the report on each record.
    """
    records, partitions = partitioned.records, partitioned.partitions
    opaques = (send_id << c.POSITION_BITS) + partitioned.positions
    # librdkafka chooses partitions for a whole array or not at all; if a column chooses for some
    # of the records, each one is passed alone.
    if partitions[0] == UNASSIGNED and records.partitions is not None:
        return _produceva_arguments(topic, records, records.partitions, opaques)
    if records.headers is None and records.timestamps_ms is None:
        messages = _messages(records, opaques)
        starts = partitioned.starts.tolist()
        return MessageArray(topic, messages, partitions.tolist(), starts, records)
    record_partitions = np.repeat(partitions, np.diff(partitioned.starts))
    return _produceva_arguments(topic, records, record_partitions, opaques)


def _messages(records: RecordColumns, opaques: npt.NDArray[np.int64]) -> npt.NDArray[np.void]:
    messages = np.zeros(len(records), dtype=c.MESSAGE)
    messages["opaque"] = opaques
    messages["payload"] = records.values.addresses
    messages["len"] = records.values.lengths
    if records.keys is not None:
        messages["key"] = records.keys.addresses
        messages["key_len"] = records.keys.lengths
    return messages


def _produceva_arguments(
    topic: int,
    records: RecordColumns,
    partitions: npt.NDArray[np.int32],
    opaques: npt.NDArray[np.int64],
) -> ProducevaArguments:
    starts = np.arange(len(records) + 1, dtype=np.int64) * len(_FIXED_ARGUMENTS)
    if records.headers is not None:
        starts += records.headers.starts
    arguments = np.zeros(int(starts[-1]), dtype=c.VU)
    first = starts[:-1]
    for position, vtype in enumerate(_FIXED_ARGUMENTS):
        arguments["vtype"][first + position] = vtype
    arguments["number"][first] = topic
    arguments["number"][first + 1] = partitions
    arguments["number"][first + 2] = records.values.addresses.view(np.int64)
    arguments["size"][first + 2] = records.values.lengths
    if records.keys is not None:
        arguments["number"][first + 3] = records.keys.addresses.view(np.int64)
        arguments["size"][first + 3] = records.keys.lengths
    if records.timestamps_ms is not None:
        arguments["number"][first + 4] = records.timestamps_ms
    arguments["number"][first + 5] = opaques
    names = _fill_headers(arguments, records)
    return ProducevaArguments(topic, arguments, starts, records, names)


def _fill_headers(arguments: npt.NDArray[np.void], records: RecordColumns) -> Any:
    """Fill in the headers; returns what keeps their names alive."""
    headers = records.headers
    if headers is None or len(headers.names) == 0:
        return None
    # librdkafka needs zero-terminated names; Arrow's are not.
    names = c.string_array(list(headers.unique_names))
    pointers = np.frombuffer(names, dtype=np.uintp).view(np.int64)
    counts = np.diff(headers.starts)
    slots = np.arange(len(headers.names)) + np.repeat(
        (np.arange(len(counts)) + 1) * len(_FIXED_ARGUMENTS), counts
    )
    arguments["vtype"][slots] = c.VTYPE_HEADER
    arguments["number"][slots] = pointers[headers.names]
    arguments["size"][slots] = headers.values.addresses.view(np.int64)
    arguments["header_size"][slots] = headers.values.lengths
    return names
