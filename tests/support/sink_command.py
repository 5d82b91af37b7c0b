"""``python -m spark_kafka_sink`` in a process of its own."""

from __future__ import annotations

import subprocess
import sys


def sink_command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "spark_kafka_sink", *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        cwd="/",  # away from the source tree, which would hide the installed package
        check=False,
    )
