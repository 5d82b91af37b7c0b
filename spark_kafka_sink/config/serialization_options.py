"""Which columns are serialized, with which schemas, from which registry."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from spark_kafka_sink.config.option_table import (
    AUTO_REGISTER_SCHEMAS,
    KEY_FORMAT,
    KEY_RECORD_NAME,
    KEY_SCHEMA,
    KEY_SUBJECT_NAME_STRATEGY,
    NORMALIZE_SCHEMAS,
    ONLY_WITH_REGISTRY,
    SCHEMA_ID_LOCATION,
    SCHEMA_REGISTRY_TIMEOUT_MS,
    SCHEMA_REGISTRY_URL,
    USE_LATEST_VERSION,
    VALUE_FORMAT,
    VALUE_RECORD_NAME,
    VALUE_SCHEMA,
    VALUE_SUBJECT_NAME_STRATEGY,
)
from spark_kafka_sink.config.registry_options import (
    REGISTRY_PREFIX,
    RegistryOptions,
    check_settings,
    is_secret,
)
from spark_kafka_sink.config.secret import read_secret
from spark_kafka_sink.errors import InvalidOption


@dataclass(frozen=True)
class ColumnFormat:
    """How one column is serialized.

    ``column``: ``key`` or ``value``. ``format``: ``avro`` or ``json``. ``schema``: the given one,
    or None to derive it from the column's type. ``record_name``: the full one of a derived schema;
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

    def of(self, column: str) -> ColumnFormat | None:
        return next((each for each in self.columns if each.column == column), None)


_FORMATS = (
    ("key", KEY_FORMAT, KEY_SCHEMA, KEY_RECORD_NAME, KEY_SUBJECT_NAME_STRATEGY),
    ("value", VALUE_FORMAT, VALUE_SCHEMA, VALUE_RECORD_NAME, VALUE_SUBJECT_NAME_STRATEGY),
)


def read_serialization(given: Mapping[str, str]) -> SerializationOptions | None:
    """The options of formats and of the registry, whose names are in lower case, or None.

    Raises InvalidOption.
    """
    columns = tuple(
        ColumnFormat(
            column,
            format_.read(given),
            schema.read(given) or None,
            name.read(given),
            strategy.read(given),
        )
        for column, format_, schema, name, strategy in _FORMATS
        if format_.read(given) != "bytes"
    )
    for _, format_, schema, name, strategy in _FORMATS:
        is_unused = columns and format_.read(given) == "bytes"
        for option in (schema, name, strategy) if is_unused else ():
            if option.is_given(given):
                raise InvalidOption(
                    f"{option.name} has an effect only with {format_.name}=avro or json; set that, "
                    "or remove it"
                )
    settings = _client_settings(given)
    if not columns:
        names = [option.name for option in ONLY_WITH_REGISTRY if option.is_given(given)]
        names += [REGISTRY_PREFIX + name for name in settings]
        if names:
            raise InvalidOption(
                f"{names[0]} has an effect only with {VALUE_FORMAT.name} or {KEY_FORMAT.name}, "
                "avro or json; set one of them, or remove it"
            )
        return None
    for each in columns:
        _check_column_format(each, given)
    url = SCHEMA_REGISTRY_URL.read(given)
    if not url:
        raise InvalidOption(
            f"{columns[0].column}.format={columns[0].format} needs {SCHEMA_REGISTRY_URL.name}"
        )
    if USE_LATEST_VERSION.read(given) and AUTO_REGISTER_SCHEMAS.read(given):
        raise InvalidOption(
            f"{USE_LATEST_VERSION.name}=true needs {AUTO_REGISTER_SCHEMAS.name}=false: a "
            "registered schema would always be the latest one"
        )
    return SerializationOptions(
        columns=columns,
        registry=RegistryOptions(
            url,
            tuple(sorted(settings.items())),
            SCHEMA_REGISTRY_TIMEOUT_MS.read(given),
        ),
        auto_register=AUTO_REGISTER_SCHEMAS.read(given),
        use_latest_version=USE_LATEST_VERSION.read(given),
        normalize=NORMALIZE_SCHEMAS.read(given),
        id_location=SCHEMA_ID_LOCATION.read(given),
    )


def _check_column_format(each: ColumnFormat, given: Mapping[str, str]) -> None:
    is_latest = USE_LATEST_VERSION.read(given)
    if each.schema is not None and is_latest:
        raise InvalidOption(
            f"{each.column}.schema has no effect with {USE_LATEST_VERSION.name}=true; remove one"
        )
    is_in_subject = each.subject_name_strategy != "topic"
    if each.record_name is None:
        if is_in_subject and each.schema is None:
            raise InvalidOption(
                f"{each.column}.subject.name.strategy={each.subject_name_strategy} needs "
                f"{each.column}.schema or {each.column}.record.name"
            )
    elif each.schema is not None or (is_latest and not is_in_subject):
        what = USE_LATEST_VERSION.name if is_latest else f"{each.column}.schema"
        raise InvalidOption(f"{each.column}.record.name has no effect with {what}; remove one")


def _client_settings(given: Mapping[str, str]) -> dict[str, str]:
    """The settings of the registry's client, named without prefix; raises InvalidOption."""
    in_table = {option.name for option in ONLY_WITH_REGISTRY}
    settings = {
        name.removeprefix(REGISTRY_PREFIX): text
        for name, text in given.items()
        if name.startswith(REGISTRY_PREFIX) and name not in in_table
    }
    return check_settings(
        {
            name: read_secret(text) if is_secret(name) else text.strip()
            for name, text in settings.items()
        }
    )
