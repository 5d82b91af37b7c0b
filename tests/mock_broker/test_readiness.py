"""When a local Kafka counts as started."""

from __future__ import annotations

import socket

import pytest

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import LocalServerError
from spark_kafka_sink.tools.local_kafka import wait_until_ready


def alive():
    pass


def test_a_broker_that_answers_is_ready(cluster):
    wait_until_ready(cluster.bootstrap_servers, alive, Deadline(10), "broker.log")


def test_a_port_that_nobody_serves_is_an_error_that_names_the_logs():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(
        LocalServerError, match=rf"connections at 127.0.0.1:{port}; see broker\.log"
    ):
        wait_until_ready(f"127.0.0.1:{port}", alive, Deadline(0.2), "broker.log")


def test_a_broker_that_accepts_but_never_answers_is_an_error_that_names_the_logs():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(LocalServerError, match=r"last answer: .*Local: .*; see broker\.log"):
            wait_until_ready(f"127.0.0.1:{port}", alive, Deadline(1.5), "broker.log")


def test_a_broker_that_dies_ends_the_wait():
    def died():
        raise LocalServerError("broker 1 ended")

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(LocalServerError, match="broker 1 ended"):
            wait_until_ready(address, died, Deadline(60), "broker.log")
