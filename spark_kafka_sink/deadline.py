"""[both] Deadline: the moment at which a wait must end; the clock is injected."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Seconds on a monotonic clock, such as ``time.monotonic``."""


class Deadline:
    """A moment ``seconds`` from now. One Deadline is passed down to every wait of one operation."""

    def __init__(self, seconds: float, clock: Clock = time.monotonic) -> None:
        if not seconds >= 0:
            raise ValueError(f"a timeout must be 0 or more seconds, not {seconds}")
        self._clock = clock
        self._end = clock() + seconds

    def remaining(self) -> float:
        """Seconds left, never negative."""
        return max(0.0, self._end - self._clock())

    @property
    def expired(self) -> bool:
        return self.remaining() == 0.0

    def slice(self, seconds: float) -> float:
        """Seconds left, at most ``seconds``: for waits that must check something in between."""
        return min(seconds, self.remaining())

    def capped(self, seconds: float) -> Deadline:
        """The moment ``seconds`` from now, or this one if it comes first."""
        return Deadline(self.slice(seconds), self._clock)
