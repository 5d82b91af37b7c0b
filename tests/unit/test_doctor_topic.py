"""What doctor says about a topic whose brokers answer in a certain way."""

from __future__ import annotations

from types import SimpleNamespace

import fake_brokers
import pytest
from fake_brokers import DESCRIBE, FakeBrokers, partition

from spark_kafka_sink.librdkafka.error_codes import ErrorCode, error_name
from spark_kafka_sink.librdkafka.events import Operation
from spark_kafka_sink.tools.doctor import topic
from spark_kafka_sink.tools.doctor.brokers import RequestRejected
from spark_kafka_sink.tools.doctor.result import Outcome

SETTINGS = {"min.insync.replicas": "2", "max.message.bytes": "1048588", "cleanup.policy": "delete"}
BROKER = {
    "auto.create.topics.enable": "true",
    "num.partitions": "4",
    "default.replication.factor": "3",
}
ONE_OF_EACH = {"num.partitions": "1", "default.replication.factor": "1"}
MISSING, FORBIDDEN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED
NO_LEADER = fake_brokers.topic(partition(0), partition(1, has_leader=False))
DEAD_LETTERS = {"on_record_error": "dead-letter", "dead_letter_topic": "dead"}
PLAIN = {
    "kafka_security_protocol": "SASL_PLAINTEXT",
    "kafka_sasl_mechanism": "PLAIN",
    "kafka_sasl_username": "u",
    "kafka_sasl_password": "p",
}


@pytest.fixture
def brokers():
    topics = {"t": fake_brokers.topic(partition(0), partition(1)), "dead": fake_brokers.topic()}
    brokers = FakeBrokers(topics, SETTINGS, BROKER, {0: 9, 22: 4, 60: 2})
    brokers.settings["dead"]["max.message.bytes"] = "2000000"
    return brokers


@pytest.fixture
def examine(brokers):
    """The finding of a check after those that it needs."""

    def examine(check, created_topics=None, schema=None, **options):
        pairs = {name.replace("_", "."): value for name, value in options.items()}
        pairs = {"kafka.bootstrap.servers": "a:1", "topic": "t"} | pairs
        (finding,) = brokers.findings(
            check, pairs, created_topics=created_topics or {}, schema=schema
        )
        return finding

    return examine


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (topic.topic, "2 partitions, 3 replicas each"),
        (topic.topic_settings, "may be read"),
        (topic.in_sync_replicas, "all replicas are in sync; min.insync.replicas=2"),
        (topic.write_permission, "User:ANONYMOUS may write to it"),
        (topic.idempotent_write, "implied by the right to write to a topic (Kafka 2.8, KIP-679)"),
        (topic.record_format, "it accepts records with headers, and without a key"),
        (topic.record_size, "the topic accepts 1048588 bytes; the client sends at most 1048576"),
        (
            topic.dead_letter_topic,
            "it accepts dead letters of up to 2000000 bytes; larger ones fail",
        ),
    ],
)
def test_what_is_right_passes(examine, check, message):
    finding = examine(check, **DEAD_LETTERS)
    assert (finding.outcome, finding.message) == (Outcome.PASSED, message)


# --- a topic that is missing, forbidden or without a leader ---------------------------------------


@pytest.mark.parametrize(
    ("settings", "outcome", "message"),
    [
        ({**BROKER, "auto.create.topics.enable": "false"}, "failed", "do not create topics"),
        (BROKER, "warned", "the first record creates it, with 4 partitions and 3 replicas, if"),
        ({**BROKER, **ONE_OF_EACH}, "warned", "with 1 partition and 1 replica, if"),
        ({"auto.create.topics.enable": "true"}, "warned", "the first record creates it, if User:A"),
        ({}, "warned", "the brokers do not report whether they create it"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "failed", "whether the brokers create it is unk"),
    ],
)
def test_a_missing_topic_fails_or_not_as_brokers_say(examine, brokers, settings, outcome, message):
    brokers.topics["t"], brokers.brokers_own = MISSING, settings
    finding = examine(topic.topic)
    assert (finding.outcome.value, finding.blocks) == (outcome, True)
    assert message in finding.message
    assert "kafka-topics.sh --create --topic t" in finding.advice


