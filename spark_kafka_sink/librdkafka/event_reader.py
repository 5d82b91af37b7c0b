"""[both] librdkafka's events -> Python values."""

from __future__ import annotations

import ctypes
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from spark_kafka_sink.librdkafka import _prototypes as c
from spark_kafka_sink.librdkafka.error_codes import REJECTIONS, ErrorCode
from spark_kafka_sink.librdkafka.events import (
    AcknowledgedRecords,
    ApiVersion,
    BrokerError,
    ClusterDescription,
    ConfigurationDescription,
    Event,
    FailedRecords,
    PartitionDescription,
    RequestFailed,
    Statistics,
    TokenNeeded,
    TokenRequestFailed,
    TopicDescription,
)
from spark_kafka_sink.librdkafka.log_lines import LogLines
from spark_kafka_sink.secret import redacted

# States of a connection in which no answer is due; a later one counts as none.
_AT_REST = ("INIT", "DOWN", "TRY_CONNECT", "UP", "REAUTH")
_UNANSWERED_US = 500_000
_WAITING_US = 2_000_000  # a broker that closes a connection does so sooner

# The first is logged when a client is created; it gets its servers later. The second is a request
# without an answer, because the client itself closed the connection, such as the first one.
_NO_FAILURE = re.compile(rb"No `bootstrap\.servers` configured|Broker handle destroyed")
_LOG_DEBUG = 7  # syslog's level
# Logged with debug=feature when a broker has answered which requests it supports.
_API_VERSION = re.compile(rb"ApiKey .+ \((\d+)\) Versions \d+\.\.(\d+)$")
# Of what ends a connection, the client's error says only that all brokers are down. A request that
# times out is no error to it.
_LOST = re.compile(
    rb"^\[thrd:.*?\]: (.*(?:"
    rb"(?P<late>Connection setup timed out|ApiVersionRequest failed: Local: Timed out"
    rb"|Timed out ProduceRequest in flight)"
    rb"|Disconnected: .*in state APIVERSION_QUERY).*)",
    re.DOTALL,
)
# Logged before the error about a token endpoint, which lacks the status; the text is its answer.
_TOKEN_REQUEST = re.compile(rb"Failed to retrieve \w+ token from .*?(?: \((-?\d+)\))?\Z", re.DOTALL)


class Request(NamedTuple):
    """The topics, or the brokers' ids, of a request, and whether it is about operations too."""

    names: tuple[str, ...]
    includes_operations: bool = False


def read(
    event: int, requests: MutableMapping[int, Request], log_lines: LogLines
) -> Sequence[Event]:
    """Convert an event to Python values; a log line goes to ``log_lines``.

    Delivery reports are for ``read_reports``.
    ``requests``: by opaque, those without an answer; the one that the event answers is removed.
    """
    kind = c.event_type(event)
    if kind == c.EVENT_LOG:
        return _forward_log(event, log_lines)
    if kind in _ANSWER_READERS:
        return _ANSWER_READERS[kind](event, requests.pop(c.event_opaque(event)))
    reader = _READERS.get(kind)
    return reader(event) if reader is not None else []


def _error(event: int) -> list[BrokerError]:
    text = c.event_error_string(event)
    return [BrokerError(c.event_error(event), text.decode(errors="replace"))]


def _statistics(event: int) -> list[Statistics]:
    try:
        brokers = json.loads(c.event_stats(event))["brokers"].values()
    except ValueError:  # librdkafka does not escape names: a quote in one makes this no JSON
        return []
    round_trips_us = [broker["rtt"] for broker in brokers if broker["rtt"]["cnt"]]
    slowest = max(
        ((round_trip["p50"], round_trip["p99"]) for round_trip in round_trips_us), default=None
    )
    return [
        Statistics(
            any(broker["state"] == "UP" for broker in brokers),
            sum(broker["txretries"] for broker in brokers),
            None if slowest is None else (slowest[0] / 1000, slowest[1] / 1000),
            any(_waits(broker, _UNANSWERED_US) for broker in brokers),
            any(_waits(broker, _WAITING_US) and broker["state"] != "CONNECT" for broker in brokers),
            {b["nodeid"]: b["nodename"] for b in brokers if b["source"] == "learned"},
        )
    ]


def _waits(broker: Mapping[str, Any], microseconds: int) -> bool:
    """Whether a connection has had no answer for that long; ``broker``: of the statistics."""
    return broker["state"] not in _AT_REST and broker["stateage"] >= microseconds


