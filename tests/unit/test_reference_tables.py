"""docs/doctor.md lists the checks that the code defines."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from spark_kafka_sink.tools.doctor.diagnosis import CHECKS, Check

DOCS = Path(__file__).parents[2] / "docs"


def table(name: str) -> list[str]:
    """The lines between the two comments with the page's name."""
    lines = (DOCS / f"{name}.md").read_text(encoding="utf-8").splitlines()
    marked = lines[lines.index(f"<!-- {name} -->") + 1 : lines.index(f"<!-- /{name} -->")]
    return [line for line in marked if line]


def what_it_checks(check: Check) -> str:
    first_paragraph = (inspect.getdoc(check.run) or "").partition("\n\n")[0]
    return f"| `{check.name}` | {first_paragraph.replace('``', '`')} |"


def test_the_table_of_checks_is_as_the_code_describes_them():
    expected = ["| Check | What it checks |", "|---|---|", *map(what_it_checks, CHECKS)]
    assert table("doctor") == expected


def test_the_readme_says_how_many_checks_doctor_makes():
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert re.findall(r"makes (\d+) checks", readme) == [str(len(CHECKS))]
