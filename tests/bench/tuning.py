"""What one setting changes: this sink with lz4, and with one more setting changed at a time.

Interleaved rounds, in changing order, of rows of 100 B and of 1 KB. Argument: rounds (default 4).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from common import AS_THEY_COME, OURS, argument, session, spread, table, write_table
from pyspark.sql import DataFrame, SparkSession
from throughput import Round, Work, ratios, source, write

from spark_kafka_sink.tools.local_kafka import LocalKafka

ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
ARROW_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
# Otherwise the peak memory would be that of several producers.
ALONE = {"producer.cache.timeout": "1ms"}


@dataclass(frozen=True)
class Variant:
    name: str
    settings: dict[str, str] = field(default_factory=dict)
    conf: dict[str, str] = field(default_factory=dict)


VARIANTS = (
    Variant("lz4, all else as it comes"),
    Variant("kafka.linger.ms=0", {"kafka.linger.ms": "0"}),
    Variant("kafka.linger.ms=50", {"kafka.linger.ms": "50"}),
    Variant("kafka.compression.type=none", {"kafka.compression.type": "none"}),
    Variant("kafka.compression.type=snappy", {"kafka.compression.type": "snappy"}),
    Variant("kafka.compression.type=zstd", {"kafka.compression.type": "zstd"}),
    Variant("kafka.buffer.memory=16 MiB", {"kafka.buffer.memory": str(2**24)}),
    Variant("kafka.buffer.memory=32 MiB", {"kafka.buffer.memory": str(2**25)}),
    Variant("kafka.buffer.memory=256 MiB", {"kafka.buffer.memory": str(2**28)}),
    Variant(f"{ARROW_ROWS}=2000", conf={ARROW_ROWS: "2000"}),
    Variant(f"{ARROW_ROWS}=50000", conf={ARROW_ROWS: "50000"}),
    Variant(f"{ARROW_BYTES}=1m", conf={ARROW_BYTES: "1m"}),
    Variant(f"{ARROW_BYTES}=4m", conf={ARROW_BYTES: "4m"}),
)
WORKS = (Work("100 B", 1_500_000, 100, {}), Work("1 KB", 500_000, 1000, {}))
WARMING_ROUNDS = 1  # of all variants


def main() -> None:
    rounds = argument(1, 4)
    figures: dict[str, dict[str, list[Round]]] = {}
    with LocalKafka() as kafka:
        spark = session()
        for work in WORKS:
            figures[work.name] = {variant.name: [] for variant in VARIANTS}
            data = source(spark, work)
            for number in range(-WARMING_ROUNDS, rounds):
                order = list(VARIANTS)
                random.Random(number).shuffle(order)
                for variant in order:
                    done = measure(spark, data, kafka, work, variant)
                    if number >= 0:
                        figures[work.name][variant.name].append(done)
            data.unpersist()
        spark.stop()
    rows = []
    for work in WORKS:
        base = figures[work.name][VARIANTS[0].name]
        for variant in VARIANTS:
            done = figures[work.name][variant.name]
            milliseconds = [run.seconds * 1000 for run in done]
            microseconds = [run.cpu_seconds / work.rows * 1e6 for run in done]
            rows.append(
                (
                    work.name,
                    variant.name,
                    spread(milliseconds, ".0f"),
                    spread(ratios(done, base)),
                    spread(microseconds),
                    f"{max(run.worker_peak_mib for run in done):.0f}",
                )
            )
    head = ("Rows", "Setting", "ms", "speed, ratio", "CPU us per row", "worker's peak MiB")
    write_table("tuning", table(head, rows))


def measure(
    spark: SparkSession, data: DataFrame, kafka: LocalKafka, work: Work, variant: Variant
) -> Round:
    settings = ALONE | AS_THEY_COME | variant.settings
    changed = Work(work.name, work.rows, work.value_bytes, settings)
    for name, value in variant.conf.items():
        spark.conf.set(name, value)
    done = write(data, OURS, kafka.bootstrap_servers, changed, set(kafka.pids))
    for name in variant.conf:
        spark.conf.unset(name)
    return done


if __name__ == "__main__":
    main()
