"""What exactly-once needs of the brokers, as far as their settings show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

_LEAST_ON_BROKERS = {
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "offsets.topic.replication.factor": 3,
    "min.insync.replicas": 2,  # of __consumer_offsets
}


def unmet(broker: Mapping[str, str], topic_name: str, topic: Mapping[str, str]) -> Iterator[str]:
    """A sentence for each unmet precondition; settings that are unknown count as right."""
    for name, least in _LEAST_ON_BROKERS.items():
        yield from _too_few("the brokers have", name, broker, least)
    yield from _too_few(f"topic {topic_name} has", "min.insync.replicas", topic, 2)
    if topic.get("unclean.leader.election.enable") == "true":
        yield (
            f"topic {topic_name} has unclean.leader.election.enable=true: committed records may be "
            "lost when a broker is"
        )
    if broker.get("transaction.partition.verification.enable") == "false":
        yield (
            "the brokers have transaction.partition.verification.enable=false: a request that "
            "arrives late may leave a transaction open, which holds up readers"
        )


def _too_few(who: str, name: str, settings: Mapping[str, str], least: int) -> Iterator[str]:
    value = settings.get(name, "")
    if value.isdecimal() and int(value) < least:
        yield (
            f"{who} {name}={value}, less than {least}: what is committed may be lost when a broker "
            "is"
        )