def test_a_missing_topic_that_the_job_creates_passes_and_the_rest_is_skipped(examine, brokers):
    brokers.topics = {}
    brokers.brokers_own["auto.create.topics.enable"] = "false"
    finding = examine(topic.topic, {"t": 6})
    assert (finding.outcome, finding.blocks) == (Outcome.PASSED, True)
    assert finding.message == (
        "it does not exist; the job creates it, with 6 partitions, if User:ANONYMOUS may create "
        "topics"
    )
    dead = examine(topic.dead_letter_topic, {"dead": 1}, **DEAD_LETTERS)
    assert dead.outcome is Outcome.PASSED
    dead = examine(topic.dead_letter_topic, {"t": 6}, **DEAD_LETTERS)
    assert dead.outcome is Outcome.FAILED


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
def test_a_missing_topic_fails_with_the_brokers_reason(examine, brokers, code, reason, advice):
    brokers.topics = {}
    brokers.if_created = RequestRejected(code, reason)
    for check in (topic.topic, topic.dead_letter_topic):
        finding = examine(check, **DEAD_LETTERS)
        assert finding.outcome is Outcome.FAILED
        assert f"would not create it: {reason}" in finding.message
        assert f"({error_name(code)})" in finding.message
        assert advice in finding.advice


def test_brokers_that_do_not_say_whether_they_would_create_a_topic_are_a_warning(examine, brokers):
    brokers.topics["t"], brokers.if_created = MISSING, RequestRejected(ErrorCode.TIMED_OUT)
    assert examine(topic.topic).outcome is Outcome.WARNED


def test_a_forbidden_topic_fails_with_the_command_that_grants_it(examine, brokers):
    brokers.topics["t"] = FORBIDDEN
    finding = examine(topic.topic)
    assert finding.outcome is Outcome.FAILED
    assert finding.advice == (
        "Grant it: kafka-acls.sh --add --allow-principal User:ANONYMOUS --operation Describe "
        "--operation Write --topic t"
    )


def test_a_partition_without_leader_fails(examine, brokers):
    brokers.topics["t"] = NO_LEADER
    finding = examine(topic.topic)
    assert (finding.outcome, finding.message) == (Outcome.FAILED, "no leader for partition 1")


# --- replicas -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("partitions", "needed", "outcome", "message"),
    [
        ([partition(0), partition(1, in_sync=1)], "2", "failed",
         "fewer than min.insync.replicas=2 for partition 1:"),
        ([partition(number, in_sync=1, replicas=1) for number in range(8)], "2", "failed",
         "partitions 0, 1, 2, 3, 4 and 3 more, and there are only 1"),
        ([partition(replicas=2, in_sync=2)], "2", "warned", "=2: while any of their brokers rest"),
        ([partition(replicas=1, in_sync=1)], "1", "warned", "=1: while any of their brokers rest"),
        ([partition(in_sync=2)], "2", "warned", "replicas of partition 0 are not in sync"),
        ([partition(replicas=0, in_sync=0)], "2", "skipped", "the brokers do not report this"),
    ],
)  # fmt: skip
def test_replicas_are_compared_with_acks(examine, brokers, partitions, needed, outcome, message):
    brokers.topics["t"] = fake_brokers.topic(*partitions)
    brokers.settings["t"]["min.insync.replicas"] = needed
    finding = examine(topic.in_sync_replicas)
    assert finding.outcome.value == outcome
    assert message in finding.message


def test_replicas_do_not_matter_without_acks_all(examine, brokers):
    brokers.topics["t"] = fake_brokers.topic(partition(in_sync=1))
    options = {"kafka_acks": "1", "kafka_enable_idempotence": "false"}
    assert examine(topic.in_sync_replicas, **options).outcome is Outcome.SKIPPED


# --- permissions ----------------------------------------------------------------------------------


