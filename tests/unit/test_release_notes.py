from __future__ import annotations

import runpy
from pathlib import Path

import pytest

SCRIPT = runpy.run_path(str(Path(__file__).parents[1] / "release" / "notes.py"))
notes, this_version = SCRIPT["notes"], SCRIPT["this_version"]

CHANGELOG = """# Changelog

## [Unreleased]

### Added

- three

## [0.2.0] - 2026-02-28

### Added

- two

### Fixed

- a fault

## [0.1.0] - 2026-01-31

### Added

- one
"""


def test_this_version_has_notes():
    assert this_version()


def test_the_notes_of_a_version_are_its_section():
    assert notes(CHANGELOG, "0.2.0") == "# 0.2.0\n\n## Added\n\n- two\n\n## Fixed\n\n- a fault\n"


def test_a_version_may_begin_with_an_introduction():
    introduced = CHANGELOG.replace("02-28\n\n", "02-28\n\nSee how to upgrade.\n\n")
    assert notes(introduced, "0.2.0").startswith("# 0.2.0\n\nSee how to upgrade.\n\n## Added\n")


def test_a_version_without_a_section_is_the_next_one():
    assert notes(CHANGELOG, "0.3.0") == "# 0.3.0\n\n## Added\n\n- three\n"


def test_a_version_of_which_nothing_is_said_has_no_notes():
    released = CHANGELOG.replace("## [Unreleased]\n\n### Added\n\n- three\n\n", "")
    with pytest.raises(ValueError, match=r"says nothing of 0\.3\.0"):
        notes(released, "0.3.0")


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("# Changelog", "# Changes", "begin with"),
        ("[0.1.0] - 2026-01-31", "0.1.0", "neither"),
        ("[0.1.0] - 2026-01-31", "[0.1.0] - January", "neither"),
        ("[0.1.0]", "[0.2.0]", "two sections"),
        ("[0.1.0]", "[0.10.0]", "not in order"),
        ("[0.1.0] - 2026-01-31", "[Unreleased]", "two sections"),
        ("### Fixed", "### Bugs", "Bugs is none of"),
        ("### Fixed", "### Added", "twice"),
        ("- 2026-01-31\n", "- 2026-01-31\n\n- the first\n", "changes outside"),
    ],
)
def test_a_changelog_in_another_form_is_rejected(right, wrong, message):
    changed = CHANGELOG.replace(right, wrong, 1)
    assert changed != CHANGELOG
    with pytest.raises(ValueError, match=message):
        notes(changed, "0.1.0")


def test_the_unreleased_section_comes_first():
    first, second = "## [0.2.0] - 2026-02-28", "## [Unreleased]"
    swapped = CHANGELOG.replace(second, "X").replace(first, second).replace("X", first)
    with pytest.raises(ValueError, match="not the first"):
        notes(swapped, "0.1.0")
