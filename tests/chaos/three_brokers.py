"""Three brokers that clients and other brokers reach through proxies, and ways to disturb each."""

from __future__ import annotations

import functools
import itertools
import json
import os
import random
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import psutil
from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka import TopicPartition as Place
from kafka.admin import KafkaAdminClient, UpdateFeatureType
from kafka.errors import KafkaError
from kafka_proxy import KafkaProxy
from local_cluster import LocalCluster

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LocalServerError
from spark_kafka_sink.tools.local_kafka import wait_until_ready
from spark_kafka_sink.tools.local_servers.processes import is_running, send_signal

NODES = (1, 2, 3)
_START_SECONDS = 60.0
_ANSWER_SECONDS = 5.0
_ADMINISTRATION_SECONDS = 60.0
_REASSIGNMENT_SECONDS = 30.0
_FEATURE_SECONDS = 30.0
_PREFERRED = 0
_T = TypeVar("_T")
_TRANSACTION_PARTITIONS = 4
# Kafka reports every restart at length.
_MAX_LOG_BYTES = 32 * 1024 * 1024

#: a broker that is away is noticed in seconds, and so is a transaction that nobody ends
_SETTINGS = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "controller.quorum.fetch.timeout.ms": "2000",
    "replica.lag.time.max.ms": "4000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "transaction.state.log.num.partitions": str(_TRANSACTION_PARTITIONS),
    "auto.create.topics.enable": "false",
}


