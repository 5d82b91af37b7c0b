"""Every kind of session with kafka-nb-python as Spark's Python: nothing imports Spark's zips."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import py4j
import pyspark
import pytest
from standalone import BIN, remove_this_python, submit
from topics import Record

COMMAND = BIN / "kafka-nb-python"
APP = Path(__file__).parent.parent / "support" / "python_app.py"
pytestmark = pytest.mark.slow
# Every Python that Spark starts runs this first, because its folder is on PYTHONPATH.
SITECUSTOMIZE = """
import json, os, sys
with open(os.environ["STARTS"], "a") as starts:
    starts.write(json.dumps([sys.orig_argv, os.environ["PYTHONPATH"]]) + "\\n")
"""


class Started:
    """The environment variables for a session, and the Pythons that Spark started in it."""

    def __init__(self, folder: Path, activated: bool) -> None:
        (folder / "sitecustomize.py").write_text(SITECUSTOMIZE)
        self.log = folder / "starts"
        self.variables = remove_this_python(os.environ)
        self.variables |= {"PYTHONPATH": str(folder), "STARTS": str(self.log)}
        self.variables["PYSPARK_PYTHON"] = str(COMMAND)
        if activated:
            self.variables |= {"PYSPARK_PYTHON": COMMAND.name, "VIRTUAL_ENV": str(BIN.parent)}
            self.variables["PATH"] = f"{BIN}:{self.variables['PATH']}"

    def workers(self) -> dict[str, str]:
        """The PYTHONPATH of every Python daemon that Spark started, by the worker that it runs."""
        starts = [json.loads(line) for line in self.log.read_text().splitlines()]
        return {argv[3]: path for argv, path in starts if argv[1:3] == ["-m", "pyspark.daemon"]}


def run(command: list[str | Path], started: Started) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=started.variables, capture_output=True, text=True, timeout=170, check=False
    )


def check(answer: subprocess.CompletedProcess[str], records: list[Record]) -> None:
    """The rows are in Kafka, and the driver and the task imported the installed packages."""
    assert answer.returncode == 0, answer.stderr[-5000:]
    imported = json.loads(answer.stdout.splitlines()[-1])
    expected = [pyspark.__file__, py4j.__file__]
    assert imported == {"driver": expected, "task": expected}
    assert sorted(record.value for record in records) == [b"row-0", b"row-1", b"row-2"]


def check_workers(started: Started) -> None:
    """So did the data source's other workers, which run on the driver."""
    workers = started.workers()
    for worker in ("lookup_data_sources", "write_into_data_source", "commit_data_source_write"):
        assert ".zip" not in workers[f"pyspark.sql.worker.{worker}"]


@pytest.mark.parametrize(
    ("kind", "activated"),
    [
        ("local[1]", True),
        ("local-cluster[1,1,1024]", False),
        ("connect", True),
    ],
)
def test_session(bootstrap_servers, topics, tmp_path, kind, activated):
    topic, started = topics.create(), Started(tmp_path, activated)
    answer = run([sys.executable, APP, kind, bootstrap_servers, topic, "found"], started)
    check(answer, topics.read(topic))
    check_workers(started)


def test_spark_submit(bootstrap_servers, topics, tmp_path, master):
    topic, started = topics.create(), Started(tmp_path, activated=False)
    # Executors start the Python that the driver names, whatever their own environment says.
    conf = ["--conf", "spark.executorEnv.PYSPARK_PYTHON=/missing"]
    job = [*conf, APP, "submitted", bootstrap_servers, topic, "found"]
    check(run(submit(master, *job), started), topics.read(topic))
    check_workers(started)


def test_spark_submit_with_the_python_in_a_property(bootstrap_servers, topics, tmp_path, master):
    topic, started = topics.create(), Started(tmp_path, activated=True)
    del started.variables["PYSPARK_PYTHON"]
    conf = ["--conf", f"spark.pyspark.python={COMMAND}"]
    # Spark finds formats with the Python of the variable, but runs registered ones with this one.
    job = [*conf, APP, "submitted", bootstrap_servers, topic, "registered"]
    check(run(submit(master, *job), started), topics.read(topic))


def test_a_standalone_cluster_runs_no_python_driver(tmp_path, master):
    started = Started(tmp_path, activated=False)
    answer = run(submit(master, "--deploy-mode", "cluster", APP), started)
    assert answer.returncode == 1
    expected = "Cluster deploy mode is currently not supported for python applications"
    assert expected in answer.stderr + answer.stdout
