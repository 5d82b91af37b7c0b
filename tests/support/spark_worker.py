"""Runs a task where the sink finds what it looks for in a Python worker of Spark's."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import TypeVar

T = TypeVar("T")


def _main(infile, outfile):
    return outfile()


def run_as_worker(task: Callable[[], T], rows) -> T:
    """Call the task as ``pyspark.worker.main`` would; ``rows`` is the file that brings them."""
    code = _main.__code__.replace(co_name="main")
    return FunctionType(code, {"__name__": "pyspark.worker"})(rows, task)


@contextmanager
def connected(mode: str = "rb") -> Iterator[tuple[socket.socket, object]]:
    """Spark's end of a connection, and the worker's as a file; "rwb": as without a daemon."""
    sparks, workers = socket.socketpair()
    with sparks, workers, workers.makefile(mode) as rows:
        yield sparks, rows
