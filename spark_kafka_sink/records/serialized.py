"""Serialized: an Arrow batch whose key and value have become bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.columns import BytesColumn

#: by column: the header with the id of its schema, as Confluent's serializers name it
ID_HEADERS: Mapping[str, bytes] = {"key": b"__key_schema_id", "value": b"__value_schema_id"}


@dataclass(frozen=True)
class UnserializableRows:
    """Rows (their positions, ascending) that a schema does not allow; ``reason``: a sentence.

    The column has them as JSON.
    """

    rows: npt.NDArray[np.int64]
    reason: str


@dataclass(frozen=True)
class Serialized:
    """``batch`` with the columns ``key`` and ``value`` as they are sent.

    ``id_bytes``: by column, how many bytes at the beginning of every value are its schema's id.
    ``id_headers``: by column, the ids that become headers.
    """

    batch: pa.RecordBatch
    unserializable: list[UnserializableRows] = field(default_factory=list)
    id_bytes: Mapping[str, int] = field(default_factory=dict)
    id_headers: Mapping[str, BytesColumn] = field(default_factory=dict)
