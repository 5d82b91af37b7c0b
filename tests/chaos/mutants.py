"""Breaks the product on purpose, in every way that worker/product_mutants.py knows, and expects
chaos to notice; ``make chaos-mutants``. Arguments: names of mutants (default: all).

Only tasks and queries are disturbed, no broker, so that a run of a minute is enough.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from fault_schedule import UPSTREAM_TARGETS, Fault
from faults import ZOMBIE_DELAYS
from query_kinds import QUERY_KINDS
from run import chaos

sys.path.append(str(Path(__file__).parent / "worker"))

from product_mutants import MUTANTS

_SECONDS = 60.0
# Less than the pause of reads_ledger_first.
_ZOMBIE_SECONDS = 1.0


def main(names: list[str]) -> int:
    faults = _faults()
    unnoticed = []
    for name in names or MUTANTS:
        violations = _violations(name, faults)
        print(f"{name}: {'; '.join(violations) or 'NOT NOTICED'}", flush=True)
        if not violations:
            unnoticed.append(name)
    return len(unnoticed)


def _faults() -> list[Fault]:
    """Every stream by turns: its tasks are killed, repeated and left by Spark's own side."""
    late = ZOMBIE_DELAYS.index(_ZOMBIE_SECONDS) * len(QUERY_KINDS)
    faults = []
    for at in range(2, 50, 8):
        for kind in range(len(QUERY_KINDS)):
            faults += [
                Fault(at, "kill", "worker after acknowledgement", 8.0, kind),
                Fault(at, "repeat", "task", 8.0, kind + late),
                Fault(
                    at + 1,
                    "fail",
                    UPSTREAM_TARGETS[at // 8 % 3],
                    8.0,
                    kind + len(QUERY_KINDS) * at,
                ),
            ]
        # While a task waits and others have committed.
        paused = len(QUERY_KINDS) * (1 + at // 8 * 2) + at // 8 % 2
        faults += [
            Fault(at + 2, "change", "partitions", 3.0, paused),
            Fault(at + 5.5, "change", "partitions", 1.5, paused, is_repeated=True),
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
