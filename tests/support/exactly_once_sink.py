"""A sink with exactly-once on a real Kafka, and tasks that write to it."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path

import exactly_once_task
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient
from topics import Topics

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.spark.micro_batch import write_batch_marker
from spark_kafka_sink.transactions import claim

SECONDS = 60.0
QUERY = "a-query"
PREFIX = f"kafka-nb-{QUERY}"
TASK = Path(exactly_once_task.__file__)
SETTINGS = {
    "auto.create.topics.enable": "false",
    # How often brokers look for transactions whose time is up; 10 s by default.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}


def shorten_claims(monkeypatch):
    """For tests in which the first task of a stage is often not the first to run."""
    timing = claim.ClaimTiming(
        stalled_after_seconds=2.0,
        head_start_fraction=0.005,
        announcement_seconds=0.1,
        open_claim_seconds=0.3,
    )
    monkeypatch.setattr(claim, "TIMING", timing)


class Sink:
    """A topic, the options that write to it, and what is in it."""

    def __init__(self, servers: str, topics: Topics, replicas: int = 1, name: str = "") -> None:
        self.topics = topics
        self.topic = topics.create(2, replicas=replicas, name=name)
        #: of the tasks
        self.stage = "a stage"
        self.options = {
            "kafka.bootstrap.servers": servers,
            "topic": self.topic,
            "delivery.guarantee": "exactly-once",
            "exactly.once.partitions": "2",
            "transactional.id.prefix": f"{PREFIX}-{self.topic}",
        }

    def options_with(self, **options):
        """The options, and others with ``_`` in place of each dot."""
        return self.options | {name.replace("_", "."): value for name, value in options.items()}

    def write(self, batch_id, partition, values, **options):
        options = self.options_with(**options)
        return exactly_once_task.write(options, batch_id, partition, values, self.stage)

    def write_batch_marker(self, batch_id, tasks=2):
        write_batch_marker(parse(self.options), QUERY, batch_id, tasks)

    def write_batch(self, batch_id):
        """A whole micro-batch; returns its records."""
        self.write(batch_id, 0, [f"{batch_id}-a", f"{batch_id}-b"])
        self.write(batch_id, 1, [f"{batch_id}-c"])
        self.write_batch_marker(batch_id)
        return [f"{batch_id}-{letter}" for letter in "abc"]

    def group(self, name):
        return f"{self.options['transactional.id.prefix']}.{name}"

    def wait_until_forgotten(self, *names):
        """Wait until the brokers have removed these groups' entries of the ledger."""
        admin = AdminClient({"bootstrap.servers": self.topics.bootstrap_servers, "log_level": 2})
        deadline = Deadline(SECONDS)
        for name in names:
            group = ConsumerGroupTopicPartitions(self.group(name))
            while True:
                [answer] = admin.list_consumer_group_offsets([group]).values()
                if not answer.result(SECONDS).topic_partitions:
                    break
                assert not deadline.expired, f"{group.group_id} is still there"
                time.sleep(0.1)  # there is no event when it is gone

    def committed(self):
        """All committed values, once no transaction is open."""
        return sorted(value.decode() for value in self.topics.read_committed(self.topic))


class Process:
    """A task in a process of its own."""

    def __init__(self, sink, batch_id, partition, values, point="", **options):
        argument = {
            "options": sink.options_with(**options),
            "batch_id": batch_id,
            "partition": partition,
            "values": values,
            "stage": sink.stage,
            "point": point,
        }
        self._process = subprocess.Popen(
            [sys.executable, TASK, json.dumps(argument)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if point:
            assert self.line() == point

    def line(self):
        timer = threading.Timer(SECONDS, self._process.kill)
        timer.start()
        try:
            return self._process.stdout.readline().strip()
        finally:
            timer.cancel()

    def go_on(self):
        """Let it continue where it stopped; returns its last output."""
        print(file=self._process.stdin, flush=True)
        return self.end()

    def end(self):
        said = self.line()
        assert self._process.wait(SECONDS) == 0
        self._close()
        return said

    @property
    def pid(self):
        return self._process.pid

    def kill(self):
        self._process.kill()
        self._process.wait(SECONDS)
        self._close()

    def _close(self):
        self._process.stdin.close()
        self._process.stdout.close()
