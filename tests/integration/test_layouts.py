"""The number of Spark partitions of a micro-batch changes, on a real Kafka: every row once, or all
tasks of the new number fail before they send, and the former number completes it.

``ROWS`` are dealt out to the partitions in turn, so another number puts them elsewhere.
"""

from __future__ import annotations

import re

import pytest
from exactly_once_sink import Process, shorten_claims
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from streams import direct, forget_commit, run, stream_of
from suspension import suspended

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.errors import PartitionsChanged, ReplayDiffers

SLOW = pytest.mark.slow
ROWS = ["a", "b", "c", "d", "e", "f"]


@pytest.fixture(autouse=True)
def short_claims(monkeypatch):
    shorten_claims(monkeypatch)


def rows(batch_id):
    return [f"{batch_id}-{row}" for row in ROWS]


def write(sink, batch_id, partition, number):
    """A task of a stage with that number of partitions."""
    sink.options["exactly.once.partitions"] = str(number)
    return sink.write(batch_id, partition, rows(batch_id)[partition::number])


def complete(sink, batch_id, number):
    for partition in range(number):
        write(sink, batch_id, partition, number)
    sink.write_batch_marker(batch_id, tasks=number)


def process(sink, batch_id, partition, number, point):
    values = rows(batch_id)[partition::number]
    return Process(sink, batch_id, partition, values, point, exactly_once_partitions=str(number))


def expect_failure(sink, batch_id, number, former):
    """All tasks of a stage fail, and none of their records was sent."""
    sink.committed()  # until the end of the last transaction is in all partitions
    before = sink.topics.ends(sink.topic)
    for partition in range(number):
        with pytest.raises(PartitionsChanged, match=f"was committed with {former} partitions"):
            write(sink, batch_id, partition, number)
    assert sink.topics.ends(sink.topic) == before


# tests/search visits every number in every order; so here and below, few of them.
@pytest.mark.parametrize(("batch_id", "begun", "other"), [(0, 3, 2), (1, 1, 3)])
def test_a_micro_batch_that_is_begun_and_partly_committed(sink, batch_id, begun, other):
    for earlier in range(batch_id):
        complete(sink, earlier, 2)
    write(sink, batch_id, begun - 1, begun)
    expect_failure(sink, batch_id, other, begun)
    complete(sink, batch_id, begun)
    complete(sink, batch_id + 1, other)
    expected = [row for batch in range(batch_id + 2) for row in rows(batch)]
    assert sink.committed() == sorted(expected)


@pytest.mark.parametrize(
    ("batch_id", "begun", "other"), [(0, 2, 3), pytest.param(1, 3, 2, marks=SLOW)]
)
def test_old_attempts_that_are_alive_commit_nothing_after_a_change(sink, batch_id, begun, other):
    for earlier in range(batch_id):
        complete(sink, earlier, begun)
    zombies = [
        process(sink, batch_id, partition, begun, "committing") for partition in range(begun)
    ]
    complete(sink, batch_id, other)
    for zombie in zombies:
        assert zombie.go_on().startswith("TransactionFenced: ")
    complete(sink, batch_id + 1, begun)
    expected = [row for batch in range(batch_id + 2) for row in rows(batch)]
    assert sink.committed() == sorted(expected)


def test_a_change_that_is_taken_back_before_anything_was_committed(sink):
    complete(sink, 0, 2)
    begun = [process(sink, 1, partition, 3, "flushed") for partition in range(3)]
    complete(sink, 1, 2)
    for task in begun:
        assert task.go_on().startswith("TransactionFenced: ")
    assert sink.committed() == sorted(rows(0) + rows(1))


def test_a_lower_number_leaves_no_transaction_open(sink):
    complete(sink, 0, 3)
    for partition in range(3):
        process(sink, 1, partition, 3, "flushed").kill()
    stable, ends = sink.topics.ends(sink.topic)
    assert stable != ends
    complete(sink, 1, 1)
    # It waits until no transaction is open; the brokers would wait for ten minutes.
    assert sink.committed() == sorted(rows(0) + rows(1))


@pytest.mark.parametrize(
    ("point", "following"),
    [("claiming", 2), ("claim opened", 3), pytest.param("claim settled", 2, marks=SLOW)],
)
def test_a_claim_whose_task_dies_is_taken_over(sink, point, following):
    complete(sink, 0, 2)
    process(sink, 1, 0, 3, point).kill()
    complete(sink, 1, following)
    assert sink.committed() == sorted(rows(0) + rows(1))


@pytest.mark.parametrize(
    "point", ["claiming", "claim opened", pytest.param("claim settled", marks=SLOW)]
)
def test_a_claim_whose_task_sleeps_and_wakes_later_changes_nothing(sink, point):
    complete(sink, 0, 2)
    zombie = process(sink, 1, 0, 3, point)
    with suspended(zombie.pid):
        write(sink, 1, 0, 2)
    assert zombie.go_on().startswith("PartitionsChanged: micro-batch 1, partition 0: ")
    complete(sink, 1, 2)
    complete(sink, 2, 3)
    assert sink.committed() == sorted(rows(0) + rows(1) + rows(2))


