"""Runs random programs over the engine for SECONDS, as SEED says; ``make search``.

Ends at the first program that violates an invariant, and prints the shortest one found.
"""

from __future__ import annotations

import random
import sys
import time

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import run_state_machine_as_test
from test_engine_model import Programs

PROGRAMS_AT_ONCE = 200
_ROUNDS = 10**6


def run_programs(number: int, programs: int, *, is_shortened: bool = True) -> None:
    """Raises AssertionError if one of these programs violates an invariant."""
    phases = [Phase.generate, Phase.shrink] if is_shortened else [Phase.generate]
    run_state_machine_as_test(
        seed(number)(Programs),
        settings=settings(
            max_examples=programs,
            stateful_step_count=30,
            deadline=None,
            database=None,
            phases=phases,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def main(seconds: float, number: int) -> None:
    print(f"make search SECONDS={seconds:g} SEED={number}", flush=True)
    ends_at, done = time.monotonic() + seconds, 0
    while time.monotonic() < ends_at:
        run_programs(number * _ROUNDS + done, PROGRAMS_AT_ONCE)
        done += 1
    print(f"{done * PROGRAMS_AT_ONCE:,} programs, no violation")


if __name__ == "__main__":
    _, seconds_text, *seeds = sys.argv
    try:
        main(float(seconds_text), int(seeds[0]) if seeds else random.randrange(_ROUNDS))
    except KeyboardInterrupt:
        sys.exit("interrupted")
