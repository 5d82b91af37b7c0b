"""send.from=driver on a real Kafka: rows, reports, errors, stops, exactly-once, batches."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F
from streams import FROM_DRIVER, exactly_once, forget_commit, run, stream_of, write_by_format
from suspension import suspended
from waiting import wait_until

from spark_kafka_sink import (
    InvalidOption,
    foreach_batch,
    patch_pyspark,
    unpatch_pyspark,
)
from spark_kafka_sink.errors import (
    BrokerUnavailable,
    InvalidRecord,
    LedgerAhead,
    MicroBatchTooLarge,
)
from spark_kafka_sink.spark import foreach_batch as spark_function
from spark_kafka_sink.spark import private_api

SPARK_SECONDS = 20.0  # for what Spark itself does around a micro-batch, on a very busy machine
SLEEP = "reflect('java.lang.Thread', 'sleep', 100L)"


@dataclass
class Target:
    """A topic, the options that write to it from the driver, and the reports."""

    servers: str
    topics: object
    topic: str
    reports: list = field(default_factory=list)

    def __post_init__(self):
        self.options = {"kafka.bootstrap.servers": self.servers, "topic": self.topic, **FROM_DRIVER}
        self.once = self.options | exactly_once(self.topic)
        del self.once["exactly.once.partitions"]

    def sink(self, options=None, **more):
        """The function, with other options, which have ``_`` in place of each dot."""
        options = self.options if options is None else options
        more = {name.replace("_", "."): value for name, value in more.items()}
        return foreach_batch(options | more, self.reports.append)

    def values(self):
        """Once no transaction is open."""
        return sorted(value.decode() for value in self.topics.read_committed(self.topic))


@pytest.fixture
def target(kafka, own_topics):
    return Target(kafka.bootstrap_servers, own_topics, own_topics.create())


def start(rows, sink, tmp_path):
    writer = rows.writeStream.foreachBatch(sink)
    return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()


def fail(rows, sink, tmp_path):
    """Run a query that fails; returns the first line of its error, and the seconds it took."""
    query, started = start(rows, sink, tmp_path), time.monotonic()
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(120)
    seconds = time.monotonic() - started
    return str(query.exception()), seconds


# --- rows -----------------------------------------------------------------------------------------


@pytest.fixture
def small_batches(spark):
    """Spark passes a thousand rows at a time."""
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(name, "1000")
    yield
    spark.conf.unset(name)


def test_rows_are_those_that_executors_send_and_a_spark_partition_keeps_its_order(
    spark, kafka, own_topics, small_batches
):
    def write(**more):
        names = [own_topics.create(3) for _ in range(2)]
        rows = spark.range(0, 12_000, numPartitions=3).select(
            F.expr("string(id div 4000 * 5 + id % 5) AS key"),
            F.expr("if(id % 7 = 0, null, concat(cast(string(id) AS binary), X'00FF')) AS value"),
            F.expr("if(id % 3 = 0, int(id % 2), null) AS partition"),
            F.expr(
                "if(id % 2 = 0, array(named_struct('key', 'id', 'value', "
                "cast(string(id) AS binary))), null) AS headers"
            ),
            F.expr("timestamp_millis(1700000000000 + id) AS at"),
            F.expr(f"if(id % 4 = 0, '{names[0]}', '{names[1]}') AS topic"),
            F.expr("named_struct('not', 'written') AS other"),
        )
        options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "timestamp.column": "at"}
        reports = []
        foreach_batch(options | more, reports.append)(rows, None)
        assert {name: reports[0].sent_records[name] for name in names} == {
            names[0]: 3000,
            names[1]: 9000,
        }
        return names, reports[0], own_topics.read(*names)

    def contents(names, records):
        return Counter(
            (names.index(r.topic), r.partition, r.key, r.value, r.headers, r.timestamp_ms)
            for r in records
        )

    theirs = write()
    ours = write(**FROM_DRIVER)
    assert (theirs[1].tasks, ours[1].tasks) == (3, 1)
    assert contents(ours[0], ours[2]) == contents(theirs[0], theirs[2])
    latest = {}
    for record in ours[2]:
        place = record.topic, record.partition, record.key
        assert latest.get(place, -1) < record.timestamp_ms
        latest[place] = record.timestamp_ms


def test_every_micro_batch_is_reported_as_one_task(spark, target, tmp_path):
    words = stream_of(spark, tmp_path / "in", ["a"] * 300, ["none"], ["b"] * 5)
    path = tmp_path / "reports"
    sink = target.sink(report_path=path)
    query = run(
        words.where("value != 'none'").repartition(4).writeStream.foreachBatch(sink), tmp_path
    )
    figures = [
        (r.batch_id, r.outcome, r.tasks, r.failed_tasks, r.total_sent) for r in target.reports
    ]
    assert figures == [(i, "delivered", 1, 0, n) for i, n in enumerate([300, 0, 5])]
    assert {report.query_id for report in target.reports} == {query.id}
    assert target.values() == ["a"] * 300 + ["b"] * 5
    error, _ = fail(
        stream_of(spark, tmp_path / "in", ["c" * 2_000_000]),
        target.sink(report_path=path),
        tmp_path,
    )
    assert "spark_kafka_sink.errors.DeliveryFailed" in error.partition("\n")[0]
    latest = target.reports[-1]
    assert (latest.batch_id, latest.outcome) == (3, "failed")
    assert (latest.tasks, latest.failed_tasks, latest.total_sent) == (1, 1, 1)
    lines = [json.loads(t) for f in path.rglob("*.json*") for t in f.read_text().splitlines()]
    written = [(x["batch_id"], x["tasks"], x["failed_tasks"], x["records"]) for x in lines]
    assert written == [(0, 1, 0, 300), (1, 1, 0, 0), (2, 1, 0, 5), (3, 1, 1, 0)]


def test_dead_letters_say_where_their_rows_were(spark, target, tmp_path):
    dead = target.topics.create()
    words = stream_of(spark, tmp_path / "in", ["a", "bad", "b"], ["c", "d", "bad"])
    rows = words.coalesce(1).selectExpr(
        "value", "array(named_struct('key', if(value = 'bad', null, 'h'), 'value', X'01')) headers"
    )
    sink = target.sink(on_record_error="dead-letter", dead_letter_topic=dead)
    query = run(rows.writeStream.foreachBatch(sink), tmp_path)
    assert target.values() == ["a", "b", "c", "d"]
    letters = [dict(record.headers) for record in target.topics.read(dead)]
    where = ["kafka-nb.query.id", "kafka-nb.batch.id", "kafka-nb.task.partition", "kafka-nb.row"]
    places = [[letter[name] for name in where] for letter in letters]
    assert places == [[query.id.encode(), b"0", None, b"1"], [query.id.encode(), b"1", None, b"2"]]
    assert [sum(report.dead_letters.values()) for report in target.reports] == [1, 1]


# --- errors ---------------------------------------------------------------------------------------


def counter(spark):
    """How many values were computed by the function, which returns them as they are."""
    computed = spark.sparkContext.accumulator(0)

    @F.udf("string")
    def count(value):
        computed.add(1)
        return value

    return computed, count


def refuse_seven(column):
    """As a function inside a function, it reaches workers, which lack this module."""

    def refuse(value):
        if value == "7":
            raise LookupError("refused: seven")
        return value

    return F.udf(refuse, "string")(column)


def cast(column):
    return F.expr(f"string(int(concat({column}, if({column} = '7', 'x', ''))))")


@pytest.mark.parametrize(
    ("function", "expected"),
    [(refuse_seven, "LookupError: refused: seven"), (cast, "CAST_INVALID_INPUT")],
)
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_row_that_cannot_be_computed_shows_sparks_own_error(
    spark, target, tmp_path, function, expected, guarantee
):
    options = target.once if guarantee == "exactly-once" else target.options
    words = stream_of(spark, tmp_path / "in", [str(n) for n in range(10)])
    failing = words.coalesce(1).withColumn("value", function("value"))
    error, _ = fail(failing, target.sink(options), tmp_path)
    assert expected in error
    assert "ocket" not in error.partition("\tat ")[0]
    assert [(r.outcome, r.tasks, r.failed_tasks) for r in target.reports] == [("failed", 1, 1)]
    assert target.values() == []
    run(words.writeStream.foreachBatch(target.sink(options)), tmp_path)
    assert target.values() == [str(n) for n in range(10)]


def test_an_invalid_record_is_named_by_its_micro_batch_and_row(spark, target, tmp_path):
    words = stream_of(spark, tmp_path / "in", ["a", "b"], ["c", "bad"]).coalesce(1)
    del target.options["topic"]
    rows = words.selectExpr("value", f"if(value = 'bad', null, '{target.topic}') AS topic")
    error, _ = fail(rows, target.sink(), tmp_path)
    assert "spark_kafka_sink.errors.InvalidRecord: micro-batch 1, row 1: " in error
    with pytest.raises(InvalidRecord, match="outside Spark, row 0: "):
        target.sink()(spark.sql("SELECT 'v' AS value, string(null) AS topic"), None)
    assert target.values() == ["a", "b"]


def test_an_unreachable_broker_fails_in_seconds(spark, target, tmp_path):
    words = stream_of(spark, tmp_path / "in", ["a"])
    sink = target.sink(kafka_bootstrap_servers="127.0.0.1:1")
    error, seconds = fail(words, sink, tmp_path)
    said = r"BrokerUnavailable: no broker answered at 127\.0\.0\.1:1 within ([\d.]+) s"
    assert 3 <= float(re.search(said, error)[1]) <= seconds < 3 + SPARK_SECONDS
    with pytest.raises(BrokerUnavailable):
        sink(spark.sql("SELECT 'v' AS value"), None)
    run(words.writeStream.foreachBatch(target.sink()), tmp_path)
    assert target.values() == ["a"]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_suspended_broker_fails_the_query_in_time_and_nothing_is_sent_later(
    spark, kafka, target, tmp_path, guarantee
):
    options = target.once if guarantee == "exactly-once" else target.options
    short = options | {"close.timeout.ms": "3000", "kafka.max.block.ms": "3000"}
    words = stream_of(spark, tmp_path / "in", ["a"])
    sink = target.sink(short)
    run(words.writeStream.foreachBatch(sink), tmp_path)
    words = stream_of(spark, tmp_path / "in", ["b"] * 1000)
    with suspended(kafka.pids[0]):
        error, seconds = fail(words, sink, tmp_path)
    assert "spark_kafka_sink.errors.DeadlineExceeded: " in error.partition("\n")[0]
    assert seconds < 3 + SPARK_SECONDS
    run(words.writeStream.foreachBatch(target.sink(options)), tmp_path)
    possibly = sum(r.possibly_persisted_records for r in target.reports)
    values = Counter(target.values())
    assert values["a"] == 1
    assert 1000 <= values["b"] <= 1000 + (possibly if guarantee == "at-least-once" else 0)


@pytest.mark.parametrize("remedy", ["driver.max.rows=101", "send.from=executors"])
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_too_many_rows_say_what_to_do(spark, target, tmp_path, guarantee, remedy):
    options = target.once if guarantee == "exactly-once" else target.options
    words = stream_of(spark, tmp_path / "in", ["a"] * 100, ["b"] * 101)
    sink = target.sink(options, driver_max_rows="100")
    error, _ = fail(words.repartition(2), sink, tmp_path)
    # Spark often shows only the first line.
    first = "Return Message: spark_kafka_sink.errors.MicroBatchTooLarge: the micro-batch has more "
    assert f"{first}than driver.max.rows=100 rows" in error
    for advice in ("send.from=executors", "maxOffsetsPerTrigger"):
        assert advice in error
    values = target.values()
    assert values[:100] == ["a"] * 100
    if guarantee == "exactly-once":
        assert len(values) == 100
    options |= [remedy.split("=")]
    run(words.writeStream.foreachBatch(target.sink(options)), tmp_path)
    assert Counter(target.values()[len(values) :]) == {"b": 101}


def test_spark_passes_at_most_one_row_more_than_a_micro_batch_may_have(spark, target, monkeypatch):
    """In each Spark partition: the others would fill the driver's memory before they count."""
    passed = []

    class Watched(private_api.FrameRows):
        def __iter__(self):
            for batch in super().__iter__():
                passed.append(batch.num_rows)
                yield batch

    monkeypatch.setattr(private_api, "FrameRows", Watched)
    with pytest.raises(MicroBatchTooLarge):
        target.sink(driver_max_rows="10")(
            spark.range(0, 5000, 1, 2).selectExpr("string(id) value"), None
        )
    assert passed[0] == 11


