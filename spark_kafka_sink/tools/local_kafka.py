"""LocalKafka: a real Apache Kafka on this machine, for demos and tests.

One KRaft node on free loopback ports. It ends with the process that started it, even if that is
killed, unless it is detached.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import socket
import time
import uuid
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from importlib.resources import files
from pathlib import Path

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LocalServerError
from spark_kafka_sink.libraries import importing
from spark_kafka_sink.tools.local_servers.downloads import fetch_jars
from spark_kafka_sink.tools.local_servers.java import java_home, os_errors_as
from spark_kafka_sink.tools.local_servers.processes import GuardedProcess, is_running
from spark_kafka_sink.tools.local_servers.server import LocalServer

__all__ = ["LocalKafka", "java_home"]

KAFKA_VERSION = "4.3.0"
_LOG4J_VERSION = "2.25.4"  # as in Kafka, which lacks the bridge from SLF4J
_START_SECONDS = 60.0
_START_TRIES = 3
# Below the ports that operating systems choose. While clients wait for a broker to listen, such a
# port could go to another server, or to one of these clients, which would then connect to itself.
_PORTS = range(20_000, 32_000)
_INSTEAD = (
    "To use an existing broker instead, set KAFKA_BOOTSTRAP_SERVERS=host:port "
    "(demo and tests create topics on it and delete them)"
)
# What Kafka's tool for storage, which takes a second or two, writes into the folder of each node:
# the levels of a new cluster's features. A test compares it with the tool of KAFKA_VERSION.
_CHECKPOINT = (
    "AAAAAAAAAAAAAABHAAAAAAJGfQW4ACAAAAAAAAABoh7TD3kAAAGiHtMPef//////////////////AAAAASoAAAAIAAAA"
    "AxYAAAAAAAAAAAAAAAAAAAAAAAAAAQAAAPEAAAAAAhjTH9IAAAAAAAUAAAGiHtMPwQAAAaIe0w/B////////////////"
    "//8AAAAGOgAAAAEuAQwAEW1ldGFkYXRhLnZlcnNpb24AHgAAWgAAAgFOAQwAIWVsaWdpYmxlLmxlYWRlci5yZXBsaWNh"
    "cy52ZXJzaW9uAAEAADQAAAQBKAEMAA5ncm91cC52ZXJzaW9uAAEAADQAAAYBKAEMAA5zaGFyZS52ZXJzaW9uAAEAADgA"
    "AAgBLAEMABBzdHJlYW1zLnZlcnNpb24AAQAAQAAACgE0AQwAFHRyYW5zYWN0aW9uLnZlcnNpb24AAgAAAAAAAAAAAAcA"
    "AAA/AAAAAALPnmWjACAAAAAAAAABoh7TD8IAAAGiHtMPwv//////////////////AAAAARoAAAAIAAAABAYAAAAA"
)
_LOG4J2 = """
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
"""


class LocalKafka(LocalServer):
    """A Kafka for ``with LocalKafka() as kafka``; its address is ``kafka.bootstrap_servers``.

    - ``settings``: added to the broker's ``server.properties``.
    - ``folder``: keeps data and the log (``broker-1.log``). The default is a temporary folder,
      which is removed at the end unless the broker did not start.

    Entering takes a few seconds, and downloads 44 MB the first time. Raises LocalServerError.
    """

    def __init__(
        self, settings: Mapping[str, str] | None = None, folder: Path | None = None
    ) -> None:
        super().__init__("kafka", folder)
        self._settings = dict(settings or {})
        self.bootstrap_servers = ""

    def __enter__(self) -> LocalKafka:
        java = str(java_home() / "bin" / "java")  # before the download: it may be missing
        path = class_path()
        for attempt in range(1, _START_TRIES + 1):
            try:
                with os_errors_as(f"Kafka must be able to write to {self.folder}"):
                    self._start(java, path)
                break
            except BaseException as error:
                self.stop()
                if attempt == _START_TRIES or not isinstance(error, _PortTaken):
                    raise
                self._clear()
        return self

    def _clear(self) -> None:
        """Remove what a failed start has written, with its ports."""
        for data in self.folder.glob("data-*"):
            shutil.rmtree(data, ignore_errors=True)
        for log in self.folder.glob("broker-*.log"):
            log.unlink()

    def _start(self, program: str, path: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        logging = self.folder / "log4j2.properties"
        logging.write_text(_LOG4J2)
        configurations = self._write_configurations()
        # Kafka's own scripts read Java's options from this variable, too.
        options = shlex.split(os.environ.get("KAFKA_OPTS", ""))
        java = [program, *options, "-Xms256m", "-Xmx1g"]
        java += [f"-Dlog4j2.configurationFile={logging}", "-cp", path]
        format_storage(self.folder, len(configurations))
        for node, configuration in enumerate(configurations, 1):
            command = [*java, "kafka.Kafka", str(configuration)]
            self._processes.append(GuardedProcess(command, self._log(node)))
        self._wait_until_ready()

    def _write_configurations(self) -> list[Path]:
        """Choose ports, write each node's ``server.properties``, and set the address."""
        broker, controller = free_ports(2)
        self.bootstrap_servers = f"127.0.0.1:{broker}"
        path = self.folder / "server-1.properties"
        data = self.folder / "data-1"
        write_properties(path, server_properties(broker, controller, data) | self._settings)
        return [path]

    def _wait_until_ready(self) -> None:
        deadline = Deadline(_START_SECONDS)
        wait_until_ready(self.bootstrap_servers, self._check_alive, deadline, str(self._log("*")))

    def _check_alive(self) -> None:
        for node, broker in enumerate(self._processes, 1):
            if not is_running(broker.pid):
                log = self._log(node).read_text(errors="replace")
                error = _PortTaken if "Address already in use" in log else LocalServerError
                raise error(
                    f"broker {node} exited during startup; see {self._log(node)}\n{log[-1500:]}"
                )

    def _log(self, node: int | str) -> Path:
        return self.folder / f"broker-{node}.log"


