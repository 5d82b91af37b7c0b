"""send.from=driver with exactly-once, when the driver dies or sleeps at any step of a micro-batch,
on a real Kafka: readers see each row once, and each micro-batch whole.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from held_drivers import COMMITTED, SECONDS, STEPS, HeldDriver, options, words_of
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions
from streams import run, stream_of
from suspension import suspended
from topics import Topics
from waiting import wait_until

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.errors import sink_error

LOST_RESULTS = Path(__file__).parent.parent / "support" / "lost_results_app.py"
pytestmark = pytest.mark.timeout(600)
SLOW = pytest.mark.slow


@dataclass
class Held:
    """A query that another process has run up to a step, and its topic."""

    spark: object
    topics: Topics
    topic: str
    folder: object

    def add(self, batch):
        return stream_of(self.spark, self.folder / "words", words_of(batch))

    def run(self, sender="driver"):
        """Run what is left, in this process; returns the reports of its micro-batches."""
        reports = []
        sink_options = options(self.topics.bootstrap_servers, self.topic) | {"send.from": sender}
        rows = stream_of(self.spark, self.folder / "words")
        run(rows.writeStream.foreachBatch(foreach_batch(sink_options, reports.append)), self.folder)
        return reports

    def committed(self):
        """Once no transaction is open."""
        return sorted(value.decode() for value in self.topics.read_committed(self.topic))

    def visible(self):
        """What readers see now."""
        return sorted(value.decode() for value in self.topics.read_stable(self.topic))


def rows_of(batches):
    return [word for batch in range(batches) for word in words_of(batch)]


# --- killed ---------------------------------------------------------------------------------------

#: the step, the micro-batch, and which way the query goes on
KILLS = [(step, 1, "driver") for step in STEPS]
KILLS += [(step, 1, "executors") for step in STEPS[2:]]
KILLS += [(STEPS[2], 0, "driver"), (STEPS[4], 0, "driver"), (STEPS[3], 0, "executors")]


@pytest.fixture(scope="module")
def killed(kafka, tmp_path_factory):
    """The topics, and for each of the KILLS the name of one and a folder."""
    folder = tmp_path_factory.mktemp("killed")
    with closing(Topics(kafka.bootstrap_servers)) as topics:
        names = {kill: topics.create() for kill in KILLS}
        held = {name: kill[:2] for kill, name in names.items()}
        with HeldDriver(kafka.bootstrap_servers, folder, held) as driver:
            driver.kill()
        yield topics, {kill: (name, folder / name) for kill, name in names.items()}


@SLOW
@pytest.mark.parametrize(("step", "batch", "sender"), KILLS)
def test_a_killed_driver_leaves_each_micro_batch_whole_and_its_rows_once(
    spark, killed, step, batch, sender
):
    topics, queries = killed
    query = Held(spark, topics, *queries[step, batch, sender])
    # Brokers end a transaction that is committed after they have answered.
    complete = batch + 1 if step in COMMITTED else batch
    wait_until(lambda: query.visible() == rows_of(complete))
    if step in ("between two record batches", "before the commit"):
        assert topics.ends(query.topic)[0] != topics.ends(query.topic)[1]
    query.add(batch + 1)
    if sender == "executors" and step in COMMITTED:
        with pytest.raises(StreamingQueryException) as raised:
            query.run(sender)
        error = sink_error(str(raised.value))
        assert error.startswith(f"PartitionsChanged: micro-batch {batch}, partition ")
        assert "committed by the driver" in error
        assert "Start the query as it was then, with send.from=driver" in error
        assert query.committed() == rows_of(batch + 1)
        query.run("driver")
        query.add(batch + 2)
        query.run(sender)
        assert query.committed() == rows_of(batch + 3)
    else:
        again, following = query.run(sender)
        assert again.total_sent == (0 if step in COMMITTED else 5)
        assert following.total_sent == 5
        assert query.committed() == rows_of(batch + 2)


# --- asleep ---------------------------------------------------------------------------------------

_SPARKS = "CONCURRENT_STREAM_LOG_UPDATE"
#: the step, whether other micro-batches follow, and the error of the driver that wakes up
SLEEPERS = {
    ("before the ledger is read", True): "LedgerAhead",
    ("before the ledger is read", False): _SPARKS,
    ("before the first row", True): "TransactionFenced",
    ("between two record batches", True): "TransactionFenced",
    ("between two record batches", False): "TransactionFenced",
    ("before the commit", True): "TransactionFenced",
    ("before the commit", False): "TransactionFenced",
    ("before the marker", True): "LedgerAhead",
    ("before the marker", False): _SPARKS,
    ("before Spark's commit file", True): _SPARKS,
}


@SLOW
def test_a_driver_that_another_one_has_replaced_while_it_slept_ends_with_an_error(
    spark, kafka, own_topics, tmp_path
):
    names = {sleeper: own_topics.create() for sleeper in SLEEPERS}
    held = {name: (step, 1) for (step, _), name in names.items()}
    with HeldDriver(kafka.bootstrap_servers, tmp_path, held) as driver:
        with suspended(driver.pid), suspended(driver.java_pid):
            for (_, is_followed), name in names.items():
                query = Held(spark, own_topics, name, tmp_path / name)
                if is_followed:
                    query.add(2)
                query.run()
                assert query.committed() == rows_of(3 if is_followed else 2)
        errors = driver.go_on()
    for sleeper, name in names.items():
        query = Held(spark, own_topics, name, tmp_path / name)
        assert SLEEPERS[sleeper] in errors[name], sleeper
        query.add(3)
        query.run()
        expected = rows_of(3 if sleeper[1] else 2) + words_of(3)
        assert query.committed() == expected


# --- begun by executors ---------------------------------------------------------------------------

#: by which Spark chooses the partition of a row: the query's own repartition, or foreach_batch's
HASHES = {"with exactly.once.partitions": "hash(key)", "without": "hash(key, 'kafka-nb')"}


@pytest.fixture(params=HASHES.values(), ids=HASHES)
def begun(request, spark, own_topics, tmp_path):
    return BegunByExecutors(spark, own_topics, own_topics.create(), tmp_path, request.param)


@dataclass
class BegunByExecutors:
    """A query with two Spark partitions, whose second micro-batch fails at bad rows."""

    spark: object
    topics: Topics
    topic: str
    folder: object
    hashed: str

    def __post_init__(self):
        keys = self.spark.range(12).selectExpr("concat('1-', id) AS key")
        rows = keys.selectExpr("key", f"pmod({self.hashed}, 2) AS p").collect()
        #: the rows of the second micro-batch
        self.partitions = [sorted(row.key for row in rows if row.p == p) for p in range(2)]
        self.add(words_of(0))
        self.run("executors")

    def add(self, words):
        return stream_of(self.spark, self.folder / "words", words)

    def run(self, sender, bad=()):
        words = stream_of(self.spark, self.folder / "words")
        partition = functions.when(words.value.isin(*bad), -1).alias("partition")
        rows = words.select(words.value.alias("key"), "value", partition)
        sink_options = options(self.topics.bootstrap_servers, self.topic) | {"send.from": sender}
        if self.hashed == "hash(key)":
            rows = rows.repartition(2, "key")
            if sender == "executors":
                sink_options["exactly.once.partitions"] = "2"
        run(rows.writeStream.foreachBatch(foreach_batch(sink_options)), self.folder)

    def fail(self, sender, bad=()):
        with pytest.raises(StreamingQueryException) as raised:
            self.run(sender, bad)
        return sink_error(str(raised.value))

    def begin(self, bad_partitions):
        """Run the second micro-batch until a task fails at its first row."""
        self.add(self.partitions[0] + self.partitions[1])
        error = self.fail("executors", [self.partitions[number][0] for number in bad_partitions])
        assert error.startswith("InvalidRecord: "), error

    def committed(self):
        return sorted(value.decode() for value in self.topics.read_committed(self.topic))


@contextmanager
def one_task_at_a_time(spark, folder):
    """One of the session's two cores is busy."""
    end = str(folder / "end")

    def wait(batches):
        while not os.path.exists(end):  # noqa: PTH110 - the worker has no Path
            time.sleep(0.05)
        return batches

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(spark.range(1).coalesce(1).mapInArrow(wait, "id long").collect)
        try:
            wait_until(spark.sparkContext.statusTracker().getActiveStageIds)
            yield
        finally:
            Path(end).touch()
            waiting.result()


