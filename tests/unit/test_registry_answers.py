"""Every answer of what may be no registry, and every code of one, ends in an error with words."""

from __future__ import annotations

import builtins
import json
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from hypothesis import given, settings
from hypothesis import strategies as st
from stub_registry import running_stub

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.errors import (
    InvalidOption,
    KafkaSinkError,
    LibraryUnavailable,
    RegistryRejected,
    RegistryUnavailable,
    SchemaIncompatible,
    SchemaNotFound,
)
from spark_kafka_sink.schemas import registry_client
from spark_kafka_sink.schemas.registry_client import RegistryClient, _sink_error

CODES = (
    *(40401, 40402, 40403, 40404, 40405, 40406, 40901),
    *(42201, 42202, 42203, 42204, 42205, 42206, 42207, 42208, 42209, 42210),
    *(40101, 40301, 40501),
)
BODIES = (b"", b"null", b"[]", b"{}", b"7", b'"text"', b"<html></html>", b'{"id": [1]}', b"\xff")
REGISTERS_NOTHING = "auto.register.schemas=false"


def options(url: str, timeout_ms: int = 60_000):
    return parse(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "topic": "t",
            "value.format": "avro",
            "schema.registry.url": url,
            "schema.registry.request.timeout.ms": str(timeout_ms),
        }
    ).serialization.registry


@contextmanager
def client_of(url: str, timeout_ms: int = 60_000) -> Iterator[RegistryClient]:
    client = RegistryClient(options(url, timeout_ms))
    try:
        yield client
    finally:
        client.close()


def register(url: str, timeout_ms: int = 60_000):
    with client_of(url, timeout_ms) as client:
        return client.register("t-value", "avro", '"string"', normalize=False)


@pytest.fixture(scope="module")
def shared():
    """A registry and a client that asks once, for tests of many answers: new ones take longer."""
    with running_stub() as stub, pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry_client, "_RETRIES", 0)
        with client_of(stub.url) as client:
            yield stub, client


def ask(shared, answer) -> KafkaSinkError:
    """The error that it ends in."""
    registry, client = shared
    registry.failure, registry.content_type = answer, "application/json"
    subject = f"s{len(registry.requests)}"  # the client keeps what it has learned of one
    with pytest.raises(KafkaSinkError) as caught:
        client.register(subject, "avro", '"string"', normalize=False)
    return caught.value


def test_a_silent_registry_leaves_time_for_the_next(registry):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]},{registry.url}"
        assert register(url, 6000).id == 1


def test_several_registries_that_fail_for_a_moment_are_asked_again(registry, monkeypatch):
    registry.failure = 503, b"{}"

    def recovered(seconds):
        assert 0 < seconds < 10
        registry.failure = None

    monkeypatch.setattr(registry_client, "time", SimpleNamespace(sleep=recovered))
    assert register(f"{registry.url},{registry.url}").id == 1
    assert len(registry.requests) == 3


@pytest.mark.parametrize(
    ("proxy", "error", "words"),
    [
        ("socks5://127.0.0.1:1", LibraryUnavailable, "ALL_PROXY names a SOCKS proxy"),
        ("socks://127.0.0.1:1", RegistryUnavailable, "ALL_PROXY names a proxy of a kind"),
    ],
)
def test_a_proxy_that_cannot_be_used_is_no_options_fault(monkeypatch, proxy, error, words):
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(error, match=words):
        RegistryClient(options("http://127.0.0.1:1"))


@pytest.mark.parametrize("code", CODES)
def test_no_refusal_to_register_proposes_what_is_set(shared, code):
    error = str(ask(shared, (code // 100, b'{"error_code": %d, "message": "no"}' % code)))
    assert "auto.register.schemas=true" not in error
    if code in (40101, 40301, 40501, 42205, 40901):
        assert REGISTERS_NOTHING in error


@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 405, 409, 415, 422])
@pytest.mark.parametrize("body", BODIES)
def test_every_answer_that_is_no_registrys_ends_in_words(shared, status, body):
    assert shared[0].url in str(ask(shared, (status, body)))


def test_every_exception_of_python_ends_in_an_error_with_advice():
    kinds = [
        kind
        for kind in vars(builtins).values()
        if isinstance(kind, type)
        and issubclass(kind, Exception)
        and not issubclass(kind, UnicodeError)  # needs five arguments
        and kind.__name__ not in ("ExceptionGroup", "BaseExceptionGroup")
    ]
    assert len(kinds) > 40
    for kind in kinds:
        error = _sink_error(kind("x"), options("http://127.0.0.1:1"), "s", None)
        assert isinstance(error, (RegistryRejected, RegistryUnavailable))
        assert "Check that schema.registry.url" in str(error)


ANSWERS = st.tuples(
    # Without those that have no body, which the stub would send.
    st.integers(200, 599).filter(lambda status: status not in (204, 205, 304)),
    st.one_of(
        st.sampled_from(BODIES),
        st.binary(max_size=40),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.text(max_size=5),
            lambda inner: (
                st.lists(inner, max_size=2)
                | st.dictionaries(
                    st.sampled_from(["error_code", "message", "id", "schema", "subject", "x"]),
                    inner,
                )
            ),
            max_leaves=5,
        ).map(lambda value: json.dumps(value).encode()),
    ),
    st.sampled_from(["application/json", "text/html; charset=x", "", "application/octet-stream"]),
)


