"""Options of formats and of the schema registry."""

from __future__ import annotations

import pytest

from spark_kafka_sink.config.options import as_bytes, parse
from spark_kafka_sink.config.serialization_options import ColumnFormat
from spark_kafka_sink.errors import InvalidOption

SERVERS = {"kafka.bootstrap.servers": "host:9092", "topic": "t"}
REGISTRY = {"schema.registry.url": "http://registry:8081"}
AVRO = {**SERVERS, **REGISTRY, "value.format": "avro"}
SCHEMA = '{"type": "record", "name": "R", "fields": []}'


def test_bytes_need_no_registry():
    for given in ({}, {"value.format": "bytes"}, {"value.format": "bytes", "key.format": "bytes"}):
        options = parse({**SERVERS, **given})
        assert options.serialization is None
        assert options.serialized_columns == ()


def test_defaults():
    options = parse({**AVRO, "key.format": "json"})
    serialization = options.serialization
    assert serialization.columns == (
        ColumnFormat("key", "json", None, "topic"),
        ColumnFormat("value", "avro", None, "topic"),
    )
    assert options.serialized_columns == ("key", "value")
    assert serialization.registry.url == "http://registry:8081"
    assert dict(serialization.registry) == {}
    assert serialization.registry.timeout_ms == 10_000
    assert serialization.auto_register
    assert not serialization.use_latest_version
    assert not serialization.normalize
    assert serialization.id_location == "prefix"


def test_as_bytes_leaves_out_formats_and_the_registry():
    given = {**AVRO, "schema.registry.basic.auth.user.info": "me:secret", "Key.Format": "json"}
    assert as_bytes(given) == SERVERS


def test_several_registries_are_a_list():
    urls = "http://a:8081, https://b"
    assert parse({**AVRO, "schema.registry.url": urls}).serialization.registry.url == (
        "http://a:8081,https://b"
    )


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"value.format": "protobuf"}, "value.format='protobuf'"),
        ({"value.format": "avro"}, "value.format=avro needs schema.registry.url"),
        ({**REGISTRY}, "schema.registry.url has an effect only with value.format or key.format"),
        ({"auto.register.schemas": "false"}, "auto.register.schemas has an effect only with"),
        ({"schema.registry.proxy": "http://p"}, "schema.registry.proxy has an effect only with"),
        (
            {**AVRO, "key.schema": SCHEMA},
            "key.schema has an effect only with key.format=avro or json",
        ),
        (
            {**AVRO, "key.subject.name.strategy": "record"},
            "key.subject.name.strategy has an effect only with key.format",
        ),
        ({**AVRO, "value.subject.name.strategy": "table"}, "value.subject.name.strategy='table'"),
        ({**AVRO, "value.subject.name.strategy": "record"}, "=record needs value.schema"),
        ({**AVRO, "use.latest.version": "true"}, "needs auto.register.schemas=false"),
        (
            {
                **AVRO,
                "use.latest.version": "true",
                "auto.register.schemas": "false",
                "value.schema": SCHEMA,
            },
            "value.schema has no effect with use.latest.version=true",
        ),
        ({**AVRO, "schema.id.location": "footer"}, "schema.id.location='footer'"),
        ({**AVRO, "normalize.schemas": "perhaps"}, "normalize.schemas='perhaps'"),
        ({**AVRO, "schema.registry.url": "registry:8081"}, "begins with http:// or https://"),
        ({**AVRO, "schema.registry.url": "ftp://registry"}, "begins with http:// or https://"),
        ({**AVRO, "schema.registry.url": "http://a,b"}, "'b' is not a URL"),
        ({**AVRO, "schema.registry.url": "http://[a"}, "the URL is malformed"),
        (
            {**AVRO, "schema.registry.bearer.auth.tokens": "x"},
            "schema.registry.bearer.auth.tokens is not a setting.*bearer.auth.token",
        ),
        *(
            ({**AVRO, f"schema.registry.{name}.auth.credentials.source": source}, advice)
            for name, source, advice in (
                ("basic", "USER_INFO", "needs schema.registry.basic.auth.user.info=user:password"),
                (
                    "basic",
                    "URL",
                    "URL is not supported.*without credentials in schema.registry.url",
                ),
                (
                    "basic",
                    "SASL_INHERIT",
                    "set .*user.info=user:password, those of the Kafka login",
                ),
                ("basic", "FILE", "FILE is not supported: remove it, and set .*user.info"),
                ("bearer", "SASL_OAUTHBEARER_INHERIT", "INHERIT is not supported: set OAUTHBEARER"),
                ("bearer", "CUSTOM", "or STATIC_TOKEN and schema.registry.bearer.auth.token"),
            )
        ),
        (
            {**AVRO, "basic.auth.user.info": "me:swordfish"},
            "did you mean schema.registry.basic.auth.user.info",
        ),
        ({**AVRO, "schema.registry.request.timeout.ms": "0"}, "schema.registry.request.timeout.ms"),
    ],
)
def test_what_is_refused(given, complaint):
    with pytest.raises(InvalidOption, match=complaint):
        parse({**SERVERS, **given})


def test_credentials_in_the_url_are_refused_and_not_shown():
    with pytest.raises(InvalidOption, match=r"basic\.auth\.user\.info") as caught:
        parse({**AVRO, "schema.registry.url": "http://me:swordfish@registry"})
    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "basic.auth.user.info",
        "bearer.auth.token",
        "bearer.auth.client.secret",
        "proxy",
        "ssl.key.password",
    ],
)
def test_secrets_do_not_show_in_the_repr(name):
    options = parse({**AVRO, f"schema.registry.{name}": "swordfish"})
    assert options.serialization.registry[name] == "swordfish"
    assert "swordfish" not in repr(options)
