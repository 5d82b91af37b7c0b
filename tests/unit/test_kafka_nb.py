"""The command kafka-nb, as pip installs it, and as a module."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

COMMAND = [str(Path(sysconfig.get_path("scripts"), "kafka-nb"))]
MODULE = [sys.executable, "-m", "spark_kafka_sink"]


@pytest.mark.parametrize(
    ("command", "shown"), [(COMMAND, "kafka-nb"), (MODULE, "python -m spark_kafka_sink")]
)
def test_both_ways_run_the_same_commands_and_show_their_own_usage(command, shown):
    done = subprocess.run(
        [*command, "doctor", "--option", "topic=t", "--unknown"],
        capture_output=True,
        text=True,
        timeout=90,
        cwd="/",  # away from the source tree
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"usage: {shown} ")
