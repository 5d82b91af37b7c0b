"""A driver in a process of its own, whose queries are held at steps of their micro-batches."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from streams import FROM_DRIVER

#: of a micro-batch, in their order
STEPS = [
    "before the ledger is read",
    "before the first row",
    "between two record batches",
    "before the commit",
    "before the marker",
    "before Spark's commit file",
]
#: those after which the micro-batch is in Kafka
COMMITTED = STEPS[4:]
SECONDS = 500.0  # a session's start and its first micro-batches, on a very busy machine
_APP = Path(__file__).with_name("held_driver_app.py")


def words_of(batch):
    """The rows of a micro-batch, enough for several record batches of the session."""
    return [f"{batch}-{letter}" for letter in "abcde"]


def options(servers, topic):
    return {
        "kafka.bootstrap.servers": servers,
        "topic": topic,
        "delivery.guarantee": "exactly-once",
        "transactional.id.prefix": topic,
        # They go on while a driver is held.
        "close.timeout.ms": "600000",
        "kafka.max.block.ms": "600000",
        **FROM_DRIVER,
    }


class HeldDriver:
    """The queries have come to their steps when it is entered. It is killed at the end.

    ``held``: a step and a micro-batch for each topic. The words and the checkpoint of a query are
    in ``folder / topic``.
    """

    def __init__(self, servers, folder, held):
        self._folder = folder
        for topic in held:
            (folder / topic).mkdir()
        with (folder / "stderr").open("w") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, _APP, servers, folder, json.dumps(held)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                start_new_session=True,  # so that a signal reaches its Java, too
            )

    def __enter__(self):
        try:
            self.java_pid = self._line()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *error):
        self.kill()

    @property
    def pid(self):
        return self._process.pid

    def go_on(self):
        """Let the queries go on; returns their errors, which may be empty, by topic."""
        print(file=self._process.stdin, flush=True)
        return self._line()

    def kill(self):
        """Python and Java, as if their machine had stopped."""
        if self._process.returncode is None:
            self._send_kill()
            self._process.wait(SECONDS)
            self._process.stdin.close()
            self._process.stdout.close()

    def _send_kill(self):
        os.killpg(self._process.pid, signal.SIGKILL)

    def _line(self):
        timer = threading.Timer(SECONDS, self._send_kill)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        assert line, (self._folder / "stderr").read_text()
        return json.loads(line)
