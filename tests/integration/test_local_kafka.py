"""A Kafka that starts, answers and always ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from confluent_kafka.admin import AdminClient

from spark_kafka_sink.errors import LocalKafkaError
from spark_kafka_sink.local_kafka.cluster import LocalKafka, is_running
from spark_kafka_sink.local_kafka.java_runtime import cache_folder

HOLDER = """
import sys
from spark_kafka_sink.local_kafka import LocalKafka
with LocalKafka() as kafka:
    print(*kafka.pids, flush=True)
    sys.stdin.read()
"""


def wait_until_ended(pids, seconds):
    end = time.monotonic() + seconds
    while any(is_running(pid) for pid in pids):
        assert time.monotonic() < end, f"still running: {pids}"
        time.sleep(0.05)  # nobody tells a stranger when a process ends


def test_three_brokers_form_a_cluster_and_end_with_the_block():
    with LocalKafka(brokers=3) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 2})
        assert len(admin.list_topics(timeout=10).brokers) == 3
        pids = kafka.pids
        folder = kafka.folder
        assert len(pids) == 3
        assert all(
            "Kafka Server started" in (folder / f"broker-{n}.log").read_text() for n in (1, 2, 3)
        )
    wait_until_ended(pids, 1)
    assert not folder.exists()


@pytest.mark.parametrize("state", ["running", "stopped"])
def test_brokers_end_when_their_holder_is_killed(state):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        pids = [int(pid) for pid in holder.stdout.readline().split()]
        assert all(map(is_running, pids))
        if state == "stopped":
            os.kill(pids[0], signal.SIGSTOP)
        holder.kill()
    wait_until_ended(pids, 10)


def test_a_broker_that_cannot_start_is_reported_with_its_log():
    broken = LocalKafka(settings={"num.partitions": "many"})
    with pytest.raises(LocalKafkaError, match=r"(?s)many.*num\.partitions"), broken:
        pass
    assert broken.pids == []


def test_only_one_or_three_brokers():
    with pytest.raises(ValueError, match="1 or 3, not 2"):
        LocalKafka(brokers=2)


def test_command_line_starts_tells_and_stops(tmp_path):
    cache = cache_folder()
    (tmp_path / "spark-kafka-sink").mkdir()
    for downloaded in ("kafka_2.13-4.3.0", "log4j-slf4j-impl-2.25.4"):
        (tmp_path / "spark-kafka-sink" / downloaded).symlink_to(cache / downloaded)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}

    def command(action):
        return subprocess.run(
            [sys.executable, "-m", "spark_kafka_sink", "kafka", action],
            capture_output=True,
            text=True,
            env=environment,
            timeout=60,
            check=False,
        )

    before = command("status")
    assert (before.returncode, before.stdout) == (1, "not running\n")
    started = command("start")
    try:
        assert started.returncode == 0, started.stderr
        servers = started.stdout.strip()
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
        assert len(admin.list_topics(timeout=10).brokers) == 1
        assert command("status").stdout.strip() == servers
        again = command("start")
        assert again.returncode == 1
        assert f"already running at {servers}" in again.stderr
    finally:
        stopped = command("stop")
    assert stopped.returncode == 0
    assert stopped.stdout.startswith("stopped; logs and data stay in ")
    assert command("stop").stdout == "not running\n"