# --- stops ----------------------------------------------------------------------------------------


def has_sender():
    """Whether a thread of this process sends a micro-batch."""
    return "sender" in {thread.name for thread in threading.enumerate()}


def stop(query, seconds):
    started = time.monotonic()
    query.stop()
    took = time.monotonic() - started
    assert took < seconds
    assert query.exception() is None


@pytest.mark.parametrize(("guarantee", "seconds"), [("at-least-once", 8), ("exactly-once", 14)])
def test_a_query_that_waits_for_a_suspended_broker_is_stopped(
    spark, kafka, target, tmp_path, uncaught, guarantee, seconds
):
    options = target.once if guarantee == "exactly-once" else target.options
    options = options | {"close.timeout.ms": "120000"}
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
    query = start(stream.selectExpr("string(value) AS value"), target.sink(options), tmp_path)
    try:
        wait_until(lambda: query.recentProgress or query.exception())
        with suspended(kafka.pids[0]):

            def is_waiting():
                done = len(query.recentProgress)
                time.sleep(1.5)
                return 0 < done == len(query.recentProgress) and has_sender()

            wait_until(is_waiting)
            stop(query, seconds)
            wait_until(lambda: not has_sender(), 10)  # it could disturb the next run
    finally:
        query.stop()
    assert uncaught == []
    assert target.reports[-1].outcome == "failed"
    run_again = start(stream.selectExpr("string(value) AS value"), target.sink(options), tmp_path)
    try:
        wait_until(lambda: run_again.lastProgress or run_again.exception())
        assert run_again.exception() is None
    finally:
        run_again.stop()


