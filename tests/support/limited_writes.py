"""Writes with several producers under a limit; prints how many wrote, or the error's name and text.

Arguments: bootstrap servers, the number of producers, and one of these limits: ``memory`` with the
MiB that the process may reserve in addition, or ``threads``, which allows no more.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import pyarrow as pa

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.producer import cache
from spark_kafka_sink.records import arrow
from spark_kafka_sink.spark.task import write_partition
from spark_kafka_sink.threads import call_all

LOADED_BEFORE = (cache, arrow)  # tasks load them, but nobody may be unable to
NOBODY = 54321  # root is not limited


def limit_memory(mib: int) -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + (mib << 20)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def limit_threads() -> None:
    if os.geteuid() == 0:
        os.setuid(NOBODY)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))


def main(servers: str, producers: int, limit: str, mib: str = "0") -> None:
    settings = {
        "kafka.bootstrap.servers": servers,
        "topic": "t",
        "kafka.enable.idempotence": "false",  # the mock broker delays producer ids
    }
    options = [parse({**settings, "kafka.linger.ms": str(number)}) for number in range(producers)]
    batch = pa.record_batch({"value": pa.array([b"x" * 100] * 1000)})
    limit_threads() if limit == "threads" else limit_memory(int(mib))
    try:
        if producers:
            reports = [write_partition([batch], sink_options) for sink_options in options]
            print(*(report.acknowledged_records.total() for report in reports))
        else:
            call_all(print, ["no client"], Deadline(10))
    except KafkaSinkError as error:
        print(f"{type(error).__name__}: {error}")


main(sys.argv[1], int(sys.argv[2]), *sys.argv[3:])
