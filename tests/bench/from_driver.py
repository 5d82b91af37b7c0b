"""Micro-batches sent from the driver, beside Spark's own sink and this one's tasks.

The whole time of a micro-batch (``triggerExecution``), each way in turn in one warm session, whose
rows are in 2 or 8 Spark partitions. Two ways send nothing: the rest of a time beside them is what
sending costs. Argument: rounds (default 3).
"""

from __future__ import annotations

import statistics
import tempfile
import time
from dataclasses import dataclass

from common import (
    FROM_DRIVER,
    FROM_DRIVER_EXACTLY_ONCE,
    OURS,
    SPARKS_OWN,
    argument,
    create_topics,
    delete_topics,
    direct_to_peer,
    session,
    spread,
    table,
    write_table,
)
from pyspark.sql import SparkSession

from spark_kafka_sink.tools.local_kafka import LocalKafka

NOOP = "rows computed, not sent (noop)"
TO_ARROW = "rows read as Arrow, not sent"
PEERS = (SPARKS_OWN, OURS, FROM_DRIVER, FROM_DRIVER_EXACTLY_ONCE, NOOP, TO_ARROW)


@dataclass(frozen=True)
class Work:
    """``micro_batches``: timed ones per round, after one that is not."""

    rows: int
    partitions: int
    micro_batches: int

    def __str__(self) -> str:
        return f"{self.rows:,} rows of 100 B, {self.partitions} partitions"


WORKS = (Work(1_000, 2, 30), Work(1_000, 8, 30), Work(100_000, 2, 10), Work(100_000, 8, 10))


def main() -> None:
    rounds = argument(1, 3)
    figures: dict[Work, dict[str, list[float]]] = {w: {peer: [] for peer in PEERS} for w in WORKS}
    with LocalKafka() as kafka:
        spark = session()
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 100)
        for work, done in figures.items():
            for number in range(rounds + 1):
                for peer in PEERS if number % 2 else reversed(PEERS):
                    milliseconds = run(spark, kafka.bootstrap_servers, work, peer)
                    if number:  # the first round warms up
                        done[peer].append(milliseconds)
            print(work, done, flush=True)
        spark.stop()
    rows = []
    for work, done in figures.items():
        own = done[SPARKS_OWN]
        for peer, times in done.items():
            ratios = [a / b for a, b in zip(times, own, strict=True)]
            rows.append((work, peer, spread(times, ".0f"), spread(ratios)))
    head = ("Micro-batch", "", "median, ms", "times Spark's own")
    write_table("from_driver", table(head, rows))


def run(spark: SparkSession, servers: str, work: Work, peer: str) -> float:
    """The median milliseconds of a micro-batch."""
    source = spark.readStream.format("rate-micro-batch").option("numPartitions", work.partitions)
    rows = source.option("rowsPerBatch", work.rows).load()
    rows = rows.selectExpr("cast(value as string) as key", "repeat('v', 100) as value")
    topic = f"bench-{time.monotonic_ns()}"
    create_topics(servers, [topic], partitions=4)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        options = {"kafka.bootstrap.servers": servers, "topic": topic}
        if peer == NOOP:
            writer = rows.writeStream.format("noop")
        elif peer == TO_ARROW:
            writer = rows.writeStream.foreachBatch(lambda frame, _: frame.toArrow())
        else:
            writer = direct_to_peer(rows.writeStream, peer, options)
        query = writer.option("checkpointLocation", checkpoint).start()
        while query.lastProgress is None or query.lastProgress["batchId"] < work.micro_batches:
            assert query.isActive, query.exception()
            time.sleep(0.02)
        query.stop()
        progress = query.recentProgress[1 : work.micro_batches + 1]
    delete_topics(servers, [topic])
    return statistics.median(trigger["durationMs"]["triggerExecution"] for trigger in progress)


if __name__ == "__main__":
    main()
