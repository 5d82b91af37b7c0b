"""Imports of Spark's Python workers, each in a new process: plain Python and kafka-nb-python.

With the PYTHONPATH that Spark sets; the two are interleaved. Fails unless kafka-nb-python takes at
most half of the CPU time. Argument: rounds (default 10).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from pathlib import Path

import pyspark
from common import argument, spread, table, write_table

PLAIN, OURS = "python3", "kafka-nb-python"
# What a micro-batch of a Python sink needs; each runs in a process of its own.
WORKERS = {
    "look-up": "pyspark.sql.worker.lookup_data_sources",
    "planning": "pyspark.sql.worker.write_into_data_source",
    "task": "pyspark.worker",
    "commit": "pyspark.sql.worker.python_streaming_sink_runner",
}
MAX_RATIO = 0.5


def main() -> None:
    rounds = argument(1, 10)
    figures: dict[str, dict[str, list[float]]] = {
        worker: {PLAIN: [], OURS: []} for worker in WORKERS
    }
    for _ in range(rounds + 1):
        for worker, commands in figures.items():
            for command, seconds in commands.items():
                seconds.append(cpu_seconds(command, WORKERS[worker]))
    for commands in figures.values():
        for seconds in commands.values():
            del seconds[0]  # until then, files may come from the disk, and byte code be missing
    ratios = {
        worker: [b / a for a, b in zip(commands[PLAIN], commands[OURS], strict=True)]
        for worker, commands in figures.items()
    }
    rows = [
        (worker, spread(commands[PLAIN]), spread(commands[OURS]), spread(ratios[worker]))
        for worker, commands in figures.items()
    ]
    head = ("Python worker", f"{PLAIN}, CPU s", f"{OURS}, CPU s", "ratio")
    write_table("cold_import", table(head, rows))
    for worker, values in ratios.items():
        median = statistics.median(values)
        assert median <= MAX_RATIO, f"{worker}: {OURS} takes {median:.2f} times the CPU time"


def cpu_seconds(command: str, module: str) -> float:
    """The CPU seconds of a process that imports what Spark's Python daemon and the worker do."""
    home = Path(pyspark.__file__).parent
    archives = [*home.glob("python/lib/*.zip"), *home.glob("jars/spark-core_*.jar")]
    archives.sort(key=lambda archive: archive.name != "pyspark.zip")  # first, as in Spark
    environment = {**os.environ, "PYTHONPATH": ":".join(map(str, archives))}
    program = str(Path(sys.executable).with_name(command))
    imports = f"import pyspark.daemon, {module}"
    with subprocess.Popen([program, "-c", imports], env=environment) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