def test_a_query_is_stopped_while_it_marks_a_micro_batch_as_complete(
    spark, kafka, target, tmp_path, uncaught, monkeypatch
):
    marks, write = threading.Event(), spark_function.write_batch_marker

    def mark(*arguments):
        with suspended(kafka.pids[0]):
            marks.set()
            write(*arguments)

    monkeypatch.setattr(spark_function, "write_batch_marker", mark)
    words = stream_of(spark, tmp_path / "in", ["a", "b"])
    options = target.once | {"close.timeout.ms": "120000"}
    query = start(words, target.sink(options), tmp_path)
    assert marks.wait(60)
    stop(query, 14)
    assert uncaught == []
    monkeypatch.undo()
    run(words.writeStream.foreachBatch(target.sink(target.once)), tmp_path)
    assert target.values() == ["a", "b"]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_query_whose_rows_are_computed_is_stopped(spark, target, tmp_path, uncaught, guarantee):
    options = target.once if guarantee == "exactly-once" else target.options
    words = stream_of(spark, tmp_path / "in", ["a"] * 600).coalesce(1)
    slow = words.selectExpr(f"concat(value, substring({SLEEP}, 1, 0)) AS value")
    query = start(slow, target.sink(options), tmp_path)
    wait_until(lambda: spark.sparkContext.statusTracker().getActiveJobsIds())
    time.sleep(1)
    stop(query, 8)
    wait_until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds(), 10)
    assert uncaught == []
    assert target.values() == []
    run(words.writeStream.foreachBatch(target.sink(options)), tmp_path)
    assert target.values() == ["a"] * 600


