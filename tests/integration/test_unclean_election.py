"""Exactly-once: a replica that lacks the latest records becomes the leader."""

from __future__ import annotations

import os
import signal

import pytest
from exactly_once_sink import SECONDS, SETTINGS, Sink
from local_cluster import LocalCluster
from waiting import wait_until

from spark_kafka_sink.errors import LedgerLost

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
LEDGER = "__consumer_offsets"
UNCLEAN = {
    "unclean.leader.election.enable": "true",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "1",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "4000",
}


@pytest.fixture(scope="module")
def kafka():
    with LocalCluster(3, SETTINGS | UNCLEAN) as kafka:
        yield kafka


def kill(kafka, node):
    os.kill(kafka.pids[node - 1], signal.SIGKILL)


def test_a_ledger_that_went_back_to_an_older_state(kafka, topics):
    """Nothing is sent until the user has answered."""
    sink = Sink(kafka.bootstrap_servers, topics, replicas=3)
    expected = sink.write_batch(0)
    # Again, which sends nothing: it reads the entries once both brokers have the ends of the
    # transactions. A follower without these would keep the entries unreadable.
    sink.write_batch(0)
    leader, follower = topics.replicas(LEDGER)
    kill(kafka, follower)
    expected += sink.write_batch(1)
    kill(kafka, leader)
    kafka.restart(follower)
    wait_until(lambda: topics.leaders(LEDGER) == [follower], SECONDS)
    before = sink.committed()
    for partition in (0, 1):
        with pytest.raises(LedgerLost, match=r"complete micro-batch is 0.*unclean leader"):
            sink.write(2, partition, ["2-a"])
    assert sink.committed() == before
    sink.options["exactly.once.first.batch"] = "2"
    expected += sink.write_batch(2)
    assert sink.committed() == sorted(expected)
    kafka.restart(leader)
    expected += sink.write_batch(3)
    assert sink.committed() == sorted(expected)
