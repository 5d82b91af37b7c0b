"""Rows a second into a local Kafka: this sink beside Spark's own, in interleaved rounds.

Prints a Markdown table of medians with their spread and ratios to Spark's own sink, and writes the
figures to build/bench.json. Arguments: rows a round (default 1,000,000) and rounds (default 5).
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from spark_kafka_jars import jars

from spark_kafka_sink.local_kafka import LocalKafka

PARTITIONS = 4
SIZES = (100, 1000)
# Both clients as they come, but for the codec and the time to linger, which are the same.
SETTINGS = {"kafka.compression.type": "lz4", "kafka.linger.ms": "5"}
PEERS = {"Spark's own sink": "kafka", "this sink": "kafka-nb", "nothing (noop, in the JVM)": "noop"}


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    with LocalKafka() as kafka:
        spark = session()
        figures = {
            f"{peer}, {size} B": []
            for size in SIZES
            for peer in PEERS
        }  # fmt: skip
        for size in SIZES:
            data = source(spark, rows if size == SIZES[0] else rows // 4, size)
            for number in range(rounds + 1):
                for peer, kind in PEERS.items():
                    seconds = write(data, kind, kafka.bootstrap_servers)
                    if number:  # the first round warms up
                        count = rows if size == SIZES[0] else rows // 4
                        figures[f"{peer}, {size} B"].append(count / seconds)
        spark.stop()
    report(figures)


def session() -> SparkSession:
    return (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars())
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "4g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )


def source(spark: SparkSession, rows: int, size: int) -> DataFrame:
    """Rows of ``size`` bytes with keys, in memory, so that making them costs no peer anything."""
    value = F.substring(F.repeat(F.sha2(F.col("id").cast("string"), 256), size // 64 + 1), 1, size)
    key = F.concat(F.lit("key-"), F.col("id") % 10_000)
    data = spark.range(0, rows, numPartitions=2).select(key.alias("key"), value.alias("value"))
    data = data.cache()
    data.count()
    return data


def write(data: DataFrame, kind: str, servers: str) -> float:
    topic = f"bench-{time.monotonic_ns()}"
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
    admin.create_topics([NewTopic(topic, PARTITIONS)])[topic].result(30)
    writer = data.write.format(kind).mode("append")
    if kind != "noop":
        writer = writer.options(**{**SETTINGS, "kafka.bootstrap.servers": servers, "topic": topic})
    started = time.monotonic()
    writer.save()
    seconds = time.monotonic() - started
    admin.delete_topics([topic])[topic].result(30)
    return seconds


def report(figures: dict[str, list[float]]) -> None:
    print(f"\n{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}\n")
    print("| Writer, row size | M rows/s, median (lowest to highest) | ratio to Spark's own |")
    print("|---|---|---|")
    for name, speeds in figures.items():
        theirs = figures["Spark's own sink," + name.rpartition(",")[2]]
        ratio = statistics.median(ours / other for ours, other in zip(speeds, theirs, strict=True))
        median, low, high = (f(speeds) / 1e6 for f in (statistics.median, min, max))
        print(f"| {name} | {median:.2f} ({low:.2f} to {high:.2f}) | {ratio:.2f} |")
    Path("build").mkdir(exist_ok=True)
    Path("build/bench.json").write_text(json.dumps({"rows_a_second": figures}, indent=1))


if __name__ == "__main__":
    main()
