"""Runs pytest again and again while every core is busy: ``busy.py RUNS [pytest arguments]``.

Several runs share the busy cores, so each of them is slower than on the slowest machine we know.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager

RUN_SECONDS = 3600.0
AT_A_TIME = 8

# In a process group of its own, because Ctrl-C is for us: we end them in order. Not in a session of
# its own, to which Linux may give as much of the cores as to all tests (sched_autogroup).
# Also ends if its parent is killed.
BURN = """
import os
os.setpgrp()
parent = os.getppid()
while os.getppid() == parent:
    sum(range(100_000))
"""


@contextmanager
def busy_cores() -> Iterator[None]:
    burners = [subprocess.Popen([sys.executable, "-c", BURN]) for _ in range(os.cpu_count() or 1)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
        for burner in burners:
            burner.wait()


def main(runs: int, arguments: list[str]) -> int:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    with busy_cores(), ThreadPoolExecutor(AT_A_TIME) as pool:
        waiting = [pool.submit(outcome, command) for _ in range(runs)]
        for number, done in enumerate(as_completed(waiting), start=1):
            code, output, seconds = done.result()
            if code != 0:
                pool.shutdown(wait=False, cancel_futures=True)
                print(output)
                print(f"a run failed after {seconds:.0f} s; {number - 1} of {runs} had passed")
                return code
            print(f"{number} of {runs} passed, the last one in {seconds:.0f} s", flush=True)
    print(f"{runs} of {runs} runs passed")
    return 0


def outcome(command: list[str]) -> tuple[int, str, float]:
    """Exit code, output and seconds of a command; one that takes too long is ended."""
    started = time.monotonic()
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        try:
            code = subprocess.run(
                command,
                env={**os.environ, "HYPOTHESIS_PROFILE": "repeated"},
                stdout=output,
                stderr=output,
                timeout=RUN_SECONDS,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            code = 1
        output.seek(0)
        return code, output.read(), time.monotonic() - started


if __name__ == "__main__":
    try:
        sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
    except KeyboardInterrupt:
        sys.exit("interrupted")