def read_reports(
    events: Sequence[int], *, requires_offsets: bool
) -> list[AcknowledgedRecords | FailedRecords]:
    """Convert delivery reports, all at once: each event is about only one partition.

    With ``requires_offsets``, an acknowledged record without an offset has failed: no broker has
    acknowledged it. librdkafka reports it so when a later record of its partition was acknowledged
    (``rd_kafka_dr_implicit_ack``), although a new leader may have stored the later one only.
    """
    counts_by_event = [c.event_message_count(event) for event in events]
    pointers = _message_pointers(events, counts_by_event)
    if not len(pointers):
        return []
    opaques, partitions, codes, offsets = _gather(pointers)
    send_ids = opaques >> c.POSITION_BITS
    possibly_persisted = np.zeros(len(pointers), dtype=bool)
    # Records that waited for a retry when their partition was removed, by
    # rd_kafka_toppar_destroy_final.
    codes[codes == ErrorCode.DESTROY] = ErrorCode.UNKNOWN_PARTITION
    if requires_offsets:
        codes[(codes == 0) & (offsets == c.OFFSET_INVALID)] = ErrorCode.INCONSISTENT
    if len(failed := np.flatnonzero(codes)):
        # One call per record, because the status is no member of the public struct.
        statuses = list(map(c.message_status, pointers[failed].tolist()))
        possibly_persisted[failed] = np.array(statuses) != c.MSG_STATUS_NOT_PERSISTED
    is_named = are_named(codes, counts_by_event)
    # An event has its records in the order of sending, so equal reports form few runs.
    is_new = np.ones(len(pointers), dtype=bool)
    is_new[1:] = send_ids[1:] != send_ids[:-1]
    for column in (partitions, codes, possibly_persisted, is_named):
        is_new[1:] |= column[1:] != column[:-1]
    starts = np.flatnonzero(is_new)
    counts = np.diff(starts, append=len(pointers))
    is_acknowledged = codes[starts] == 0
    first = starts[is_acknowledged]
    acknowledged = AcknowledgedRecords(send_ids[first], partitions[first], counts[is_acknowledged])
    failures: Counter[tuple[int, int, int, bool, bool]] = Counter()
    positions: defaultdict[tuple[int, int, int, bool, bool], list[int]] = defaultdict(list)
    for run in np.flatnonzero(~is_acknowledged).tolist():
        start, number = int(starts[run]), int(counts[run])
        failure = (
            int(send_ids[start]),
            int(partitions[start]),
            int(codes[start]),
            bool(possibly_persisted[start]),
            bool(is_named[start]),
        )
        failures[failure] += number
        if failure[2] in REJECTIONS:
            positions[failure] += (opaques[start : start + number] & c.POSITION_MASK).tolist()
    return [acknowledged] * bool(len(first)) + [
        # Sorted, because those that were on their way to a broker may be reported last.
        FailedRecords(*failure[:4], number, tuple(sorted(positions[failure])), failure[4])
        for failure, number in failures.items()
    ]


def are_named(
    codes: npt.NDArray[np.int32], counts_by_event: Sequence[int]
) -> npt.NDArray[np.bool_]:
    """Which records of these events, each about one batch, are those that the brokers name.

    If all of a batch are bad, librdkafka does not show whether they are named.
    """
    is_other: npt.NDArray[np.bool_] = codes == ErrorCode.INVALID_DIFFERENT_RECORD
    if not is_other.any():
        return is_other
    batches = np.repeat(np.arange(len(counts_by_event)), counts_by_event)
    is_named: npt.NDArray[np.bool_] = ~is_other & np.isin(batches, batches[is_other])
    return is_named


def _message_pointers(events: Sequence[int], expected: Sequence[int]) -> npt.NDArray[np.uintp]:
    pointers = np.empty(sum(expected), dtype=np.uintp)
    filled = 0
    for event, count in zip(events, expected, strict=True):
        address = pointers.ctypes.data + filled * pointers.itemsize
        filled += c.event_message_array(event, address, count)
    return pointers[:filled]


def _gather(
    pointers: npt.NDArray[np.uintp],
) -> tuple[
    npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int64]
]:
    """Opaque, partition, error code and offset of each ``rd_kafka_message_t``.

    All messages are read by one vectorised look-up over the memory that they span: reading them one
    by one would cost more than sending them did.
    """
    # Its words: 0 error, 2 partition, 7 offset, 8 opaque. The first two have only 32 bits.
    base = int(pointers.min())
    words = (int(pointers.max()) - base + c.MESSAGE.itemsize) // 8
    memory = np.asarray(_Words(base, words))
    index = ((pointers - np.uintp(base)) >> np.uintp(3)).astype(np.int64)
    partitions, codes = memory[index + 2].astype(np.int32), memory[index].astype(np.int32)
    return memory[index + 8], partitions.astype(np.int64), codes, memory[index + 7]


class _Words:
    """Words of 8 bytes at an address, for numpy. A ctypes array would need a type per length."""

    def __init__(self, address: int, count: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "typestr": np.dtype(np.int64).str,
            "shape": (count,),
            "data": (address, True),  # read only
        }


def _topic_answers(event: int, request: Request) -> list[TopicDescription | RequestFailed]:
    if c.event_error(event):
        return [RequestFailed(c.event_error(event), request.names)]
    count = ctypes.c_size_t()
    result = c.event_describe_topics_result(event)
    topics = c.describe_topics_result_topics(result, ctypes.byref(count))
    return [_topic_answer(topics[i], request.includes_operations) for i in range(count.value)]


def _topic_answer(description: int, is_detailed: bool) -> TopicDescription:
    count = ctypes.c_size_t()
    partitions = c.topic_description_partitions(description, ctypes.byref(count))
    available = [partition for partition in partitions[: count.value] if _has_leader(partition)]
    return TopicDescription(
        c.topic_description_name(description).decode(),
        int(c.error_code(c.topic_description_error(description))),
        count.value,
        tuple(int(c.topic_partition_info_partition(partition)) for partition in available),
        tuple(_rack(c.topic_partition_info_leader(partition)) for partition in available),
        tuple(map(_partition, partitions[: count.value])) if is_detailed else (),
        _operations(c.topic_description_authorized_operations, description),
    )


def _rack(node: int) -> str | None:
    rack = c.node_rack(node)
    return rack.decode(errors="replace") if rack is not None else None


def _partition(info: int) -> PartitionDescription:
    replicas, in_sync = ctypes.c_size_t(), ctypes.c_size_t()
    c.topic_partition_info_replicas(info, ctypes.byref(replicas))
    c.topic_partition_info_isr(info, ctypes.byref(in_sync))
    number = int(c.topic_partition_info_partition(info))
    return PartitionDescription(number, _has_leader(info), replicas.value, in_sync.value)


def _operations(read: Callable[..., Any], description: int) -> frozenset[int]:
    count = ctypes.c_size_t()
    operations = read(description, ctypes.byref(count))
    return frozenset(operations[: count.value] if count.value else ())


def _has_leader(partition: int) -> bool:
    leader = c.topic_partition_info_leader(partition)
    return bool(leader) and c.node_id(leader) >= 0


def _cluster_answer(event: int, _: Request) -> list[ClusterDescription]:
    if c.event_error(event):
        return [ClusterDescription(c.event_error(event), ())]
    count = ctypes.c_size_t()
    result = c.event_describe_cluster_result(event)
    nodes = c.describe_cluster_result_nodes(result, ctypes.byref(count))
    controller = c.describe_cluster_result_controller(result)
    return [
        ClusterDescription(
            0,
            tuple(int(c.node_id(nodes[i])) for i in range(count.value)),
            (c.describe_cluster_result_cluster_id(result) or b"").decode(),
            int(c.node_id(controller)) if controller else None,
            _operations(c.describe_cluster_result_authorized_operations, result),
        )
    ]


def _configurations(event: int, request: Request) -> list[ConfigurationDescription]:
    if c.event_error(event):
        return [ConfigurationDescription(name, c.event_error(event), {}) for name in request.names]
    count = ctypes.c_size_t()
    result = c.event_describe_configs_result(event)
    resources = c.describe_configs_result_resources(result, ctypes.byref(count))
    return [_configuration(resources[i]) for i in range(count.value)]


def _configuration(resource: int) -> ConfigurationDescription:
    count = ctypes.c_size_t()
    entries = c.config_resource_configs(resource, ctypes.byref(count))[: count.value]
    settings = {
        c.config_entry_name(entry).decode(): (c.config_entry_value(entry) or b"").decode()
        for entry in entries
    }
    name = c.config_resource_name(resource).decode()
    return ConfigurationDescription(name, int(c.config_resource_error(resource)), settings)


def _forward_log(
    event: int, log_lines: LogLines
) -> list[ApiVersion | BrokerError | TokenRequestFailed]:
    facility, text, level = ctypes.c_char_p(), ctypes.c_char_p(), ctypes.c_int()
    c.event_log(event, ctypes.byref(facility), ctypes.byref(text), ctypes.byref(level))
    line_text = text.value or b""
    is_noise = level.value < _LOG_DEBUG and _NO_FAILURE.search(line_text)
    if level.value <= log_lines.max_level and not is_noise:
        line = b"%s: %s" % (facility.value or b"", line_text)
        log_lines.write(level.value, redacted(line.decode(errors="replace")))
    if request := _TOKEN_REQUEST.search(line_text):
        return [TokenRequestFailed(int(request[1]) if request[1] else None)]
    if lost := _LOST.search(line_text):
        code = ErrorCode.TIMED_OUT if lost["late"] else ErrorCode.TRANSPORT
        return [BrokerError(code, lost[1].decode(errors="replace"))]
    version = _API_VERSION.search(line_text)
    return [ApiVersion(int(version[1]), int(version[2]))] if version else []


_READERS: Mapping[int, Callable[[int], Sequence[Event]]] = {
    c.EVENT_ERROR: _error,
    c.EVENT_STATS: _statistics,
    c.EVENT_OAUTHBEARER_TOKEN_REFRESH: lambda _: [TokenNeeded()],
}

_ANSWER_READERS: Mapping[int, Callable[[int, Request], Sequence[Event]]] = {
    c.EVENT_DESCRIBETOPICS_RESULT: _topic_answers,
    c.EVENT_DESCRIBECLUSTER_RESULT: _cluster_answer,
    c.EVENT_DESCRIBECONFIGS_RESULT: _configurations,
}
