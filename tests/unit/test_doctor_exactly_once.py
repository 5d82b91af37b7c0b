"""What doctor says about exactly-once, of brokers that answer in a certain way."""

from __future__ import annotations

import pytest
from fake_brokers import DESCRIBE, FakeBrokers, partition, topic

from spark_kafka_sink.config.producer_options import FROM_DRIVER
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.events import Operation
from spark_kafka_sink.tools.doctor import exactly_once
from spark_kafka_sink.tools.doctor.result import Outcome
from spark_kafka_sink.transactions.ledger import BatchMarker, CommitEntry

OPTIONS = {
    "kafka.bootstrap.servers": "a:1",
    "topic": "orders",
    "delivery.guarantee": "exactly-once",
    "exactly.once.ledger.topic": "ledger",
    "transactional.id.prefix": "orders-query",
}
COORDINATORS = ("__transaction_state", "__consumer_offsets")
SAFE = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
CREATED_WITH = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "offsets.topic.replication.factor": "3",
    "min.insync.replicas": "2",
}
CHECKS = (
    exactly_once.ledger_topic,
    exactly_once.ledger_groups,
    exactly_once.broker_settings,
    exactly_once.transaction_timeout,
    exactly_once.coordinators,
)


@pytest.fixture
def brokers():
    topics = {name: topic() for name in ("orders", "ledger", *COORDINATORS)}
    return FakeBrokers(topics, SAFE, {**CREATED_WITH, "transaction.max.timeout.ms": "900000"}, {})


@pytest.fixture
def examine(brokers):
    """The findings of a check after those that it needs; None leaves an option out."""

    def examine(check, **options):
        changed = {name.replace("_", "."): value for name, value in options.items()}
        return brokers.findings(check, {k: v for k, v in (OPTIONS | changed).items() if v})

    return examine


def only(findings):
    (finding,) = findings
    return finding


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_what_is_right_passes(examine, check):
    assert only(examine(check)).outcome is Outcome.PASSED


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_at_least_once_needs_none_of_it(examine, check):
    options = {"delivery_guarantee": None, "exactly_once_ledger_topic": None}
    finding = only(examine(check, transactional_id_prefix=None, **options))
    assert finding.outcome is Outcome.SKIPPED
    assert finding.message == "delivery.guarantee=at-least-once"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("hides_internal_topics", [True, False])
def test_brokers_that_say_nothing_are_not_accused(examine, brokers, check, hides_internal_topics):
    """As Redpanda or Event Hubs may answer."""
    brokers.brokers_own = {}
    brokers.groups_operations = []
    unknown = topic(partition(replicas=0, in_sync=0), operations=())
    brokers.topics = {"orders": topic(), "ledger": unknown}
    if not hides_internal_topics:
        brokers.topics |= dict.fromkeys(COORDINATORS, unknown)
    brokers.settings = {key: {} for key in brokers.topics}
    finding = only(examine(check))
    assert finding.outcome is Outcome.SKIPPED
    assert finding.message == "the brokers do not report this"
    assert not finding.blocks


# --- the ledger -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("creates", "outcome"), [("false", Outcome.FAILED), ("true", Outcome.WARNED)]
)
def test_a_missing_ledger_topic_fails_if_brokers_create_none(examine, brokers, creates, outcome):
    del brokers.topics["ledger"]
    brokers.brokers_own["auto.create.topics.enable"] = creates
    finding = only(examine(exactly_once.ledger_topic))
    assert (finding.outcome, finding.subject, finding.blocks) == (outcome, "ledger", True)
    assert "kafka-topics.sh --create --topic ledger" in finding.advice


