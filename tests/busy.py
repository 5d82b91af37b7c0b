"""Runs pytest again and again while every core is busy: ``busy.py RUNS [pytest arguments]``."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

RUN_SECONDS = 3600.0

# Ends with its parent too, should that be killed before it can end us.
BURN = """
import os
parent = os.getppid()
while os.getppid() == parent:
    sum(range(100_000))
"""


@contextmanager
def busy_cores() -> Iterator[None]:
    burners = [
        # A session of its own: Ctrl-C is for us, and we end these in order.
        subprocess.Popen([sys.executable, "-c", BURN], start_new_session=True)
        for _ in range(os.cpu_count() or 1)
    ]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
        for burner in burners:
            burner.wait()


def main(runs: int, arguments: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    with busy_cores():
        for run in range(1, runs + 1):
            started = time.monotonic()
            code, output = outcome(command)
            seconds = time.monotonic() - started
            if code != 0:
                print(output)
                print(f"run {run} of {runs} failed after {seconds:.0f} s")
                return code
            print(f"run {run} of {runs} passed in {seconds:.0f} s", flush=True)
    print(f"{runs} of {runs} runs passed")
    return 0


def outcome(command: list[str]) -> tuple[int, str]:
    """Exit code and output of a command; one that takes too long is ended."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        try:
            code = subprocess.run(
                command, stdout=output, stderr=output, timeout=RUN_SECONDS, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            code = 1
        output.seek(0)
        return code, output.read()


if __name__ == "__main__":
    try:
        sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
    except KeyboardInterrupt:
        sys.exit("interrupted")
