"""Jobs in processes of their own, by python and by spark-submit, as users start them.

A third way is for tests of anything else than the start: a Java process that is warm already.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from confluent_kafka import KafkaException
from pyspark.java_gateway import launch_gateway
from topics import Topics

from spark_kafka_sink.deadline import Deadline

ROOT = Path(__file__).parents[2]
SMALL_BATCHES = "spark.sql.execution.arrow.maxRecordsPerBatch=10"
FEW_TASKS = "spark.sql.shuffle.partitions=2"
#: for spark-submit, and for the session that python starts
PROPERTIES = ("--properties-file", "conf/spark.conf", "--conf", SMALL_BATCHES, "--conf", FEW_TASKS)
COMMANDS = {
    "python": [sys.executable],
    "warm": [sys.executable],  # with a WarmJava
    "spark-submit": [str(Path(sys.executable).parent / "spark-submit")],
}
SECONDS = 300  # a session's start on a very busy machine

Job = subprocess.Popen[str]


class WarmJava:
    """A Java process that runs Spark for one PySpark process after the other.

    They find it as those do that spark-submit starts. A new one takes seconds to load its classes.
    """

    def __init__(self, properties: Sequence[str]) -> None:
        with patch.dict(os.environ, submit_arguments(properties)):
            self._gateway = launch_gateway(popen_kwargs={"cwd": ROOT})
        address = self._gateway.java_parameters
        self.environment: Mapping[str, str] = {
            "PYSPARK_GATEWAY_PORT": str(address.port),
            "PYSPARK_GATEWAY_SECRET": address.auth_token,
        }

    def forget(self) -> None:
        """Stop the Spark of a process that was killed, and forget the objects of the process.

        Java tells Python about collected objects by numbers, which are the same in every process.
        """
        jvm = self._gateway.jvm
        session = jvm.org.apache.spark.sql.SparkSession.getDefaultSession()
        if session.isDefined():
            session.get().stop()
        for _ in range(2):  # what the first finalizers release, too
            jvm.System.gc()
            jvm.System.runFinalization()

    def close(self) -> None:
        self._gateway.shutdown()
        self._gateway.proc.stdin.close()
        self._gateway.proc.wait(SECONDS)


@contextmanager
def warm_java(properties: Sequence[str] = PROPERTIES) -> Iterator[WarmJava]:
    java = WarmJava(properties)
    yield java
    java.close()


def submit_arguments(properties: Sequence[str]) -> dict[str, str]:
    """The environment variable by which a session that python starts gets these properties."""
    return {"PYSPARK_SUBMIT_ARGS": f"{' '.join(properties)} pyspark-shell"}


@contextmanager
def jobs(
    folder: Path,
    bootstrap_servers: str,
    properties: Sequence[str] = PROPERTIES,
    java: WarmJava | None = None,
) -> Iterator[Callable[..., Job]]:
    """Starts jobs: ``start(how, script, *arguments)``. Kills those that still run at the end.

    ``folder``: for the standard error of the latest one. ``java``: for those that are warm, one at
    a time.
    """
    started: list[Job] = []

    def start(how: str, *command: str) -> Job:
        if how == "warm":
            java.forget()
        environment = {
            "KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers,
            **(java.environment if how == "warm" else submit_arguments(properties)),
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
        result = None
        with suppress(OSError):  # an address of a job that is ending
            result = is_so(said)
        if result:
            return result
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
