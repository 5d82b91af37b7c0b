"""Python programs in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any


def run_python(
    *arguments: str | Path, check: bool = True, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run this Python with the arguments; ``options``: of ``subprocess.run``."""
    command = [sys.executable, *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=150, check=False, **options
    )
    assert done.returncode == 0 or not check, done.stderr
    return done
