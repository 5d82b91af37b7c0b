"""Options of formats and of the schema registry."""

from __future__ import annotations

import json
import pathlib

import pytest

from spark_kafka_sink.config.options import drop_formats, parse
from spark_kafka_sink.config.serialization_options import ColumnFormat
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.schemas.registry_client import hide_secrets

SERVERS = {"kafka.bootstrap.servers": "host:9092", "topic": "t"}
REGISTRY = {"schema.registry.url": "http://registry:8081"}
AVRO = {**SERVERS, **REGISTRY, "value.format": "avro"}
SCHEMA = '{"type": "record", "name": "R", "fields": []}'


def test_bytes_need_no_registry():
    for texts in ({}, {"value.format": "bytes"}, {"value.format": "bytes", "key.format": "bytes"}):
        options = parse({**SERVERS, **texts})
        assert options.serialization is None
        assert options.serialized_columns == ()


def test_defaults():
    options = parse({**AVRO, "key.format": "json"})
    serialization = options.serialization
    assert serialization.columns == (
        ColumnFormat("key", "json", None, None, "topic"),
        ColumnFormat("value", "avro", None, None, "topic"),
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
    texts = {**AVRO, "schema.registry.basic.auth.user.info": "me:secret", "Key.Format": "json"}
    assert drop_formats(texts) == SERVERS


def test_several_registries_are_a_list():
    urls = "http://a:8081, https://b"
    assert parse({**AVRO, "schema.registry.url": urls}).serialization.registry.url == (
        "http://a:8081,https://b"
    )


@pytest.mark.parametrize(
    ("texts", "complaint"),
    [
        ({"value.format": "protobuf"}, "value.format='protobuf'"),
        ({"value.format": "avro"}, "value.format=avro needs schema.registry.url"),
        ({**AVRO, "key.schema": SCHEMA},
         "key.schema has an effect only with key.format=avro or json"),
        ({**AVRO, "key.subject.name.strategy": "record"},
         "key.subject.name.strategy has an effect only with key.format"),
        ({**AVRO, "value.subject.name.strategy": "table"}, "value.subject.name.strategy='table'"),
        ({**AVRO, "value.subject.name.strategy": "record"},
         "=record needs value.schema or value.record.name"),
        *(
            ({**AVRO, "value.record.name": name}, "value.record.name=.* is not a name of a record")
            for name in ("my-topic", "a.1", "a..b", ".a", "a.", "", "a b")
        ),
        ({**AVRO, "value.record.name": "a.B", "value.schema": SCHEMA},
         "value.record.name has no effect with value.schema"),
        (
            {
                **AVRO,
                "value.record.name": "a.B",
                "use.latest.version": "true",
                "auto.register.schemas": "false",
            },
            "value.record.name has no effect with use.latest.version",
        ),
        ({**AVRO, "key.record.name": "a.B"},
         "key.record.name has an effect only with key.format=avro or json"),
        ({"value.record.name": "a.B"}, "value.record.name has an effect only with value.format"),
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
        ({**AVRO, "schema.registry.url": "http://a,b"}, r"url=\[hidden\] is not a URL"),
        ({**AVRO, "schema.registry.url": "http://[a"}, r"url=\[hidden\] is not a URL"),
        ({**AVRO, "schema.registry.bearer.auth.tokens": "x"},
         "schema.registry.bearer.auth.tokens is not a setting.*bearer.auth.token"),
        *(
            ({**AVRO, f"schema.registry.{name}": "1"},
             rf"{name} is not supported: .*schema\.registry\.request\.timeout\.ms bounds all")
            for name in ("timeout", "max.retries", "retries.wait.ms", "retries.max.wait.ms",
                         "cache.capacity", "cache.latest.ttl.sec")
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
        ({**AVRO, "basic.auth.user.info": "me:swordfish"},
         "did you mean schema.registry.basic.auth.user.info"),
        ({**AVRO, "schema.registry.request.timeout.ms": "0"}, "schema.registry.request.timeout.ms"),
    ],
)  # fmt: skip
def test_what_is_rejected(texts, complaint):
    with pytest.raises(InvalidOption, match=complaint):
        parse({**SERVERS, **texts})


@pytest.mark.parametrize(
    "texts",
    [
        REGISTRY,
        {"auto.register.schemas": "false"},
        {"schema.registry.ssl.truststore.location": "s"},
        {"schema.registry.url": "mock://"},
        {"value.subject.name.strategy": "io.confluent.kafka.serializers.subject.TopicRecord"},
        {"use.latest.version": "yes"},
    ],
    ids=str,
)
def test_settings_of_a_serializer_have_no_effect_without_a_format(texts):
    options = parse({**SERVERS, **texts})
    assert options.serialization is None
    owner = "only with value.format or key.format, avro or json"
    names = ", ".join(texts)
    assert options.warnings == (f"these options have no effect on this sink: {names} ({owner})",)


ISSUER = "bearer.auth.issuer.endpoint.url"


@pytest.mark.parametrize(
    ("name", "url", "complaint"),
    [
        ("url", "http://me:swordfish@registry", r"set schema\.registry\.basic\.auth\.user\.info"),
        ("url", "http://good,https://swordfish@registry:1/", "contains credentials"),
        ("url", "me:swordfish@registry:8081", "is not a URL that begins with"),
        ("url", "http://me:swordfish/x@registry", "is not a URL"),
        ("url", "http://registry/?token=swordfish", "has a query"),
        ("url", "http://registry#swordfish", "contains #"),
        ("proxy", "me:swordfish@proxy:1", "is not a URL that begins with http:// or https://"),
        ("proxy", "swordfish", "is not a URL that begins with"),
        ("proxy", "http://me:swordfish/x@proxy:1", "is not a URL"),
        ("proxy", "http://me:sword#fish@proxy:1", "is not a URL"),
        ("proxy", "http://me:1/swordfish@proxy:1", "write /, .* as %2F"),
        ("proxy", "http://proxy:1?swordfish", "does not end with a port"),
        ("proxy", "ftp://me:swordfish@proxy:1", "is not a URL that begins with"),
        ("proxy", "http://me:swordfish@", "is not a URL that begins with"),
        (ISSUER, "https://me:swordfish@login/token", r"set schema.*\.client\.id"),
        (ISSUER, "me:swordfish@login/token", "is not a URL that begins with"),
    ],
)
def test_a_url_that_cannot_be_used_is_rejected_and_not_shown(name, url, complaint):
    expected = rf"^schema\.registry\.{name}=\[hidden\] .*{complaint}"
    with pytest.raises(InvalidOption, match=expected) as caught:
        parse({**AVRO, f"schema.registry.{name}": url})
    assert "fish" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["ssl.ca.location", "ssl.certificate.location", "ssl.key.location"]
)
def test_what_is_no_path_is_rejected_by_name(name):
    with pytest.raises(InvalidOption, match=rf"^schema\.registry\.{name} is empty"):
        parse({**AVRO, f"schema.registry.{name}": " "})
    with pytest.raises(InvalidOption, match=rf"^schema\.registry\.{name} is PEM") as pem:
        parse({**AVRO, f"schema.registry.{name}": "-----BEGIN A KEY----- swordfish"})
    assert "swordfish" not in str(pem.value)


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
    value = "http://me:swordfish@proxy:1" if name == "proxy" else "swordfish"
    options = parse({**AVRO, f"schema.registry.{name}": value})
    assert options.serialization.registry[name] == value
    assert "swordfish" not in repr(options)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no proxy http://me:swordfish@proxy:1", "no proxy [hidden]"),
        ("invalid port: 'swordfish'", "invalid port: '[hidden]'"),
        ("URL('me:sword fish@proxy')", "URL('me:[hidden]@proxy')"),
        (
            "'401' for url 'https://u:other@host/token?sig=x#y', no more",
            "'401' for url 'https://host/token', no more",
        ),
        ("from https://u:other@host/token?sig=x: no.", "from https://host/token: no."),
        ("see https://host/#swordfish.", "see https://host/."),
        ("no answer in 3 s", "no answer in 3 s"),
    ],
)
def test_an_errors_text_loses_secrets_their_parts_and_those_of_urls(text, shown):
    settings = {"proxy": "http://me:swordfish@proxy:1", "bearer.auth.token": "sword fish"}
    texts = {f"schema.registry.{name}": value for name, value in settings.items()}
    assert hide_secrets(text, parse({**AVRO, **texts}).serialization.registry) == shown


