"""Builds librdkafka with Kerberos, and confluent-kafka with it; prints the variables to use them.

The result stays in the cache. Needs npm, whose package has the source, gcc, make, and Debian's
libsasl2-dev, libssl-dev, zlib1g-dev and libcurl4-openssl-dev.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from spark_kafka_sink.tools.local_servers.java import cache_folder

PACKAGE = "@confluentinc/kafka-javascript@1.10.1"  # with librdkafka 2.15.1
BINDING = "confluent-kafka==2.15.0"  # not newer than librdkafka
SECONDS = 3600.0


def built_library() -> Path:
    """The folder with ``lib`` and ``site``; made if it is not there."""
    target = cache_folder() / f"kerberos-{BINDING.rpartition('=')[2]}-{sys.version_info[1]}"
    if not target.is_dir():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
            made = Path(scratch, "made")
            build(Path(scratch), made)
            made.rename(target)
    return target


def build(scratch: Path, target: Path) -> None:
    print(f"building librdkafka of {PACKAGE}, once: some minutes", file=sys.stderr)
    run("npm", "pack", "--silent", PACKAGE, folder=scratch)
    (archive,) = scratch.glob("*.tgz")
    with tarfile.open(archive) as tar:
        tar.extractall(scratch, filter="data")
    source = scratch / "package" / "deps" / "librdkafka"
    for script in ("configure", "lds-gen.py"):
        (source / script).chmod(0o755)  # the package lacks the run bits
    run("./configure", "--enable-gssapi", folder=source)
    run("make", "libs", folder=source)
    libraries, headers = target / "lib", target / "include" / "librdkafka"
    for folder in (libraries, headers):
        folder.mkdir(parents=True)
    shutil.copy(source / "src" / "librdkafka.so.1", libraries)
    (libraries / "librdkafka.so").symlink_to("librdkafka.so.1")
    for header in (source / "src").glob("rdkafka*.h"):
        shutil.copy(header, headers)
    os.environ |= {"C_INCLUDE_PATH": str(headers.parent), "LIBRARY_PATH": str(libraries)}
    install = [sys.executable, "-m", "pip", "install", "--no-binary", "confluent-kafka"]
    run(*install, "--no-deps", "--target", str(target / "site"), BINDING, folder=scratch)


def run(*command: str, folder: Path) -> None:
    """With little priority: others use the machine; shows the output only of a failure."""
    os.environ.setdefault("npm_config_cache", str(folder / "npm"))
    ended = subprocess.run(
        ["nice", *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}: {ended.stdout[-3000:]}")


if __name__ == "__main__":
    made = built_library()
    others = os.environ.get("PYTHONPATH")
    path = ":".join(filter(None, (str(made / "site"), others)))
    print(f"LD_LIBRARY_PATH={made / 'lib'} PYTHONPATH={path}")
