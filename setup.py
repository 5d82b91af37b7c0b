"""Adds to setup.cfg the text that package indexes show."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import setup

# An index shows README.md without the repository, where relative links and pictures lead nowhere.
# A picture's alternative text has what it shows; of a link, the text remains.
_LINK = re.compile(r"\[([^]]*)\]\((?!https?:)[^)]*\)")
_PICTURE = re.compile("!" + _LINK.pattern)


def description() -> str:
    """README.md without the pictures and links that need the repository."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    return _LINK.sub(r"\1", _PICTURE.sub(r"*Picture: \1.*", text))


setup(long_description=description(), long_description_content_type="text/markdown")
