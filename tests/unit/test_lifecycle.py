"""Turns: in order while the producer is open, only for closing threads afterwards."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.producer.lifecycle import Lifecycle, State

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
        if lifecycle.take_turn(deadline):
            return True
    return False


def test_one_thread_at_a_time_has_the_turn(lifecycle, other_thread):
    assert take(lifecycle)
    assert lifecycle.is_my_turn
    assert not other_thread(take, lifecycle, 0.1).result(SOON)
    lifecycle.end_turn()
    assert not lifecycle.is_my_turn
    assert other_thread(take, lifecycle).result(SOON)


def test_a_thread_that_takes_turn_after_turn_does_not_starve_others(lifecycle, other_thread):
    is_over = threading.Event()

    def take_turn_after_turn():
        while not is_over.is_set():
            take(lifecycle)
            lifecycle.end_turn()

    greedy = other_thread(take_turn_after_turn)
    for _ in range(100):
        assert take(lifecycle)
        lifecycle.end_turn()
    is_over.set()
    greedy.result(SOON)


def test_a_thread_cannot_take_a_second_turn_inside_its_first(lifecycle):
    assert take(lifecycle)
    with pytest.raises(RuntimeError, match="from a handler of its own events"):
        lifecycle.take_turn(Deadline(1))


def test_from_draining_on_only_a_closing_thread_gets_a_turn(lifecycle, other_thread):
    lifecycle.advance(State.DRAINING)
    assert not take(lifecycle, 0.1)
    assert lifecycle.take_last_turn(State.DRAINING, Deadline(SOON))
    assert not other_thread(take, lifecycle, 0.1).result(SOON)


def test_a_closing_thread_comes_before_threads_that_have_waited_longer(lifecycle):
    assert take(lifecycle)
    got = []

    def work():
        got.append(("worker", lifecycle.take_turn(Deadline(SOON))))

    def close():
        got.append(("closer", lifecycle.take_last_turn(State.DRAINING, Deadline(SOON))))

    threads = [threading.Thread(target=work), threading.Thread(target=close)]
    threads[0].start()
    threads[1].start()
    while lifecycle.state is State.OPEN:
        pass
    lifecycle.end_turn()
    for thread in threads:
        thread.join(SOON)
    assert sorted(got) == [("closer", True), ("worker", False)]


def test_a_state_never_goes_back(lifecycle):
    for state in (State.ABORTING, State.DRAINING, State.OPEN):
        lifecycle.advance(state)
        assert lifecycle.state is State.ABORTING


def test_a_closing_thread_that_comes_too_late_gets_no_turn(lifecycle):
    lifecycle.advance(State.CLOSED)
    assert not lifecycle.take_last_turn(State.ABORTING, Deadline(SOON))
    assert lifecycle.state is State.CLOSED


def test_a_closing_thread_waits_no_longer_than_its_deadline_for_a_turn_that_does_not_end(
    lifecycle, other_thread
):
    assert take(lifecycle)
    last_turn = other_thread(lifecycle.take_last_turn, State.ABORTING, Deadline(0.05))
    assert last_turn.result(SOON) is False
    assert lifecycle.state is State.ABORTING


def test_aborting_wakes_waiting_threads(lifecycle, other_thread):
    assert take(lifecycle)
    waiting = other_thread(lifecycle.wait_until_aborting, SOON)
    assert not lifecycle.wait_until_aborting(0.0)
    lifecycle.advance(State.ABORTING)
    assert waiting.result(SOON)
