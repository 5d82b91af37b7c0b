"""Which brokers a Spark application has reached before, shared by all its Python workers."""

from __future__ import annotations

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

from spark_kafka_sink.config.producer_options import ClientSettings


def were_reached(settings: ClientSettings) -> bool:
    """Whether ``remember`` was called for these brokers in this Spark application.

    If nothing can be stored, they count as reached: it is worse to end a stream after a short
    outage than to report a wrong address late.
    """
    marker = _marker(settings)
    if marker is None:
        return False
    if not os.access(marker.parent, os.W_OK | os.X_OK):
        return True
    try:
        found = marker.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid()


def remember(settings: ClientSettings) -> None:
    """Create an empty marker file for these brokers; never raises."""
    marker = _marker(settings)
    if marker is not None:
        flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY
        with suppress(OSError):
            os.close(os.open(marker, flags, 0o600))


def _marker(settings: ClientSettings) -> Path | None:
    """The file for these brokers, in the folder of Spark's block manager; None outside Spark.

    Spark creates that folder for the application, removes it at the end, and names it in the
    environment of every Python worker. The file's name contains no secret, not even hashed.
    """
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    if not folder:
        return None
    # A different protocol means other listeners, or the wrong protocol for this one.
    protocol = settings.get("security.protocol", "plaintext").lower()
    public = f"{protocol} {settings['bootstrap.servers']}"
    return Path(folder, f"kafka-nb-reached-{hashlib.sha256(public.encode()).hexdigest()}")
