"""What foreach_batch's function knows of the micro-batches before, and of the session."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from py4j.clientserver import ClientServer
from py4j.java_gateway import JavaGateway
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.config.producer_options import ExactlyOnceOptions
from spark_kafka_sink.errors import InvalidOption, LedgerLost, ReplayDiffers
from spark_kafka_sink.spark import foreach_batch, micro_batch
from spark_kafka_sink.spark.foreach_batch import MicroBatches, _check_tasks, _is_batch
from spark_kafka_sink.spark.foreach_batch import _only_call as only_call


def called(*batch_ids: int, failed: tuple[int, ...] = (), first_batch: int = 0, run: str = "a"):
    """The sequence after calls; errors of ``failed`` were caught."""
    sequence = MicroBatches(ExactlyOnceOptions(2, "p", "t", first_batch, 60_000))
    for batch_id in batch_ids:
        sequence.begin(run, batch_id)
        if batch_id not in failed:
            sequence.complete(run, batch_id)
    return sequence


@pytest.mark.parametrize(
    ("batch_ids", "failed"),
    [((0, 1, 2, 3), (2,)), ((0, 1, 3), ()), ((7, 9), ()), ((0, 2), ()), ((0, 1), (0,))],
    ids=["error caught", "guard", "guard after a restart", "choice by id", "first error caught"],
)
def test_the_first_micro_batch_behind_a_gap_names_the_function_and_the_gap(batch_ids, failed):
    *before, last = batch_ids
    sequence = called(*before, failed=failed)
    gap = failed[0] if failed else last - 1
    with pytest.raises(LedgerLost) as raised:
        sequence.begin("a", last)
    assert f"not called for micro-batch {gap}, or its error was caught" in str(raised.value)
    assert f"exactly.once.first.batch={last}" in str(raised.value)


@pytest.mark.parametrize("batch_ids", [(0, 1, 2), (5, 6), (3, 3, 4), (3, 2)])
def test_all_in_a_row_or_again_is_no_gap(batch_ids):
    assert called(*batch_ids).latest == {"a": batch_ids[-1]}


def test_a_gap_at_the_first_micro_batch_of_the_ledger_is_wanted():
    assert called(0, 5, first_batch=5).latest == {"a": 5}


def test_another_run_of_the_query_may_begin_anywhere():
    sequence = called(0, 1)
    sequence.begin("b", 7)
    sequence.complete("b", 7)
    with pytest.raises(LedgerLost, match="micro-batch 8"):
        sequence.begin("b", 9)


def test_two_queries_may_share_the_function():
    sequence = called(5)
    sequence.begin("a", 6)
    sequence.begin("b", 100)
    sequence.complete("b", 100)
    sequence.complete("a", 6)
    sequence.begin("b", 101)
    sequence.begin("a", 7)


MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("result_bytes", "is_too_large"),
    [(256 * MIB, False), (256 * MIB + 1, True), (1024 * MIB, True), (1, False), (0, True)],
)
def test_spark_may_pass_the_driver_a_quarter_of_its_heap(monkeypatch, result_bytes, is_too_large):
    monkeypatch.setattr(micro_batch, "heap_bytes", lambda _: 1024 * MIB)
    monkeypatch.setattr(micro_batch, "max_result_bytes", lambda _: result_bytes)
    monkeypatch.setattr(micro_batch, "pins_threads", lambda _: True)
    options = parse({"kafka.bootstrap.servers": "host:9092", "send.from": "driver"})
    problems = micro_batch.session_problems(None, options)
    assert bool(problems) is is_too_large
    if problems:
        remedy = "Set spark.driver.maxResultSize=256m, or raise spark.driver.memory"
        assert problems[0][1] == remedy


# --- PYSPARK_PIN_THREAD=false, where no thread in Java knows the query ----------------------------


@pytest.fixture(params=[True, False], ids=["pinned", "unpinned"])
def session(request, monkeypatch):
    """A classic session, with py4j's gateway of that kind."""
    gateway = object.__new__(ClientServer if request.param else JavaGateway)
    spark = SimpleNamespace(_jsparkSession=1, sparkContext=SimpleNamespace(_gateway=gateway))
    monkeypatch.setattr(micro_batch, "heap_bytes", lambda _: None)
    return spark, request.param


