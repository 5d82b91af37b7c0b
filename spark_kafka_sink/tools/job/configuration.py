"""A configuration file -> a checked job, or one error that lists every mistake with its line."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath

from spark_kafka_sink.config.option_table import DEAD_LETTER_TOPIC, EXACTLY_ONCE_LEDGER_TOPIC, TOPIC
from spark_kafka_sink.config.options import SinkOptions, check_for_format
from spark_kafka_sink.errors import InvalidConfiguration, InvalidOption
from spark_kafka_sink.tools.job.distinct import invalid_names, shared
from spark_kafka_sink.tools.job.document import Document, Mistake, Path, Place, invalid
from spark_kafka_sink.tools.job.keys import modelled
from spark_kafka_sink.tools.job.model import Job, JobOfSeveralSinks, SinkOfSeveral, TopicSettings
from spark_kafka_sink.tools.job.references import References
from spark_kafka_sink.tools.job.sink_options import checked_options

_ONE_SINK: Path = ("sink",)


@dataclass(frozen=True)
class QueryConfiguration:
    """The checked configuration of one query.

    ``sink_options``: those of ``job.sink``, parsed. ``sink``: where the sink is in the file. Of
    several sinks, each has a ``job`` of its own, as if it were the only one.
    """

    job: Job
    sink_options: SinkOptions
    document: Document
    sink: Path = _ONE_SINK

    def mistake(self, path: Path, what: str) -> Mistake:
        """A mistake at a path of ``job``, with its place in the file."""
        return self.document.mistake(self._in_file(path), what)

    def invalid(self, path: Path, what: str) -> InvalidConfiguration:
        """The error for a mistake that only Spark can find."""
        return invalid([self.mistake(path, what)])

    def topics_to_create(self) -> dict[Path, tuple[str, TopicSettings]]:
        """By their place in ``job``: the topics that are created if they are missing, and how."""
        create, options = self.job.sink.create_topics, self.sink_options
        if create is None:
            return {}
        exactly_once = options.exactly_once
        found = {
            TOPIC.name: (options.topic, create.topic),
            DEAD_LETTER_TOPIC.name: (options.dead_letter_topic, create.dead_letter_topic),
            EXACTLY_ONCE_LEDGER_TOPIC.name: (
                None if exactly_once is None else exactly_once.ledger_topic,
                create.ledger_topic,
            ),
        }
        return {
            (*_ONE_SINK, "create_topics", name): (topic, settings)
            for name, (topic, settings) in found.items()
            if topic is not None and settings is not None
        }

    def created_topics(self) -> dict[str, int]:
        """The partitions of the topics that are created if they are missing, for doctor."""
        wanted = self.topics_to_create().values()
        return {topic: settings.partitions for topic, settings in wanted}

    def _in_file(self, path: Path) -> Path:
        if self.sink == _ONE_SINK:
            return path
        if path[:1] == _ONE_SINK:
            return (*self.sink, *path[1:])
        is_of_query = not path or path[0] in SinkOfSeveral.model_fields
        return (*self.sink, *path) if is_of_query else path


@dataclass(frozen=True)
class JobFile:
    """A checked configuration file. ``queries``: one for each sink, in the order of the file."""

    job: Job | JobOfSeveralSinks
    queries: tuple[QueryConfiguration, ...]
    document: Document

    @property
    def has_several_sinks(self) -> bool:
        """Whether the file has ``sinks``, if only with one entry."""
        return isinstance(self.job, JobOfSeveralSinks)

    @property
    def stops_all(self) -> bool:
        """Whether a query that has failed for good ends the others."""
        return isinstance(self.job, JobOfSeveralSinks) and self.job.on_failure == "stop_all"

    def of_sink(self, name: str | None) -> QueryConfiguration:
        """The query of the sink ``--sink NAME``; None: the only one, of a file with ``sink``.

        Raises InvalidConfiguration.
        """
        sink = sink_path(self.document, name)
        return next(each for each in self.queries if each.sink == sink)


def load(
    file: FilePath, overrides: Iterable[str] = (), environment: Mapping[str, str] = os.environ
) -> JobFile:
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


def sink_path(document: Document, name: str | None) -> Path:
    """Where the sink ``--sink NAME`` is; None: the only one. Raises InvalidConfiguration."""
    if ("sinks",) not in document:
        if name is None:
            return _ONE_SINK
        raise _wrong_choice("the file has sink, not sinks; leave out --sink")
    sinks = document.data.get("sinks")
    names = ", ".join(sinks) if isinstance(sinks, dict) else ""
    if name is None:
        raise _wrong_choice(f"the file has several sinks; choose one of them: {names}")
    if ("sinks", name) not in document:
        raise _wrong_choice(f"there is no sink {name}; choose one of them: {names}")
    return ("sinks", name)


def _wrong_choice(what: str) -> InvalidConfiguration:
    return invalid([Mistake(Place("--sink"), (), what)])


def check(document: Document, environment: Mapping[str, str] = os.environ) -> JobFile:
    """Raises InvalidConfiguration for all mistakes in the document together."""
    references = References(document, environment)
    job, found = modelled(document, references)
    mistakes = [*document.mistakes, *references.mistakes, *found, *invalid_names(document)]
    parsed: dict[Path, SinkOptions] = {}
    for sink in _sinks(document):
        options, found = checked_options(sink, document, references)
        mistakes += found
        if options is not None:
            parsed[sink] = options
    queries = [] if job is None else _queries(job, parsed, document)
    mistakes += [mistake for each in queries for mistake in _refused_by_format(each)]
    pairs = [(each.job, each.sink_options) for each in queries]
    mistakes += [queries[i].mistake(path, what) for i, path, what in shared(pairs)]
    if mistakes or job is None:
        raise invalid(mistakes)
    return JobFile(job, tuple(queries), document)


def _sinks(document: Document) -> list[Path]:
    if ("sinks",) not in document:
        return [_ONE_SINK]
    sinks = document.data.get("sinks")
    return [("sinks", name) for name in sinks] if isinstance(sinks, dict) else []


def _queries(
    job: Job | JobOfSeveralSinks, parsed: Mapping[Path, SinkOptions], document: Document
) -> list[QueryConfiguration]:
    return [
        QueryConfiguration(
            job if isinstance(job, Job) else job.job_of(sink[-1]), options, document, sink
        )
        for sink, options in parsed.items()
    ]


def _refused_by_format(query: QueryConfiguration) -> list[Mistake]:
    if query.job.sink.mode == "format":
        try:
            check_for_format(query.sink_options)
        except InvalidOption as error:
            return [query.mistake((*_ONE_SINK, "options"), str(error))]
    return []