def test_a_task_that_a_claim_of_its_own_number_has_fenced_begins_again(sink):
    """A claim fences the ids of the former number, some of which belong to the new one, too."""
    complete(sink, 0, 2)
    claiming = process(sink, 1, 0, 3, "claim opened")
    waiting = process(sink, 1, 1, 3, "initialized")
    assert claiming.go_on() == "written"
    assert waiting.go_on() == "written"
    write(sink, 1, 2, 3)
    sink.write_batch_marker(1, tasks=3)
    assert sink.committed() == sorted(rows(0) + rows(1))


def test_the_tasks_of_a_stage_that_run_at_once_need_one_claim(sink):
    tasks = [process(sink, 0, partition, 3, "") for partition in (2, 1, 0)]
    assert [task.end() for task in tasks] == ["written"] * 3
    sink.options["exactly.once.partitions"] = "3"
    sink.write_batch_marker(0, tasks=3)
    assert sink.committed() == rows(0)


# --- a mistaken exactly.once.partitions -----------------------------------------------------------

ACTUAL = 2


def start(sink, batch_id, option, partitions=range(ACTUAL)):
    """The tasks of a micro-batch that has ``ACTUAL`` partitions, and the driver after all of them.

    Returns the number that an error names, or None.
    """
    sink.stage += "'"
    sink.options["exactly.once.partitions"] = str(option)
    try:
        for partition in partitions:
            sink.write(batch_id, partition, rows(batch_id)[partition::ACTUAL])
        if len(partitions) == ACTUAL:
            sink.write_batch_marker(batch_id, ACTUAL)
    except PartitionsChanged as error:
        advice = str(error).replace("and exactly.once.partitions", "set exactly.once.partitions")
        return int(re.findall(r"set exactly\.once\.partitions=(\d+)", advice)[-1])
    return None


@pytest.mark.parametrize(("batch_id", "mistaken", "committed"), [(0, 3, [0]), (1, 1, [0, 1])])
def test_a_mistaken_number_is_undone_by_those_that_errors_name(sink, batch_id, mistaken, committed):
    for earlier in range(batch_id):
        assert start(sink, earlier, ACTUAL) is None
    named = start(sink, batch_id, mistaken, committed)
    assert named == (ACTUAL if len(committed) == ACTUAL else None)
    option, tried = ACTUAL, []
    while (named := start(sink, batch_id, option)) is not None:
        tried.append(option := named)
        assert len(tried) <= 3, tried
    assert option == ACTUAL
    assert start(sink, batch_id + 1, ACTUAL) is None
    expected = [row for batch in range(batch_id + 2) for row in rows(batch)]
    assert sink.committed() == sorted(expected)


def test_a_query_with_other_partitions_cannot_continue_one_with_more_than_its_option(sink):
    complete(sink, 0, 2)
    sink.options["exactly.once.partitions"] = "2"
    sink.write(1, 2, rows(1)[2::3])
    sink.stage = "another stage"
    for partition in range(2):
        with pytest.raises(PartitionsChanged, match="was committed with 3 partitions"):
            write(sink, 1, partition, 2)
    complete(sink, 1, 3)
    assert sink.committed() == sorted(rows(0) + rows(1))


@pytest.mark.parametrize(
    ("way", "mistaken"), [("format", 1), pytest.param("foreach_batch", 3, marks=SLOW)]
)
def test_a_query_that_was_started_with_a_mistaken_number(spark, sink, tmp_path, way, mistaken):
    folder = tmp_path / "words"

    def start(option, *batches):
        sink.options["exactly.once.partitions"] = str(option)
        words = stream_of(spark, folder, *batches).repartition(ACTUAL, "value")
        writer = direct(words.writeStream, way, sink.options)
        run(writer, tmp_path)

    message = r"micro-batch 0 had 2 .*set exactly\.once\.partitions=2 and start"
    with pytest.raises(StreamingQueryException, match=message):
        start(mistaken, ["a", "b", "c"])
    start(ACTUAL, ["d", "e", "f"])
    assert sink.committed() == ["a", "b", "c", "d", "e", "f"]


# --- foreach_batch repartitions -------------------------------------------------------------------


@pytest.mark.parametrize("columns", [["value"], pytest.param(["key", "value"], marks=SLOW)])
def test_foreach_batch_keeps_the_number_of_the_checkpoint(spark, sink, tmp_path, columns):
    del sink.options["exactly.once.partitions"]
    words, checkpoint = tmp_path / "words", tmp_path / "checkpoint"
    reports = []

    def start(shuffle_partitions, *batches):
        session = spark.newSession()
        session.conf.set("spark.sql.shuffle.partitions", shuffle_partitions)
        frame = stream_of(session, words, *batches).selectExpr("upper(value) as key", "value")
        # Without a repartition of its own; adaptive execution would choose the number.
        frame = frame.groupBy("key", "value").count().select(*columns)
        write = foreach_batch(sink.options, reports.append)
        run(frame.writeStream.outputMode("update").foreachBatch(write), tmp_path)

    start(3, ["a", "b", "c", "d", "e"])
    assert [(report.tasks, report.outcome) for report in reports] == [(3, "delivered")]
    forget_commit(checkpoint, 0)
    start(5, ["f", "g"])
    assert {report.tasks for report in reports} == {3}
    assert sink.committed() == ["a", "b", "c", "d", "e", "f", "g"]


