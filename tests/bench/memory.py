"""Memory of the Python worker: large partitions, and 500 consecutive micro-batches.

One partition of 5 GB, and one with rows of 10 KB, which fill Spark's largest Arrow batches, 64 MB.
"""

from __future__ import annotations

import tempfile
import time

from common import create_topics, session, table, write_table
from pyspark.sql import SparkSession
from throughput import reset_peaks, worker_peak_mib, workers

from spark_kafka_sink.tools.local_kafka import LocalKafka

#: bytes of a value -> rows of a partition
PARTITIONS = {1000: 5_000_000, 10_000: 200_000}
MICRO_BATCHES, EVERY, ROWS_A_MICRO_BATCH = 500, 50, 10_000
BUFFER_MIB = 64


def main() -> None:
    # No copy of the rows stays: they compress well, and the topic is small.
    with LocalKafka(settings={"log.retention.bytes": str(2**28)}) as kafka:
        create_topics(kafka.bootstrap_servers, ["memory"], partitions=4)
        spark = session()
        base_mib = one_row(spark, kafka.bootstrap_servers)
        peaks = {size: one_partition(spark, kafka.bootstrap_servers, size) for size in PARTITIONS}
        curve = many_micro_batches(spark, kafka.bootstrap_servers)
        spark.stop()
    rows = [
        ("after one row", f"{base_mib:.0f}"),
        *(
            (
                f"peak while a partition of {PARTITIONS[size]:,} rows of {size} B is written",
                f"{mib:.0f}",
            )
            for size, mib in peaks.items()
        ),
        (f"bound: twice buffer.memory ({BUFFER_MIB} MiB) and 150", f"{2 * BUFFER_MIB + 150}"),
        *(
            (f"peak until micro-batch {number} of {ROWS_A_MICRO_BATCH} rows", f"{mib:.0f}")
            for number, mib in curve
        ),
    ]
    write_table("memory", table(("Python worker", "MiB"), rows))


def options(servers: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": servers, "topic": "memory", "kafka.compression.type": "lz4"}


def one_row(spark: SparkSession, servers: str) -> float:
    row = spark.range(1).selectExpr("cast(id as string) as value")
    row.write.format("kafka-nb").options(**options(servers)).mode("append").save()
    return worker_peak_mib()


def one_partition(spark: SparkSession, servers: str, size: int) -> float:
    rows = spark.range(0, PARTITIONS[size], numPartitions=1).selectExpr(
        "cast(id as string) as key", f"lpad(cast(id as string), {size}, 'abcdefgh') as value"
    )
    reset_peaks()
    rows.write.format("kafka-nb").options(**options(servers)).mode("append").save()
    return worker_peak_mib()


def many_micro_batches(spark: SparkSession, servers: str) -> list[tuple[int, float]]:
    stream = spark.readStream.format("rate-micro-batch")
    rows = stream.option("rowsPerBatch", ROWS_A_MICRO_BATCH).load()
    rows = rows.selectExpr("cast(value as string) as key", "repeat('v', 1000) as value")
    curve = []
    reset_peaks()
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = rows.writeStream.format("kafka-nb").options(**options(servers))
        query = writer.option("checkpointLocation", checkpoint).start()
        for number in range(EVERY, MICRO_BATCHES + 1, EVERY):
            while query.lastProgress is None or query.lastProgress["batchId"] < number:
                assert query.isActive
                time.sleep(0.05)
            curve.append((number, worker_peak_mib()))
            print(curve[-1], len(workers()), "workers", flush=True)
        query.stop()
    return curve


if __name__ == "__main__":
    main()
