"""A Kafka that starts, answers and always ends."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from operator import attrgetter
from unittest.mock import patch

import psutil
import pytest
import spark_jars
from confluent_kafka.admin import AdminClient
from sink_command import sink_command
from waiting import wait_until

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LocalServerError
from spark_kafka_sink.threads import call_all
from spark_kafka_sink.tools import local_kafka
from spark_kafka_sink.tools.local_kafka import LocalKafka, java_home
from spark_kafka_sink.tools.local_servers.downloads import fetch_jars
from spark_kafka_sink.tools.local_servers.java import cache_folder
from spark_kafka_sink.tools.local_servers.processes import is_running
from spark_kafka_sink.tools.local_servers.server import DetachedServer

pytestmark = pytest.mark.slow

HOLDER = """
import sys
from spark_kafka_sink.tools.local_kafka import LocalKafka
with LocalKafka() as kafka:
    print(*kafka.pids, flush=True)
    sys.stdin.read()
"""


def wait_until_ended(pids, seconds):
    wait_until(lambda: not any(map(is_running, pids)), seconds)


def test_a_port_that_was_taken_in_the_meantime_is_replaced_and_the_broker_ends_with_the_block():
    tried, free_ports = [], local_kafka.free_ports
    with socket.create_server(("127.0.0.1", 0)) as taken:

        def ports(count):
            tried.append(free_ports(count))
            if len(tried) == 1:
                tried[0][0] = taken.getsockname()[1]
            return tried[-1]

        with patch.object(local_kafka, "free_ports", ports), LocalKafka() as kafka:
            assert kafka.bootstrap_servers == f"127.0.0.1:{tried[1][0]}"
            pids, folder = kafka.pids, kafka.folder
    wait_until_ended(pids, 1)
    assert not folder.exists()


def test_the_storage_is_as_kafkas_own_tool_formats_it(tmp_path):
    def features(data):
        return re.findall(rb"[a-z.]+\.version\0.", (data / "bootstrap.checkpoint").read_bytes())

    def names(data):
        lines = (data / "meta.properties").read_text().splitlines()
        return {line.partition("=")[0] for line in lines if not line.startswith("#")}

    with LocalKafka(folder=tmp_path) as kafka:
        command = psutil.Process(kafka.pids[0]).cmdline()
    shutil.copytree(tmp_path / "data-1", ours := tmp_path / "ours")
    java = [command[0], "-cp", command[command.index("-cp") + 1], "kafka.tools.StorageTool"]
    shutil.rmtree(tmp_path / "data-1")
    arguments = ["-c", str(tmp_path / "server-1.properties"), "-t", "MkU3OEVBNTcwNTJENDM2Qg"]
    subprocess.run([*java, "format", *arguments], check=True, timeout=60)
    assert features(ours) == features(tmp_path / "data-1")
    assert names(ours) == names(tmp_path / "data-1")


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
    with pytest.raises(LocalServerError, match=r"(?s)many.*num\.partitions"), broken:
        pass
    assert broken.pids == []


def test_ports_are_free(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        monkeypatch.setattr(local_kafka, "_PORTS", range(number, number + 1))
        with pytest.raises(LocalServerError, match=f"no 1 ports of {number} to {number} are free"):
            local_kafka.free_ports(1)
    assert local_kafka.free_ports(1) == [number]


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch):
    """A cache folder that holds the downloads and nothing else."""
    cache = cache_folder()
    fresh = tmp_path / "cache" / "spark-kafka-sink"
    fresh.mkdir(parents=True)
    for downloaded in ("kafka_2.13-4.3.0", "log4j-slf4j-impl-2.25.4"):
        (fresh / downloaded).symlink_to(cache / downloaded)
    monkeypatch.setenv("XDG_CACHE_HOME", str(fresh.parent))
    return fresh


@pytest.fixture
def temporary_files(tmp_path, monkeypatch):
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_command_line_starts_reports_and_stops(fresh_cache, temporary_files, tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(java_home()))
    monkeypatch.setenv("COLUMNS", "80")  # ps cuts its lines to this width
    if sys.platform == "linux":  # which needs no ps
        for tool in ("sh", "sleep"):
            (tmp_path / tool).symlink_to(shutil.which(tool))
        monkeypatch.setenv("PATH", str(tmp_path))
    before = sink_command("kafka", "status")
    assert (before.returncode, before.stdout) == (1, "not running\n")
    started = sink_command("kafka", "start")
    try:
        assert started.returncode == 0, started.stderr
        servers = started.stdout.strip()
        admin = AdminClient({"bootstrap.servers": servers, "log_level": 2})
        assert len(admin.list_topics(timeout=10).brokers) == 1
        assert sink_command("kafka", "status").stdout.strip() == servers
        again = sink_command("kafka", "start")
        assert (again.returncode, again.stdout.strip()) == (0, servers)
    finally:
        stopped = sink_command("kafka", "stop")
    assert stopped.returncode == 0
    assert stopped.stdout.startswith("stopped; logs and data stay in ")
    assert sink_command("kafka", "stop").stdout == "not running\n"


def brokers_below(folder):
    """Process ids of the brokers whose data is in that folder."""
    answer = subprocess.run(
        ["ps", "-ww", "-e", "-o", "pid=,args="], capture_output=True, text=True, check=True
    )
    lines = [line for line in answer.stdout.splitlines() if "kafka.Kafka" in line]
    return [int(line.split()[0]) for line in lines if str(folder) in line]


def test_nothing_is_started_if_the_state_cannot_be_written(fresh_cache, temporary_files):
    (fresh_cache / "kafka.json").mkdir()
    for action in ("start", "stop", "status"):
        done = sink_command("kafka", action)
        assert done.returncode == 1
        assert done.stderr.startswith("error: ")
        assert "kafka.json'. Set XDG_CACHE_HOME to a folder" in done.stderr
    assert list(temporary_files.iterdir()) == []


def test_the_slower_of_two_starts_leaves_nothing_running(fresh_cache):
    pids = []

    class SlowKafka(LocalKafka):
        def __enter__(self):
            super().__enter__()
            pids.extend(self.pids)
            (fresh_cache / "kafka.json").touch()  # what the faster one writes
            return self

    with pytest.raises(LocalServerError, match="another `kafka start` finished first"):
        DetachedServer("kafka").start(SlowKafka(), attrgetter("bootstrap_servers"))
    assert len(pids) == 1
    wait_until_ended(pids, 1)


def test_a_start_that_is_killed_leaves_nothing_running(fresh_cache, temporary_files):
    start = subprocess.Popen([sys.executable, "-m", "spark_kafka_sink", "kafka", "start"], cwd="/")
    deadline = Deadline(60)
    with start:
        while not (brokers := brokers_below(temporary_files)):
            assert not deadline.expired
            time.sleep(0.05)
        start.kill()
    wait_until_ended(brokers, 10)


def test_processes_that_fetch_the_same_jars_at_once_do_not_disturb_each_other(fresh_cache, caplog):
    organisation, module, revision, digest = spark_jars.AVRO
    jar = f"{module}-{revision}.jar"

    def fetch(_):
        return fetch_jars(organisation, module, revision, {jar: digest}, transitive=False)

    calls = call_all(fetch, range(4), Deadline(120))
    assert [call.error for call in calls] == [None] * 4
    assert f"downloading {module}-{revision} to {fresh_cache}" in caplog.messages[0]
    shown = len(caplog.messages)
    fetch(0)  # from the cache
    assert len(caplog.messages) == shown
    (folder,) = {call.value for call in calls}
    assert [path.name for path in folder.iterdir()] == [jar]
    assert [path.name for path in fresh_cache.iterdir() if not path.is_symlink()] == [folder.name]


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(tmp_path):
    occupied = tmp_path / "a-file"
    occupied.touch()
    with pytest.raises(LocalServerError, match=r"a-file.*must be able to write to"):
        LocalKafka(folder=occupied).__enter__()
    with pytest.raises(LocalServerError, match=r"a-file.*must be able to write to"):
        LocalKafka(folder=occupied / "below").__enter__()
