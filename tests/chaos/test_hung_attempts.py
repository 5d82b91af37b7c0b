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


def begin(folder, attempt, seconds_ago, pid, topic="t"):
    log(folder, attempt, seconds_ago, pid, topic=topic, batch=7, partition=1)


def test_an_attempt_that_hangs_is_found_and_killed(tmp_path, worker):
    hung = HungAttempts(tmp_path, seconds=1)
    begin(tmp_path, "a", 0, worker.pid)
    time.sleep(1)
    hung.look()
    (sentence,) = hung.sentences
    assert f"t micro-batch 7 partition 1: process {worker.pid} hangs for " in sentence
    assert worker.wait(10) < 0
    hung.look()
    assert len(hung.sentences) == 1


def test_a_later_attempt_of_the_process_ends_the_former(tmp_path, worker):
    hung = HungAttempts(tmp_path, seconds=3)
    begin(tmp_path, "a", 0, worker.pid)
    hung.look()
    time.sleep(3)
    begin(tmp_path, "b", 0, worker.pid)
    hung.look()
    assert hung.sentences == []


def test_another_stream_of_the_process_does_not_end_an_attempt(tmp_path, worker):
    hung = HungAttempts(tmp_path, seconds=1)
    begin(tmp_path, "a", 0, worker.pid)
    begin(tmp_path, "b", 0, worker.pid, topic="other")
    time.sleep(1)
    hung.look()
    assert hung.sentences[0].startswith("t micro-batch 7")


def test_a_younger_process_with_the_same_number_is_left_alone(tmp_path, worker):
    hung = HungAttempts(tmp_path, seconds=60)
    begin(tmp_path, "a", 99, worker.pid)
    hung.look()
    assert hung.sentences == []
    assert worker.poll() is None


def test_an_attempt_that_ended_is_not_stuck(tmp_path, worker):
    hung = HungAttempts(tmp_path, seconds=1)
    begin(tmp_path, "a", 0, worker.pid)
    log(tmp_path, "a", 0, worker.pid, outcome="DeadlineExceeded")
    time.sleep(1)
    hung.look()
    assert hung.sentences == []


def test_a_process_that_is_not_of_this_run_is_left_alone(tmp_path):
    hung = HungAttempts(tmp_path, seconds=0)
    begin(tmp_path, "a", 0, os.getpid())
    hung.look()
    assert hung.sentences == []
