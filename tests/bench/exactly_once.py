"""What exactly-once costs: micro-batches of 1,000 and of 1,000,000 rows, beside at-least-once.

Both guarantees write the same rows, with the same ``repartition``, in turn in one warm session. The
time is Spark's ``triggerExecution``, with the planning and the seal. Argument: rounds (default 3).
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass

from common import (
    AS_THEY_COME,
    argument,
    create_topics,
    delete_topics,
    session,
    spread,
    table,
    write_table,
)
from pyspark.sql import SparkSession

from spark_kafka_sink.tools.local_kafka import LocalKafka

AT_LEAST_ONCE, EXACTLY_ONCE = GUARANTEES = "at-least-once", "exactly-once"
#: timed micro-batches per round, after one that is not
MICRO_BATCHES: Mapping[int, int] = {1_000: 12, 1_000_000: 3}


@dataclass(frozen=True)
class Work:
    value_bytes: int
    rows: int
    partitions: int

    def __str__(self) -> str:
        return f"{self.rows:,} rows of {self.value_bytes} B, P={self.partitions}"


WORKS = [
    Work(value_bytes, rows, partitions)
    for rows in MICRO_BATCHES
    for value_bytes in (100, 1000)
    for partitions in (2, 8)
]


def main() -> None:
    rounds = argument(1, 3)
    spark = session()
    figures: dict[str, dict[str, list[float]]] = {}
    with LocalKafka() as kafka:
        for work in WORKS:
            done: dict[str, list[float]] = {guarantee: [] for guarantee in GUARANTEES}
            for number in range(rounds + 1):
                for guarantee in GUARANTEES if number % 2 else reversed(GUARANTEES):
                    milliseconds = run(spark, kafka.bootstrap_servers, work, guarantee)
                    if number:  # the first round warms up
                        done[guarantee].append(milliseconds)
            figures[str(work)] = done
            print(work, done, flush=True)
    spark.stop()
    rows = []
    for work, done in figures.items():
        plain, once = done[AT_LEAST_ONCE], done[EXACTLY_ONCE]
        more = [b - a for a, b in zip(plain, once, strict=True)]
        times = [a / b for a, b in zip(plain, once, strict=True)]
        times_ms = [spread(milliseconds, ".0f") for milliseconds in (plain, once, more)]
        rows.append((work, *times_ms, spread(times)))
    head = (
        "Micro-batch",
        *(f"{guarantee}, ms" for guarantee in GUARANTEES),
        "more, ms",
        "times as fast",
    )
    write_table("exactly_once", table(head, rows))


def run(spark: SparkSession, servers: str, work: Work, guarantee: str) -> float:
    """The median milliseconds of a micro-batch."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", work.rows).load()
    # Half of each value compresses, half does not, as in the throughput benchmark.
    text = "repeat(concat(sha2(string(value), 256), repeat('plain text ', 6)), 8)"
    value = f"left({text}, {work.value_bytes}) as value"
    rows = rows.selectExpr("concat('key-', value % 10000) as key", value)
    rows = rows.repartition(work.partitions, "key")
    topic = f"bench-{time.monotonic_ns()}"
    create_topics(servers, [topic], partitions=4)
    options = {"kafka.bootstrap.servers": servers, "topic": topic, **AS_THEY_COME}
    options["delivery.guarantee"] = guarantee
    if guarantee == EXACTLY_ONCE:
        options["exactly.once.partitions"] = str(work.partitions)
    last = MICRO_BATCHES[work.rows]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        writer = rows.writeStream.format("kafka-nb").options(**options)
        query = writer.option("checkpointLocation", checkpoint).start()
        while query.lastProgress is None or query.lastProgress["batchId"] < last:
            assert query.isActive, query.exception()
            time.sleep(0.02)
        query.stop()
        progress = query.recentProgress[1 : last + 1]
    delete_topics(servers, [topic])
    return statistics.median(trigger["durationMs"]["triggerExecution"] for trigger in progress)


if __name__ == "__main__":
    main()
