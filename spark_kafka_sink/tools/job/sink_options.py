"""A sink's options in a configuration file: parsed, or every mistake in them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from spark_kafka_sink.config.option_table import BOOTSTRAP_SERVERS
from spark_kafka_sink.config.options import SinkOptions, parse
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.tools.job.document import Document, Mistake, Path
from spark_kafka_sink.tools.job.model import CreateTopics
from spark_kafka_sink.tools.job.references import References

CREATED = tuple(field.alias or name for name, field in CreateTopics.model_fields.items())


def checked_options(
    sink: Path, document: Document, references: References
) -> tuple[SinkOptions | None, list[Mistake]]:
    """The options of the sink at a path of the document, or the mistakes that they have."""
    at = (*sink, "options")
    options, broken = _options(at, references)
    mistakes = _without_effect(sink, document, options)
    if at not in document:
        return None, mistakes
    parsed, found = _parsed(options, document, at, broken)
    return parsed, mistakes + found


def _options(at: Path, references: References) -> tuple[dict[str, str], set[str]]:
    """The options that have a value, and the names of those without one."""
    section: Any = references.data
    for key in at:
        section = section.get(key) if isinstance(section, dict) else None
    given = section if isinstance(section, dict) else {}
    values = {name: value for name, value in given.items() if isinstance(value, str)}
    unresolved = {path[-1] for path in references.unresolved if path[:-1] == at}
    return values, unresolved | (given.keys() - values.keys())


def _without_effect(sink: Path, document: Document, options: Mapping[str, str]) -> list[Mistake]:
    """Topics to create that no option names."""
    named = {name.lower() for name in options}
    create = (*sink, "create_topics")
    return [
        document.mistake(
            (*create, name), f"has an effect only with {'.'.join((*sink, 'options', name))}"
        )
        for name in CREATED
        if (*create, name) in document and name not in named
    ]


def _parsed(
    options: Mapping[str, str], document: Document, at: Path, broken: set[str]
) -> tuple[SinkOptions | None, list[Mistake]]:
    """The options, checked, or all mistakes in them.

    ``parse`` raises the first mistake, so the option that it names is left out and the others are
    parsed again. What may be wrong only because an option was left out is not reported.
    """
    left = dict(options)
    left_out = {name.lower() for name in broken}
    mistakes: list[Mistake] = []
    servers = BOOTSTRAP_SERVERS.name
    if servers not in (name.lower() for name in left):
        if servers not in left_out:
            mistakes.append(document.mistake(at, f"{servers} is required"))
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
            path = (*at, *named[:1])
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
