"""Rows of an Arrow batch that cannot become records, and what shows their problems."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.records.columns import RecordColumns
from spark_kafka_sink.records.rejection import INVALID_HEADER, NOT_SERIALIZED, RejectedRecords


@dataclass(frozen=True)
class RowProblem:
    """Rows of a batch (their positions, ascending) that have the same problem."""

    rows: npt.NDArray[np.int64]
    error: str
    reason: str


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
    found = []
    for problem in _one_per_row(problems, len(records)):
        for code in np.unique(codes[problem.rows]).tolist():
            rows = problem.rows[codes[problem.rows] == code]
            also = {error: mask[rows] for error, mask in masks.items()}
            bad_headers = also.get(INVALID_HEADER)
            found.append(
                RejectedRecords(
                    records.take(rows),
                    problem.error,
                    problem.reason,
                    topics[code] if code >= 0 else None,
                    also,
                    None if bad_headers is None else _headers_json(headers, rows, bad_headers),
                )
            )
    return found


def _one_per_row(problems: Sequence[RowProblem], rows: int) -> list[RowProblem]:
    """The problems in the order of their first rows, each row only in the first one that has it.

    A row that was not serialized has a problem that says so: a replay must not send it as it is.
    """
    is_seen = np.zeros(rows, dtype=bool)
    found = []
    for problem in sorted(problems, key=lambda p: (p.error not in NOT_SERIALIZED, p.rows[0])):
        unseen = problem.rows[~is_seen[problem.rows]]
        is_seen[unseen] = True
        if len(unseen):
            found.append(replace(problem, rows=unseen))
    return sorted(found, key=lambda problem: int(problem.rows[0]))


def _masks(problems: Sequence[RowProblem], rows: int) -> dict[str, npt.NDArray[np.bool_]]:
    """By error, which rows have it."""
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
