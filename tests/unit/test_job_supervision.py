"""Several queries at once: who ends when one fails, and what is said of it. No Spark runs."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from fake_clock import FakeClock
from job_output import Said

from spark_kafka_sink.errors import AuthenticationFailed, InvalidConfiguration
from spark_kafka_sink.tools.job.model import Restart
from spark_kafka_sink.tools.job.restart import DONE, FAILED, INVALID, Failure, until_done
from spark_kafka_sink.tools.job.stop import QueryStop, Stop
from spark_kafka_sink.tools.job.supervision import run_all

SECONDS = 60  # until a test fails; nothing waits for it
BROKEN = Failure("the query failed: DeliveryFailed: 2 records", "DeliveryFailed")


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def stop(clock):
    stop = Stop(60, clock)
    stop.begin()
    return stop


def supervised(stop, stops_all=True, grace_seconds=30.0, **runs):
    """The exit code, and what was said."""
    said = Said()
    code = run_all(runs, stop, said, stops_all=stops_all, grace_seconds=grace_seconds)
    return code, said.messages


def done():
    return None


def broken():
    return BROKEN


def until_stopped(stop):
    assert stop.requested.wait(SECONDS)


def test_the_job_is_done_when_all_queries_are(stop):
    assert supervised(stop, a=done, b=done) == (DONE, [])
    assert not stop.requested.is_set()


def test_a_failure_stops_all_others_and_is_named_at_the_end(stop):
    code, said = supervised(stop, a=partial(until_stopped, stop), b=broken, c=done)
    assert code == FAILED
    assert said[0].startswith("b has failed: stopping a")
    assert said[1:] == [f"b has failed: {BROKEN.text}"]


def test_a_failure_leaves_the_others_if_the_file_says_so(stop):
    has_failed = threading.Event()
    went_on = []

    def fail():
        has_failed.set()
        return BROKEN

    def go_on():
        assert has_failed.wait(SECONDS)
        went_on.append(not stop.requested.wait(0.5))  # twice as long as between two looks

    code, said = supervised(stop, stops_all=False, a=go_on, b=fail)
    assert (code, said) == (FAILED, [f"b has failed: {BROKEN.text}"])
    assert went_on == [True]
    assert not stop.requested.is_set()


@pytest.mark.parametrize("stops_all", [True, False])
def test_every_failure_is_named_in_the_order_of_the_file(stop, stops_all):
    meet = threading.Barrier(2)

    def fail(text):
        meet.wait(SECONDS)
        return Failure(text)

    code, said = supervised(stop, stops_all, a=partial(fail, "x"), b=partial(fail, "y"))
    assert code == FAILED
    assert said[-2:] == ["a has failed: x", "b has failed: y"]


def test_the_exit_code_is_the_highest(stop):
    def refused():
        raise InvalidConfiguration("1 mistake in the configuration:\njob.yaml:3:1: sql: x")

    code, said = supervised(stop, stops_all=False, a=done, b=refused, c=broken)
    assert code == INVALID
    assert said == [
        "b has failed: InvalidConfiguration: 1 mistake in the configuration:\njob.yaml:3:1: sql: x",
        f"c has failed: {BROKEN.text}",
    ]


def test_an_error_that_a_query_raises_is_not_lost(stop):
    def refused():
        raise AuthenticationFailed("wrong password")

    def surprised():
        raise ZeroDivisionError("by zero")

    code, said = supervised(stop, stops_all=False, a=refused, b=surprised)
    assert code == FAILED
    assert said[0] == "a has failed: AuthenticationFailed: wrong password"
    assert said[1].startswith("b has failed: Traceback (most recent call last):")
    assert said[1].endswith("ZeroDivisionError: by zero")


def test_a_signal_ends_all_queries(stop):
    started = threading.Barrier(3)

    def run():
        started.wait(SECONDS)
        until_stopped(stop)

    def signal():
        started.wait(SECONDS)
        stop.request()

    threading.Thread(target=signal).start()
    assert supervised(stop, a=run, b=run) == (DONE, [])


def test_a_query_that_does_not_end_is_given_up_and_has_failed(stop, clock):
    release, is_ending = threading.Event(), threading.Event()

    def hang():
        release.wait(SECONDS)

    def time_passes():
        # The clock moves only while the main thread looks at it.
        while not is_ending.wait(0.01):
            clock.now += 10

    stop.request()
    threading.Thread(target=time_passes).start()
    try:
        code, said = supervised(stop, grace_seconds=30.0, a=hang, b=done)
    finally:
        is_ending.set()
        release.set()
    assert code == FAILED
    assert said == ["a has failed: the query did not end within 30 s of its deadline"]
    assert clock.now >= 90  # the micro-batch's time, then the grace


def test_a_second_signal_ends_the_wait_for_micro_batches_too(clock):
    release = threading.Event()
    stop = Stop(86_400, clock)
    stop.begin()
    stop.request()
    clock.now += 1
    stop.request()
    try:
        code, said = supervised(stop, grace_seconds=0.0, a=partial(release.wait, SECONDS))
    finally:
        release.set()
    assert code == FAILED
    assert said == ["a has failed: the query did not end within 0 s of its deadline"]


def test_the_stop_after_a_failure_is_no_signal(stop, clock):
    stop.request_after_failure()
    assert stop.requested.is_set()
    stop.request()
    assert not stop.is_at_once  # systemd's SIGTERM may come at the same time
    clock.now += 1
    stop.request()
    assert stop.is_at_once


def test_each_query_has_its_own_back_off_and_ends_by_itself(stop):
    restart = Restart(attempts=3, initial_backoff_seconds=0.001, max_backoff_seconds=0.001)
    attempts = {"a": 0, "b": 0}
    outputs = {name: Said() for name in attempts}
    recovered = threading.Event()

    def attempt(name):
        attempts[name] += 1
        if name == "a":
            assert recovered.wait(SECONDS)
            return None
        if attempts[name] <= 2:
            return BROKEN
        recovered.set()
        return None

    def run(name):
        return until_done(partial(attempt, name), restart, stop, outputs[name])

    assert supervised(stop, a=partial(run, "a"), b=partial(run, "b")) == (DONE, [])
    assert attempts == {"a": 1, "b": 3}
    assert outputs["a"].messages == []
    assert outputs["b"].messages[-1] == "restarting the query in 0.0 s, 2 of 3"


def test_a_stop_ends_the_wait_for_a_restart_of_one_query(stop):
    restart = Restart(initial_backoff_seconds=86_400, max_backoff_seconds=86_400)
    waits = threading.Event()
    output = Said()
    output.waits_for = lambda _: waits.set()

    def fail_at_last():
        assert waits.wait(SECONDS)
        return BROKEN

    run = partial(until_done, lambda: Failure("away"), restart, stop, output)
    code, said = supervised(stop, a=run, b=fail_at_last)
    assert code == FAILED
    assert said == ["b has failed: stopping a", f"b has failed: {BROKEN.text}"]
    assert output.messages[-1] == "stopped before the query restarted"


class Query:
    """Micro-batch 3 runs."""

    isActive = True  # noqa: N815 - Spark's name
    status = {"isTriggerActive": True}  # noqa: RUF012
    lastProgress = {"batchId": 2}  # noqa: N815, RUF012


def test_each_query_is_stopped_at_its_own_time(stop, clock):
    early, late = QueryStop(stop), QueryStop(stop)
    stop.request()
    assert not early.is_due(Query())
    clock.now += 40
    assert not late.is_due(Query())  # its time counts from here
    clock.now += 20
    assert early.is_due(Query())
    assert early.is_late
    assert not late.is_due(Query())
    assert not late.is_late
    late.is_blocking = True
    assert late.is_due(Query())
    assert not QueryStop(stop).is_blocking
