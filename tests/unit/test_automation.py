"""The hooks and the workflow call what make offers, for the versions that setup.cfg names."""

from __future__ import annotations

import configparser
import re
import runpy
import shlex

import yaml
from markdown_pages import ROOT

MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")
JOBS = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
CI = [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]
HOOKS = [
    hook
    for repository in yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    for hook in repository["hooks"]
]


def targets(commands: list[str]) -> set[str]:
    """What the commands make. They call nothing but make."""
    targets: set[str] = set()
    for command in commands:
        program, *words = shlex.split(re.sub(r"\$\{\{.*?\}\}", "EXPRESSION", command))
        assert program == "make", command
        targets |= {word for word in words if not word.startswith("-") and "=" not in word}
    return targets


def test_hooks_and_workflow_make_targets_that_exist():
    known = set(re.findall(r"^([a-z-]+):", MAKEFILE, re.MULTILINE))
    assert targets(CI) <= known
    assert targets([hook["entry"] for hook in HOOKS]) <= known


def test_hooks_use_the_programs_that_make_installs():
    """Versions of their own could disagree with those of `make lint types`."""
    assert targets([hook["entry"] for hook in HOOKS]) == {"lint", "types"}
    assert {hook["language"] for hook in HOOKS} == {"system"}


def test_the_workflow_runs_every_check():
    assert targets(CI) == {
        "lint",
        "types",
        "test",
        "test-slow",
        "test-search",
        "test-sparks",
        "test-versions",
        "release-check",
    }


def test_the_workflow_has_the_matrix_of_test_versions():
    versions = runpy.run_path(str(ROOT / "tests" / "versions.py"))
    matrix = JOBS["versions"]["strategy"]["matrix"]["include"]
    pythons = {entry["versions"]: entry["python"] for entry in matrix}
    assert set(pythons) == set(versions["NAMES"])
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    assert setup["options"]["python_requires"] == f">={pythons['lowest']}"
