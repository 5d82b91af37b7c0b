"""The process of the streams: started, killed, started again from the checkpoints, ended."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil

_HERE = Path(__file__).parent
_START_SECONDS = 180.0
_END_SECONDS = 60.0
_KILL_SECONDS = 20.0
_KEPT_LOGS = 40
_CRASH = re.compile(
    r"Assertion .* failed|Fatal Python error: .*|# A fatal error has been detected.*"
)


class StreamProcess:
    """Context manager, which starts nothing by itself and kills what runs at its end."""

    def __init__(
        self, folder: Path, bootstrap_servers: str, milliseconds: int, mutant: str = ""
    ) -> None:
        """``mutant``: a way to break the product, of worker/product_mutants.py."""
        self._folder = folder
        self._mutant = mutant
        self._arguments = [bootstrap_servers, str(milliseconds)]
        self._process: subprocess.Popen[str] | None = None
        self.starts = 0

    def __enter__(self) -> StreamProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        for process in processes_of(self._folder):  # Python workers that have not noticed it yet
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def start(self) -> None:
        """Returns before the streams run."""
        self.starts += 1
        (self._folder / f"streams-{self.starts - _KEPT_LOGS}.log").unlink(missing_ok=True)
        # Last, what this process has: its package may not be the one that is installed.
        inherited = filter(None, [os.environ.get("PYTHONPATH")])
        python_path = [str(_HERE / "worker"), str(_HERE), *inherited]
        environment = {
            "CHAOS_FOLDER": str(self._folder),
            "CHAOS_MUTANT": self._mutant,
            "PYTHONPATH": os.pathsep.join(python_path),
            "PYSPARK_PYTHON": str(Path(sys.executable).parent / "kafka-nb-python"),
        }
        with (self._folder / f"streams-{self.starts}.log").open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(_HERE / "stream_app.py"), *self._arguments],
                env=os.environ | environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                text=True,
                start_new_session=True,  # Ctrl-C is for us: we end it in order
            )

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def crashes(self) -> list[str]:
        """What the streams' processes said when they crashed, Python workers too."""
        return [
            crash.group()
            for log in sorted(self._folder.glob("streams-*.log"))
            for crash in _CRASH.finditer(log.read_text(errors="replace"))
        ]

    def send_command(self, *words: object) -> None:
        """A line for the process, as stream_app.py explains; it may be gone."""
        assert self._process is not None
        assert self._process.stdin is not None
        with suppress(BrokenPipeError, ValueError):  # ValueError: it was killed
            self._process.stdin.write(f"{' '.join(map(str, words))}\n")
            self._process.stdin.flush()

    def stop(self) -> bool:
        """Let the running micro-batches be interrupted; returns whether it ended in time."""
        assert self._process is not None
        self.send_command("end")
        try:
            return self._process.wait(_END_SECONDS) == 0
        except subprocess.TimeoutExpired:
            return False

    def kill(self) -> None:
        """SIGKILL to Spark's driver, Java and Python, as if its machine had stopped.

        Python workers are in groups of their own, and end by themselves, when they notice.
        """
        if self._process is None:
            return
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(_KILL_SECONDS)
        if self._process.stdin:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def workers(self) -> list[int]:
        """Process ids of Spark's Python workers, which its daemons fork."""
        return sorted(
            process.pid
            for process in processes_of(self._folder)
            if _is_sparks_python(process) and _is_sparks_python(_parent(process))
        )


def processes_of(folder: Path) -> list[psutil.Process]:
    """All processes of a run's streams that are alive, whoever started them."""
    processes = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and _belongs_to(process, folder):
                processes.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue  # it has ended, or is not ours
    return processes


def _belongs_to(process: psutil.Process, folder: Path) -> bool:
    is_alive = process.status() != psutil.STATUS_ZOMBIE
    return is_alive and process.environ().get("CHAOS_FOLDER") == str(folder)


def _is_sparks_python(process: psutil.Process | None) -> bool:
    """Whether it is a daemon, or a worker that a daemon has forked."""
    try:
        return process is not None and "pyspark.daemon" in process.cmdline()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return False


def _parent(process: psutil.Process) -> psutil.Process | None:
    try:
        return process.parent()
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
