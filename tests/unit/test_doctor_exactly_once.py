"""What doctor says about exactly-once, of brokers that answer in a certain way."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AclOperation

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.tools.doctor import exactly_once
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.result import Outcome

OPTIONS = {
    "kafka.bootstrap.servers": "a:1",
    "topic": "orders",
    "delivery.guarantee": "exactly-once",
    "exactly.once.ledger.topic": "ledger",
    "transactional.id.prefix": "orders-query",
}
NODES = [SimpleNamespace(id=number) for number in (1, 2, 3)]
EVERYTHING = [AclOperation.READ, AclOperation.DESCRIBE]
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
CREATED_WITH = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
}
CHECKS = (
    exactly_once.broker_versions,
    exactly_once.ledger_topic,
    exactly_once.ledger_groups,
    exactly_once.broker_settings,
    exactly_once.transaction_timeout,
    exactly_once.coordinators,
)


def described(replicas=3, in_sync=3, operations=EVERYTHING):
    partition = SimpleNamespace(
        id=0, leader=NODES[0], replicas=NODES[:replicas], isr=NODES[:in_sync]
    )
    return SimpleNamespace(partitions=[partition], authorized_operations=operations)


class FakeBrokers:
    """Answers with what the test sets; a number is an error."""

    def __init__(self):
        self.topics = {
            "ledger": described(),
            "__transaction_state": described(),
            "__consumer_offsets": described(),
        }
        self.settings = dict.fromkeys(self.topics, SAFE)
        self.brokers_own = {**CREATED_WITH, "transaction.max.timeout.ms": "900000"}
        self.api_versions = {9: (0, 8), **dict.fromkeys((22, 24, 25, 26, 28), (0, 3))}
        self.groups_operations = EVERYTHING
        self.asked_groups = []

    def topic(self, name, deadline):
        return answer(self.topics.get(name, KafkaError.UNKNOWN_TOPIC_OR_PART))

    def topic_settings(self, name, deadline):
        return answer(self.settings.get(name, KafkaError.UNKNOWN_TOPIC_OR_PART))

    def creation_error(self, name, deadline):
        return None

    def broker_settings(self, node_id, deadline):
        return answer(self.brokers_own)

    def group(self, name, deadline):
        self.asked_groups.append(name)
        return SimpleNamespace(authorized_operations=answer(self.groups_operations))


def answer(value):
    if isinstance(value, int):
        raise KafkaException(KafkaError(value))
    return value


@pytest.fixture
def brokers():
    return FakeBrokers()


@pytest.fixture
def look(brokers):
    """The findings of one check after those that it needs."""

    def look(check, **options):
        changed = {name.replace("_", "."): value for name, value in options.items()}
        given = {k: v for k, v in (OPTIONS | changed).items() if v is not None}
        context = CheckContext(given, False, None, Deadline(30))
        context.parsed = parse(given)
        context.brokers = brokers
        context.cluster = SimpleNamespace(nodes=NODES)
        context.api_versions = brokers.api_versions
        context.topic_settings = SAFE
        if isinstance(brokers.brokers_own, dict):
            context.broker_settings = brokers.brokers_own
        return check(context)

    return look


def only(findings):
    (finding,) = findings
    return finding


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_is_right_passes(look, check):
    assert only(look(check)).outcome is Outcome.PASSED


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_at_least_once_needs_none_of_it(look, check):
    options = {"delivery_guarantee": None, "exactly_once_ledger_topic": None}
    finding = only(look(check, transactional_id_prefix=None, **options))
    assert finding.outcome is Outcome.SKIPPED
    assert finding.message == "delivery.guarantee=at-least-once"


@pytest.mark.parametrize(
    ("key", "versions", "lacking"),
    [
        (9, (0, 6), "OffsetFetch only up to version 6"),
        (22, None, "no InitProducerId"),
        (24, None, "no AddPartitionsToTxn"),
        (25, None, "no AddOffsetsToTxn"),
        (26, None, "no EndTxn"),
        (28, None, "no TxnOffsetCommit"),
    ],
)
def test_brokers_that_lack_what_exactly_once_needs_fail(look, brokers, key, versions, lacking):
    del brokers.api_versions[key]
    if versions:
        brokers.api_versions[key] = versions
    finding = only(look(exactly_once.broker_versions))
    assert finding.outcome is Outcome.FAILED
    assert finding.message.endswith(f"these brokers have {lacking}")
    assert "delivery.guarantee=at-least-once" in finding.advice


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("hides_internal_topics", [True, False])
def test_brokers_that_say_nothing_are_not_accused(look, brokers, check, hides_internal_topics):
    """As Redpanda or Event Hubs may answer."""
    brokers.brokers_own = {}
    brokers.api_versions = {}
    brokers.groups_operations = None
    unknown = described(0, 0, None)
    brokers.topics = {"ledger": unknown}
    if not hides_internal_topics:
        brokers.topics |= dict.fromkeys(("__transaction_state", "__consumer_offsets"), unknown)
    brokers.settings = {key: {} for key in brokers.topics}
    finding = only(look(check))
    assert finding.outcome is Outcome.SKIPPED
    assert finding.message in ("the brokers do not report this", "the brokers' version is unknown")
    assert not finding.blocks


# --- the ledger -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("creates", "outcome"), [("false", Outcome.FAILED), ("true", Outcome.WARNED)]
)
def test_a_missing_ledger_topic_fails_if_the_brokers_do_not_create_it(
    look, brokers, creates, outcome
):
    del brokers.topics["ledger"]
    brokers.brokers_own["auto.create.topics.enable"] = creates
    finding = only(look(exactly_once.ledger_topic))
    assert (finding.outcome, finding.subject, finding.blocks) == (outcome, "ledger", True)
    assert "kafka-topics.sh --create --topic ledger" in finding.advice


@pytest.mark.parametrize(
    ("found", "operations"),
    [
        (described(operations=[AclOperation.DESCRIBE, AclOperation.WRITE]), "Read"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Describe --operation Read"),
    ],
)
def test_a_ledger_topic_that_may_not_be_read_fails(look, brokers, found, operations):
    brokers.topics["ledger"] = found
    finding = only(look(exactly_once.ledger_topic))
    assert finding.outcome is Outcome.FAILED
    assert f"--operation {operations} --topic ledger" in finding.advice


def test_the_option_topic_is_the_ledgers_unless_there_is_another(look, brokers):
    brokers.topics["orders"] = described(operations=[AclOperation.WRITE])
    finding = only(look(exactly_once.ledger_topic, exactly_once_ledger_topic=None))
    assert (finding.outcome, finding.subject) == (Outcome.FAILED, "orders")


@pytest.mark.parametrize(
    "operations", [[AclOperation.DESCRIBE], KafkaError.GROUP_AUTHORIZATION_FAILED]
)
def test_groups_of_the_querys_prefix_that_may_not_be_read_fail(look, brokers, operations):
    brokers.groups_operations = operations
    finding = only(look(exactly_once.ledger_groups))
    assert finding.outcome is Outcome.FAILED
    assert "orders-query.driver" in finding.message
    assert finding.advice == (
        "Grant it: kafka-acls.sh --add --allow-principal User:ANONYMOUS --operation Read --group "
        "orders-query --resource-pattern-type prefixed"
    )


def test_without_the_option_a_prefix_like_the_querys_is_tried(look, brokers):
    brokers.groups_operations = [AclOperation.DESCRIBE]
    finding = only(look(exactly_once.ledger_groups, transactional_id_prefix=None))
    assert brokers.asked_groups[0].startswith("kafka-nb-")
    assert "--group kafka-nb- --resource-pattern-type prefixed" in finding.advice


# --- the brokers' settings ------------------------------------------------------------------------


def test_a_transaction_that_is_longer_than_brokers_allow_fails(look, brokers):
    brokers.brokers_own["transaction.max.timeout.ms"] = "60000"
    finding = only(look(exactly_once.transaction_timeout))
    assert finding.outcome is Outcome.FAILED
    assert "kafka.transaction.timeout.ms=600000 exceeds" in finding.message
    options = {"kafka_transaction_timeout_ms": "60000"}
    assert only(look(exactly_once.transaction_timeout, **options)).outcome is Outcome.PASSED


def test_settings_that_may_not_be_read_skip_what_needs_them(look, brokers):
    brokers.brokers_own = KafkaError.CLUSTER_AUTHORIZATION_FAILED
    finding = only(look(exactly_once.broker_settings))
    assert (finding.outcome, finding.blocks) == (Outcome.SKIPPED, True)
    assert "--operation DescribeConfigs --cluster" in finding.advice


@pytest.mark.parametrize("name", ["__transaction_state", "__consumer_offsets"])
def test_coordinators_without_replicas_in_sync_fail(look, brokers, name):
    brokers.topics[name] = described(in_sync=1)
    finding = only(look(exactly_once.coordinators))
    assert (finding.outcome, finding.subject) == (Outcome.FAILED, name)


@pytest.mark.parametrize("name", ["__transaction_state", "__consumer_offsets"])
def test_coordinators_with_too_few_replicas_are_warnings(look, brokers, name):
    brokers.topics[name] = described(2, 2)
    brokers.settings = {**brokers.settings, name: SAFE | {"min.insync.replicas": "1"}}
    said = [finding.message for finding in look(exactly_once.coordinators)]
    assert {finding.outcome for finding in look(exactly_once.coordinators)} == {Outcome.WARNED}
    assert [message.partition(",")[0] for message in said] == [
        f"topic {name} has replicas=2",
        f"topic {name} has min.insync.replicas=1",
    ]


@pytest.mark.parametrize(
    "error", [KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.LEADER_NOT_AVAILABLE]
)
def test_of_coordinators_that_are_not_seen_the_brokers_settings_count(look, brokers, error):
    """They may be forbidden, or in creation."""
    brokers.topics["__transaction_state"] = error
    del brokers.topics["__consumer_offsets"]
    assert only(look(exactly_once.coordinators)).outcome is Outcome.PASSED
    brokers.brokers_own = dict.fromkeys(CREATED_WITH, "1")
    said = [finding.message for finding in look(exactly_once.coordinators)]
    assert [message.partition("=")[0] for message in said] == [
        f"the brokers have {name}" for name in CREATED_WITH
    ]


def test_what_coordinators_say_themselves_counts_more_than_what_they_are_created_with(
    look, brokers
):
    brokers.brokers_own = dict.fromkeys(CREATED_WITH, "1")
    assert only(look(exactly_once.coordinators)).outcome is Outcome.PASSED
