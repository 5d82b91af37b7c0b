"""Names of brokers that stop resolving, whose look-ups hang, or that have a dead address."""

from __future__ import annotations

from contextlib import closing

import pyarrow as pa
import pytest
from black_hole import black_hole

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver import inquirer, preflight
from spark_kafka_sink.errors import DeadlineExceeded
from spark_kafka_sink.producer import cache as producer_cache
from spark_kafka_sink.spark.task import write_partition
from spark_kafka_sink.transactions import offset_calls
from spark_kafka_sink.transactions.offset_calls import BrokerWait, GroupOffset


def batch(value):
    return pa.record_batch({"value": [value]})


def not_resolving(resolver):
    return resolver.not_resolving("broker.test", "127.0.0.1")


def hanging(resolver):
    return resolver.hanging()


@pytest.mark.parametrize(
    ("outage", "reason"),
    [
        (not_resolving, "Failed to resolve.*Name or service not known"),
        (hanging, "within 2 s.*Check that the brokers are reachable"),
    ],
)
def test_a_task_fails_in_time_and_the_next_one_goes_on(options, cluster, resolver, outage, reason):
    sink_options = options(
        kafka_bootstrap_servers=cluster.bootstrap_servers.replace("127.0.0.1", "broker.test"),
        kafka_broker_address_ttl="0",
        close_timeout_ms="2000",
    )
    assert write_partition([batch("before")], sink_options).total_sent == 1
    with outage(resolver):
        cluster.set_down(1)  # closes the connections
        cluster.set_up(1)
        with pytest.raises(DeadlineExceeded, match=reason):
            write_partition([batch("meanwhile")], sink_options)
    assert write_partition([batch("after")], sink_options).total_sent == 1


@pytest.fixture
def half_dead(options, cluster, resolver):
    """Options with a name of two addresses, one of which nobody answers at."""
    port = int(cluster.bootstrap_servers.rpartition(":")[2])
    resolver.addresses["broker.test"] = ["127.0.0.2", "127.0.0.1"]
    with black_hole("127.0.0.2", port):
        yield options(
            kafka_bootstrap_servers=f"broker.test:{port}",
            kafka_socket_connection_setup_timeout_ms="1000",
        )


@pytest.fixture
def processes(new_process, monkeypatch):
    """Repeats what each of several new processes does. The client shuffles addresses in each."""
    monkeypatch.setattr(inquirer, "UNREACHABLE_SECONDS", 0.5)  # less than an address takes

    def processes():
        for _ in range(4):
            new_process()
            yield
            producer_cache.process_cache().close(5)

    return processes()


def test_the_driver_tries_every_address_of_a_name(half_dead, processes):
    for _ in processes:
        preflight.check(half_dead)


def test_a_task_tries_every_address_of_a_name(half_dead, processes):
    for _ in processes:
        assert write_partition([batch("v")], half_dead).total_sent == 1


def test_a_reader_of_the_ledger_is_not_replaced_while_it_tries_an_address(
    options, resolver, monkeypatch, group_clients
):
    monkeypatch.setattr(offset_calls, "_FIRST_REQUEST_SECONDS", 3.0)
    monkeypatch.setattr(offset_calls, "_RECONNECT_SECONDS", 3.0)
    monkeypatch.setattr(offset_calls, "_REQUEST_SECONDS", 2.0)  # no later one is late
    with black_hole("127.0.0.2") as address:
        resolver.addresses["broker.test"] = ["127.0.0.2"]
        settings = options(
            kafka_bootstrap_servers=address.replace("127.0.0.2", "broker.test"),
            kafka_socket_connection_setup_timeout_ms="6000",
        ).producer.client
        wait = BrokerWait(Deadline(4.0), "an.option", "reading the ledger")
        with closing(GroupOffset(settings, "t", "g")) as offset, pytest.raises(DeadlineExceeded):
            offset.read(wait)
    assert len(group_clients) == 1


def test_a_name_that_does_not_resolve_is_one_log_line_every_few_seconds(options, resolver, caplog):
    resolver.unknown.add("broker.test")
    sink_options = options(kafka_bootstrap_servers="broker.test:9092", close_timeout_ms="3000")
    with pytest.raises(DeadlineExceeded):
        write_partition([batch("v")], sink_options)
    lines = [line for line in caplog.messages if "Failed to resolve" in line]
    assert 1 <= len(lines) <= 2  # the second one says how many there were
