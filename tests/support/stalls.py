"""A pytest plugin that delays calls of librdkafka at random, as a stalled machine does.

``make test-stalls`` runs it. A test fails that expects librdkafka's threads, or a broker, to be
slower than the test's own thread.
"""

from __future__ import annotations

import functools
import inspect
import os
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from spark_kafka_sink.librdkafka.client import Client

LIKELIHOODS = [0.5, 0.1, 0.02]
LONGEST_SECONDS = 1.2
SECONDS_PER_TEST = 2.5


class Stalls:
    """The same ones for each run of a test with the same seed."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._likelihood = self._random.choice(LIKELIHOODS)
        self._remaining_seconds = SECONDS_PER_TEST

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(call)
        def stalling(*args: Any, **settings: Any) -> Any:
            if self._random.random() < self._likelihood:
                self._stall()
            return call(*args, **settings)

        return stalling

    def _stall(self) -> None:
        seconds = min(self._random.uniform(0, LONGEST_SECONDS), self._remaining_seconds)
        self._remaining_seconds -= seconds
        time.sleep(seconds)


@pytest.fixture(autouse=True)
def stalls(request: pytest.FixtureRequest) -> Iterator[None]:
    stalls = Stalls(f"{os.environ['SEED']} {request.node.nodeid}")
    # Not the test's own monkeypatch, which some tests undo before they end.
    with pytest.MonkeyPatch.context() as patch:
        for name, method in inspect.getmembers(Client, inspect.isfunction):
            if not name.startswith("__"):
                patch.setattr(Client, name, stalls.before(method))
        yield
