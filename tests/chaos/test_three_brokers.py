"""The faults of brokers do what they are named after; otherwise a run of chaos proves less."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from three_brokers import NODES, ThreeBrokers
from waiting import wait_until

TOPIC = "t"
SECONDS = 60.0

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def brokers(tmp_path_factory):
    with ThreeBrokers(tmp_path_factory.mktemp("brokers")) as brokers:
        brokers.create_topics([TOPIC], partitions=3)
        yield brokers


@pytest.fixture
def together(brokers):
    """Three brokers of which each knows the others and all replicas."""
    wait_until(brokers.are_together)
    return brokers


def seen_by(brokers, node):
    """The topic's partitions in the eyes of one broker, by the clients' way to it."""
    address = brokers.bootstrap_servers.split(",")[node - 1]
    with ExitStack() as stack:
        for other in NODES:
            if other != node:  # or the client may ask it instead
                stack.enter_context(brokers.proxies[other].refusing())
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        # A broker that has just been cut off may name none for a moment.
        return wait_until(lambda: admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions)


def test_a_broker_that_is_cut_off_loses_its_partitions_and_still_answers(together):
    node = wait_until(lambda: together.leader(TOPIC, 0))
    # The others may know the topic before its leader does, which would then never hear of it.
    wait_until(lambda: seen_by(together, node)[0].leader == node)
    witness = next(other for other in NODES if other != node)
    with together.cut_off(node):
        wait_until(lambda: seen_by(together, witness)[0].leader != node)
        wait_until(lambda: node not in seen_by(together, witness)[0].isrs)
        assert seen_by(together, node)[0].leader == node  # it has not heard of that
    wait_until(lambda: seen_by(together, node)[0].leader != node)
    wait_until(lambda: len(seen_by(together, witness)[0].isrs) == 3)


def test_brokers_reject_corrupted_records(together):
    node = wait_until(lambda: together.leader(TOPIC, 1))
    proxy = together.proxies[node]
    delivered = []

    def note(error, message):
        delivered.append(error or message.value())

    producer = Producer(
        {
            "bootstrap.servers": together.bootstrap_servers,
            "compression.type": "lz4",
            "retries": 0,
            "enable.idempotence": False,
        }
    )
    before = proxy.corrupted
    proxy.corrupts = lambda: True
    try:
        for _ in range(20):
            producer.produce(TOPIC, b"x" * 90, partition=1, on_delivery=note)
            assert producer.flush(SECONDS) == 0
    finally:
        proxy.corrupts = lambda: False
    assert proxy.corrupted - before == 20
    assert not [value for value in delivered if isinstance(value, bytes)]
    with pytest.raises(KafkaException):
        raise KafkaException(delivered[0])
