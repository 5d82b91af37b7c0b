"""The keys of a job's configuration file: their types, and every mistake in them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from spark_kafka_sink.config.option import did_you_mean
from spark_kafka_sink.tools.job.document import (
    CREATE_TOPICS,
    CREATED,
    Document,
    Mistake,
    Path,
    References,
)

# Not Field: with pydantic 2.7, all such fields would have the default of one of them.
Text = Annotated[str, StringConstraints(min_length=1)]

_UNIT = r"(microsecond|millisecond|second|minute|hour|day|week)s?"
_PART = rf"(\d+|\d*\.\d{{1,9}}(?=\s+second))\s+{_UNIT}"
_INTERVAL = re.compile(rf"\s*(interval\s+)?{_PART}(\s+{_PART})*\s*", re.IGNORECASE)


class _Keys(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, hide_input_in_errors=True, populate_by_name=False
    )


# InstanceOf, unlike str, keeps a Secret as it is.


class Source(_Keys):
    """What the stream reads; its name in the SQL text is ``source``."""

    format: Text | None = Field(None, description="a streaming source of Spark, such as json")
    table: Text | None = Field(None, description="a table, instead of a format")
    options: dict[str, InstanceOf[str]] = Field({}, description="the source's options")
    schema_: Text | None = Field(None, alias="schema", description="its columns, as in SQL's DDL")

    @model_validator(mode="after")
    def _check_origin(self) -> Source:
        if (self.format is None) == (self.table is None):
            raise ValueError("needs either format or table")
        if self.table is not None and self.schema_ is not None:
            raise ValueError("a table has its own schema; leave out schema")
        return self


class TopicSettings(_Keys):
    """How a missing topic is created, in the words of ``kafka-topics.sh``."""

    partitions: int = Field(ge=1, le=100_000, description="how many partitions it has")
    replication_factor: int | None = Field(
        None, ge=1, le=10_000, description="replicas of each; without it, the brokers' default"
    )
    config: dict[str, str] = Field({}, description="its settings, such as retention.ms")


class CreateTopics(_Keys):
    """The topics to create if they are missing, by the options that name them."""

    topic: TopicSettings | None = None
    dead_letter_topic: TopicSettings | None = Field(None, alias="dead.letter.topic")
    ledger_topic: TopicSettings | None = Field(None, alias="exactly.once.ledger.topic")


class Sink(_Keys):
    """How the stream writes."""

    mode: Literal["foreach_batch", "format"] = "foreach_batch"
    options: dict[str, InstanceOf[str]] = Field(description='the options of format("kafka-nb")')
    create_topics: CreateTopics | None = Field(None, description="creates topics that are missing")


class Trigger(_Keys):
    """When a micro-batch starts, under Spark's names."""

    available_now: bool = Field(False, alias="availableNow")
    processing_time: str | None = Field(None, alias="processingTime")
    once: bool = False

    @field_validator("processing_time")
    @classmethod
    def _check_interval(cls, text: str) -> str:
        if not _INTERVAL.fullmatch(text):
            raise ValueError("is not an interval such as 10 seconds or 1 minute")
        return text

    @model_validator(mode="after")
    def _check_kind(self) -> Trigger:
        if [self.available_now, self.processing_time is not None, self.once].count(True) != 1:
            raise ValueError(
                "needs exactly one of availableNow: true, processingTime: 10 seconds, once: true"
            )
        return self


class Metrics(_Keys):
    """Where the job serves its metrics and its health."""

    port: int = Field(ge=0, le=65_535, description="the port; 0 lets the system choose one")
    address: Text = "127.0.0.1"


class Restart(_Keys):
    """How often and when a failed query is restarted."""

    attempts: int = Field(
        10, ge=1, le=1000, description="restarts in a row without a completed micro-batch"
    )
    initial_backoff_seconds: float = Field(
        1.0, gt=0, le=86_400, description="before the first restart; doubled for each further one"
    )
    max_backoff_seconds: float = Field(60.0, gt=0, le=86_400, description="the longest wait")

    @model_validator(mode="after")
    def _check_order(self) -> Restart:
        if self.max_backoff_seconds < self.initial_backoff_seconds:
            raise ValueError(
                f"max_backoff_seconds={self.max_backoff_seconds:g} is less than "
                f"initial_backoff_seconds={self.initial_backoff_seconds:g}"
            )
        return self


class Job(_Keys):
    """A streaming query from a source to Kafka: the whole file."""

    name: Text = Field(description="the query's name, also in Spark's UI")
    source: Source = Field(description="what the stream reads")
    sql: Text | None = Field(None, description="SELECT ... FROM source: the sink's columns")
    sink: Sink = Field(description="how the stream writes")
    output_mode: Literal["append", "complete", "update"] = "append"
    trigger: Trigger | None = Field(None, description="when a micro-batch starts")
    checkpoint: Text = Field(description="the folder of the query's checkpoint")
    restart: Restart | None = Field(None, description="restarts a failed query")
    metrics: Metrics | None = Field(None, description="serves metrics and health by HTTP")
    warm_up: bool = Field(False, description="start Python workers and producers early")
    stop_timeout_seconds: float = Field(
        60.0, ge=0, le=86_400, description="how long a signal waits for the micro-batch to end"
    )

    @field_validator("output_mode")
    @classmethod
    def _check_output_mode(cls, output_mode: str, info: ValidationInfo) -> str:
        sink = info.data.get("sink")
        if output_mode == "update" and sink is not None and sink.mode == "format":
            raise ValueError(
                "Spark does not support update for Python sinks; set sink.mode to foreach_batch"
            )
        return output_mode


# --- data -> job, or mistakes ---------------------------------------------------------------------

#: by the path in the file
_MODELS: Mapping[Path, type[BaseModel]] = {
    (): Job,
    ("source",): Source,
    ("sink",): Sink,
    CREATE_TOPICS: CreateTopics,
    **{(*CREATE_TOPICS, name): TopicSettings for name in CREATED},
    ("trigger",): Trigger,
    ("restart",): Restart,
    ("metrics",): Metrics,
}
_MAPPING = "must be a mapping of keys to values"
# pydantic's kinds of errors
_EXPLANATIONS: Mapping[str, str] = {
    "bool_parsing": "must be true or false",
    "dict_type": _MAPPING,
    "float_parsing": "must be a number",
    "int_parsing": "must be a whole number",
    "model_type": _MAPPING,
    "string_too_short": "is empty",
    "string_type": "must be text",
}


def read_job(document: Document, references: References) -> tuple[Job | None, list[Mistake]]:
    """The job in the file, or None and the mistakes in its keys, without ``document.mistakes``."""
    try:
        return Job.model_validate(references.data), []
    except ValidationError as error:
        # Without values, and pydantic's texts with values: they may be secrets in a wrong place.
        details = error.errors(include_url=False, include_input=False)
    without_value = {*references.unresolved, *(mistake.path for mistake in document.mistakes)}
    # What a model says of its keys together may be wrong if one of them is not known.
    incomplete = {path[:-1] for path in without_value}
    mistakes = []
    for detail in details:
        path = tuple(str(part) for part in detail["loc"])
        is_unsure = detail["type"] == "value_error" and path in incomplete
        if path not in without_value and not is_unsure:
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
