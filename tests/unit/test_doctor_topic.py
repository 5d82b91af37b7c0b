"""What doctor says about a topic whose brokers answer in a certain way."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.tools.doctor import topic
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.result import Outcome

SETTINGS = {
    "min.insync.replicas": "2",
    "max.message.bytes": "1048588",
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "message.timestamp.type": "CreateTime",
}
NODES = [SimpleNamespace(id=number) for number in (1, 2, 3)]


def partition(number, in_sync=3, replicas=3, leader=NODES[0]):
    return SimpleNamespace(id=number, leader=leader, replicas=NODES[:replicas], isr=NODES[:in_sync])


class FakeBrokers:
    """Answers with what the test sets; an exception is raised."""

    def __init__(self):
        self.found = SimpleNamespace(
            partitions=[partition(0), partition(1)],
            authorized_operations=[AclOperation.DESCRIBE, AclOperation.WRITE],
        )
        self.topics_own = dict(SETTINGS)
        self.brokers_own = {
            "auto.create.topics.enable": "true",
            "num.partitions": "4",
            "default.replication.factor": "3",
        }
        self.if_created = None
        self.api_versions = {22: (0, 4), 60: (0, 2)}

    def topic(self, name, deadline):
        return answer(self.found)

    def creation_error(self, name, deadline):
        return self.if_created

    def topic_settings(self, name, deadline):
        return answer(self.topics_own)

    def broker_settings(self, node_id, deadline):
        return answer(self.brokers_own)


def answer(value):
    if isinstance(value, int):
        raise KafkaException(KafkaError(value))
    return value


@pytest.fixture
def brokers():
    return FakeBrokers()


@pytest.fixture
def look(brokers):
    """The finding of one check after those that it needs."""

    def look(check, created_topics=None, schema=None, **options):
        given = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
        given |= {name.replace("_", "."): value for name, value in options.items()}
        context = CheckContext(given, False, None, Deadline(30), created_topics or {}, schema)
        context.parsed = parse(given)
        context.brokers = brokers
        context.api_versions = brokers.api_versions
        context.cluster = SimpleNamespace(nodes=NODES, authorized_operations=None)
        context.topic = brokers.found
        context.topic_settings = brokers.topics_own
        (finding,) = check(context)
        return finding

    return look


def test_a_topic_passes(look):
    finding = look(topic.topic)
    assert finding.outcome is Outcome.PASSED
    assert finding.message == "2 partitions, 3 replicas each"


def test_a_missing_topic_that_brokers_do_not_create_fails(look, brokers):
    brokers.found = KafkaError.UNKNOWN_TOPIC_OR_PART
    brokers.brokers_own["auto.create.topics.enable"] = "false"
    finding = look(topic.topic)
    assert finding.outcome is Outcome.FAILED
    assert finding.advice.startswith("Create it, or correct its name: kafka-topics.sh --create")


def test_a_missing_topic_that_the_job_creates_passes_and_the_rest_is_skipped(look, brokers):
    brokers.found = KafkaError.UNKNOWN_TOPIC_OR_PART
    brokers.brokers_own["auto.create.topics.enable"] = "false"
    finding = look(topic.topic, {"t": 6})
    assert finding.outcome is Outcome.PASSED
    assert finding.message == (
        "it does not exist; the job creates it, with 6 partitions, if User:ANONYMOUS may create "
        "topics"
    )
    assert finding.blocks
    dead = {"on_record_error": "dead-letter", "dead_letter_topic": "dead"}
    assert look(topic.dead_letter_topic, {"dead": 1}, **dead).outcome is Outcome.PASSED
    assert look(topic.dead_letter_topic, {"t": 6}, **dead).outcome is Outcome.FAILED


def test_a_missing_topic_that_brokers_create_is_a_warning_and_the_rest_is_skipped(look, brokers):
    brokers.found = KafkaError.UNKNOWN_TOPIC_OR_PART
    finding = look(topic.topic)
    assert finding.outcome is Outcome.WARNED
    assert "with 4 partitions and 3 replicas" in finding.message
    assert finding.blocks


@pytest.mark.parametrize("creates", ["true", None])
@pytest.mark.parametrize("option", ["topic", "dead_letter_topic"])
@pytest.mark.parametrize(
    ("code", "reason", "advice"),
    [
        (38, "only 1 broker(s) are registered", "Start the missing brokers, or create the topic"),
        (37, "", "another number of partitions"),
        (44, "too few partitions", "as the policy requires"),
        (17, "Topic 'a.b' collides with existing topic: a_b", "Choose another name"),
        (29, "", "permission to describe and create it"),
        (31, "", "permission to describe and create it"),
    ],
)
def test_a_missing_topic_that_brokers_would_not_create_fails_with_their_reason(
    look, brokers, creates, option, code, reason, advice
):
    brokers.found = KafkaError.UNKNOWN_TOPIC_OR_PART
    brokers.brokers_own["auto.create.topics.enable"] = creates
    brokers.if_created = KafkaError(code, reason)
    finding = look(getattr(topic, option), on_record_error="dead-letter", dead_letter_topic="d")
    assert finding.outcome is Outcome.FAILED
    assert f"would not create it: {reason}" in finding.message
    assert f"({brokers.if_created.name()})" in finding.message
    assert advice in finding.advice


def test_brokers_that_do_not_say_whether_they_would_create_a_topic_are_a_warning(look, brokers):
    brokers.found = KafkaError.UNKNOWN_TOPIC_OR_PART
    brokers.if_created = KafkaError(KafkaError._TIMED_OUT)
    assert look(topic.topic).outcome is Outcome.WARNED


def test_a_missing_topic_fails_if_the_brokers_do_not_say_what_they_do(look, brokers):
    brokers.found = KafkaError.UNKNOWN_TOPIC_OR_PART
    brokers.brokers_own = KafkaError.CLUSTER_AUTHORIZATION_FAILED
    finding = look(topic.topic)
    assert finding.outcome is Outcome.FAILED
    assert "whether the brokers create it is unknown" in finding.message


def test_a_forbidden_topic_fails_with_the_command_that_grants_it(look, brokers):
    brokers.found = KafkaError.TOPIC_AUTHORIZATION_FAILED
    finding = look(topic.topic)
    assert finding.outcome is Outcome.FAILED
    assert finding.advice == (
        "Grant it: kafka-acls.sh --add --allow-principal User:ANONYMOUS --operation Describe "
        "--operation Write --topic t"
    )


@pytest.mark.parametrize("leader", [None, SimpleNamespace(id=-1)])
def test_a_partition_without_leader_fails(look, brokers, leader):
    brokers.found.partitions[1] = partition(1, leader=leader)
    finding = look(topic.topic)
    assert finding.outcome is Outcome.FAILED
    assert finding.message == "no leader for partition 1"


def test_enough_replicas_in_sync_pass(look):
    assert look(topic.in_sync_replicas).outcome is Outcome.PASSED


def test_too_few_replicas_in_sync_fail(look, brokers):
    brokers.found.partitions[1] = partition(1, in_sync=1)
    finding = look(topic.in_sync_replicas)
    assert finding.outcome is Outcome.FAILED
    assert "fewer than min.insync.replicas=2 for partition 1:" in finding.message
    assert "Start the missing brokers, or lower" in finding.advice


@pytest.mark.parametrize(("replicas", "needed"), [(2, "2"), (1, "1")])
def test_no_replica_to_spare_is_a_warning(look, brokers, replicas, needed):
    brokers.found.partitions = [partition(0, replicas, replicas), partition(1)]
    brokers.topics_own["min.insync.replicas"] = needed
    finding = look(topic.in_sync_replicas)
    assert finding.outcome is Outcome.WARNED
    assert f"{needed}: while any of their brokers restarts, writes fail" in finding.message


def test_more_replicas_wanted_than_there_are_fail(look, brokers):
    brokers.found.partitions = [partition(n, in_sync=1, replicas=1) for n in range(8)]
    finding = look(topic.in_sync_replicas)
    assert finding.outcome is Outcome.FAILED
    assert "partitions 0, 1, 2, 3, 4 and 3 more, and there are only 1" in finding.message


def test_replicas_behind_are_a_warning(look, brokers):
    brokers.found.partitions[0] = partition(0, in_sync=2)
    finding = look(topic.in_sync_replicas)
    assert finding.outcome is Outcome.WARNED
    assert finding.message == "replicas of partition 0 are not in sync"


def test_replicas_do_not_matter_without_acks_all(look, brokers):
    brokers.found.partitions[1] = partition(1, in_sync=1)
    options = {"kafka_acks": "1", "kafka_enable_idempotence": "false"}
    assert look(topic.in_sync_replicas, **options).outcome is Outcome.SKIPPED


def test_configuration_that_may_not_be_read_skips_what_needs_it(look, brokers):
    brokers.topics_own = KafkaError.TOPIC_AUTHORIZATION_FAILED
    finding = look(topic.topic_settings)
    assert finding.outcome is Outcome.SKIPPED
    assert finding.blocks
    assert "--operation DescribeConfigs --topic t" in finding.advice


def test_no_right_to_write_fails(look, brokers):
    brokers.found.authorized_operations = [AclOperation.DESCRIBE]
    finding = look(topic.write_permission)
    assert finding.outcome is Outcome.FAILED
    assert finding.message == "User:ANONYMOUS may not write to it"
    assert "--operation Write --topic t" in finding.advice


@pytest.mark.parametrize(
    ("options", "user"),
    [
        ({}, "User:ANONYMOUS"),
        ({"kafka_security_protocol": "SSL"}, "User:..."),  # the subject of a certificate, perhaps
        (
            {
                "kafka_security_protocol": "SASL_PLAINTEXT",
                "kafka_sasl_mechanism": "PLAIN",
                "kafka_sasl_username": "u",
                "kafka_sasl_password": "p",
            },
            "User:u",
        ),
        (
            {
                "kafka_security_protocol": "SASL_PLAINTEXT",
                "kafka_sasl_mechanism": "OAUTHBEARER",
                "oauth_callback": "mine:make",
            },
            "User:...",
        ),
    ],
)
def test_the_user_is_named_as_far_as_the_settings_say_it(look, options, user):
    assert look(topic.write_permission, **options).message == f"{user} may write to it"


def test_brokers_that_do_not_tell_rights_are_not_accused(look, brokers):
    brokers.found.authorized_operations = None
    brokers.api_versions = {22: (0, 1)}
    for check in (topic.write_permission, topic.idempotent_write):
        finding = look(check)
        assert finding.message == "the brokers do not report this"
        assert not finding.blocks


def look_at_idempotence(brokers, api_versions, operations):
    given = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
    context = CheckContext(given, False, None, Deadline(30))
    context.parsed = parse(given)
    context.topic = brokers.found
    context.api_versions = api_versions
    context.cluster = SimpleNamespace(authorized_operations=operations)
    (finding,) = topic.idempotent_write(context)
    return finding


def test_idempotent_writing_is_implied_since_kafka_2_8(brokers):
    finding = look_at_idempotence(brokers, {22: (0, 4), 60: (0, 0)}, None)
    assert finding.outcome is Outcome.PASSED
    assert "KIP-679" in finding.message


def test_before_kafka_2_8_idempotent_writing_needs_a_right_of_its_own(brokers):
    finding = look_at_idempotence(brokers, {22: (0, 1)}, None)
    assert finding.outcome is Outcome.FAILED
    assert "--operation IdempotentWrite --cluster" in finding.advice
    finding = look_at_idempotence(brokers, {22: (0, 1)}, [AclOperation.IDEMPOTENT_WRITE])
    assert finding.outcome is Outcome.PASSED


@pytest.mark.parametrize("operations", [None, [AclOperation.IDEMPOTENT_WRITE]])
def test_brokers_without_idempotent_producers_fail(brokers, operations):
    finding = look_at_idempotence(brokers, {0: (0, 8), 60: (0, 2)}, operations)
    assert finding.outcome is Outcome.FAILED
    assert "kafka.enable.idempotence=false" in finding.advice


@pytest.mark.parametrize("value", ["true", "TRUE", "1"])
def test_idempotence_is_read_as_the_client_reads_it(look, value):
    finding = look(topic.idempotent_write, kafka_enable_idempotence=value)
    assert finding.outcome is Outcome.PASSED


def test_without_idempotence_its_right_does_not_matter(look):
    options = {"kafka_enable_idempotence": "false"}
    assert look(topic.idempotent_write, **options).outcome is Outcome.SKIPPED


@pytest.mark.parametrize(
    ("settings", "columns", "produce", "outcome", "message"),
    [
        ({}, None, 13, Outcome.PASSED, "with headers, and without a key"),
        ({"cleanup.policy": "compact"}, None, 13, Outcome.PASSED, "each record needs a key"),
        ({"cleanup.policy": "compact,delete"}, None, 7, Outcome.WARNED, "before Kafka 2.4"),
        ({"cleanup.policy": "compact"}, ["value"], 13, Outcome.FAILED, "no column key"),
        ({"cleanup.policy": "compact"}, ["key", "value"], 13, Outcome.PASSED, "needs a key"),
        ({"message.format.version": "3.0-IV1"}, None, 9, Outcome.PASSED, "with headers"),
        ({"message.format.version": "0.11.0-IV2"}, None, 9, Outcome.PASSED, "with headers"),
        ({"message.format.version": "0.10.2-IV0"}, None, 7, Outcome.FAILED, "idempotent producer"),
        ({"message.format.version": "0.9.0.X"}, None, 7, Outcome.FAILED, "no headers"),
    ],
)
def test_a_topic_takes_headers_and_records_without_a_key_or_not(
    look, brokers, settings, columns, produce, outcome, message
):
    brokers.topics_own |= settings
    brokers.api_versions = {0: (0, produce)}
    schema = columns and SimpleNamespace(names=columns)
    finding = look(topic.record_format, schema=schema)
    assert finding.outcome is outcome
    assert message in finding.message


def test_a_message_format_without_headers_is_a_warning_without_idempotence(look, brokers):
    brokers.topics_own["message.format.version"] = "0.10.2-IV0"
    finding = look(topic.record_format, kafka_enable_idempotence="false")
    assert finding.outcome is Outcome.WARNED
    assert "leave out the headers" in finding.advice


def test_a_topic_with_a_smaller_limit_than_the_clients_is_a_warning(look, brokers):
    assert look(topic.record_size).outcome is Outcome.PASSED
    brokers.topics_own["max.message.bytes"] = "5000"
    finding = look(topic.record_size)
    assert finding.outcome is Outcome.WARNED
    assert "above max.message.bytes=5000" in finding.message
    assert "Raise the topic's max.message.bytes" in finding.advice


@pytest.mark.parametrize(
    ("settings", "message", "has_advice"),
    [
        ({}, "records are deleted 7 days after their timestamp", True),
        ({"retention.ms": "3600000"}, "records are deleted 1 hour after", True),
        ({"retention.ms": "-1"}, "records of any age are kept", False),
        ({"cleanup.policy": "compact"}, "records of any age are kept", False),
        ({"message.timestamp.type": "LogAppendTime"}, "brokers replace the column", True),
    ],
)
def test_retention_is_told_in_view_of_a_column_timestamp(
    look, brokers, settings, message, has_advice
):
    brokers.topics_own |= settings
    finding = look(topic.retention)
    assert finding.outcome is Outcome.PASSED
    assert finding.message.startswith(message)
    assert bool(finding.advice) == has_advice


DEAD_LETTERS = {"on_record_error": "dead-letter", "dead_letter_topic": "dlq"}


@pytest.mark.parametrize(
    ("settings", "outcome", "message"),
    [
        ({"max.message.bytes": "2000000"}, Outcome.PASSED, "dead letters of up to 2000000 bytes"),
        ({}, Outcome.WARNED, "the largest dead letters will not fit"),
        ({"cleanup.policy": "compact"}, Outcome.FAILED, "a dead letter without a key fails"),
    ],
)
def test_the_topic_for_dead_letters_takes_any_record(look, brokers, settings, outcome, message):
    brokers.topics_own |= settings
    finding = look(topic.dead_letter_topic, **DEAD_LETTERS)
    assert (finding.outcome, finding.subject) == (outcome, "dlq")
    assert message in finding.message


def test_the_topic_for_dead_letters_must_exist_and_be_writable(look, brokers):
    brokers.found.authorized_operations = [AclOperation.DESCRIBE]
    finding = look(topic.dead_letter_topic, **DEAD_LETTERS)
    assert (finding.outcome, "may not write" in finding.message) == (Outcome.FAILED, True)
    assert "--topic dlq" in finding.advice


def test_dead_letters_with_exactly_once_need_the_topics_limits(look, brokers):
    brokers.topics_own = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert "dead letters" not in look(topic.topic_settings, **DEAD_LETTERS).advice
    exactly_once = {"delivery_guarantee": "exactly-once", "exactly_once_partitions": "2"}
    advice = look(topic.topic_settings, **DEAD_LETTERS, **exactly_once).advice
    assert advice.endswith(
        "--operation DescribeConfigs --topic t, to let doctor check its limits, "
        "and the sink send dead letters for records that they reject"
    )


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (KafkaError.UNKNOWN_TOPIC_OR_PART, Outcome.WARNED),  # these brokers create topics
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Outcome.WARNED),
        (KafkaError.INVALID_REPLICATION_FACTOR, Outcome.FAILED),
    ],
)
def test_a_topic_for_dead_letters_that_is_not_described(look, brokers, code, outcome):
    brokers.topics_own = code
    assert look(topic.dead_letter_topic, **DEAD_LETTERS).outcome == outcome


def test_without_dead_letters_there_is_nothing_to_check(look):
    assert look(topic.dead_letter_topic).outcome == Outcome.SKIPPED


# --- brokers that are not Apache Kafka's: they leave settings out ---------------------------------


@pytest.mark.parametrize("settings", [{}, {"cleanup.policy": "delete"}, {"retention.ms": "1000"}])
@pytest.mark.parametrize(
    "check", [topic.in_sync_replicas, topic.record_size, topic.retention, topic.dead_letter_topic]
)
def test_what_brokers_do_not_say_is_skipped_and_stops_nothing(look, brokers, check, settings):
    brokers.topics_own = settings
    finding = look(check, **DEAD_LETTERS)
    assert finding.outcome is Outcome.SKIPPED
    assert finding.message == "the brokers do not report this"
    assert not finding.blocks


def test_brokers_that_tell_no_settings_at_all_stop_nothing(look, brokers):
    brokers.topics_own = {}
    finding = look(topic.topic_settings)
    assert (finding.outcome, finding.blocks) == (Outcome.SKIPPED, False)


def test_brokers_that_tell_no_replicas_are_not_accused(look, brokers):
    brokers.found.partitions = [partition(0, in_sync=0, replicas=0)]
    assert look(topic.in_sync_replicas).message == "the brokers do not report this"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "do not report whether they create it"),
        ({"auto.create.topics.enable": "true"}, "the first record creates it, if User:ANONYMOUS"),
    ],
)
def test_a_missing_topic_of_brokers_that_say_little_is_a_warning(look, brokers, settings, message):
    brokers.found = KafkaError.UNKNOWN_TOPIC_OR_PART
    brokers.brokers_own = settings
    finding = look(topic.topic)
    assert (finding.outcome, finding.blocks) == (Outcome.WARNED, True)
    assert message in finding.message