@settings(max_examples=150, deadline=None)
@given(ANSWERS)
def test_a_random_answer_ends_in_a_schema_or_in_one_sentence(shared, answer):
    registry, client = shared
    *registry.failure, registry.content_type = answer
    subject = f"s{len(registry.requests)}"  # the client keeps what it has learned of one
    for question in (client.register, client.look_up, client.is_compatible):
        try:
            question(subject, "avro", '"string"', normalize=False)
        except KafkaSinkError as error:
            check_sentence(error)
    try:
        client.latest(subject, "avro")
    except KafkaSinkError as error:
        check_sentence(error)


def check_sentence(error: KafkaSinkError) -> None:
    assert type(error) in (
        RegistryRejected,
        RegistryUnavailable,
        SchemaIncompatible,
        SchemaNotFound,
    )
    assert "Error: 'NoneType'" not in str(error)
    assert "orrect the option" not in str(error)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (403, b'{"message": "Missing Authentication Token"}', "AWS Glue and Azure"),
        (400, b'{"__type": "UnknownOperationException"}', "gives no reason.*AWS Glue and Azure"),
        (404, b"<UnknownOperationException/>", "AWS Glue and Azure"),
        (401, b'{"error": {"code": "Unauthorized"}}', "gives no reason.*AWS Glue and Azure"),
        (302, b"", "not one that leads elsewhere"),
        (307, b"<html></html>", "not one that leads elsewhere"),
        (407, b"", "Correct the proxy"),
    ],
)
def test_what_is_no_registry_is_said_to_be_none(shared, status, body, words):
    error = str(ask(shared, (status, body)))
    assert re.search(words, error)
    assert "None" not in error
    assert "Correct the schema" not in error


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (500, b"{}", "500"),
        (200, b"<html>", "usable answer"),
        (200, b"{}", "no id"),
        (200, b"[]", "usable answer"),
    ],
)
def test_an_answer_that_is_none_is_named(shared, status, body, words):
    error = ask(shared, (status, body))
    assert isinstance(error, RegistryUnavailable)
    assert words in str(error)


def test_an_incompatible_schema_is_rejected_with_every_way_out(shared):
    error = ask(shared, (409, b'{"error_code": 409, "message": "NAME_MISMATCH"}'))
    assert isinstance(error, SchemaIncompatible)
    ways_out = r"s\d+ .*NAME_MISMATCH.*value\.schema.*use\.latest\.version.*value\.record\.name"
    assert re.search(ways_out, str(error))


def test_a_reason_that_is_a_sentence_keeps_one_full_stop(registry, monkeypatch):
    def fail(*_):
        raise OSError("Server disconnected without sending a response.")

    monkeypatch.setattr(SchemaRegistryClient, "register_schema_full_response", fail)
    with pytest.raises(RegistryUnavailable, match=r"sending a response\. \w"):
        register(registry.url)


def test_a_slow_registry_is_given_up_in_time(registry):
    registry.delay_seconds = 5
    with pytest.raises(RegistryUnavailable, match="300 ms"):
        register(registry.url, timeout_ms=300)


@pytest.mark.parametrize(
    ("rules", "is_rejected"),
    [
        ({"domainRules": [{"name": "e", "type": "ENCRYPT", "mode": "WRITEREAD"}]}, True),
        ({"domainRules": [{"name": "c", "type": "CEL", "kind": "CONDITION"}]}, True),
        ({"migrationRules": [{"name": "m", "type": "JSONATA", "mode": "UPGRADE"}]}, False),
        ({"domainRules": []}, False),
        (None, False),
    ],
)
def test_the_latest_schema_may_have_no_rules_for_writers(registry, rules, is_rejected):
    registry.add("t-value", '"string"')
    registry.subjects["t-value"][0]["ruleSet"] = rules
    rejected = pytest.raises(RegistryRejected, match="has rules, such as for the encryption")
    with client_of(registry.url) as client, rejected if is_rejected else nullcontext():
        client.latest("t-value", "avro")