def test_a_query_is_stopped_while_spark_begins_to_compute_rows(spark, target, tmp_path, uncaught):
    """Before Spark has begun the job, there is nothing that query.stop() could cancel."""
    sink, has_begun = target.sink(), threading.Event()

    def write(frame, batch_id):
        has_begun.set()
        sink(frame, batch_id)

    words = stream_of(spark, tmp_path / "in", ["a"] * 150).coalesce(1)
    slow = words.selectExpr(f"concat(value, substring({SLEEP}, 1, 0)) AS value")
    for number in range(4):
        has_begun.clear()
        query = start(slow, write, tmp_path / f"{number}")
        assert has_begun.wait(30)
        time.sleep(0.03 * number)
        stop(query, 8)
    assert uncaught == []
    assert target.values() == []


# --- exactly-once ---------------------------------------------------------------------------------


def test_of_a_micro_batch_that_was_committed_no_row_is_sent(spark, target, tmp_path, caplog):
    def rows(*batches):
        words = stream_of(spark, tmp_path / "in", *batches)
        return words.select(F.expr("concat(value, ' ', rand())").alias("value"))

    run(
        rows(["a", "b"], ["none"], ["c"]).writeStream.foreachBatch(target.sink(target.once)),
        tmp_path,
    )
    forget_commit(tmp_path / "checkpoint", 2)
    run(rows(["d"]).writeStream.foreachBatch(target.sink(target.once)), tmp_path)
    assert [v.split()[0] for v in target.values()] == ["a", "b", "c", "d", "none"]
    assert any(
        "micro-batch 2 of" in text and "was committed before" in text for text in caplog.messages
    )
    assert [(r.batch_id, r.outcome, r.tasks, r.total_sent) for r in target.reports[3:]] == [
        (2, "delivered", 1, 0),
        (3, "delivered", 1, 1),
    ]


