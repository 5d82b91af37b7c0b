"""A task's commit is bounded: brokers that stop, queries that are stopped, records dropped."""

from __future__ import annotations

import re
import time
from contextlib import ExitStack

import pytest
from streams import direct, write_by_format
from suspension import suspended
from waiting import wait_until

SPARK_SECONDS = 20.0  # for what Spark does around a task and its failure, on a very busy machine


def rows(spark, count, text="x"):
    return spark.range(0, count, numPartitions=1).selectExpr(f"concat('{text}', id) as value")


def test_a_stopped_broker_fails_the_task_in_time_and_nothing_is_sent_late(spark, kafka, own_topics):
    topic = own_topics.create()
    options = {"preflight": "false"}
    short = options | {"close.timeout.ms": "2000"}
    write_by_format(rows(spark, 1, "before-"), kafka.bootstrap_servers, topic=topic, **options)
    with suspended(kafka.pids[0]):
        started = time.monotonic()
        with pytest.raises(Exception, match="DeadlineExceeded") as raised:
            write_by_format(rows(spark, 100_000), kafka.bootstrap_servers, topic=topic, **short)
        assert time.monotonic() - started < 2 + SPARK_SECONDS
    counts = re.search(
        r"Of 100000 records, (\d+) were delivered, 0 failed, (\d+) were not sent, "
        r"(\d+) were in flight and may have arrived",
        str(raised.value),
    )
    delivered, unsent, possibly_persisted = map(int, counts.groups())
    assert delivered + unsent + possibly_persisted == 100_000
    assert unsent > 0
    write_by_format(rows(spark, 1, "after-"), kafka.bootstrap_servers, topic=topic, **options)
    values = [r.value for r in own_topics.read(topic)]
    assert (values[0], values[-1]) == (b"before-0", b"after-0")
    zombies = len(values) - 2 - delivered
    assert 0 <= zombies <= possibly_persisted


@pytest.fixture
def start_waiting(spark, kafka, own_topics, tmp_path):
    """Start a query by that way, whose micro-batch waits for a broker until the test ends."""
    with ExitStack() as stack:

        def start(way):
            options = {
                "kafka.bootstrap.servers": kafka.bootstrap_servers,
                "topic": own_topics.create(),
                "close.timeout.ms": "120000",
            }
            stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1000).load()
            writer = direct(stream.selectExpr("string(value) as value").writeStream, way, options)
            query = writer.option("checkpointLocation", str(tmp_path)).start()
            stack.callback(query.stop)
            wait_until(lambda: len(query.recentProgress) > 0, 60)
            stack.enter_context(suspended(kafka.pids[0]))
            active_jobs = spark.sparkContext.statusTracker().getActiveJobsIds

            def is_waiting():
                """The same job a while later: it waits for the broker."""
                active = active_jobs()
                time.sleep(1.5)
                return active and active_jobs() == active

            wait_until(is_waiting, 30)
            return query

        yield start


@pytest.mark.parametrize("way", ["format", "foreach_batch"])
def test_a_query_that_waits_for_brokers_stops_in_four_seconds(spark, start_waiting, way, uncaught):
    query = start_waiting(way)
    started = time.monotonic()
    query.stop()
    wait_until(lambda: not spark.sparkContext.statusTracker().getActiveJobsIds(), 10)
    assert time.monotonic() - started < 4
    assert query.exception() is None
    assert uncaught == []


def test_jobs_that_end_before_their_querys_thread_end_it_without_an_error_too(spark, start_waiting):
    """query.stop() cancels them and interrupts the thread, in either order."""
    query = start_waiting("foreach_batch")
    spark.sparkContext.cancelJobGroup(str(query.runId))
    with pytest.raises(Exception, match=r"InterruptedException: .*cancelled") as raised:
        query.awaitTermination(30)
    assert len(str(raised.value)) < 3000
    error = query._jsq.exception().get().cause()
    streaming = spark._jvm.org.apache.spark.sql.execution.streaming.runtime
    is_interruption = streaming.StreamExecution.isInterruptionException
    assert is_interruption(error, spark._jsc.sc())


def test_a_missing_topic_fails_on_the_driver_where_brokers_create_none(spark, kafka):
    # The driver does not wait for the answer of busy brokers, and asks once for equal options.
    for number in range(5):
        options = {"kafka.client.id": f"driver-{number}", "kafka.max.block.ms": "3000"}
        with pytest.raises(Exception, match="topic nowhere: ") as raised:
            write_by_format(rows(spark, 1), kafka.bootstrap_servers, topic="nowhere", **options)
        if "Failed to initialize Python data source writer" in str(raised.value):
            break
    assert "Failed to initialize Python data source writer" in str(raised.value)
    assert re.search("topic nowhere: .*brokers do not create topics", str(raised.value))


def test_a_missing_topic_fails_the_task_at_its_budget_under_its_own_name(spark, kafka):
    options = {"preflight": "false", "kafka.max.block.ms": "3000"}
    started = time.monotonic()
    with pytest.raises(Exception, match=r"TopicUnavailable: topic nowhere: .*after 3 s"):
        write_by_format(rows(spark, 1), kafka.bootstrap_servers, topic="nowhere", **options)
    assert 3 <= time.monotonic() - started < 3 + SPARK_SECONDS


def test_a_missing_topic_is_created_where_brokers_do_so(spark, bootstrap_servers, topics):
    topic = topics.new_name()
    write_by_format(rows(spark, 3), bootstrap_servers, topic=topic)
    assert [r.value for r in topics.read(topic)] == [b"x0", b"x1", b"x2"]
