"""Checks of the topics that options name: state, permissions, and limits next to the client's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from spark_kafka_sink.advice import Advice, advice_on, lasting_advice_on
from spark_kafka_sink.config.option_table import TIMESTAMP_COLUMN
from spark_kafka_sink.config.producer_options import MAX_REQUEST_SIZE
from spark_kafka_sink.driver.record_times import log_append_time
from spark_kafka_sink.librdkafka.error_codes import ErrorCode, error_name
from spark_kafka_sink.librdkafka.events import Operation, PartitionDescription
from spark_kafka_sink.producer.topic_limits import limits_from
from spark_kafka_sink.tools.doctor.brokers import RequestRejected
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.result import (
    Finding,
    Outcome,
    counted,
    failed,
    not_applicable,
    not_reported,
    passed,
    skipped,
    warned,
)

# API keys of Kafka's protocol
PRODUCE, _INIT_PRODUCER_ID, DESCRIBE_CLUSTER = 0, 22, 60
_REASON_PRODUCE = 8  # Kafka 2.4, KIP-467: the first to say which records are rejected, and why
_DEAD_LETTER_HEADERS_BYTES = 4096
#: the user may not describe a topic or the cluster, or may not read its settings
FORBIDDEN = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def topic(context: CheckContext) -> list[Finding]:
    """The topic exists, or the brokers create it."""
    name = context.sink.topic
    if name is None:
        return [skipped("no option topic: the column topic names each row's topic")]
    try:
        description = context.topic = context.client.topic(name, context.deadline)
    except RequestRejected as error:
        return [not_described(context, name, error, _not_writable(context, name))]
    if (finding := _check_leaders(name, description.partitions)) is not None:
        return [finding]
    replicas = min(partition.replica_count for partition in description.partitions)
    size = counted(len(description.partitions), "partition")
    return [passed(f"{size}, {counted(replicas, 'replica')} each", name)]


def _not_writable(context: CheckContext, name: str) -> Finding:
    # Permission to write implies that to describe.
    what = f"{context.user} may not describe it, or it does not exist"
    return failed(what, grant(context, name, "Describe", "Write"), name)


def _check_leaders(name: str, partitions: Sequence[PartitionDescription]) -> Finding | None:
    orphans = [partition.id for partition in partitions if not partition.has_leader]
    if not orphans:
        return None
    return failed(
        f"no leader for {_partitions(orphans)}",
        "Start the brokers that hold these partitions; until then, their records wait",
        name,
    )


def not_described(
    context: CheckContext, name: str, error: RequestRejected, if_forbidden: Finding
) -> Finding:
    """The finding for a topic that an option names, and that the brokers did not describe."""
    if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return missing_topic(context, name)
    if error.code in FORBIDDEN:
        return if_forbidden
    advice = advice_on(error.code)
    return failed(str(error), advice.remedy if advice else "See the brokers' logs", name)


def missing_topic(context: CheckContext, name: str) -> Finding:
    """The finding for a missing topic, which the job or the brokers may create."""
    partitions = context.created_topics.get(name)
    if partitions is not None:
        return _block(
            passed(
                f"it does not exist; the job creates it, with {counted(partitions, 'partition')}, "
                f"if {context.user} may create topics",
                name,
            )
        )
    try:
        node_id = context.cluster.broker_ids[0]
        broker = context.client.broker_settings(node_id, context.deadline)
    except RequestRejected as error:
        return failed(
            f"it does not exist, and whether the brokers create it is unknown: {error}",
            _create(name),
            name,
        )
    creates = broker.get("auto.create.topics.enable")
    if creates == "false":
        return failed(
            "it does not exist, and these brokers do not create topics "
            "(auto.create.topics.enable=false)",
            _create(name),
            name,
        )
    reason = context.client.creation_error(name, context.deadline)
    if reason is not None and (advice := creation_advice(reason.code)):
        what = f"it does not exist, and the brokers would not create it: {reason}"
        return failed(f"{what} ({error_name(reason.code)})", advice.remedy, name)
    if creates is None:
        finding = warned(
            "it does not exist, and the brokers do not report whether they create it",
            _create(name),
            name,
        )
    else:
        finding = warned(
            f"it does not exist; the first record creates it{_size(broker)}, if "
            f"{context.user} may create topics",
            _create(name) + ", to choose partitions and replicas yourself",
            name,
        )
    return _block(finding)


def creation_advice(code: int) -> Advice | None:
    """What to do if brokers do not create a topic, because of this error."""
    return Advice.CREATION_FORBIDDEN if code in FORBIDDEN else lasting_advice_on(code)


def _block(finding: Finding) -> Finding:
    # A missing topic has no partitions, permissions and limits to check.
    return replace(finding, blocks=True)


def _size(broker: Mapping[str, str]) -> str:
    partitions = broker.get("num.partitions")
    replicas = broker.get("default.replication.factor")
    if partitions is None or replicas is None:
        return ""
    size = f"{counted(int(partitions), 'partition')} and {counted(int(replicas), 'replica')}"
    return f", with {size}"


def _create(name: str) -> str:
    return (
        f"{Advice.TOPICS_NOT_CREATED.remedy}: kafka-topics.sh --create --topic {name} "
        "--partitions N --bootstrap-server HOST:PORT"
    )


def grant(context: CheckContext, name: str, *operations: str) -> str:
    """The advice to grant operations on a topic, with the command."""
    added = " ".join(f"--operation {operation}" for operation in operations)
    return f"Grant it: kafka-acls.sh --add --allow-principal {context.user} {added} --topic {name}"


def topic_settings(context: CheckContext) -> list[Finding]:
    """The user may read the topic's configuration, which the next checks need."""
    name = context.topic_name
    try:
        settings = context.client.topic_settings(name, context.deadline)
    except RequestRejected as error:
        if error.code not in FORBIDDEN:
            raise
        purpose = ", to let doctor check its limits"
        if context.sink.exactly_once is not None and context.sink.dead_letter_topic is not None:
            purpose += ", and the sink send dead letters for records that they reject"
        return [
            skipped(
                f"{context.user} may not read the topic's configuration",
                grant(context, name, "DescribeConfigs") + purpose,
            )
        ]
    context.topic_settings = settings
    return [passed("may be read", name)] if settings else [not_reported()]


