"""RejectedRecords: rows that cannot become records, and records that Kafka rejects."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from spark_kafka_sink.records.columns import RecordColumns

NULL_TOPIC = "NULL_TOPIC"
INVALID_TOPIC = "INVALID_TOPIC"
NEGATIVE_PARTITION = "NEGATIVE_PARTITION"
INVALID_TIMESTAMP = "INVALID_TIMESTAMP"
INVALID_HEADER = "INVALID_HEADER"
SERIALIZATION_FAILED = "SERIALIZATION_FAILED"

#: of rows that have no schema, so that a format cannot serialize them; they are JSON
NOT_SERIALIZED = frozenset({INVALID_TOPIC, NULL_TOPIC, SERIALIZATION_FAILED})


@dataclass(frozen=True)
class RejectedRecords:
    """Records that were rejected for the same reason.

    ``error`` is one of the names above, or librdkafka's name for the code of a broker or of the
    client; ``reason`` is a sentence. ``topic``: the one they were meant for, in the bytes of the
    row, which may not be valid text; None for null. ``headers_json``: only if the headers cannot
    be sent, all headers of each record.
    """

    records: RecordColumns
    error: str
    reason: str
    topic: bytes | None
    headers_json: Sequence[bytes] | None = None