@pytest.mark.parametrize(
    ("name", "text", "taken"),
    [
        ("basic.auth.user.info", " user:pass \n", " user:pass "),
        ("bearer.auth.token", "token\r\n", "token"),
        ("bearer.auth.client.secret", " secret\n\n", " secret\n"),
        ("ssl.key.password", "\tpass ", "\tpass "),
        ("ssl.key.location", " /key.pem\n", "/key.pem"),
    ],
)
def test_secrets_are_taken_as_they_are_but_for_a_final_line_break(name, text, taken):
    registry = parse({**AVRO, f"schema.registry.{name}": text}).serialization.registry
    assert registry[name] == taken


FILE = r"is the name of a file; give the text.*Path\(name\)\.read_text.*\$\{file:name\}"
DICT = r"is a dict, not its JSON; .* json\.dumps"
TWICE = json.dumps(json.dumps({"type": "record", "name": "R", "fields": []}))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        *(
            (name, FILE)
            for name in (
                "order.avsc", "@order.avsc", "/data/order", "schemas/order", "file:///order.avsc",
                r"C:\data\order.avsc", "./order v2.json", pathlib.Path("order.avsc"), "~/order",
            )
        ),
        *((url, "is a URL") for url in ("http://registry/schemas/ids/7", "s3://bucket/a.avsc")),
        ("${file:order.avsc}", "is a reference, which only job files follow"),
        ("com.acme.Order", "is a name; give the text"),
        ('"com.acme.Order"', "is a name; give the text"),
        ("{type=record, name=R}", DICT),
        (str({"type": "record"}), DICT),
        ("12345", "is a number; an id is not looked up; give the text"),
        (7, "is a number"),
        (TWICE, "is quoted twice; give the text"),
        ('{"subject": "t-value", "id": 7, "schema": "{}"}', "is an answer of the registry"),
        ('{"schema": "{}"}', "is an answer of the registry"),
        ("<html>", "is not JSON: Expecting value"),
        ("{", "is not JSON: Expecting property name"),
        ("[" * 100_000, "is nested too deeply"),
        ("1.5", "is JSON, but no schema"),
    ],
)  # fmt: skip
def test_a_schema_that_is_something_else_is_named(text, problem):
    for column, schema_format in (("value", "avro"), ("key", "json")):
        options = {
            **SERVERS,
            **REGISTRY,
            f"{column}.format": schema_format,
            f"{column}.schema": text,
        }
        with pytest.raises(InvalidOption, match=rf"^{column}\.schema {problem}") as raised:
            parse(options)
        assert raised.value.option == f"{column}.schema"


@pytest.mark.parametrize(
    ("schema_format", "text", "problem"),
    [
        ("json", SCHEMA, "Avro schema; set value.format=avro"),
        ("avro", '{"type": "object"}', "JSON Schema; set value.format=json"),
        ("json", "[]", "no schema"),
        ("avro", "true", "no schema"),
    ],
)
def test_a_schema_of_the_other_format_is_named(schema_format, text, problem):
    with pytest.raises(InvalidOption, match=problem):
        parse({**SERVERS, **REGISTRY, "value.format": schema_format, "value.schema": text})


@pytest.mark.parametrize(
    ("schema_format", "text"),
    [
        *(("avro", text) for text in ("string", '"bytes"', " long ", '["null", "int"]', SCHEMA)),
        *(("json", text) for text in ("true", "{}", '{"schema": "x", "type": "object"}')),
        ("avro", "\ufeff" + SCHEMA),
    ],
)
def test_any_schema_is_taken_as_it_is_but_for_a_byte_order_mark(schema_format, text):
    texts = {**SERVERS, **REGISTRY, "value.format": schema_format, "value.schema": text}
    (column,) = parse(texts).serialization.columns
    assert column.schema == text.strip("\ufeff ")
