"""Prints the release notes of this version, from CHANGELOG.md."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from pathlib import Path

import spark_kafka_sink

ROOT = Path(__file__).parents[2]
CHANGELOG = ROOT / "CHANGELOG.md"
UNRELEASED = "Unreleased"
KINDS = ("Added", "Changed", "Deprecated", "Removed", "Fixed", "Security")
HEADING = re.compile(r"\[(?:(\d+)\.(\d+)\.(\d+)\] - \d{4}-\d\d-\d\d|Unreleased\])")


def sections(changelog: str) -> dict[str, str]:
    """The text below each version's heading, by version, the newest first.

    Raises ValueError if the text does not have the form of https://keepachangelog.com.
    """
    title, *parts = re.split(r"^## ", changelog, flags=re.MULTILINE)
    if not title.startswith("# Changelog\n"):
        raise ValueError('it does not begin with "# Changelog"')
    texts: dict[str, str] = {}
    numbers = []
    for part in parts:
        heading, _, text = part.partition("\n")
        matched = HEADING.fullmatch(heading)
        if not matched:
            raise ValueError(f'"## {heading}" is neither [Unreleased] nor [1.2.3] - 2026-01-31')
        version = heading[1 : heading.index("]")]
        if version in texts:
            raise ValueError(f"{version} has two sections")
        if version == UNRELEASED and texts:
            raise ValueError(f"{UNRELEASED} is not the first section")
        if version != UNRELEASED:
            numbers.append(tuple(map(int, matched.groups())))
        texts[version] = _checked(version, text.strip())
    if any(newer <= older for newer, older in pairwise(numbers)):
        raise ValueError("the versions are not in order, the newest first")
    return texts


def _checked(version: str, text: str) -> str:
    before, *parts = re.split(r"^### ", text, flags=re.MULTILINE)
    if re.search(r"^- ", before, re.MULTILINE):
        raise ValueError(f"{version} has changes outside {', '.join(KINDS)}")
    kinds = [part.partition("\n")[0] for part in parts]
    if unknown := set(kinds) - set(KINDS):
        raise ValueError(f"{version}: {', '.join(unknown)} is none of {', '.join(KINDS)}")
    if len(set(kinds)) < len(kinds):
        raise ValueError(f"{version} has a heading twice: {', '.join(kinds)}")
    return text


def notes(changelog: str, version: str) -> str:
    """The version's section, or what is unreleased as long as it has none. Raises ValueError."""
    texts = sections(changelog)
    text = texts.get(version) or texts.get(UNRELEASED)
    if not text:
        raise ValueError(f"it says nothing of {version}")
    return f"# {version}\n\n{text.replace('### ', '## ')}\n"


def this_version() -> str:
    try:
        return notes(CHANGELOG.read_text(encoding="utf-8"), spark_kafka_sink.__version__)
    except ValueError as error:
        raise SystemExit(f"{CHANGELOG.name}: {error}") from None


if __name__ == "__main__":
    sys.stdout.write(this_version())
