"""Rights of users: given, taken away, and in effect."""

from __future__ import annotations

import time

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from spark_kafka_sink.deadline import Deadline

_SECONDS = 30.0


class Acls:
    """The ACLs of a local Kafka, through its internal listener."""

    def __init__(self, internal_servers: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": internal_servers, "log_level": 2})

    def allow(
        self,
        user: str,
        name: str,
        *operations: AclOperation,
        kind: ResourceType = ResourceType.TOPIC,
        pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    ) -> None:
        """Allow them on a resource, or with ``*`` on all; returns when the broker knows."""
        rules = [_rule(AclBinding, user, kind, name, pattern, each) for each in operations]
        for future in self._admin.create_acls(rules).values():
            future.result(_SECONDS)
        self._wait_for(user, kind, name, pattern, operations, len(operations))

    def take_away(self, user: str, topic: str, *operations: AclOperation) -> None:
        """Remove what ``allow`` gave on a topic; returns when the broker knows."""
        place = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL
        rules = [_rule(AclBindingFilter, user, *place, each) for each in operations]
        for future in self._admin.delete_acls(rules).values():
            future.result(_SECONDS)
        self._wait_for(user, *place, operations, 0)

    def _wait_for(self, user, kind, name, pattern, operations, count) -> None:
        deadline = Deadline(_SECONDS)
        rules = [_rule(AclBindingFilter, user, kind, name, pattern, each) for each in operations]
        while sum(len(self._admin.describe_acls(each).result(_SECONDS)) for each in rules) != count:
            assert not deadline.expired
            time.sleep(0.01)  # there is no event when the broker has applied them


def _rule(rule, user, kind, name, pattern, operation):
    return rule(kind, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
