"""delivery.guarantee=exactly-once on a real Kafka: every way to fail, reached exactly.

Each test says which records a reader with isolation.level=read_committed sees in the end, and that
no transaction is left open. A task that has to die or to sleep runs in a process of its own
(tests/support/exactly_once_task.py) and stops at the point that the test names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient
from exactly_once_sink import SECONDS, Process
from kafka_commands import kafka_command
from pyspark.errors import StreamingQueryException
from streams import direct, forget_commit, run, stream_of
from suspension import suspended

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.driver import exactly_once_check, preflight
from spark_kafka_sink.errors import (
    DeadlineExceeded,
    DeliveryFailed,
    InvalidOption,
    LedgerAhead,
    LedgerLost,
    PartitionsChanged,
    ReplayDiffers,
    TransactionTimeout,
)

PAGE = Path(__file__).parents[2] / "docs" / "exactly-once.md"
#: an abort, the end of the client, and what a busy machine adds
CLOSE_SECONDS = 5.0 + 1.0 + 10.0


def test_micro_batches_appear_once_and_a_whole_replay_sends_nothing(sink):
    expected = sink.write_batch(0) + sink.write_batch(1)
    assert sink.committed() == sorted(expected)
    # The driver died before it recorded micro-batch 1 as done.
    assert sink.write_batch(1)
    assert sink.write(1, 1, ["1-c"]).total_sent == 0
    expected += sink.write_batch(2)
    assert sink.committed() == sorted(expected)


def test_a_task_without_rows_is_committed_too(sink):
    for batch_id in range(2):
        sink.write(batch_id, 0, [])
        sink.write(batch_id, 1, [f"{batch_id}"])
        sink.write_batch_marker(batch_id)
    with pytest.raises(ReplayDiffers):
        sink.write(1, 0, ["new"])
    assert sink.committed() == ["0", "1"]


def test_a_driver_that_dies_before_all_tasks_have_committed(sink):
    sink.write(0, 0, ["0-a", "0-b"])
    expected = sink.write_batch(0)
    assert sink.committed() == expected


@pytest.mark.parametrize("point", ["initialized", "committing"])
def test_a_task_that_dies_before_its_commit(sink, point):
    Process(sink, 0, 0, ["0-a", "0-b"], point).kill()
    assert sink.write_batch(0) == sink.committed()


def test_a_task_that_dies_after_its_commit(sink):
    Process(sink, 0, 0, ["0-a", "0-b"], "committed").kill()
    assert sink.write(0, 0, ["0-b", "0-a"]).total_sent == 0
    assert sink.write_batch(0) == sink.committed()


@pytest.mark.parametrize("point", ["flushed", "committing"])
def test_a_speculative_twin_fences_the_first_attempt(sink, point):
    first = Process(sink, 0, 0, ["0-a", "0-b"], point)
    expected = sink.write_batch(0)
    assert first.go_on().startswith("TransactionFenced: another attempt of this task")
    assert sink.committed() == expected


def test_a_stopped_process_that_wakes_after_its_successor_changes_nothing(sink):
    zombie = Process(sink, 0, 0, ["0-a", "0-b"], "committing")
    with suspended(zombie.pid):
        expected = sink.write_batch(0) + sink.write_batch(1)
    assert zombie.go_on().startswith("TransactionFenced")
    assert sink.committed() == expected


def test_a_zombie_that_takes_over_late_finds_its_rows_committed(sink):
    same = Process(sink, 0, 0, ["0-a", "0-b"], "created")
    older = Process(sink, 0, 1, ["0-c"], "created")
    expected = sink.write_batch(0)
    assert same.go_on() == "written"
    expected += sink.write_batch(1)
    assert older.go_on().startswith("LedgerAhead: micro-batch 0, partition 1")
    expected += sink.write_batch(2)
    assert sink.committed() == sorted(expected)


def test_a_zombie_that_takes_over_in_between_makes_the_other_attempt_fail(sink):
    zombie = Process(sink, 0, 0, ["0-a", "0-b"], "created")
    live = Process(sink, 0, 0, ["0-a", "0-b"], "flushed")
    assert zombie.go_on() == "written"
    assert live.go_on().startswith("TransactionFenced")
    assert sink.write_batch(0) == sink.committed()


# librdkafka itself does not look at the time while it waits for the answer about the offset.
@pytest.mark.parametrize("point", ["flushed", "committing"])
def test_a_coordinator_that_is_away_beyond_the_deadline(kafka, sink, point):
    task = Process(sink, 0, 0, ["0-a", "0-b"], point, close_timeout_ms="3000")
    with suspended(kafka.pids[0]):
        started = time.monotonic()
        said = task.go_on()
        took = time.monotonic() - started
    assert said.startswith("DeadlineExceeded: micro-batch 0, partition 0: committing: ")
    assert "(close.timeout.ms, 3 s)" in said
    assert took < 3 + CLOSE_SECONDS
    # Nobody knows whether it was committed, but the ledger does.
    assert sink.write_batch(0) == sink.committed()


def test_brokers_that_are_away_when_a_task_begins(kafka, sink):
    with (
        suspended(kafka.pids[0]),
        pytest.raises(DeadlineExceeded, match=r"kafka\.max\.block\.ms, 1\.5 s"),
    ):
        sink.write(0, 0, ["0-a"], kafka_max_block_ms="1500")
    assert sink.write_batch(0) == sink.committed()


def test_an_older_checkpoint(sink):
    expected = sink.write_batch(0) + sink.write_batch(1)
    with pytest.raises(
        LedgerAhead, match=r"latest complete micro-batch is 1.*restore the newer one"
    ):
        sink.write(0, 0, ["0-a", "0-b"])
    # Micro-batch 2 has begun, and has no marker.
    sink.write(2, 0, ["2-a", "2-b"])
    with pytest.raises(LedgerAhead):
        sink.write(1, 0, ["1-a", "1-b"])
    with pytest.raises(LedgerAhead):
        sink.write_batch_marker(0)
    assert sink.committed() == sorted([*expected, "2-a", "2-b"])


@pytest.mark.parametrize("name", ["driver", "0"])
def test_a_ledger_that_was_deleted(kafka, sink, name):
    sink.write_batch(0)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    group = sink.group(name)
    admin.delete_consumer_groups([group])[group].result(SECONDS)
    with pytest.raises(LedgerLost, match=r"exactly\.once\.first\.batch=1"):
        sink.write(1, 0, ["1-a", "1-b"])
    sink.options["exactly.once.first.batch"] = "1"
    sink.write_batch(1)
    sink.write_batch(2)
    admin.delete_consumer_groups([group])[group].result(SECONDS)
    with pytest.raises(LedgerLost, match=r"exactly\.once\.first\.batch=3"):
        sink.write(3, 0, ["3-a"])
    assert len(sink.committed()) == 9


def test_a_checkpoint_that_was_written_without_a_ledger(sink):
    with pytest.raises(
        LedgerLost, match=r"latest complete micro-batch is none.*exactly\.once\.first\.batch=7"
    ):
        sink.write(7, 0, ["7-a", "7-b"])
    sink.options["exactly.once.first.batch"] = "7"
    sink.write(7, 0, ["7-a", "7-b"])
    expected = sink.write_batch(7) + sink.write_batch(8)
    assert sink.committed() == expected


def test_another_number_of_partitions_within_a_micro_batch(sink):
    expected = sink.write_batch(0)
    sink.write(1, 1, ["1-c"])
    sink.options["exactly.once.partitions"] = "1"
    with pytest.raises(PartitionsChanged, match="with 2 partitions"):
        sink.write(1, 0, ["1-a", "1-b", "1-c"])
    sink.options["exactly.once.partitions"] = "2"
    expected += sink.write_batch(1)
    # Its marker is written, but Spark has not recorded it as done.
    sink.options["exactly.once.partitions"] = "3"
    for partition in range(3):
        with pytest.raises(PartitionsChanged, match="with 2 partitions"):
            sink.write(1, partition, ["1-a"])
    assert sink.committed() == sorted(expected)


def test_other_partitions_than_the_option_says(sink):
    sink.write(0, 0, ["0-a"])
    with pytest.raises(PartitionsChanged, match=r"had 1 Spark partitions.*partitions=2"):
        sink.write_batch_marker(0, tasks=1)
    with pytest.raises(PartitionsChanged, match="with 1 partitions"):
        sink.write(0, 0, ["0-a"])
    with pytest.raises(PartitionsChanged, match="with 1 partitions"):
        sink.write(0, 2, ["0-b"])
    sink.options["exactly.once.partitions"] = "1"
    for batch_id in (0, 1):
        sink.write(batch_id, 0, [f"{batch_id}-a"])
        sink.write_batch_marker(batch_id, tasks=1)
    assert sink.committed() == ["0-a", "1-a"]


def test_other_rows_on_a_replay(sink):
    sink.write(0, 0, ["0-a", "0-b"])
    with pytest.raises(ReplayDiffers, match=r"has committed 2 rows, not 1"):
        sink.write(0, 0, ["0-a"])
    with pytest.raises(ReplayDiffers, match=r"has committed 2 different rows"):
        sink.write(0, 0, ["0-a", "0-c"])
    assert sink.write_batch(0) == sink.committed()


def test_a_task_that_keeps_its_transaction_open_for_too_long(sink):
    task = Process(sink, 0, 0, ["0-a", "0-b"], "flushed", kafka_transaction_timeout_ms="3000")
    # Until the brokers have aborted it.
    assert sink.committed() == []
    said = task.go_on()
    assert said.startswith("TransactionTimeout: the transaction ")
    assert "kafka.transaction.timeout.ms=3000" in said
    assert sink.write_batch(0) == sink.committed()


def test_rows_that_come_too_late_for_their_transaction(sink):
    def rows():
        yield "0-a"
        time.sleep(1.1)
        yield "0-b"

    with pytest.raises(TransactionTimeout, match=r"the brokers abort it\. Raise that option"):
        sink.write(0, 0, rows(), kafka_transaction_timeout_ms="1000")
    assert sink.write_batch(0) == sink.committed()


def test_a_timeout_that_the_brokers_do_not_allow(sink):
    with pytest.raises(InvalidOption, match=r"transaction\.max\.timeout\.ms"):
        sink.write(0, 0, ["0-a"], kafka_transaction_timeout_ms="900001")


def test_a_record_that_the_topic_rejects_aborts_the_transaction(sink):
    options = {"kafka_max_request_size": "4000000"}
    # The topic's limit is known, so the record is never sent.
    with pytest.raises(DeliveryFailed, match=r"Raise the topic's max\.message\.bytes") as raised:
        sink.write(0, 0, ["0-a", "x" * 3_000_000], **options)
    assert "made no record of micro-batch 0" in str(raised.value)
    assert sink.write_batch(0) == sink.committed()


def test_brokers_with_too_few_replicas_are_warned_of(sink, caplog, monkeypatch):
    # Brokers that answer late, as on a busy machine, are not warned of.
    monkeypatch.setattr(exactly_once_check, "CONFIGURATION_SECONDS", SECONDS)
    with caplog.at_level("WARNING", logger="spark_kafka_sink"):
        preflight.check(parse(sink.options))
    assert "the brokers have transaction.state.log.replication.factor=1, less than 3" in caplog.text
    assert f"topic {sink.topic} has min.insync.replicas=1, less than 2" in caplog.text


def test_the_commands_of_the_page_list_and_end_what_a_killed_query_left_open(sink):
    expected = sink.write_batch(0)
    Process(sink, 1, 0, ["1-a", "1-b"], "flushed").kill()
    stable, ends = sink.topics.ends(sink.topic)
    assert stable != ends
    *lists, end = commands_of_the_page()
    for words in lists:
        assert sink.group(0) in output_of(words, sink)
    output_of(end, sink)
    stable, ends = sink.topics.ends(sink.topic)
    assert stable == ends
    assert sink.committed() == expected
    assert sorted([*expected, *sink.write_batch(1)]) == sink.committed()


def commands_of_the_page():
    """The commands about open transactions, as lists of words."""
    section = PAGE.read_text().split("## Open transactions of a killed query")[1]
    return [line.split() for line in section.split("```")[1].splitlines()[1:]]


def output_of(words, sink):
    replacements = {"localhost:9092": sink.topics.bootstrap_servers, "ID": sink.group(0)}
    program, *arguments = (replacements.get(word, word) for word in words)
    command = [sys.executable] if program == "python" else kafka_command(program)
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=SECONDS, check=True
    ).stdout


# --- through Spark -------------------------------------------------------------------------------


def start(words, sink, tmp_path, way, partitions=2):
    """Run all micro-batches of words through the format, or foreach_batch."""
    settings = {k: v for k, v in sink.options.items() if k != "transactional.id.prefix"}
    rows = words.where("value != 'nothing'").repartition(partitions, "value")
    writer = direct(rows.writeStream, way, settings)
    return run(writer, tmp_path)


@pytest.mark.parametrize("way", ["format", pytest.param("foreach_batch", marks=pytest.mark.slow)])
def test_a_query_that_repeats_a_micro_batch_or_has_an_older_checkpoint(spark, sink, tmp_path, way):
    words, checkpoint = tmp_path / "words", tmp_path / "checkpoint"
    start(stream_of(spark, words, ["a", "b", "c"]), sink, tmp_path, way)
    shutil.copytree(checkpoint, tmp_path / "older")
    start(stream_of(spark, words, ["nothing"], ["d", "e"]), sink, tmp_path, way)
    assert sink.committed() == ["a", "b", "c", "d", "e"]
    forget_commit(checkpoint, 2)
    start(stream_of(spark, words, ["f"]), sink, tmp_path, way)
    assert sink.committed() == ["a", "b", "c", "d", "e", "f"]
    shutil.rmtree(checkpoint)
    (tmp_path / "older").rename(checkpoint)
    with pytest.raises(StreamingQueryException, match="LedgerAhead: micro-batch 1, partition"):
        start(stream_of(spark, words), sink, tmp_path, way)
    assert sink.committed() == ["a", "b", "c", "d", "e", "f"]


@pytest.mark.needs_format
def test_a_query_with_fewer_partitions_than_the_option_says(spark, sink, tmp_path):
    words = stream_of(spark, tmp_path / "words", ["a"])
    with pytest.raises(StreamingQueryException, match="PartitionsChanged: micro-batch 0 had 1"):
        start(words, sink, tmp_path, "format", partitions=1)
    sink.options["exactly.once.partitions"] = "1"
    words = stream_of(spark, tmp_path / "words", ["b"])
    start(words, sink, tmp_path, "format", partitions=1)
    assert sink.committed() == ["a", "b"]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_topic_that_allows_only_small_batches_gets_all_records_in_order(sink, compression):
    topic = sink.topics.create(1, {"max.message.bytes": "30000"})
    rows = [f"{number:03}{os.urandom(5_000).hex()}" for number in range(40)]
    options = {"topic": topic, "kafka_compression_type": compression}
    sink.write(0, 0, rows, **options)
    assert [value.decode() for value in sink.topics.read_committed(topic)] == rows


@pytest.mark.needs_format
def test_batch_writes_are_rejected(spark, sink):
    writer = spark.range(1).selectExpr("string(id) as value").write.format("kafka-nb")
    with pytest.raises(Exception, match=r"InvalidOption: .*needs a streaming query"):
        writer.options(**sink.options).mode("append").save()
