"""foreach_batch: the sink as a function of micro-batches, for update mode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from spark_kafka_sink.config.options import BATCH_ID
from spark_kafka_sink.config.secret import Secret
from spark_kafka_sink.spark.datasource import FORMAT, make_known
from spark_kafka_sink.spark.speculation import warn_of_speculation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def foreach_batch(options: Mapping[str, str]) -> Callable[[DataFrame, int], None]:
    """A function for update mode, which Spark refuses for every Python data source.

    ``writeStream.outputMode("update").foreachBatch(foreach_batch({...}))``: the same options,
    errors and writer as ``format("kafka-nb")``. The first micro-batch issues a UserWarning if the
    session has ``spark.speculation``.
    """
    given = {name: Secret(value) for name, value in options.items()}

    is_first = True

    def write(batch: DataFrame, batch_id: int) -> None:
        nonlocal is_first
        if is_first:
            is_first = False
            warn_of_speculation(batch.sparkSession)
        make_known(batch.sparkSession)
        writer = batch.write.format(FORMAT).options(**given).option(BATCH_ID.name, str(batch_id))
        writer.mode("append").save()

    return write
