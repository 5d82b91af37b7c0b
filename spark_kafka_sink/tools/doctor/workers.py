"""Checks of the Python of Spark's workers, here and on the executors: packages and limits."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.libraries import REQUIREMENTS
from spark_kafka_sink.threads import call_all
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.result import (
    Finding,
    failed,
    not_applicable,
    passed,
    skipped,
    warned,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LAUNCHER = "kafka-nb-python"
_CONFIGURED = "spark.pyspark.python"
#: what takes precedence over PYSPARK_PYTHON, and how to be rid of it
_PRECEDING = {"PYSPARK_DRIVER_PYTHON": "unset", _CONFIGURED: "remove"}

# Reports what a Python would import, without importing it, and its limits: MiB, processes, threads.
_PROBE_FUNCTION = """
def probe(names):
    import json, os, resource, socket, sys
    from importlib.metadata import PackageNotFoundError, version
    from importlib.util import find_spec
    packages = {}
    for name in names:
        if find_spec(name) is not None:
            try:
                packages[name] = version(name)
            except PackageNotFoundError:
                packages[name] = ""
    memory = resource.getrlimit(resource.RLIMIT_AS)[0]
    threads = [resource.getrlimit(resource.RLIMIT_NPROC)[0]]
    for path in ("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"):
        try:
            with open(path) as file:
                threads.append(int(file.read()))
        except (OSError, ValueError):
            pass
    threads = [number for number in threads if number != resource.RLIM_INFINITY]
    return json.dumps({
        "memory_mib": None if memory == resource.RLIM_INFINITY else memory >> 20,
        "has_small_pools": os.environ.get("ARROW_DEFAULT_MEMORY_POOL") == "system",
        "threads": min(threads, default=None),
        "host": socket.gethostname(),
        "path": sys.executable,
        "python": list(sys.version_info[:2]),
        "packages": packages,
    })
"""
# What is in the current folder, which -c puts on the path, is not installed.
_PROBE_SCRIPT = f"""
import sys
sys.path = [entry for entry in sys.path if entry]
{_PROBE_FUNCTION}
print(probe(sys.argv[1:]))
"""
#: what a task imports, apart from pyspark, which Spark itself provides
_NEEDED = ("spark_kafka_sink", "pyspark_kafka_nb", "confluent_kafka", "numpy", "pyarrow")
_PROBED = (*_NEEDED, "pyspark")
_COMPARED = ("spark_kafka_sink", "pyspark")

_TASKS_WITH_CONNECT = 16
# The last line that a worker wrote, or which program is missing; the first cause names neither.
_WORKERS_ERROR = re.compile(r".+(?=\s+PYTHONPATH was:)|Cannot run program .+")

# docs/tuning.md, small workers
_MIN_MIB = 600
_MIN_MIB_WITHOUT_LAUNCHER = 2048
_MIN_THREADS = 256


@dataclass(frozen=True)
class WorkersPython:
    """A command that Spark starts as Python, the setting that names it, and its program's path."""

    command: str
    source: str
    path: str | None


def workers_pythons(
    environment: Mapping[str, str], spark: SparkSession | None
) -> list[WorkersPython]:
    """The Pythons that Spark starts, usually one.

    Data sources that Spark looks up by name run in that of PYSPARK_DRIVER_PYTHON, even their tasks.
    Everything else runs in that of ``spark.pyspark.python``.
    """
    variables = ("PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON")
    for_formats = next((name for name in variables if environment.get(name)), None)
    sources = {_command_of(environment, for_formats): for_formats}
    sources.setdefault(_command_of(environment, "PYSPARK_PYTHON"), "PYSPARK_PYTHON")
    configured = spark.conf.get(_CONFIGURED, "") if spark is not None else ""
    if configured:
        sources.setdefault(configured, _CONFIGURED)
    return [
        WorkersPython(command, source or "", shutil.which(command, path=environment.get("PATH")))
        for command, source in sources.items()
    ]


