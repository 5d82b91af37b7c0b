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
import json, os, sys
import pyspark
print(json.dumps({"pyspark": pyspark.__file__, "PYTHONPATH": os.environ.get("PYTHONPATH")}))
"""
ECHO = "import json, sys; print(json.dumps([sys.executable, sys.flags[:], sys.argv]))"
SPARK = "4.3.0"


def write_package(folder: Path, name: str, version: str = SPARK) -> None:
    package = folder / name
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "version.py").write_text(f"# A licence\n\n__version__: str = '{version}'\n")


def run(command: list[Path | str], **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, **options
    )


class Environment:
    """A virtual environment with the command, but without pip and PySpark."""

    def __init__(self, folder: Path, system_site_packages: bool = False) -> None:
        venv.create(folder, system_site_packages, symlinks=True, with_pip=False)
        self.bin = folder / "bin"
        self.command = Path(shutil.copy(COMMAND, self.bin))
        python = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site_packages = folder / "lib" / python / "site-packages"

    def install_pyspark(self, version: str = SPARK) -> None:
        write_package(self.site_packages, "pyspark", version)
        write_package(self.site_packages, "py4j")

    def run(self, *arguments: str, program: Path | str = "", **options) -> str:
        """The output of the command, or of ``program``, with no variables but PATH and ``env``."""
        options["env"] = {"PATH": os.defpath} | options.get("env", {})
        done = run([program or self.command, *arguments], **options)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def report(self, *pythonpath: Path | str, **variables: str) -> dict[str, str]:
        """What Python imports, and the PYTHONPATH that it gets, if Spark starts the command."""
        joined = os.pathsep.join(map(str, pythonpath))
        return json.loads(self.run("-c", REPORT, env={"PYTHONPATH": joined, **variables}))


class SparkHome:
    """A folder with the archives that Spark puts on PYTHONPATH, of a version of its own."""

    def __init__(self, folder: Path, version: str = SPARK) -> None:
        self.python = folder / "python"
        lib = self.python / "lib"
        lib.mkdir(parents=True)
        self.pyspark = lib / "pyspark.zip"
        self.py4j = lib / "py4j-0.10.9.9-src.zip"
        self.core = folder / "jars" / "spark-core_2.13-4.3.0.jar"
        write_package(self.python, "pyspark", version)
        write_package(self.python, "py4j")
        for archive, package in ((self.pyspark, "pyspark"), (self.py4j, "py4j")):
            with zipfile.ZipFile(archive, "w") as file:
                for name in ("__init__.py", "version.py"):
                    file.write(self.python / package / name, f"{package}/{name}")
        shutil.rmtree(self.python / "py4j")
        # In this order, for every Python that Spark starts.
        self.entries = (self.pyspark, self.py4j, self.core)


@pytest.fixture
def environment(tmp_path):
    return Environment(tmp_path / "environment")


@pytest.fixture
def spark(tmp_path):
    return SparkHome(tmp_path / "spark home")


def test_installed_pyspark_of_sparks_version_is_imported_instead_of_the_zip(environment, spark):
    environment.install_pyspark()
    report = environment.report(*spark.entries)
    assert Path(report["pyspark"]).is_relative_to(environment.site_packages)
    assert report["PYTHONPATH"] == ""


def test_other_entries_stay_in_their_order(environment, spark, tmp_path):
    environment.install_pyspark()
    mine = ["/with a blank/x", "", "relative", "/jobs/deps.zip", "/with*star", "/twice", "/twice"]
    entries = [mine[0], *spark.entries, *mine[1:4], f"{spark.python}/", *mine[4:], *spark.entries]
    assert environment.report(*entries)["PYTHONPATH"] == ":".join(mine)
    assert environment.report(*spark.entries, "/mine", "")["PYTHONPATH"] == "/mine:"


def test_a_lone_empty_entry_still_means_the_current_folder(environment, spark, tmp_path):
    environment.install_pyspark()
    (tmp_path / "mine.py").touch()
    (tmp_path / "scripts").mkdir()
    script = tmp_path / "scripts" / "script.py"
    script.write_text("import mine")
    pythonpath = f"{spark.pyspark}:"
    environment.run(str(script), cwd=tmp_path, env={"PYTHONPATH": pythonpath})


def test_sparks_folder_python_goes_with_its_zip(environment, spark):
    environment.install_pyspark()
    report = environment.report(*spark.entries, spark.py4j, spark.python, "")
    assert Path(report["pyspark"]).is_relative_to(environment.site_packages)


def test_archives_in_the_current_folder_are_recognized(environment, spark):
    environment.install_pyspark()
    pythonpath = "pyspark.zip:py4j-0.10.9.9-src.zip"
    options = {"cwd": spark.pyspark.parent, "env": {"PYTHONPATH": pythonpath}}
    report = json.loads(environment.run("-c", REPORT, **options))
    assert Path(report["pyspark"]).is_relative_to(environment.site_packages)


def test_of_two_zips_the_first_decides_as_it_does_for_python(environment, tmp_path):
    environment.install_pyspark(SPARK)
    first, second = SparkHome(tmp_path / "1", "4.2.9"), SparkHome(tmp_path / "2", SPARK)
    imported = environment.report(first.pyspark, second.pyspark)["pyspark"]
    assert Path(imported).is_relative_to(first.pyspark)


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


@pytest.mark.parametrize("installed", ["nothing", "elsewhere", "another", "no py4j", "broken"])
def test_otherwise_everything_stays_as_it_was(environment, spark, tmp_path, installed):
    elsewhere = []
    if installed == "no py4j":
        write_package(environment.site_packages, "pyspark")
    elif installed != "nothing":
        environment.install_pyspark("4.3.1" if installed == "another" else SPARK)
    if installed == "elsewhere":
        elsewhere.append(tmp_path / "mine")
        write_package(elsewhere[0], "pyspark", "3.5.0")
    if installed == "broken":
        (environment.site_packages / "pyspark" / "version.py").write_text("(")
    report = environment.report(*spark.entries, spark.python, "", *elsewhere)
    assert report["pyspark"] == f"{spark.pyspark}/pyspark/__init__.py"
    assert report["PYTHONPATH"] == ":".join(
        [*map(str, spark.entries), str(spark.python), "", *map(str, elsewhere)]
    )


def test_pyspark_in_the_current_folder_does_not_count_as_installed(environment, spark, tmp_path):
    checkout = tmp_path / "checkout"
    write_package(checkout, "pyspark")
    write_package(checkout, "py4j")
    script = tmp_path / "script.py"
    script.write_text(REPORT)
    env = {"PYTHONPATH": str(spark.pyspark)}
    assert str(spark.pyspark) in environment.run(str(script), cwd=checkout, env=env)


def test_without_the_zip_nothing_changes(environment, spark):
    environment.install_pyspark()
    # What bin/pyspark sets.
    report = environment.report(spark.py4j, f"{spark.python}/", "")
    assert report["PYTHONPATH"] == f"{spark.py4j}:{spark.python}/:"
    assert report["pyspark"] == f"{spark.python}/pyspark/__init__.py"


def test_editable_pyspark_counts_as_installed(environment, spark, tmp_path):
    write_package(tmp_path / "source", "pyspark")
    write_package(tmp_path / "source", "py4j")
    (environment.site_packages / "source.pth").write_text(f"{tmp_path / 'source'}\n")
    report = environment.report(*spark.entries)
    assert Path(report["pyspark"]).is_relative_to(tmp_path / "source")


@pytest.mark.parametrize(("without_user_site", "imported"), [("", "home"), ("1", "spark home")])
def test_pyspark_of_the_user_counts_if_python_looks_there(
    tmp_path, spark, without_user_site, imported
):
    environment = Environment(tmp_path / "environment", system_site_packages=True)
    user = tmp_path / "home"
    scheme = sysconfig.get_preferred_scheme("user")
    site_packages = Path(sysconfig.get_path("purelib", scheme, {"userbase": str(user)}))
    write_package(site_packages, "pyspark")
    write_package(site_packages, "py4j")
    variables = {"PYTHONUSERBASE": str(user), "PYTHONNOUSERSITE": without_user_site}
    report = environment.report(*spark.entries, **variables)
    assert Path(report["pyspark"]).is_relative_to(tmp_path / imported)


@pytest.fixture
def started_by_spark(environment, spark):
    """The variables with which Spark starts the command, which takes its entries out."""
    environment.install_pyspark()
    return {"PYTHONPATH": ":".join(map(str, spark.entries))}


def test_python_gets_its_arguments_its_input_and_its_exit_code(environment, started_by_spark):
    arguments = ["", "a b", " c ", "*", "$HOME", "'", '"', "\\", "two\nlines", "-c", "--", "é"]
    echo = environment.site_packages / "echo.py"
    echo.write_text(ECHO)
    python = environment.bin / "python3"
    for start in (["-u", "-c", ECHO], ["-m", "echo"], ["-u", "-W", "error", str(echo)]):
        expected = environment.run(*start, *arguments, program=python)
        assert environment.run(*start, *arguments, env=started_by_spark) == expected
    program = "import sys; sys.exit(sys.stdin.read())"  # exec: so are its signals and open files
    done = run([environment.command, "-c", program], input="two\nlines", env=started_by_spark)
    assert (done.returncode, done.stderr) == (1, "two\nlines\n")


def test_no_other_variable_changes(environment, started_by_spark):
    program = "import json, os; print(json.dumps(dict(os.environ)))"
    # A script's own variables would be exported if the environment had variables of their names.
    common = ("python", "bin", "self", "target", "entry", "rest", "kept", "zip", "answer")
    variables = started_by_spark | dict.fromkeys(common, "mine") | {"EMPTY": "", "LINES": "a\nb"}
    python = environment.bin / "python3"
    expected = json.loads(environment.run("-c", program, program=python, env=variables))
    actual = json.loads(environment.run("-c", program, env=variables))
    for name in ("PYTHONPATH", "PWD", "OLDPWD", "SHLVL", "_"):  # the last four are the shell's
        expected.pop(name, None)
        actual.pop(name, None)
    assert actual == expected


@pytest.mark.parametrize(
    ("start", "folder", "path"),
    [
        (f"./{NAME}", "environment/bin", os.defpath),
        (NAME, "environment/bin", f":{os.defpath}"),
        (f"{{0}}/links/absolute/{NAME}", ".", os.defpath),
        (f"links/relative/{NAME}", ".", os.defpath),
        (NAME, ".", f"{{0}}/links/twice:{os.defpath}"),
        (f"{{0}}/linked folder/bin/{NAME}", ".", os.defpath),
    ],
)
def test_python_is_found_however_the_command_is_started(environment, tmp_path, start, folder, path):
    for number, target in {
        "absolute": environment.command,
        "relative": f"../../environment/bin/{NAME}",
        "twice": f"../relative/{NAME}",
    }.items():
        link = tmp_path / "links" / number / NAME
        link.parent.mkdir(parents=True)
        link.symlink_to(target)
        # Like Debian's /usr/local/bin, the link's folder has a Python of its own.
        (link.parent / "python3").symlink_to(shutil.which("false"))
    (tmp_path / "linked folder").symlink_to("environment")
    # env looks the command up in PATH, as Java does.
    command = ["env", f"PATH={path.format(tmp_path)}", start.format(tmp_path)]
    program = "import sys; print(sys.prefix)"
    done = run([*command, "-c", program], cwd=tmp_path / folder)
    assert done.stderr == ""
    assert Path(done.stdout.strip()).samefile(tmp_path / "environment")


def test_away_from_its_python_the_command_starts_the_python_of_path(environment, tmp_path):
    away = tmp_path / "away"
    away.mkdir()
    shutil.move(environment.command, away)
    write_package(environment.site_packages, "spark_kafka_sink")
    env = {"PATH": f"{environment.bin}:{os.defpath}"}
    prefix = environment.run("-c", "import sys; print(sys.prefix)", program=away / NAME, env=env)
    assert Path(prefix.strip()) == environment.bin.parent


@pytest.mark.parametrize("on_path", ["environment/bin", "empty"])
def test_away_from_its_python_the_command_says_what_is_wrong(environment, tmp_path, on_path):
    away = tmp_path / "away"
    away.mkdir()
    shutil.move(environment.command, away)
    write_package(tmp_path, "spark_kafka_sink")  # the current folder does not count
    env = {"PATH": str(tmp_path / on_path)}
    done = run([away / NAME, "-c", "print(1)"], cwd=tmp_path, env=env)
    assert done.returncode == 127
    assert done.stdout == ""
    python = environment.bin / "python3" if on_path == "environment/bin" else "none"
    assert f"no python3 in {away}, and the python3 of PATH ({python})" in done.stderr