def closed_windows(seconds):
    at = seconds.selectExpr("timestamp_seconds(bigint(value)) AS at").withWatermark(
        "at", "0 seconds"
    )
    counts = at.groupBy(F.window("at", "10 seconds")).count()
    return counts.selectExpr("concat(unix_timestamp(window.start), ' ', count) AS value")


@pytest.mark.parametrize(
    ("query", "batches", "expected"),
    [
        (closed_windows, (["1", "2"], ["21"]), ["0 2"]),
        (lambda words: words.dropDuplicates(["value"]), (["a", "b"], ["b", "c"]), ["a", "b", "c"]),
    ],
    ids=["windows", "duplicates"],
)
def test_state_and_watermark_survive_a_micro_batch_that_was_committed(
    spark, target, tmp_path, query, batches, expected
):
    """Spark wants all of its rows computed, also those that are not sent."""
    sink = target.sink(target.once)

    def fail_behind_it(frame, batch_id):
        sink(frame, batch_id)
        if batch_id == 1:
            raise ValueError

    rows = query(stream_of(spark, tmp_path / "in", *batches))
    fail(rows, fail_behind_it, tmp_path)
    run(rows.writeStream.foreachBatch(sink), tmp_path)
    assert target.values() == expected
    more = query(stream_of(spark, tmp_path / "in", batches[-1]))
    run(more.writeStream.foreachBatch(sink), tmp_path)
    assert target.values() == expected


def test_rows_that_have_joined_a_committed_micro_batch_are_not_lost(spark, target, tmp_path):
    """As after a checkpoint was restored that is older by one micro-batch."""
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    first = stream_of(spark, folder, ["a"], ["b"])
    run(first.writeStream.foreachBatch(target.sink(target.once)), tmp_path)
    forget_commit(checkpoint, 1)
    (folder / "001.txt").write_text("b\nc")
    again = stream_of(spark, folder)
    error, _ = fail(again, target.sink(target.once), tmp_path)
    assert "ReplayDiffers: micro-batch 1: its number of rows was 1 when it was committed" in error
    assert target.values() == ["a", "b"]
    own = target.once | {
        "transactional.id.prefix": f"{target.topic}-again",
        "exactly.once.first.batch": "1",
    }
    run(again.writeStream.foreachBatch(target.sink(own)), tmp_path)
    assert target.values() == ["a", "b", "b", "c"]


