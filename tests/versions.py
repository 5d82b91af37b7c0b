"""Tests what setup.cfg claims: versions.py [--smoke] [NAME ...], two at a time.

``lowest``: the lowest versions on the lowest Python. ``newest``: those that pip finds today, on the
newest Python of this machine. ``3.5`` and so on: the newest patch of that PySpark and the newest
pandas, with the other packages of this Python. Without names it tests all of them; with
``--smoke``, which only writes and reads back, each PySpark that this Python does not have.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from spark_kafka_sink.tools.local_kafka import LocalKafka
from spark_kafka_sink.tools.local_servers.java import cache_folder

ROOT = Path(__file__).parents[1]
NEWEST_MINOR = 30  # look for Pythons below this minor version
SPARKS = ("3.5", "4.0", "4.1", "4.2", "4.3")
NAMES = ("lowest", "newest", *SPARKS)
SMOKE = ["tests/integration/test_every_spark.py"]
FILES = (
    "columns dead_letters doctor end_of_rows exactly_once foreach_batch job patch reports"
    " schema_registry streaming warm_up"
)
TESTS = ["tests/unit", "tests/mock_broker", *SMOKE]
TESTS += [f"tests/integration/test_{name}.py" for name in FILES.split()]
EXTRAS = ("spark", "jobs", "report", "metrics", "registry")
AT_A_TIME = 2
SECONDS = 3600.0  # for each command: some download Spark

# A shim of pyenv is on the PATH but does not run, and Debian's Python may lack venv.
USABLE = "import ensurepip, sys, venv; sys.exit(sys.version_info.releaselevel != 'final')"

# What PySpark itself does; up to 4.1 it leaves the sockets of collect() to the garbage collector.
WARNINGS = (
    "unclosed <socket:ResourceWarning",
    "distutils Version classes are deprecated:DeprecationWarning",
    "The distutils package is deprecated:DeprecationWarning",
    "PySpark does not yet fully support pandas:FutureWarning",
)

SHOW_VERSIONS = """
import platform
from importlib.metadata import version
names = "pyspark", "pandas", "numpy", "pyarrow", "confluent-kafka"
print("Python", platform.python_version(), *(f"{name} {version(name)}" for name in names))
"""


def lower_bound(requirement: str) -> tuple[str, str]:
    """``("numpy", "1.26")`` of ``numpy>=1.26``, also with extras."""
    match = re.match(r"([\w.-]*)(?:\[\w+\])?>=([\d.]+)", requirement)
    if not match:
        raise SystemExit(f"setup.cfg: {requirement} has no lower bound")
    return match[1], match[2]


def claims() -> tuple[int, list[str]]:
    """The lowest minor version of Python 3, and the lowest dependencies."""
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    options, extras = setup["options"], setup["options.extras_require"]
    _, python = lower_bound(options["python_requires"])
    needs = options["install_requires"] + "".join(extras[name] for name in EXTRAS)
    requirements = sorted({*needs.split()})
    lowest = [f"{name}=={version}.*" for name, version in map(lower_bound, requirements)]
    # Version 3.3 warns of former names, which matplotlib 3.9 uses.
    lowest.append("pyparsing<3.3")
    return int(python.partition(".")[2]), lowest


def interpreters(version: str) -> Iterator[str]:
    """Candidates on the PATH, then pyenv's, then /usr/bin's."""
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from filter(None, [shutil.which(name)])
    yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/{name}")))
    yield from filter(None, [shutil.which(name, path="/usr/bin:/usr/local/bin")])


def find_python(minor: int) -> str | None:
    for candidate in interpreters(f"3.{minor}"):
        check = [candidate, "-c", USABLE]
        if subprocess.run(check, capture_output=True, timeout=60, check=False).returncode == 0:
            return candidate
    return None


def run(command: list[str], **variables: str) -> str:
    """What the command prints; raises SubprocessError if it fails."""
    return subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=True,
    ).stdout


def build_wheel(folder: str) -> str:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
    run([*command, "--wheel-dir", folder, "."])
    (wheel,) = Path(folder).glob("*.whl")
    return str(wheel)


def make_environment(name: str, wheel: str) -> str:
    """Create ``.venv-<name>``, even if there is one, and return its Python."""
    lowest_minor, lowest_versions = claims()
    minors, versions = list(range(lowest_minor, NEWEST_MINOR)), lowest_versions
    if name == "newest":
        minors, versions = minors[::-1], []
    base = next(filter(None, map(find_python, minors)), sys.executable)
    python = str(ROOT / f".venv-{name}" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet"]
    run([base, "-m", "venv", "--clear", str(ROOT / f".venv-{name}")])
    run([*install, "--upgrade", "pip"])
    run([*install, f"{wheel}[{','.join(EXTRAS)},test]", *versions])
    return python


def fetch_spark(minor: str) -> str:
    """The folder of the newest patch of that PySpark and the newest pandas; it is kept."""
    environment = str(cache_folder() / f"pyspark-{minor}")
    run([sys.executable, "-m", "venv", "--without-pip", environment])
    install = [sys.executable, "-m", "pip", "--python", environment, "install", "--quiet"]
    # Most of its modules are not imported, and its wheel, which pip builds, is needed once.
    fast = ["--no-compile", "--config-settings=--build-option=--compression=stored"]
    run([*install, *fast, "--upgrade", f"pyspark=={minor}.*", "pandas"])
    return sysconfig.get_path("purelib", vars={"base": environment})


def has_passed(name: str, tests: list[str], wheel: str, bootstrap_servers: str) -> bool:
    variables = {"KAFKA_BOOTSTRAP_SERVERS": bootstrap_servers}
    started = time.monotonic()
    output = ""
    try:
        python = sys.executable if name in SPARKS else make_environment(name, wheel)
        if name in SPARKS:
            variables["PYTHONPATH"] = fetch_spark(name)
        output = run([python, "-c", SHOW_VERSIONS], **variables)
        output += f"made in {time.monotonic() - started:.0f} s\n"
        # Not with `python -m`, which would find the package in this folder instead.
        # With time for the first test, which downloads JARs.
        pytest = [str(Path(python).with_name("pytest")), "-q", "-m", "not slow", "--timeout=600"]
        pytest += [f"-Wignore:{warning}" for warning in WARNINGS]
        output += run([*pytest, *tests], **variables)
        outcome = "passed"
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        output += f"{error.stdout}\n{error}\n"
        outcome = "FAILED"
    seconds = time.monotonic() - started
    print(f"== {name}: {output}== {name}: {outcome} in {seconds:.0f} s", flush=True)
    return outcome == "passed"


def main() -> int:
    is_smoke = "--smoke" in sys.argv
    names = [argument for argument in sys.argv[1:] if argument != "--smoke"]
    if unknown := set(names) - set(NAMES):
        raise SystemExit(f"{', '.join(unknown)}: none of {', '.join(NAMES)}")
    if is_smoke:
        installed, _, _ = metadata.version("pyspark").rpartition(".")
        names = names or [minor for minor in SPARKS if minor != installed]
    names = names or [*NAMES]
    if "3.5" in names and find_spec("distutils") is None:
        print("3.5: not tested, because PySpark 3.5 needs Python 3.11 or earlier (distutils)")
        names.remove("3.5")
    with (
        tempfile.TemporaryDirectory() as scratch,
        LocalKafka() as kafka,
        ThreadPoolExecutor(AT_A_TIME) as pool,
    ):
        wheel = "" if set(names) <= set(SPARKS) else build_wheel(scratch)
        arguments = SMOKE if is_smoke else TESTS, wheel, kafka.bootstrap_servers
        return 0 if all([*pool.map(lambda name: has_passed(name, *arguments), names)]) else 1


if __name__ == "__main__":
    sys.exit(main())
