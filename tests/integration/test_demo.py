"""The demo runs as the README says, and reports differences."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SECONDS = 400  # a very busy machine
pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 50)]
ROOT = Path(__file__).parent.parent.parent
SUBMIT = Path(sys.executable).parent / "spark-submit"


def test_the_demo_finds_every_flight_as_it_was_sent(bootstrap_servers):
    answer = subprocess.run(
        [str(SUBMIT), "--properties-file", "conf/spark.conf", "jobs/demo.py"],
        cwd=ROOT,
        env={
            **os.environ,
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
            "PYSPARK_PYTHON": sys.executable,
        },
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert "all 336,776 records are correct" in answer.stdout
    assert "micro-batches: first" in answer.stdout
    assert "origin=" in answer.stdout  # it shows a record
