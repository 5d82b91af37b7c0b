"""Rows per second into a local Kafka: this sink and its peers, in interleaved rounds.

For each kind of work, all peers write the same rows to the same broker with the same settings, in
repeated rounds. Every other round reverses the order; the first rounds are for warming up. Ratios
compare the peers within a round. Half of a value is compressible text, the other half is not.

Arguments: rounds (default 4), and the names of kinds of work, separated by semicolons. Without
names, all are run and their figures are written.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from common import (
    AS_THEY_COME,
    EMPTY,
    FLOOR,
    FORMATS,
    OURS,
    SPARKS_OWN,
    TUNED_SPARK,
    argument,
    create_topics,
    delete_topics,
    pyplot,
    save_plot,
    session,
    spread,
    table,
    write_table,
)
from drop_sink import DropSink
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from spark_kafka_sink.tools.local_kafka import LocalKafka

BY_HAND = "foreachPartition + confluent_kafka"
# Until Java, in Spark and the broker, has compiled the hot code: for the first work, for others.
FIRST_WARMING_ROUNDS, WARMING_ROUNDS = 8, 1
TUNED = AS_THEY_COME | {"kafka.linger.ms": "50", "kafka.batch.size": "1000000"}


@dataclass(frozen=True)
class Work:
    """What is written; several ``topics`` are mixed row by row."""

    name: str
    rows: int
    value_bytes: int
    settings: dict[str, str] = field(default_factory=lambda: AS_THEY_COME)
    is_keyed: bool = True
    has_headers: bool = False
    topics: int = 1
    partitions: int = 4
    peers: tuple[str, ...] = (SPARKS_OWN, OURS, FLOOR)
    spark: Mapping[str, str] = field(default_factory=lambda: EMPTY)


WORKS = (
    Work("100 B", 2_000_000, 100),
    Work("100 B, tuned", 2_000_000, 100, TUNED),
    Work("1 KB", 600_000, 1000),
    Work("1 KB, tuned", 600_000, 1000, TUNED),
    Work("10 KB", 60_000, 10_000),
    Work("100 B, uncompressed", 2_000_000, 100, {"kafka.linger.ms": "5"}),
    Work("1 KB, uncompressed", 600_000, 1000, {"kafka.linger.ms": "5"}),
    Work("100 B, no keys", 2_000_000, 100, is_keyed=False),
    Work("100 B, two headers", 1_000_000, 100, has_headers=True),
    Work("100 B, 50 topics", 1_000_000, 100, topics=50, partitions=1),
    Work("100 B, 64 partitions", 2_000_000, 100, partitions=64),
    Work("100 B, beside by hand", 1_000_000, 100, peers=(BY_HAND, OURS)),
    Work("1 KB, beside by hand", 400_000, 1000, peers=(BY_HAND, OURS)),
    Work("100 B, Spark tuned", 2_000_000, 100, spark=TUNED_SPARK),
    Work("1 KB, Spark tuned", 600_000, 1000, spark=TUNED_SPARK),
    Work("1 KB, all tuned", 600_000, 1000, TUNED, spark=TUNED_SPARK),
    Work("10 KB, Spark tuned", 60_000, 10_000, spark=TUNED_SPARK),
)


@dataclass
class Round:
    """One peer's part of one round."""

    seconds: float
    cpu_seconds: float
    worker_peak_mib: float


def main() -> None:
    rounds = argument(1, 4)
    wanted = sys.argv[2].split(";") if sys.argv[2:] else [work.name for work in WORKS]
    figures: dict[str, dict[str, list[Round]]] = {}
    with LocalKafka() as kafka:
        warming = FIRST_WARMING_ROUNDS
        for conf in (EMPTY, TUNED_SPARK):  # one after another in the same Java process
            spark = session(conf)
            spark.dataSource.register(DropSink)
            for work in WORKS:
                if work.name in wanted and work.spark == conf:
                    numbers = range(-warming, rounds)
                    figures[work.name] = measure(
                        spark, kafka.bootstrap_servers, set(kafka.pids), work, numbers
                    )
                    warming = WARMING_ROUNDS
                    print(markdown(figures), flush=True)
            spark.stop()
    if len(figures) == len(WORKS):
        write_table("throughput", markdown(figures))
        plot(figures)


