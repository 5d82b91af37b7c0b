"""The libraries that tests run as they are: installed once, into a folder that is kept."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from spark_kafka_sink.tools.local_servers.java import cache_folder

# None of them requires PySpark, whose versions some libraries pin.
LIBRARIES = ("koheesio==0.11.1", "ibis-framework==12.0.0", "onetl==0.17.0", "pyarrow-hotfix")
_SECONDS = 300


def fetch_libraries() -> Path:
    """The folder with the libraries and what they need, for ``sys.path``."""
    tag = f"{sys.implementation.cache_tag} {sys.platform} {LIBRARIES}"
    folder = cache_folder() / f"libraries-{hashlib.sha256(tag.encode()).hexdigest()[:12]}"
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as draft:
        target = Path(draft) / "libraries"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target)]
        subprocess.run([*command, *LIBRARIES], check=True, timeout=_SECONDS)
        try:
            target.rename(folder)
        except OSError:  # other tests were faster
            shutil.rmtree(target)
    return folder
