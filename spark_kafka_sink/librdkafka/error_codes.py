"""[both] Error codes of brokers (positive) and of librdkafka (negative), with its names."""

from __future__ import annotations

from enum import IntEnum


class ErrorCode(IntEnum):
    """The codes of ``rd_kafka_resp_err_t`` that this package handles."""

    NO_ERROR = 0
    # the brokers'
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_FOR_PARTITION = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    MSG_SIZE_TOO_LARGE = 10
    INVALID_TOPIC = 17
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TRANSACTION_TIMEOUT = 50
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    KAFKA_STORAGE_ERROR = 56
    GROUP_ID_NOT_FOUND = 69
    FENCED_LEADER_EPOCH = 74
    INVALID_RECORD = 87
    PRODUCER_FENCED = 90
    UNKNOWN_TOPIC_ID = 100
    # librdkafka's own
    INVALID_DIFFERENT_RECORD = -138
    FENCED = -144
    INCONSISTENT = -149
    FATAL = -150
    AUTHENTICATION = -169
    PURGE_INFLIGHT = -151
    PURGE_QUEUE = -152
    SSL = -181
    QUEUE_FULL = -184
    TIMED_OUT = -185
    ALL_BROKERS_DOWN = -187
    UNKNOWN_TOPIC = -188
    UNKNOWN_PARTITION = -190
    MSG_TIMED_OUT = -192
    CRIT_SYS_RESOURCE = -194
    TRANSPORT = -195
    DESTROY = -197


#: errors of a topic that waiting does not fix
NON_RETRIABLE_TOPIC_ERRORS = frozenset(
    {ErrorCode.INVALID_TOPIC, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)

#: Records fail with one of these because of stale metadata: the topic, the partition or its leader
#: is no longer there.
STALE_METADATA_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_FOR_PARTITION,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC,
        ErrorCode.UNKNOWN_PARTITION,
    }
)

#: Records fail with one of these for their content, or because of another record of their batch.
REJECTIONS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.MSG_SIZE_TOO_LARGE,
        ErrorCode.INVALID_TOPIC,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_DIFFERENT_RECORD,
        ErrorCode.UNKNOWN_TOPIC,
        ErrorCode.UNKNOWN_PARTITION,
    }
)

#: librdkafka fails a topic's records with one of these as soon as one answer does not name it.
MISSING_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC,
        ErrorCode.UNKNOWN_PARTITION,
    }
)

#: Brokers reject a whole batch with one of these, and need not say because of which record.
BATCH_ERRORS = frozenset(
    {ErrorCode.MSG_SIZE_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD}
)

#: errors of records that a closing producer drops
PURGE_ERRORS = frozenset({ErrorCode.PURGE_QUEUE, ErrorCode.PURGE_INFLIGHT})


def error_name(code: int) -> str:
    """librdkafka's short name of an error code, e.g. ``_MSG_TIMED_OUT`` (``rd_kafka_err2name``)."""
    # Imported here: the codes need no library.
    from spark_kafka_sink.librdkafka import _prototypes as c

    return str(c.err2name(code).decode())


def error_text(code: int) -> str:
    """librdkafka's sentence for an error code (``rd_kafka_err2str``)."""
    from spark_kafka_sink.librdkafka import _prototypes as c

    return str(c.err2str(code).decode())
