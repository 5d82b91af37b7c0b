"""LocalKafka: a real Apache Kafka on this machine, for demos and tests.

One or three KRaft nodes on free loopback ports. The brokers end with the process that started
them, also when it is killed; ``start``, ``stop`` and ``status`` run one that stays.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from types import TracebackType

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LocalKafkaError
from spark_kafka_sink.local_kafka.java_runtime import fetch_jars, java_home

KAFKA_VERSION = "4.3.0"
_LOG4J_VERSION = "2.25.4"  # the one that Kafka brings, without what ties it to SLF4J
_START_SECONDS = 60.0
_STOP_SECONDS = 5.0
_START_TRIES = 3

# Runs a broker until standard input ends, which it does when whoever holds the other end dies.
_GUARD = """
"$@" </dev/null >&2 & child=$!
echo $child
read -r _
kill -TERM $child
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
  kill -0 $child 2>/dev/null || exit 0
  sleep 0.1
done
kill -KILL $child
"""

_LOG4J2 = """
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
"""


class LocalKafka:
    """``with LocalKafka(brokers=1) as kafka: kafka.bootstrap_servers``.

    ``brokers``: 1 or 3. ``settings``: added to every broker's ``server.properties``.
    ``folder``: for data and logs, which are kept; by default a temporary one, which is removed at
    the end, unless the brokers did not come up.
    Entering takes some seconds, the first time also a download of 44 MB. Raises LocalKafkaError.
    """

    def __init__(
        self,
        brokers: int = 1,
        settings: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        if brokers not in (1, 3):
            raise ValueError(f"brokers must be 1 or 3, not {brokers}")
        self._size = brokers
        self._settings = dict(settings or {})
        self._folder = folder
        self._is_temporary = folder is None
        self._guards: list[subprocess.Popen[str]] = []
        #: process ids of the brokers, in the order of their node ids 1, 2, 3
        self.pids: list[int] = []
        self.bootstrap_servers = ""

    @property
    def folder(self) -> Path:
        """Where data and the brokers' logs are (``broker-1.log``, ...)."""
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="local-kafka-"))
        return self._folder

    def __enter__(self) -> LocalKafka:
        self._start(redact_unless_public=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        if self._is_temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def start_detached(self) -> None:
        """Start brokers that outlive this process; end them by their ``pids``."""
        self._start(redact_unless_public=False)

    def stop(self) -> None:
        """End all brokers, within some seconds, whatever state they are in."""
        guards, self._guards = self._guards, []
        pids, self.pids = self.pids, []
        for pid in pids:
            send_signal(pid, signal.SIGCONT)  # a stopped process cannot end by itself
        for guard in guards:
            if guard.stdin:
                guard.stdin.close()
        for guard in guards:
            try:
                guard.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                guard.kill()
                guard.wait()
            if guard.stdout:
                guard.stdout.close()
        for pid in pids:
            send_signal(pid, signal.SIGKILL)

    def _start(self, *, redact_unless_public: bool) -> None:
        class_path = _class_path()
        for attempt in range(1, _START_TRIES + 1):
            try:
                self._start_once(class_path, redact_unless_public=redact_unless_public)
                return
            except BaseException as error:
                self.stop()
                if attempt == _START_TRIES or not isinstance(error, _PortTaken):
                    raise

    def _start_once(self, class_path: str, *, redact_unless_public: bool) -> None:
        ports = _free_ports(2 * self._size)
        brokers, controllers = ports[: self._size], ports[self._size :]
        cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        java = [str(java_home() / "bin" / "java"), "-cp", class_path]
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "log4j2.properties").write_text(_LOG4J2)
        configurations = [
            self._write_configuration(node, brokers, controllers) for node in self._nodes()
        ]
        self._format(java, cluster, configurations)
        for node, configuration in zip(self._nodes(), configurations, strict=True):
            command = [
                *java[:1],
                "-Xms256m", "-Xmx1g", "-XX:+UseG1GC",
                f"-Dlog4j2.configurationFile={self.folder / 'log4j2.properties'}",
                *java[1:],
                "kafka.Kafka",
                str(configuration),
            ]  # fmt: skip
            self.pids.append(self._run(node, command, redact_unless_public=redact_unless_public))
        self.bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in brokers)
        self._wait_until_ready(brokers)

    def _nodes(self) -> range:
        return range(1, self._size + 1)

    def _write_configuration(self, node: int, brokers: list[int], controllers: list[int]) -> Path:
        voters = ",".join(
            f"{n}@127.0.0.1:{port}" for n, port in zip(self._nodes(), controllers, strict=True)
        )
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{brokers[node - 1]},"
            f"CONTROLLER://127.0.0.1:{controllers[node - 1]}",
            "log.dirs": str(self.folder / f"data-{node}"),
            "default.replication.factor": str(self._size),
            "min.insync.replicas": str(min(2, self._size)),
            "offsets.topic.replication.factor": str(self._size),
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": str(self._size),
            "transaction.state.log.min.isr": str(min(2, self._size)),
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            # Retention goes by the records' timestamps, which demos and tests take from the past.
            "log.retention.ms": "-1",
        }
        path = self.folder / f"server-{node}.properties"
        merged = properties | self._settings
        path.write_text("".join(f"{name}={value}\n" for name, value in merged.items()))
        return path

    def _format(self, java: list[str], cluster: str, configurations: list[Path]) -> None:
        # With =, since one identifier in 64 begins with a dash.
        tool = [*java, "kafka.tools.StorageTool", "format", "--ignore-formatted"]
        tool.append(f"--cluster-id={cluster}")
        formats = [
            subprocess.Popen(
                [*tool, "-c", str(configuration)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for configuration in configurations
        ]
        failures = [output for process in formats if (output := _failure_of(process))]
        if failures:
            raise LocalKafkaError(f"formatting Kafka's storage failed:\n{failures[0]}")

    def _run(self, node: int, command: list[str], *, redact_unless_public: bool) -> int:
        with (self.folder / f"broker-{node}.log").open("ab") as log:
            if not redact_unless_public:
                return subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                ).pid
            guard = subprocess.Popen(
                ["sh", "-c", _GUARD, "sh", *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for the caller, which then stops us in order
            )
        self._guards.append(guard)
        return int(guard.stdout.readline())  # type: ignore[union-attr]

    def _wait_until_ready(self, ports: list[int]) -> None:
        from confluent_kafka import Producer

        deadline = Deadline(_START_SECONDS)
        for port in ports:
            while not _accepts(port):
                self._check_alive()
                if deadline.expired:
                    raise LocalKafkaError(f"no broker answers on port {port}; {self._logs()}")
                time.sleep(0.05)  # nothing tells us when a port opens
        client = Producer(
            {
                "bootstrap.servers": self.bootstrap_servers,
                "enable.idempotence": True,
                "log_level": 2,
            }
        )
        # A new cluster refuses the first requests for a producer id, and this producer asks for
        # one whenever it sees metadata: a few rounds more, and nobody else is refused.
        rounds_left = 4
        while rounds_left:
            complete = len(client.list_topics(timeout=deadline.remaining()).brokers) == self._size
            rounds_left -= complete
            self._check_alive()
            if deadline.expired:
                raise LocalKafkaError(f"not all brokers joined the cluster; {self._logs()}")
            time.sleep(0.05)

    def _check_alive(self) -> None:
        for node, pid in zip(self._nodes(), self.pids, strict=True):
            if not is_running(pid):
                log = (self.folder / f"broker-{node}.log").read_text(errors="replace")
                error = _PortTaken if "Address already in use" in log else LocalKafkaError
                raise error(f"broker {node} ended at its start; {self._logs()}\n{log[-1500:]}")

    def _logs(self) -> str:
        return f"see {self.folder}/broker-*.log"


class _PortTaken(LocalKafkaError):
    """Somebody took a port between our choosing it and the broker's binding it."""


def _class_path() -> str:
    kafka = fetch_jars(
        "org.apache.kafka", "kafka_2.13", KAFKA_VERSION, _checksums(f"kafka-{KAFKA_VERSION}")
    )
    logging = fetch_jars(
        "org.apache.logging.log4j",
        "log4j-slf4j-impl",
        _LOG4J_VERSION,
        _checksums(f"log4j-slf4j-impl-{_LOG4J_VERSION}"),
        transitive=False,
    )
    return os.pathsep.join([str(kafka / "*"), str(logging / "*")])


def _checksums(name: str) -> dict[str, str]:
    text = (files("spark_kafka_sink.local_kafka") / f"{name}.sha256").read_text()
    return {jar: digest for digest, jar in (line.split() for line in text.splitlines())}


def _failure_of(process: subprocess.Popen[str]) -> str:
    """Wait for the process to end; returns its output if it failed."""
    try:
        output, _ = process.communicate(timeout=_START_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    return output if process.returncode != 0 else ""


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(server.getsockname()[1]) for server in sockets]
    for server in sockets:
        server.close()
    return ports


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def is_running(pid: int) -> bool:
    """Whether that process lives; one that only waits to be reaped does not."""
    answer = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return bool(answer.stdout.strip()) and not answer.stdout.strip().startswith("Z")


def send_signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
