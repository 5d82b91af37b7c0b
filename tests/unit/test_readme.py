from __future__ import annotations

from pathlib import Path

from spark_kafka_sink.config.options import OPTIONS, Option

README = Path(__file__).parents[2] / "README.md"


def row(option: Option) -> str:
    is_literal = option.default != "-" and " " not in option.default
    default = f"`{option.default}`" if is_literal else option.default
    return f"| `{option.name}` | {default} | {option.meaning} |"


def test_readme_lists_the_options_as_the_code_knows_them():
    lines = README.read_text(encoding="utf-8").splitlines()
    table = lines[lines.index("<!-- options -->") + 1 : lines.index("<!-- /options -->")]
    expected = ["| Option | Default | Meaning |", "|---|---|---|", *map(row, OPTIONS)]
    assert [line for line in table if line] == expected
