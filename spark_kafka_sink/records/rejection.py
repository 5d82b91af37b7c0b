"""[both] Rows that cannot become records, records that Kafka rejects, and the task of both."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.columns import RecordColumns, containing_rows


@dataclass(frozen=True)
class Origin:
    """The task that a row comes from, as its dead letter and its transaction name it.

    None means unknown. ``stage`` names the task's stage, and no other one.
    """

    query_id: str | None = None
    batch_id: str | None = None
    task_partition: int | None = None
    stage: str | None = None

    @property
    def place(self) -> str:
        """``micro-batch 7, partition 3``, as far as known."""
        place = [f"micro-batch {self.batch_id}"] if self.batch_id is not None else []
        if self.task_partition is not None:
            place.append(f"partition {self.task_partition}")
        return ", ".join(place) or "outside Spark"


UNKNOWN_ORIGIN = Origin()


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
    row, which may not be valid text; None for null. ``other_errors``: which of the records have
    another error of rows too, by its name. ``headers_json``: all headers of the records whose
    headers cannot be sent, None for the others.
    """

    records: RecordColumns
    error: str
    reason: str
    topic: bytes | None
    other_errors: Mapping[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    headers_json: Sequence[bytes | None] | None = None

    def take(self, indices: npt.NDArray[np.int64]) -> RejectedRecords:
        headers = self.headers_json
        return replace(
            self,
            records=self.records.take(indices),
            other_errors={error: mask[indices] for error, mask in self.other_errors.items()},
            headers_json=None if headers is None else [headers[i] for i in indices],
        )

    def has(self, error: str) -> npt.NDArray[np.bool_]:
        """Which of the records have an error of rows."""
        if error == self.error:
            return np.ones(len(self.records), dtype=bool)
        return self.other_errors.get(error, np.zeros(len(self.records), dtype=bool))


@dataclass(frozen=True)
class RowProblem:
    """Rows of a batch (int64[], their positions, ascending) that have the same problem.

    ``reason`` is a sentence that names the field, such as ``value.price: 1234.56 has more than 5
    digits``; ``error`` is one of the names above.
    """

    rows: npt.NDArray[np.int64]
    reason: str
    error: str = SERIALIZATION_FAILED


class RowProblems(list[RowProblem]):
    """Collects the problems of an array's rows."""

    def add(
        self, rows: npt.NDArray[np.int64], reason: str, error: str = SERIALIZATION_FAILED
    ) -> None:
        """Add the problem of these rows, if there are any."""
        if len(rows):
            self.append(RowProblem(rows, reason, error))

    def add_inner(self, problems: Iterable[RowProblem], starts: npt.NDArray[np.int64]) -> None:
        """Add problems of elements to the rows that contain them; ``starts``: where rows begin."""
        for problem in problems:
            self.append(replace(problem, rows=containing_rows(starts, problem.rows)))


def first_problems(problems: Iterable[RowProblem], rows: int) -> list[RowProblem]:
    """The problems in their order, each of so many rows only in the first one that has it."""
    is_free = np.ones(rows, dtype=bool)
    first = []
    for problem in problems:
        own = problem.rows[is_free[problem.rows]]
        is_free[own] = False
        if len(own):
            first.append(replace(problem, rows=own))
    return first


def rejected_records(
    problems: Sequence[RowProblem],
    records: RecordColumns,
    topics: Sequence[bytes],
    codes: npt.NDArray[np.int64],
    headers: pa.Array | None,
) -> list[RejectedRecords]:
    """The rows with problems, by problem and topic; each row once.

    ``records``: all rows of the batch; ``codes``: the index of each row's topic, -1: null;
    ``headers``: the column, if there is one.
    """
    masks = _masks(problems, len(records))
    rejected = []
    for problem in _one_per_row(problems, len(records)):
        for code in np.unique(codes[problem.rows]).tolist():
            rows = problem.rows[codes[problem.rows] == code]
            other_errors = {error: mask[rows] for error, mask in masks.items()}
            bad_headers = other_errors.get(INVALID_HEADER)
            rejected.append(
                RejectedRecords(
                    records.take(rows),
                    problem.error,
                    problem.reason,
                    topics[code] if code >= 0 else None,
                    other_errors,
                    None if bad_headers is None else _headers_json(headers, rows, bad_headers),
                )
            )
    return rejected


def _one_per_row(problems: Sequence[RowProblem], rows: int) -> list[RowProblem]:
    """The problems in the order of their first rows, each row only in the first one that has it.

    A row that was not serialized has a problem that says so: a replay must not send it as it is.
    """
    ordered = sorted(problems, key=lambda p: (p.error not in NOT_SERIALIZED, p.rows[0]))
    first = first_problems(ordered, rows)
    return sorted(first, key=lambda problem: int(problem.rows[0]))


def _masks(problems: Sequence[RowProblem], rows: int) -> dict[str, npt.NDArray[np.bool_]]:
    """The rows of each error, as bool[rows]."""
    masks: dict[str, npt.NDArray[np.bool_]] = {}
    for problem in problems:
        masks.setdefault(problem.error, np.zeros(rows, dtype=bool))[problem.rows] = True
    return masks


def _headers_json(
    array: pa.Array, rows: npt.NDArray[np.int64], is_wanted: npt.NDArray[np.bool_]
) -> list[bytes | None]:
    """The headers of those rows as JSON, even without a key or with one that is not text."""
    return [
        json.dumps([_header_json(header) for header in array[row]]).encode() if wanted else None
        for row, wanted in zip(rows, is_wanted, strict=True)
    ]


def _header_json(header: pa.StructScalar) -> dict[str, str | None] | None:
    if not header.is_valid:
        return None
    key, value = (_scalar_bytes(header[position]) for position in (0, 1))
    return {
        "key": None if key is None else key.decode(errors="backslashreplace"),
        "value": None if value is None else base64.b64encode(value).decode(),
    }


def _scalar_bytes(scalar: pa.Scalar) -> bytes | None:
    """A string or binary as bytes; unlike ``as_py``, accepts invalid UTF-8."""
    if pa.types.is_dictionary(scalar.type):
        scalar = scalar.dictionary[scalar.index.as_py()] if scalar.is_valid else pa.NULL
    return scalar.as_buffer().to_pybytes() if scalar.is_valid else None
