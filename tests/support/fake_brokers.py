"""Brokers that answer doctor's questions as a test wants it."""

from __future__ import annotations

from types import SimpleNamespace

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.tools.doctor.check_context import CheckContext

NODES = [SimpleNamespace(id=number) for number in (1, 2, 3)]
RIGHTS = [AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE]


def partition(number=0, *, replicas=3, in_sync=3, leader=NODES[0]):
    return SimpleNamespace(id=number, leader=leader, replicas=NODES[:replicas], isr=NODES[:in_sync])


def topic(*partitions, rights=RIGHTS):
    return SimpleNamespace(
        partitions=list(partitions) or [partition()], authorized_operations=rights
    )


class FakeBrokers:
    """Answers with what the test sets; a number is an error. A name that is not set is missing."""

    def __init__(self, topics, topic_settings, broker_settings, newest_versions):
        self.topics = topics
        self.settings = {name: dict(topic_settings) for name in topics}
        self.brokers_own = dict(broker_settings)
        self.newest_versions = dict(newest_versions)
        self.if_created = None
        self.cluster_rights = None
        self.group_rights = RIGHTS
        self.asked_groups = []

    def topic(self, name, deadline):
        return answer(self.topics.get(name, KafkaError.UNKNOWN_TOPIC_OR_PART))

    def topic_settings(self, name, deadline):
        return answer(self.settings.get(name, KafkaError.UNKNOWN_TOPIC_OR_PART))

    def creation_error(self, name, deadline):
        return self.if_created

    def broker_settings(self, node_id, deadline):
        return answer(self.brokers_own)

    def group(self, name, deadline):
        self.asked_groups.append(name)
        return SimpleNamespace(authorized_operations=answer(self.group_rights))

    def findings(self, check, options, **arguments):
        """What a check says after those that it needs; ``arguments`` of CheckContext."""
        context = CheckContext(options, False, None, Deadline(30), **arguments)
        context.parsed = parse(options)
        context.brokers = self
        context.cluster = SimpleNamespace(nodes=NODES, authorized_operations=self.cluster_rights)
        context.newest_versions = self.newest_versions
        context.topic = self.topics.get(context.parsed.topic)
        context.topic_settings = _known(self.settings.get(context.parsed.topic))
        context.broker_settings = _known(self.brokers_own)
        return check(context)


def answer(value):
    if isinstance(value, int):
        raise KafkaException(KafkaError(value))
    return value


def _known(settings):
    return settings if isinstance(settings, dict) else {}