def _command_of(environment: Mapping[str, str], variable: str | None) -> str:
    return (environment.get(variable) if variable else None) or "python3"


def _use_this_python(source: str) -> str:
    """What makes Spark start this Python, with the launcher if it is installed.

    ``source``: the setting that names the present one; only PYSPARK_PYTHON need not go.
    """
    launcher = Path(sys.executable).with_name(LAUNCHER)
    command = f"export PYSPARK_PYTHON={launcher if launcher.exists() else sys.executable}"
    if source in _PRECEDING:
        return f"{_PRECEDING[source]} {source}, and {command}"
    return command


def spark_python(context: CheckContext) -> list[Finding]:
    """Spark finds the Python of its workers."""
    if find_spec("pyspark") is None:
        return [skipped("pyspark is not installed here: run doctor where the driver runs")]
    findings = []
    for python in workers_pythons(os.environ, context.spark):
        if python.path is None:
            findings.append(
                failed(
                    f"{python.source or 'the default'} names no program on PATH",
                    f"Correct it; for this Python: {_use_this_python(python.source)}",
                    python.command,
                )
            )
        elif python.source:
            findings.append(passed(f"{python.path} ({python.source})", python.command))
        else:
            findings.append(passed(f"{python.path}: PYSPARK_PYTHON is not set", python.command))
    return findings


def spark_packages(context: CheckContext) -> list[Finding]:
    """That Python has the driver's version of this package, its dependencies, and enough room."""
    from spark_kafka_sink.spark.private_api import NO_FORMAT, has_data_sources, is_remote

    if _is_sent_from_driver(context) and not is_remote():  # behind Connect, a worker sends
        findings = [not_applicable("the driver sends the rows")]
    else:
        pythons = workers_pythons(os.environ, context.spark)
        findings = [_check_packages(python, context.deadline) for python in pythons]
    if has_data_sources():
        return findings
    if find_spec("pandas") is None:
        missing = failed(
            f"{NO_FORMAT}, which needs pandas", f"pip install {REQUIREMENTS['pandas']}"
        )
        return [*findings, missing]
    return [*findings, passed(NO_FORMAT)]


def _is_sent_from_driver(context: CheckContext) -> bool:
    return context.parsed is not None and context.parsed.is_sent_from_driver


def _check_packages(python: WorkersPython, deadline: Deadline) -> Finding:
    try:
        answer = _run_probe(python, deadline)
    except subprocess.TimeoutExpired:
        return failed("no answer in time", "Raise --timeout, or correct the path", python.command)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        return failed(
            f"does not run as Python: {type(error).__name__}",
            _switch_advice(python.source),
            python.command,
        )
    return _compare(answer, python.command, python.source)


def _switch_advice(source: str) -> str:
    return f"Let Spark start the Python of the driver: {_use_this_python(source)}"


def _compare(answer: Any, subject: str, source: str) -> Finding:
    """The finding for the answer of ``probe``; ``source``: of ``WorkersPython``."""
    packages: dict[str, str] = answer["packages"]
    missing = [name for name in _NEEDED if name not in packages]
    if missing:
        return failed(
            f"{', '.join(missing)} not installed in {answer['path']}. Spark will report "
            "DATA_SOURCE_NOT_FOUND or ModuleNotFoundError",
            f"{_switch_advice(source)}; or install spark-kafka-sink there",
            subject,
        )
    if answer["python"] != list(sys.version_info[:2]):
        theirs = ".".join(map(str, answer["python"]))
        drivers = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return failed(
            f"is Python {theirs}, but the driver is Python {drivers}. "
            "Spark will report PYTHON_VERSION_MISMATCH",
            _switch_advice(source),
            subject,
        )
    driver = {name: import_module(name).__version__ for name in _COMPARED}
    # pyspark may be missing there, because Spark puts its own on the path, or have no metadata.
    differing = [
        f"{name} {packages[name]} (driver: {driver[name]})"
        for name in _COMPARED
        if packages.get(name) and packages[name] != driver[name]
    ]
    if differing:
        return warned(
            f"has {' and '.join(differing)}",
            "Install the same versions on the driver and on all executors",
            subject,
        )
    if (finding := _check_limits(answer, subject)) is not None:
        return finding
    shown = (f"{name} {packages[name]}".strip() for name in _COMPARED if name in packages)
    return passed(", ".join(shown), subject)


