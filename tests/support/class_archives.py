"""Makes an archive of the classes that Spark or Kafka loads (Java's AppCDS), for the tests.

With it, a Spark session takes less than half the CPU time to start. Argument: the archive,
spark.jsa or kafka.jsa. Java ignores an archive that does not suit it.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from pyspark.sql import SparkSession
from topics import Topics

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.tools.local_kafka import LocalKafka
from spark_kafka_sink.tools.local_servers.processes import is_running

SECONDS = 300.0


def main(archive: Path) -> None:
    variable, run = {
        "spark": ("SPARK_SUBMIT_OPTS", run_spark),
        "kafka": ("KAFKA_OPTS", run_kafka),
    }[archive.stem]
    options = os.environ.get(variable, "")
    os.environ[variable] = f"{options} -Xlog:disable -XX:ArchiveClassesAtExit={archive}"
    run()


def run_spark() -> None:
    """What most tests need, and an end in which Java can write."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2]").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    rows = rows.mapInArrow(lambda batches: batches, rows.schema).repartition(2)
    query = rows.writeStream.format("noop").start()
    deadline = Deadline(SECONDS)
    while not query.recentProgress and query.isActive:
        assert not deadline.expired
        time.sleep(0.1)
    query.stop()
    java = spark.sparkContext._gateway.proc
    spark.stop()
    java.stdin.close()
    java.wait(SECONDS)


def run_kafka() -> None:
    """A broker that has served some requests."""
    with LocalKafka() as kafka:
        topics = Topics(kafka.bootstrap_servers)
        topics.read(topics.create())
        topics.close()
        (pid,) = kafka.pids
        os.kill(pid, signal.SIGTERM)  # its guard would give it too little time
        deadline = Deadline(SECONDS)
        while is_running(pid):
            assert not deadline.expired
            time.sleep(0.1)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute())
