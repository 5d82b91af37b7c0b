"""A wait for what has no event."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from spark_kafka_sink.deadline import Deadline

_T = TypeVar("_T")


def wait_until(condition: Callable[[], _T], seconds: float = 60.0) -> _T:
    """The condition's result, once it is true."""
    deadline = Deadline(seconds)
    while not (result := condition()):
        assert not deadline.expired, f"not within {seconds:g} s"
        time.sleep(0.02)
    return result
