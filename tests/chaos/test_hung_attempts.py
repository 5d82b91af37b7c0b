"""Attempts that outlive their deadlines are found while the run goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
from evidence import ATTEMPTS
from hung_attempts import HungAttempts


@pytest.fixture
def worker(tmp_path):
    """A process of the run at this folder."""
    with subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)"],
        env=os.environ | {"CHAOS_FOLDER": str(tmp_path)},
    ) as process:
        yield process
        process.kill()


def log(folder, attempt, seconds_ago, pid, **what):
    line = {"attempt": attempt, "at": time.monotonic() - seconds_ago, "pid": pid, **what}
    with (folder / ATTEMPTS).open("a") as attempts:
        attempts.write(json.dumps(line) + "\n")


def begin(folder, attempt, seconds_ago, pid):
    log(folder, attempt, seconds_ago, pid, topic="t", batch=7, partition=1)


def test_an_attempt_that_hangs_is_found_and_killed(tmp_path, worker):
    hung = HungAttempts(tmp_path, seconds=60)
    begin(tmp_path, "a", 50, worker.pid)
    hung.look()
    assert hung.found == []
    begin(tmp_path, "b", 61, worker.pid)
    hung.look()
    (found,) = hung.found
    assert f"t micro-batch 7 partition 1: process {worker.pid} hangs for 61 s" in found
    assert worker.wait(10) < 0
    hung.look()
    assert len(hung.found) == 1


def test_an_attempt_that_ended_is_not_stuck(tmp_path, worker):
    hung = HungAttempts(tmp_path, seconds=60)
    begin(tmp_path, "a", 99, worker.pid)
    log(tmp_path, "a", 98, worker.pid, outcome="DeadlineExceeded")
    hung.look()
    assert hung.found == []


def test_an_attempt_whose_process_is_gone_is_not_stuck(tmp_path):
    hung = HungAttempts(tmp_path, seconds=60)
    begin(tmp_path, "a", 99, os.getpid())  # it lives, but is not of this run
    hung.look()
    assert hung.found == []
