"""What a broker needs on disk before it starts: configuration files and formatted storage."""

from __future__ import annotations

import subprocess
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LocalServerError
from spark_kafka_sink.tools.local_kafka.security import Security, broker_properties

_FORMAT_SECONDS = 60.0

_LOG4J2 = """
rootLogger.level = INFO
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
"""


def write_logging(folder: Path) -> Path:
    """Write ``log4j2.properties``, which all brokers share; returns its path."""
    path = folder / "log4j2.properties"
    path.write_text(_LOG4J2)
    return path


def write_servers(
    folder: Path,
    brokers: Sequence[int],
    controllers: Sequence[int],
    internal: Sequence[int],
    security: Security | None,
    settings: Mapping[str, str],
    advertised_ports: Sequence[int] = (),
) -> list[Path]:
    """Write ``server-1.properties`` and so on; returns their paths.

    ``brokers``, ``controllers``, ``internal``: the nodes' ports. With ``security``, which applies
    to ``brokers``, or ``advertised_ports``, which clients of ``brokers`` are sent to, the brokers
    talk to each other on ``internal``, in plain text and without a login. ``settings`` are added to
    each file and take precedence.
    """
    size = len(brokers)
    replicas, in_sync = str(size), str(min(2, size))
    voters = ",".join(f"{n}@127.0.0.1:{port}" for n, port in enumerate(controllers, 1))
    paths = []
    advertised: Sequence[int | None] = advertised_ports or [None] * size
    nodes = zip(brokers, controllers, internal, advertised, strict=True)
    for node, ports in enumerate(nodes, 1):
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(node),
            "broker.rack": f"rack-{node}",
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            **_listeners(*ports, security),
            "log.dirs": str(folder / f"data-{node}"),
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": replicas,
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": replicas,
            "transaction.state.log.min.isr": in_sync,
            "transaction.state.log.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
            # Retention is based on record timestamps, and demos and tests write old ones.
            "log.retention.ms": "-1",
        }
        path = folder / f"server-{node}.properties"
        merged = properties | dict(settings)
        path.write_text("".join(f"{name}={value}\n" for name, value in merged.items()))
        paths.append(path)
    return paths


def _listeners(
    broker: int,
    controller: int,
    internal: int,
    advertised: int | None,
    security: Security | None,
) -> dict[str, str]:
    control = f"CONTROLLER://127.0.0.1:{controller}"
    if security is None and advertised is None:
        return {"listeners": f"PLAINTEXT://127.0.0.1:{broker},{control}"}
    protocol = security.protocol if security else "PLAINTEXT"
    among_brokers = f"INTERNAL://127.0.0.1:{internal}"
    return {
        "listeners": f"CLIENT://127.0.0.1:{broker},{among_brokers},{control}",
        "advertised.listeners": f"CLIENT://127.0.0.1:{advertised or broker},{among_brokers}",
        "listener.security.protocol.map": f"CLIENT:{protocol},INTERNAL:PLAINTEXT,"
        "CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        **(broker_properties(security) if security else {}),
    }


def format_storage(
    java: Sequence[str], configurations: Sequence[Path], arguments: Sequence[str] = ()
) -> None:
    """Format the storage of a new cluster's nodes. Raises LocalServerError with Kafka's output."""
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    # The = is needed because one identifier in 64 begins with a dash.
    tool = [*java, "kafka.tools.StorageTool", "format", "--ignore-formatted"]
    tool += [f"--cluster-id={cluster}", *arguments]
    deadline = Deadline(_FORMAT_SECONDS)
    with ExitStack() as stack:
        formats = []
        for configuration in configurations:
            process = subprocess.Popen(
                [*tool, "-c", str(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            stack.enter_context(process)
            stack.callback(process.kill)  # before Popen waits; no effect once it has ended
            formats.append(process)
        for process in formats:
            _check(process, deadline)


def _check(process: subprocess.Popen[str], deadline: Deadline) -> None:
    try:
        output, _ = process.communicate(timeout=deadline.remaining())
    except subprocess.TimeoutExpired:
        raise LocalServerError(
            f"formatting Kafka's storage took more than {_FORMAT_SECONDS:g} s; "
            "try again when the machine is less busy"
        ) from None
    if process.returncode != 0:
        raise LocalServerError(f"formatting Kafka's storage failed:\n{output}")