def test_rows_and_dead_letters_become_visible_together(spark, target, tmp_path):
    dead = target.topics.create()
    more = {"on.record.error": "dead-letter", "dead.letter.topic": dead}
    options = target.once | more | {"driver.max.rows": "5"}
    headers = "array(named_struct('key', if(value = 'bad', null, 'h'), 'value', X'01')) headers"
    words = stream_of(spark, tmp_path / "in", ["a", "bad"], ["b", "bad", "c", "d", "e", "f"])
    rows = words.coalesce(1).selectExpr("value", headers)
    error, _ = fail(rows, target.sink(options), tmp_path)
    assert "MicroBatchTooLarge" in error
    assert target.values() == ["a"]
    assert target.topics.read_committed(dead) == [b"bad"]
    del options["driver.max.rows"]
    run(rows.writeStream.foreachBatch(target.sink(options)), tmp_path)
    assert target.values() == ["a", "b", "c", "d", "e", "f"]
    assert target.topics.read_committed(dead) == [b"bad", b"bad"]


def test_a_query_moves_to_the_driver_and_back_between_micro_batches(spark, target, tmp_path):
    expected = []
    for number, sender in enumerate(["executors", "driver", "executors", "driver", "driver"]):
        words = [f"{number}-{letter}" for letter in "abc"]
        rows = stream_of(spark, tmp_path / "in", words)
        run(rows.writeStream.foreachBatch(target.sink(target.once, send_from=sender)), tmp_path)
        expected += words
        assert target.values() == expected
    # What was committed, but not recorded by Spark, is skipped.
    forget_commit(tmp_path / "checkpoint", 4)
    run(rows.writeStream.foreachBatch(target.sink(target.once)), tmp_path)
    assert target.values() == expected


@pytest.mark.parametrize(("before", "after"), [("executors", "driver"), ("driver", "executors")])
def test_a_micro_batch_that_is_committed_stays_where_it_was_sent(
    spark, target, tmp_path, before, after
):
    words = stream_of(spark, tmp_path / "in", ["a", "b"], ["c", "d", "e"])
    sink = target.sink(target.once, send_from=before)
    run(words.writeStream.foreachBatch(sink), tmp_path)
    forget_commit(tmp_path / "checkpoint", 1)
    error, _ = fail(words, target.sink(target.once, send_from=after), tmp_path)
    assert "PartitionsChanged: micro-batch 1" in error
    assert f"send.from={before}" in error
    stream_of(spark, tmp_path / "in", ["f"])
    run(words.writeStream.foreachBatch(sink), tmp_path)
    stream_of(spark, tmp_path / "in", ["g"])
    run(words.writeStream.foreachBatch(target.sink(target.once, send_from=after)), tmp_path)
    assert target.values() == list("abcdefg")


@pytest.mark.parametrize("functions", [1, 2])
def test_a_second_call_in_a_micro_batch_needs_a_prefix_of_its_own(
    spark, target, tmp_path, functions
):
    """Otherwise the ledger says that the micro-batch is written, and its rows would be lost."""
    sinks = [target.sink(target.once) for _ in range(functions)]

    def write(frame, batch_id):
        sinks[0](frame.where("value < 'b'"), batch_id)
        sinks[-1](frame.where("value > 'b'"), batch_id)

    words = stream_of(spark, tmp_path / "in", ["a", "c"], ["d"])
    for _ in range(2):  # also when the query runs again
        error, _ = fail(words, write, tmp_path)
        assert "spark_kafka_sink.errors.ReplayDiffers: micro-batch 0: " in error.partition("\n")[0]
        assert "a transactional.id.prefix of its own" in error
        assert target.values() == ["a"]
    second = target.once | {"transactional.id.prefix": f"{target.topic}-second"}
    sinks = [target.sink(target.once), target.sink(second)]
    run(words.writeStream.foreachBatch(write), tmp_path)
    assert target.values() == ["a", "c", "d"]


def test_a_new_checkpoint_does_not_skip_the_rows_of_its_micro_batches(spark, target, tmp_path):
    first = stream_of(spark, tmp_path / "in", ["a"])
    run(first.writeStream.foreachBatch(target.sink(target.once)), tmp_path)
    second = stream_of(spark, tmp_path / "other", ["b", "c"])
    error, _ = fail(second, target.sink(target.once), tmp_path / "new")
    assert "LedgerAhead: micro-batch 0: " in error
    assert "it is new (deleted or moved), or another query has used this prefix" in error
    assert target.values() == ["a"]


