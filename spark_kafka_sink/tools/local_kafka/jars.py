"""Fetches JARs from Maven Central through the Ivy that pyspark ships."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from spark_kafka_sink.config.java_home import CACHE_ADVICE, cache_folder, java_home, os_errors_as
from spark_kafka_sink.errors import LocalKafkaError

_FETCH_SECONDS = 600


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
    with os_errors_as(CACHE_ADVICE):
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
        "-cache", str(jars.parent / "ivy"),  # one that processes share would need a lock
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