def in_sync_replicas(context: CheckContext) -> list[Finding]:
    """Enough replicas are in sync for acks=all, with one to spare."""
    if not _waits_for_replicas(context):
        return [not_applicable(f"kafka.acks={context.settings['acks']} does not wait for replicas")]
    needed = int_setting(context.topic_settings, "min.insync.replicas")
    return [check_in_sync(context.topic_name, context.topic.partitions, needed)]


def _waits_for_replicas(context: CheckContext) -> bool:
    return context.settings["acks"] in ("all", "-1")


def check_in_sync(
    name: str, partitions: Sequence[PartitionDescription], needed: int | None
) -> Finding:
    """Whether a topic of these partitions accepts records with acks=all."""
    replicas = min((partition.replica_count for partition in partitions), default=0)
    if needed is None or not replicas:
        return not_reported()
    too_few = [partition.id for partition in partitions if partition.in_sync_count < needed]
    if too_few:
        reason = "" if replicas >= needed else f", and there are only {replicas}"
        return failed(
            f"fewer than min.insync.replicas={needed} for {_partitions(too_few)}{reason}: brokers "
            "reject records with acks=all",
            "Start the missing brokers, or lower the topic's min.insync.replicas",
            name,
        )
    under_replicated = [
        partition.id
        for partition in partitions
        if partition.in_sync_count < partition.replica_count
    ]
    if under_replicated:
        return warned(
            f"replicas of {_partitions(under_replicated)} are not in sync",
            "Start the missing brokers, or wait until their replicas have caught up",
            name,
        )
    if replicas == needed:
        return warned(
            f"{counted(replicas, 'replica')} each, and min.insync.replicas={needed}: while any of "
            "their brokers restarts, writes fail",
            "Use one more replica than min.insync.replicas; 3 and 2 are usual",
            name,
        )
    return passed(f"all replicas are in sync; min.insync.replicas={needed}", name)


def int_setting(settings: Mapping[str, str], name: str) -> int | None:
    """The value of a setting that is a whole number; None if the brokers do not report it."""
    try:
        return int(settings.get(name, ""))
    except ValueError:
        return None


def write_permission(context: CheckContext) -> list[Finding]:
    """The user may write to the topic."""
    name = context.topic_name
    if not context.topic.operations:  # who sees the topic may at least describe it
        return [not_reported()]
    if not context.topic.may_write:
        return [failed(f"{context.user} may not write to it", grant(context, name, "Write"), name)]
    return [passed(f"{context.user} may write to it", name)]


def idempotent_write(context: CheckContext) -> list[Finding]:
    """The brokers support idempotent producers, and the user may be one."""
    if context.settings["enable.idempotence"] != "true":
        return [not_applicable("kafka.enable.idempotence=false")]
    if context.client.newest_versions and _INIT_PRODUCER_ID not in context.client.newest_versions:
        advice = Advice.IDEMPOTENCE_UNSUPPORTED
        return [failed(advice.meaning, advice.remedy)]
    if Operation.IDEMPOTENT_WRITE in context.cluster.operations:
        return [passed("allowed on the cluster (IdempotentWrite)")]
    return [_check_permission(context)]


def _check_permission(context: CheckContext) -> Finding:
    if not context.client.newest_versions:
        return not_applicable("the brokers' version is unknown")
    if DESCRIBE_CLUSTER in context.client.newest_versions:  # Kafka 2.8, as is KIP-679
        return passed("implied by the right to write to a topic (Kafka 2.8, KIP-679)")
    if not context.topic.operations:
        return not_reported()
    return failed(
        f"{context.user} lacks IdempotentWrite, which brokers before Kafka 2.8 require",
        f"{Advice.CLUSTER_AUTHORIZATION_FAILED.remedy}: kafka-acls.sh --add --allow-principal "
        f"{context.user} --operation IdempotentWrite --cluster",
    )