# --- batches --------------------------------------------------------------------------------------


def test_batches_with_growing_ids_are_written_exactly_once(spark, target, caplog):
    computed, count = counter(spark)

    def write(batch_id, *values):
        frame = spark.createDataFrame([(value,) for value in values], "value string")
        target.sink(target.once)(frame.select(count("value").alias("value")), batch_id)

    write(20260101, "a", "b")
    assert target.values() == ["a", "b"]
    write(20260101, "a", "b")
    assert (target.values(), computed.value) == (["a", "b"], 2)
    write(20260105, "c")
    write(20260106)
    write(20260106, "late")
    assert (target.values(), computed.value) == (["a", "b", "c"], 3)
    skipped = [text for text in caplog.messages if "was committed before" in text]
    assert [text.partition(" of ")[0] for text in skipped] == ["batch 20260101", "batch 20260106"]
    with pytest.raises(LedgerAhead, match=r"batch 20260105: .*pass ids that grow"):
        write(20260105, "d")
    write(20260107, "e")
    assert target.values() == ["a", "b", "c", "e"]


def test_a_batch_that_lacks_its_id_or_its_prefix_says_so(spark, target):
    frame = spark.sql("SELECT 'v' AS value")
    with pytest.raises(InvalidOption, match="needs an id of the batch: call foreach_batch"):
        target.sink(target.once)(frame, None)
    del target.once["transactional.id.prefix"]
    with pytest.raises(InvalidOption, match=r"needs transactional\.id\.prefix"):
        target.sink(target.once)(frame, 1)
    target.sink()(frame, None)
    target.sink()(frame, 7)
    assert target.values() == ["v", "v"]
    assert [(r.batch_id, r.tasks) for r in target.reports] == [(None, 1), (7, 1)]


# --- other ways -----------------------------------------------------------------------------------


def test_two_queries_send_at_the_same_time(spark, target, tmp_path):
    def write(name):
        rows = stream_of(spark, tmp_path / name, *([f"{name}{n}"] * 50 for n in range(5)))
        options = target.once | {"transactional.id.prefix": f"{target.topic}-{name}"}
        options = options if name in "ab" else target.options
        (tmp_path / f"q{name}").mkdir()
        return run(rows.writeStream.foreachBatch(target.sink(options)), tmp_path / f"q{name}")

    with ThreadPoolExecutor(4) as pool:
        queries = list(pool.map(write, "abcd"))
    assert [query.exception() for query in queries] == [None] * 4
    assert Counter(target.values()) == {f"{name}{n}": 50 for name in "abcd" for n in range(5)}


@pytest.mark.needs_format
def test_the_format_refuses_the_option(spark, target, tmp_path):
    refused = "InvalidOption: send.from=driver needs foreach_batch"
    frame = spark.sql("SELECT 'v' AS value")
    with pytest.raises(Exception, match=refused):
        write_by_format(frame, target.servers, topic=target.topic, **FROM_DRIVER)
    words = stream_of(spark, tmp_path / "in", ["a"])
    writer = words.writeStream.format("kafka-nb").options(**target.options)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    with pytest.raises(StreamingQueryException, match=refused):
        query.awaitTermination(120)


def test_patched_writers_send_from_the_driver_too(spark, target, tmp_path):
    reports = tmp_path / "reports"
    options = target.options | {"report.path": str(reports), "SEND.FROM": " driver "}
    del options["send.from"]
    patch_pyspark()
    try:
        spark.sql("SELECT 'batch' AS value").repartition(2).write.format("kafka").options(
            **options
        ).save()
        words = stream_of(spark, tmp_path / "in", ["a", "b"]).repartition(2)
        run(words.writeStream.format("kafka").options(**options), tmp_path)
    finally:
        unpatch_pyspark()
    assert target.values() == ["a", "b", "batch"]
    lines = [json.loads(t) for f in reports.rglob("*.json*") for t in f.read_text().splitlines()]
    assert [line["tasks"] for line in lines] == [1, 1]
