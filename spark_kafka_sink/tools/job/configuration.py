"""A configuration file -> a checked job, or one error that lists every mistake with its line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel, ValidationError

from spark_kafka_sink.config.option import did_you_mean
from spark_kafka_sink.config.option_table import BOOTSTRAP_SERVERS
from spark_kafka_sink.config.options import SinkOptions, check_for_format, parse
from spark_kafka_sink.errors import InvalidConfiguration, InvalidOption
from spark_kafka_sink.tools.job.document import Document, Mistake, Path, Place, invalid
from spark_kafka_sink.tools.job.model import (
    CreateTopics,
    Job,
    Metrics,
    Restart,
    Sink,
    Source,
    TopicSettings,
    Trigger,
)
from spark_kafka_sink.tools.job.references import References

_SINK_OPTIONS: Path = ("sink", "options")
#: where the topics are that the job creates
CREATE_TOPICS: Path = ("sink", "create_topics")
_CREATED = tuple(field.alias or name for name, field in CreateTopics.model_fields.items())
_MODELS: Mapping[Path, type[BaseModel]] = {
    (): Job,
    ("source",): Source,
    ("sink",): Sink,
    CREATE_TOPICS: CreateTopics,
    **{(*CREATE_TOPICS, name): TopicSettings for name in _CREATED},
    ("trigger",): Trigger,
    ("restart",): Restart,
    ("metrics",): Metrics,
}
_TEXT = "has to be text; write names in full, such as kafka.linger.ms"
_MAPPING = "has to be a mapping of keys to values"
# pydantic's kinds of errors
_EXPLAINED: Mapping[str, str] = {
    "bool_parsing": "has to be true or false",
    "dict_type": _MAPPING,
    "float_parsing": "has to be a number",
    "int_parsing": "has to be a whole number",
    "is_instance_of": _TEXT,
    "model_type": _MAPPING,
    "string_too_short": "is empty",
    "string_type": _TEXT,
}


@dataclass(frozen=True)
class Configuration:
    """A checked configuration file. ``sink_options``: those of ``job.sink``, parsed."""

    job: Job
    sink_options: SinkOptions
    document: Document

    def invalid(self, path: Path, what: str) -> InvalidConfiguration:
        """The error for a mistake that only Spark can find."""
        return invalid([self.document.mistake(path, what)])


def load(
    file: FilePath, overrides: Iterable[str] = (), environment: Mapping[str, str] = os.environ
) -> Configuration:
    """Read and check a configuration file; starts neither Spark nor a connection.

    ``overrides``: of the form ``sink.options.topic=numbers``. Raises InvalidConfiguration.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        what = f"the file cannot be read: {error.strerror}"
        raise invalid([Mistake(Place(str(file)), (), what)]) from None
    except UnicodeDecodeError:
        raise invalid([Mistake(Place(str(file)), (), "the file is not UTF-8")]) from None
    return check(Document(text, str(file), overrides), environment)


def check(document: Document, environment: Mapping[str, str] = os.environ) -> Configuration:
    """Raises InvalidConfiguration for all mistakes in the document together."""
    references = References(document, environment)
    mistakes = document.mistakes + references.mistakes
    job, found = _modelled(references.data, document, references.unresolved)
    mistakes += found
    options, broken = _sink_options(references)
    parsed = None
    if _SINK_OPTIONS in document:
        parsed, found = _parsed(options, document, broken)
        mistakes += found
    if job is not None and job.sink.mode == "format" and parsed is not None:
        try:
            check_for_format(parsed)
        except InvalidOption as error:
            mistakes.append(document.mistake(_SINK_OPTIONS, str(error)))
    mistakes += _without_effect(document, options)
    if mistakes or job is None or parsed is None:
        raise invalid(mistakes)
    return Configuration(job, parsed, document)


# --- the keys -------------------------------------------------------------------------------------


def _modelled(
    data: dict[str, Any], document: Document, unresolved: set[Path]
) -> tuple[Job | None, list[Mistake]]:
    try:
        return Job.model_validate(data), []
    except ValidationError as error:
        # Neither values nor pydantic's texts with values: they may be secrets in the wrong place.
        details = error.errors(include_url=False, include_input=False)
    mistakes = []
    for detail in details:
        path = tuple(str(part) for part in detail["loc"])
        if path not in unresolved and not _is_dropped(path, document):
            mistakes.append(document.mistake(path, _explained(path, dict(detail))))
    return None, mistakes


def _is_dropped(path: Path, document: Document) -> bool:
    """Whether the key is there but has no value, which is a mistake already."""
    return any(each.path == path for each in document.mistakes)


def _explained(path: Path, detail: Mapping[str, Any]) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = _keys(path[:-1])
        return f"unknown key{did_you_mean(path[-1], known)} (allowed: {', '.join(known)})"
    if kind == "missing":
        return f"is required: {_MODELS[path[:-1]].model_fields[path[-1]].description}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"allowed: {context['expected']}".replace("'", "")
    message = str(detail["msg"]).replace("Input should be", "has to be", 1)
    return _EXPLAINED.get(kind, message)


def _keys(path: Path) -> list[str]:
    fields = _MODELS[path].model_fields
    return [field.alias or name for name, field in fields.items()]


# --- the sink's options ---------------------------------------------------------------------------


def _sink_options(references: References) -> tuple[dict[str, str], set[str]]:
    """The options that have a value, and the names of those without one."""
    section: Any = references.data
    for key in _SINK_OPTIONS:
        section = section.get(key) if isinstance(section, dict) else None
    given = section if isinstance(section, dict) else {}
    values = {name: value for name, value in given.items() if isinstance(value, str)}
    unresolved = {path[-1] for path in references.unresolved if path[:-1] == _SINK_OPTIONS}
    return values, unresolved | (given.keys() - values.keys())


def _without_effect(document: Document, options: Mapping[str, str]) -> list[Mistake]:
    """Topics to create that no option names."""
    named = {name.lower() for name in options}
    return [
        document.mistake((*CREATE_TOPICS, name), f"has an effect only with sink.options.{name}")
        for name in _CREATED
        if (*CREATE_TOPICS, name) in document and name not in named
    ]


def _parsed(
    options: Mapping[str, str], document: Document, broken: set[str]
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
            mistakes.append(document.mistake(_SINK_OPTIONS, f"{servers} is required"))
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
            path = (*_SINK_OPTIONS, *named[:1])
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
