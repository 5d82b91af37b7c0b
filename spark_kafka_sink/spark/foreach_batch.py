"""foreach_batch: the sink as a function of micro-batches, for update mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from spark_kafka_sink.config.options import BATCH_ID
from spark_kafka_sink.config.secret import Secret
from spark_kafka_sink.spark.datasource import FORMAT, register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def foreach_batch(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """For update mode, which Spark refuses for every Python data source.

    ``writeStream.outputMode("update").foreachBatch(foreach_batch({...}))``: the same options,
    errors and writer as ``format("kafka-nb")``.
    """
    given = {name: Secret(value) for name, value in options.items()}

    def write(batch: DataFrame, batch_id: int) -> None:
        register(batch.sparkSession)
        writer = batch.write.format(FORMAT).options(**given).option(BATCH_ID.name, str(batch_id))
        writer.mode("append").save()

    return write
