from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from waiting import wait_until

from spark_kafka_sink.errors import LocalServerError
from spark_kafka_sink.tools.local_servers import processes
from spark_kafka_sink.tools.local_servers.processes import (
    GuardedProcess,
    has_argument,
    is_running,
    send_signal,
)

SLEEP = [sys.executable, "-c", "import time; time.sleep(60)"]
FAR = "x" * 5000 + "-the-end"

HOLDER = """
import sys, time
from pathlib import Path
from spark_kafka_sink.tools.local_servers.processes import GuardedProcess
guarded = GuardedProcess(sys.argv[2:], Path(sys.argv[1]))
print(guarded.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture(params=["proc", "ps"])
def source(request, tmp_path, monkeypatch):
    """Run each test with Linux's /proc, and with ps as on macOS."""
    if request.param == "ps":
        monkeypatch.setattr(processes, "_PROC", tmp_path / "proc")
    elif not Path("/proc/self/stat").exists():
        pytest.skip("no /proc here")
    else:
        monkeypatch.setenv("PATH", str(tmp_path))  # no ps


@pytest.fixture
def sleeper():
    with subprocess.Popen([*SLEEP, FAR]) as process:
        wait_until(lambda: has_argument(process.pid, FAR))  # the kernel sets them after the start
        yield process
        process.kill()


def wait_until_ended(pid):
    wait_until(lambda: not is_running(pid))


def test_a_process_runs_until_it_ends_even_if_nobody_reaps_it(source, sleeper):
    assert is_running(sleeper.pid)
    sleeper.kill()
    wait_until_ended(sleeper.pid)
    assert sleeper.returncode is None
    sleeper.wait()
    assert not is_running(sleeper.pid)


def test_arguments_are_seen_whole_in_a_narrow_terminal(source, sleeper, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert has_argument(sleeper.pid, "-the-end")
    assert not has_argument(sleeper.pid, "-the-end-of-another")
    sleeper.kill()
    wait_until_ended(sleeper.pid)
    assert not has_argument(sleeper.pid, "-the-end")


def test_neither_proc_nor_ps_is_an_error_that_names_both(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_PROC", tmp_path / "proc")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalServerError, match="Mount /proc, or install ps"):
        is_running(os.getpid())


def test_a_signal_to_a_process_that_has_ended_does_nothing(sleeper):
    sleeper.kill()
    sleeper.wait()
    send_signal(sleeper.pid, signal.SIGTERM)


def test_a_process_of_another_user_is_an_error_that_says_so(monkeypatch):
    def forbidden(pid, number):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "kill", forbidden)
    with pytest.raises(LocalServerError, match="process 1 belongs to another user"):
        send_signal(1, signal.SIGTERM)


@pytest.mark.parametrize("is_suspended", [False, True])
def test_a_guarded_process_ends_on_request(tmp_path, is_suspended):
    guarded = GuardedProcess([*SLEEP, FAR], tmp_path / "log")
    assert is_running(guarded.pid)
    if is_suspended:
        send_signal(guarded.pid, signal.SIGSTOP)
    guarded.end()
    wait_until_ended(guarded.pid)


def test_a_guarded_process_ends_when_its_caller_is_killed(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "log"), *SLEEP]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        pid = int(holder.stdout.readline())
        assert is_running(pid)
        holder.kill()
    wait_until_ended(pid)


def test_a_released_process_stays(tmp_path):
    guarded = GuardedProcess([*SLEEP, FAR], tmp_path / "log")
    try:
        guarded.release()
        time.sleep(0.3)  # as long as its guard would take to end it
        assert is_running(guarded.pid)
    finally:
        send_signal(guarded.pid, signal.SIGKILL)


def test_a_process_whose_guard_is_gone_cannot_be_released_but_ended(tmp_path):
    guarded = GuardedProcess([*SLEEP, FAR], tmp_path / "log")
    # Until then it is a copy of its guard, with the same input.
    process = psutil.Process(guarded.pid)
    wait_until(lambda: process.cmdline()[: len(SLEEP)] == SLEEP)
    guard = process.parent()
    guard.kill()
    guard.wait()
    with pytest.raises(BrokenPipeError):
        guarded.release()
    guarded.end()
    wait_until_ended(guarded.pid)
