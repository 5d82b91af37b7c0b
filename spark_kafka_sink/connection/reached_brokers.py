"""Which brokers a Spark application has reached before, shared by all its Python workers.

Without a folder, nothing is stored.
"""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from spark_kafka_sink.config.producer_options import ClientSettings


def were_reached(settings: ClientSettings, folder: Path | None) -> bool:
    """Whether ``remember`` was called for these brokers with this folder.

    If nothing can be stored, they count as reached: ending a stream after a short outage is worse
    than reporting a wrong address late.
    """
    if folder is None:
        return False
    if not os.access(folder, os.W_OK | os.X_OK):
        return True
    try:
        found = _marker(settings, folder).lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def mark_reached(settings: ClientSettings, folder: Path | None) -> None:
    """Create an empty marker file for these brokers; never raises."""
    if folder is not None:
        flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY
        with suppress(OSError):
            os.close(os.open(_marker(settings, folder), flags, 0o600))


def _marker(settings: ClientSettings, folder: Path) -> Path:
    """The file for these brokers. Its name contains no secret, not even hashed."""
    # A different protocol means other listeners, or the wrong protocol for this one.
    protocol = settings.get("security.protocol", "plaintext").lower()
    public = f"{protocol} {settings['bootstrap.servers']}"
    return folder / f"kafka-nb-reached-{hashlib.sha256(public.encode()).hexdigest()}"
