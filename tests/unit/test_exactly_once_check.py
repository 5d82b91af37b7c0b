from __future__ import annotations

import pytest

from spark_kafka_sink.driver.exactly_once_check import unmet

BROKER = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
    "transaction.partition.verification.enable": "true",
}
TOPIC = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


def test_nothing_is_said_of_brokers_that_are_right_or_tell_nothing():
    assert list(unmet(BROKER, "t", TOPIC)) == []
    assert list(unmet({}, "t", {})) == []
    assert list(unmet(dict.fromkeys(BROKER, ""), "t", dict.fromkeys(TOPIC, ""))) == []


@pytest.mark.parametrize("name", BROKER)
def test_a_wrong_setting_of_the_brokers_is_named(name):
    wrong = "false" if BROKER[name] == "true" else "1"
    (sentence,) = unmet(BROKER | {name: wrong}, "t", TOPIC)
    assert sentence.startswith(f"the brokers have {name}={wrong}")


@pytest.mark.parametrize(
    ("name", "wrong"), [("min.insync.replicas", "1"), ("unclean.leader.election.enable", "true")]
)
def test_a_wrong_setting_of_the_topic_is_named(name, wrong):
    (sentence,) = unmet(BROKER, "orders", TOPIC | {name: wrong})
    assert sentence.startswith(f"topic orders has {name}={wrong}")
