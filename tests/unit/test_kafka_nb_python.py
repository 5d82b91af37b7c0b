"""The installed command kafka-nb-python, in virtual environments with a PySpark made up for it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

COMMAND = Path(sysconfig.get_path("scripts"), "kafka-nb-python")
NAME = COMMAND.name
REPORT = """
import json, os, pyspark
print(json.dumps([pyspark.__file__, os.environ["PYTHONPATH"]]))
"""
ECHO = "import json, sys; print(json.dumps([sys.executable, sys.flags[:], sys.argv]))"
SPARK = "4.3.0"


def write_packages(folder: Path, *names: str, version: str = SPARK) -> None:
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").touch()
        (folder / name / "version.py").write_text(
            f"# A licence\n\n__version__: str = '{version}'\n"
        )


def run(command: list[Path | str], **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, **options
    )


class Environment:
    """A virtual environment with the command, but without pip and PySpark."""

    def __init__(self, folder: Path) -> None:
        venv.create(folder, symlinks=True, with_pip=False)
        self.bin = folder / "bin"
        self.command = Path(shutil.copy(COMMAND, self.bin))
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site_packages = folder / "lib" / python / "site-packages"

    def run(self, *arguments: str, program: Path | str = "", **options) -> str:
        """The output of the command, or of ``program``, with no variables but PATH and ``env``."""
        options["env"] = {"PATH": os.defpath} | options.get("env", {})
        done = run([program or self.command, *arguments], **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def report(self, pythonpath: str, cwd: Path | None = None) -> list[str]:
        """The PySpark that Python imports, and the PYTHONPATH that it gets."""
        return json.loads(self.run("-c", REPORT, env={"PYTHONPATH": pythonpath}, cwd=cwd))


@pytest.fixture
def environment(tmp_path):
    return Environment(tmp_path / "environment")


def spark_home(python: Path, version: str = SPARK) -> tuple[str, str, str]:
    """The entries that Spark puts first on PYTHONPATH: its zips, and the JAR of its core."""
    pyspark, py4j = python / "lib" / "pyspark.zip", python / "lib" / "py4j-0.10.9.9-src.zip"
    write_packages(python, "pyspark", "py4j", version=version)
    pyspark.parent.mkdir()
    for archive, package in ((pyspark, "pyspark"), (py4j, "py4j")):
        with zipfile.ZipFile(archive, "w") as file:
            for name in ("__init__.py", "version.py"):
                file.write(python / package / name, f"{package}/{name}")
    return str(pyspark), str(py4j), str(python.parent / "jars" / "spark-core_2.13-4.3.0.jar")


@pytest.fixture
def python(tmp_path):
    """Spark's folder ``python``."""
    return tmp_path / "spark home" / "python"


@pytest.fixture
def entries(python):
    return ":".join(spark_home(python))


MINE = ["/with a blank/x", "", "relative", "/jobs/deps.zip", "/with*star", "/twice", "/twice"]


@pytest.mark.parametrize("is_editable", [False, True])
def test_installed_pyspark_of_sparks_version_is_imported_and_only_sparks_entries_go(
    environment, python, entries, tmp_path, is_editable
):
    packages = tmp_path / "source" if is_editable else environment.site_packages
    write_packages(packages, "pyspark", "py4j")
    if is_editable:
        (environment.site_packages / "source.pth").write_text(f"{packages}\n")
    imported = str(packages / "pyspark" / "__init__.py")
    for given, kept in (
        (entries, ""),
        # in any order, and twice
        (":".join([*MINE[:1], entries, *MINE[1:4], f"{python}/", *MINE[4:], entries]),
         ":".join(MINE)),
        (f"{entries}:/mine:", "/mine:"),
        (f"{entries}:{python}:", ":"),  # an empty entry: the current folder
    ):  # fmt: skip
        assert environment.report(given) == [imported, kept]
    names = "pyspark.zip:py4j-0.10.9.9-src.zip"
    assert environment.report(names, cwd=python / "lib") == [imported, ""]


INSTALLED = ("nothing", "here", "elsewhere", "another", "no py4j", "broken", "second", "no zip")


@pytest.mark.parametrize("installed", INSTALLED)
def test_otherwise_everything_stays_as_it_was(environment, python, entries, tmp_path, installed):
    """``here``: only in the current folder. ``second``: the version of the second zip."""
    here, imported = tmp_path / "here", f"{python}/lib/pyspark.zip"
    here.mkdir()
    pythonpath = f"{entries}:{python}:"
    if installed == "here":
        write_packages(here, "pyspark", "py4j")
        pythonpath = entries  # an empty entry would mean this folder
    elif installed != "nothing":
        packages = ["pyspark"] if installed == "no py4j" else ["pyspark", "py4j"]
        version = "4.3.1" if installed == "another" else SPARK
        write_packages(environment.site_packages, *packages, version=version)
    if installed == "elsewhere":
        write_packages(tmp_path / "mine", "pyspark", version="3.5.0")
        pythonpath += f":{tmp_path / 'mine'}"
    elif installed == "broken":
        (environment.site_packages / "pyspark" / "version.py").write_text("(")
    elif installed == "second":
        imported, *_ = spark_home(tmp_path / "older" / "python", "4.2.9")
        pythonpath = f"{imported}:{pythonpath}"
    elif installed == "no zip":  # what bin/pyspark sets
        pythonpath, imported = f"{entries.split(':')[1]}:{python}/:", python
    script = tmp_path / "script.py"  # -c would import from the current folder
    script.write_text(REPORT)
    report = environment.run(str(script), env={"PYTHONPATH": pythonpath}, cwd=here)
    assert json.loads(report) == [f"{imported}/pyspark/__init__.py", pythonpath]


