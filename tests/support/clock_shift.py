"""Processes whose wall clock can be moved while they run; their monotonic clock stays."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

_SOURCE = Path(__file__).with_suffix(".c")
_COMPILE_SECONDS = 60


class ShiftedClock:
    """Compiles a library that processes preload; needs ``cc`` and glibc."""

    def __init__(self, folder: Path) -> None:
        self._library = folder / "clock_shift.so"
        self._file = folder / "clock_shift"
        self._file.write_bytes(bytes(8))
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", self._library, _SOURCE, "-ldl"]
        subprocess.run(command, check=True, timeout=_COMPILE_SECONDS)

    def move_to(self, seconds: int) -> None:
        """So far ahead of this machine's clock; behind, if it is negative."""
        # In place: processes have mapped the file.
        with self._file.open("r+b") as file:
            file.write(seconds.to_bytes(8, "little", signed=True))

    @contextmanager
    def shift_new_processes(self) -> Iterator[None]:
        """Processes that start inside the block have this clock."""
        preload = {"LD_PRELOAD": str(self._library), "CLOCK_SHIFT_FILE": str(self._file)}
        with patch.dict(os.environ, preload):
            yield
