"""Which connections a producer has, to which brokers; how many is a factor in docs/cluster.md."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import suppress

import psutil
import pyarrow as pa
import pytest
from black_hole import black_hole
from kafka_proxy import KafkaProxy
from mock_cluster import PRODUCE, MockCluster

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import DeadlineExceeded
from spark_kafka_sink.spark.task import write_partition

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
    ports = {
        connection.laddr.port for connection in sockets if connection.status == psutil.CONN_LISTEN
    }
    established = [
        connection for connection in sockets if connection.status == psutil.CONN_ESTABLISHED
    ]
    return sum(connection.raddr.port in ports for connection in established)


def test_a_producer_keeps_one_connection_to_each_broker(write):
    write()
    assert connections() == BROKERS


def test_an_idle_producer_closes_all_connections_but_one_without_a_word(write, caplog):
    idle = write(kafka_connections_max_idle_ms="1000")
    idle.collect_report()
    caplog.clear()
    deadline = Deadline(60)
    while connections() > 1:
        assert not deadline.expired
        idle.poll()
        time.sleep(0.05)  # there is no event when the client closes a connection
    assert (caplog.messages, idle.collect_report().broker_error) == ([], "")


def test_a_first_connection_that_closes_before_an_answer_is_no_warning(cluster, write, caplog):
    for broker in range(1, BROKERS + 1):
        cluster.set_round_trip(broker, 500)
    write(kafka_enable_idempotence="true")
    assert caplog.messages == []
    with caplog.at_level(logging.DEBUG, "spark_kafka_sink.librdkafka"):
        levels: set[int] = set()
        deadline = Deadline(120)
        while not levels:  # the client may connect without the line, if its broker answers early
            assert not deadline.expired
            write(kafka_enable_idempotence="true", kafka_debug="eos")
            levels = {
                line.levelno for line in caplog.records if "handle destroyed" in line.getMessage()
            }
    assert levels == {logging.DEBUG}


def test_a_producer_finds_the_brokers_that_have_replaced_all_known_ones(options):
    with KafkaProxy() as proxy:  # its name stays
        settings = options(kafka_bootstrap_servers=f"127.0.0.1:{proxy.port}")
        reports = []
        for _ in range(2):
            with MockCluster() as proxy.kafka:
                proxy.kafka.create_topic("t")
                reports.append(write_partition([pa.record_batch({"value": ["v"]})], settings))
    assert [report.total_sent for report in reports] == [1, 1]
    assert reports[1].producers_reused == 1


# --- what delays records is named -----------------------------------------------------------------

ROW = pa.record_batch({"value": ["late"]})
SHORT = {"kafka.socket.connection.setup.timeout.ms": "1000", "close.timeout.ms": "3000"}


def deadline_error(**settings):
    sink_options = parse({"topic": "t", **SHORT, **settings})
    with pytest.raises(DeadlineExceeded) as error:
        write_partition([ROW], sink_options)
    return str(error.value)


def test_answers_that_are_always_late_name_how_long_requests_wait(cluster):
    servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers}
    sink_options = parse({"topic": "t", **servers})
    write_partition([ROW], sink_options)  # the mock broker is slow to give a producer id
    for broker in range(1, LEADERS + 1):
        cluster.delay_answers(broker, PRODUCE, 20, 3000)
    error = deadline_error(**servers, **{"kafka.socket.timeout.ms": "1000"})
    assert "Timed out ProduceRequest in flight" in error
    assert "kafka.request.timeout.ms" in error
    others = "close.timeout.ms, and kafka.delivery.timeout.ms if it is set"
    assert f"{others}, to more than twice as much" in error


@pytest.mark.parametrize("hangs_up", [False, True])
def test_brokers_that_limit_connections_are_named_as_such(hangs_up):
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()

        def hang_up():
            with suppress(OSError):  # at the end, the server is closed
                while True:
                    server.accept()[0].close()

        if hangs_up:
            threading.Thread(target=hang_up, daemon=True).start()
        error = deadline_error(**{"kafka.bootstrap.servers": f"{host}:{port}"})
        server.shutdown(socket.SHUT_RDWR)
    assert "in state APIVERSION_QUERY" in error
    assert "max.connections.per.ip" in error
    assert "kafka.socket.connection.setup.timeout.ms" in error


def test_an_address_that_accepts_no_connection_is_no_limit_of_brokers():
    with black_hole() as address:
        error = deadline_error(**{"kafka.bootstrap.servers": address})
    assert "Connection setup timed out in state CONNECT" in error
    assert "max.connections.per.ip" not in error
