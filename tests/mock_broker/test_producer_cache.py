"""The cache lends, keeps, evicts and closes producers."""

from __future__ import annotations

import time
from threading import current_thread

import pytest
from another_python import run_python
from black_hole import black_hole
from waiting import wait_until

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.producer.cache import ProducerCache
from spark_kafka_sink.producer.producer import NonBlockingProducer


@pytest.fixture
def cache(clock):
    cache = ProducerCache(clock)
    yield cache
    cache.close(5)


def producer_of(cache, options):
    with cache.borrow(options) as borrowed:
        return borrowed.producer


def test_an_idle_producer_is_evicted_after_its_timeout(cache, clock, options):
    made = options(producer_cache_timeout="10m")
    first = producer_of(cache, made)
    clock.now += 599
    assert producer_of(cache, made) is first
    clock.now += 600
    assert producer_of(cache, made) is not first
    assert not first.is_idle


def test_a_renewed_certificate_is_read_by_the_next_task(cache, options, tmp_path, records):
    path = tmp_path / "client.pem"
    path.write_text("first")
    made = options(kafka_https_ca_location=str(path))
    with cache.borrow(made) as borrowed:
        borrowed.send(records(["v"]))
        borrowed.close(10)
        first = borrowed.producer
    assert producer_of(cache, made) is first
    path.write_text("renewed")
    second = producer_of(cache, made)
    assert second is not first
    assert not first.is_idle
    assert "t" in second.live_topics()
    assert producer_of(cache, made) is second


def test_an_idle_producer_is_closed_after_its_timeout_without_a_task(cache, clock, options):
    producer = producer_of(cache, options(producer_cache_timeout="10m"))
    clock.now += 600
    wait_until(lambda: not producer.is_idle)


@pytest.mark.parametrize("is_borrowed", [True, False])
def test_events_are_read_although_no_task_calls_the_producer(cache, options, is_borrowed):
    """librdkafka keeps them without any bound."""
    with cache.borrow(options()) as borrowed:
        borrowed.prefetch(["t"])
        topics = borrowed.producer._engine.topics
        if is_borrowed:
            wait_until(lambda: topics.sendable("t"))
    wait_until(lambda: topics.sendable("t"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_poller_that_has_failed_is_replaced(cache, clock, options, monkeypatch):
    made, failed = options(producer_cache_timeout="10m"), []

    def fail(_):
        failed.append(current_thread())
        raise KeyError

    with monkeypatch.context() as patch:
        patch.setattr(NonBlockingProducer, "read_events", fail)
        producer = producer_of(cache, made)
        wait_until(lambda: failed)
        failed[0].join(10)
    assert producer_of(cache, made) is producer
    clock.now += 600
    wait_until(lambda: not producer.is_idle)


def test_few_producers_are_kept_and_the_longest_idle_is_evicted_first(cache, options):
    made = [options(kafka_client_id=f"client-{number}") for number in range(7)]
    producers = [producer_of(cache, options_made) for options_made in made]
    with cache.borrow(options(kafka_client_id="one-more")):
        assert [producer.is_idle for producer in producers] == [False] * 3 + [True] * 4


def test_a_producer_with_records_left_is_not_kept(cache, options, records):
    made = options(kafka_bootstrap_servers="127.0.0.1:1")
    with cache.borrow(made) as borrowed:
        borrowed.producer.send(records(["never flushed"]))
    assert not borrowed.producer.is_idle
    assert producer_of(cache, made) is not borrowed.producer


def test_a_task_that_fails_for_another_reason_drops_its_records(cache, options, records):
    made = options(kafka_bootstrap_servers="127.0.0.1:1")
    sends = []

    def task():
        with cache.borrow(made) as borrowed:
            sends.append(borrowed.producer.send(records(["v"] * 10)))
            raise KeyError

    with pytest.raises(KeyError):
        task()
    assert sends[0].send.total_failed == 10


def test_what_is_kept_for_failed_configurations_is_bounded(cache, options):
    def fail(number):
        with cache.borrow(options(kafka_client_id=f"client-{number}")):
            raise KeyError

    for number in range(10):
        with pytest.raises(KeyError):
            fail(number)
    assert len(cache._live_topics) <= 4


EXITING = """
import sys
import time
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.producer.cache import process_cache

for number in range(4):
    options = parse({"kafka.bootstrap.servers": sys.argv[1], "kafka.client.id": str(number)})
    with process_cache().borrow(options):
        pass
print(time.time(), flush=True)
"""


def test_process_exit_is_delayed_by_a_second_at_most():
    with black_hole() as address:
        answer = run_python("-c", EXITING, address)
        assert time.time() - float(answer.stdout) < 1 + 0.5


WITHOUT_NEW_THREADS = """
import atexit
import threading

def start(thread):
    raise RuntimeError("can't create new thread at interpreter shutdown")

atexit.register(setattr, threading.Thread, "start", start)  # runs before the cache's own
"""


def test_a_process_ends_in_silence_where_python_starts_no_thread_any_more():
    """As Python 3.12.0 and 3.12.1 do at exit."""
    with black_hole() as address:
        assert run_python("-c", EXITING + WITHOUT_NEW_THREADS, address).stderr == ""


def test_a_producer_of_mostly_evicted_topics_is_replaced(cache, options, records, asked_topics):
    made = options(kafka_metadata_evict_ms="1000")
    with cache.borrow(made) as borrowed:
        for number in range(101):
            borrowed.send(records(["v"], topic=f"old-{number}"))
        borrowed.close(20)
    first, deadline = borrowed.producer, Deadline(20)
    while first.is_idle:  # one task after another, none for the old topics
        assert not deadline.expired
        with cache.borrow(made) as borrowed:
            borrowed.send(records(["w"], topic="lately"))
            borrowed.close(20)
    asked_topics.clear()
    assert producer_of(cache, made) is not first
    assert asked_topics == [["lately"]]