def ratios(done: list[Round], base: list[Round]) -> list[float]:
    """How many times as fast as ``base`` each round was."""
    return [b.seconds / a.seconds for a, b in zip(done, base, strict=True)]


def measure(
    spark: SparkSession, servers: str, broker: set[int], work: Work, numbers: range
) -> dict[str, list[Round]]:
    data = source(spark, work)
    figures: dict[str, list[Round]] = {peer: [] for peer in work.peers}
    for number in numbers:  # those below 0 are for warming up
        for peer in work.peers if number % 2 else reversed(work.peers):
            done = write(data, peer, servers, work, broker)
            if number >= 0:
                figures[peer].append(done)
    data.unpersist()
    return figures


def write(
    data: DataFrame,
    peer: str,
    servers: str,
    work: Work,
    broker: set[int],
    meanwhile: AbstractContextManager[object] | None = None,
) -> Round:
    """One peer's part of a round: to new topics, which are deleted afterwards."""
    prefix = f"bench-{time.monotonic_ns()}-"
    topics = [f"{prefix}{n}" for n in range(work.topics)] if peer != FLOOR else []
    if topics:
        create_topics(servers, topics, work.partitions)
    save = saving(data, peer, servers, work, prefix)
    with meanwhile or nullcontext():
        done = timed(save, broker)
    if topics:
        delete_topics(servers, topics)
    return done


def timed(save: Callable[[], None], broker: set[int]) -> Round:
    gc.collect()
    reset_peaks()
    cpu, started = cpu_seconds(broker), time.monotonic()
    save()
    seconds = time.monotonic() - started
    return Round(seconds, cpu_seconds(broker) - cpu, worker_peak_mib())


