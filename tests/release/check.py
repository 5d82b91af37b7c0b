"""Builds what would be uploaded, checks it, and tries it as a user would; then it is in dist/."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

from markdown_it import MarkdownIt
from notes import this_version
from readme_renderer import markdown

import spark_kafka_sink

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
VERSION = spark_kafka_sink.__version__
NAME = f"spark_kafka_sink-{VERSION}"
SECONDS = 900.0  # for each command: some download Spark

# Whatever asks for a compiler fails; and pip's cache may hold what a compiler has made before, so
# only wheels from PyPI count. PySpark has none there, and needs no compiler.
ONLY_WHEELS = ("--only-binary", ":all:", "--no-binary", "pyspark")
NO_COMPILER = dict.fromkeys(("CC", "CXX", "LD", "FC", "RUSTC"), "/bin/false")


def run(command: list[str | Path], folder: Path, **variables: str) -> str:
    """What the command prints. SystemExit, with all that it said, if it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=environment() | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        said = error.stdout or b""
        raise SystemExit(f"{command}: not ended after {SECONDS:.0f} s\n{said.decode()}") from None
    if done.returncode:
        raise SystemExit(f"{command}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def environment() -> dict[str, str]:
    """The variables, without those that could lead Python or Spark to other packages."""
    misleading = ("PYTHON", "PYSPARK", "SPARK_HOME", "VIRTUAL_ENV")
    return {name: text for name, text in os.environ.items() if not name.startswith(misleading)}


def tracked() -> list[str]:
    listed = run(["git", "ls-files", "-z"], ROOT).split("\0")
    return [name for name in listed if name and (ROOT / name).exists()]


def copy_tree(target: Path) -> Path:
    """The tracked files alone: what else lies in the folders could get into the sdist."""
    for name in tracked():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)
    return target


def build(tree: Path, target: Path, *kinds: str) -> None:
    # Otherwise the archives contain the time.
    commit_time = run(["git", "log", "-1", "--format=%ct"], ROOT).strip()
    command = [sys.executable, "-m", "build", *kinds, "--outdir", target, tree]
    run(command, ROOT, SOURCE_DATE_EPOCH=commit_time)


def expect_same(what: str, names: set[str], meant: set[str]) -> None:
    problems = [f"{name} is not meant to be there" for name in sorted(names - meant)]
    problems += [f"{name} is missing" for name in sorted(meant - names)]
    if problems:
        raise SystemExit("\n".join([f"{what}: wrong contents", *problems]))


# --- the checks, in this order --------------------------------------------------------------------


def check_metadata(sdist: Path, wheel: Path) -> None:
    """The version is ``__version__``, the wheel is for any machine, PyPI would take both files."""
    names = f"{NAME}.tar.gz", f"{NAME}-py3-none-any.whl"
    if (sdist.name, wheel.name) != names:
        raise SystemExit(f"built: {sdist.name}, {wheel.name}; meant: {', '.join(names)}")
    run([sys.executable, "-m", "twine", "check", "--strict", sdist, wheel], ROOT)


def check_description(wheel: Path) -> None:
    """What an index shows of README.md needs no file of the repository."""
    metadata = contents(wheel)[f"{NAME}.dist-info/METADATA"][0].decode()
    page = markdown.render(message_from_string(metadata).get_payload())
    if page is None:
        raise SystemExit("the description cannot be rendered")
    if dead := re.findall(r'(?:href|src)="(?!https?:|#)([^"]*)"', page):
        raise SystemExit(f"the description has relative links: {', '.join(dead)}")


def check_wheel_contents(wheel: Path) -> None:
    """Everything of the package's folder and the command; no tests."""
    metadata = ["METADATA", "RECORD", "WHEEL", "entry_points.txt", "top_level.txt"]
    meant = {f"{NAME}.dist-info/{name}" for name in [*metadata, "licenses/LICENSE"]}
    for name in tracked():
        folder, _, rest = name.partition("/")
        if folder == "bin":
            meant.add(f"{NAME}.data/scripts/{rest}")
        elif folder == "spark_kafka_sink":
            meant.add(name.replace("spark_kafka_sink/_autoregister/", "pyspark_kafka_nb/"))
    expect_same(wheel.name, set(contents(wheel)), meant)


