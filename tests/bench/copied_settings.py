"""Settings as people copy them: this sink beside Spark's own, both with the same ones.

The dictionaries are those of public programs that write with Spark's own sink, without addresses,
logins and timeouts. Interleaved rounds, in changing order, of rows of 100 B and of 1 KB. Arguments:
rounds (default 4), and parts of the names of dictionaries, separated by semicolons. Without names,
all are run and their figures are written.
"""

from __future__ import annotations

import random
import statistics
import sys

from common import OURS, SPARKS_OWN, argument, session, spread, table, write_table
from pyspark.sql import DataFrame
from throughput import Round, Work, ratios, source, write

from spark_kafka_sink.tools.local_kafka import LocalKafka

DICTIONARIES = """\
acks=all, retries=3
acks=all, compression.type=snappy
batch.size=16384, linger.ms=100
acks=all, batch.size=16384, compression.type=lz4, linger.ms=5, \
max.in.flight.requests.per.connection=5, retries=3
acks=all, batch.size=16384, compression.type=snappy, linger.ms=10, retries=3
batch.size=16384, buffer.memory=33554432, compression.type=gzip, linger.ms=5
batch.size=32768, buffer.memory=67108864, compression.type=snappy, linger.ms=100, retries=3
batch.size=65536, compression.type=snappy, linger.ms=50
batch.size=131072, compression.type=lz4, linger.ms=20
batch.size=30000, linger.ms=2000
batch.size=1048576, compression.type=gzip, linger.ms=1000, \
max.in.flight.requests.per.connection=1, max.request.size=16000000, retries=300
acks=all, batch.size=8192, buffer.memory=33554432, max.in.flight.requests.per.connection=1
acks=1, retries=0
acks=1, batch.size=16384, compression.type=snappy, linger.ms=0
acks=0, batch.size=16384, buffer.memory=33554432, compression.type=lz4, linger.ms=5, retries=0
""".splitlines()
PEERS = (SPARKS_OWN, OURS)
WORKS = (Work("100 B", 1_000_000, 100), Work("1 KB", 300_000, 1000))
WARMING_ROUNDS = 1  # of all dictionaries
Figures = dict[tuple[str, str], dict[str, list[Round]]]


def main() -> None:
    rounds = argument(1, 4)
    wanted = sys.argv[2].split(";") if sys.argv[2:] else [""]
    texts = [text for text in DICTIONARIES if any(part in text for part in wanted)]
    figures: Figures = {}
    with LocalKafka() as kafka:
        spark = session()
        for work in WORKS:
            data = source(spark, work)
            for text in texts:
                figures[work.name, text] = {peer: [] for peer in PEERS}
            for number in range(-WARMING_ROUNDS, rounds):
                order = texts.copy()
                random.Random(number).shuffle(order)
                for text in order:
                    for peer in PEERS if number % 2 else reversed(PEERS):
                        done = measure(data, kafka, work, text, peer)
                        if number >= 0:
                            figures[work.name, text][peer].append(done)
            data.unpersist()
            print(markdown(figures), flush=True)
        spark.stop()
    if len(texts) == len(DICTIONARIES):
        write_table("copied_settings", markdown(figures))


def measure(data: DataFrame, kafka: LocalKafka, work: Work, text: str, peer: str) -> Round:
    options = {f"kafka.{name}": value for name, value in (s.split("=") for s in text.split(", "))}
    changed = Work(work.name, work.rows, work.value_bytes, options)
    return write(data, peer, kafka.bootstrap_servers, changed, set(kafka.pids))


def markdown(figures: Figures) -> str:
    head = (
        "Rows",
        "Settings, each with `kafka.`",
        *(f"{peer}: M rows/s" for peer in PEERS),
        "ratio",
        *(f"{peer}: CPU us per row" for peer in PEERS),
    )
    rows = []
    for work in WORKS:
        for (name, text), peers in figures.items():
            if name == work.name and peers[OURS]:
                medians = [statistics.median(r.seconds for r in peers[peer]) for peer in PEERS]
                cpus = [statistics.median(r.cpu_seconds for r in peers[peer]) for peer in PEERS]
                rows.append(
                    (
                        name,
                        text,
                        *(f"{work.rows / seconds / 1e6:.2f}" for seconds in medians),
                        spread(ratios(peers[OURS], peers[SPARKS_OWN])),
                        *(f"{cpu / work.rows * 1e6:.2f}" for cpu in cpus),
                    )
                )
    return table(head, rows)


if __name__ == "__main__":
    main()
