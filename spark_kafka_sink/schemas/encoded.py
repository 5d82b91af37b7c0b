"""[both] Encoded: what a serialization format makes of an Arrow column."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from spark_kafka_sink.records import arrow_memory as memory
from spark_kafka_sink.records.rejection import RowProblem, first_problems

#: so few bytes of Arrow that what is made of them, several times as large, stays in a cache
_BYTES_AT_ONCE = 2**21

NO_NULL = "null, but the schema requires a value"
NOT_UTF8 = "a string is not UTF-8; make the column binary, or replace such strings"


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
    """The rows as ``encode`` returns them, some at a time; a row has at most one problem.

    ``prefix``: one for all rows, or one for each row.
    """
    count = len(array)
    rows = max(count * _BYTES_AT_ONCE // max(array.nbytes, 1), 1)
    if rows >= count:
        whole = encode(array, prefix)
        return Encoded(whole.values, first_problems(whole.problems, count))
    # Parts and their concatenation would hold the result twice.
    data = bytearray()
    ends = np.zeros(count + 1, dtype=np.int64)
    valid = np.ones(count, dtype=bool)
    problems = []
    for start in range(0, count, rows):
        own_prefix = prefix if isinstance(prefix, bytes) else prefix.slice(start, rows)
        part = encode(array.slice(start, rows), own_prefix)
        own_ends, own_data = memory.byte_strings(part.values)
        ends[start + 1 : start + rows + 1] = own_ends[1:] - own_ends[0] + len(data)
        data += own_data[own_ends[0] : own_ends[-1]].data
        if part.values.null_count:
            valid[start : start + rows] = memory.valid_rows(part.values)
        problems += [replace(problem, rows=problem.rows + start) for problem in part.problems]
    values = memory.binary_array(
        ends,
        np.frombuffer(data, dtype=np.uint8),
        valid=None if valid.all() else valid,
        is_large=memory.exceeds_binary(len(data)),
    )
    return Encoded(values, first_problems(problems, count))
