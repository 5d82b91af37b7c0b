"""The sink's options in a configuration file: parsed, or every mistake in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

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

    ``parse`` raises the first mistake, so the option that it names is left out and the others are
    parsed again. What may be wrong only because an option was left out is not reported.
    """
    left = dict(options)
    left_out = {name.lower() for name in without_value}
    mistakes: list[Mistake] = []
    servers = BOOTSTRAP_SERVERS.name
    if servers not in (name.lower() for name in left):
        if servers not in left_out:
            mistakes.append(document.mistake(OPTIONS, f"{servers} is required"))
        left[servers] = "placeholder:9092"
        left_out.add(servers)
    while True:
        try:
            parsed = parse(left)
        except InvalidOption as error:
            message = str(error)
        else:
            return (None if left_out else parsed), mistakes
        named = _named(message, left)
        if named:
            del left[named[0]]
        if not left_out or (named and not _named(message, left_out)):
            path = (*OPTIONS, *named[:1])
            mistakes.append(document.mistake(path, message))
        if not named:
            return None, mistakes
        left_out.add(named[0].lower())


def _named(message: str, names: Iterable[str]) -> list[str]:
    """The options that a message names, first the one that it is about."""
    sentence = message.partition("; did you mean")[0]
    found = []
    for name in names:
        match = re.search(rf"(?<![\w.]){re.escape(name)}(?![\w-]|\.\w)", sentence, re.IGNORECASE)
        if match is not None:
            found.append((match.start(), name))
    return [name for _, name in sorted(found)]
