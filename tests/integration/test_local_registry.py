"""A schema registry that starts, answers and always ends."""

from __future__ import annotations

import os
import signal

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from sink_command import sink_command
from waiting import wait_until

from spark_kafka_sink.errors import LocalServerError
from spark_kafka_sink.tools import local_registry
from spark_kafka_sink.tools.local_registry import LocalRegistry
from spark_kafka_sink.tools.local_servers.java import cache_folder
from spark_kafka_sink.tools.local_servers.processes import is_running

pytestmark = pytest.mark.slow

HOLDER = """
import sys
from spark_kafka_sink.tools.local_registry import LocalRegistry
with LocalRegistry() as registry:
    print(*registry.pids, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def fresh_cache(tmp_path, monkeypatch):
    """A cache folder that holds the program and nothing else."""
    name = f"apicurio-registry-app-{local_registry.APICURIO_VERSION}"
    fresh = tmp_path / "cache" / "spark-kafka-sink"
    fresh.mkdir(parents=True)
    if not (cache_folder() / name).exists():
        with LocalRegistry():
            pass
    (fresh / name).symlink_to(cache_folder() / name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(fresh.parent))
    return fresh


def test_it_ends_with_the_block_whatever_its_state():
    with LocalRegistry() as registry:
        with SchemaRegistryClient({"url": registry.url}) as client:
            assert client.register_schema("s", Schema('"string"', "AVRO")) == 1
        (pid,) = registry.pids
        folder = registry.folder
        assert (folder / "registry.log").exists()
        os.kill(pid, signal.SIGSTOP)
    assert not is_running(pid)
    assert not folder.exists()


def test_the_command_line_starts_reports_and_stops(fresh_cache):
    assert sink_command("registry", "status").stdout == "not running\n"
    started = sink_command("registry", "start")
    try:
        assert started.returncode == 0, started.stderr
        url = started.stdout.strip()
        with SchemaRegistryClient({"url": url}) as client:
            assert client.get_subjects() == []
        assert sink_command("registry", "status").stdout.strip() == url
        assert sink_command("registry", "start").stdout.strip() == url
    finally:
        stopped = sink_command("registry", "stop")
    assert stopped.stdout.startswith("stopped; logs and data stay in ")
    assert sink_command("registry", "stop").stdout == "not running\n"


def test_one_that_exits_during_startup_is_reported_with_its_log(tmp_path, monkeypatch):
    program = tmp_path / "program"
    program.mkdir()
    monkeypatch.setattr(local_registry, "fetch_archive", lambda *_, **__: program)

    def ends_when_asked(pid):
        wait_until(lambda: not is_running(pid))
        return False

    monkeypatch.setattr(local_registry, "is_running", ends_when_asked)
    registry = LocalRegistry(folder=tmp_path / "logs")
    message = r"(?s)exited during startup; see .*registry\.log.*quarkus-run\.jar"
    with pytest.raises(LocalServerError, match=message), registry:
        pass
    assert registry.pids == []
