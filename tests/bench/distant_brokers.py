"""Rows per second to a broker some milliseconds away, behind a proxy that delays its answers.

Spark's own sink, as it comes and with large batches, and this sink as it comes write the same rows
in interleaved rounds; all compress with lz4. Without the proxy, a broker of its own shows what the
proxy costs. Arguments: rounds (default 3), and a part of the number of rows, for a shorter run
(0.1).
"""

from __future__ import annotations

import statistics
from dataclasses import replace

from common import (
    OURS,
    SPARKS_OWN,
    argument,
    pyplot,
    save_plot,
    session,
    spread,
    table,
    write_table,
)
from distant_kafka import DistantKafka
from pyspark.sql import DataFrame
from throughput import TUNED, Work, source, write

from spark_kafka_sink.tools.local_kafka import LocalKafka

SPARKS_TUNED = "Spark's own sink, tuned"
PEERS = (SPARKS_OWN, SPARKS_TUNED, OURS)
# As much as the two workers of this sink may buffer together; Spark's tasks share a producer.
SETTINGS = {SPARKS_TUNED: TUNED | {"kafka.buffer.memory": str(2 * 2**26)}}
WORKS = (
    Work("100 B, 4 partitions", 700_000, 100),
    Work("1 KB, 4 partitions", 100_000, 1000),
    Work("100 B, 64 partitions", 700_000, 100, partitions=64),
    Work("1 KB, 64 partitions", 100_000, 1000, partitions=64),
)
NO_PROXY = "no proxy"
DELAYS = {"0 ms": 0.0, "2 ms": 0.002, "10 ms": 0.01, "50 ms": 0.05}  # seconds
LINKS = (NO_PROXY, *DELAYS)
FIRST_WARMING_ROUNDS, WARMING_ROUNDS = 5, 1

#: link -> peer -> seconds of each round
Figures = dict[str, dict[str, list[float]]]


def main() -> None:
    rounds = argument(1, 3)
    part = argument(2, 1.0)
    works = [replace(work, rows=int(work.rows * part)) for work in WORKS]
    figures = {}
    with LocalKafka() as near, DistantKafka() as distant:
        spark = session()
        warming = FIRST_WARMING_ROUNDS
        for work in works:
            data = source(spark, work)
            for _ in range(warming):
                measure(data, work, near, distant, LINKS[:2])
            warming = WARMING_ROUNDS
            done = [measure(data, work, near, distant, LINKS, n) for n in range(rounds)]
            figures[work.name] = {
                link: {peer: [run[link, peer] for run in done] for peer in PEERS} for link in LINKS
            }
            data.unpersist()
            print(markdown(works, figures), flush=True)
        spark.stop()
    write_table("distant_brokers", markdown(works, figures))
    plot(figures)


def measure(
    data: DataFrame,
    work: Work,
    near: LocalKafka,
    distant: DistantKafka,
    links: tuple[str, ...],
    number: int = 0,
) -> dict[tuple[str, str], float]:
    """One round: the seconds of each peer over each link. Odd rounds reverse the peers' order."""
    seconds = {}
    for link in links:
        servers = (near if link == NO_PROXY else distant).bootstrap_servers
        for peer in reversed(PEERS) if number % 2 else PEERS:
            changed = replace(work, settings=SETTINGS.get(peer, work.settings))
            sink = OURS if peer == OURS else SPARKS_OWN
            late = None if link == NO_PROXY else distant.late(DELAYS[link])
            seconds[link, peer] = write(data, sink, servers, changed, set(), late).seconds
    return seconds


def ratios(figures: Figures, link: str, base: str) -> list[float]:
    """How many times as fast as ``base`` this sink was in each round."""
    return [b / a for a, b in zip(figures[link][OURS], figures[link][base], strict=True)]


def markdown(works: list[Work], figures: dict[str, Figures]) -> str:
    rows = [
        (
            work.name,
            link,
            *(
                f"{work.rows * work.value_bytes / 1e6 / statistics.median(done[link][peer]):.0f}"
                for peer in PEERS
            ),
            *(spread(ratios(done, link, base)) for base in (SPARKS_OWN, SPARKS_TUNED)),
        )
        for work in works
        if (done := figures.get(work.name))
        for link in LINKS
    ]
    speeds = (f"{peer}, MB/s" for peer in PEERS)
    head = ("Rows", "Answers late by", *speeds, f"ratio to {SPARKS_OWN}", f"to {SPARKS_TUNED}")
    return table(head, rows)


def plot(figures: dict[str, Figures]) -> None:
    """This sink's ratio to Spark's own by delay: the medians, and the rounds as dots."""
    plt = pyplot()
    _, panels = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True)
    for axes, base in zip(panels, (SPARKS_OWN, SPARKS_TUNED), strict=True):
        for number, (name, done) in enumerate(figures.items()):
            points = [ratios(done, link, base) for link in DELAYS]
            colour = f"C{number % 2}"
            line = "--" if number >= 2 else "-"
            medians = [statistics.median(speeds) for speeds in points]
            axes.plot(range(len(points)), medians, line, color=colour, label=name)
            for place, dots in enumerate(points):
                axes.plot([place] * len(dots), dots, ".", color=colour, alpha=0.5)
        axes.axhline(1, color="black", linewidth=1)
        axes.set_xticks(range(len(DELAYS)), DELAYS)
        axes.set(yscale="log", xlabel="the broker's answers arrive late by")
        axes.set_title(f"times as fast as {base}", fontsize="medium")
        axes.yaxis.set_major_locator(plt.LogLocator(subs=(1, 1.5, 2, 3, 5)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter("")
        axes.grid(visible=True, alpha=0.3)
    panels[0].legend(fontsize="small")
    save_plot(plt, "distant_brokers")


if __name__ == "__main__":
    main()