def check_sdist_contents(sdist: Path) -> None:
    """What the wheel is built from; no tests."""
    with tarfile.open(sdist) as archive:
        names = {file.name.removeprefix(f"{NAME}/") for file in archive if file.isfile()}
    meant = {"LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg", "setup.py"}
    meant |= {name for name in tracked() if name.startswith(("bin/", "spark_kafka_sink/"))}
    setuptools_own = {name for name in names if name.startswith("spark_kafka_sink.egg-info/")}
    expect_same(sdist.name, names - setuptools_own, meant)


def contents(wheel: Path) -> dict[str, tuple[bytes, bool]]:
    """The bytes of each file, and whether it is executable."""
    with ZipFile(wheel) as archive:
        return {
            file.filename: (archive.read(file), bool(file.external_attr >> 16 & 0o111))
            for file in archive.infolist()
        }


def check_wheel_of_sdist(sdist: Path, wheel: Path, scratch: Path) -> None:
    """pip builds such a wheel where it may use no wheels."""
    with tarfile.open(sdist) as archive:
        archive.extractall(scratch / "sdist", filter="data")
    build(scratch / "sdist" / NAME, scratch / "from_sdist", "--wheel")
    (other,) = (scratch / "from_sdist").glob("*.whl")
    ours, theirs = contents(wheel), contents(other)
    expect_same(f"{wheel.name} from the sdist", set(theirs), set(ours))
    if different := sorted(name for name in ours if ours[name] != theirs[name]):
        raise SystemExit(f"{wheel.name} from the sdist: other contents in {', '.join(different)}")


def check_installation(wheel: Path, scratch: Path) -> None:
    """Into an empty environment, on a machine without a compiler."""
    binaries = scratch / "environment" / "bin"
    run([sys.executable, "-m", "venv", scratch / "environment"], scratch)
    install = [binaries / "pip", "install", *ONLY_WHEELS, f"{wheel}[spark]"]
    run(install, scratch, **NO_COMPILER)
    run([binaries / "pip", "check"], scratch)
    program = "import spark_kafka_sink; print(spark_kafka_sink.__version__)"
    for command in ("python", "kafka-nb-python"):
        version = run([binaries / command, "-c", program], scratch).strip()
        if version != VERSION:
            raise SystemExit(f"{command} imports version {version}, not {VERSION}")
    run([binaries / "kafka-nb", "doctor", "--help"], scratch)


def check_quick_start(scratch: Path) -> None:
    """README's program, as it stands there, with a real Kafka."""
    page = MarkdownIt().parse((ROOT / "README.md").read_text(encoding="utf-8"))
    programs = [token.content for token in page if token.type == "fence" and token.info == "python"]
    (program,) = (program for program in programs if "SparkSession" in program)
    (scratch / "program.py").write_text(program, encoding="utf-8")
    (scratch / "tmp").mkdir()
    binaries = scratch / "environment" / "bin"
    activated = {"PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    script = Path(__file__).with_name("quick_start.py")
    command = [binaries / "python", script, scratch / "program.py", scratch / "tmp"]
    run(command, scratch, **activated)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="release-check-") as folder:
        scratch = Path(folder)
        steps = Steps()
        this_version()
        steps.passed("CHANGELOG.md has notes of this version")
        build(copy_tree(scratch / "tree"), scratch / "dist", "--sdist", "--wheel")
        (sdist,) = (scratch / "dist").glob("*.tar.gz")
        (wheel,) = (scratch / "dist").glob("*.whl")
        steps.passed(f"built: {sdist.name}, {wheel.name}")
        check_metadata(sdist, wheel)
        check_description(wheel)
        steps.passed("metadata, and the description that indexes show")
        check_wheel_contents(wheel)
        check_sdist_contents(sdist)
        steps.passed("contents")
        check_wheel_of_sdist(sdist, wheel, scratch)
        steps.passed("the wheel built from the sdist is the same")
        check_installation(wheel, scratch)
        steps.passed("installed into an empty environment, without a compiler")
        check_quick_start(scratch)
        steps.passed("README's quick start")
        DIST.mkdir(exist_ok=True)
        for file in (sdist, wheel):
            shutil.copy(file, DIST)
        print(f"{sdist.name} and {wheel.name} are in dist/")


class Steps:
    """Prints what has passed, and how long it took."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def passed(self, step: str) -> None:
        now = time.monotonic()
        print(f"passed {now - self._began:6.1f} s  {step}", flush=True)
        self._began = now


if __name__ == "__main__":
    main()
