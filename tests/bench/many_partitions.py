"""Rows per second into topics with many partitions: this sink and Spark's own.

Both write the same rows in interleaved rounds, to a broker on this machine, and to another one
behind a proxy that delays its answers by 10 ms; both compress with lz4. CPU is that of Spark and
its workers, without brokers and proxy. Arguments: rounds (default 4), and a part of the number of
rows, for a shorter run (0.1) that writes no figures.
"""

from __future__ import annotations

import statistics
from dataclasses import replace

import psutil
from common import OURS, SPARKS_OWN, argument, session, spread, table, write_table
from distant_kafka import DistantKafka
from pyspark.sql import DataFrame
from throughput import Round, Work, ratios, source, write

from spark_kafka_sink.tools.local_kafka import LocalKafka

PEERS = (SPARKS_OWN, OURS)
WORKS = (
    Work("100 B, 64 partitions", 700_000, 100, partitions=64),
    Work("1 KB, 64 partitions", 100_000, 1000, partitions=64),
    Work("100 B, 256 partitions", 700_000, 100, partitions=256),
    Work("1 KB, 256 partitions", 100_000, 1000, partitions=256),
)
HERE, DISTANT = "on this machine", "10 ms away"
LINKS = (HERE, DISTANT)
DELAY_SECONDS = 0.01
# Until Java, in Spark and the brokers, has compiled the hot code: for the first work, for others.
FIRST_WARMING_ROUNDS, WARMING_ROUNDS = 5, 1

#: link -> peer -> rounds
Figures = dict[str, dict[str, list[Round]]]


def main() -> None:
    rounds = argument(1, 4)
    part = argument(2, 1.0)
    works = [replace(work, rows=int(work.rows * part)) for work in WORKS]
    figures: dict[str, Figures] = {}
    with LocalKafka() as near, DistantKafka() as distant:
        # Before Spark starts: the brokers and the proxy.
        brokers = {process.pid for process in psutil.Process().children(recursive=True)}
        spark = session()
        warming = FIRST_WARMING_ROUNDS
        for work in works:
            data = source(spark, work)
            figures[work.name] = {link: {peer: [] for peer in PEERS} for link in LINKS}
            for number in range(-warming, rounds):  # those below 0 are for warming up
                done = measure(data, work, near, distant, brokers, number)
                if number >= 0:
                    for (link, peer), run in done.items():
                        figures[work.name][link][peer].append(run)
            warming = WARMING_ROUNDS
            data.unpersist()
            print(markdown(works, figures), flush=True)
        spark.stop()
    if part == 1.0:
        write_table("many_partitions", markdown(works, figures))


def measure(
    data: DataFrame,
    work: Work,
    near: LocalKafka,
    distant: DistantKafka,
    brokers: set[int],
    number: int,
) -> dict[tuple[str, str], Round]:
    """One round: each peer over each link. Every other round reverses the peers' order."""
    done = {}
    for link in LINKS:
        servers = (near if link == HERE else distant).bootstrap_servers
        for peer in reversed(PEERS) if number % 2 else PEERS:
            late = None if link == HERE else distant.late(DELAY_SECONDS)
            done[link, peer] = write(data, peer, servers, work, brokers, late)
    return done


def markdown(works: list[Work], figures: dict[str, Figures]) -> str:
    speeds = (f"{peer}, MB/s" for peer in PEERS)
    costs = (f"{peer}, CPU us per row" for peer in PEERS)
    head = ("Rows", "Broker", *speeds, f"ratio to {SPARKS_OWN}", *costs)
    rows = [
        (
            work.name,
            link,
            *(megabytes_per_second(work, done[peer]) for peer in PEERS),
            spread(ratios(done[OURS], done[SPARKS_OWN])),
            *(cpu_microseconds_per_row(work, done[peer]) for peer in PEERS),
        )
        for work in works
        for link, done in figures.get(work.name, {}).items()
    ]
    return table(head, rows)


def megabytes_per_second(work: Work, done: list[Round]) -> str:
    seconds = statistics.median(run.seconds for run in done)
    return f"{work.rows * work.value_bytes / 1e6 / seconds:.0f}"


def cpu_microseconds_per_row(work: Work, done: list[Round]) -> str:
    seconds = statistics.median(run.cpu_seconds for run in done)
    return f"{seconds / work.rows * 1e6:.2f}"


if __name__ == "__main__":
    main()
