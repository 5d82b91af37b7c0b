"""Checks of what exactly-once needs: the ledger, permissions, timeouts, replicas."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import wraps

from spark_kafka_sink.advice import Advice
from spark_kafka_sink.config.producer_options import ExactlyOnceOptions
from spark_kafka_sink.driver.exactly_once_check import (
    COORDINATORS,
    unmet,
    unmet_by_topic,
)
from spark_kafka_sink.errors import DeadlineExceeded, KafkaSinkError
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import Operation, PartitionDescription
from spark_kafka_sink.tools.doctor.brokers import UNSUPPORTED, RequestRejected
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.result import (
    Finding,
    Outcome,
    failed,
    not_applicable,
    not_reported,
    passed,
    skipped,
    warned,
)
from spark_kafka_sink.tools.doctor.topic import (
    FORBIDDEN,
    check_in_sync,
    grant,
    int_setting,
    not_described,
)
from spark_kafka_sink.transactions.ledger import (
    DEFAULT_PREFIX,
    Decision,
    Ledger,
    Task,
    commit_entry_group,
    layout_group,
    marker_group,
    prefix_of,
    read_batch_marker,
    read_commit_entry,
    read_layout,
)
from spark_kafka_sink.transactions.offset_calls import BrokerWait, read_offsets

_AT_LEAST_ONCE = "delivery.guarantee=at-least-once"
_MAX_TIMEOUT = "transaction.max.timeout.ms"
_REMEDY = "See docs/exactly-once.md#preconditions: three replicas, of which two must be in sync"
_NOT_DESCRIBED = (
    *FORBIDDEN,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,  # being created, perhaps because of an earlier check
)


def exactly_once_only(
    check: Callable[[CheckContext, ExactlyOnceOptions], list[Finding]],
) -> Callable[[CheckContext], list[Finding]]:
    """``check``, under its own name, but skipped with at-least-once."""

    @wraps(check)
    def run(context: CheckContext) -> list[Finding]:
        settings = context.sink.exactly_once
        if settings is None:
            return [not_applicable(_AT_LEAST_ONCE)]
        return check(context, settings)

    return run


@exactly_once_only
def ledger_topic(context: CheckContext, settings: ExactlyOnceOptions) -> list[Finding]:
    """The ledger's topic exists, and the user may read it."""
    name = settings.ledger_topic
    try:
        description = context.client.topic(name, context.deadline)
    except RequestRejected as error:
        what = f"{context.user} may not describe it, or it does not exist"
        forbidden = failed(what, grant(context, name, "Describe", "Read"), name)
        return [not_described(context, name, error, forbidden)]
    if not description.operations:
        return [not_reported()]
    if Operation.READ not in description.operations:
        what = f"{context.user} may not read it, but commits of the ledger's offsets require it"
        return [failed(what, grant(context, name, "Read"), name)]
    return [passed(f"{context.user} may read it", name)]


@exactly_once_only
def ledger_groups(context: CheckContext, settings: ExactlyOnceOptions) -> list[Finding]:
    """The user may commit offsets of the ledger's groups."""
    prefix = _prefix(settings)
    for group in (marker_group(prefix), layout_group(prefix), commit_entry_group(prefix, 0)):
        try:
            allowed = context.client.group_operations(group, context.deadline)
        except RequestRejected as error:
            if error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
                return [_forbidden_groups(context, settings, group)]
            if error.code in UNSUPPORTED:
                return [not_reported()]
            raise
        if not allowed:
            return [not_reported()]
        if Operation.READ not in allowed:
            return [_forbidden_groups(context, settings, group)]
    return [passed(f"{context.user} may use them", _start(settings))]


def _forbidden_groups(context: CheckContext, settings: ExactlyOnceOptions, group: str) -> Finding:
    return failed(
        f"{context.user} may not read the consumer group {group}, as the ledger requires",
        allow_groups(context, settings),
        _start(settings),
    )


@exactly_once_only
def ledger(context: CheckContext, settings: ExactlyOnceOptions) -> list[Finding]:
    """The ledger is valid, as the first task of the next micro-batch reads it."""
    prefix = settings.prefix
    if prefix is None:
        return [not_applicable("without transactional.id.prefix, the query's id names the ledger")]
    groups = marker_group(prefix), layout_group(prefix), commit_entry_group(prefix, 0)
    wait = BrokerWait(context.deadline, "--timeout", f"reading the ledger {prefix}")
    client, topic = context.sink.producer.client, settings.ledger_topic
    try:
        at = read_offsets(client, topic, groups, wait)
        marker = read_batch_marker(at[groups[0]], groups[0])
        layout = read_layout(at[groups[1]], groups[1])
        entry = read_commit_entry(at[groups[2]], groups[2])
    except DeadlineExceeded as error:
        advice = "Raise --timeout; if a transaction of the query is open, see docs/exactly-once.md"
        return [warned(str(error), advice, prefix)]
    except KafkaSinkError as error:
        return [failed(str(error), "See above for missing rights", prefix)]
    known = (marker, layout, entry)
    latest = max((part.batch_id for part in known if part is not None), default=None)
    if latest is None:
        return [passed("none yet: the query's first micro-batch creates it", prefix)]
    if marker is not None:
        state, task = Ledger(*known), Task(marker.batch_id + 1, 0, marker.partitions)
        if state.decide(task) is Decision.FAIL_LOST:
            return [failed(str(state.error(Decision.FAIL_LOST, task, prefix)), "", prefix)]
    return [passed(f"the query has begun micro-batch {latest}", prefix)]


