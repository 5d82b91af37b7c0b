"""[driver] What exactly-once requires from brokers, as their versions and settings show it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from functools import cache

from spark_kafka_sink.advice import Advice
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver.inquirer import CONFIGURATION_SECONDS, NoAnswer, asking
from spark_kafka_sink.errors import InvalidOption

_log = logging.getLogger("spark_kafka_sink")

_MIN_REPLICAS = 3
_MIN_IN_SYNC = 2

# The requests of exactly-once, and the oldest version that keeps its promise: from OffsetFetch 7 on
# (Kafka 2.5, KIP-447), brokers hold back the offsets of open transactions.
_REQUESTS: Mapping[int, tuple[str, int]] = {
    9: ("OffsetFetch", 7),
    22: ("InitProducerId", 0),
    24: ("AddPartitionsToTxn", 0),
    25: ("AddOffsetsToTxn", 0),
    26: ("EndTxn", 0),
    28: ("TxnOffsetCommit", 0),
}

#: the coordinators' topics, and the brokers' settings with which they are created: the number of
#: replicas, and min.insync.replicas
COORDINATORS: Mapping[str, tuple[str, str]] = {
    "__transaction_state": (
        "transaction.state.log.replication.factor",
        "transaction.state.log.min.isr",
    ),
    "__consumer_offsets": ("offsets.topic.replication.factor", "min.insync.replicas"),
}


@cache
def check(settings: ClientSettings, topic: str) -> None:
    """Raise InvalidOption if the brokers cannot keep its promise; log which settings endanger it.

    Brokers that do not answer in time are asked again before the next micro-batch.
    """
    deadline = Deadline(CONFIGURATION_SECONDS)
    with asking(settings, reports_versions=True) as brokers:
        cluster = brokers.cluster(deadline)
        if cluster is None:
            raise NoAnswer
        if problem := unsupported(brokers.newest_versions):
            raise InvalidOption(f"{problem}. {Advice.EXACTLY_ONCE_UNSUPPORTED.remedy}")
        broker = brokers.broker_configuration(cluster.broker_ids[0], deadline)
        topic_answer = brokers.topic_configuration(topic, deadline)
    broker_settings = {} if broker is None else broker.settings
    topic_settings = {} if topic_answer is None else topic_answer.settings
    for sentence in unmet(broker_settings, topic, topic_settings):
        _log.warning("exactly-once: %s", sentence)


def unsupported(newest_versions: Mapping[int, int]) -> str:
    """A sentence if brokers with these versions of requests lack some; "" if none are known."""
    lacking = []
    for key, (name, least) in _REQUESTS.items():
        newest = newest_versions.get(key)
        if newest is None:
            lacking.append(f"no {name}")
        elif newest < least:
            lacking.append(f"{name} only up to version {newest}")
    if not lacking or not newest_versions:
        return ""
    return (
        "exactly-once needs Kafka 2.5 or later (OffsetFetch 7); these brokers have "
        f"{', '.join(lacking)}"
    )


def unmet(broker: Mapping[str, str], topic_name: str, topic: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each unmet precondition; unknown settings count as correct."""
    for replicas, in_sync in COORDINATORS.values():
        yield from _too_few("the brokers have", replicas, broker.get(replicas), _MIN_REPLICAS)
        yield from _too_few("the brokers have", in_sync, broker.get(in_sync), _MIN_IN_SYNC)
    yield from unmet_by_topic(topic_name, topic)
    if broker.get("transaction.partition.verification.enable") == "false":
        yield (
            "the brokers have transaction.partition.verification.enable=false: a request that "
            "arrives late may leave a transaction open, which blocks readers"
        )


def unmet_by_topic(
    name: str, settings: Mapping[str, str], replicas: int | None = None
) -> Iterator[str]:
    """The same for one topic, of records or of the coordinators."""
    who = f"topic {name} has"
    yield from _too_few(who, "replicas", None if replicas is None else str(replicas), _MIN_REPLICAS)
    in_sync = settings.get("min.insync.replicas")
    yield from _too_few(who, "min.insync.replicas", in_sync, _MIN_IN_SYNC)
    if settings.get("unclean.leader.election.enable") == "true":
        yield (
            f"{who} unclean.leader.election.enable=true: committed records may be lost when a "
            "broker fails"
        )


def _too_few(who: str, name: str, value: str | None, least: int) -> Iterator[str]:
    if value is not None and value.isdecimal() and int(value) < least:
        yield (
            f"{who} {name}={value}, less than {least}: committed records may be lost when a "
            "broker fails"
        )
