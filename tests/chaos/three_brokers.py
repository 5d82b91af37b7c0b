"""Three brokers that clients reach through proxies, and ways to disturb each of them."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import ExitStack, closing
from pathlib import Path

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from kafka_proxy import KafkaProxy

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LocalServerError
from spark_kafka_sink.tools.local_kafka import LocalKafka
from spark_kafka_sink.tools.local_servers.processes import is_running, send_signal

NODES = (1, 2, 3)
_ANSWER_SECONDS = 5.0
_OFFSET_SECONDS = 60.0
_TRANSACTION_PARTITIONS = 4
# Kafka reports every restart at length.
_MOST_LOG_BYTES = 32 * 1024 * 1024

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
    """Context manager. ``bootstrap_servers`` are the proxies; ``proxies`` by node id."""

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
            self._kafka = LocalKafka(3, _SETTINGS, self._folder, advertised_ports=ports)
            for proxy in self.proxies.values():
                proxy.kafka = self._kafka
            stack.enter_context(self._kafka)
            self.bootstrap_servers = ",".join(f"127.0.0.1:{port}" for port in ports)
            self.internal_servers = self._kafka.internal_servers
            self._admin = AdminClient({"bootstrap.servers": self.internal_servers, "log_level": 0})
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

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

    def look_after(self) -> None:
        """Start brokers that ended by themselves, and bound their logs.

        While a broker is away, another process may take its port for a moment; then it ends at its
        start.
        """
        for node in NODES:
            if node not in self._ended and not is_running(self._kafka.pids[node - 1]):
                self.unexpected_ends += 1
                self._kafka.restart(node)
            log = self._folder / f"broker-{node}.log"
            if log.stat().st_size > _MOST_LOG_BYTES:
                os.truncate(log, 0)

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
            found = self._admin.list_topics(topic, timeout=_ANSWER_SECONDS).topics[topic]
            leader = found.partitions[partition].leader
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
            # A client keeps the leaders' epochs of its last answer, and is then refused.
            admin = AdminClient({"bootstrap.servers": self.internal_servers, "log_level": 0})
            try:
                futures = admin.list_offsets(
                    wanted, isolation_level=isolation, request_timeout=_ANSWER_SECONDS
                )
                return {
                    (each.topic, each.partition): future.result(2 * _ANSWER_SECONDS).offset
                    for each, future in futures.items()
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
        deadline = Deadline(_OFFSET_SECONDS)
        while True:
            try:
                with closing(KafkaAdminClient(bootstrap_servers=self.internal_servers)) as admin:
                    found = admin.list_group_offsets(group)[group].get((topic, 0))
                    return found and (found.offset, found.metadata)
            except KafkaError:
                if deadline.expired:
                    raise
                time.sleep(0.2)  # there is no event when the error has passed


def _java_hash(text: str) -> int:
    """Java's ``String.hashCode`` without its sign, as brokers use it to choose a coordinator."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value & 0x7FFFFFFF
