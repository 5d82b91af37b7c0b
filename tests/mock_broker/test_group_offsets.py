"""The ledger's offsets are read and written, whatever the group's coordinator answers."""

from __future__ import annotations

from contextlib import closing

import pytest
from mock_cluster import FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH, MockCluster

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import DeadlineExceeded, ReplayDiffers, TransactionFailed
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.group_offsets import CommittedOffset
from spark_kafka_sink.transactions import batch_marker
from spark_kafka_sink.transactions.ledger import BatchMarker, CommitEntry, read_batch_marker
from spark_kafka_sink.transactions.offset_calls import (
    CLIENTS_AT_ONCE,
    BrokerWait,
    GroupOffset,
    read_offsets,
)

OFFSET = CommittedOffset(5, '{"naïve": true}')
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
INVALID_GROUP_ID = 24
UNSTABLE_OFFSET_COMMIT = 88

# More often than librdkafka repeats a commit itself. TRANSPORT: the connection ends.
PASSING = pytest.mark.parametrize(
    "codes",
    [
        [NOT_COORDINATOR] * 4,
        [COORDINATOR_NOT_AVAILABLE] * 4,
        [COORDINATOR_LOAD_IN_PROGRESS] * 4,
        [ErrorCode.REQUEST_TIMED_OUT] * 4,
        [UNSTABLE_OFFSET_COMMIT] * 4,
        [ErrorCode.TRANSPORT] * 4,
        [NOT_COORDINATOR, ErrorCode.TRANSPORT, NOT_COORDINATOR, ErrorCode.TRANSPORT],
    ],
    ids=lambda codes: "-".join(str(int(code)) for code in dict.fromkeys(codes)),
)


def wait(seconds=60.0):
    return BrokerWait(Deadline(seconds), f"an.option, {seconds:g} s", "reading the ledger p")


def read(offset, wait):
    return offset.read(wait)


def write(offset, wait):
    offset.write(OFFSET, wait)


CALLS = pytest.mark.parametrize(
    ("call", "request_kind"), [(read, OFFSET_FETCH), (write, OFFSET_COMMIT)], ids=["read", "write"]
)


@pytest.fixture
def settings(options):
    return options().producer.client


@pytest.fixture
def offset(settings):
    with closing(GroupOffset(settings, "t", "p.0")) as offset:
        yield offset


def test_an_offset_is_read_with_its_metadata(offset):
    assert offset.read(wait()) is None
    offset.write(OFFSET, wait())
    assert offset.read(wait()) == OFFSET


@pytest.mark.parametrize("largest", ["1000", "2000000"])
def test_a_small_receive_limit_does_not_stop_the_groups_consumer(options, largest):
    limits = {"kafka.receive.message.max.bytes": "1600", "kafka.max.request.size": largest}
    with closing(GroupOffset(options(**limits).producer.client, "t", "p.0")) as offset:
        offset.write(OFFSET, wait())
        assert offset.read(wait()) == OFFSET


@PASSING
def test_a_read_survives(cluster, offset, codes):
    offset.write(OFFSET, wait())
    cluster.push_errors(OFFSET_FETCH, codes)
    assert offset.read(wait()) == OFFSET


@PASSING
def test_a_write_survives(cluster, offset, codes):
    cluster.push_errors(OFFSET_COMMIT, codes)
    offset.write(OFFSET, wait())
    assert offset.read(wait()) == OFFSET


def test_the_coordinator_is_looked_up_until_it_is_there(cluster, settings):
    cluster.push_errors(FIND_COORDINATOR, [COORDINATOR_NOT_AVAILABLE, ErrorCode.TRANSPORT])
    with closing(GroupOffset(settings, "t", "p.0")) as offset:
        assert offset.read(wait()) is None


def test_a_user_who_may_not_see_the_group_is_told_so(cluster, settings):
    cluster.push_errors(FIND_COORDINATOR, [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 1000)
    with (
        closing(GroupOffset(settings, "t", "p.0")) as offset,
        pytest.raises(TransactionFailed, match="Grant this user Read on consumer groups"),
    ):
        offset.read(wait())


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "Read on consumer groups"),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Read on the topic of the ledger"),
    ],
)
@CALLS
def test_a_rejected_request_is_an_error(cluster, offset, call, request_kind, code, advice):
    assert offset.read(wait()) is None  # the error is not for its first request
    cluster.push_errors(request_kind, [code])
    with pytest.raises(TransactionFailed, match=f"the ledger p: .*Grant this user {advice}"):
        call(offset, wait())


