"""A short run of chaos with a fixed seed: a broker down at the start, and faults of many kinds."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fault_schedule import UPSTREAM_TARGETS, schedule

RUN = Path(__file__).parent / "run.py"
SUPPORT = Path(__file__).parents[1] / "support"
SECONDS, SEED = 60, 24152


def test_the_seed_has_every_fault_of_a_query_and_rare_ones_of_brokers_in_the_first_half():
    kinds = {fault.kind for fault in schedule(SEED, SECONDS) if fault.at_seconds < SECONDS / 2}
    upstream = {f"fail {target}" for target in UPSTREAM_TARGETS}
    assert upstream | {"fail sibling task", "stop query", "change partitions"} <= kinds
    assert {"reassign replicas", "corrupt connections"} <= kinds


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_nothing_is_lost_and_nothing_is_doubled_in_a_minute_of_chaos():
    environment = os.environ | {"PYTHONPATH": str(SUPPORT)}
    command = [sys.executable, str(RUN), str(SECONDS), str(SEED)]
    # In a process of its own, whose watchdog ends it wherever it hangs.
    with subprocess.Popen(
        command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as run:
        try:
            said, _ = run.communicate(timeout=840)
        finally:
            if run.poll() is None:
                run.send_signal(signal.SIGTERM)  # it then ends its brokers and streams
    assert run.returncode == 0, said
    assert "all invariants hold" in said
