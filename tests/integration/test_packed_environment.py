"""A virtual environment that is sent to the executors, whose machines lack the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from standalone import BIN, remove_this_python, submit

APP = Path(__file__).parent.parent / "support" / "shipped_app.py"
# Of the environment of the tests, which has much more; pyspark* includes pyspark_kafka_nb.
PACKED = ("confluent_kafka", "numpy", "py4j", "pyarrow", "pyspark", "spark_kafka_sink")
SECONDS = 300  # a very busy machine
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * SECONDS)]


@pytest.fixture(scope="module")
def archive():
    with tempfile.TemporaryDirectory() as folder:
        yield pack(Path(folder, "environment.tar.gz"))


def pack(archive):
    command = [BIN / "venv-pack", "-q", "-p", sys.prefix, "-o", archive, "--compress-level", "0"]
    command += ["--exclude", "*", "--include", "pyvenv.cfg", "--include", "bin/*python*"]
    for package in PACKED:
        command += ["--include", f"*/site-packages/{package}*"]
    # Executors need none of the tools, and so none of their extras.
    for part in ("pyspark/jars/*", "spark_kafka_sink/tools/*", "pyarrow/libarrow_flight*"):
        command += ["--exclude", f"*/site-packages/{part}"]
    subprocess.run(command, check=True, timeout=SECONDS)
    return archive


@pytest.fixture
def run(master, archive, tmp_path, bootstrap_servers):
    """Runs the application on two executors, from the folder of the test."""

    def run(variables: dict[str, str], *sinks: str) -> subprocess.CompletedProcess[str]:
        conf = {
            "spark.cores.max": "2",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.executor.cores": "1",
            # Both executors are there before the first task, and so each of them gets one of two.
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{SECONDS}s",
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.task.maxFailures": "1",
            "spark.ui.enabled": "false",
        }
        settings = [word for name in conf for word in ("--conf", f"{name}={conf[name]}")]
        job = [*settings, APP, bootstrap_servers, tmp_path, *sinks]
        return subprocess.run(
            submit(master, "--archives", f"{archive}#environment", *job),
            cwd=tmp_path,
            env=remove_this_python(os.environ) | variables,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )

    return run


def origins(records):
    """The places of the Pythons that made the records, by the folder of their executor's worker."""
    assert sorted(int(record.value) for record in records) == list(range(20))
    places = [json.loads(key) for key in {record.key for record in records}]
    return {Path(prefix).parts[-4]: (Path(prefix), *files) for prefix, *files in places}


def test_every_task_runs_in_the_packed_environment(run, topics, tmp_path):
    (tmp_path / "environment").symlink_to(sys.prefix)  # it stays beside the job on the driver
    written = {"format": topics.create(), "foreach_batch": topics.create()}
    variables = {"PYSPARK_PYTHON": "./environment/bin/kafka-nb-python"}
    done = run(variables, *(f"{how}={topic}" for how, topic in written.items()))
    assert done.returncode == 0, done.stderr
    for topic in written.values():
        imported = origins(topics.read(topic))
        assert sorted(imported) == ["worker-0", "worker-1"]
        for prefix, pyspark, sink in imported.values():
            assert prefix.name == "environment"
            assert Path(sink).is_relative_to(prefix)
            assert Path(pyspark).is_relative_to(prefix)


def test_pyspark_driver_python_reaches_the_tasks_of_the_format_only(run, topics):
    """Spark's own guide sets it for such an environment; on the workers it is another Python."""
    variables = {"PYSPARK_PYTHON": "./environment/bin/python", "PYSPARK_DRIVER_PYTHON": "python"}
    variables["PATH"] = f"{BIN}:{os.environ['PATH']}"
    by_function, by_format = topics.create(), topics.create()
    done = run(variables, f"foreach_batch={by_function}", f"format={by_format}")
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'pyarrow'" in done.stderr
    assert topics.read(by_format) == []
    imported = origins(topics.read(by_function))
    assert sorted(imported) == ["worker-0", "worker-1"]
    for prefix, pyspark, sink in imported.values():
        assert Path(sink).is_relative_to(prefix)
        assert "pyspark.zip" in pyspark  # Spark's, as without kafka-nb-python
