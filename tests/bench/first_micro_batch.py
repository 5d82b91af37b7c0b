"""The first micro-batch of a query to many topics, with slow metadata answers.

Spark's own sink and this one run in one session, each after another query with the same sink,
through a proxy that delays every metadata answer and counts the requested topics. One row per
topic, one task, a new producer for each query. Argument: the largest number of topics, for a
shorter run.
"""

from __future__ import annotations

import sys
import tempfile
import uuid
from dataclasses import dataclass
from pathlib import Path

from common import (
    FORMATS,
    OURS,
    SPARKS_OWN,
    create_topics,
    pyplot,
    save_plot,
    session,
    table,
    write_table,
)
from kafka_proxy import KafkaProxy, proxied_kafka
from pyspark.sql import SparkSession

PEERS = (SPARKS_OWN, OURS)
#: seconds that a metadata answer takes -> numbers of topics. Spark's own sink needs five minutes
#: for the first micro-batch to 1,000 topics at 0.3 s.
TOPICS = {0.05: (1, 10, 50, 200, 1000), 0.3: (1, 10, 50, 200)}


@dataclass
class Figure:
    """One query: its first two micro-batches (``addBatch``), and its metadata requests."""

    sink: str
    topics: int
    delay_seconds: float
    first_seconds: float
    second_seconds: float
    requests: int
    topics_asked_for: int


def main() -> None:
    most = int(sys.argv[1]) if sys.argv[1:] else max(map(max, TOPICS.values()))
    names = [f"topic-{number:04}" for number in range(max(2, most))]
    figures = []
    with proxied_kafka() as (proxy, _):
        create_topics(f"127.0.0.1:{proxy.port}", names)
        spark = session()
        for delay_seconds, sizes in TOPICS.items():
            for size in (size for size in sizes if size <= most):
                for sink in PEERS:
                    # Warms the session, not the producer; Spark stops idle workers.
                    measure(spark, proxy, sink, names[:2], 0.0)
                    figures.append(measure(spark, proxy, sink, names[:size], delay_seconds))
                    print(figures[-1], flush=True)
        spark.stop()
    report(figures)


def measure(
    spark: SparkSession, proxy: KafkaProxy, sink: str, names: list[str], delay_seconds: float
) -> Figure:
    proxy.metadata_delay_seconds = delay_seconds
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "source")
        source.mkdir()
        for number in (1, 2):
            (source / f"{number}.txt").write_text("\n".join(names))
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(source))
        writer = lines.selectExpr("value as topic", "value").writeStream.format(FORMATS[sink])
        writer = writer.option("kafka.bootstrap.servers", f"127.0.0.1:{proxy.port}")
        writer = writer.option("kafka.client.id", uuid.uuid4().hex)
        writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
        proxy.reset()
        query = writer.trigger(availableNow=True).start()
        if not query.awaitTermination(1800):
            raise TimeoutError("a query did not end within half an hour")
    proxy.metadata_delay_seconds = 0.0
    first, second = (trigger["durationMs"]["addBatch"] / 1000 for trigger in query.recentProgress)
    asked = [request.topics for request in proxy.metadata_requests]
    return Figure(sink, len(names), delay_seconds, first, second, len(asked), sum(asked))


def report(figures: list[Figure]) -> None:
    by_sink = [[figure for figure in figures if figure.sink == sink] for sink in PEERS]
    rows = [
        (
            theirs.topics,
            theirs.delay_seconds,
            f"{theirs.first_seconds:.2f}",
            f"{ours.first_seconds:.2f}",
            f"{theirs.first_seconds / ours.first_seconds:.1f}",
            f"{theirs.second_seconds:.2f}",
            f"{ours.second_seconds:.2f}",
            f"{theirs.requests} ({theirs.topics_asked_for})",
            f"{ours.requests} ({ours.topics_asked_for})",
        )
        for theirs, ours in zip(*by_sink, strict=True)
    ]
    head = (
        "Topics",
        "Each metadata answer takes, s",
        f"First micro-batch, s: {SPARKS_OWN}",
        OURS,
        "how many times faster",
        f"Second, s: {SPARKS_OWN}",
        OURS,
        f"Metadata requests (topics requested): {SPARKS_OWN}",
        OURS,
    )
    write_table("first_micro_batch", table(head, rows))
    plot(figures)


def plot(figures: list[Figure]) -> None:
    plt = pyplot()
    _, axes = plt.subplots(figsize=(7, 4))
    for sink, colour in ((SPARKS_OWN, "tab:orange"), (OURS, "tab:blue")):
        for delay_seconds, line in zip(TOPICS, ("--", "-"), strict=True):
            points = [
                (figure.topics, figure.first_seconds)
                for figure in figures
                if (figure.sink, figure.delay_seconds) == (sink, delay_seconds)
            ]
            label = f"{sink}, metadata answers take {delay_seconds:g} s"
            axes.plot(*zip(*points, strict=True), line, marker="o", color=colour, label=label)
    axes.set(xscale="log", yscale="log", xlabel="topics", ylabel="first micro-batch, seconds")
    axes.grid(visible=True, alpha=0.3)
    axes.legend(fontsize="small")
    save_plot(plt, "first_micro_batch")


if __name__ == "__main__":
    main()
