"""Breaks the product on purpose, in every way that worker/product_mutants.py knows, and expects
chaos to notice; ``make chaos-mutants``. Arguments: names of mutants (default: all).

Only tasks and queries are disturbed, no broker, so that a run of 90 seconds is enough.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from fault_schedule import UPSTREAM_TARGETS, Fault
from faults import ZOMBIE_DELAYS
from query_kinds import EXACTLY_ONCE, FROM_DRIVER, KINDS_WITH_TASKS, QUERY_KINDS, QueryKind
from run import chaos

sys.path.append(str(Path(__file__).parent / "worker"))

from product_mutants import DRIVER_MUTANTS, MUTANTS

_SECONDS = 90.0
# Less than the pause of reads_ledger_first.
_ZOMBIE_SECONDS = 3.0


def main(names: list[str]) -> int:
    unnoticed = []
    for name in names or MUTANTS:
        faults = _driver_faults() if name in DRIVER_MUTANTS else _task_faults()
        violations = _violations(name, faults)
        print(f"{name}: {'; '.join(violations) or 'NOT NOTICED'}", flush=True)
        if not violations:
            unnoticed.append(name)
    return len(unnoticed)


def _driver_faults() -> list[Fault]:
    """An exactly-once query fails in the middle of its rows; then Spark dies after a commit."""
    from_driver = QUERY_KINDS.index(QueryKind(FROM_DRIVER, EXACTLY_ONCE))
    return [
        Fault(2.0, "fail", "sibling task", 15.0, from_driver),
        Fault(25.0, "kill", "worker after acknowledgement", 25.0, from_driver),
    ]


def _task_faults() -> list[Fault]:
    """Every stream with tasks by turns: they are repeated, killed and left by Spark's own side.

    They are repeated first: later, most of them find that an attempt before has committed. At the
    end, the numbers of partitions change: after so many faults, a micro-batch would take too long
    for a query to be stopped when a part of it is committed.
    """
    late = ZOMBIE_DELAYS.index(_ZOMBIE_SECONDS) * len(KINDS_WITH_TASKS)
    faults = []
    for at in (2.0, 14.0):
        faults += [
            Fault(at, "repeat", "task", 12.0, kind + late) for kind in range(len(KINDS_WITH_TASKS))
        ]
    for number, target in enumerate(UPSTREAM_TARGETS):
        at = 26.0 + 8 * number
        for kind in KINDS_WITH_TASKS:
            choice = QUERY_KINDS.index(kind)
            upstream = choice + len(QUERY_KINDS) * number
            faults += [
                Fault(at, "kill", "worker after acknowledgement", 8.0, choice),
                Fault(at + 1, "fail", target, 8.0, upstream),
            ]
    for number in range(6):
        at = 52.0 + 5 * number
        paused = len(QUERY_KINDS) * (1 + 2 * number) + number % 2
        faults += [
            Fault(at, "change", "partitions", 2.0, paused),
            Fault(at + 2.5, "change", "partitions", 1.0, paused, is_repeated=True),
        ]
    return sorted(faults, key=lambda fault: fault.at_seconds)


def _violations(name: str, faults: list[Fault]) -> list[str]:
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        outcome = chaos(faults, _SECONDS, folder, lambda _: None, name)
        # A mutant whose own code fails proves nothing.
        own = [violation for violation in outcome.violations if "unnamed" in violation]
        if own:
            raise AssertionError(f"{name}: {own[0]}")
        return sorted(
            {
                check.name
                for checks in outcome.checks.values()
                for check in checks
                if check.violations
            }
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("interrupted")
