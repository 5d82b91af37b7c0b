"""Breaks the product on purpose, in every way that worker/product_mutants.py knows, and expects
chaos to notice; ``make chaos-mutants``. Arguments: names of mutants (default: all).

Only tasks are killed and repeated, no broker, so that a run of a minute is enough.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from fault_schedule import Fault
from faults import ZOMBIE_DELAYS
from run import chaos
from ways import ALL_WAYS

sys.path.append(str(Path(__file__).parent / "worker"))

from product_mutants import MUTANTS

_SECONDS = 60.0
# Less than the pause of reads_ledger_first.
_ZOMBIE_SECONDS = 1.0


def main(names: list[str]) -> int:
    late = ZOMBIE_DELAYS.index(_ZOMBIE_SECONDS)
    faults = [
        Fault(at, action, target, 8.0, way + late * len(ALL_WAYS))
        for at in range(2, 50, 8)
        for way in range(len(ALL_WAYS))
        for action, target in (("kill", "worker after acknowledgement"), ("repeat", "task"))
    ]
    unnoticed = []
    for name in names or MUTANTS:
        found = _violations(name, faults)
        print(f"{name}: {'; '.join(found) or 'NOT NOTICED'}", flush=True)
        if not found:
            unnoticed.append(name)
    return len(unnoticed)


def _violations(name: str, faults: list[Fault]) -> list[str]:
    folder = Path(tempfile.mkdtemp(prefix="chaos-"))
    try:
        outcome = chaos(faults, _SECONDS, folder, lambda _: None, name)
        return sorted(
            {
                check.name
                for checks in outcome.checks.values()
                for check in checks
                if check.violations
            }
        )
    except AssertionError as error:
        # A stream ended with an error of the sink that no fault explains; but a mutant whose own
        # code fails proves nothing.
        if "unnamed" in str(error):
            raise
        return [f"every failure has a name: {str(error)[:200]}"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit("interrupted")
