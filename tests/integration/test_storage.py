"""Brokers that die, whose disk is full, or whose log directory fails, in mid-stream."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import signal
import sys
import threading
import uuid
from base64 import urlsafe_b64encode
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import psutil
import pytest
from confluent_kafka import KafkaException, Producer
from exactly_once_sink import Process, Sink
from local_cluster import LocalCluster
from pyspark.errors import StreamingQueryException
from restarted_stream import EXACTLY_ONCE, SECONDS, RestartedStream
from waiting import wait_until

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import sink_error
from spark_kafka_sink.tools.local_kafka import wait_until_ready
from spark_kafka_sink.tools.local_servers.processes import is_running

NODES = (1, 2, 3)
SOONER = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "4000",
}
# Coordinators move too, which takes long on a busy machine.
PATIENT = {"kafka.max.block.ms": "60000", "close.timeout.ms": "60000"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),  # each broker starts up to four times
    pytest.mark.skipif(sys.platform != "linux", reason="a disk is full by Linux' prlimit"),
]


@pytest.fixture(scope="module")
def kafka():
    """Three brokers with two log directories each; the second one holds no metadata."""
    with LocalCluster(3, SOONER) as kafka:
        for node in NODES:
            properties = kafka.folder / f"server-{node}.properties"
            own = f"log.dirs={kafka.folder}/data-{node}"
            assert own in properties.read_text()
            both = f"{own},{second(kafka, node)}"
            properties.write_text(properties.read_text().replace(own, both))
            format_second(kafka, node)
            start(kafka, node)
        yield kafka


def format_second(kafka, node):
    second(kafka, node).mkdir()
    first = (kafka.folder / f"data-{node}" / "meta.properties").read_text()
    directory = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    meta = re.sub(r"directory\.id=.*", f"directory.id={directory}", first)
    (second(kafka, node) / "meta.properties").write_text(meta)


def second(kafka, node):
    return kafka.folder / f"second-{node}"


def start(kafka, node):
    kafka.restart(node)
    wait_until_ready(kafka.internal_servers, lambda: None, Deadline(SECONDS), str(kafka.folder))


def topic_in_second(kafka, topics):
    """A topic whose leader has it in its second log directory: brokers choose either."""
    for _ in range(20):
        topic = topics.create(replicas=3, config={"segment.ms": "100"})
        [leader] = topics.leaders(topic)
        if (second(kafka, leader) / f"{topic}-0").is_dir():
            return topic, leader
    raise AssertionError("all topics are in the first log directory")


@pytest.fixture
def stream(spark, tmp_path):
    """With exactly-once, for which coordinators move too; chaos has the others."""
    stream = RestartedStream(spark, tmp_path, EXACTLY_ONCE)
    yield stream
    stream.stop()


def write(stream, options, word):
    """Tasks may reach their deadline before another broker coordinates their transactions."""
    with other_transactions(options["kafka.bootstrap.servers"]):
        try:
            stream.write(word)
        except StreamingQueryException as error:
            if not sink_error(str(error)).startswith("DeadlineExceeded: "):
                raise
            stream.start(options)
            stream.query.processAllAvailable()


@contextmanager
def other_transactions(servers):
    """As in a cluster that has other users: write to the logs of all transaction coordinators.

    A coordinator that waits for its followers while one loses its log directory may wait until it
    writes again: its high watermark increases only with a write, or with a follower's progress.
    """
    ended = threading.Event()

    def begin():
        for number in itertools.cycle(range(16)):
            settings = {"bootstrap.servers": servers, "transactional.id": f"other-{number}"}
            with suppress(KafkaException):  # its coordinator is away
                Producer(settings | {"log_level": 2}).init_transactions(2)
            if ended.wait(0.1):
                return

    with ThreadPoolExecutor() as pool:
        beginning = pool.submit(begin)
        try:
            yield
        finally:
            ended.set()
            beginning.result(SECONDS)


def check(topics, topic, words):
    assert sorted(value.decode() for value in topics.read_committed(topic)) == sorted(words)


def test_a_leader_whose_disk_is_full_ends_and_the_stream_goes_on(kafka, topics, stream):
    topic = topics.create(replicas=3)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic} | PATIENT
    stream.start(options)
    stream.write("before")
    topics.wait_until_in_sync()  # or a partition may stay without a leader
    [leader] = topics.leaders(topic)
    broker = kafka.pids[leader - 1]
    # Writes fail, as on a full disk (EFBIG instead of ENOSPC).
    psutil.Process(broker).rlimit(psutil.RLIMIT_FSIZE, (1, psutil.RLIM_INFINITY))
    write(stream, options, "with a full disk")
    wait_until(lambda: not is_running(broker), SECONDS)
    start(kafka, leader)
    stream.write("after")
    check(topics, topic, ["before", "with a full disk", "after"])


def test_when_a_log_directory_fails_another_broker_leads_the_stream_goes_on(kafka, topics, stream):
    topic, leader = topic_in_second(kafka, topics)
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "topic": topic} | PATIENT
    stream.start(options)
    stream.write("before")
    topics.wait_until_in_sync()  # or a partition may stay without a leader
    folder = second(kafka, leader)
    lost = folder.rename(folder.with_suffix(".lost"))
    folder.touch()  # the next segment cannot be created
    try:
        write(stream, options, "with a failed log directory")
        assert topics.leaders(topic) != [leader]
        assert is_running(kafka.pids[leader - 1])
    finally:
        folder.unlink()
        shutil.move(lost, folder)
        start(kafka, leader)
    stream.write("after")
    check(topics, topic, ["before", "with a failed log directory", "after"])


def test_a_coordinator_that_dies_during_the_commit(kafka, topics):
    sink = Sink(kafka.bootstrap_servers, topics, replicas=3)
    task = Process(sink, 0, 0, ["0-a", "0-b"], "committing")
    topics.wait_until_in_sync()  # or the coordinator's partition may stay without a leader
    number = java_hash(sink.group(0)) % 4
    leader = topics.leaders("__transaction_state")[number]
    os.kill(kafka.pids[leader - 1], signal.SIGKILL)
    assert task.go_on() == "written"
    assert sink.write(0, 0, ["0-a", "0-b"]).total_sent == 0
    assert sink.write_batch(0) == sink.committed()
    start(kafka, leader)


def java_hash(text):
    """As brokers choose a transaction's coordinator (``Utils.abs(id.hashCode)``)."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF if value < 2**31 else (2**32 - value) & 0x7FFFFFFF
