"""The producer's errors name what failed, why, and what to do."""

from __future__ import annotations

import re
from collections import Counter

import pytest

from spark_kafka_sink.config.producer_options import BlockBudget
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import DeliveryFailed, MetadataTimeout, TopicUnavailable
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.producer import error_messages
from spark_kafka_sink.producer.sends import Send
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.transactions.offset_calls import BrokerWait

SHARED = BlockBudget(1500, True, 60_000)
ITS_OWN = BlockBudget(1500, False, 2500)
REPORT = DeliveryReport(broker_error="connection refused")


def failed_delivery(partition, code):
    return Send(1, "t", 1, failed=Counter({(partition, code): 1}))


@pytest.mark.parametrize(
    ("code", "budget", "kind", "text"),
    [
        (0, SHARED, MetadataTimeout, r"within 1\.5 s \(kafka\.max\.block\.ms\); last .* refused"),
        (0, ITS_OWN, MetadataTimeout, r"within 2\.5 s \(kafka\.max\.block\.metadata\.ms\)"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, SHARED, TopicUnavailable,
         r"still after 1\.5 s \(kafka\.max\.block\.ms\)\. .* did not create it.*\. Create it"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, SHARED, TopicUnavailable, "Grant this user per"),
        (ErrorCode.INVALID_TOPIC, SHARED, TopicUnavailable, "Choose another name"),
        (38, SHARED, TopicUnavailable,
         r"INVALID_REPLICATION_FACTOR\), still after .* fewer brokers"),
        (37, ITS_OWN, TopicUnavailable, "INVALID_PARTITIONS.* another number of partitions"),
        (44, ITS_OWN, TopicUnavailable, "POLICY_VIOLATION.* as the policy requires"),
        (5, SHARED, MetadataTimeout, r"Leader not available \(LEADER_NOT_AVAILABLE\); last broker"),
    ],
)  # fmt: skip
def test_a_topic_without_metadata_is_named_with_the_reason(code, budget, kind, text):
    error = error_messages.no_metadata("orders", code, budget, REPORT)
    assert type(error) is kind
    assert error.topic == "orders"
    with pytest.raises(kind, match=f"topic orders.*{text}"):
        raise error


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD])
def test_a_record_whose_timestamp_brokers_reject_is_reported_with_what_to_correct(code):
    error = error_messages.delivery_failed(failed_delivery(2, code), DeliveryReport())
    with pytest.raises(
        DeliveryFailed, match=r"difference\.max\.ms\)\. .*[cC]orrect .* clock of the worker"
    ):
        raise error


def test_a_record_that_expired_is_reported_with_the_time_and_what_to_check():
    error = error_messages.delivery_failed(failed_delivery(2, ErrorCode.MSG_TIMED_OUT), REPORT)
    with pytest.raises(DeliveryFailed, match=r"refused.*kafka\.delivery\.timeout\.ms.*quotas"):
        raise error


LATE = {
    "b:1/1: Timed out ProduceRequest in flight (after 11002ms)": r"quotas.*request\.timeout\.ms",
    "b:1/1: Connection setup timed out in state SSL_HANDSHAKE (after 7s)": r"creation\.rate",
    "b:1/1: Disconnected: reset (after 0ms in state APIVERSION_QUERY)": r"connections\.per\.ip",
    "b:1/1: SSL alert number 46: alert certificate unknown": r"kafka\.ssl\.keystore",
}


@pytest.mark.parametrize(("broker_error", "text"), LATE.items())
def test_whatever_waits_too_long_names_what_the_brokers_were_late_with(broker_error, text):
    report = DeliveryReport(broker_error=broker_error)
    expired = failed_delivery(2, ErrorCode.MSG_TIMED_OUT)
    reading = BrokerWait(Deadline(0.0), "an.option", "reading")
    errors = [
        ("close.timeout.ms", error_messages.deadline_exceeded(30.0, report, None)),
        ("kafka.max.block.ms", error_messages.buffer_exhausted("orders", SHARED, report)),
        ("kafka.max.block.ms", error_messages.no_metadata("orders", 0, SHARED, report)),
        ("kafka.delivery.timeout.ms", error_messages.delivery_failed(expired, report)),
        ("an.option", reading.error(-185, broker_error=broker_error)),
    ]
    for option, error in errors:
        # The option first: whose time is over, before why brokers were late.
        with pytest.raises(type(error), match=rf"{re.escape(option)}.*last broker error.*{text}"):
            raise error


def test_brokers_that_throttle_with_an_error_are_named_and_the_next_attempt_sends_again():
    error = error_messages.delivery_failed(failed_delivery(2, 44), REPORT)
    assert not error.is_permanent
    with pytest.raises(DeliveryFailed, match=r"POLICY_VIOLATION.*throttle.*let Spark repeat"):
        raise error


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (76, "UNSUPPORTED_COMPRESSION_TYPE"),
        (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
        (35, "UNSUPPORTED_VERSION"),
    ],
)
def test_a_compression_that_brokers_may_lack_is_named_by_its_option(code, name):
    error = error_messages.delivery_failed(failed_delivery(2, code), DeliveryReport())
    with pytest.raises(DeliveryFailed, match=rf"\({name}\)\. .*kafka\.compression\.type"):
        raise error


