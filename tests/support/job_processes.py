"""Jobs in processes of their own, by python and by spark-submit, as users start them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException
from topics import Topics

from spark_kafka_sink.deadline import Deadline

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


def wait_until(is_so: Callable[[str], Any], job: Job, folder: Path) -> Any:
    """What ``is_so`` finds in what the job has said on standard error, once it is true."""
    deadline = Deadline(SECONDS)
    while True:
        said = (folder / "stderr").read_text()
        found = is_so(said)
        if found:
            return found
        assert job.poll() is None, said
        assert not deadline.expired, said
        time.sleep(0.1)


def wait_for_rows(servers: str, topic: str) -> None:
    """Until there is one.

    With a new consumer now and then: one that is early may not see a new topic for minutes.
    """
    deadline = Deadline(SECONDS)
    while True:
        try:
            return Topics(servers, patience_seconds=10).wait_for_rows(topic)
        except (AssertionError, KafkaException):
            if deadline.expired:
                raise


def answer_of(url: str) -> tuple[int, str]:
    """The status and the text of an HTTP answer."""
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.status, error.read().decode()


def finished(job: Job, folder: Path) -> tuple[int, list[dict[str, Any]], str]:
    """The exit code, the lines of JSON, and everything that was said."""
    out = job.communicate(timeout=SECONDS)[0]
    # spark-submit merges standard error into standard output.
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return job.returncode, lines, out + (folder / "stderr").read_text()
