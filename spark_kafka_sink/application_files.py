"""[both] Files that the Python workers of a Spark application share on one machine.

They are in the application's folder, ``private_api.application_folder``; without it, nothing is
stored. Only files of this user are trusted. No name shows a secret.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "kafka-nb-"


def mark(folder: Path | None, kind: str, text: str) -> bool:
    """Create an empty file for this text; never raises.

    Returns whether no process of the application has done so before; True if nothing can be stored.
    """
    if folder is None:
        return True
    flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY
    try:
        os.close(os.open(_marker(folder, kind, text), flags, 0o600))
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def is_marked(folder: Path, kind: str, text: str) -> bool:
    """Whether a process of the application called ``mark``; True if nothing can be stored."""
    return not os.access(folder, os.W_OK | os.X_OK) or _is_ours(_marker(folder, kind, text))


def _marker(folder: Path, kind: str, text: str) -> Path:
    return folder / f"{PREFIX}{kind}-{hashlib.sha256(text.encode()).hexdigest()}"


def _is_ours(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()


def read(path: Path) -> bytes | None:
    """The content of a file that ``write`` may have written, or None; never raises."""
    with suppress(OSError):
        return path.read_bytes() if _is_ours(path) else None
    return None


def write(path: Path, content: bytes) -> None:
    """Write a file unless it is there; never raises.

    It appears complete, readable for this user only.
    """
    with suppress(OSError):
        handle, draft = tempfile.mkstemp(prefix=PREFIX, dir=path.parent)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        except OSError:  # a file system without hard links; there the last one wins
            Path(draft).replace(path)
            return
        Path(draft).unlink()
