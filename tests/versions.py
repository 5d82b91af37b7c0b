"""Tests what setup.cfg claims: versions.py [lowest] [newest].

``lowest``: the lowest versions on the lowest Python. ``newest``: those that pip finds today, on the
newest Python of this machine.
"""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
NEWEST_MINOR = 30  # look for Pythons below this minor version
NAMES = ("lowest", "newest")
TESTS = ["tests/unit", "tests/mock_broker", "tests/integration/test_columns.py"]
EXTRAS = ("spark", "jobs", "report", "metrics", "registry", "transactions")
SETUP_SECONDS = 1800.0
TEST_SECONDS = 3600.0

# A shim of pyenv is on the PATH but does not run, and Debian's Python may lack venv.
USABLE = "import ensurepip, sys, venv; sys.exit(sys.version_info.releaselevel != 'final')"


# PySpark 4.1 leaves the sockets of collect() to the garbage collector.
IGNORED = "ignore:unclosed <socket:ResourceWarning"


def lower_bound(requirement: str) -> tuple[str, str]:
    """``("numpy", "1.26")`` of ``numpy>=1.26,<3``; constraints have no extras."""
    found = re.match(r"([\w.-]*)(?:\[\w+\])?>=([\d.]+)", requirement)
    if not found:
        raise SystemExit(f"setup.cfg: {requirement} has no lower bound")
    return found[1], found[2]


def claims() -> tuple[int, list[str]]:
    """The lowest minor version of Python 3, and constraints for the lowest dependencies."""
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


def run(command: list[str], seconds: float) -> bool:
    try:
        return subprocess.run(command, cwd=ROOT, timeout=seconds, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        print(f"not ended after {seconds:.0f} s: {' '.join(command)}", flush=True)
        return False


def tested(name: str, python: str, wheel: Path, constraints: Path) -> bool:
    """Build ``.venv-<name>`` and run the tests in it."""
    environment = ROOT / f".venv-{name}"
    own = str(environment / "bin" / "python")
    install = [own, "-m", "pip", "install", "--quiet", "-c", str(constraints)]
    started = time.monotonic()
    passed = (
        run([python, "-m", "venv", "--clear", str(environment)], SETUP_SECONDS)
        and run([own, "-m", "pip", "install", "--quiet", "--upgrade", "pip"], SETUP_SECONDS)
        and run([*install, f"{wheel}[{','.join(EXTRAS)},test]"], SETUP_SECONDS)
        and run([own, "-m", "pip", "list"], SETUP_SECONDS)
    )
    built = time.monotonic()
    # Not with `python -m`, which would find the package in this folder instead.
    pytest = str(environment / "bin" / "pytest")
    passed = passed and run([pytest, "-q", "-W", IGNORED, *TESTS], TEST_SECONDS)
    ended = time.monotonic()
    print(
        f"{name}: {'passed' if passed else 'FAILED'} with {python} "
        f"(built in {built - started:.0f} s, tests {ended - built:.0f} s)",
        flush=True,
    )
    return passed


def main() -> int:
    chosen = sys.argv[1:] or NAMES
    if unknown := set(chosen) - set(NAMES):
        raise SystemExit(f"{', '.join(unknown)}: neither {' nor '.join(NAMES)}")
    lowest_minor, lowest_versions = claims()
    found = {
        minor: python
        for minor in range(lowest_minor, NEWEST_MINOR)
        if (python := find_python(minor))
    }
    if not found:
        print(f"python3.{lowest_minor} or later: not found")
        return 1
    if min(found) != lowest_minor:
        instead = f"lowest versions tried with python3.{min(found)}"
        print(f"python3.{lowest_minor}: not found; {instead}", flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
        if not run([*build, "--wheel-dir", scratch, "."], SETUP_SECONDS):
            return 1
        (wheel,) = Path(scratch).glob("*.whl")
        pythons = {"lowest": found[min(found)], "newest": found[max(found)]}
        constraints = {"lowest": lowest_versions, "newest": []}
        results = []
        for name in chosen:
            file = Path(scratch) / f"{name}.txt"
            file.write_text("\n".join(constraints[name]))
            results.append(tested(name, pythons[name], wheel, file))
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
