"""A configuration file -> a checked job, or one error that lists every mistake with its line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath

from spark_kafka_sink.config.option_table import (
    BOOTSTRAP_SERVERS,
    DEAD_LETTER_TOPIC,
    EXACTLY_ONCE_LEDGER_TOPIC,
    TOPIC,
)
from spark_kafka_sink.config.options import SinkOptions, check_for_format, review
from spark_kafka_sink.driver.options import complete_options
from spark_kafka_sink.errors import InvalidConfiguration, InvalidOption
from spark_kafka_sink.tools.job.document import (
    CREATE_TOPICS,
    CREATED,
    Document,
    Mistake,
    Path,
    Place,
    References,
    invalid,
)
from spark_kafka_sink.tools.job.model import Job, TopicSettings, read_job

#: where the sink's options are in the file
OPTIONS: Path = ("sink", "options")

_SEVERAL_SINKS = (
    "a job has one sink: write a file for each, with a checkpoint of its own, and start a job for "
    "each file"
)


@dataclass(frozen=True)
class Configuration:
    """The checked configuration of a job. ``sink_options``: those of ``job.sink``, parsed."""

    job: Job
    sink_options: SinkOptions
    document: Document

    def mistake(self, path: Path, what: str) -> Mistake:
        """A mistake at a path of ``job``, with its place in the file."""
        return self.document.mistake(path, what)

    def invalid(self, path: Path, what: str) -> InvalidConfiguration:
        """The error for a mistake that only Spark can find."""
        return invalid([self.mistake(path, what)])

    def topics_to_create(self) -> dict[Path, tuple[str, TopicSettings]]:
        """The topics that are created if they are missing, and how, by their place in the file."""
        create, options = self.job.sink.create_topics, self.sink_options
        if create is None:
            return {}
        exactly_once = options.exactly_once
        topics = {
            TOPIC.name: (options.topic, create.topic),
            DEAD_LETTER_TOPIC.name: (options.dead_letter_topic, create.dead_letter_topic),
            EXACTLY_ONCE_LEDGER_TOPIC.name: (
                None if exactly_once is None else exactly_once.ledger_topic,
                create.ledger_topic,
            ),
        }
        return {
            (*CREATE_TOPICS, option): (topic, settings)
            for option, (topic, settings) in topics.items()
            if topic is not None and settings is not None
        }

    def created_topics(self) -> dict[str, int]:
        """For doctor: the topics that are created if they are missing, and their partitions."""
        wanted = self.topics_to_create().values()
        return {topic: settings.partitions for topic, settings in wanted}


def load(
    file: FilePath, overrides: Iterable[str] = (), environment: Mapping[str, str] = os.environ
) -> Configuration:
    """Read and check a configuration file; starts neither Spark nor a connection.

    ``overrides``: of the form ``sink.options.topic=numbers``. Raises InvalidConfiguration.
    """
    return check(read(file, overrides), environment)


def read(file: FilePath, overrides: Iterable[str] = ()) -> Document:
    """Read a file without checking it; raises InvalidConfiguration."""
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        what = f"the file cannot be read: {error.strerror}"
        raise invalid([Mistake(Place(str(file)), (), what)]) from None
    except UnicodeDecodeError:
        raise invalid([Mistake(Place(str(file)), (), "the file is not UTF-8")]) from None
    return Document(text, str(file), overrides)


def check(document: Document, environment: Mapping[str, str] = os.environ) -> Configuration:
    """Raises InvalidConfiguration for all mistakes in the document together."""
    if ("sinks",) in document:
        raise invalid([document.mistake(("sinks",), _SEVERAL_SINKS)])
    references = References(document, environment)
    job, key_mistakes = read_job(document, references)
    options, option_mistakes = _parse_options(document, references)
    mistakes = [*document.mistakes, *references.mistakes, *key_mistakes, *option_mistakes]
    if job is not None and options is not None and job.sink.mode == "format":
        try:
            check_for_format(options)
        except InvalidOption as error:
            mistakes.append(document.mistake(OPTIONS, str(error)))
    if mistakes or job is None or options is None:
        raise invalid(mistakes)
    return Configuration(job, options, document)


def _parse_options(
    document: Document, references: References
) -> tuple[SinkOptions | None, list[Mistake]]:
    """The sink's options, or the mistakes that they have."""
    sink = references.data.get("sink")
    section = sink.get("options") if isinstance(sink, dict) else None
    written = section if isinstance(section, dict) else {}
    values = {name: value for name, value in written.items() if isinstance(value, str)}
    without_value = {path[-1] for path in references.unresolved if path[:-1] == OPTIONS}
    without_value |= {m.path[-1] for m in document.mistakes if m.path[:-1] == OPTIONS}
    mistakes = _topics_without_option(document, {*values, *without_value})
    if OPTIONS not in document:
        return None, mistakes
    return _reviewed(values, without_value, document, mistakes)


def _topics_without_option(document: Document, options: Iterable[str]) -> list[Mistake]:
    """Topics to create that no option names."""
    names = {name.lower() for name in options}
    return [
        document.mistake((*CREATE_TOPICS, name), f"has an effect only with sink.options.{name}")
        for name in CREATED
        if (*CREATE_TOPICS, name) in document and name not in names
    ]


def _reviewed(
    options: dict[str, str], without_value: set[str], document: Document, mistakes: list[Mistake]
) -> tuple[SinkOptions | None, list[Mistake]]:
    """The options, checked, or all mistakes in them too."""
    if BOOTSTRAP_SERVERS.name in (name.lower() for name in without_value):
        options = {**options, BOOTSTRAP_SERVERS.name: "placeholder:9092"}
    reviewed = review(options, is_complete=not without_value)
    problems = list(reviewed.problems)
    if reviewed.options is not None and not (problems or without_value):
        try:
            return complete_options(reviewed.options), mistakes
        except InvalidOption as error:
            problems.append(error)
    for problem in problems:
        name = () if problem.option is None else (problem.option,)
        place = (*OPTIONS, *name) if (*OPTIONS, *name) in document else OPTIONS
        mistakes.append(document.mistake(place, str(problem)))
    return None, mistakes
