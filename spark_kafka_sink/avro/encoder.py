"""AvroEncoder: an Arrow column as Avro, all rows at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_kafka_sink.avro.parsed import parse_schema
from spark_kafka_sink.avro.plan import compile_writer
from spark_kafka_sink.encoding import arrow_memory as memory
from spark_kafka_sink.encoding.encoded import Encoded, encode_in_parts
from spark_kafka_sink.encoding.level import Level
from spark_kafka_sink.errors import SchemaMismatch


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

    def encode(self, array: pa.Array, prefix: bytes | pa.Array = b"") -> Encoded:
        """Each row as ``prefix``, or that of the row, and its value in Avro; a null stays null."""
        return encode_in_parts(self._encode, array, prefix)

    def _encode(self, array: pa.Array, prefix: bytes | pa.Array) -> Encoded:
        level = Level(len(array))
        valid = memory.validity(array)
        if isinstance(prefix, bytes):
            level.add_constant(prefix, valid)
        else:
            level.add_strings(*memory.byte_strings(prefix), valid)
        self._writer.write(level, array, valid)
        data, offsets = level.finish()
        if level.problems:
            valid = np.ones(len(array), dtype=bool) if valid is None else valid.copy()
            valid[np.concatenate([problem.rows for problem in level.problems])] = False
        is_large = memory.exceeds_binary(len(data))
        values = memory.binary_array(offsets, data, valid=valid, is_large=is_large)
        return Encoded(values, level.problems)
