"""A headless Chromium, if the machine has one (Debian: apt-get install chromium-headless-shell)."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

PACKAGE = "chromium-headless-shell"
_COMMANDS = (PACKAGE, "chromium", "chromium-browser", "google-chrome", "chrome")


def command() -> str | None:
    return next(filter(None, map(shutil.which, _COMMANDS)), None)


def run(page: Path, *options: str) -> str:
    """Open a page with an empty profile; returns what the browser prints."""
    browser = command()
    assert browser, f"no Chromium: apt-get install {PACKAGE}"
    # Root, as in containers, has no sandbox.
    always = ("--headless", "--no-sandbox", "--disable-gpu")
    with tempfile.TemporaryDirectory() as profile:
        ended = subprocess.run(
            [browser, *always, f"--user-data-dir={profile}", *options, page.resolve().as_uri()],
            capture_output=True,
            text=True,
            timeout=150,
            check=True,
        )
    return ended.stdout