def test_a_micro_batch_that_some_tasks_have_committed_is_completed_by_tasks(begun):
    with one_task_at_a_time(begun.spark, begun.folder):  # the first one commits
        begun.begin([1])
    visible = sorted(words_of(0) + begun.partitions[0])
    assert begun.committed() == visible
    error = begun.fail("driver")
    assert error.startswith("PartitionsChanged: micro-batch 1: ")
    assert "a part of this micro-batch was committed with 2 partitions" in error
    assert "Start the query as it was then, with send.from=executors, its former " in error
    assert "exactly.once.partitions=2, if it had them" in error
    assert begun.committed() == visible
    begun.run("executors")
    rows = words_of(0) + begun.partitions[0] + begun.partitions[1]
    assert begun.committed() == sorted(rows)
    begun.add(words_of(2))
    begun.run("driver")
    assert begun.committed() == sorted(rows + words_of(2))


def test_a_micro_batch_of_which_no_task_has_committed_is_sent_by_the_driver(begun):
    begun.begin([0, 1])  # Spark starts the second task before it knows that the first has failed
    assert begun.committed() == words_of(0)
    begun.run("driver")
    assert begun.committed() == sorted(words_of(0) + begun.partitions[0] + begun.partitions[1])


# --- without memory -------------------------------------------------------------------------------


@SLOW
def test_a_query_whose_results_the_driver_has_no_memory_for_ends_with_an_error(
    kafka, own_topics, tmp_path
):
    topic = own_topics.create()
    ended = subprocess.run(
        [sys.executable, LOST_RESULTS, kafka.bootstrap_servers, topic, tmp_path],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    assert re.search("task-result-getter.*OutOfMemoryError", ended.stderr), ended.stderr
    error = sink_error(json.loads(ended.stdout))
    assert error.startswith("MicroBatchTooLarge: the micro-batch has lost results of tasks"), error
    # Those of the second run, whose rows are small.
    assert own_topics.read_committed(topic) == [b"a"] * 180
