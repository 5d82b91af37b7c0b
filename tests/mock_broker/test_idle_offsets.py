"""Readers of the ledger outlive their task: a connection is kept, never what was read."""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing, suppress

import pytest
from mock_cluster import OFFSET_FETCH, MockCluster
from waiting import wait_until

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import DeadlineExceeded
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.group_offsets import CommittedOffset, GroupClient
from spark_kafka_sink.transactions import offset_calls
from spark_kafka_sink.transactions.offset_calls import BrokerWait, GroupOffset, borrow_offset

FIRST, SECOND = CommittedOffset(1, "{}"), CommittedOffset(2, "{}")
NOT_COORDINATOR = 16


def wait(seconds=60.0):
    return BrokerWait(Deadline(seconds), f"an.option, {seconds:g} s", "reading the ledger p")


def is_closed(client):
    with suppress(RuntimeError):
        return not client.handle
    return True


def read(options, group="p.0", seconds=60.0):
    with borrow_offset(options, "t", group) as offset:
        return offset.read(wait(seconds))


def write(options, committed, group="p.0"):
    """As another process does."""
    with closing(GroupOffset(options.producer.client, "t", group)) as offset:
        offset.write(committed, wait())


def test_a_client_is_lent_again_and_asks_the_brokers_again(options, group_clients):
    made = options()
    assert read(made) is None
    write(made, FIRST)
    assert read(made) == FIRST
    write(made, SECOND)
    assert read(made) == SECOND
    assert len(group_clients) == 1 + 2


def test_other_options_and_other_groups_have_clients_of_their_own(options, group_clients):
    for group in ("p.0", "p.1"):
        for client_id in ("a", "b"):
            read(options(kafka_client_id=client_id), group)
    assert len(group_clients) == 4


def test_a_renewed_certificate_is_read_by_the_next_task(options, group_clients, tmp_path):
    path = tmp_path / "client.pem"
    path.write_text("first")
    made = options(kafka_https_ca_location=str(path))
    read(made)
    read(made)
    path.write_text("renewed")
    read(made)
    read(made)
    assert len(group_clients) == 2


def test_two_tasks_at_once_have_two_clients_and_one_is_kept(options, group_clients):
    made = options()
    with borrow_offset(made, "t", "p.0") as first, borrow_offset(made, "t", "p.0") as second:
        assert first.read(wait()) is second.read(wait()) is None
    with borrow_offset(made, "t", "p.0") as third:
        assert third is second
    assert is_closed(group_clients[0])
    assert len(group_clients) == 2


def test_a_client_is_closed_if_its_task_fails(options, group_clients):
    def fail():
        with borrow_offset(options(), "t", "p.0"):
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert read(options()) is None
    assert len(group_clients) == 2


def test_an_idle_client_is_closed_after_its_timeout_without_a_task(options, group_clients):
    with borrow_offset(options(producer_cache_timeout="1ms"), "t", "p.0"):
        pass
    wait_until(lambda: is_closed(group_clients[0]), 20)


def test_the_longest_idle_of_many_clients_are_closed(options, monkeypatch, group_clients):
    monkeypatch.setattr(offset_calls, "_MAX_IDLE", 2)
    made = options()
    for group in ("p.0", "p.driver", "p.1", "p.driver", "p.2", "p.driver"):
        with borrow_offset(made, "t", group):
            pass
    assert len(group_clients) == 4
    with borrow_offset(made, "t", "p.1"):
        assert len(group_clients) == 5


def test_fewer_are_kept_where_address_space_is_limited(options, monkeypatch, group_clients):
    monkeypatch.setattr(offset_calls, "free_address_space", lambda: 1 << 30)
    made = options()
    for number in range(8):
        with borrow_offset(made, "t", f"p.{number}"):
            pass
    with borrow_offset(made, "t", "p.3"):
        assert len(group_clients) == 9


def test_a_fork_has_clients_of_its_own(options, group_clients):
    made = options()
    read(made)
    child = os.fork()
    if child == 0:
        os._exit(0 if read(made) is None and len(group_clients) == 2 else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert read(made) is None
    assert len(group_clients) == 1


def test_a_client_whose_coordinator_has_moved_finds_the_new_one(two_brokers):
    cluster, options = two_brokers
    write(options, FIRST)
    assert read(options) == FIRST
    cluster.set_coordinator("p.0", 2)
    assert read(options) == FIRST


def test_an_idle_client_is_replaced_if_its_coordinator_hangs(two_brokers, group_clients):
    """A new client may find another one, and a task has only ``kafka.max.block.ms``."""
    cluster, options = two_brokers
    assert read(options) is None
    cluster.set_round_trip(1, 600_000)
    with pytest.raises(DeadlineExceeded):
        read(options, seconds=3)
    assert len(group_clients) == 2
    cluster.set_coordinator("p.0", 2)
    assert read(options) is None


def test_a_client_whose_broker_has_died_goes_on_with_another(two_brokers):
    cluster, options = two_brokers
    write(options, FIRST)
    assert read(options) == FIRST
    cluster.set_down(1)
    cluster.set_coordinator("p.0", 2)
    assert read(options) == FIRST


def test_a_client_goes_on_when_its_broker_is_back(cluster, options):
    made = options()
    assert read(made) is None
    for broker in (0, 1):
        cluster.set_down(broker)
    with pytest.raises(DeadlineExceeded):
        read(made, seconds=1)
    for broker in (0, 1):
        cluster.set_up(broker)
    assert read(made) is None


@pytest.mark.parametrize("codes", [[NOT_COORDINATOR], [ErrorCode.TRANSPORT]])
def test_an_idle_client_that_gets_an_error_is_replaced(cluster, options, codes):
    write(options(), FIRST)
    assert read(options()) == FIRST
    cluster.push_errors(OFFSET_FETCH, codes)
    assert read(options()) == FIRST


def test_a_client_whose_connection_was_closed_for_being_idle_connects_again(options, group_clients):
    made = options(kafka_connections_max_idle_ms="4000")  # or a slow write would close it, too
    assert read(made) is None
    time.sleep(6)
    write(made, FIRST)
    assert read(made) == FIRST
    assert len(group_clients) == 2


def test_events_of_an_idle_client_are_read_but_not_while_a_task_uses_it(options, monkeypatch):
    """It may need a token, and librdkafka keeps events without any bound."""
    polled = threading.Event()
    with borrow_offset(options(), "t", "p.0") as offset:
        monkeypatch.setattr(GroupClient, "poll", lambda *_: polled.set() or iter(()))
        offset.read_events()
        assert not polled.is_set()
    assert polled.wait(20)


@pytest.fixture
def two_brokers(options):
    with MockCluster(2) as cluster:
        cluster.create_topic("t")
        cluster.set_coordinator("p.0", 1)
        yield cluster, options(kafka_bootstrap_servers=cluster.bootstrap_servers)