@pytest.mark.parametrize(
    ("answer", "granted"),
    [
        (topic(operations={DESCRIBE, Operation.WRITE}), "Read"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Describe --operation Read"),
    ],
)
def test_a_ledger_topic_that_may_not_be_read_fails(examine, brokers, answer, granted):
    brokers.topics["ledger"] = answer
    finding = only(examine(exactly_once.ledger_topic))
    assert finding.outcome is Outcome.FAILED
    assert f"--operation {granted} --topic ledger" in finding.advice


def test_the_option_topic_is_the_ledgers_unless_there_is_another(examine, brokers):
    brokers.topics["orders"] = topic(operations={Operation.WRITE})
    finding = only(examine(exactly_once.ledger_topic, exactly_once_ledger_topic=None))
    assert (finding.outcome, finding.subject) == (Outcome.FAILED, "orders")


@pytest.mark.parametrize("operations", [[DESCRIBE], ErrorCode.GROUP_AUTHORIZATION_FAILED])
def test_groups_of_the_querys_prefix_that_may_not_be_read_fail(examine, brokers, operations):
    brokers.groups_operations = operations
    finding = only(examine(exactly_once.ledger_groups))
    assert finding.outcome is Outcome.FAILED
    assert "orders-query.driver" in finding.message
    assert finding.advice == (
        "Grant it: kafka-acls.sh --add --allow-principal User:ANONYMOUS --operation Read --group "
        "orders-query --resource-pattern-type prefixed"
    )


def test_without_the_option_a_prefix_like_the_querys_is_tried(examine, brokers):
    brokers.groups_operations = [DESCRIBE]
    finding = only(examine(exactly_once.ledger_groups, transactional_id_prefix=None))
    assert brokers.asked_groups[0].startswith("kafka-nb-")
    assert "--group kafka-nb- --resource-pattern-type prefixed" in finding.advice


@pytest.mark.parametrize(
    ("marker", "entry", "expected"),
    [
        (None, None, "none yet: the query's first micro-batch creates it"),
        (BatchMarker(57, 2), CommitEntry(57, 2, 9, "f"), "the query has begun micro-batch 57"),
        (BatchMarker(57, 0), None, "the query has begun micro-batch 57"),
        (BatchMarker(57, 2), CommitEntry(58, 2, 9, "f"), "the query has begun micro-batch 58"),
        (
            BatchMarker(57, FROM_DRIVER),
            CommitEntry(57, FROM_DRIVER, 9, "f"),
            "begun micro-batch 57",
        ),
        # The next task would fail so.
        (BatchMarker(57, 2), None, "entry is missing"),
        (BatchMarker(57, FROM_DRIVER), CommitEntry(7, FROM_DRIVER, 9, "f"), "entry is missing"),
    ],
)
def test_the_ledger_is_read_as_the_next_task_reads_it(
    examine, monkeypatch, marker, entry, expected
):
    offsets = [None if part is None else part.to_offset() for part in (marker, None, entry)]

    def read_offsets(_settings, _topic, groups, _wait):
        return dict(zip(groups, offsets, strict=True))

    monkeypatch.setattr(exactly_once, "read_offsets", read_offsets)
    finding = only(examine(exactly_once.ledger))
    is_lost = expected == "entry is missing"
    assert finding.outcome is (Outcome.FAILED if is_lost else Outcome.PASSED)
    assert expected in finding.message


# --- the brokers' settings ------------------------------------------------------------------------


def test_a_transaction_that_is_longer_than_brokers_allow_fails(examine, brokers):
    brokers.brokers_own["transaction.max.timeout.ms"] = "60000"
    finding = only(examine(exactly_once.transaction_timeout))
    assert finding.outcome is Outcome.FAILED
    assert "kafka.transaction.timeout.ms=600000 exceeds" in finding.message
    options = {"kafka_transaction_timeout_ms": "60000"}
    assert only(examine(exactly_once.transaction_timeout, **options)).outcome is Outcome.PASSED


def test_settings_that_may_not_be_read_skip_what_needs_them(examine, brokers):
    brokers.brokers_own = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    finding = only(examine(exactly_once.broker_settings))
    assert (finding.outcome, finding.blocks) == (Outcome.SKIPPED, True)
    assert "--operation DescribeConfigs --cluster" in finding.advice


@pytest.mark.parametrize("name", COORDINATORS)
def test_coordinators_without_replicas_in_sync_fail(examine, brokers, name):
    brokers.topics[name] = topic(partition(in_sync=1))
    finding = only(examine(exactly_once.coordinators))
    assert (finding.outcome, finding.subject) == (Outcome.FAILED, name)


@pytest.mark.parametrize("name", COORDINATORS)
def test_coordinators_with_too_few_replicas_are_warnings(examine, brokers, name):
    brokers.topics[name] = topic(partition(replicas=2, in_sync=2))
    brokers.settings[name] = SAFE | {"min.insync.replicas": "1"}
    said = [finding.message for finding in examine(exactly_once.coordinators)]
    assert {finding.outcome for finding in examine(exactly_once.coordinators)} == {Outcome.WARNED}
    assert [message.partition(",")[0] for message in said] == [
        f"topic {name} has replicas=2",
        f"topic {name} has min.insync.replicas=1",
    ]


@pytest.mark.parametrize(
    "error", [ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.LEADER_NOT_AVAILABLE]
)
def test_of_coordinators_that_are_not_seen_the_brokers_settings_count(examine, brokers, error):
    """They may be forbidden, or in creation."""
    brokers.topics["__transaction_state"] = error
    del brokers.topics["__consumer_offsets"]
    assert only(examine(exactly_once.coordinators)).outcome is Outcome.PASSED
    brokers.brokers_own = dict.fromkeys(CREATED_WITH, "1")
    said = [finding.message for finding in examine(exactly_once.coordinators)]
    assert [message.partition("=")[0] for message in said] == [
        f"the brokers have {name}" for name in CREATED_WITH
    ]


def test_what_coordinators_say_counts_more_than_what_they_are_created_with(examine, brokers):
    brokers.brokers_own = dict.fromkeys(CREATED_WITH, "1")
    assert only(examine(exactly_once.coordinators)).outcome is Outcome.PASSED
