"""The process of the streams: started, killed, started again from the checkpoints, ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

_HERE = Path(__file__).parent
_START_SECONDS = 180.0
_END_SECONDS = 60.0
_KILL_SECONDS = 20.0
_KEPT_LOGS = 10


class StreamProcess:
    """Context manager, which starts nothing by itself. ``kills``: when workers were killed."""

    def __init__(self, folder: Path, bootstrap_servers: str, milliseconds: int) -> None:
        self._folder = folder
        self._arguments = [bootstrap_servers, str(milliseconds)]
        self._process: subprocess.Popen[str] | None = None
        self.starts = 0
        #: its first line: the Spark partition of every key
        self.spark_partition_of_key: list[int] = []

    def __enter__(self) -> StreamProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def start(self) -> None:
        """Returns before the streams run."""
        self.starts += 1
        (self._folder / f"streams-{self.starts - _KEPT_LOGS}.log").unlink(missing_ok=True)
        python_path = [str(_HERE / "worker"), str(_HERE)]
        environment = {
            "CHAOS_FOLDER": str(self._folder),
            "PYTHONPATH": os.pathsep.join(python_path),
            "PYSPARK_PYTHON": sys.executable,
        }
        with (self._folder / f"streams-{self.starts}.log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(_HERE / "stream_app.py"), *self._arguments],
                env=os.environ | environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for us: we end it in order
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop(self) -> bool:
        """Let the running micro-batches be interrupted; returns whether it ended in time."""
        assert self._process is not None
        try:
            out, _ = self._process.communicate("stop\n", timeout=_END_SECONDS)
        except subprocess.TimeoutExpired:
            return False
        self.spark_partition_of_key = json.loads(out.splitlines()[0])
        return self._process.returncode == 0

    def kill(self) -> None:
        """SIGKILL to Spark's driver, Java and Python, as if its machine had stopped.

        Python workers are in groups of their own, and end by themselves, when they notice.
        """
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_KILL_SECONDS)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                pipe.close()

    def workers(self) -> list[int]:
        """Process ids of Spark's Python workers, which its daemons fork."""
        return sorted(
            process.pid
            for process in of_run(self._folder)
            if "pyspark.daemon" in _command(process) and "pyspark.daemon" in _command_of_parent(process)
        )


def of_run(folder: Path) -> list[psutil.Process]:
    """All processes of a run's streams that are alive, whoever started them."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and _belongs_to(process, folder):
                found.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # it has ended, or is not ours
    return found


def _belongs_to(process: psutil.Process, folder: Path) -> bool:
    is_alive = process.status() != psutil.STATUS_ZOMBIE
    return is_alive and process.environ().get("CHAOS_FOLDER") == str(folder)


def _command(process: psutil.Process | None) -> str:
    try:
        return " ".join(process.cmdline()) if process else ""
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""


def _command_of_parent(process: psutil.Process) -> str:
    try:
        return _command(process.parent())
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return ""
