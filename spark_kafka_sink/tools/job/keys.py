"""Plain data -> the job in a configuration file, or every mistake in its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from spark_kafka_sink.config.option import did_you_mean
from spark_kafka_sink.tools.job.document import Document, Mistake, Path
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
from spark_kafka_sink.tools.job.sink_options import CREATED

#: by the path in the file
_MODELS: Mapping[Path, type[BaseModel]] = {
    (): Job,
    ("source",): Source,
    ("sink",): Sink,
    ("sink", "create_topics"): CreateTopics,
    **{("sink", "create_topics", name): TopicSettings for name in CREATED},
    ("trigger",): Trigger,
    ("restart",): Restart,
    ("metrics",): Metrics,
}
_TEXT = "must be text; write names in full, such as kafka.linger.ms"
_MAPPING = "must be a mapping of keys to values"
# pydantic's kinds of errors
_EXPLANATIONS: Mapping[str, str] = {
    "bool_parsing": "must be true or false",
    "dict_type": _MAPPING,
    "float_parsing": "must be a number",
    "int_parsing": "must be a whole number",
    "is_instance_of": _TEXT,
    "model_type": _MAPPING,
    "string_too_short": "is empty",
    "string_type": _TEXT,
}


def read_job(document: Document, references: References) -> tuple[Job | None, list[Mistake]]:
    """The job in the file, or None and the mistakes in its keys; ``document.mistakes`` left out."""
    try:
        return Job.model_validate(references.data), []
    except ValidationError as error:
        # Neither values nor pydantic's texts with values: they may be secrets in the wrong place.
        details = error.errors(include_url=False, include_input=False)
    without_value = {*references.unresolved, *(mistake.path for mistake in document.mistakes)}
    mistakes = []
    for detail in details:
        path = tuple(str(part) for part in detail["loc"])
        if path not in without_value:
            mistakes.append(document.mistake(path, _explanation(path, dict(detail))))
    return None, mistakes


def _explanation(path: Path, detail: Mapping[str, Any]) -> str:
    kind, context = detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        fields = _MODELS[path[:-1]].model_fields
        keys = [field.alias or name for name, field in fields.items()]
        return f"unknown key{did_you_mean(path[-1], keys)} (allowed: {', '.join(keys)})"
    if kind == "missing":
        return f"is required: {_MODELS[path[:-1]].model_fields[path[-1]].description}"
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"allowed: {context['expected']}".replace("'", "")
    message = str(detail["msg"]).replace("Input should be", "must be", 1)
    return _EXPLANATIONS.get(kind, message)