@pytest.mark.parametrize(
    "url",
    [
        "https://glue.eu-west-1.amazonaws.com",
        "https://vpce-1.glue.us-gov-west-1.vpce.amazonaws.com",
        "arn:aws:glue:us-east-1:123456789012:registry/mine",
        "https://space.servicebus.windows.net",
        "https://SPACE.servicebus.chinacloudapi.cn:443/$schemagroups",
    ],
)
def test_a_registry_with_another_api_is_refused_by_its_url(url):
    with pytest.raises(InvalidOption, match="registry, which does not have Confluent's API"):
        options(url)


def test_the_url_that_answered_last_is_asked_first(registry):
    with running_stub() as second:
        registry.failure = 503, b"{}"
        with client_of(f"{registry.url},{second.url}") as client:
            for number in range(3):
                client.register(f"s{number}", "avro", '"string"', normalize=False)
            assert len(second.requests) == 3
            assert len(registry.requests) == 1
            registry.failure, second.failure = None, (503, b"{}")
            client.register("s3", "avro", '"string"', normalize=False)
            client.register("s4", "avro", '"string"', normalize=False)
    assert len(second.requests) == 4
    assert len(registry.requests) == 3


def test_the_latest_version_that_is_not_there_has_its_own_remedy(registry):
    expected = pytest.raises(SchemaNotFound, match=r"remove use\.latest\.version=true")
    with client_of(registry.url) as client, expected as caught:
        client.latest("t-value", "avro")
    assert "or use.latest.version=true" not in str(caught.value)


@pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "all_proxy"])
def test_a_proxy_that_is_dead_is_named_with_its_variable(registry, monkeypatch, variable):
    monkeypatch.setattr(registry_client, "_RETRIES", 0)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    monkeypatch.setenv(variable, f"http://user:planted@127.0.0.1:{port}")
    with pytest.raises(RegistryUnavailable) as caught:
        register(registry.url)
    assert f"through the proxy of the environment variable {variable})" in str(caught.value)
    assert "let the variable NO_PROXY name the registry's host" in str(caught.value)
    assert "planted" not in str(caught.value)
    monkeypatch.setenv("NO_PROXY", "localhost,127.0.0.1")
    assert register(registry.url).id == 1
    registry.failure = 503, b"{}"
    with pytest.raises(RegistryUnavailable) as caught:
        register(registry.url)
    assert "proxy" not in str(caught.value)


def test_a_proxy_that_rejects_requests_is_named_with_its_option(registry, monkeypatch):
    monkeypatch.setattr(registry_client, "_RETRIES", 0)
    registry.failure = 502, b"<html></html>"  # the stub as the proxy
    chosen = parse(
        {
            "kafka.bootstrap.servers": "127.0.0.1:1",
            "topic": "t",
            "value.format": "avro",
            "schema.registry.url": "http://registry.invalid",
            "schema.registry.proxy": registry.url,
        }
    ).serialization.registry
    client = RegistryClient(chosen)
    with pytest.raises(RegistryUnavailable, match=r"proxy of the option schema\.registry\.proxy\)"):
        client.latest("t-value", "avro")
    client.close()


@pytest.mark.parametrize(
    "proxy", ["socks5://127.0.0.1:1", "socks://127.0.0.1:1", "http://127.0.0.1:x"]
)
def test_a_proxy_that_is_not_for_the_registry_may_be_unusable(registry, monkeypatch, proxy):
    monkeypatch.setitem(sys.modules, "socksio", None)
    monkeypatch.setenv("ALL_PROXY", proxy)
    monkeypatch.setenv("NO_PROXY", "elsewhere,127.0.0.1")
    assert register(registry.url).id == 1


@pytest.mark.parametrize("kind", [AttributeError, TypeError, RuntimeError, ImportError, KeyError])
def test_what_the_constructor_raises_about_no_setting_is_no_options_fault(monkeypatch, kind):
    def fail(*_arguments):
        raise kind("what it says")

    monkeypatch.setattr(registry_client, "_new_client", fail)
    with pytest.raises(LibraryUnavailable, match=r"confluent-kafka cannot be loaded.*what it says"):
        RegistryClient(options("http://127.0.0.1:1"))