@exactly_once_only
def broker_settings(context: CheckContext, settings: ExactlyOnceOptions) -> list[Finding]:
    """The user may read the brokers' configuration, which the next checks need."""
    del settings
    try:
        node_id = context.cluster.broker_ids[0]
        context.broker_settings = context.client.broker_settings(node_id, context.deadline)
    except RequestRejected as error:
        if error.code not in FORBIDDEN:
            raise
        return [
            skipped(
                f"{context.user} may not read the brokers' configuration",
                f"Grant it: kafka-acls.sh --add --allow-principal {context.user} --operation "
                "DescribeConfigs --cluster, so that doctor can check what exactly-once requires",
            )
        ]
    return [passed("may be read")] if context.broker_settings else [not_reported()]


@exactly_once_only
def transaction_timeout(context: CheckContext, settings: ExactlyOnceOptions) -> list[Finding]:
    """The brokers allow transactions as long as ``kafka.transaction.timeout.ms``."""
    longest = int_setting(context.broker_settings, _MAX_TIMEOUT)
    if longest is None:
        return [not_reported()]
    wanted = f"kafka.transaction.timeout.ms={settings.transaction_timeout_ms}"
    if settings.transaction_timeout_ms > longest:
        return [
            failed(
                f"{wanted} exceeds the brokers' {_MAX_TIMEOUT}={longest}",
                Advice.INVALID_TRANSACTION_TIMEOUT.remedy,
            )
        ]
    return [passed(f"{wanted}; the brokers allow {longest}")]


@exactly_once_only
def coordinators(context: CheckContext, settings: ExactlyOnceOptions) -> list[Finding]:
    """Commits survive the loss of a broker, and still work while one is down.

    The replicas are those of the coordinators' topics, if this user may describe them; otherwise
    those of the settings with which brokers create them.
    """
    del settings
    broker = dict(context.broker_settings)
    findings: list[Finding] = []
    sentences: list[str] = []
    is_all_reported = True
    for name, (replicas_setting, in_sync_setting) in COORDINATORS.items():
        partitions, topic_settings = _describe(context, name)
        replicas = min((partition.replica_count for partition in partitions), default=0) or None
        needed = int_setting(topic_settings, "min.insync.replicas")
        # The topic's own value matters, not the one that a new topic would have.
        if replicas is not None:
            broker.pop(replicas_setting, None)
        if needed is not None:
            broker.pop(in_sync_setting, None)
        is_all_reported &= None not in (
            replicas or int_setting(broker, replicas_setting),
            needed or int_setting(broker, in_sync_setting),
        )
        if partitions:
            findings.append(
                check_in_sync(name, partitions, needed or int_setting(broker, in_sync_setting))
            )
        sentences += unmet_by_topic(name, topic_settings, replicas)
    sentences += unmet(broker, context.sink.topic or "", context.topic_settings)
    findings += [warned(sentence, _REMEDY) for sentence in sentences]
    bad = (Outcome.FAILED, Outcome.WARNED)
    problems = [finding for finding in findings if finding.outcome in bad]
    if not problems and not is_all_reported:
        return [not_reported()]
    return problems or [passed("commits survive the loss of a broker")]


def _describe(
    context: CheckContext, name: str
) -> tuple[Sequence[PartitionDescription], Mapping[str, str]]:
    """A topic's partitions and settings; empty if it is missing, or may not be described."""
    partitions: Sequence[PartitionDescription] = ()
    try:
        partitions = context.client.topic(name, context.deadline).partitions
        return partitions, context.client.topic_settings(name, context.deadline)
    except RequestRejected as error:
        if error.code in _NOT_DESCRIBED:
            return partitions, {}
        raise


def doctor_transactional_id(settings: ExactlyOnceOptions) -> str:
    """The name of a transactional id and a group that no query uses, but its permissions cover."""
    return f"{_prefix(settings)}.doctor"


def _prefix(settings: ExactlyOnceOptions) -> str:
    """The query's prefix, or without the option one of its form, since Spark chooses the id."""
    return prefix_of(settings, str(uuid.uuid4()))


def _start(settings: ExactlyOnceOptions) -> str:
    return settings.prefix or DEFAULT_PREFIX


def allow_groups(context: CheckContext, settings: ExactlyOnceOptions) -> str:
    """The advice to grant what the ledger's groups need, with the command."""
    return _allow(context, f"--operation Read --group {_start(settings)}")


def allow_ids(context: CheckContext, settings: ExactlyOnceOptions) -> str:
    """The advice to grant what transactional ids need, with the command."""
    operations = f"--operation Write --operation Describe --transactional-id {_start(settings)}"
    return _allow(context, operations)


def _allow(context: CheckContext, operations: str) -> str:
    return (
        f"Grant it: kafka-acls.sh --add --allow-principal {context.user} {operations} "
        "--resource-pattern-type prefixed"
    )
