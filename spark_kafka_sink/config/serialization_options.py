"""[both] Which columns are serialized, with which schemas, from which registry."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.option import ContradictoryOption, Notices, OptionValues
from spark_kafka_sink.config.registry_options import (
    REGISTRY_PREFIX,
    RegistryOptions,
    check_settings,
    is_secret,
)
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.names import AVRO_PRIMITIVES
from spark_kafka_sink.secret import read_secret


@dataclass(frozen=True)
class ColumnFormat:
    """How one column is serialized.

    ``column``: ``key`` or ``value``. ``format``: ``avro`` or ``json``. ``schema``: the option's, or
    None to derive it from the column's type. ``record_name``: the full one of a derived schema;
    None: the default. ``subject_name_strategy``: ``topic``, ``record`` or ``topic-record``.
    """

    column: str
    format: str
    schema: str | None
    record_name: str | None
    subject_name_strategy: str


@dataclass(frozen=True)
class SerializationOptions:
    """The columns with a format, and how their schemas are registered or looked up.

    ``id_location``: ``prefix`` or ``header``.
    """

    columns: tuple[ColumnFormat, ...]
    registry: RegistryOptions
    auto_register: bool
    use_latest_version: bool
    normalize: bool
    id_location: str


_FORMATS = (
    (
        "key",
        table.KEY_FORMAT,
        table.KEY_SCHEMA,
        table.KEY_RECORD_NAME,
        table.KEY_SUBJECT_NAME_STRATEGY,
    ),
    (
        "value",
        table.VALUE_FORMAT,
        table.VALUE_SCHEMA,
        table.VALUE_RECORD_NAME,
        table.VALUE_SUBJECT_NAME_STRATEGY,
    ),
)

#: what only this sink has
_OURS = (
    table.KEY_SCHEMA,
    table.KEY_RECORD_NAME,
    table.VALUE_SCHEMA,
    table.VALUE_RECORD_NAME,
    table.SCHEMA_ID_LOCATION,
)


_FORMAT_NAMES = (table.VALUE_FORMAT.name, table.KEY_FORMAT.name)
_A_FORMAT = f"{' or '.join(_FORMAT_NAMES)}, avro or json"


def read_serialization(
    values: OptionValues, texts: Mapping[str, str]
) -> SerializationOptions | None:
    """The options of formats and of the registry, or None; raises InvalidOption.

    ``texts``: all options that are set, whose names are in lower case.
    """
    columns = tuple(
        ColumnFormat(
            column,
            values[format_],
            _schema_text(schema.name, values[format_], values[schema]),
            values[name],
            values[strategy],
        )
        for column, format_, schema, name, strategy in _FORMATS
        if values[format_] != "bytes"
    )
    for _, format_, schema, name, strategy in _FORMATS:
        is_unused = columns and values[format_] == "bytes"
        for option in (schema, name, strategy) if is_unused else ():
            if option.is_set(texts):
                raise InvalidOption(
                    f"{option.name} has an effect only with {format_.name}=avro or json; set that, "
                    "or remove it"
                )
    if not columns:
        for option in _OURS:
            if option.is_set(texts):
                raise InvalidOption(
                    f"{option.name} has an effect only with {_A_FORMAT}; set one of them, or "
                    "remove it",
                    option=option.name,
                )
        return None
    settings = _client_settings(texts)
    for column in columns:
        _check_column_format(column, is_latest=values[table.USE_LATEST_VERSION])
    url = values[table.SCHEMA_REGISTRY_URL]
    if not url:
        raise ContradictoryOption(
            f"{columns[0].column}.format={columns[0].format} needs "
            f"{table.SCHEMA_REGISTRY_URL.name}",
            option=f"{columns[0].column}.format",
        )
    if values[table.USE_LATEST_VERSION] and values[table.AUTO_REGISTER_SCHEMAS]:
        raise InvalidOption(
            f"{table.USE_LATEST_VERSION.name}=true needs {table.AUTO_REGISTER_SCHEMAS.name}=false: "
            "a registered schema would always be the latest one"
        )
    return SerializationOptions(
        columns=columns,
        registry=RegistryOptions(
            url,
            tuple(sorted(settings.items())),
            values[table.SCHEMA_REGISTRY_TIMEOUT_MS],
        ),
        auto_register=values[table.AUTO_REGISTER_SCHEMAS],
        use_latest_version=values[table.USE_LATEST_VERSION],
        normalize=values[table.NORMALIZE_SCHEMAS],
        id_location=values[table.SCHEMA_ID_LOCATION],
    )


#: what a text that is no JSON is, the first that matches; what to do
_NO_JSON = (
    (r"(?!file:)\w[\w+.-]*://.*", "a URL", "read what it leads to"),
    (
        r"\$\{.*",
        "a reference, which only job files follow",
        "run the job with the options in its file, or read it yourself",
    ),
    (
        r"(file:|[@./~\\]|[A-Za-z]:[\\/]).*|[^{\[<]*(/.*|\.(avsc|json|txt))",
        "the name of a file",
        "in Python Path(name).read_text(), in a job file ${file:name}",
    ),
    (r"\{\s*[\w$]+=.*|\{\s*'.*|\{\s*\}=.*", "a dict, not its JSON", "json.dumps(schema)"),
    (r"[\w.]+", "a name", "it is not looked up"),
)
#: the fields of a registry's answer that contains a schema
_ANSWER = frozenset(
    {"schema", "subject", "version", "id", "guid", "schemaType", "references", "metadata"}
    | {"ruleSet", "schemaTags", "ts", "deleted", "maxId"}
)
_AVRO_ONLY = ("record", "enum", "fixed", "map")
_GIVE_TEXT = "give the text of the schema"


def _schema_text(option: str, schema_format: str, text: str | None) -> str | None:
    """The schema without a byte order mark; raises InvalidOption for what is something else."""
    text = (text or "").removeprefix("\ufeff")
    if not text or (schema_format == "avro" and text in AVRO_PRIMITIVES):
        return text or None
    try:
        problem = _no_schema(json.loads(text), schema_format, option)
    except RecursionError:
        problem = "is nested too deeply"
    except ValueError as error:
        problem = f"is not JSON: {error}"
        for pattern, what, instead in _NO_JSON:
            if re.fullmatch(pattern, text, re.DOTALL):
                problem = f"is {what}; {_GIVE_TEXT}: {instead}"
                break
    if problem is None:
        return text
    raise InvalidOption(f"{option} {problem}", option=option)


def _no_schema(document: Any, schema_format: str, option: str) -> str | None:
    """What a document is, if it is not a schema of the format."""
    if isinstance(document, dict):
        return _other_schema(document, schema_format, option)
    is_avro = isinstance(document, list) or document in AVRO_PRIMITIVES
    if is_avro if schema_format == "avro" else isinstance(document, bool):
        return None
    what = "is JSON, but no schema"
    if isinstance(document, str):
        what = "is quoted twice" if document.lstrip().startswith(("{", "[")) else "is a name"
    elif isinstance(document, int) and not isinstance(document, bool):
        what = "is a number; an id is not looked up"
    return f"{what}; {_GIVE_TEXT}"


def _other_schema(document: Mapping[str, Any], schema_format: str, option: str) -> str | None:
    kind, column = document.get("type"), option.partition(".")[0]
    if isinstance(document.get("schema"), str) and _ANSWER.issuperset(document):
        return f"is an answer of the registry; {_GIVE_TEXT}, which is its field schema"
    if schema_format == "json" and kind in _AVRO_ONLY:
        return f"is an Avro schema; set {column}.format=avro, or give a JSON Schema"
    if schema_format == "avro" and kind == "object":
        return f"is a JSON Schema; set {column}.format=json, or give an Avro schema"
    return None


def without_unused_registry(texts: Mapping[str, str], notices: Notices) -> dict[str, str]:
    """``texts`` without the settings of Confluent's serializers, if no column has a format.

    Programs pass them to Spark's own sink too, which does not even read them.
    """
    if any(texts.get(name, "bytes").strip().lower() != "bytes" for name in _FORMAT_NAMES):
        return dict(texts)
    confluents = {option.name for option in table.ONLY_WITH_REGISTRY if option not in _OURS}
    result = {}
    for name, text in texts.items():
        if name in confluents or name.startswith(REGISTRY_PREFIX):
            notices.ignore(name, f"only with {_A_FORMAT}")
        else:
            result[name] = text
    return result


def _check_column_format(column: ColumnFormat, *, is_latest: bool) -> None:
    if column.schema is not None and is_latest:
        raise InvalidOption(
            f"{column.column}.schema has no effect with {table.USE_LATEST_VERSION.name}=true; "
            "remove one"
        )
    is_in_subject = column.subject_name_strategy != "topic"
    if column.record_name is None:
        if is_in_subject and column.schema is None:
            raise InvalidOption(
                f"{column.column}.subject.name.strategy={column.subject_name_strategy} needs "
                f"{column.column}.schema or {column.column}.record.name"
            )
    elif column.schema is not None or (is_latest and not is_in_subject):
        what = table.USE_LATEST_VERSION.name if is_latest else f"{column.column}.schema"
        raise InvalidOption(f"{column.column}.record.name has no effect with {what}; remove one")


def _client_settings(texts: Mapping[str, str]) -> dict[str, str]:
    """The settings of the registry's client, named without prefix; raises InvalidOption."""
    known = {option.name for option in table.ONLY_WITH_REGISTRY}
    settings = {
        name.removeprefix(REGISTRY_PREFIX): text
        for name, text in texts.items()
        if name.startswith(REGISTRY_PREFIX) and name not in known
    }
    return check_settings(
        {
            name: read_secret(text) if is_secret(name) else text.strip()
            for name, text in settings.items()
        }
    )