def test_foreach_batch_with_a_number_leaves_the_partitions_as_they_are(spark, sink, tmp_path):
    sink.options["exactly.once.partitions"] = "1"
    reports = []
    words = stream_of(spark, tmp_path / "words", ["a", "b"]).repartition(1)
    run(words.writeStream.foreachBatch(foreach_batch(sink.options, reports.append)), tmp_path)
    assert [report.tasks for report in reports] == [1]
    assert sink.committed() == ["a", "b"]


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(lambda batch: batch.persist(), marks=SLOW),
        pytest.param(
            lambda batch: batch.repartition("key").sortWithinPartitions("value"), marks=SLOW
        ),
        lambda batch: batch.groupBy("key").agg(F.max("value").alias("value")),
    ],
    ids=["persist", "repartition and sort", "groupBy"],
)
def test_foreach_batch_keeps_its_number_whatever_spark_optimizes(spark, sink, tmp_path, shape):
    """Spark runs no task for what it knows to be empty, and merges equal repartitions."""
    del sink.options["exactly.once.partitions"]
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", 3)
    reports = []
    to_kafka = foreach_batch(sink.options, reports.append)
    batches = ["a", "b"], ["nothing"], ["c"], ["nothing"]
    words = stream_of(session, tmp_path / "words", *batches).where("value <> 'nothing'")
    words = words.selectExpr("upper(value) AS key", "value")
    run(words.writeStream.foreachBatch(lambda batch, i: to_kafka(shape(batch), i)), tmp_path)
    assert [report.tasks for report in reports if report.delivered_records()] == [3, 3]
    assert [(report.batch_id, report.outcome) for report in reports] == [
        (batch_id, "delivered") for batch_id in range(4)
    ]
    [query_id] = {report.query_id for report in reports}
    assert query_id is not None
    assert sink.committed() == ["a", "b", "c"]


def test_a_micro_batch_without_tasks_is_complete_and_any_number_may_follow(sink):
    complete(sink, 0, 3)
    for _ in range(2):  # Spark had not recorded the first one as done
        sink.write_batch_marker(1, tasks=0)
    sink.write_batch_marker(2, tasks=0)
    complete(sink, 3, 2)
    assert sink.committed() == sorted(rows(0) + rows(3))


def test_a_micro_batch_without_rows_may_be_repeated_with_tasks(sink):
    sink.options["exactly.once.partitions"] = "3"
    sink.write_batch_marker(0, tasks=0)
    for partition in range(3):
        sink.write(0, partition, [])
    sink.write_batch_marker(0, tasks=3)
    complete(sink, 1, 3)
    assert sink.committed() == rows(1)


def test_a_micro_batch_without_rows_may_have_fewer_tasks_than_the_option_says(sink):
    complete(sink, 0, 3)
    sink.write(1, 0, [])
    sink.write_batch_marker(1, tasks=1)
    complete(sink, 2, 3)
    assert sink.committed() == sorted(rows(0) + rows(2))


def test_a_micro_batch_that_has_lost_its_rows_is_not_complete(sink):
    complete(sink, 0, 3)
    write(sink, 1, 2, 3)
    with pytest.raises(ReplayDiffers, match=r"micro-batch 1 has no rows, but .* committed 2\."):
        sink.write_batch_marker(1, tasks=0)
    complete(sink, 1, 3)
    assert sink.committed() == sorted(rows(0) + rows(1))


def test_foreach_batch_reports_what_was_delivered_without_marking_the_ledger(spark, sink, tmp_path):
    reports = []

    def on_report(report):
        reports.append(report)
        raise ValueError("not this one")

    words = stream_of(spark, tmp_path / "words", ["a", "b"]).repartition(1)
    query = words.writeStream.foreachBatch(foreach_batch(sink.options, on_report))
    with pytest.raises(StreamingQueryException, match="PartitionsChanged: micro-batch 0 had 1"):
        run(query, tmp_path)
    [report] = reports
    assert (report.outcome, report.tasks, report.failed_tasks) == ("failed", 1, 0)
    assert (report.batch_id, report.delivered_records()) == (0, {sink.topic: 2})


def test_fewer_tasks_than_an_earlier_attempt_are_told_that_rows_may_be_doubled(sink):
    for partition in (2, 0, 1):
        write(sink, 0, partition, 3)
    with pytest.raises(PartitionsChanged, match="rows may be duplicated"):
        sink.write_batch_marker(0, tasks=2)
    write(sink, 1, 0, 2)
    write(sink, 1, 1, 2)
    sink.options["exactly.once.partitions"] = "3"
    with pytest.raises(PartitionsChanged, match="nothing is sent twice"):
        sink.write_batch_marker(1, tasks=2)
