"""When a failed query is started again, and when not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from job_output import Said

from spark_kafka_sink import errors
from spark_kafka_sink.tools.job.model import Restart
from spark_kafka_sink.tools.job.restart import DONE, FAILED, Backoff, Failure, run_attempts
from spark_kafka_sink.tools.job.stop import Stop

AWAY = Failure("the query failed: BrokerUnavailable: nobody answers", "BrokerUnavailable")
QUICK = {"initial_backoff_seconds": 0.001, "max_backoff_seconds": 0.001}


@pytest.fixture
def stop():
    stop = Stop(60)
    stop.begin()
    return stop


def outcome(stop, restart, *outcomes):
    """Whether it failed, how often it was attempted, and what was said."""
    left = list(outcomes)
    said = Said()

    def attempt():
        step = left.pop(0)
        if isinstance(step, Exception):
            raise step
        return step() if callable(step) else step

    failure = run_attempts(attempt, restart, stop, said)
    return (DONE if failure is None else FAILED), len(outcomes) - len(left), said.messages


def middle(low, high):
    return (low + high) / 2


def test_each_wait_is_twice_the_one_before_it_up_to_the_maximum():
    restart = Restart(attempts=6, initial_backoff_seconds=1, max_backoff_seconds=10)
    backoff = Backoff(restart, middle)
    waits = [backoff.next_seconds() for _ in range(7)]
    assert waits == [1, 2, 4, 8, 10, 10, None]
    backoff.reset()
    assert backoff.next_seconds() == 1


def test_waits_differ_a_little_but_never_exceed_the_maximum():
    restart = Restart(attempts=2, initial_backoff_seconds=4, max_backoff_seconds=8)
    assert Backoff(restart, lambda low, high: low).next_seconds() == pytest.approx(3.2)
    high = Backoff(restart, lambda low, high: high)
    assert [high.next_seconds(), high.next_seconds()] == [pytest.approx(4.8), 8]


def test_without_restart_a_failure_ends_the_job(stop):
    assert outcome(stop, None, AWAY) == (FAILED, 1, [AWAY.text])
    with pytest.raises(errors.BrokerUnavailable):
        outcome(stop, None, errors.BrokerUnavailable("x"))


def test_a_query_is_started_again_until_it_is_done(stop):
    code, attempts, said = outcome(stop, Restart(attempts=3, **QUICK), AWAY, AWAY, None)
    assert (code, attempts) == (DONE, 3)
    assert said[0] == AWAY.text
    assert said[1] == "restarting the query in 0.0 s, 1 of 3"
    assert said[3] == "restarting the query in 0.0 s, 2 of 3"


def test_a_query_that_cannot_start_now_is_started_again(stop):
    away = errors.KafkaSinkError("job.yaml:3:1: source: [PATH_NOT_FOUND]")
    code, attempts, said = outcome(stop, Restart(**QUICK), away, None)
    assert (code, attempts) == (DONE, 2)
    assert said[0] == (
        "the query cannot start: KafkaSinkError: job.yaml:3:1: source: [PATH_NOT_FOUND]"
    )


def test_restarts_in_a_row_are_bounded(stop):
    code, attempts, said = outcome(stop, Restart(attempts=2, **QUICK), *[AWAY] * 5)
    assert (code, attempts) == (FAILED, 3)
    assert said[-1] == "giving up after 2 failed restarts in a row"


def test_a_micro_batch_that_ended_begins_a_new_row_of_restarts(stop):
    progressed = Failure(AWAY.text, AWAY.error_name, has_progressed=True)
    outcomes = [AWAY, AWAY, progressed, AWAY, AWAY]
    assert outcome(stop, Restart(attempts=2, **QUICK), *outcomes)[:2] == (FAILED, 5)


PERMANENT = [
    error
    for error in vars(errors).values()
    if isinstance(error, type) and getattr(error, "is_permanent", False)
]


@pytest.mark.parametrize("error", PERMANENT)
def test_an_error_that_lasts_is_not_tried_again(error, stop):
    failure = Failure("the query failed: x", error.__name__, has_progressed=True)
    code, attempts, said = outcome(stop, Restart(**QUICK), failure, None)
    assert (code, attempts) == (FAILED, 1)
    assert said[-1] == f"{error.__name__}: restarting the query would not help"
    with pytest.raises(error):
        outcome(stop, Restart(**QUICK), error.__new__(error, "x"), None)


def test_the_page_on_jobs_names_the_errors_that_last():
    page = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text(encoding="utf-8")
    (names,) = re.findall("These errors end the job at once(.*?)Without", page, re.DOTALL)
    documented = set(re.findall(r"`(\w+)`", names))
    assert documented | {"InvalidConfiguration", "UnsupportedSaveMode"} == {
        error.__name__ for error in PERMANENT
    }


@pytest.mark.parametrize(
    "name",
    [
        "DeliveryFailed",
        "TopicUnavailable",
        "TokenUnavailable",
        "TransactionFenced",
        "DeadlineExceeded",
        None,
    ],
)
def test_an_error_that_may_pass_is_tried_again(name, stop):
    failure = Failure("the query failed: x", name)
    assert outcome(stop, Restart(**QUICK), failure, None)[:2] == (DONE, 2)


def test_a_signal_ends_the_wait_for_a_restart(stop):
    said = Said()
    said.show_state = lambda what: stop.request()  # just before it waits
    restart = Restart(initial_backoff_seconds=86_400, max_backoff_seconds=86_400)
    assert run_attempts(lambda: AWAY, restart, stop, said) is None
    assert said.messages[-1] == "stopped before the query restarted"


def test_a_query_that_fails_while_it_is_being_stopped_is_not_started_again(stop):
    stop.request()
    assert outcome(stop, Restart(**QUICK), AWAY)[:2] == (FAILED, 1)
