"""Jobs in processes of their own, by python and by spark-submit, as users start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SMALL_BATCHES = "spark.sql.execution.arrow.maxRecordsPerBatch=10"
#: for spark-submit, and for the session that python starts
PROPERTIES = ("--properties-file", "conf/spark.conf", "--conf", SMALL_BATCHES)
COMMANDS = {
    "python": [sys.executable],
    "spark-submit": [str(Path(sys.executable).parent / "spark-submit")],
}
SECONDS = 300  # a session's start on a very busy machine

Job = subprocess.Popen[str]


@contextmanager
def jobs(
    folder: Path, bootstrap_servers: str, properties: Sequence[str] = PROPERTIES
) -> Iterator[Callable[..., Job]]:
    """Starts jobs: ``start(how, script, *arguments)``. Kills those that still run at the end.

    ``folder``: for the standard error of the latest one.
    """
    started: list[Job] = []

    def start(how: str, *command: str) -> Job:
        environment = {
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": f"{' '.join(properties)} pyspark-shell",
        }
        of_submit = properties if how == "spark-submit" else []
        with (folder / "stderr").open("w") as stderr:
            job = subprocess.Popen(
                [*COMMANDS[how], *of_submit, *command],
                cwd=ROOT,
                env=os.environ | environment,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,  # as a shell does, so that Ctrl-C reaches all its processes
            )
        started.append(job)
        return job

    yield start
    for job in started:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        job.stdout.close()


def finished(job: Job, folder: Path) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, the lines of JSON, and everything that was said."""
    out = job.communicate(timeout=SECONDS)[0]
    # spark-submit merges standard error into standard output.
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return job.returncode, lines, out + (folder / "stderr").read_text()
