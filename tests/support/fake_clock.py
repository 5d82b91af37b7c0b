"""A clock that tests move by hand."""

from __future__ import annotations


class FakeClock:
    now = 100.0

    def __call__(self) -> float:
        return self.now
