"""Secrets appear nowhere: not in logs, errors, plans, reprs, Spark's event log or checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

APP = Path(__file__).parent.parent / "support" / "secrets_app.py"
WORKING = ("works", "works with JAAS")


@pytest.mark.timeout(400)  # three ways to write, with Spark's most verbose logs
def test_secrets_appear_in_no_output_of_working_and_failing_queries(
    bootstrap_servers, topics, tmp_path
):
    topic = topics.create()
    command = [sys.executable, str(APP), bootstrap_servers, topic, str(tmp_path)]
    environment = {**os.environ, "SPARK_TRACEBACK_WITH_LOCALS": "1"}
    answer = subprocess.run(command, capture_output=True, timeout=380, check=False, env=environment)
    output = (answer.stdout + answer.stderr).decode(errors="replace")
    assert answer.returncode == 0, output[-3000:]
    ways = ("batch,", "stream,", "foreach_batch,")
    outcomes = [line for line in output.splitlines() if line.startswith(ways)]
    worked = [line for line in outcomes if line.endswith(": no error")]
    assert len(worked) == len(ways) * len(WORKING), outcomes
    assert len(outcomes) > 2 * len(worked)
    assert "DeliveryReport(" in output
    assert "InvalidOption" in output
    leaks = [line[:500] for line in output.splitlines() if "planted-secret" in line]
    assert not leaks, f"{len(leaks)} lines, e.g. {leaks[:5]}"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any(path.parent.name == "events" or "eventlog" in str(path) for path in files)
    leaking = [str(path) for path in files if b"planted-secret" in path.read_bytes()]
    assert not leaking