def _check_limits(answer: Any, subject: str) -> Finding | None:
    """A warning if a limit is lower than the lowest that was tried (docs/tuning.md)."""
    memory_mib, threads = answer["memory_mib"], answer["threads"]
    least_mib = _MIN_MIB if answer["has_small_pools"] else _MIN_MIB_WITHOUT_LAUNCHER
    if memory_mib is not None and memory_mib < least_mib:
        return warned(
            f"may reserve {memory_mib} MiB of memory; less than {least_mib} was not tried",
            "Raise or remove spark.executor.pyspark.memory, which is divided by the executor's "
            f"cores, or ulimit -v; {LAUNCHER} needs {_MIN_MIB} MiB (docs/tuning.md)",
            subject,
        )
    if threads is not None and threads < _MIN_THREADS:
        return warned(
            f"may start {threads} processes and threads, with all others of its user or container",
            f"Raise ulimit -u or the container's pids.max to {_MIN_THREADS} or more "
            "(docs/tuning.md)",
            subject,
        )
    return None


def _run_probe(python: WorkersPython, deadline: Deadline) -> Any:
    """The answer of ``probe``; raises OSError, ValueError or SubprocessError if there is none."""
    process = subprocess.run(
        [python.path or python.command, "-c", _PROBE_SCRIPT, *_PROBED],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=deadline.remaining(),
        check=True,
    )
    return json.loads(process.stdout)


def executors(context: CheckContext) -> list[Finding]:
    """The executors' Python is the same, with enough room, and may wait. Needs a session."""
    spark = context.spark
    if spark is None:
        return [not_applicable("needs a running session")]
    from pyspark.sql import functions as F

    from spark_kafka_sink.spark.micro_batch import session_problems
    from spark_kafka_sink.spark.spark_errors import SPARK_ERRORS, reason

    findings = [warned(*problem) for problem in session_problems(spark, context.parsed)]
    if _is_sent_from_driver(context):
        return findings or [not_applicable("the driver sends the rows")]
    source, names = _PROBE_FUNCTION, list(_PROBED)

    # Nested, so that Spark pickles its code, since the executors may lack this package.
    def probe(_: int) -> str:
        scope: dict[str, Any] = {}
        exec(source, scope)  # noqa: S102 - the text above
        return str(scope["probe"](names))

    tasks = _cores(spark)
    rows = spark.range(0, tasks, 1, tasks)
    answers = rows.select(F.udf(probe, useArrow=False)("id").alias("answer")).distinct()
    (call,) = call_all(lambda df: df.collect(), [answers], context.deadline)
    if isinstance(call.error, TimeoutError):
        return [
            *findings,
            warned(
                f"their answers did not arrive within {call.seconds:.1f} s",
                "Raise --timeout; executors may be busy or still starting",
            ),
        ]
    if isinstance(call.error, SPARK_ERRORS):
        workers_own = _WORKERS_ERROR.search(str(call.error))
        what = workers_own[0].strip() if workers_own else reason(call.error)
        return [
            *findings,
            failed(
                f"a task that only inspects its Python fails: {what}",
                "Check that the Python of PYSPARK_PYTHON is installed on every executor",
            ),
        ]
    if call.error is not None:
        raise call.error
    source = _CONFIGURED if spark.conf.get(_CONFIGURED, "") else ""
    for text in sorted(row.answer for row in call.value or ()):
        answer = json.loads(text)
        findings.append(_compare(answer, f"{answer['host']}:{answer['path']}", source))
    return findings


def _cores(spark: SparkSession) -> int:
    from spark_kafka_sink.spark.private_api import is_classic

    return spark.sparkContext.defaultParallelism if is_classic(spark) else _TASKS_WITH_CONNECT
