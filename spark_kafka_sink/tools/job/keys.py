"""Plain data -> the model of a configuration file, or every mistake in its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from spark_kafka_sink.config.option import did_you_mean
from spark_kafka_sink.tools.job.document import Document, Mistake, Path
from spark_kafka_sink.tools.job.model import (
    CreateTopics,
    Job,
    JobOfSeveralSinks,
    Metrics,
    Restart,
    Sink,
    SinkOfSeveral,
    Source,
    TopicSettings,
    Trigger,
)
from spark_kafka_sink.tools.job.references import References
from spark_kafka_sink.tools.job.sink_options import CREATED

_SHARED: Mapping[Path, type[BaseModel]] = {
    ("source",): Source,
    ("restart",): Restart,
    ("metrics",): Metrics,
}
_CREATE_TOPICS: Mapping[Path, type[BaseModel]] = {
    ("create_topics",): CreateTopics,
    **{("create_topics", name): TopicSettings for name in CREATED},
}
#: by the path in a file with ``sink``
_OF_JOB: Mapping[Path, type[BaseModel]] = {
    **_SHARED,
    (): Job,
    ("sink",): Sink,
    **{("sink", *path): model for path, model in _CREATE_TOPICS.items()},
    ("trigger",): Trigger,
}
#: by the path below ``sinks.NAME``
_OF_SINK: Mapping[Path, type[BaseModel]] = {
    (): SinkOfSeveral,
    **_CREATE_TOPICS,
    ("trigger",): Trigger,
}
_TEXT = "must be text; write names in full, such as kafka.linger.ms"
_MAPPING = "must be a mapping of keys to values"
# pydantic's kinds of errors
_EXPLAINED: Mapping[str, str] = {
    "bool_parsing": "must be true or false",
    "dict_type": _MAPPING,
    "float_parsing": "must be a number",
    "int_parsing": "must be a whole number",
    "is_instance_of": _TEXT,
    "model_type": _MAPPING,
    "string_too_short": "is empty",
    "string_type": _TEXT,
}


def modelled(
    document: Document, references: References
) -> tuple[Job | JobOfSeveralSinks | None, list[Mistake]]:
    """The model of the file, or None and the mistakes; those found before are left out."""
    model = JobOfSeveralSinks if ("sinks",) in document else Job
    try:
        return model.model_validate(references.data), []
    except ValidationError as error:
        # Neither values nor pydantic's texts with values: they may be secrets in the wrong place.
        details = error.errors(include_url=False, include_input=False)
    mistakes = []
    for detail in details:
        path = tuple(str(part) for part in detail["loc"])
        if path not in references.unresolved and not _is_dropped(path, document):
            mistakes.append(document.mistake(path, _explained(path, dict(detail), model)))
    return None, mistakes


def _is_dropped(path: Path, document: Document) -> bool:
    """Whether the key is there but has no value, which is a mistake already."""
    return any(each.path == path for each in document.mistakes)


def _explained(path: Path, detail: Mapping[str, Any], root: type[BaseModel]) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return _misplaced(path, root) or _unknown(path[-1], _model(path[:-1], root))
    if kind == "missing":
        return f"is required: {_model(path[:-1], root).model_fields[path[-1]].description}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"allowed: {context['expected']}".replace("'", "")
    message = str(detail["msg"]).replace("Input should be", "must be", 1)
    return _EXPLAINED.get(kind, message)


def _misplaced(path: Path, root: type[BaseModel]) -> str | None:
    """What to do with a key that the other kind of file has there."""
    if root is Job:
        return "has an effect only with sinks" if path == ("on_failure",) else None
    if path == ("sink",):
        return "a file has either sink or sinks; keep one"
    if len(path) == 1 and path[0] in SinkOfSeveral.model_fields:
        return f"belongs to one sink; write it as sinks.NAME.{path[0]}"
    return None


def _unknown(key: str, model: type[BaseModel]) -> str:
    known = [field.alias or name for name, field in model.model_fields.items()]
    return f"unknown key{did_you_mean(key, known)} (allowed: {', '.join(known)})"


def _model(path: Path, root: type[BaseModel]) -> type[BaseModel]:
    """What the mapping at ``path`` must be."""
    if root is Job:
        return _OF_JOB[path]
    if not path:
        return root
    return _OF_SINK[path[2:]] if path[0] == "sinks" else _SHARED[path]
