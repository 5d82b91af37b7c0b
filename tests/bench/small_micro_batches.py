"""Micro-batches of 1,000 rows: their whole time, each sink in turn in one warm session.

It is Spark's ``triggerExecution``. Its part ``addBatch`` contains all that foreachBatch does, but
not the planning of a format.

Argument: rounds (default 3), each of 40 micro-batches per sink.
"""

from __future__ import annotations

import statistics
import tempfile
import time

from common import (
    FLOOR,
    FOREACH_BATCH,
    OURS,
    SPARKS_OWN,
    argument,
    create_topics,
    direct_to_peer,
    session,
    spread,
    table,
    write_table,
)
from drop_sink import DropSink
from pyspark.sql import SparkSession

from spark_kafka_sink.tools.local_kafka import LocalKafka

MICRO_BATCHES, ROWS = 40, 1000
PARTS = WHOLE, ADD_BATCH = "triggerExecution", "addBatch"
PEERS = (SPARKS_OWN, OURS, FOREACH_BATCH, FLOOR)


def main() -> None:
    rounds = argument(1, 3)
    figures: dict[str, list[dict[str, list[float]]]] = {peer: [] for peer in PEERS}
    with LocalKafka() as kafka:
        create_topics(kafka.bootstrap_servers, ["small"], partitions=4)
        spark = session()
        spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", 10 * MICRO_BATCHES)
        spark.dataSource.register(DropSink)
        for number in range(rounds + 1):
            for peer in PEERS:
                milliseconds = run(spark, peer, kafka.bootstrap_servers)
                if number:
                    figures[peer].append(milliseconds)
        spark.stop()
    medians = {
        peer: {part: [statistics.median(run[part]) for run in done] for part in PARTS}
        for peer, done in figures.items()
    }
    whole = {peer: parts[WHOLE] for peer, parts in medians.items()}
    rows = [
        (
            peer,
            spread(whole[peer], ".0f"),
            spread([max(run[WHOLE]) for run in done], ".0f"),
            spread([a - b for a, b in zip(whole[peer], whole[FLOOR], strict=True)], ".0f"),
            spread(medians[peer][ADD_BATCH], ".0f"),
        )
        for peer, done in figures.items()
    ]
    head = (
        "1,000 rows",
        "median, ms",
        "slowest of a round, ms",
        f"more than {FLOOR}, ms",
        "addBatch alone, ms",
    )
    write_table("small_micro_batches", table(head, rows))


def run(spark: SparkSession, peer: str, servers: str) -> dict[str, list[float]]:
    """The milliseconds of each part, for every micro-batch but the first."""
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).load()
    rows = rows.selectExpr("cast(value as string) as key", "repeat('v', 100) as value")
    with tempfile.TemporaryDirectory() as checkpoint:
        options = {"kafka.bootstrap.servers": servers, "topic": "small"}
        writer = direct_to_peer(rows.writeStream, peer, options)
        query = writer.option("checkpointLocation", checkpoint).start()
        while query.lastProgress is None or query.lastProgress["batchId"] < MICRO_BATCHES:
            assert query.isActive
            time.sleep(0.05)
        query.stop()
        progress = query.recentProgress[1 : MICRO_BATCHES + 1]
    return {part: [trigger["durationMs"][part] for trigger in progress] for part in PARTS}


if __name__ == "__main__":
    main()
