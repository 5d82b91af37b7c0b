"""Runs a program of a page, with the Python of this one, until its records are in Kafka.

``quick_start.py PROGRAM FOLDER``: the file, and a folder that replaces ``/tmp``. Needs nothing but
the installed package. ``KAFKA_BOOTSTRAP_SERVERS`` is a Kafka of its own.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from confluent_kafka import Consumer

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.tools.local_kafka import LocalKafka

SECONDS = 300.0  # for Spark's start, and the first rows of its source "rate"
TOPIC = "numbers"
EXPECTED = {b"0", b"1", b"2"}


def wait_for_records(bootstrap_servers: str, program: subprocess.Popen[bytes]) -> None:
    """Returns when all the expected records have arrived; raises SystemExit if they do not."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "quick-start",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 1000,  # the program creates the topic
        }
    )
    consumer.subscribe([TOPIC])
    missing = set(EXPECTED)
    deadline = Deadline(SECONDS)
    while missing:
        if deadline.expired:
            raise SystemExit(f"not in the topic {TOPIC} after {SECONDS:.0f} s: {missing}")
        if program.poll() is not None:
            raise SystemExit(f"the program ended with exit code {program.returncode}")
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            missing.discard(message.value())
    consumer.close()


def main() -> None:
    file, folder = sys.argv[1:]
    with LocalKafka() as kafka:
        text = Path(file).read_text(encoding="utf-8").replace("/tmp", folder)
        # On a busy machine, Spark may need longer for its start than a reader would wait.
        text = re.sub(r"awaitTermination\(\d+\)", f"awaitTermination({SECONDS})", text)
        # In a group of its own, because Spark is several processes.
        program = subprocess.Popen(
            [sys.executable, "-c", text],
            env=os.environ | {"KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers},
            start_new_session=True,
        )
        try:
            wait_for_records(kafka.bootstrap_servers, program)
        finally:
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


if __name__ == "__main__":
    main()
