"""What the driver sends, with rows that a stand-in for Spark passes, and a mock broker."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest
from mock_cluster import INIT_PRODUCER_ID, OFFSET_FETCH
from mock_reader import read
from waiting import wait_until

from spark_kafka_sink.config.option_table import BATCH_ID
from spark_kafka_sink.errors import InvalidRecord, KafkaSinkError, MicroBatchTooLarge
from spark_kafka_sink.records.rejection import UNKNOWN_ORIGIN
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.spark import from_driver, private_api, task
from spark_kafka_sink.spark.from_driver import DriverSend

MIB = 1024 * 1024
ONCE = {
    "send_from": "driver",
    "delivery_guarantee": "exactly-once",
    "transactional_id_prefix": "p",
    "kafka_enable_idempotence": "true",
}


def of_batch(options):
    """Options of a batch, which may have been committed."""
    once = options(**ONCE)
    return replace(once, exactly_once=replace(once.exactly_once, is_batch=True))


class Frame:
    """What DriverSend asks of a frame, and of its session."""

    def __init__(self):
        self.sparkSession = self

    def where(self, _):
        return self


class Rows:
    """``private_api.FrameRows`` of a script: batches, errors to raise, and None for a wait."""

    def __init__(self, *script):
        self._script = script
        self._is_stopped = threading.Event()
        self.passed = 0

    def __call__(self, _):
        return self

    def __iter__(self):
        for entry in self._script:
            if isinstance(entry, Exception):
                raise entry
            if entry is None:
                assert self._is_stopped.wait(30)
                raise OSError("the socket is closed")
            self.passed += 1
            yield entry

    def stop(self):
        self._is_stopped.set()

    def check_end(self):
        pass


class Spark:
    """What the driver asks Spark: ``is_interrupted``, ``heap`` bytes and ``has_lost_results``."""

    def __init__(self, monkeypatch):
        self.is_interrupted, self.heap, self.has_lost_results = False, 1024 * MIB, False
        answers = {
            "is_interrupted": lambda _: self.is_interrupted,
            "heap_bytes": lambda _: self.heap,
            "interruption": lambda *_: None,
        }
        for name, answer in answers.items():
            monkeypatch.setattr(private_api, name, answer)
        self._monkeypatch = monkeypatch

    def send(self, options, *script, query_id="a-query"):
        """The outcome of a micro-batch: its report and its error, and the rows that were passed."""
        rows = Rows(*script)
        rows.awaits_lost_results = lambda: self.has_lost_results
        self._monkeypatch.setattr(private_api, "FrameRows", rows)
        sending, error = (
            DriverSend(Frame(), options.replace_value(BATCH_ID, 7), None, query_id),
            None,
        )
        try:
            sending.run()
        except Exception as raised:  # noqa: BLE001 - the test looks at it
            error = raised
        return sending.report, error, rows


@pytest.fixture
def spark(monkeypatch):
    return Spark(monkeypatch)


def batch(count, size=1):
    return pa.record_batch({"value": pa.array(["v" * size] * count, pa.string())})


def test_all_rows_arrive_in_one_report_of_one_task(spark, options, cluster):
    report, error, _ = spark.send(options(), batch(2), batch(0), batch(3))
    assert error is None
    assert (report.tasks, report.failed_tasks, report.query_id) == (1, 0, "a-query")
    assert report.sent_records == {"t": 5}
    assert len(read(cluster.bootstrap_servers, "t", 5)) == 5


def test_spark_is_not_held_up_by_brokers(spark, options, cluster):
    """All rows are read, and Spark's job ends, while the first ones wait for a full buffer."""
    small = options(
        kafka_buffer_memory=str(MIB),
        kafka_max_block_ms="1500",
        kafka_linger_ms="0",
    )
    cluster.set_round_trip(1, 4000)
    _, error, rows = spark.send(small, *[batch(1, 900_000)] * 8)
    assert isinstance(error, KafkaSinkError), error
    assert rows.passed == 8


def test_an_error_of_the_sender_ends_sparks_rows(spark, options):
    started = time.monotonic()
    wrong = pa.record_batch({"value": ["v"], "partition": pa.array([-1], pa.int32())})
    report, error, _ = spark.send(options(), wrong, None)
    assert isinstance(error, InvalidRecord)
    assert "micro-batch 7, row 0" in str(error)
    assert time.monotonic() - started < 20
    assert report.failed_tasks == 1


def test_an_error_of_spark_is_raised_and_the_next_micro_batch_is_sent(spark, options, cluster):
    report, error, _ = spark.send(options(), batch(1), ValueError("a row cannot be computed"))
    assert str(error) == "a row cannot be computed"
    assert report.failed_tasks == 1
    report, error, _ = spark.send(options(), batch(2))
    assert (error, report.sent_records) == (None, {"t": 2})