POOLS = "MALLOC_ARENA_MAX", "ARROW_DEFAULT_MEMORY_POOL"


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, [None, None]),
        ({"PYSPARK_EXECUTOR_MEMORY_MB": "600"}, ["2", "system"]),
        ({"PYSPARK_PLANNER_MEMORY_MB": "600"}, ["2", "system"]),
        ({"PYSPARK_EXECUTOR_MEMORY_MB": "600", "MALLOC_ARENA_MAX": "4"}, ["4", "system"]),
    ],
)
def test_memory_is_reserved_sparingly_only_under_a_limit(environment, variables, expected):
    show = f"import json, os; print(json.dumps([os.environ.get(name) for name in {POOLS}]))"
    assert json.loads(environment.run("-c", show, env=variables)) == expected
    limited = f'ulimit -v 4000000; exec "{environment.command}" "$@"'
    pools = json.loads(environment.run("-c", limited, "sh", "-c", show, program="/bin/sh"))
    assert pools == ["2", "system"]


def test_python_gets_its_arguments_its_input_its_variables_and_its_exit_code(environment, entries):
    write_packages(environment.site_packages, "pyspark", "py4j")
    python = environment.bin / "python3"
    # A script's own variables would be exported if the environment had variables of their names.
    common = ("python", "bin", "self", "target", "entry", "rest", "kept", "zip", "answer")
    variables = {
        "PYTHONPATH": entries,
        **dict.fromkeys(common, "mine"),
        "EMPTY": "",
        "LINES": "a\nb",
    }
    arguments = ["", "a b", " c ", "*", "$HOME", "'", '"', "\\", "two\nlines", "-c", "--", "é"]
    for start in (["-u", "-c", ECHO], ["-u", "-W", "error", "-c", ECHO]):
        expected = environment.run(*start, *arguments, program=python)
        assert environment.run(*start, *arguments, env=variables) == expected
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    direct, through = (
        json.loads(environment.run("-c", program, program=interpreter, env=variables))
        for interpreter in (python, environment.command)
    )
    shells = dict.fromkeys(("PYTHONPATH", "PWD", "OLDPWD", "SHLVL", "_"))
    assert through | shells == direct | shells
    program = "import sys; sys.exit(sys.stdin.read())"  # exec: so are its signals and open files
    done = run([environment.command, "-c", program], input="two\nlines", env=variables)
    assert (done.returncode, done.stderr) == (1, "two\nlines\n")


@pytest.mark.parametrize(
    ("start", "folder", "path"),
    [
        (f"./{NAME}", "environment/bin", os.defpath),
        (NAME, "environment/bin", f":{os.defpath}"),
        (f"{{0}}/links/absolute/{NAME}", ".", os.defpath),
        (f"links/relative/{NAME}", ".", os.defpath),
        (NAME, ".", f"{{0}}/links/twice:{os.defpath}"),
    ],
)
def test_python_is_found_however_the_command_is_started(environment, tmp_path, start, folder, path):
    for name, target in {
        "absolute": environment.command,
        "relative": f"../../environment/bin/{NAME}",
        "twice": f"../relative/{NAME}",
    }.items():
        link = tmp_path / "links" / name / NAME
        link.parent.mkdir(parents=True)
        link.symlink_to(target)
        # Like Debian's /usr/local/bin, the link's folder has a Python of its own.
        (link.parent / "python3").symlink_to(shutil.which("false"))
    # env looks the command up in PATH, as Java does.
    command = ["env", f"PATH={path.format(tmp_path)}", start.format(tmp_path)]
    done = run([*command, "-c", "import sys; print(sys.prefix)"], cwd=tmp_path / folder)
    assert done.stderr == ""
    assert Path(done.stdout.strip()).samefile(tmp_path / "environment")


@pytest.mark.parametrize("on_path", ["environment/bin", "empty"])
def test_away_from_its_python_the_command_starts_that_of_path_or_says_what_is_wrong(
    environment, tmp_path, on_path
):
    away = tmp_path / "away"
    away.mkdir()
    shutil.move(environment.command, away)
    write_packages(tmp_path, "spark_kafka_sink")  # the current folder does not count
    command = [away / NAME, "-c", "import sys; print(sys.prefix)"]
    done = run(command, cwd=tmp_path, env={"PATH": str(tmp_path / on_path)})
    assert (done.returncode, done.stdout) == (127, "")
    python = environment.bin / "python3" if on_path == "environment/bin" else "none"
    assert f"no python3 in {away}, and the python3 of PATH ({python})" in done.stderr
    write_packages(environment.site_packages, "spark_kafka_sink")
    done = run(command, cwd=tmp_path, env={"PATH": f"{environment.bin}:{os.defpath}"})
    assert done.stdout.strip() == str(environment.bin.parent)
