"""AvroEncoder: an Arrow column as Avro, all rows at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_kafka_sink.avro.parsed import parse_schema
from spark_kafka_sink.avro.plan import compile_writer
from spark_kafka_sink.encoding import arrow_memory as memory
from spark_kafka_sink.encoding.encoded import Encoded, RowProblem
from spark_kafka_sink.encoding.level import Level
from spark_kafka_sink.errors import SchemaMismatch

#: Arrow bytes: so few that the numbers made of them, several times as large, stay in a cache
_BYTES_AT_ONCE = 2**21


class AvroEncoder:
    """Encodes columns of ``arrow_type`` with a writer's schema (JSON). Can be pickled.

    ``column``: its name, for messages. Raises SchemaMismatch, with a problem for each field that
    does not fit, if the schema is not valid or not that of the column.
    """

    def __init__(self, schema: str, arrow_type: pa.DataType, column: str) -> None:
        problems: list[str] = []
        node = parse_schema(schema, column)
        self._writer = compile_writer(node, arrow_type, column, problems)
        if problems:
            raise SchemaMismatch(
                f"the column {column} does not fit its Avro schema: " + ". ".join(problems),
                problems=tuple(problems),
            )

    def encode(self, array: pa.Array, prefix: bytes = b"") -> Encoded:
        """Each row as ``prefix`` and its value in Avro. A null is not encoded, it stays null."""
        rows = max(len(array) * _BYTES_AT_ONCE // max(array.nbytes, 1), 1)
        if rows >= len(array):
            return self._encode(array, prefix)
        starts = range(0, len(array), rows)
        parts = [self._encode(array.slice(start, rows), prefix) for start in starts]
        problems = [
            RowProblem(problem.rows + start, problem.reason)
            for start, part in zip(starts, parts, strict=True)
            for problem in part.problems
        ]
        return Encoded(_concatenated([part.values for part in parts]), problems)

    def _encode(self, array: pa.Array, prefix: bytes) -> Encoded:
        level = Level(len(array))
        valid = memory.validity(array)
        level.add_constant(prefix, valid)
        self._writer.write(level, array, valid)
        data, offsets = level.finish()
        problems = _first_problems(level.problems, len(array))
        if problems:
            valid = np.ones(len(array), dtype=bool) if valid is None else valid.copy()
            valid[np.concatenate([problem.rows for problem in problems])] = False
        is_large = memory.exceeds_binary(len(data))
        return Encoded(memory.binary_array(offsets, data, valid=valid, is_large=is_large), problems)


def _concatenated(arrays: list[pa.Array]) -> pa.Array:
    if memory.exceeds_binary(sum(array.nbytes for array in arrays)):
        arrays = [array.cast(pa.large_binary()) for array in arrays]
    return pa.concat_arrays(arrays)


def _first_problems(problems: list[RowProblem], rows: int) -> list[RowProblem]:
    """The problems, each row only in the first one that has it."""
    if len(problems) < 2:
        return problems
    is_free = np.ones(rows, dtype=bool)
    first = []
    for problem in problems:
        own = problem.rows[is_free[problem.rows]]
        is_free[own] = False
        if len(own):
            first.append(RowProblem(own, problem.reason))
    return first