def test_without_pinned_threads_a_stop_waits_for_the_micro_batch(session):
    spark, is_pinned = session
    options = parse({"kafka.bootstrap.servers": "host:9092", "send.from": "driver"})
    problems = micro_batch.session_problems(spark, options)
    assert bool(problems) is not is_pinned
    assert all("query.stop() waits" in problem for problem, _ in problems)


def test_without_pinned_threads_the_driver_sends_nothing_exactly_once(session):
    spark, is_pinned = session
    frame = SimpleNamespace(
        sparkSession=spark, schema=StructType([StructField("value", StringType())])
    )
    once = {"delivery.guarantee": "exactly-once", "topic": "t"}
    options = parse({"kafka.bootstrap.servers": "host:9092", "send.from": "driver"} | once)
    rejected = pytest.raises(InvalidOption, match="PYSPARK_PIN_THREAD=false")
    with nullcontext() if is_pinned else rejected:
        _check_tasks(frame, options)


def test_outside_of_a_stream_only_the_driver_writes_exactly_once():
    once = {
        "kafka.bootstrap.servers": "host:9092",
        "delivery.guarantee": "exactly-once",
        "topic": "t",
    }
    from_tasks, from_driver = parse(once), parse(once | {"send.from": "driver"})
    assert not _is_batch(from_tasks, "a-query")
    assert not _is_batch(from_driver, "a-query")
    assert _is_batch(from_driver, None)
    with pytest.raises(InvalidOption, match=r"outside of a stream needs send\.from=driver"):
        _is_batch(from_tasks, None)
    with ThreadPoolExecutor() as pool:  # perhaps of a function for foreachBatch
        assert not pool.submit(_is_batch, from_tasks, None).result()


# --- several calls in one micro-batch -------------------------------------------------------------


def options_of_ledger(servers="a:1,b:1", prefix="p"):
    options = {
        "kafka.bootstrap.servers": servers,
        "topic": "t",
        "delivery.guarantee": "exactly-once",
        "send.from": "driver",
        "transactional.id.prefix": prefix,
    }
    return parse(options)


@pytest.fixture(autouse=True)
def no_calls(monkeypatch):
    monkeypatch.setattr(foreach_batch, "_calls", {})


def test_a_call_beside_another_one_or_after_it_is_rejected():
    """Also in another thread, and whatever the order of the servers."""

    def call():
        with only_call(options_of_ledger("b:1,a:1"), "a run", 7):
            pass

    said = r"micro-batch 7: another call .*prefix=p"
    with only_call(options_of_ledger(), "a run", 7), pytest.raises(ReplayDiffers, match=said):
        call()
    with pytest.raises(ReplayDiffers, match=said):
        call()


def test_calls_of_other_ledgers_runs_and_micro_batches_are_accepted():
    with (
        only_call(options_of_ledger(), "a run", 7),
        only_call(options_of_ledger(prefix="q"), "a run", 7),
    ):
        pass
    for run, batch_id in (("a run", 8), ("another run", 8), ("a run", 9)):
        with only_call(options_of_ledger(), run, batch_id):
            pass


def test_a_call_that_failed_may_be_repeated_whatever_another_query_does_meanwhile():
    def fail():
        with only_call(options_of_ledger(), "a run", 7):
            with only_call(options_of_ledger(), "another run", 7):
                pass
            raise ValueError("once")

    with pytest.raises(ValueError, match="once"):
        fail()
    with pytest.raises(ReplayDiffers), only_call(options_of_ledger(), "another run", 7):
        pass
    with only_call(options_of_ledger(), "a run", 7):
        pass
