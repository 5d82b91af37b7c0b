"""Writes what pages say of options, reports, errors and columns from the code: ``make figures``.

The tables in options.md, report_format.md, metrics.md, errors.md and format.md, and
report_schema.json.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from spark_kafka_sink.advice import Advice
from spark_kafka_sink.config.option_table import OPTIONS
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.report.batch_figures import FIGURES, VERSION
from spark_kafka_sink.report.figures import Kind
from spark_kafka_sink.report.metrics import PROGRESS_METRICS, QUERY_METRICS, REPORT_METRICS, Metric
from spark_kafka_sink.spark.schema_check import CONVERSIONS
from spark_kafka_sink.tools.doctor.waits import NESTED, seconds

DOCS = Path(__file__).parent
END = "<!-- /written -->"
#: an option or setting, perhaps with a value
_SETTING = re.compile(r"(?<![\w.])\.?[a-z]+((\.[a-zA-Z0-9*_]+)+(=[\w-]+)?|=[a-z]+)")

#: an error's name in reports, metrics and logs
_NAME = re.compile(r"`_?[A-Z][A-Z_]+`")

_COUNT = {"type": "integer", "minimum": 0}
_BY_NAME = {"type": "object", "additionalProperties": _COUNT}
_SCHEMAS: dict[Kind, dict[str, Any]] = {
    Kind.INTEGER: _COUNT,
    Kind.NUMBER: {"type": "number", "minimum": 0},
    Kind.TEXT: {"type": "string"},
    Kind.TIMESTAMP: {"type": "string", "format": "date-time"},
    Kind.INTEGERS_BY_NAME: _BY_NAME,
    Kind.INTEGERS_BY_TOPIC_AND_ERROR: {"type": "object", "additionalProperties": _BY_NAME},
}


def pages() -> dict[Path, str]:
    """What each file says."""
    return {
        DOCS / "options.md": _page("options.md", {"options": _options()}),
        DOCS / "report_format.md": _page("report_format.md", {"figures": _figures()}),
        DOCS / "errors.md": _page("errors.md", {"advice": _advice()}),
        DOCS / "operations.md": _page("operations.md", {"times": _times()}),
        DOCS / "format.md": _page("format.md", {"conversions": _conversions()}),
        DOCS / "report_schema.json": json.dumps(schema(), indent=2) + "\n",
        DOCS / "metrics.md": _page(
            "metrics.md",
            {
                "metrics of reports": _metrics(REPORT_METRICS),
                "metrics of Spark": _metrics(PROGRESS_METRICS + QUERY_METRICS),
            },
        ),
    }


def _page(name: str, parts: dict[str, Iterable[str]]) -> str:
    text = (DOCS / name).read_text(encoding="utf-8")
    for part, lines in parts.items():
        begin = f"<!-- {part}: written by `make figures` -->"
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(END)
        text = "\n".join([f"{before}{begin}\n", *lines, f"\n{END}{after}"])
    return text


def _options() -> Iterator[str]:
    yield from ("| Option | Default | Meaning |", "|---|---|---|")
    for option in OPTIONS:
        default = option.if_absent if option.default is None else f"`{option.default}`"
        yield f"| `{option.name}` | {default} | {option.description} |"


def _conversions() -> Iterator[str]:
    yield from ("| Column | Of type | Write instead |", "|---|---|---|")
    for conversion in CONVERSIONS:
        columns = conversion.columns
        instead = (
            f"`{expression.format(columns[0] if len(columns) == 1 else 'c')}`"
            for expression in conversion.expressions
        )
        names = ", ".join(f"`{column}`" for column in columns)
        yield f"| {names} | {conversion.types} | {' or '.join(instead)} |"


def _figures() -> Iterator[str]:
    yield from ("| Name | Meaning |", "|---|---|", "| `version` | of this format |")
    for name, figure in FIGURES.items():
        yield f"| `{name}` | {figure.meaning} |"


def schema() -> dict[str, Any]:
    """A JSON Schema of a line."""
    properties = {"version": {"const": VERSION, "description": "of this format"}}
    for name, figure in FIGURES.items():
        value = dict(_SCHEMAS[figure.kind])
        if figure.one_of:
            value = {"enum": list(figure.one_of)}
        if figure.nullable:
            value["type"] = [value["type"], "null"]
        properties[name] = {**value, "description": figure.meaning}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Report of a micro-batch",
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _metrics(metrics: Iterable[Metric]) -> Iterator[str]:
    yield from ("| Metric | Type | Labels | Meaning | From |", "|---|---|---|---|---|")
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels) or "-"
        source = ", ".join(f"`{name}`" for name in metric.source.split(", "))
        if metric in QUERY_METRICS:
            source = "events"
        yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} | {source} |"


def _times() -> Iterator[str]:
    options = parse(
        {
            "kafka.bootstrap.servers": "localhost:9092",
            "topic": "t",
            "delivery.guarantee": "exactly-once",
            "transactional.id.prefix": "p",
        }
    )
    yield from ("| Part | Times | Less than | Because |", "|---|---|---|---|")
    for row in NESTED:
        part, whole = (f"`{name}`, {seconds(name, options):g} s" for name in (row.part, row.whole))
        yield f"| {part} | {row.times} | {whole} | {row.why} |"


def _advice() -> Iterator[str]:
    yield from ("| You see | Because | Do |", "|---|---|---|")
    # Errors without such a name end with their meaning and remedy.
    for advice in filter(lambda advice: _NAME.match(advice.sign), Advice):
        row = f"| {advice.sign} | {advice.meaning}. | {advice.remedy}. |".split("`")
        row[::2] = [_SETTING.sub(r"`\g<0>`", text) for text in row[::2]]  # the others are code
        yield "`".join(row)


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