@pytest.mark.parametrize(
    ("partition", "advice"),
    [
        (-1, r"^topic t: Message size .* Raise kafka\.max\.request\.size"),
        (2, r"topic allows\. Raise the topic\'s max\.message\.bytes"),
    ],
)
def test_a_record_that_is_too_large_is_reported_with_the_limit_to_raise(partition, advice):
    delivery = failed_delivery(partition, ErrorCode.MSG_SIZE_TOO_LARGE)
    error = error_messages.delivery_failed(delivery, DeliveryReport())
    assert isinstance(error, DeliveryFailed)
    with pytest.raises(DeliveryFailed, match=advice):
        raise error


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.MSG_SIZE_TOO_LARGE, "Raise the max.message.bytes of dead.letter.topic"),
        (ErrorCode.INVALID_RECORD, "Set cleanup.policy=delete for dead.letter.topic"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Grant this user permission to write to it"),
    ],
)
def test_a_dead_letter_that_is_rejected_is_named_with_its_option_and_its_row(code, advice):
    failed = failed_delivery(2, code)
    failed.dead_letter = "micro-batch 7, partition 3, row 5 of topic orders (INVALID_HEADER: a)"
    said = str(error_messages.delivery_failed(failed, DeliveryReport(), "t"))
    assert said.startswith(f"the dead letter of {failed.dead_letter} was rejected too: topic t")
    assert advice in said
    assert said.endswith(". This topic is that of the option dead.letter.topic")
    assert "Give each record" not in said


def test_a_dead_letter_that_was_not_sent_in_time_is_not_called_rejected():
    failed = failed_delivery(2, ErrorCode.MSG_TIMED_OUT)
    said = str(error_messages.delivery_failed(failed, DeliveryReport(), "t"))
    assert said.startswith("topic t partition 2: ")
    assert said.endswith(". This topic is that of the option dead.letter.topic")
    assert "dead" not in str(error_messages.delivery_failed(failed, DeliveryReport(), "other"))


@pytest.mark.parametrize(
    ("code", "broker_error", "advice"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "", ". Grant this user permission to write to it"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "", "; or set kafka.enable.idempotence=false"),
        (
            ErrorCode.PURGE_QUEUE,
            "Failed to acquire idempotence PID: Broker: Cluster authorization failed",
            "IdempotentWrite on the cluster; or set kafka.enable.idempotence=false",
        ),
        (
            ErrorCode.PURGE_QUEUE,
            "Failed to acquire idempotence PID: Broker: Transactional Id authorization failed",
            "Grant this user Write and Describe on transactional ids",
        ),
        (
            ErrorCode.MSG_TIMED_OUT,
            "Idempotent producer not supported by any of the 1 connected broker(s)",
            r"kafka\.delivery\.timeout\.ms.*Set kafka.enable.idempotence=false, or upgrade",
        ),
    ],
)
def test_a_right_or_feature_that_is_missing_is_reported_with_what_to_do(code, broker_error, advice):
    report = DeliveryReport(broker_error=broker_error)
    error = error_messages.delivery_failed(failed_delivery(2, code), report)
    with pytest.raises(DeliveryFailed, match=advice):
        raise error


def test_a_topic_that_only_the_client_finds_forbidden_is_unavailable():
    delivery = failed_delivery(-1, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    error = error_messages.delivery_failed(delivery, DeliveryReport())
    assert isinstance(error, TopicUnavailable)


def test_the_last_broker_error_is_reported():
    error = error_messages.deadline_exceeded(2.5, REPORT, None)
    assert "within 2.5 s (close.timeout.ms); last broker error: connection refused." in str(error)


def test_a_deadline_names_the_topic_whose_records_still_await_metadata():
    error = error_messages.deadline_exceeded(2.5, REPORT, ("t", ErrorCode.NO_ERROR))
    assert "within 2.5 s (close.timeout.ms); topic t has no metadata yet; last" in str(error)
    error = error_messages.deadline_exceeded(
        2.5, REPORT, ("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    )
    assert isinstance(error, TopicUnavailable)
    assert "still after 2.5 s (close.timeout.ms). The topic does not exist" in str(error)
    error = error_messages.deadline_exceeded(2.5, REPORT, ("t", 38))
    assert (type(error), error.code) == (TopicUnavailable, "INVALID_REPLICATION_FACTOR")
    error = error_messages.deadline_exceeded(2.5, REPORT, ("t", ErrorCode.LEADER_NOT_AVAILABLE))
    assert "has no metadata yet: Broker: Leader not available (LEADER_NOT_A" in str(error)


@pytest.mark.parametrize("code", [45, 47, 49, 53, 90])
def test_an_error_about_a_producers_identity_has_advice(code):
    error = error_messages.delivery_failed(failed_delivery(2, code), REPORT)
    with pytest.raises(DeliveryFailed, match=r"its next attempt|Grant this user"):
        raise error


@pytest.mark.parametrize(
    "alert",
    [
        "bad certificate",
        "certificate revoked",
        "certificate expired",
        "certificate unknown",
        "unknown ca",
        "certificate required",
    ],
)
def test_a_time_out_after_brokers_rejected_the_clients_certificate_names_the_certificate(alert):
    report = DeliveryReport(broker_error=f"ssl://b:9093/1: Receive failed: ssl/tls alert {alert}")
    text = str(error_messages.deadline_exceeded(30, report, None))
    assert "kafka.ssl.keystore" in text
    assert "quotas" not in text
