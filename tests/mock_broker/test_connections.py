"""How many connections a producer has: a factor of the sums in docs/cluster.md."""

from __future__ import annotations

import time

import psutil
import pyarrow as pa
import pytest
from mock_cluster import MockCluster

from spark_kafka_sink.deadline import Deadline

LEADERS = 3
BROKERS = LEADERS + 1  # and the controller, which leads no partition


@pytest.fixture
def cluster():
    with MockCluster(LEADERS) as cluster:
        cluster.create_topic("t", partitions=LEADERS)
        yield cluster


@pytest.fixture
def write(producer, records):
    """Writes a record to each partition with a new producer, which stays open."""

    def write(**settings):
        new = producer(**settings)
        new.prefetch(["t"])
        new.send(records(["a", "b", "c"], partition=pa.array(range(LEADERS), pa.int32())))
        new.flush(30)
        return new

    return write


def connections() -> int:
    """Connections of this process to its own servers, such as mock brokers."""
    sockets = psutil.Process().net_connections("tcp")
    ports = {each.laddr.port for each in sockets if each.status == psutil.CONN_LISTEN}
    established = [each for each in sockets if each.status == psutil.CONN_ESTABLISHED]
    return sum(each.raddr.port in ports for each in established)


def test_a_producer_keeps_one_connection_to_each_broker(write):
    write()
    assert connections() == BROKERS


def test_an_idle_producer_can_close_all_connections_but_one(write):
    idle = write(kafka_connections_max_idle_ms="1000")
    deadline = Deadline(60)
    while connections() > 1:
        assert not deadline.expired
        idle.poll()
        time.sleep(0.05)  # there is no event when the client closes a connection
