"""Downloads from Maven Central through the Ivy that pyspark ships."""

from __future__ import annotations

import hashlib
import importlib.util
import logging
import os
import subprocess
import tarfile
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from spark_kafka_sink.errors import LocalServerError
from spark_kafka_sink.tools.local_servers.java import (
    CACHE_ADVICE,
    cache_folder,
    java_home,
    os_errors_as,
)

_FETCH_SECONDS = 600

_log = logging.getLogger(__name__)

# Ivy's command line knows no classifiers.
_IVY_FILE = """<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="spark-kafka-sink" module="download"/>
  <dependencies>
    <dependency org="{organisation}" name="{module}" rev="{revision}" transitive="false">
      <artifact name="{module}" type="tar.gz" ext="tar.gz" m:classifier="{classifier}"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def fetch_jars(
    organisation: str,
    module: str,
    revision: str,
    checksums: Mapping[str, str],
    *,
    transitive: bool = True,
    instead: str = "",
) -> Path:
    """A cached folder with a Maven module's JARs, each compared with its SHA-256.

    ``checksums``: file name -> hex digest. No other file may be in the folder.
    ``instead``: what the user can do without them, for the error.
    Raises LocalServerError, which says what was tried.
    """

    def fetch(scratch: Path) -> Path:
        jars = scratch / "jars"
        selection = ["-dependency", organisation, module, revision, "-types", "jar", "bundle"]
        selection += ["-confs", "default" if transitive else "master"]
        _retrieve(f"{organisation}:{module}:{revision}", selection, jars, instead)
        _verify(jars, checksums)
        return jars

    with os_errors_as(CACHE_ADVICE):
        folder = _cached(f"{module}-{revision}", fetch)
        _verify(folder, checksums)
    return folder


def fetch_archive(
    organisation: str, module: str, revision: str, classifier: str, digest: str, *, instead: str
) -> Path:
    """A cached folder with the contents of a Maven module's ``tar.gz``.

    The archive is compared with ``digest``, its SHA-256 in hex, before it is unpacked; its contents
    are not compared again. ``instead`` and errors are those of ``fetch_jars``.
    """

    def fetch(scratch: Path) -> Path:
        archive, contents = scratch / "archive", scratch / "contents"
        ivy_file = scratch / "ivy.xml"
        ivy_file.write_text(
            _IVY_FILE.format(
                organisation=organisation, module=module, revision=revision, classifier=classifier
            )
        )
        selection = ["-ivy", str(ivy_file), "-types", "tar.gz"]
        _retrieve(f"{organisation}:{module}:{revision}:{classifier}", selection, archive, instead)
        _verify(archive, {f"{module}-{revision}.tar.gz": digest})
        with tarfile.open(archive / f"{module}-{revision}.tar.gz") as tar:
            tar.extractall(contents, filter="data")
        return contents

    with os_errors_as(CACHE_ADVICE):
        return _cached(f"{module}-{revision}", fetch)


def _cached(name: str, fetch: Callable[[Path], Path]) -> Path:
    """The folder of that name in the cache; ``fetch`` makes it below a temporary folder."""
    target = cache_folder() / name
    if not target.is_dir():
        # A warning, because Python shows these without any configuration.
        _log.warning("downloading %s to %s, which happens only once", name, target.parent)
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = fetch(Path(scratch))
            try:
                made.rename(target)
            except OSError:  # another process fetched it first
                if not target.is_dir():
                    raise
    return target


def _retrieve(what: str, selection: Sequence[str], target: Path, instead: str) -> None:
    command = [
        str(java_home() / "bin" / "java"),
        "-cp", str(ivy_jar()),
        "org.apache.ivy.Main",
        "-cache", str(target.parent / "ivy"),  # one that processes share would need a lock
        *selection,
        "-retrieve", str(target / "[artifact]-[revision].[ext]"),
    ]  # fmt: skip
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
        raise LocalServerError(
            f"fetching {what} from Maven Central took more than {_FETCH_SECONDS} s. {instead}"
        ) from None
    if answer.returncode != 0 or not target.is_dir():
        report = [line for line in answer.stdout.splitlines() if line.strip()]
        raise LocalServerError(
            f"fetching {what} from Maven Central failed; tried: {' '.join(command)}\n"
            + "\n".join([*report[-15:], instead])
        )


def ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    folders = list((spec.submodule_search_locations or []) if spec else [])
    if "SPARK_HOME" in os.environ:  # under spark-submit, pyspark is a zip file without JARs
        folders.append(os.environ["SPARK_HOME"])
    for jar in (jar for folder in folders for jar in Path(folder).glob("jars/ivy-*.jar")):
        return jar
    raise LocalServerError(
        "Ivy, which downloads it, comes with pyspark: pip install 'spark-kafka-sink[spark]'"
    )


def _verify(jars: Path, checksums: Mapping[str, str]) -> None:
    actual = {jar.name: hashlib.sha256(jar.read_bytes()).hexdigest() for jar in jars.iterdir()}
    if actual != dict(checksums):
        wrong = sorted(
            name
            for name in actual.keys() | checksums.keys()
            if actual.get(name) != checksums.get(name)
        )
        raise LocalServerError(
            f"unexpected contents of {jars}: {', '.join(wrong)} missing, unknown or "
            "with another SHA-256; delete that folder to fetch it again"
        )
