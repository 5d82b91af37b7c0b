"""The brokers of the battery: how each one starts, and what it cannot do."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

import pytest

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LocalServerError
from spark_kafka_sink.tools.local_kafka import (
    free_ports,
    java_home,
    server_properties,
    wait_until_ready,
    write_properties,
)
from spark_kafka_sink.tools.local_servers.downloads import fetch_jars
from spark_kafka_sink.tools.local_servers.processes import GuardedProcess, is_running, send_signal

_FOLDER = Path(__file__).parent
#: brokers of all versions log through SLF4J 1.7, and none brings what it logs with
_LOG = (
    "org.slf4j",
    "slf4j-simple",
    "1.7.36",
    "2f39bed943d624dfa8f4102d0571283a10870b6aa36f197a8a506f147010c10f",
)
_START_SECONDS = 120.0
_BUILD_SECONDS = 300.0
_CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"  # an identifier of Kafka's
_SETTINGS = {"auto.create.topics.enable": "false"}
_ZOOKEEPER_SETTINGS = {
    "process.roles": "",
    "controller.quorum.voters": "",
    "controller.listener.names": "",
    # A broker that was killed keeps its place for so long.
    "zookeeper.session.timeout.ms": "6000",
}

#: what runs a node, the broker last: from its folder, and from two ports, the broker's first
_Commands = Callable[[Path, Sequence[int]], list[list[str]]]


@dataclass(frozen=True)
class BrokerKind:
    name: str
    commands: _Commands
    #: the topic setting that limits timestamps; None: it has none
    timestamp_limit: str | None
    #: whether it rejects a record without a key for a compacted topic
    requires_keys: bool = True


class Broker:
    """One running node, for ``with Broker(kind, folder) as broker``."""

    def __init__(self, kind: BrokerKind, folder: Path) -> None:
        self.kind = kind
        self._folder = folder
        self._processes: list[GuardedProcess] = []

    def __enter__(self) -> Broker:
        ports = free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{ports[0]}"
        self._commands = self.kind.commands(self._folder, ports)
        self._processes = [self._run(number) for number in range(len(self._commands))]
        try:
            self._wait_until_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for process in reversed(self._processes):
            process.end()

    def kill(self) -> None:
        """As if the machine had failed; returns once it is gone."""
        pid = self._processes[-1].pid
        send_signal(pid, signal.SIGKILL)
        deadline = Deadline(_START_SECONDS)
        while is_running(pid):
            assert not deadline.expired
            time.sleep(0.01)  # there is no event for a process that is not our child

    def restart(self) -> None:
        """Start it again with its data, after ``kill``."""
        self._processes[-1].end()
        self._processes[-1] = self._run(-1)
        self._wait_until_ready()

    def _run(self, number: int) -> GuardedProcess:
        return GuardedProcess(self._commands[number], self._log)

    def _wait_until_ready(self) -> None:
        deadline = Deadline(_START_SECONDS)
        wait_until_ready(self.bootstrap_servers, self._keep_running, deadline, str(self._log))

    def _keep_running(self) -> None:
        """ZooKeeper rejects a broker until it has noticed the end of the former one."""
        if not is_running(self._processes[-1].pid):
            if "NodeExists" not in (text := self._log.read_text(errors="replace")):
                raise LocalServerError(f"{self.kind.name} ended: {text[-3000:]}")
            self._processes[-1].end()
            self._processes[-1] = self._run(-1)

    @property
    def _log(self) -> Path:
        return self._folder / "log"


def _kraft(version: str, folder: Path, ports: Sequence[int]) -> list[list[str]]:
    java = _java(version)
    server = folder / "server.properties"
    write_properties(server, server_properties(*ports, folder / "data") | _SETTINGS)
    tool = [*java, "kafka.tools.StorageTool", "format", f"--cluster-id={_CLUSTER}", "-c", server]
    subprocess.run(tool, stdout=subprocess.DEVNULL, check=True, timeout=_START_SECONDS)
    return [[*java, "kafka.Kafka", str(server)]]


def _zookeeper(version: str, folder: Path, ports: Sequence[int]) -> list[list[str]]:
    port, zookeeper = ports
    settings = folder / "zookeeper.properties"
    settings.write_text(
        f"dataDir={folder / 'zookeeper'}\nclientPort={zookeeper}\nclientPortAddress=127.0.0.1\n"
        "tickTime=500\nadmin.enableServer=false\n"
    )
    added = _SETTINGS | _ZOOKEEPER_SETTINGS
    added |= {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    added |= {"broker.id": "1", "zookeeper.connect": f"127.0.0.1:{zookeeper}"}
    server = folder / "server.properties"
    write_properties(server, server_properties(port, zookeeper, folder / "data") | added)
    java = _java(version)
    return [
        [*java, "org.apache.zookeeper.server.ZooKeeperServerMain", str(settings)],
        [*java, "kafka.Kafka", str(server)],
    ]


def _java(version: str) -> list[str]:
    lines = (_FOLDER / f"kafka-{version}.sha256").read_text().splitlines()
    checksums = {jar: digest for digest, jar in map(str.split, lines)}
    kafka = fetch_jars("org.apache.kafka", "kafka_2.13", version, checksums)
    log = fetch_jars(*_LOG[:3], {"-".join(_LOG[1:3]) + ".jar": _LOG[3]}, transitive=False)
    options = shlex.split(os.environ.get("KAFKA_OPTS", ""))
    class_path = f"{kafka}/*{os.pathsep}{log}/*"
    return [str(java_home() / "bin" / "java"), *options, "-Xmx512m", "-cp", class_path]


def _kfake(folder: Path, ports: Sequence[int]) -> list[list[str]]:
    go = shutil.which("go", path=f"{os.environ['PATH']}{os.pathsep}/usr/local/go/bin")
    if go is None:
        pytest.skip("Go, which builds kfake, is not installed")
    program = folder / "kfake"
    build = [go, "build", "-buildvcs=false", "-o", str(program), "."]
    subprocess.run(build, cwd=_FOLDER / "kfake", timeout=_BUILD_SECONDS, check=True)
    return [[str(program), str(folder), str(ports[0])]]


BROKERS = (
    BrokerKind("kafka-2.8.2", partial(_zookeeper, "2.8.2"), "message.timestamp.difference.max.ms"),
    BrokerKind("kafka-3.9.1", partial(_kraft, "3.9.1"), "message.timestamp.difference.max.ms"),
    BrokerKind("kafka-4.4.0", partial(_kraft, "4.4.0"), "message.timestamp.after.max.ms"),
    BrokerKind("kfake", _kfake, timestamp_limit=None, requires_keys=False),
)
