from __future__ import annotations

import math

import pytest

from spark_kafka_sink.deadline import Deadline


@pytest.mark.parametrize(
    ("elapsed", "remaining", "expired"),
    [(0, 2.0, False), (0.5, 1.5, False), (2, 0.0, True), (60, 0.0, True)],
)
def test_remaining_time_runs_down_to_zero_and_no_further(clock, elapsed, remaining, expired):
    deadline = Deadline(2, clock)
    clock.now += elapsed
    assert deadline.remaining() == remaining
    assert deadline.expired is expired


def test_deadline_of_zero_seconds_has_expired_at_once(clock):
    assert Deadline(0, clock).expired


@pytest.mark.parametrize(
    ("elapsed", "expected"), [(0, 0.25), (1.75, 0.25), (1.875, 0.125), (2, 0.0), (3, 0.0)]
)
def test_slice_ends_with_the_deadline(clock, elapsed, expected):
    deadline = Deadline(2, clock)
    clock.now += elapsed
    assert deadline.slice(0.25) == expected


@pytest.mark.parametrize("seconds", [-0.001, -math.inf, math.nan])
def test_timeout_that_is_no_length_of_time_is_rejected(clock, seconds):
    with pytest.raises(ValueError, match="0 or more seconds"):
        Deadline(seconds, clock)


def test_clock_runs_without_being_injected():
    assert 0 < Deadline(60).remaining() <= 60
