"""Every answer of what may be no registry, and every code of one, ends in an error with words."""

from __future__ import annotations

import builtins
import socket
import sys
from types import SimpleNamespace

import pytest
from stub_registry import running_stub

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.errors import (
    KafkaSinkError,
    LibraryUnavailable,
    RegistryRefused,
    RegistryUnavailable,
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


def register(url: str, timeout_ms: int = 60_000):
    client = RegistryClient(options(url, timeout_ms))
    try:
        return client.register("t-value", "avro", '"string"', normalize=False)
    finally:
        client.close()


@pytest.fixture
def registry():
    with running_stub() as stub:
        yield stub


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
def test_no_refusal_to_register_proposes_what_is_set(registry, code):
    registry.failure = (code // 100, b'{"error_code": %d, "message": "no"}' % code)
    with pytest.raises(KafkaSinkError) as caught:
        register(registry.url)
    assert "auto.register.schemas=true" not in str(caught.value)
    if code in (40101, 40301, 40501, 42205, 40901):
        assert REGISTERS_NOTHING in str(caught.value)


@pytest.mark.parametrize("status", [200, 302, 400, 401, 403, 404, 405, 409, 415, 422])
@pytest.mark.parametrize("body", BODIES)
def test_every_answer_that_is_no_registrys_ends_in_words(registry, status, body):
    registry.failure = (status, body)
    with pytest.raises(KafkaSinkError) as caught:
        register(registry.url)
    assert registry.url in str(caught.value)


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
        error = _sink_error(kind("x"), options("http://127.0.0.1:1"), "s", registers=True)
        assert isinstance(error, (RegistryRefused, RegistryUnavailable))
        assert "Check that schema.registry.url" in str(error)
