"""The sink's options in a configuration file: parsed, or every mistake in them."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_sink.config.option_table import BOOTSTRAP_SERVERS
from spark_kafka_sink.config.options import SinkOptions, parse
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.tools.job.document import Document, Mistake, Path
from spark_kafka_sink.tools.job.model import CreateTopics
from spark_kafka_sink.tools.job.references import References

#: where the options are in the file
OPTIONS: Path = ("sink", "options")
#: the options that name topics to create
CREATED = tuple(field.alias or name for name, field in CreateTopics.model_fields.items())


def parse_options(
    document: Document, references: References
) -> tuple[SinkOptions | None, list[Mistake]]:
    """The sink's options, or the mistakes that they have."""
    sink = references.data.get("sink")
    section = sink.get("options") if isinstance(sink, dict) else None
    written = section if isinstance(section, dict) else {}
    values = {name: value for name, value in written.items() if isinstance(value, str)}
    without_value = {path[-1] for path in references.unresolved if path[:-1] == OPTIONS}
    without_value |= written.keys() - values.keys()
    mistakes = _topics_without_option(document, values)
    if OPTIONS not in document:
        return None, mistakes
    options, option_mistakes = _parsed(values, document, without_value)
    return options, mistakes + option_mistakes


def _topics_without_option(document: Document, options: Mapping[str, str]) -> list[Mistake]:
    """Topics to create that no option names."""
    names = {name.lower() for name in options}
    create = ("sink", "create_topics")
    return [
        document.mistake((*create, name), f"has an effect only with sink.options.{name}")
        for name in CREATED
        if (*create, name) in document and name not in names
    ]


def _parsed(
    options: Mapping[str, str], document: Document, without_value: set[str]
) -> tuple[SinkOptions | None, list[Mistake]]:
    """The options, checked, or all mistakes in them.

    ``parse`` raises the first mistake, so an option that is wrong is left out and the others are
    parsed again. Then it is not known any more whether they contradict each other.
    """
    remaining = dict(options)
    mistakes: list[Mistake] = []
    servers = BOOTSTRAP_SERVERS.name
    if servers not in (name.lower() for name in remaining):
        if servers not in (name.lower() for name in without_value):
            mistakes.append(document.mistake(OPTIONS, f"{servers} is required"))
        remaining[servers] = "placeholder:9092"
    is_complete = not without_value and not mistakes
    while True:
        try:
            parsed = parse(remaining)
        except InvalidOption as error:
            wrong = (error.option or "").lower()
            name = next((name for name in remaining if name.lower() == wrong), None)
            if name is not None:
                mistakes.append(document.mistake((*OPTIONS, name), str(error)))
                del remaining[name]
                is_complete = False
                continue
            if is_complete:
                mistakes.append(document.mistake(OPTIONS, str(error)))
            return None, mistakes
        return (parsed if is_complete else None), mistakes
