"""Every error that librdkafka knows has advice, or a reason why no user of the sink sees it."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import KafkaError

from spark_kafka_sink.advice import (
    Advice,
    advice_on,
    explain,
    lasting_advice_on,
    settings_rejected,
)
from spark_kafka_sink.config.producer_options import BlockBudget
from spark_kafka_sink.errors import MetadataTimeout
from spark_kafka_sink.librdkafka.error_codes import error_name
from spark_kafka_sink.producer.error_messages import no_metadata
from spark_kafka_sink.report.delivery_report import DeliveryReport

#: as librdkafka lists them itself (rd_kafka_get_err_descs)
CODES = sorted({value for value in vars(KafkaError).values() if isinstance(value, int)})
NAMES = {error_name(code): code for code in CODES}

#: why -> what no user of the sink sees under this name
UNSEEN = {
    "not an error": "NO_ERROR _NOOP _NODE_UPDATE _ISR_INSUFF",
    "the delivery counts as acknowledged, as in librdkafka": "DUPLICATE_SEQUENCE_NUMBER",
    "the client's own end, or another error's consequence; the message has that error": (
        "_DESTROY _DESTROY_BROKER _PURGE_QUEUE _PURGE_INFLIGHT _FATAL _INTR"
    ),
    "shown with its text as the last error of the brokers": (
        "_ALL_BROKERS_DOWN _RESOLVE _SSL _FAIL _UNKNOWN_BROKER"
    ),
    "LimitReached": "_CRIT_SYS_RESOURCE",
    "the producer waits and sends again": "_QUEUE_FULL _RETRY _WAIT_CACHE",
    "the ledger waits, or has an error of its own": "UNSTABLE_OFFSET_COMMIT GROUP_ID_NOT_FOUND",
    "for the creator of topics, the topic is there": "TOPIC_ALREADY_EXISTS",
    "a misuse of the client, which would be a mistake of the sink": (
        "_INVALID_ARG _STATE _CONFLICT _UNKNOWN_PROTOCOL _NOT_IMPLEMENTED _UNKNOWN_GROUP "
        "_IN_PROGRESS _PREV_IN_PROGRESS _READ_ONLY _NOENT _UNDERFLOW _INVALID_TYPE "
        "_NOT_CONFIGURED _FS _OUTDATED _PARTIAL"
    ),
    "for consumers": (
        "_PARTITION_EOF _EXISTING_SUBSCRIPTION _ASSIGN_PARTITIONS _REVOKE_PARTITIONS _NO_OFFSET "
        "_MAX_POLL_EXCEEDED _ASSIGNMENT_LOST _AUTO_OFFSET_RESET _LOG_TRUNCATION "
        "OFFSET_OUT_OF_RANGE ILLEGAL_GENERATION INCONSISTENT_GROUP_PROTOCOL INVALID_GROUP_ID "
        "UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT REBALANCE_IN_PROGRESS "
        "FETCH_SESSION_ID_NOT_FOUND "
        "INVALID_FETCH_SESSION_EPOCH OFFSET_NOT_AVAILABLE MEMBER_ID_REQUIRED "
        "GROUP_MAX_SIZE_REACHED FENCED_INSTANCE_ID FENCED_MEMBER_EPOCH UNRELEASED_INSTANCE_ID "
        "UNSUPPORTED_ASSIGNOR STALE_MEMBER_EPOCH INVALID_RECORD_STATE SHARE_SESSION_NOT_FOUND "
        "INVALID_SHARE_SESSION_EPOCH FENCED_STATE_EPOCH SHARE_SESSION_LIMIT_REACHED "
        "INVALID_REGULAR_EXPRESSION STREAMS_INVALID_TOPOLOGY STREAMS_INVALID_TOPOLOGY_EPOCH "
        "STREAMS_TOPOLOGY_FENCED"
    ),
    "of Confluent's serializers, which the sink does not use": (
        "_KEY_SERIALIZATION _VALUE_SERIALIZATION _KEY_DESERIALIZATION _VALUE_DESERIALIZATION"
    ),
    "raised by applications": "_APPLICATION",
    "for administrators' requests that the sink does not make": (
        "INVALID_REPLICA_ASSIGNMENT SECURITY_DISABLED LOG_DIR_NOT_FOUND REASSIGNMENT_IN_PROGRESS "
        "DELEGATION_TOKEN_AUTH_DISABLED DELEGATION_TOKEN_NOT_FOUND DELEGATION_TOKEN_OWNER_MISMATCH "
        "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED DELEGATION_TOKEN_AUTHORIZATION_FAILED "
        "DELEGATION_TOKEN_EXPIRED INVALID_PRINCIPAL_TYPE NON_EMPTY_GROUP TOPIC_DELETION_DISABLED "
        "PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE ELECTION_NOT_NEEDED "
        "NO_REASSIGNMENT_IN_PROGRESS GROUP_SUBSCRIBED_TO_TOPIC RESOURCE_NOT_FOUND "
        "DUPLICATE_RESOURCE UNACCEPTABLE_CREDENTIAL INVALID_UPDATE_VERSION FEATURE_UPDATE_FAILED "
        "MISMATCHED_ENDPOINT_TYPE UNSUPPORTED_ENDPOINT_TYPE"
    ),
    "between brokers": (
        "STALE_CTRL_EPOCH TRANSACTION_COORDINATOR_FENCED STALE_BROKER_EPOCH INCONSISTENT_VOTER_SET "
        "PRINCIPAL_DESERIALIZATION_FAILURE UNKNOWN_CONTROLLER_ID INVALID_REGISTRATION "
        "INVALID_VOTER_KEY DUPLICATE_VOTER VOTER_NOT_FOUND"
    ),
    "for the client's telemetry": "UNKNOWN_SUBSCRIPTION_ID TELEMETRY_TOO_LARGE",
}


def test_every_error_has_advice_or_a_reason_why_no_user_sees_it():
    unseen = {name for names in UNSEEN.values() for name in names.split()}
    general = (None, Advice.UNKNOWN)
    advised = {name for name, code in NAMES.items() if advice_on(code) not in general} | {"UNKNOWN"}
    assert NAMES.keys() - advised - unseen == set()
    assert unseen & advised == set()


def test_advice_by_the_name_of_an_error_has_librdkafkas_name():
    named = {
        name
        for advice in Advice
        if advice.sign.startswith(f"`{advice.name}`")
        for name in re.findall(r"`(\w+)`", advice.sign)
    }
    assert named - NAMES.keys() == set()


def test_an_error_of_brokers_that_nobody_expects_has_advice_too():
    assert "Look in the log" in explain(NAMES["STALE_BROKER_EPOCH"])
    assert "Look in the log" in explain(30_000)


@pytest.mark.parametrize(
    "name", ["LEADER_NOT_AVAILABLE", "NOT_CONTROLLER", "_TIMED_OUT", "UNKNOWN"]
)
def test_what_passes_is_no_reason_to_call_a_topic_unusable(name):
    assert lasting_advice_on(NAMES[name]) is None
    error = no_metadata("t", NAMES[name], BlockBudget(1000, True, 1000), DeliveryReport())
    assert isinstance(error, MetadataTimeout)


@pytest.mark.parametrize("place", ["", "crypto/evp/evp_fetch.c:376:inner_evp_generic_fetch "])
def test_a_key_store_of_java_8_is_too_old_also_where_debug_names_openssls_functions(place):
    text = (
        f"Failed to parse ssl.keystore.location PKCS#12 file: /old.p12: {place}error:0308010C:"
        "digital envelope routines::unsupported: Algorithm (RC2-40-CBC : 0), Properties ()"
    )
    assert settings_rejected(text)[1] == Advice.KEY_STORE_IS_TOO_OLD.remedy
