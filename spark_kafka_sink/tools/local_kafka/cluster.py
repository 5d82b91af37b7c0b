"""LocalKafka: a real Apache Kafka on this machine, for demos and tests.

One or three KRaft nodes on free loopback ports. The brokers end with the process that started
them, even if it is killed, unless it detaches them.
"""

from __future__ import annotations

import os
import random
import shlex
import shutil
import socket
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from importlib.resources import files
from pathlib import Path
from types import TracebackType

from spark_kafka_sink.config.java_home import java_home, os_errors_as
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LocalServerError
from spark_kafka_sink.tools.local_kafka import broker_files
from spark_kafka_sink.tools.local_kafka.readiness import wait_until_ready
from spark_kafka_sink.tools.local_kafka.security import Security, format_arguments
from spark_kafka_sink.tools.local_servers.downloads import fetch_jars
from spark_kafka_sink.tools.local_servers.processes import GuardedProcess, is_running

KAFKA_VERSION = "4.3.0"
_LOG4J_VERSION = "2.25.4"  # as in Kafka, which lacks the bridge from SLF4J
_START_SECONDS = 60.0
_START_TRIES = 3
# None of those that systems choose themselves: while clients wait for a broker to listen, its port
# could become another server's, or that of such a client, which then connects to itself.
_PORTS = range(20_000, 32_000)
_INSTEAD = (
    "To use an existing broker instead, set KAFKA_BOOTSTRAP_SERVERS=host:port "
    "(demo and tests create topics on it and delete them)"
)


class LocalKafka:
    """A Kafka for ``with LocalKafka() as kafka``; its address is ``kafka.bootstrap_servers``.

    - ``brokers``: 1 or 3, in the racks ``rack-1`` to ``rack-3``.
    - ``settings``: added to every broker's ``server.properties``.
    - ``folder``: for data and logs, which are kept. The default is a temporary folder, which is
      removed at the end, but kept if the brokers did not start.
    - ``security``: TLS, logins and ACLs at ``bootstrap_servers``. The addresses of
      ``internal_servers`` then stay open to everyone on this machine, as a super user, for making
      topics and ACLs. Without ``security`` both are the same.
    - ``advertised_ports``: where clients of ``bootstrap_servers`` find each broker, for instance
      behind proxies; ``internal_servers`` then differ too.

    Entering takes a few seconds. The first time, it also downloads 44 MB. Raises LocalServerError.
    """

    def __init__(
        self,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
        security: Security | None = None,
        advertised_ports: Sequence[int] = (),
    ) -> None:
        if brokers not in (1, 3):
            raise ValueError(f"brokers must be 1 or 3, not {brokers}")
        if advertised_ports and len(advertised_ports) != brokers:
            raise ValueError(f"{brokers} brokers need as many ports, not {len(advertised_ports)}")
        self._size = brokers
        self._settings = dict(settings or {})
        self._security = security
        self._advertised_ports = advertised_ports
        self._folder = folder
        self._is_temporary = folder is None
        self._brokers: list[GuardedProcess] = []
        self._commands: list[list[str]] = []
        self.bootstrap_servers = ""
        self.internal_servers = ""

    @property
    def folder(self) -> Path:
        """Where data and the brokers' logs are (``broker-1.log``, ...)."""
        if self._folder is None:
            with os_errors_as("TMPDIR chooses the folder for temporary files"):
                self._folder = Path(tempfile.mkdtemp(prefix="local-kafka-"))
        return self._folder

    @property
    def pids(self) -> list[int]:
        """Process ids of the brokers, in the order of their node ids 1, 2, 3."""
        return [broker.pid for broker in self._brokers]

    def __enter__(self) -> LocalKafka:
        class_path = _class_path()
        for attempt in range(1, _START_TRIES + 1):
            try:
                with os_errors_as(f"Kafka must be able to write to {self.folder}"):
                    self._start(class_path)
                break
            except BaseException as error:
                self.stop()
                if attempt == _START_TRIES or not isinstance(error, _PortTaken):
                    raise
                self._clear()
        return self

    def _clear(self) -> None:
        """Remove what a failed start has written; Kafka would not format it again."""
        for node in range(1, self._size + 1):
            shutil.rmtree(self.folder / f"data-{node}", ignore_errors=True)
            self._log(node).unlink(missing_ok=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def detach(self) -> None:
        """Let the brokers outlive this process. Save ``pids`` first: the caller must end them.

        Raises LocalServerError if that fails. ``stop`` still ends the brokers then.
        """
        with os_errors_as("Start Kafka again"):
            for broker in self._brokers:
                broker.release()
        self._brokers = []
        self._is_temporary = False

    def stop(self) -> None:
        """Stop all brokers within a few seconds, whatever their state."""
        brokers, self._brokers = self._brokers, []
        for broker in brokers:
            broker.ask_to_end()
        for broker in brokers:
            broker.end()

    def restart(self, node: int) -> None:
        """End broker ``node``, whatever its state, and start it with its data.

        Returns before it serves. Raises LocalServerError.
        """
        with os_errors_as(f"Kafka must be able to write to {self.folder}"):
            self._brokers[node - 1].end()
            self._brokers[node - 1] = GuardedProcess(self._commands[node - 1], self._log(node))

    def _start(self, class_path: str) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        logging = broker_files.write_logging(self.folder)
        ports = _free_ports(3 * self._size)
        brokers, controllers, internal = (ports[n::3] for n in range(3))
        servers = broker_files.write_servers(
            self.folder,
            brokers,
            controllers,
            internal,
            self._security,
            self._settings,
            self._advertised_ports,
        )
        # The variable from which Kafka's own scripts read options for Java.
        options = shlex.split(os.environ.get("KAFKA_OPTS", ""))
        java = [str(java_home() / "bin" / "java"), *options]
        arguments = format_arguments(self._security) if self._security else []
        broker_files.format_storage([*java, "-cp", class_path], servers, arguments)
        self._commands = [
            [
                *java,
                "-Xms256m", "-Xmx1g",
                f"-Dlog4j2.configurationFile={logging}",
                "-cp", class_path,
                "kafka.Kafka",
                str(server),
            ]
            for server in servers
        ]  # fmt: skip
        for node, command in enumerate(self._commands, 1):
            self._brokers.append(GuardedProcess(command, self._log(node)))
        self.bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in brokers)
        self.internal_servers = self.bootstrap_servers
        if self._security or self._advertised_ports:
            self.internal_servers = ",".join(f"127.0.0.1:{port}" for port in internal)
        deadline = Deadline(_START_SECONDS)
        wait_until_ready(self.internal_servers, self._check_alive, deadline, str(self._log("*")))

    def _check_alive(self) -> None:
        for node, broker in enumerate(self._brokers, 1):
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


def _class_path() -> str:
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
    text = (files("spark_kafka_sink.tools.local_kafka") / f"{name}.sha256").read_text()
    return {jar: digest for digest, jar in (line.split() for line in text.splitlines())}


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        ports: list[int] = []
        for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
            with suppress(OSError):  # it is in use
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
                ports.append(port)
            if len(ports) == count:
                return ports
    raise LocalServerError(f"no {count} ports of {_PORTS[0]} to {_PORTS[-1]} are free")