def test_no_right_to_write_fails(examine, brokers):
    brokers.topics = dict.fromkeys(brokers.topics, fake_brokers.topic(operations={DESCRIBE}))
    for check, name in ((topic.write_permission, "t"), (topic.dead_letter_topic, "dead")):
        finding = examine(check, **DEAD_LETTERS)
        assert finding.outcome is Outcome.FAILED
        assert finding.message == "User:ANONYMOUS may not write to it"
        assert f"--operation Write --topic {name}" in finding.advice


@pytest.mark.parametrize(
    ("options", "user"),
    [
        ({"kafka_security_protocol": "SSL"}, "User:..."),  # the subject of a certificate, perhaps
        (PLAIN, "User:u"),
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
def test_the_user_is_named_as_far_as_the_settings_say_it(examine, options, user):
    assert examine(topic.write_permission, **options).message == f"{user} may write to it"


@pytest.mark.parametrize(
    ("versions", "operations", "outcome", "text"),
    [
        ({22: 1}, (), "failed", "--operation IdempotentWrite --cluster"),
        ({22: 1}, [Operation.IDEMPOTENT_WRITE], "passed", "(IdempotentWrite)"),
        ({0: 8, 60: 2}, (), "failed", "kafka.enable.idempotence=false"),
        ({0: 8, 60: 2}, [Operation.IDEMPOTENT_WRITE], "failed", "enable.idempotence=false"),
        ({}, (), "skipped", "the brokers' version is unknown"),
    ],
)
def test_before_kafka_2_8_idempotent_writing_needs_a_right_of_its_own(
    examine, brokers, versions, operations, outcome, text
):
    brokers.newest_versions, brokers.cluster_operations = versions, operations
    finding = examine(topic.idempotent_write)
    assert finding.outcome.value == outcome
    assert text in finding.message + finding.advice


def test_idempotence_is_read_as_the_client_reads_it(examine):
    for value, outcome in (("TRUE", Outcome.PASSED), ("1", Outcome.PASSED), ("0", Outcome.SKIPPED)):
        options = {"kafka_enable_idempotence": value}
        assert examine(topic.idempotent_write, **options).outcome is outcome


def test_configuration_that_may_not_be_read_skips_what_needs_it(examine, brokers):
    brokers.settings["t"] = FORBIDDEN
    finding = examine(topic.topic_settings, **DEAD_LETTERS)
    assert (finding.outcome, finding.blocks) == (Outcome.SKIPPED, True)
    assert finding.advice.endswith(
        "--operation DescribeConfigs --topic t, to let doctor check its limits"
    )
    exactly_once = {"delivery_guarantee": "exactly-once", "exactly_once_partitions": "2"}
    advice = examine(topic.topic_settings, **DEAD_LETTERS, **exactly_once).advice
    assert advice.endswith("and the sink send dead letters for records that they reject")


# --- what the topics accept -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "columns", "produce", "outcome", "message"),
    [
        ({"cleanup.policy": "compact"}, None, 13, "passed", "each record needs a key"),
        ({"cleanup.policy": "compact,delete"}, None, 7, "warned", "before Kafka 2.4"),
        ({"cleanup.policy": "compact"}, ["value"], 13, "failed", "no column key"),
        ({"cleanup.policy": "compact"}, ["key", "value"], 13, "passed", "needs a key"),
        ({"message.format.version": "3.0-IV1"}, None, 9, "passed", "with headers"),
        ({"message.format.version": "0.11.0-IV2"}, None, 9, "passed", "with headers"),
        ({"message.format.version": "0.10.2-IV0"}, None, 7, "failed", "idempotent producer"),
        ({"message.format.version": "0.9.0.X"}, None, 7, "failed", "no headers"),
    ],
)
def test_a_topic_takes_headers_and_records_without_a_key_or_not(
    examine, brokers, settings, columns, produce, outcome, message
):
    brokers.settings["t"] |= settings
    brokers.newest_versions = {0: produce}
    finding = examine(topic.record_format, schema=columns and SimpleNamespace(names=columns))
    assert finding.outcome.value == outcome
    assert message in finding.message


def test_a_message_format_without_headers_is_a_warning_without_idempotence(examine, brokers):
    brokers.settings["t"]["message.format.version"] = "0.10.2-IV0"
    finding = examine(topic.record_format, kafka_enable_idempotence="false")
    assert finding.outcome is Outcome.WARNED
    assert "leave out the headers" in finding.advice


def test_a_topic_that_replaces_timestamps_is_a_warning_if_a_column_has_them(examine, brokers):
    brokers.settings["t"]["message.timestamp.type"] = "LogAppendTime"
    assert examine(topic.record_format).outcome is Outcome.PASSED
    finding = examine(topic.record_format, timestamp_column="at")
    assert finding.outcome is Outcome.WARNED
    assert "timestamp.column has no effect" in finding.message
    assert finding.advice == "Remove timestamp.column, or set message.timestamp.type=CreateTime"


def test_a_topic_with_a_smaller_limit_than_the_clients_is_a_warning(examine, brokers):
    brokers.settings["t"]["max.message.bytes"] = "5000"
    finding = examine(topic.record_size)
    assert finding.outcome is Outcome.WARNED
    assert "above max.message.bytes=5000" in finding.message
    assert "Raise the topic's max.message.bytes" in finding.advice


@pytest.mark.parametrize(
    ("settings", "outcome", "message"),
    [
        (SETTINGS, "warned", "the largest dead letters will not fit"),
        ({"cleanup.policy": "compact"}, "failed", "a dead letter without a key fails"),
        (MISSING, "warned", "the first record creates it"),
        (FORBIDDEN, "warned", "may not read its configuration"),
        (38, "failed", "eplication factor"),
    ],
)
def test_the_topic_for_dead_letters_takes_any_record(examine, brokers, settings, outcome, message):
    brokers.settings["dead"] = settings
    finding = examine(topic.dead_letter_topic, **DEAD_LETTERS)
    assert (finding.outcome.value, finding.subject) == (outcome, "dead")
    assert message in finding.message


@pytest.mark.parametrize("settings", [SETTINGS, FORBIDDEN], ids=["", "hidden settings"])
@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (NO_LEADER, "no leader for partition 1"),
        (fake_brokers.topic(operations={DESCRIBE}), "User:ANONYMOUS may not write to it"),
        (FORBIDDEN, "--operation Describe --operation Write --topic dead"),
    ],
)
def test_a_topic_that_takes_no_dead_letters_fails(examine, brokers, answer, text, settings):
    brokers.topics["dead"], brokers.settings["dead"] = answer, settings
    finding = examine(topic.dead_letter_topic, **DEAD_LETTERS)
    assert finding.outcome is Outcome.FAILED
    assert text in finding.message + finding.advice


