from __future__ import annotations

from pathlib import Path

from spark_kafka_sink.config.option import Option
from spark_kafka_sink.config.options import OPTIONS

README = Path(__file__).parents[2] / "README.md"


def row(option: Option) -> str:
    default = option.if_absent if option.default is None else f"`{option.default}`"
    return f"| `{option.name}` | {default} | {option.description} |"


def test_readme_lists_the_options_as_the_code_defines_them():
    lines = README.read_text(encoding="utf-8").splitlines()
    table = lines[lines.index("<!-- options -->") + 1 : lines.index("<!-- /options -->")]
    expected = ["| Option | Default | Meaning |", "|---|---|---|", *map(row, OPTIONS)]
    assert [line for line in table if line] == expected
