"""Rights of users: given, taken away, and in effect."""

from __future__ import annotations

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from waiting import wait_until

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
        self._add(
            [_rule(AclBinding, user, kind, name, pattern, operation) for operation in operations]
        )

    def deny(self, user: str, topic: str, operation: AclOperation) -> None:
        """Deny one operation on a topic, and allow all others; returns when the broker knows."""
        place = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL
        self._add(
            [
                _rule(AclBinding, user, *place, operation, AclPermissionType.DENY),
                _rule(AclBinding, user, *place, AclOperation.ALL),
            ]
        )

    def take_away(self, user: str, topic: str, *operations: AclOperation) -> None:
        """Remove what ``allow`` gave on a topic; returns when the broker knows."""
        place = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL
        rules = [_rule(AclBindingFilter, user, *place, operation) for operation in operations]
        for future in self._admin.delete_acls(rules).values():
            future.result(_SECONDS)
        wait_until(lambda: not any(map(self._matches, rules)), _SECONDS)

    def _add(self, rules: list[AclBinding]) -> None:
        for future in self._admin.create_acls(rules).values():
            future.result(_SECONDS)
        added = [_filter(rule) for rule in rules]
        wait_until(lambda: all(map(self._matches, added)), _SECONDS)

    def _matches(self, rule: AclBindingFilter) -> bool:
        return bool(self._admin.describe_acls(rule).result(_SECONDS))


def _filter(rule: AclBinding) -> AclBindingFilter:
    """What finds the rule itself."""
    return AclBindingFilter(
        rule.restype,
        rule.name,
        rule.resource_pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission_type,
    )


def _rule(rule, user, kind, name, pattern, operation, permission=AclPermissionType.ALLOW):
    return rule(kind, name, pattern, f"User:{user}", "*", operation, permission)