def test_a_topic_for_dead_letters_with_too_few_replicas_in_sync_fails(examine, brokers):
    brokers.topics["dead"] = fake_brokers.topic(partition(0, in_sync=1))
    finding = examine(topic.dead_letter_topic, **DEAD_LETTERS)
    assert finding.outcome is Outcome.FAILED
    assert "fewer than min.insync.replicas=2 for partition 0" in finding.message
    acks = {"kafka_acks": "1", "kafka_enable_idempotence": "false"}
    assert examine(topic.dead_letter_topic, **DEAD_LETTERS, **acks).outcome is Outcome.PASSED


def test_without_dead_letters_there_is_nothing_to_check(examine):
    assert examine(topic.dead_letter_topic).outcome is Outcome.SKIPPED


# --- brokers that are not Apache Kafka's: they leave settings and rights out ----------------------


@pytest.mark.parametrize(
    "check",
    [
        topic.topic_settings,
        topic.in_sync_replicas,
        topic.write_permission,
        topic.idempotent_write,
        topic.record_format,
        topic.record_size,
        topic.dead_letter_topic,
    ],
)
def test_what_brokers_do_not_say_is_skipped_and_stops_nothing(examine, brokers, check):
    brokers.settings = {name: {} for name in brokers.settings}
    brokers.newest_versions = {22: 1}
    brokers.topics["t"] = fake_brokers.topic(operations=())
    finding = examine(check, **DEAD_LETTERS)
    assert (finding.outcome, finding.blocks) == (Outcome.SKIPPED, False)
    assert finding.message == "the brokers do not report this"