def test_a_group_that_does_not_exist_has_no_offset(cluster, offset):
    """Apache Kafka answers without an error; others name it."""
    cluster.push_errors(OFFSET_FETCH, [ErrorCode.GROUP_ID_NOT_FOUND])
    assert offset.read(wait()) is None


@CALLS
def test_what_brokers_answered_last_is_named_at_the_deadline(cluster, offset, call, request_kind):
    cluster.push_errors(request_kind, [INVALID_GROUP_ID] * 10_000)
    with pytest.raises(DeadlineExceeded, match=r"\(INVALID_GROUP_ID\), until the time-out"):
        call(offset, wait(4))


def test_an_unstable_offset_is_no_offset_yet(cluster, offset):
    cluster.push_errors(OFFSET_FETCH, [UNSTABLE_OFFSET_COMMIT] * 1000)
    with pytest.raises(DeadlineExceeded, match=r"until the time-out \(an\.option, 1 s\)"):
        offset.read(wait(1))


@pytest.mark.parametrize("call", [read, write])
def test_a_lost_coordinator_ends_the_wait_at_its_deadline(cluster, offset, call):
    assert offset.read(wait()) is None
    for broker in (0, 1):
        cluster.set_down(broker)
    before = Deadline(60)
    with pytest.raises(DeadlineExceeded, match=r"an\.option, 1 s"):
        call(offset, wait(1))
    assert before.remaining() > 50
    for broker in (0, 1):
        cluster.set_up(broker)
    offset.write(OFFSET, wait())
    assert offset.read(wait()) == OFFSET


def test_the_offsets_of_many_groups(settings):
    groups = [f"p.{number}" for number in range(CLIENTS_AT_ONCE)]
    for number in (3, 15):
        with closing(GroupOffset(settings, "t", groups[number])) as offset:
            offset.write(CommittedOffset(number, "{}"), wait())
    offsets = read_offsets(settings, "t", groups, wait())
    assert list(offsets) == groups
    assert {group: committed.offset for group, committed in offsets.items() if committed} == {
        "p.3": 3,
        "p.15": 15,
    }


@pytest.mark.parametrize("committed", [0, 5])
def test_the_entries_of_an_empty_micro_batch_are_read_in_steps_with_a_time_of_their_own(
    settings, options, monkeypatch, committed
):
    steps = []

    def read_part(client, topic, groups, wait):
        steps.append((len(groups), wait.deadline))
        return read_offsets(client, topic, groups, wait)

    monkeypatch.setattr(batch_marker, "read_offsets", read_part)
    number = CLIENTS_AT_ONCE + 2
    sink = options(
        delivery_guarantee="exactly-once",
        exactly_once_partitions=str(number),
        transactional_id_prefix="p",
        kafka_enable_idempotence="true",
    )
    if committed:
        with closing(GroupOffset(settings, "t", f"p.{number - 1}")) as offset:
            offset.write(CommitEntry(7, number, committed, "f").to_offset(), wait())
        with pytest.raises(ReplayDiffers, match="an earlier attempt has committed 5"):
            batch_marker.write(sink, sink.exactly_once, "p", 7, 0)
    else:
        batch_marker.write(sink, sink.exactly_once, "p", 7, 0)
        with closing(GroupOffset(settings, "t", "p.driver")) as offset:
            assert read_batch_marker(offset.read(wait()), "p.driver") == BatchMarker(7, 0)
    assert [count for count, _ in steps] == [CLIENTS_AT_ONCE, 2]
    assert steps[0][1] is not steps[1][1]


def test_a_reader_far_from_its_broker_keeps_its_client(settings, cluster, group_clients):
    """A new client would need as many round trips again."""
    cluster.set_round_trip(1, 400)
    with closing(GroupOffset(settings, "t", "p.0")) as offset:
        assert offset.read(wait()) is None
    assert len(group_clients) == 1


def test_a_broker_that_hangs_is_asked_no_longer_than_it_is_the_coordinator():
    with MockCluster(2) as cluster:
        cluster.create_topic("t")
        cluster.set_coordinator("p.0", 1)
        sink_options = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "t"}
        with closing(GroupOffset(parse(sink_options).producer.client, "t", "p.0")) as offset:
            assert offset.read(wait()) is None
            cluster.set_round_trip(1, 600_000)
            with pytest.raises(DeadlineExceeded):
                offset.read(wait(1))  # so that the client waits for this broker
            cluster.set_coordinator("p.0", 2)
            assert offset.read(wait(45)) is None  # librdkafka asks another one after 60 s
