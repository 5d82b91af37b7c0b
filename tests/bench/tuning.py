"""What one setting changes: this sink with its defaults, and with one setting changed at a time.

Interleaved rounds, rows of 100 B and 1 KB. Argument: rounds (default 5).
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field

from common import OURS, create_topics, delete_topics, session, spread, table, write_figures
from pyspark.sql import SparkSession
from throughput import Work, reset_peaks, saving, source, worker_peak_mib

from spark_kafka_sink.local_kafka import LocalKafka

ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"


@dataclass(frozen=True)
class Variant:
    name: str
    settings: dict[str, str] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)


VARIANTS = (
    Variant("as it comes"),
    Variant("kafka.linger.ms=0", {"kafka.linger.ms": "0"}),
    Variant("kafka.linger.ms=50", {"kafka.linger.ms": "50"}),
    Variant("kafka.batch.size=16384", {"kafka.batch.size": "16384"}),
    Variant("kafka.batch.size=200000", {"kafka.batch.size": "200000"}),
    Variant("kafka.compression.type=lz4", {"kafka.compression.type": "lz4"}),
    Variant("kafka.compression.type=snappy", {"kafka.compression.type": "snappy"}),
    Variant("kafka.compression.type=zstd", {"kafka.compression.type": "zstd"}),
    Variant("kafka.buffer.memory=16 MiB", {"kafka.buffer.memory": str(2**24)}),
    Variant("kafka.buffer.memory=256 MiB", {"kafka.buffer.memory": str(2**28)}),
    Variant(f"{ARROW_ROWS}=2000", conf={ARROW_ROWS: "2000"}),
    Variant(f"{ARROW_ROWS}=50000", conf={ARROW_ROWS: "50000"}),
)
WORKS = (Work("100 B", 1_000_000, 100, {}), Work("1 KB", 300_000, 1000, {}))
WARMING_ROUNDS = 2


def main() -> None:
    rounds = int(sys.argv[1]) if sys.argv[1:] else 5
    figures: dict[str, dict[str, list[dict[str, float]]]] = {}
    with LocalKafka() as kafka:
        spark = session()
        for work in WORKS:
            figures[work.name] = {variant.name: [] for variant in VARIANTS}
            data = source(spark, work)
            for number in range(-WARMING_ROUNDS, rounds):
                for variant in VARIANTS:
                    done = measure(spark, data, kafka.bootstrap_servers, work, variant)
                    if number >= 0:
                        figures[work.name][variant.name].append(done)
            data.unpersist()
        spark.stop()
    rows = []
    for work in WORKS:
        base = figures[work.name][VARIANTS[0].name]
        for variant in VARIANTS:
            done = figures[work.name][variant.name]
            ratios = [b["seconds"] / a["seconds"] for a, b in zip(done, base, strict=True)]
            peak = max(each["worker_peak_mib"] for each in done)
            speeds = [work.rows / each["seconds"] / 1e6 for each in done]
            rows.append((work.name, variant.name, spread(speeds), spread(ratios), f"{peak:.0f}"))
    head = ("Rows", "Setting", "M rows/s", "ratio to as it comes", "worker's peak MiB")
    write_figures("tuning", figures, table(head, rows))


def measure(
    spark: SparkSession, data, servers: str, work: Work, variant: Variant
) -> dict[str, float]:
    prefix = f"tuning-{time.monotonic_ns()}-"
    create_topics(servers, [f"{prefix}0"], work.partitions)
    changed = Work(work.name, work.rows, work.value_bytes, variant.settings)
    save = saving(data, OURS, servers, changed, prefix)
    for name, value in variant.conf.items():
        spark.conf.set(name, value)
    reset_peaks()
    started = time.monotonic()
    save()
    seconds = time.monotonic() - started
    for name in variant.conf:
        spark.conf.unset(name)
    delete_topics(servers, [f"{prefix}0"])
    return {"seconds": seconds, "worker_peak_mib": worker_peak_mib()}


if __name__ == "__main__":
    main()
