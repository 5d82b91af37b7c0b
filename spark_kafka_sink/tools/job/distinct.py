"""What several sinks of one file must not share, and their valid names."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from spark_kafka_sink.config.option_table import REPORT_PATH, TRANSACTIONAL_ID_PREFIX
from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.report.storage import local_path
from spark_kafka_sink.tools.job.document import Document, Mistake, Path
from spark_kafka_sink.tools.job.model import Job

_NAME = re.compile(r"[A-Za-z0-9_-]+")

Query = tuple[Job, SinkOptions]


def invalid_names(document: Document) -> list[Mistake]:
    """Names of sinks that cannot be a part of a query's name, of metrics and of ``--set``."""
    sinks = document.data.get("sinks")
    return [
        document.mistake(("sinks", name), "a sink's name has only letters, digits, _ and -")
        for name in (sinks if isinstance(sinks, dict) else ())
        if not _NAME.fullmatch(name)
    ]


def _checkpoint(query: Query) -> str | None:
    return _folder(query[0].checkpoint)


def _report_path(query: Query) -> str | None:
    folder = query[1].report_path
    return None if folder is None else _folder(folder)


def _transactional_prefix(query: Query) -> str | None:
    exactly_once = query[1].exactly_once
    return None if exactly_once is None else exactly_once.prefix


#: by the path in a query's job: what is compared, and why it may not be equal
_DISTINCT: Mapping[Path, tuple[Callable[[Query], str | None], str]] = {
    ("checkpoint",): (_checkpoint, "each would continue from the other's progress"),
    ("sink", "options", REPORT_PATH.name): (
        _report_path,
        "one folder must hold the reports of one query only",
    ),
    ("sink", "options", TRANSACTIONAL_ID_PREFIX.name): (
        _transactional_prefix,
        "each would fence the other",
    ),
}


def shared(queries: Sequence[Query]) -> Iterator[tuple[int, Path, str]]:
    """Settings that queries share, but must not.

    The index of the later query, the path in its job, and a sentence with both names.
    """
    for path, (value_of, why) in _DISTINCT.items():
        owners: dict[str, str] = {}
        for index, query in enumerate(queries):
            value, name = value_of(query), query[0].name
            if value is None:
                continue
            if value in owners:
                what = f"{owners[value]} and {name} have the same one, and {why}"
                yield index, _written(path, query[0]), what
            owners.setdefault(value, name)


def _written(path: Path, job: Job) -> Path:
    """``path``, with an option's name as it is in the file."""
    options = job.sink.options
    return (*path[:-1], next((each for each in options if each.lower() == path[-1]), path[-1]))


def _folder(folder: str) -> str:
    """The same text for each way to write a folder."""
    local = local_path(folder)
    if local is not None:
        return os.path.realpath(re.sub("^/+", "/", str(local)))
    scheme, _, rest = folder.partition("://")
    server, _, path = rest.partition("/")
    return f"{scheme.lower()}://{server}/{posixpath.normpath(path.lstrip('/'))}"
