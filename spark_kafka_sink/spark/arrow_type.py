"""Spark types -> the Arrow types of the batches in which Spark passes columns to Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from spark_kafka_sink.serialization.preparation import ColumnType


def column_types(schema: StructType, names: Sequence[str]) -> dict[str, ColumnType]:
    """Of those columns that the schema has; a type that Arrow lacks becomes null there."""
    import pyarrow as pa
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_type

    from spark_kafka_sink.serialization.preparation import ColumnType

    types = {}
    for field in schema.fields:
        if field.name not in names:
            continue
        try:
            # Spark converts times to the session's zone; for the schema, any zone will do.
            arrow = to_arrow_type(field.dataType, timezone="UTC")
        except PySparkTypeError:
            arrow = pa.null()  # no format has such a type either, and says so
        types[field.name] = ColumnType(field.dataType.jsonValue(), arrow)
    return types
