"""Encoded: what a serialization format makes of an Arrow column."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

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