def record_format(context: CheckContext) -> list[Finding]:
    """The topic accepts records with headers and, unless it is compacted, without a key.

    With ``timestamp.column``, it keeps the records' timestamps.
    """
    name, settings = context.topic_name, context.topic_settings
    if not settings:
        return [not_reported()]
    findings = []
    version = settings.get("message.format.version", "")
    if re.match(r"0\.([89]|10)\b", version):
        what = f"message.format.version={version} has no headers"
        remedy = "Raise the topic's message.format.version to 0.11.0 or later"
        if context.settings["enable.idempotence"] == "true":
            what += ", and does not allow an idempotent producer"
            remedy += ", or set kafka.enable.idempotence=false and leave out the headers"
            findings.append(failed(what, remedy, name))
        else:
            findings.append(warned(what, f"{remedy}, or leave out the headers", name))
    if limits_from(settings).is_compacted:
        findings.append(_check_compacted(context))
    if context.sink.timestamp_column is not None and (what := log_append_time(settings)):
        remedy = f"Remove {TIMESTAMP_COLUMN.name}, or set message.timestamp.type=CreateTime"
        findings.append(warned(what, remedy, name))
    return findings or [passed("it accepts records with headers, and without a key", name)]


def _check_compacted(context: CheckContext) -> Finding:
    name, remedy = context.topic_name, Advice.INVALID_MSG.remedy
    if context.schema is not None and "key" not in context.schema.names:
        return failed("it is compacted, and the DataFrame has no column key", remedy, name)
    if context.client.newest_versions.get(PRODUCE, _REASON_PRODUCE) < _REASON_PRODUCE:
        what = (
            "it is compacted; with brokers before Kafka 2.4, a record without a key fails its task "
            "only after close.timeout.ms, and the error does not name the key"
        )
        return warned(what, remedy, name)
    return passed("it is compacted, so each record needs a key", name)


def record_size(context: CheckContext) -> list[Finding]:
    """The topic accepts the largest records that the client accepts."""
    client_limit = context.settings.max_request_bytes
    topic_limit = int_setting(context.topic_settings, "max.message.bytes")
    name = context.topic_name
    if topic_limit is None:
        return [not_reported()]
    if topic_limit < client_limit:
        return [
            warned(
                f"the client accepts records up to {MAX_REQUEST_SIZE}={client_limit} bytes, but "
                f"the brokers reject those above max.message.bytes={topic_limit}",
                f"Raise the topic's max.message.bytes, or lower {MAX_REQUEST_SIZE}",
                name,
            )
        ]
    message = f"the topic accepts {topic_limit} bytes; the client sends at most {client_limit}"
    return [passed(message, name)]


def dead_letter_topic(context: CheckContext) -> list[Finding]:
    """The topic for dead letters exists, and accepts every dead letter."""
    name = context.sink.dead_letter_topic
    if name is None:
        return [not_applicable("on.record.error=fail")]
    try:
        description = context.client.topic(name, context.deadline)
    except RequestRejected as error:
        return [not_described(context, name, error, _not_writable(context, name))]
    if (finding := _check_leaders(name, description.partitions)) is not None:
        return [finding]
    if not description.may_write:
        return [failed(f"{context.user} may not write to it", grant(context, name, "Write"), name)]
    try:
        settings = context.client.topic_settings(name, context.deadline)
    except RequestRejected as error:
        what = f"{context.user} may not read its configuration"
        forbidden = warned(what, grant(context, name, "DescribeConfigs"), name)
        return [not_described(context, name, error, forbidden)]
    return [_check_dead_letters(context, name, description.partitions, settings)]


def _check_dead_letters(
    context: CheckContext,
    name: str,
    partitions: Sequence[PartitionDescription],
    settings: Mapping[str, str],
) -> Finding:
    if _waits_for_replicas(context):
        finding = check_in_sync(name, partitions, int_setting(settings, "min.insync.replicas"))
        if finding.outcome is Outcome.FAILED:
            return finding
    if limits_from(settings).is_compacted:
        what = "it is compacted, so a dead letter without a key fails its task"
        return failed(what, "Set the topic's cleanup.policy=delete", name)
    limit = int_setting(settings, "max.message.bytes")
    if limit is None:
        return not_reported()
    needed = context.settings.max_request_bytes + _DEAD_LETTER_HEADERS_BYTES
    if limit < needed:
        what = f"max.message.bytes={limit}: the largest dead letters will not fit"
        return warned(what, f"Raise the topic's max.message.bytes to {needed} or more", name)
    return passed(f"it accepts dead letters of up to {limit} bytes; larger ones fail", name)


def _partitions(ids: list[int]) -> str:
    shown = ", ".join(map(str, sorted(ids)[:5]))
    more = f" and {len(ids) - 5} more" if len(ids) > 5 else ""
    return f"partition {shown}{more}" if len(ids) == 1 else f"partitions {shown}{more}"
