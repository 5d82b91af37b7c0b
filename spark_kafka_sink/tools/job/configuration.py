"""A configuration file -> a checked job, or one error that lists every mistake with its line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath

from spark_kafka_sink.config.option_table import DEAD_LETTER_TOPIC, EXACTLY_ONCE_LEDGER_TOPIC, TOPIC
from spark_kafka_sink.config.options import SinkOptions, check_for_format
from spark_kafka_sink.errors import InvalidConfiguration, InvalidOption
from spark_kafka_sink.tools.job.document import Document, Mistake, Path, Place, invalid
from spark_kafka_sink.tools.job.keys import read_job
from spark_kafka_sink.tools.job.model import Job, TopicSettings
from spark_kafka_sink.tools.job.references import References
from spark_kafka_sink.tools.job.sink_options import OPTIONS, parse_options

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
        """By their place in the file: the topics that are created if they are missing, and how."""
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
            ("sink", "create_topics", option): (topic, settings)
            for option, (topic, settings) in topics.items()
            if topic is not None and settings is not None
        }

    def created_topics(self) -> dict[str, int]:
        """The partitions of the topics that are created if they are missing, for doctor."""
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
    options, option_mistakes = parse_options(document, references)
    mistakes = [*document.mistakes, *references.mistakes, *key_mistakes, *option_mistakes]
    if job is not None and options is not None and job.sink.mode == "format":
        try:
            check_for_format(options)
        except InvalidOption as error:
            mistakes.append(document.mistake(OPTIONS, str(error)))
    if mistakes or job is None or options is None:
        raise invalid(mistakes)
    return Configuration(job, options, document)
