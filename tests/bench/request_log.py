"""What brokers count: the requests that clients send them, by kind, and their connections.

The brokers' own log of requests tells, switched on while they run. A proxy would have to pass all
of them on, in Python, and would be slower than the brokers.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from local_cluster import LocalCluster

NODES = (1, 2, 3)
_LOGGER = "kafka.request.logger"
#: the end of the transactional ids with which tasks claim a layout
_CLAIMS = ".layout"
_COMPLETED = re.compile(r" Completed request:(\{.*\})$")


@dataclass
class Requests:
    """The requests of the clients whose id has a prefix.

    ``by_client``: client id -> kind -> how many. ``connections``: node -> those that sent one.
    ``milliseconds``: kind -> of each request, from its arrival at the broker to its answer.
    """

    by_client: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    connections: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    milliseconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    @property
    def kinds(self) -> list[str]:
        return sorted(self.milliseconds)

    def counts(self, kind: str) -> list[int]:
        """How many of a kind each client sent."""
        return [counts[kind] for counts in self.by_client.values()]


@contextmanager
def counted(kafka: LocalCluster, prefix: str) -> Iterator[Requests]:
    """Complete after the block: what clients whose ids begin with ``prefix`` sent inside it."""
    requests = Requests()
    logs = {node: kafka.folder / f"broker-{node}.log" for node in NODES}
    set_on_brokers(kafka, ConfigResourceType.BROKER_LOGGER, {_LOGGER: "DEBUG"})
    begins = {node: log.stat().st_size for node, log in logs.items()}
    try:
        yield requests
    finally:
        set_on_brokers(kafka, ConfigResourceType.BROKER_LOGGER, {_LOGGER: "INFO"})
    for node, log in logs.items():
        _read(log, begins[node], node, prefix, requests)


def set_on_brokers(
    kafka: LocalCluster, kind: ConfigResourceType, settings: Mapping[str, str]
) -> None:
    servers = kafka.internal_servers.split(",")
    with closing(KafkaAdminClient(bootstrap_servers=servers)) as admin:
        resources = [ConfigResource(kind, str(node), dict(settings)) for node in NODES]
        # The client does not know settings with a listener's name.
        admin.alter_configs(resources, raise_on_unknown=False)


def _read(log: Path, begin: int, node: int, prefix: str, into: Requests) -> None:
    with log.open(encoding="utf-8", errors="replace") as lines:
        lines.seek(begin)
        for line in lines:
            match = _COMPLETED.search(line)
            if match is None:
                continue
            request = json.loads(match[1])
            header = request["requestHeader"]
            client_id, kind = header["clientId"] or "", header["requestApiKeyName"]
            content = request["request"]  # a text, where the log keeps no contents
            if isinstance(content, dict) and _is_of_claim(content):
                kind = f"{kind}, of claims"
            if client_id.startswith(prefix) and not request["isForwarded"]:
                into.by_client[client_id][kind] += 1
                into.connections[node].add(request["connection"])
                into.milliseconds[kind].append(request["totalTimeMs"])


def _is_of_claim(content: Mapping[str, object]) -> bool:
    return str(content.get("transactionalId")).endswith(_CLAIMS)


def open_connections(kafka: LocalCluster) -> list[int]:
    """Established connections to the clients' listener of each broker."""
    ports = [int(server.rpartition(":")[2]) for server in kafka.bootstrap_servers.split(",")]
    counts = []
    for pid, port in zip(kafka.pids, ports, strict=True):
        sockets = psutil.Process(pid).net_connections("tcp")
        there = [
            connection for connection in sockets if connection.status == psutil.CONN_ESTABLISHED
        ]
        counts.append(sum(connection.laddr.port == port for connection in there))
    return counts


def cpu_seconds(kafka: LocalCluster) -> float:
    """Of all brokers, since their start."""
    times = [psutil.Process(pid).cpu_times() for pid in kafka.pids]
    return sum(process_times.user + process_times.system for process_times in times)


def full_listen_queues() -> int:
    """How often this machine has refused a connection because a listener's queue was full."""
    lines = Path("/proc/net/netstat").read_text(encoding="utf-8").splitlines()
    names, values = (line.split() for line in lines if line.startswith("TcpExt:"))
    return int(dict(zip(names, values, strict=True))["ListenOverflows"])
