"""Brokers whose clock differs from the workers', or jumps."""

from __future__ import annotations

import sys
from contextlib import ExitStack

import pytest
from clock_shift import ShiftedClock
from exactly_once_sink import SETTINGS, Process
from pyspark.errors import StreamingQueryException
from streams import direct, run, stream_of

from spark_kafka_sink.errors import LedgerLost, sink_error
from spark_kafka_sink.tools.local_kafka import LocalKafka

HOUR = 3600
RETENTION_SECONDS = 60  # the shortest that brokers accept
RETENTION = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "200"}
# A KRaft controller keeps a batch for 25 ms of its wall clock. If the clock jumps back meanwhile,
# it is stuck until the clock has caught up. With this setting, it begins no batch while idle.
NO_IDLE_BATCHES = {"metadata.max.idle.interval.ms": "0"}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="clocks are shifted with LD_PRELOAD"),
]


@pytest.fixture(scope="module")
def clock(tmp_path_factory):
    """The brokers' clock."""
    return ShiftedClock(tmp_path_factory.mktemp("clock"))


@pytest.fixture(scope="module")
def kafka(clock):
    with ExitStack() as stack:
        with clock.shift_new_processes():
            kafka = stack.enter_context(LocalKafka(settings=SETTINGS | RETENTION | NO_IDLE_BATCHES))
        yield kafka


@pytest.fixture
def own_topics(own_topics, clock):
    clock.move_to(0)
    return own_topics


def write(spark, topics, api, folder, topic):
    """Two micro-batches of two rows."""
    options = {"kafka.bootstrap.servers": topics.bootstrap_servers, "topic": topic}
    words = stream_of(spark, folder / "in", ["a", "b"], ["c", "d"])
    writer = words.repartition(1).writeStream
    writer = direct(writer, api, options)
    run(writer, folder)


@pytest.mark.parametrize("hours", [1, -1])
@pytest.mark.parametrize("api", ["foreach_batch", "exactly-once"])
def test_a_stream_is_complete_if_a_brokers_clock_is_off(spark, topics, clock, tmp_path, api, hours):
    topic = topics.create()
    clock.move_to(hours * HOUR)
    write(spark, topics, api, tmp_path, topic)
    values = topics.read_committed(topic)
    assert sorted(values) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("api", ["format", "exactly-once"])
def test_a_worker_whose_clock_is_too_far_ahead_fails_by_name(spark, topics, clock, tmp_path, api):
    """Brokers allow an hour (message.timestamp.after.max.ms)."""
    topic = topics.create()
    clock.move_to(-2 * HOUR)
    with pytest.raises(StreamingQueryException) as raised:
        write(spark, topics, api, tmp_path, topic)
    error = sink_error(str(raised.value))
    assert "INVALID_TIMESTAMP" in error or "INVALID_RECORD" in error
    assert "the clock of the worker" in error
    assert topics.read_committed(topic) == []


@pytest.mark.parametrize("point", ["initialized", "flushed", "committing"])
def test_brokers_whose_clock_jumps_ahead_abort_an_open_transaction(sink, clock, point):
    task = Process(sink, 0, 0, ["0-a", "0-b"], point)
    clock.move_to(HOUR)
    if point != "initialized":
        assert sink.committed() == []  # once the brokers have aborted it
    said = task.go_on()
    if point == "initialized":  # nothing was open
        assert said == "written"
    else:
        assert said.startswith("TransactionFenced: ")
    assert sink.write_batch(0) == sink.committed()


def test_brokers_whose_clock_jumps_back_keep_an_open_transaction(sink, clock):
    clock.move_to(HOUR)
    task = Process(sink, 0, 0, ["0-a", "0-b"], "flushed")
    clock.move_to(0)
    assert task.go_on() == "written"
    assert sink.write_batch(0) == sink.committed()


# --- the retention of offsets ---------------------------------------------------------------------


def test_micro_batches_more_often_than_the_retention_keep_the_ledger(sink, clock):
    """Only the layout expires, which changes with the number of partitions; it is not needed."""
    expected = sink.write_batch(0)
    for batch_id in range(1, 4):
        clock.move_to(batch_id * (RETENTION_SECONDS - 20))
        if batch_id >= 2:
            sink.wait_until_forgotten("layout")
        expected += sink.write_batch(batch_id)
    sink.options["exactly.once.partitions"] = "1"
    sink.write(4, 0, ["4-a"])
    sink.write_batch_marker(4, tasks=1)
    assert sink.committed() == sorted([*expected, "4-a"])


def test_a_query_that_was_stopped_for_longer_has_lost_its_ledger(sink, clock):
    expected = sink.write_batch(0)
    clock.move_to(RETENTION_SECONDS + 1)
    sink.wait_until_forgotten("0", "1", "driver")
    for partition in (0, 1):
        with pytest.raises(LedgerLost, match=r"offsets\.retention\.minutes") as raised:
            sink.write(1, partition, ["1-a"])
        assert "exactly.once.first.batch=1" in str(raised.value)
    assert sink.committed() == expected
    sink.options["exactly.once.first.batch"] = "1"
    expected += sink.write_batch(1) + sink.write_batch(2)
    assert sink.committed() == sorted(expected)


def test_expired_entries_of_an_incomplete_micro_batch_are_noticed_but_for_the_first(sink, clock):
    expected = sink.write_batch(0)
    sink.write(1, 0, ["1-a", "1-b"])
    clock.move_to(RETENTION_SECONDS + 1)
    sink.wait_until_forgotten("0", "1", "driver")
    for partition in (0, 1):
        with pytest.raises(LedgerLost, match=r"exactly\.once\.first\.batch=1"):
            sink.write(1, partition, ["1-a", "1-b"])
    assert sink.committed() == sorted([*expected, "1-a", "1-b"])
