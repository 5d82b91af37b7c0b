"""Waits until all brokers of a local Kafka answer."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LocalServerError


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
    from confluent_kafka import KafkaException, Producer

    client = Producer(
        {
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
            "log_level": 2,
        }
    )
    size = bootstrap_servers.count(",") + 1
    # A new cluster refuses the first requests for a producer id. This producer sends one whenever
    # it sees metadata, so after a few extra rounds no other producer is refused.
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
