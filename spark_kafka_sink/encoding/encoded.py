"""Encoded: what a serialization format makes of an Arrow column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from spark_kafka_sink.encoding.arrow_memory import exceeds_binary

#: Arrow bytes: so few that what is made of them, several times as large, stays in a cache
_BYTES_AT_ONCE = 2**21

NOT_UTF8 = "a string is not UTF-8; make the column binary, or replace such strings"


@dataclass(frozen=True)
class RowProblem:
    """Rows (int64, ascending positions in the column) that cannot be encoded, and why.

    ``reason`` is a sentence that names the field, such as ``value.price: 1234.56 has more than 5
    digits``.
    """

    rows: npt.NDArray[np.int64]
    reason: str


@dataclass(frozen=True)
class Encoded:
    """``values`` (binary or large_binary[rows]): null where the row is null or has a problem."""

    values: pa.Array
    problems: list[RowProblem] = field(default_factory=list)


def encode_in_parts(
    encode: Callable[[pa.Array, bytes | pa.Array], Encoded],
    array: pa.Array,
    prefix: bytes | pa.Array,
) -> Encoded:
    """What ``encode`` makes of the rows, some of them at a time; each row has one problem at most.

    ``prefix``: of all rows, or of each row.
    """
    rows = max(len(array) * _BYTES_AT_ONCE // max(array.nbytes, 1), 1)
    parts, problems = [], []
    for start in range(0, max(len(array), 1), rows):
        own_prefix = prefix if isinstance(prefix, bytes) else prefix.slice(start, rows)
        part = encode(array.slice(start, rows), own_prefix)
        parts.append(part.values)
        problems += [RowProblem(each.rows + start, each.reason) for each in part.problems]
    return Encoded(_concatenated(parts), _first_problems(problems, len(array)))


def _concatenated(arrays: list[pa.Array]) -> pa.Array:
    if len(arrays) == 1:
        return arrays[0]
    if exceeds_binary(sum(array.nbytes for array in arrays)):
        arrays = [array.cast(pa.large_binary()) for array in arrays]
    return pa.concat_arrays(arrays)


def _first_problems(problems: list[RowProblem], rows: int) -> list[RowProblem]:
    """The problems, each row only in the first one that has it."""
    is_free = np.ones(rows, dtype=bool)
    first = []
    for problem in problems:
        own = problem.rows[is_free[problem.rows]]
        is_free[own] = False
        if len(own):
            first.append(RowProblem(own, problem.reason))
    return first
