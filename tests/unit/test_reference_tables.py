"""docs/options.md and docs/errors.md list what the code defines."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from spark_kafka_sink import errors
from spark_kafka_sink.config.option import Option
from spark_kafka_sink.config.option_table import OPTIONS

DOCS = Path(__file__).parents[2] / "docs"


def table(name: str) -> list[str]:
    """The lines between the two comments with the page's name."""
    lines = (DOCS / f"{name}.md").read_text(encoding="utf-8").splitlines()
    marked = lines[lines.index(f"<!-- {name} -->") + 1 : lines.index(f"<!-- /{name} -->")]
    return [line for line in marked if line]


def row(option: Option) -> str:
    default = option.if_absent if option.default is None else f"`{option.default}`"
    return f"| `{option.name}` | {default} | {option.description} |"


def test_the_table_of_options_is_as_the_code_defines_them():
    expected = ["| Option | Default | Meaning |", "|---|---|---|", *map(row, OPTIONS)]
    assert table("options") == expected


def test_the_table_of_errors_has_every_error_once():
    classes = (each for _, each in inspect.getmembers(errors, inspect.isclass))
    public = [each.__name__ for each in classes if issubclass(each, errors.KafkaSinkError)]
    public.remove(errors.KafkaSinkError.__name__)
    listed = re.findall(r"^\| `(\w+)` \|", "\n".join(table("errors")), re.MULTILINE)
    assert sorted(listed) == sorted(public)
