"""Spark's own master and workers on loopback, on machines whose own Python has no packages."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyspark

from spark_kafka_sink.deadline import Deadline

BIN = Path(sys.executable).parent
_SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
_PYTHON_VARIABLES = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON", "PYTHONPATH", "VIRTUAL_ENV")


@contextmanager
def standalone_cluster(folder: Path, hosts: Sequence[str]) -> Iterator[str]:
    """A master and a worker of one core on each host; gives the master's URL.

    ``hosts``: addresses of loopback; they are started as a service starts them.
    The folder of executor 0 of the first worker is ``worker-0/<application>/0``.
    """
    ports = ["--port", "0", "--webui-port", "0"]
    environment = _bare_environment(folder / "python")
    servers: list[subprocess.Popen[bytes]] = []

    def start(name: str, host: str, *arguments: str, until: str) -> str:
        log = folder / f"{len(servers)}.log"
        command = [_SPARK_CLASS, f"org.apache.spark.deploy.{name}", "--host", host, *ports]
        command += arguments
        with log.open("wb") as file:
            servers.append(subprocess.Popen(command, env=environment, stdout=file, stderr=file))
        deadline = Deadline(60)
        while not (match := re.search(until, log.read_text())):
            assert not deadline.expired, log.read_text()
            assert servers[-1].poll() is None, log.read_text()
            time.sleep(0.1)
        return match[0]

    try:
        master = start("master.Master", "127.0.0.1", until=r"spark://[\w.]+:\d+")
        for number, host in enumerate(hosts):
            limits = ["--cores", "1", "--memory", "1g"]
            limits += ["--work-dir", str(folder / f"worker-{number}")]
            registered = "Successfully registered with master"
            start("worker.Worker", host, *limits, master, until=registered)
        yield master
    finally:
        for server in servers:
            server.terminate()
        for server in servers:
            server.wait(60)


def submit(master: str, *arguments: str | Path) -> list[str | Path]:
    return [BIN / "spark-submit", "--master", master, *arguments]


def remove_this_python(environment: Mapping[str, str]) -> dict[str, str]:
    """``environment``, in which nothing leads to the virtual environment of the tests."""
    path = [entry for entry in environment["PATH"].split(":") if Path(entry) != BIN]
    others = {k: v for k, v in environment.items() if k not in _PYTHON_VARIABLES}
    return others | {"PATH": ":".join(path)}


def _bare_environment(folder: Path) -> dict[str, str]:
    """The first Python of PATH is a new virtual environment without packages."""
    venv.create(folder, symlinks=True)
    environment = remove_this_python(os.environ)
    return environment | {"PATH": f"{folder / 'bin'}:{environment['PATH']}"}