class ThreeBrokers:
    """Context manager. ``bootstrap_servers`` are the proxies; ``proxies`` by node id.

    ``internal_servers`` are the brokers themselves.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = ExitStack()
        #: nodes that a fault has ended or paused, for now
        self._ended: set[int] = set()
        self._paused: set[int] = set()
        self.unexpected_ends = 0

    def __enter__(self) -> ThreeBrokers:
        with ExitStack() as stack:
            self.proxies = {node: stack.enter_context(KafkaProxy(node)) for node in NODES}
            ports = [self.proxies[node].port for node in NODES]
            self._kafka = LocalCluster(3, _SETTINGS, self._folder, advertised_ports=ports)
            for proxy in self.proxies.values():
                proxy.kafka = self._kafka
            stack.enter_context(self._kafka)
            self._peer_proxies = stack.enter_context(self._proxies_among_brokers())
            self.bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in ports)
            self.internal_servers = self._kafka.internal_servers
            self._admin = AdminClient({"bootstrap.servers": self.internal_servers, "log_level": 0})
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @contextmanager
    def _proxies_among_brokers(self) -> Iterator[dict[int, list[KafkaProxy]]]:
        """By the node that is reached: for its internal and its controller's listener.

        All brokers start again, because each needs the ports of the others' proxies.
        """
        files = {node: self._folder / f"server-{node}.properties" for node in NODES}
        with ExitStack() as stack:
            proxies: dict[int, list[KafkaProxy]] = {node: [] for node in NODES}
            ports: dict[str, str] = {}
            for node, listener in itertools.product(NODES, ("INTERNAL", "CONTROLLER")):
                pattern = rf"\nlisteners=.*{listener}://([^,\n]+)"
                own = re.search(pattern, files[node].read_text())
                proxy = stack.enter_context(KafkaProxy())
                proxy.kafka = SimpleNamespace(bootstrap_servers=own[1])
                proxies[node].append(proxy)
                ports[own[1]] = f"127.0.0.1:{proxy.port}"
            for node, file in files.items():
                file.write_text(_advertising(ports, file.read_text()))
                self._kafka.restart(node)
            wait_until_ready(
                self._kafka.internal_servers,
                lambda: None,
                Deadline(_START_SECONDS),
                str(self._folder),
            )
            yield proxies

    # --- disturbing them --------------------------------------------------------------------------

    def end(self, node: int, number: int) -> None:
        """SIGKILL or SIGTERM."""
        self._ended.add(node)
        send_signal(self._kafka.pids[node - 1], number)

    def start(self, node: int) -> None:
        """Start a broker again, after its end at the latest."""
        self._kafka.restart(node)
        self._ended.discard(node)

    def pause(self, node: int) -> None:
        self._paused.add(node)
        send_signal(self._kafka.pids[node - 1], signal.SIGSTOP)

    def resume(self, node: int) -> None:
        self._paused.discard(node)
        send_signal(self._kafka.pids[node - 1], signal.SIGCONT)

    @contextmanager
    def cut_off(self, node: int) -> Iterator[None]:
        """Inside the block, a broker and the others do not hear each other; clients reach all."""
        with ExitStack() as stack:
            for reached, proxies in self._peer_proxies.items():
                for proxy in proxies:
                    stack.enter_context(proxy.silent(self._is_between(node, reached)))
            yield

    def _is_between(self, node: int, reached: int) -> Callable[[int], bool]:
        @functools.cache
        def is_between(port: int) -> bool:
            source = self._node_of(port)
            return source is not None and source != reached and node in (source, reached)

        return is_between

    def _node_of(self, port: int) -> int | None:
        """The broker whose connection has this local port; None for other processes."""
        for node, pid in zip(NODES, self._kafka.pids, strict=True):
            with suppress(psutil.Error):
                connections = psutil.Process(pid).net_connections("tcp")
                if any(
                    connection.laddr.port == port and connection.raddr for connection in connections
                ):
                    return node
        return None

    def reassign(self, pick: random.Random, replicas: int) -> None:
        """Give every partition so many replicas, in any order, and let the first ones lead.

        Raises KafkaError.
        """
        seed = pick.random()
        self._administer(lambda admin: _reassign(admin, random.Random(seed), replicas))

    def change_transaction_version(self, pick: random.Random) -> tuple[int, int]:
        """As an upgrade of a cluster does, and its reversal; returns both. Raises KafkaError."""
        name = "transaction.version"

        def described(admin: KafkaAdminClient) -> tuple[tuple[int, int], int]:
            feature = admin.describe_features(send_request_to_controller=True)[name]
            return feature["supported"], feature.get("finalized", (0, 0))[1]

        def change(admin: KafkaAdminClient) -> tuple[int, int]:
            (low, high), former = described(admin)
            version = pick.choice([number for number in range(low, high + 1) if number != former])
            kinds = UpdateFeatureType
            kind = kinds.UPGRADE if version > former else kinds.SAFE_DOWNGRADE
            result = admin.update_features({name: (kind, version)})
            if result[name] != "OK":
                raise KafkaError(result[name])
            deadline = Deadline(_FEATURE_SECONDS)
            while described(admin)[1] != version and not deadline.expired:
                time.sleep(0.1)  # there is no event when the controller also says so
            return former, version

        return self._administer(change)

    def look_after(self) -> None:
        """Start brokers that ended by themselves, and bound their logs.

        While a broker is away, another process may take its port for a moment; then it ends at its
        start.
        """
        for node in NODES:
            if node not in self._ended and not self.is_running(node):
                self.unexpected_ends += 1
                self._kafka.restart(node)
            log = self._folder / f"broker-{node}.log"
            if log.stat().st_size > _MAX_LOG_BYTES:
                os.truncate(log, 0)

    def is_running(self, node: int) -> bool:
        return is_running(self._kafka.pids[node - 1])

    def are_together(self) -> bool:
        """Whether all three form the cluster, and every partition has all its replicas in sync."""
        if self._ended or self._paused:
            return False
        try:
            cluster = self._admin.list_topics(timeout=1)
        except KafkaException:
            return False
        return len(cluster.brokers) == len(NODES) and all(
            len(partition.isrs) == len(NODES)
            for topic in cluster.topics.values()
            for partition in topic.partitions.values()
        )

    # --- finding the one with a role; None if unknown ---------------------------------------------

    def leader(self, topic: str, partition: int) -> int | None:
        try:
            metadata = self._admin.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
            leader = metadata.partitions[partition].leader
        except (KafkaException, KeyError):
            return None
        return leader if leader in NODES else None

    def controller(self) -> int | None:
        """The active controller: clients cannot query it, but nodes keep the last election."""
        elections = []
        for node in NODES:
            path = self._folder / f"data-{node}" / "__cluster_metadata-0" / "quorum-state"
            try:
                state = json.loads(path.read_text())
            except (OSError, ValueError):
                continue
            elections.append((state["leaderEpoch"], state["leaderId"]))
        latest = max(elections, default=(0, -1))[1]
        return latest if latest in NODES else None

    def coordinator(self, transactional_id: str) -> int | None:
        partition = _java_hash(transactional_id) % _TRANSACTION_PARTITIONS
        return self.leader("__transaction_state", partition)

    # --- asking them ------------------------------------------------------------------------------

    def create_topics(self, names: list[str], partitions: int) -> None:
        for name, future in self._admin.create_topics(
            [NewTopic(name, partitions, len(NODES)) for name in names], operation_timeout=30
        ).items():
            try:
                future.result(30)
            except KafkaException as error:
                raise LocalServerError(f"topic {name}: {error}") from error

    def ends(
        self, topics: list[str], partitions: int, isolation: IsolationLevel, deadline: Deadline
    ) -> dict[tuple[str, int], int]:
        """The last stable offset, or the high watermark, of every partition."""
        wanted = {
            TopicPartition(topic, partition): OffsetSpec.latest()
            for topic in topics
            for partition in range(partitions)
        }
        while True:
            # A client keeps the leaders' epochs of its last answer, and is then rejected.
            admin = AdminClient({"bootstrap.servers": self.internal_servers, "log_level": 0})
            try:
                futures = admin.list_offsets(
                    wanted, isolation_level=isolation, request_timeout=_ANSWER_SECONDS
                )
                return {
                    (partition.topic, partition.partition): future.result(
                        2 * _ANSWER_SECONDS
                    ).offset
                    for partition, future in futures.items()
                }
            except KafkaException:
                if deadline.expired:
                    raise
                time.sleep(0.2)  # there is no event when the error has passed

    def committed_offset(self, group: str, topic: str) -> tuple[int, str] | None:
        """What a group has committed for partition 0, and its metadata, or None.

        By kafka-python: librdkafka's ListConsumerGroupOffsets crashes other clients if the group's
        coordinator has moved, and confluent_kafka reads beyond the end of metadata.
        Raises KafkaError.
        """

        def read(admin: KafkaAdminClient) -> tuple[int, str] | None:
            entry = admin.list_group_offsets(group)[group].get((topic, 0))
            return entry and (entry.offset, entry.metadata)

        return self._administer(read)

    def _administer(self, act: Callable[[KafkaAdminClient], _T]) -> _T:
        """Its result; repeated while brokers come and go, then raises KafkaError."""
        deadline = Deadline(_ADMINISTRATION_SECONDS)
        while True:
            try:
                with closing(KafkaAdminClient(bootstrap_servers=self.internal_servers)) as admin:
                    return act(admin)
            except KafkaError:
                if deadline.expired:
                    raise
                time.sleep(0.2)  # there is no event when the error has passed


def _reassign(admin: KafkaAdminClient, pick: random.Random, replicas: int) -> None:
    places = [
        Place(topic["name"], partition["partition_index"])
        for topic in admin.describe_topics()
        for partition in topic["partitions"]
    ]
    wanted = {place: pick.sample(NODES, replicas) for place in places}
    for error in filter(None, admin.alter_partition_reassignments(wanted).values()):
        raise error
    deadline = Deadline(_REASSIGNMENT_SECONDS)
    while admin.list_partition_reassignments() and not deadline.expired:
        time.sleep(0.2)  # there is no event when replicas have moved
    # Some may not be in sync yet; then the former leader stays.
    admin.elect_leaders(_PREFERRED, raise_errors=False)


def _advertising(ports: Mapping[str, str], properties: str) -> str:
    """A broker's settings with the proxies' addresses, by own address, where it names itself."""
    # Controllers learn each other's addresses also from what they advertise.
    controller = re.search("CONTROLLER://[^,\n]+", properties)[0]
    properties = properties.replace("advertised.listeners=", f"advertised.listeners={controller},")
    own, others = [], []
    for line in properties.splitlines():
        (own if line.startswith("listeners=") else others).append(line)
    text = "\n".join(others)
    for address, instead in ports.items():
        text = text.replace(address, instead)
    return "\n".join([*own, text, ""])


def _java_hash(text: str) -> int:
    """Java's ``String.hashCode`` without its sign, as brokers use it to choose a coordinator."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF
