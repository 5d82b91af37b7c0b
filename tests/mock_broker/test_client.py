"""The binding uses librdkafka as its header file documents."""

from __future__ import annotations

import ctypes
import gc
import logging
import os
import threading
import time
import weakref
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mock_cluster import PRODUCE
from mock_reader import read
from waiting import wait_until

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.librdkafka import _prototypes as c
from spark_kafka_sink.librdkafka import client as client_module
from spark_kafka_sink.librdkafka.client import Client, release_freed_memory
from spark_kafka_sink.librdkafka.error_codes import ErrorCode, error_name, error_text
from spark_kafka_sink.librdkafka.event_reader import are_named
from spark_kafka_sink.librdkafka.events import (
    AcknowledgedRecords,
    BrokerError,
    ConfigurationDescription,
    FailedRecords,
    PartitionDescription,
    RequestFailed,
    TokenNeeded,
    TopicDescription,
)
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.partitioner import group_by_partition, murmur2, unpartitioned

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
outq_len = c.prototype("rd_kafka_outq_len", ctypes.c_int, ctypes.c_void_p)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.fixture
def client(cluster):
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": "0"}
    client = Client(settings)
    yield client
    assert client.close(Deadline(5))


def queued(client):
    """Records neither acknowledged nor failed, plus events not polled."""
    return outq_len(client.handle)


def flush(client):
    """Send everything queued; returns the events about anything that did not arrive."""
    deadline = Deadline(10)
    events = []
    while queued(client):
        assert not deadline.expired
        client.flush(0.001)
        events += client.poll(0.05)
    return [event for event in events if not isinstance(event, AcknowledgedRecords)]


@pytest.mark.parametrize("columns", [{}, {"timestamp": pa.array([1000, 2000], pa.timestamp("ms"))}])
def test_a_batch_is_kept_until_each_of_its_records_is_reported(client, cluster, columns):
    cluster.set_topic_error("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    made = pa.record_batch({"value": ["a", "b"], "topic": ["t", "missing"], **columns})
    batch = weakref.ref(made)
    split = split_by_topic(made, None, timestamp_column="timestamp")
    for send_id, rows in enumerate(split.records):
        client.enqueue(unpartitioned(rows), send_id)
    del made, split, rows
    deadline = Deadline(10)
    while queued(client) > 1:
        list(client.poll(0.05))
        assert not deadline.expired
    gc.collect()
    assert batch() is not None
    client.purge()
    (event,) = flush(client)
    assert (event.send_id, event.count) == (1, 1)
    assert batch() is None


def test_the_memory_of_records_outlives_a_client_that_nobody_closes(records):
    rows = records(["a"])
    client, batch = Client(NOWHERE), weakref.ref(rows.arrow_batch)
    client.enqueue(unpartitioned(rows), 1)
    handle = weakref.ref(client)
    del rows, client
    gc.collect()
    assert batch() is not None
    assert handle().close(Deadline(5))
    assert batch() is None


def test_freed_memory_goes_back_to_the_system():
    def resident_bytes() -> int:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    blocks = [b"x" * 100_000 for _ in range(1000)]
    last = blocks.pop()  # a block above the others keeps glibc from returning them on its own
    used = resident_bytes()
    del blocks
    release_freed_memory()
    assert resident_bytes() < used - 50_000_000
    assert last


def test_records_arrive_in_order_with_null_distinct_from_empty(client, cluster, records):
    keys = pa.array(["k", None, "", "l"])
    rows = records(["a", "", None, "d"], key=keys)
    assert client.enqueue(unpartitioned(rows), 1) == []
    assert flush(client) == []
    messages = read(cluster.bootstrap_servers, "t", 4)
    assert [(m.key(), m.value()) for m in messages] == [
        (b"k", b"a"),
        (None, b""),
        (b"", None),
        (b"l", b"d"),
    ]


def test_records_arrive_with_headers_timestamp_and_partition(client, cluster, records):
    cluster.create_topic("three", partitions=3)
    headers = [[("h", b"1"), ("\u00fc", None)], None, [("h", b"")]]
    rows = records(
        ["a", "b", None],
        topic="three",
        key=pa.array([None, "k", ""]),
        partition=pa.array([2, 1, 0], pa.int32()),
        timestamp=pa.array([1_700_000_000_123_456, 1_000, 2_999], pa.timestamp("us", "UTC")),
        headers=pa.array(headers, HEADERS),
    )
    assert client.enqueue(unpartitioned(rows), 1) == []
    assert flush(client) == []
    seen = [
        (m.partition(), m.key(), m.value(), m.headers(), m.timestamp()[1])
        for m in read(cluster.bootstrap_servers, "three", 3, partitions=3)
    ]
    assert seen == [
        (0, b"", None, [("h", b"")], 2),
        (1, b"k", b"b", None, 1),
        (2, None, b"a", [("h", b"1"), ("\u00fc", None)], 1_700_000_000_123),
    ]


def test_what_is_enqueued_for_a_paused_partition_leaves_in_one_batch(client, cluster, records):
    client.describe_topics(["t"], timeout_seconds=10)
    wait_until(lambda: any(isinstance(event, TopicDescription) for event in client.poll(0.05)), 10)
    cluster.push_errors(PRODUCE, [ErrorCode.MSG_SIZE_TOO_LARGE])
    with client.paused("t", [0]):
        for send_id in range(2):
            part = records(["a", "b"])
            client.enqueue(group_by_partition(part, 1, 0), send_id)
            time.sleep(0.1)  # the client would have sent it by then
    failures = flush(client)
    assert sorted((failed.send_id, failed.count) for failed in failures) == [(0, 2), (1, 2)]


@pytest.mark.parametrize("detailed", [False, True], ids=["plain", "detailed"])
def test_a_record_that_is_too_large_is_rejected_alone(client, cluster, records, detailed):
    columns = {"timestamp": pa.array([1_000] * 3, pa.timestamp("ms"))} if detailed else {}
    rejected = client.enqueue(unpartitioned(records(["a", "x" * 2_000_000, "c"], **columns)), 1)
    assert [(i, error_name(code)) for i, code in rejected] == [(1, "MSG_SIZE_TOO_LARGE")]
    flush(client)
    assert [m.value() for m in read(cluster.bootstrap_servers, "t", 2)] == [b"a", b"c"]


def test_after_a_record_of_a_missing_topic_all_others_are_rejected_too(cluster, records):
    """The topic may be back at any time, and later records must not overtake the first."""
    cluster.set_topic_error("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    grace = {"topic.metadata.propagation.max.ms": "0"}
    client = Client({"bootstrap.servers": cluster.bootstrap_servers, **grace})
    times = pa.array([1_000] * 3, pa.timestamp("ms"))
    rejected = client.enqueue(unpartitioned(records(["a"] * 3, "missing", timestamp=times)), 1)
    dropped = [position for event in flush(client) for position in event.positions]
    # The client has an answer now; on a busy machine it had one before the last records, or all.
    assert dropped == list(range(3 - len(rejected)))
    assert rejected == [(position, ErrorCode.UNKNOWN_TOPIC) for position in range(len(dropped), 3)]
    rejected = client.enqueue(unpartitioned(records(["b"] * 3, "missing", timestamp=times)), 2)
    assert rejected == [(position, ErrorCode.UNKNOWN_TOPIC) for position in range(3)]
    assert client.close(Deadline(5))


def test_statistics_that_are_no_json_are_skipped(cluster, monkeypatch):
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "statistics.interval.ms": "10"}
    client = Client({**settings, "client.id": 'a"b'})
    texts, deadline = [], Deadline(10)
    read_text = c.event_stats
    monkeypatch.setattr(c, "event_stats", lambda event: texts.append(read_text(event)) or texts[-1])
    while not texts:
        assert not deadline.expired
        assert list(client.poll(0.1)) == []
    assert client.close(Deadline(5))


def test_failed_records_are_reported_as_counts_by_send_partition_and_error(cluster, records):
    client = Client({"bootstrap.servers": cluster.bootstrap_servers})
    cluster.create_topic("two", partitions=2)
    cluster.push_errors(
        PRODUCE, [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 20
    )  # in up to 20 requests
    partitions = pa.array([0, 1] * 10, pa.int32())
    client.enqueue(unpartitioned(records(["v"] * 20, "two", partition=partitions)), 7)
    rows = Counter()
    positions = []
    for event in flush(client):
        if isinstance(event, FailedRecords):
            rows[event.send_id, event.partition, event.code] += event.count
            positions += event.positions
            assert not event.possibly_persisted
    assert sorted(positions) == list(range(20))
    assert rows == {
        (7, 0, ErrorCode.TOPIC_AUTHORIZATION_FAILED): 10,
        (7, 1, ErrorCode.TOPIC_AUTHORIZATION_FAILED): 10,
    }
    assert client.close(Deadline(5))


def test_brokers_name_records_of_a_batch_whose_others_are_rejected_because_of_them():
    bad, other = ErrorCode.INVALID_RECORD, ErrorCode.INVALID_DIFFERENT_RECORD
    codes = np.array([0, other, bad, other, bad, bad], np.int32)
    assert are_named(codes, [1, 3, 2]).tolist() == [False, False, True, False, False, False]


def test_purge_reports_every_record_exactly_once(records):
    client = Client(NOWHERE | {"queue.buffering.max.messages": "300000"})
    for send_id, topic in ((1, "a"), (2, "b")):
        assert client.enqueue(unpartitioned(records(["v"] * 100_000, topic=topic)), send_id) == []
    client.purge()
    counts = Counter()
    for event in client.poll(1):
        if isinstance(event, FailedRecords):
            name = error_name(event.code)
            counts[event.send_id, name, event.possibly_persisted] += event.count
    assert counts == {(1, "_PURGE_QUEUE", False): 100_000, (2, "_PURGE_QUEUE", False): 100_000}
    assert not client.has_unreported("a")
    assert not client.has_unreported("b")
    assert client.close(Deadline(5))


def test_every_acknowledged_record_is_reported_with_its_send(client, records):
    for send_id, rows in ((3, 1000), (4, 10)):
        client.enqueue(unpartitioned(records(["v"] * rows)), send_id)
    counts_by_send, counts_by_partition = Counter(), Counter()
    while queued(client):
        client.flush(0.001)
        for event in client.poll(1):
            counts_by_send.update(event.counts_by_send())
            counts_by_partition.update(event.counts_by_partition([3]))
    assert counts_by_send == {3: 1000, 4: 10}
    assert counts_by_partition == {0: 1000}


@pytest.mark.parametrize("at_once", [1, 2, 64])
def test_no_report_is_lost_however_many_are_read_at_once(client, cluster, monkeypatch, at_once):
    monkeypatch.setattr(client_module, "_REPORTS_AT_ONCE", at_once)
    cluster.create_topic("five", partitions=5)
    rows, partitions = 100, pa.array([n % 5 for n in range(100)], pa.int32())
    made = pa.record_batch({"value": ["v"] * rows, "partition": partitions})
    for send_id in (1, 2, 3):
        (records,) = split_by_topic(made, "five").records
        client.enqueue(group_by_partition(records, 5, 0), send_id)
    counts_by_send, counts_by_partition, deadline = Counter(), Counter(), Deadline(30)
    while queued(client):
        assert not deadline.expired
        client.flush(0.001)
        for event in client.poll(1):
            counts_by_send.update(event.counts_by_send())
            counts_by_partition.update(event.counts_by_partition([1, 2, 3]))
    assert counts_by_send == {1: 100, 2: 100, 3: 100}
    assert counts_by_partition == dict.fromkeys(range(5), 60)
    assert not client.has_unreported("five")


def test_reading_reports_makes_no_type_for_every_new_number_of_records(client, records):
    client.enqueue(unpartitioned(records(["v"])), 1)
    assert flush(client) == []
    gc.disable()  # types are collected only by it
    try:
        before = set(ctypes.Array.__subclasses__())
        client.enqueue(unpartitioned(records(["v"] * 1234)), 2)
        assert flush(client) == []
        assert set(ctypes.Array.__subclasses__()) == before
    finally:
        gc.enable()


def test_a_broker_error_is_an_event_and_a_log_line(caplog):
    client = Client(NOWHERE)
    client.describe_cluster(5)
    with caplog.at_level(logging.DEBUG, "spark_kafka_sink.librdkafka"):
        events = list(client.poll(5))
        while not (caplog.records and events):
            events += client.poll(5)
    errors = [event for event in events if isinstance(event, BrokerError)]
    assert any("Connection refused" in error.text for error in errors)
    assert any("Connection refused" in record.getMessage() for record in caplog.records)
    assert client.close(Deadline(5))


OAUTH = NOWHERE | {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}


def events_until(client, kind):
    """All events until one of that kind has come."""
    deadline, events = Deadline(30), []
    while not any(isinstance(event, kind) for event in events):
        assert not deadline.expired, events
        events += client.poll(0.1)
    return events


def test_a_client_asks_for_a_token_and_connects_when_it_has_one():
    client = Client(OAUTH, asks_for_tokens=True)
    client.describe_cluster(5)
    events = events_until(client, TokenNeeded)
    assert not any(isinstance(event, BrokerError) for event in events)
    client.set_token("token", int((time.time() + 600) * 1000), "alice", {"cluster": "c"})
    errors = [e for e in events_until(client, BrokerError) if isinstance(e, BrokerError)]
    assert "Connection refused" in errors[0].text
    assert client.close(Deadline(5))


@pytest.mark.parametrize(
    ("report", "reason"),
    [
        (lambda client: client.fail_token("the reason"), "the reason"),
        (lambda client: client.set_token("token", 1, "", {}), "Must supply an unexpired token"),
        (lambda client: client.set_token("t", 2**50, "", {"no 1": ""}), "extension keys must only"),
    ],
)
def test_a_token_that_is_missing_or_rejected_is_an_error(report, reason):
    client = Client(OAUTH, asks_for_tokens=True)
    events_until(client, TokenNeeded)
    report(client)
    (error,) = [e for e in events_until(client, BrokerError) if isinstance(e, BrokerError)]
    assert error.code == ErrorCode.AUTHENTICATION
    assert reason in error.text
    assert client.close(Deadline(5))


def test_close_is_idempotent_and_ends_use():
    client = Client(NOWHERE)
    assert client.close(Deadline(5))
    assert client.close(Deadline(0))
    with pytest.raises(RuntimeError, match="closed"):
        queued(client)


def test_a_handle_is_not_freed_before_a_call_in_a_thread_returns(monkeypatch):
    freed = []
    monkeypatch.setattr(c, "destroy_flags", lambda handle, _: freed.append(handle))
    client, answer = Client(NOWHERE), threading.Event()
    handle = client.handle
    call = client.start_call(lambda argument: (answer.wait(), argument))
    assert not client.close(Deadline(0.2))
    assert not freed
    answer.set()
    assert call.result(5) == (True, handle)
    wait_until(lambda: freed, 5)
    assert freed == [handle]
    monkeypatch.undo()
    c.destroy_flags(handle, 0)


def test_a_forked_process_can_neither_use_nor_destroy_its_parents_client(client):
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            queued(client)
        except RuntimeError as error:
            os.write(writer, str(error).encode())
        client.close(Deadline(1))
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    assert b"belongs to the process" in os.read(reader, 1000)
    os.close(reader)
    assert list(client.poll()) == []
    assert queued(client) == 0


def test_topics_opened_before_the_first_request_are_part_of_it(cluster):
    client = Client({"bootstrap.servers": cluster.bootstrap_servers, "debug": "metadata"})
    for name in ("t", "u", "v"):
        client.open_topic(name)
    logged = []
    reader = logging.getLogger("spark_kafka_sink.librdkafka")
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())
    reader.addHandler(handler)
    reader.setLevel(logging.DEBUG)
    try:
        client.describe_topics(["t"], 5)
        assert answer(client).topic == "t"
    finally:
        reader.removeHandler(handler)
        reader.setLevel(logging.NOTSET)
    assert not any("bootstrap.servers" in line for line in logged)
    requests = [line for line in logged if "Request metadata for" in line and "connected" in line]
    assert "for 3 topic(s): connected" in requests[0]
    assert client.close(Deadline(5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"linger.ms": "x"}, "librdkafka rejects the value of linger.ms"),
        ({"enable.idempotence": "true", "acks": "1"}, "acks"),
    ],
)
def test_bad_settings_are_a_value_error(settings, message):
    with pytest.raises(ValueError, match=message):
        Client(settings)


def test_error_codes_have_names_and_sentences():
    assert error_name(-192) == "_MSG_TIMED_OUT"
    assert "timed out" in error_text(-192)


def test_metadata_can_be_requested_without_waiting():
    client, before = Client(NOWHERE), Deadline(60)
    client.describe_topics(["t", "u"], timeout_seconds=60)
    assert not any(isinstance(event, TopicDescription) for event in client.poll())
    assert before.remaining() > 30
    assert client.close(Deadline(5))


# --- groups by partition --------------------------------------------------------------------------


def test_a_key_goes_to_the_same_partition_whoever_chooses_it(cluster, records):
    cluster.create_topic("seven", partitions=7)
    keys = pa.array([f"key-{i}" * (i % 5) for i in range(700)])
    rows = records([str(i) for i in range(700)], topic="seven", key=keys)
    client = Client({"bootstrap.servers": cluster.bootstrap_servers, "partitioner": "murmur2"})
    chosen = []
    for partitioned in (unpartitioned(rows), group_by_partition(rows, 7, 0)):
        assert client.enqueue(partitioned, 1) == []
        assert flush(client) == []
    messages = read(cluster.bootstrap_servers, "seven", 1400, partitions=7)
    for value in (str(i).encode() for i in range(700)):
        chosen = [m.partition() for m in messages if m.value() == value]
        assert len(chosen) == 2
        assert chosen[0] == chosen[1]
    assert client.close(Deadline(5))


def test_records_keep_their_order_in_each_partition(cluster, records):
    cluster.create_topic("three", partitions=3)
    client = Client({"bootstrap.servers": cluster.bootstrap_servers})
    keys = pa.array([str(i % 11) for i in range(1000)])
    rows = records([str(i) for i in range(1000)], topic="three", key=keys)
    assert client.enqueue(group_by_partition(rows, 3, 0), 1) == []
    assert flush(client) == []
    messages = read(cluster.bootstrap_servers, "three", 1000, partitions=3)
    assert sorted(int(m.value()) for m in messages) == list(range(1000))
    for partition in range(3):
        order = [int(m.value()) for m in messages if m.partition() == partition]
        assert order == sorted(order)
        assert len(order) > 100
    assert client.close(Deadline(5))


def test_a_group_for_a_missing_partition_is_rejected_and_others_arrive(client, cluster, records):
    cluster.create_topic("one")
    client.enqueue(group_by_partition(records(["first"], topic="one"), 1, 0), 1)
    assert flush(client) == []
    partitions = pa.array([0, 5, 0], pa.int32())
    rows = records(["a", "b", "c"], topic="one", partition=partitions)
    rejected = client.enqueue(group_by_partition(rows, 1, 0), 1)
    assert [(i, error_name(code)) for i, code in rejected] == [(1, "_UNKNOWN_PARTITION")]
    assert flush(client) == []
    values = [m.value() for m in read(cluster.bootstrap_servers, "one", 3)]
    assert values == [b"first", b"a", b"c"]


def answer(client):
    """The next event that is not about connections."""
    deadline = Deadline(10)
    while not deadline.expired:
        for event in client.poll(0.05):
            if not isinstance(event, BrokerError):
                return event
    return None


def test_the_brokers_are_described(client):
    client.describe_cluster(10, include_authorized_operations=True)
    described = answer(client)
    assert described.code == 0
    assert sorted(described.broker_ids) == [0, 1]
    assert described.controller_id == 0
    assert described.cluster_id.startswith("mockCluster")


@pytest.mark.parametrize("includes_operations", [True, False])
def test_a_topic_is_described_with_its_replicas_if_that_is_requested(client, includes_operations):
    client.describe_topics(["t"], 10, include_authorized_operations=includes_operations)
    described = answer(client)
    only = PartitionDescription(0, has_leader=True, replica_count=1, in_sync_count=1)
    assert described.partitions == ((only,) if includes_operations else ())
    assert described.may_write  # the mock broker does not report operations


@pytest.mark.parametrize("servers", ["the mock broker's", "nobody's"])
def test_a_configuration_that_does_not_arrive_is_an_answer_too(client, servers):
    """The mock broker does not support DescribeConfigs."""
    asked = client if servers == "the mock broker's" else Client(NOWHERE)
    asked.describe_broker_configs(1, 0.5)
    described = answer(asked)
    assert isinstance(described, ConfigurationDescription)
    assert described.code != 0
    assert described.settings == {}
    assert asked.close(Deadline(5))


def test_a_request_without_an_answer_says_what_it_was_about():
    client = Client(NOWHERE)
    client.describe_topics(["t", "u"], 0.5)
    client.describe_topics(["v"], 0.5)
    client.describe_topic_configs(["t", "u"], 0.5)
    events, deadline = [], Deadline(30)
    while len(events) < 4:
        assert not deadline.expired
        events += [event for event in client.poll(0.05) if not isinstance(event, BrokerError)]
    failed = {event.topics for event in events if isinstance(event, RequestFailed)}
    assert failed == {("t", "u"), ("v",)}
    unknown = sorted(
        event.resource for event in events if isinstance(event, ConfigurationDescription)
    )
    assert unknown == ["t", "u"]
    assert client.close(Deadline(5))


KEYS = st.lists(st.none() | st.binary(max_size=70), min_size=1, max_size=50)


@given(keys=KEYS, count=st.integers(1, 2**31 - 1))
def test_murmur2_equals_librdkafkas_for_every_key(keys, count):
    theirs = c.prototype(
        "rd_kafka_msg_partitioner_murmur2",
        ctypes.c_int32,
        *(ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int32),
        *(ctypes.c_void_p, ctypes.c_void_p),
    )
    batch = pa.record_batch(
        {"value": pa.nulls(len(keys), pa.string()), "key": pa.array(keys, pa.binary())}
    )
    (records,) = split_by_topic(batch, "t").records
    chosen = (murmur2(records.keys) & 0x7FFFFFFF) % np.uint32(count)
    expected = [theirs(None, key or b"", len(key or b""), count, None, None) for key in keys]
    assert chosen.tolist() == expected
