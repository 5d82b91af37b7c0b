"""``kafka-topics.sh --create`` of the pages; LocalKafka lacks the JAR with Kafka's commands."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from confluent_kafka.admin import AdminClient, NewTopic

_SECONDS = 30.0


def new_topic(arguments: Sequence[str]) -> NewTopic:
    """The topic that the command would create. Exits as a command does if it does not take them."""
    parser = argparse.ArgumentParser("kafka-topics.sh", allow_abbrev=False)
    parser.add_argument("--bootstrap-server", required=True)
    parser.add_argument("--create", action="store_true", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--config", action="append", default=[])
    choice = parser.parse_args(arguments)
    config = dict(entry.split("=", 1) for entry in choice.config)
    return NewTopic(choice.topic, choice.partitions, replication_factor=1, config=config)


def create(topic: NewTopic, bootstrap_servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})
    admin.create_topics([topic], operation_timeout=_SECONDS)[topic.topic].result(_SECONDS)