def test_a_query_that_is_stopped_wakes_the_sender_up(spark, options, cluster):
    cluster.set_round_trip(1, 20_000)
    threading.Timer(1, lambda: setattr(spark, "is_interrupted", True)).start()
    started = time.monotonic()
    _, error, _ = spark.send(options(), batch(1))
    assert isinstance(error, InterruptedError)
    assert "java.lang.InterruptedException" in str(error)
    assert time.monotonic() - started < 15
    spark.is_interrupted = False
    cluster.set_round_trip(1, 0)
    assert spark.send(options(), batch(2))[1] is None


@pytest.mark.parametrize("request_kind", [INIT_PRODUCER_ID, OFFSET_FETCH])
def test_a_query_that_is_stopped_ends_the_sender_that_cannot_begin(
    spark, options, cluster, request_kind
):
    """It would fence the next run of the query, if the brokers answered it late."""
    cluster.delay_answers(1, request_kind, 20, 30_000)
    threading.Timer(3, lambda: setattr(spark, "is_interrupted", True)).start()
    started = time.monotonic()
    _, error, _ = spark.send(options(**ONCE), batch(1))
    assert isinstance(error, InterruptedError)
    wait_until(lambda: "sender" not in {thread.name for thread in threading.enumerate()}, 10)
    assert time.monotonic() - started < 20


def test_a_wakeup_that_comes_late_does_not_concern_the_next_task(producer):
    made = producer()
    made.wakeup()
    made.begin_task(UNKNOWN_ORIGIN)
    made.poll()
    made.wakeup()
    with pytest.raises(InterruptedError):
        made.poll()
    made.poll()


@pytest.fixture
def hanging_sender(monkeypatch):
    may_begin = threading.Event()

    @contextmanager
    def hanging(*_):
        may_begin.wait(30)
        raise InterruptedError
        yield

    monkeypatch.setattr(task, "_sender", hanging)
    monkeypatch.setattr(from_driver, "_ABORT_SECONDS", 0.1)
    yield
    may_begin.set()


AGAIN = "It runs again with the same rows: set send.from=executors, or "
LATER = "; for later ones, limit the source (maxOffsetsPerTrigger, maxFilesPerTrigger"


@pytest.mark.parametrize(
    ("more", "heap_mib", "query_id", "expected"),
    [
        ({}, 1024, "a-query", f"{AGAIN}raise that option if the driver has the memory{LATER}"),
        ({}, 64, "a-query", f"{AGAIN}raise spark.driver.memory{LATER}"),
        ({}, 1024, None, "driver.max.rows=3 rows. Set send.from=executors, or raise that option"),
        (ONCE, 64, None, "Split it into batches with ids of their own, or raise spark.driver.mem"),
    ],
)
def test_a_batch_that_is_too_large_is_refused(
    spark, options, hanging_sender, more, heap_mib, query_id, expected
):
    spark.heap = heap_mib * MIB
    large = batch(2, 18 * MIB)
    made = options(driver_max_rows="3", **more)
    report, error, _ = spark.send(made, large, large, large, query_id=query_id)
    assert isinstance(error, MicroBatchTooLarge)
    assert expected in str(error)
    assert report.failed_tasks == 1


def test_rows_that_spark_has_lost_end_the_micro_batch(spark, options, monkeypatch):
    monkeypatch.setattr(from_driver, "_LOST_RESULTS_SECONDS", 0.2)
    spark.has_lost_results = True
    _, error, _ = spark.send(options(), batch(1), None)
    assert isinstance(error, MicroBatchTooLarge)
    assert "see its log for OutOfMemoryError" in str(error)


def test_rows_that_are_only_slow_are_waited_for(spark, options, monkeypatch):
    monkeypatch.setattr(from_driver, "_LOST_RESULTS_SECONDS", 0.1)
    slow = (time.sleep(0.5) or batch(1) for _ in range(2))
    assert spark.send(options(), *slow)[1] is None


def test_without_a_need_for_rows_spark_computes_none(spark, options, monkeypatch):
    @contextmanager
    def committed(*_):
        yield SimpleNamespace(needs_rows=False, report=DeliveryReport(), wakeup=None)

    monkeypatch.setattr(task, "_sender", committed)
    report, error, rows = spark.send(of_batch(options), batch(1))
    assert (error, rows.passed, report.total_sent, report.failed_tasks) == (None, 0, 0, 0)


def test_a_sender_that_begins_slowly_can_be_stopped(spark, options, hanging_sender):
    spark.is_interrupted = True
    _, error, rows = spark.send(of_batch(options), batch(1))
    assert isinstance(error, InterruptedError)
    assert rows.passed == 0
