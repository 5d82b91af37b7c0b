"""RejectedRecords: rows that cannot become records, and records that Kafka rejects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

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
    row, which may not be valid text; None for null. ``also``: by the name of another error of rows,
    which records have it too. ``headers_json``: all headers of the records whose headers cannot be
    sent, None for the others.
    """

    records: RecordColumns
    error: str
    reason: str
    topic: bytes | None
    also: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    headers_json: Sequence[bytes | None] | None = None

    def take(self, indices: npt.NDArray[np.int64]) -> RejectedRecords:
        headers = self.headers_json
        return replace(
            self,
            records=self.records.take(indices),
            also={error: mask[indices] for error, mask in self.also.items()},
            headers_json=None if headers is None else [headers[i] for i in indices],
        )

    def has(self, error: str) -> npt.NDArray[np.bool_]:
        """Which of the records have an error of rows."""
        if error == self.error:
            return np.ones(len(self.records), dtype=bool)
        return self.also.get(error, np.zeros(len(self.records), dtype=bool))
