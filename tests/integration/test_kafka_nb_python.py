"""Every kind of session with kafka-nb-python as Spark's Python: nothing imports Spark's zips.

The sessions of all other tests are local ones with it.
"""

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

COMMAND = BIN / "kafka-nb-python"
APP = Path(__file__).parent.parent / "support" / "python_app.py"
pytestmark = pytest.mark.slow
# Every Python that Spark starts runs this first, because its folder is on PYTHONPATH.
SITECUSTOMIZE = """
import json, os, sys
with open(os.environ["STARTS"], "a") as starts:
    starts.write(json.dumps([sys.orig_argv, os.environ["PYTHONPATH"]]) + "\\n")
"""


@pytest.fixture
def check(bootstrap_servers, topics, tmp_path):
    """Run the program in a session, and check which packages its processes imported."""

    def check(command, how, activated, **variables):
        topic, log = topics.create(), tmp_path / "starts"
        (tmp_path / "sitecustomize.py").write_text(SITECUSTOMIZE)
        environment = remove_this_python(os.environ)
        environment |= {"PYTHONPATH": str(tmp_path), "STARTS": str(log), **variables}
        if activated:
            environment |= {"VIRTUAL_ENV": str(BIN.parent), "PATH": f"{BIN}:{environment['PATH']}"}
        answer = subprocess.run(
            [*command, bootstrap_servers, topic, how],
            env=environment,
            capture_output=True,
            text=True,
            timeout=170,
            check=False,
        )
        assert answer.returncode == 0, answer.stderr
        expected = [pyspark.__file__, py4j.__file__]
        imported = json.loads(answer.stdout.splitlines()[-1])
        assert imported == {"driver": expected, "task": expected}
        values = sorted(record.value for record in topics.read(topic))
        assert values == [b"row-0", b"row-1", b"row-2"]
        starts = [json.loads(line) for line in log.read_text().splitlines()]
        daemons = {argv[3]: path for argv, path in starts if argv[1:3] == ["-m", "pyspark.daemon"]}
        # Spark finds formats with the variable's Python, but runs registered ones in the other.
        own = ("lookup_data_sources", "write_into_data_source", "commit_data_source_write")
        for name in own if how == "found" else ():  # these workers run on the driver
            assert ".zip" not in daemons[f"pyspark.sql.worker.{name}"]

    return check


@pytest.mark.parametrize(
    ("kind", "activated"), [("local-cluster[1,1,1024]", False), ("connect", True)]
)
def test_session(check, kind, activated):
    python = COMMAND.name if activated else str(COMMAND)
    check([sys.executable, APP, kind], "found", activated, PYSPARK_PYTHON=python)


def test_spark_submit(check, master):
    # Executors start the Python that the driver names, whatever their own environment says.
    conf = ["--conf", "spark.executorEnv.PYSPARK_PYTHON=/missing"]
    job = submit(master, *conf, APP, "submitted")
    check(job, "found", activated=False, PYSPARK_PYTHON=str(COMMAND))


def test_spark_submit_with_the_python_in_a_property(check, master):
    job = submit(master, "--conf", f"spark.pyspark.python={COMMAND}", APP, "submitted")
    check(job, "registered", activated=True)