class _PortTaken(LocalServerError):
    """Another process took a port after we chose it and before the broker bound it."""


# --- before the start -----------------------------------------------------------------------------


def class_path() -> str:
    """The JARs of Kafka and of its log, fetched if they are not in the cache."""
    kafka = fetch_jars(
        "org.apache.kafka",
        "kafka_2.13",
        KAFKA_VERSION,
        _checksums(f"kafka-{KAFKA_VERSION}"),
        instead=_INSTEAD,
    )
    logging = fetch_jars(
        "org.apache.logging.log4j",
        "log4j-slf4j-impl",
        _LOG4J_VERSION,
        _checksums(f"log4j-slf4j-impl-{_LOG4J_VERSION}"),
        transitive=False,
        instead=_INSTEAD,
    )
    return os.pathsep.join([str(kafka / "*"), str(logging / "*")])


def _checksums(name: str) -> dict[str, str]:
    text = (files("spark_kafka_sink.tools.local_servers") / f"{name}.sha256").read_text()
    return {jar: digest for digest, jar in (line.split() for line in text.splitlines())}


def free_ports(count: int) -> list[int]:
    """Loopback ports that nothing uses now."""
    with ExitStack() as stack:
        ports: list[int] = []
        for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
            with suppress(OSError):  # it is in use
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise LocalServerError(f"no {count} ports of {_PORTS[0]} to {_PORTS[-1]} are free")


def server_properties(broker: int, controller: int, data: Path) -> dict[str, str]:
    """The settings of a single node with these ports, and with its data in ``data``."""
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}",
        "log.dirs": str(data),
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "group.initial.rebalance.delay.ms": "0",
        # A controller without work writes no records, which take half of an idle broker's CPU time.
        "metadata.max.idle.interval.ms": "0",
        # Retention is based on record timestamps, and demos and tests write old ones.
        "log.retention.ms": "-1",
    }


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a file in the format of Java's properties."""
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))


def format_storage(folder: Path, nodes: int) -> None:
    """Format ``data-1`` and so on, which are a new cluster's, as Kafka's tool for storage would.

    What is formatted stays as it is.
    """
    cluster = _random_id()
    for node in range(1, nodes + 1):
        data = folder / f"data-{node}"
        if not (data / "meta.properties").exists():
            data.mkdir(exist_ok=True)
            (data / "bootstrap.checkpoint").write_bytes(b64decode(_CHECKPOINT))
            identity = {"version": "1", "cluster.id": cluster, "node.id": str(node)}
            identity["directory.id"] = _random_id()
            write_properties(data / "meta.properties", identity)


def _random_id() -> str:
    return urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


# --- after the start ------------------------------------------------------------------------------


def wait_until_ready(
    bootstrap_servers: str, check_alive: Callable[[], None], deadline: Deadline, logs: str
) -> None:
    """Wait until as many brokers as ``bootstrap_servers`` names form a cluster.

    ``check_alive`` is called in every round and may raise to end the wait. At the deadline,
    raises LocalServerError, which points to ``logs``.
    """
    for server in bootstrap_servers.split(","):
        while not _accepts(server):
            check_alive()
            if deadline.expired:
                raise LocalServerError(f"no broker accepts connections at {server}; see {logs}")
            time.sleep(0.05)  # there is no event when a port opens
    _wait_until_joined(bootstrap_servers, check_alive, deadline, logs)


def _wait_until_joined(
    bootstrap_servers: str, check_alive: Callable[[], None], deadline: Deadline, logs: str
) -> None:
    with importing("confluent_kafka"):
        from confluent_kafka import KafkaException, Producer

    client = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "log_level": 2,
        }
    )
    size = bootstrap_servers.count(",") + 1
    # A new cluster rejects the first requests for a producer id. This producer sends one whenever
    # it sees metadata, so after a few extra rounds no other producer is rejected.
    rounds_left = 4
    answer = "none"
    while rounds_left:
        try:
            joined = len(client.list_topics(timeout=deadline.slice(1)).brokers)
            rounds_left -= joined >= size
            answer = f"{joined} of {size} brokers"
        except KafkaException as error:
            answer = error.args[0].str()
        check_alive()
        if deadline.expired:
            raise LocalServerError(
                f"the brokers did not form a cluster (last answer: {answer}); see {logs}"
            )
        time.sleep(0.05)  # there is no event when a broker joins


def _accepts(server: str) -> bool:
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=1).close()
    except OSError:
        return False
    return True
