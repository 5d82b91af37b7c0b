"""Exclusive access: in order while the producer is open, only for closing threads afterwards."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.producer.lifecycle import Lifecycle, ProducerState

SOON = 10.0  # seconds: for what happens at once unless something is broken


@pytest.fixture
def lifecycle():
    return Lifecycle()


@pytest.fixture
def other_thread():
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit


def take(lifecycle, seconds=SOON):
    deadline = Deadline(seconds)
    while not deadline.expired:
        if lifecycle.acquire(deadline):
            return True
    return False


def test_one_thread_at_a_time_has_access(lifecycle, other_thread):
    assert take(lifecycle)
    assert lifecycle.is_held_by_this_thread
    assert not other_thread(take, lifecycle, 0.1).result(SOON)
    lifecycle.release()
    assert not lifecycle.is_held_by_this_thread
    assert other_thread(take, lifecycle).result(SOON)


def test_a_thread_that_acquires_again_and_again_does_not_starve_others(lifecycle, other_thread):
    is_over = threading.Event()

    def acquire_again_and_again():
        while not is_over.is_set():
            take(lifecycle)
            lifecycle.release()

    greedy = other_thread(acquire_again_and_again)
    for _ in range(100):
        assert take(lifecycle)
        lifecycle.release()
    is_over.set()
    greedy.result(SOON)


def test_a_thread_that_has_access_cannot_acquire_it_again(lifecycle):
    assert take(lifecycle)
    with pytest.raises(RuntimeError, match="from a handler of its own events"):
        lifecycle.acquire(Deadline(1))


def test_from_draining_on_only_a_closing_thread_gets_access(lifecycle, other_thread):
    lifecycle.advance(ProducerState.DRAINING)
    assert not take(lifecycle, 0.1)
    assert lifecycle.acquire_to_close(ProducerState.DRAINING, Deadline(SOON))
    assert not other_thread(take, lifecycle, 0.1).result(SOON)


def test_a_closing_thread_comes_before_threads_that_have_waited_longer(lifecycle):
    assert take(lifecycle)
    got = []

    def work():
        got.append(("worker", lifecycle.acquire(Deadline(SOON))))

    def close():
        got.append(("closer", lifecycle.acquire_to_close(ProducerState.DRAINING, Deadline(SOON))))

    threads = [threading.Thread(target=work), threading.Thread(target=close)]
    threads[0].start()
    threads[1].start()
    while lifecycle.state is ProducerState.OPEN:
        pass
    lifecycle.release()
    for thread in threads:
        thread.join(SOON)
    assert sorted(got) == [("closer", True), ("worker", False)]


def test_a_state_never_goes_back(lifecycle):
    for state in (ProducerState.ABORTING, ProducerState.DRAINING, ProducerState.OPEN):
        lifecycle.advance(state)
        assert lifecycle.state is ProducerState.ABORTING


def test_a_closing_thread_that_comes_too_late_gets_no_access(lifecycle):
    lifecycle.advance(ProducerState.CLOSED)
    assert not lifecycle.acquire_to_close(ProducerState.ABORTING, Deadline(SOON))
    assert lifecycle.state is ProducerState.CLOSED


def test_a_closing_thread_waits_no_longer_than_its_deadline_for_access(lifecycle, other_thread):
    assert take(lifecycle)
    closing = other_thread(lifecycle.acquire_to_close, ProducerState.ABORTING, Deadline(0.05))
    assert closing.result(SOON) is False
    assert lifecycle.state is ProducerState.ABORTING


def test_aborting_wakes_waiting_threads(lifecycle, other_thread):
    assert take(lifecycle)
    waiting = other_thread(lifecycle.wait_until_aborting, SOON)
    assert not lifecycle.wait_until_aborting(0.0)
    lifecycle.advance(ProducerState.ABORTING)
    assert waiting.result(SOON)
