"""Brokers that answer doctor's questions as a test wants it."""

from __future__ import annotations

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import (
    ClusterDescription,
    Operation,
    PartitionDescription,
    TopicDescription,
)
from spark_kafka_sink.tools.doctor.brokers import RequestRejected
from spark_kafka_sink.tools.doctor.check_context import CheckContext

DESCRIBE = 8
OPERATIONS = frozenset({DESCRIBE, Operation.READ, Operation.WRITE})


def partition(number=0, *, replicas=3, in_sync=3, has_leader=True):
    return PartitionDescription(number, has_leader, replicas, in_sync)


def topic(*partitions, operations=OPERATIONS):
    partitions = partitions or (partition(),)
    return TopicDescription(
        "any", 0, len(partitions), (), partitions=partitions, operations=frozenset(operations)
    )


class FakeBrokers:
    """Answers with what the test sets; a number is an error. A name that is not set is missing."""

    def __init__(self, topics, topic_settings, broker_settings, newest_versions):
        self.topics = topics
        self.settings = {name: dict(topic_settings) for name in topics}
        self.brokers_own = dict(broker_settings)
        self.newest_versions = dict(newest_versions)
        self.if_created = None
        self.cluster_operations = frozenset()
        self.groups_operations = OPERATIONS
        self.asked_groups = []

    def topic(self, name, deadline):
        return answer(self.topics.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    def topic_settings(self, name, deadline):
        return answer(self.settings.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))

    def creation_error(self, name, deadline):
        return self.if_created

    def broker_settings(self, node_id, deadline):
        return answer(self.brokers_own)

    def group_operations(self, name, deadline):
        self.asked_groups.append(name)
        return answer(self.groups_operations)

    def findings(self, check, options, **arguments):
        """What a check says after those that it needs; ``arguments`` of CheckContext."""
        context = CheckContext(options, False, None, Deadline(30), **arguments)
        context.parsed = parse(options)
        context.brokers = self
        context.cluster = ClusterDescription(0, (1, 2, 3), operations=self.cluster_operations)
        context.topic = self.topics.get(context.parsed.topic)
        context.topic_settings = _known(self.settings.get(context.parsed.topic))
        context.broker_settings = _known(self.brokers_own)
        return check(context)


def answer(value):
    if isinstance(value, int):
        raise RequestRejected(value)
    return value


def _known(settings):
    return settings if isinstance(settings, dict) else {}