def source(spark: SparkSession, work: Work) -> DataFrame:
    """The rows, cached in memory, so that no peer pays for generating them."""
    parts = range(work.value_bytes // 64 + 1)
    digests = [F.substring(F.sha2(F.concat_ws("-", "id", F.lit(n)), 256), 1, 32) for n in parts]
    text = F.lit(", and a few words of plain text. ")
    whole = F.concat(*(piece for digest in digests for piece in (digest, text)))
    value = F.substring(whole, 1, work.value_bytes)
    columns = [value.alias("value")]
    if work.is_keyed:
        columns.append(F.concat(F.lit("key-"), F.col("id") % 10_000).alias("key"))
    if work.has_headers:
        header = "array(named_struct('key', 'source', 'value', binary('bench')), "
        header += "named_struct('key', 'id', 'value', binary(cast(id as string))))"
        columns.append(F.expr(header).alias("headers"))
    if work.topics > 1:
        columns.append((F.col("id") % work.topics).cast("string").alias("number"))
    data = spark.range(0, work.rows, numPartitions=2).select(*columns).cache()
    data.count()
    return data


def saving(data: DataFrame, peer: str, servers: str, work: Work, prefix: str) -> Callable[[], None]:
    """The call that is measured, to topics of its own."""
    if work.topics > 1:
        data = data.withColumn("topic", F.concat(F.lit(prefix), "number")).drop("number")
    options = {**work.settings, "kafka.bootstrap.servers": servers}
    if peer == BY_HAND:
        return lambda: data.foreachPartition(write_by_hand(options, f"{prefix}0", lambda: encoded))
    if work.topics == 1:
        options["topic"] = f"{prefix}0"
    if work.has_headers and peer == SPARKS_OWN:
        options["includeHeaders"] = "true"
    writer = data.write.format(FORMATS[peer]).mode("append").options(**options)
    return writer.save


def encoded(row) -> dict[str, bytes]:
    return {"key": row["key"].encode("utf-8"), "value": row["value"].encode("utf-8")}


def write_by_hand(options: dict[str, str], topic: str, new_encoder: Callable):
    """The usual code in answers and posts on writing to Kafka from PySpark.

    In each task, ``new_encoder()`` returns a function from a row to arguments of ``produce``.
    """
    settings = {
        name.removeprefix("kafka."): value for name, value in options.items() if name != "topic"
    }

    def write(rows):
        from confluent_kafka import Producer

        producer, encode = Producer(settings), new_encoder()
        failures = []

        def on_delivery(error, message):
            if error is not None:
                failures.append(f"{message.topic()}: {error}")

        for row in rows:
            record = encode(row)
            while True:
                try:
                    producer.produce(topic, **record, on_delivery=on_delivery)
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        producer.flush()
        if failures:
            raise RuntimeError(failures[0])

    return write


def processes(broker: set[int]) -> list[psutil.Process]:
    """This process and all that it started, apart from the broker."""
    mine = psutil.Process()
    return [
        mine,
        *(process for process in mine.children(recursive=True) if process.pid not in broker),
    ]


def cpu_seconds(broker: set[int]) -> float:
    total = 0.0
    for process in processes(broker):
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def workers() -> list[psutil.Process]:
    """Spark's Python workers that run tasks."""
    lines = []
    for process in processes(set()):
        with suppress(psutil.NoSuchProcess):  # also a zombie's
            if "pyspark.daemon" in " ".join(process.cmdline()):
                lines.append(process)
    return lines


def reset_peaks() -> None:
    for worker in workers():
        Path(f"/proc/{worker.pid}/clear_refs").write_text("5", encoding="ascii")


def worker_peak_mib() -> float:
    peaks = [0.0]
    for worker in workers():
        status = Path(f"/proc/{worker.pid}/status").read_text(encoding="utf-8")
        peaks.append(int(status.partition("VmHWM:")[2].split()[0]) / 1024)
    return max(peaks)


def markdown(figures: dict[str, dict[str, list[Round]]]) -> str:
    head = (
        "Work",
        "Writer",
        "M rows/s, median (lowest to highest)",
        "MB/s",
        "ratio to the first writer",
        "CPU us per row",
        "worker's peak MiB",
    )
    rows = []
    for work in WORKS:
        for peer, done in figures.get(work.name, {}).items():
            speeds = [work.rows / run.seconds for run in done]
            theirs = figures[work.name][work.peers[0]]
            rows.append(
                (
                    work.name,
                    peer,
                    spread([speed / 1e6 for speed in speeds]),
                    f"{statistics.median(speeds) * work.value_bytes / 1e6:.0f}",
                    spread(ratios(done, theirs)),
                    f"{statistics.median(run.cpu_seconds for run in done) / work.rows * 1e6:.2f}",
                    # Spark's own sink has no workers; the idle ones belong to its peers.
                    "-" if peer == SPARKS_OWN else f"{max(e.worker_peak_mib for e in done):.0f}",
                )
            )
    return table(head, rows)


def plot(figures: dict[str, dict[str, list[Round]]]) -> None:
    """Every round's ratio to Spark's own sink, as dots, and their median, as a bar."""
    plt = pyplot()
    works = [work for work in WORKS if work.name in figures and SPARKS_OWN in work.peers]
    _, axes = plt.subplots(figsize=(7, 0.4 * len(works) + 1))
    for place, work in enumerate(works):
        points = ratios(figures[work.name][OURS], figures[work.name][SPARKS_OWN])
        axes.barh(place, statistics.median(points), color="tab:blue", alpha=0.5)
        axes.plot(points, [place] * len(points), ".", color="tab:blue")
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(range(len(works)), [work.name for work in works])
    axes.invert_yaxis()
    axes.set(xlabel=f"times as fast as {SPARKS_OWN}")
    axes.margins(y=0.01)
    axes.grid(visible=True, axis="x", alpha=0.3)
    save_plot(plt, "throughput")


if __name__ == "__main__":
    main()
