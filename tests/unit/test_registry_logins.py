"""Every login of the schema registry's client, at a registry that wants it."""

from __future__ import annotations

import socket
import ssl
import sys
import time
from contextlib import closing
from types import SimpleNamespace

import pytest
import trustme
from certificates import chain_pem, key_pem
from http_stub import served
from identity_provider import CLIENT_ID, CLIENT_SECRET, identity_provider
from stub_registry import basic, running_stub

from spark_kafka_sink.clients import local_files
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.errors import (
    InvalidOption,
    LibraryUnavailable,
    RegistryRejected,
    RegistryUnavailable,
)
from spark_kafka_sink.schemas.known_schemas import WantedSchema, resolve
from spark_kafka_sink.schemas.registry_client import RegistryClient

KEY_PASSWORD = "secret-of-the-key"


def register(url: str, **settings: str) -> int:
    with closing(client_of(url, **settings)) as client:
        return client.register("t-value", "avro", '"string"', normalize=False).id


def client_of(url: str, **settings: str) -> RegistryClient:
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "topic": "t",
        "value.format": "avro",
        "schema.registry.url": url,
        "schema.registry.request.timeout.ms": "60000",
        **{f"schema.registry.{name.replace('_', '.')}": value for name, value in settings.items()},
    }
    parsed = parse(options)
    secret = [value for value in settings.values() if value.startswith("secret")]
    assert not any(value in repr(parsed) for value in secret)
    return RegistryClient(parsed.serialization.registry)


def test_a_user_and_a_password(registry):
    registry.authorization = basic("me:secret-word")
    assert register(registry.url, basic_auth_user_info="me:secret-word") == 1
    with pytest.raises(RegistryRejected, match="the login") as caught:
        register(registry.url, basic_auth_user_info="me:secret-words")
    assert "secret" not in str(caught.value)


def test_a_token(registry):
    registry.authorization = "Bearer secret-token"
    token = {
        "bearer_auth_credentials_source": "STATIC_TOKEN",
        "bearer_auth_token": "secret-token",
        "bearer_auth_logical_cluster": "lsrc-1",
        "bearer_auth_identity_pool_id": "pool-1",
    }
    assert register(registry.url, **token) == 1
    assert registry.last_headers["target-sr-cluster"] == "lsrc-1"
    assert registry.last_headers["Confluent-Identity-Pool-Id"] == "pool-1"


def oauth(provider, **more: str) -> dict[str, str]:
    return {
        "bearer_auth_credentials_source": "OAUTHBEARER",
        "bearer_auth_issuer_endpoint_url": provider.token_url,
        "bearer_auth_client_id": CLIENT_ID,
        "bearer_auth_client_secret": CLIENT_SECRET,
        "bearer_auth_scope": "schemas",
        "bearer_auth_logical_cluster": "lsrc-1",
        "bearer_auth_identity_pool_id": "pool-1",
        **more,
    }


def azure(provider, **more: str) -> dict[str, str]:
    return {
        "bearer_auth_credentials_source": "OAUTHBEARER_AZURE_IMDS",
        "bearer_auth_issuer_endpoint_url": provider.token_url,
        "bearer_auth_issuer_endpoint_query": "resource=api://registry",
        "bearer_auth_logical_cluster": "lsrc-1",
        **more,
    }


def test_oauth(registry):
    with identity_provider() as provider:
        assert register(registry.url, **oauth(provider)) == 1
        (request,) = provider.token_requests
        assert request["scope"] == ["schemas"]
    scheme, _, token = registry.last_headers["Authorization"].partition(" ")
    assert scheme == "Bearer"
    assert token.count(".") == 2  # a signed JWT


@pytest.mark.parametrize(
    "lifetime", [{"expires_in": 600}, {"expires_in": "600"}, {"expires_in": None}, {}], ids=str
)
def test_a_token_whose_lifetime_is_unknown_is_used_too(registry, lifetime):
    with identity_provider() as provider:
        provider.lifetime = lifetime
        with closing(client_of(registry.url, **oauth(provider))) as client:
            for subject in ("t-value", "u-value"):
                assert client.register(subject, "avro", '"string"', normalize=False).id == 1


def test_a_token_of_an_azure_machine(registry):
    paths = []
    now = int(time.time())
    answer = {"access_token": "t", "expires_in": "600", "expires_on": str(now + 600)}

    def identity(path, headers):
        paths.append((path, headers["Metadata"]))
        return 200, answer

    with served(identity) as url:
        machine = SimpleNamespace(token_url=f"{url}/token")
        assert register(registry.url, **azure(machine)) == 1
    assert paths == [("/token?resource=api://registry", "true")]
    assert registry.last_headers["Authorization"] == "Bearer t"


def test_oauth_that_is_rejected_names_its_settings_and_hides_the_secret(registry):
    with identity_provider() as provider:
        wrong = oauth(provider, bearer_auth_client_secret="secret-of-nobody")
        with pytest.raises(RegistryRejected, match=r"no token.*bearer\.auth\.\*") as caught:
            register(registry.url, **wrong)
    assert "secret" not in str(caught.value)
    assert registry.requests == []


def test_oauth_whose_endpoint_does_not_answer_is_no_rejection(registry):
    with identity_provider() as provider:
        pass  # and is gone
    expected = (
        r"no token.*Check that schema\.registry\.bearer\.auth\.issuer\.endpoint\.url is right"
    )
    with pytest.raises(RegistryUnavailable, match=expected):
        register(registry.url, **oauth(provider))


@pytest.mark.parametrize(
    ("status", "error"),
    [(408, RegistryUnavailable), (503, RegistryUnavailable), (404, RegistryRejected)],
)
def test_an_endpoint_without_a_token_is_a_rejection_unless_it_may_pass(registry, status, error):
    with (
        served(lambda path, headers: (status, "later")) as url,
        pytest.raises(error, match=r"no token for the login .*/token: .*bearer\.auth"),
    ):
        register(registry.url, **oauth(SimpleNamespace(token_url=f"{url}/token")))


def test_a_token_that_is_not_there_for_a_moment_is_requested_again(registry):
    """With several URLs, the client itself repeats no request."""
    answers = [(503, "later")]

    def answer(*_):
        return answers.pop() if answers else (200, {"access_token": "t", "expires_in": 600})

    with served(answer) as url:
        endpoint = SimpleNamespace(token_url=f"{url}/token")
        assert register(f"{registry.url},{registry.url}", **oauth(endpoint)) == 1


@pytest.mark.parametrize("login", [oauth, azure])
def test_an_endpoint_that_stays_silent_is_named_in_the_registrys_stead(registry, login):
    """The deadline comes before the end of the client's attempts."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/token"
        settings = login(SimpleNamespace(token_url=url), request_timeout_ms="2000")
        expected = rf"no token .* from {url}: no end after .*Check that .*\.endpoint\.url is right"
        with pytest.raises(RegistryUnavailable, match=expected):
            register(registry.url, **settings)


@pytest.mark.parametrize("status", [408, 429, 500])
def test_a_registry_that_may_answer_later_is_unavailable(registry, status):
    registry.failure = status, b'{"error_code": 1, "message": "later"}'
    with pytest.raises(RegistryUnavailable, match=f"HTTP {status}: later"):
        register(registry.url)


@pytest.mark.parametrize(
    "body", [b'{"error_code": 404, "message": "HTTP 404 Not Found"}', b"<html>", b"{}"]
)
def test_a_path_that_is_no_registrys_is_named(registry, body):
    registry.failure = 404, body
    with pytest.raises(
        RegistryUnavailable, match=r"404.*Check that schema\.registry\.url is the URL"
    ):
        register(f"{registry.url}/apis")


def test_javas_name_for_a_user_and_a_password_is_taken(registry):
    registry.authorization = basic("me:secret-word")
    login = {"basic_auth_credentials_source": "USER_INFO", "basic_auth_user_info": "me:secret-word"}
    assert register(registry.url, **login) == 1


def test_settings_that_contradict_each_other_are_rejected(registry):
    with pytest.raises(InvalidOption, match=r"rejects its settings"):
        register(registry.url, bearer_auth_credentials_source="STATIC_TOKEN")


@pytest.fixture
def authority(tmp_path):
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    return authority


@pytest.fixture
def tls(authority):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.fixture
def another_authority(monkeypatch, tmp_path):
    """The system trusts only one authority, which is not the registry's."""
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
    trust(monkeypatch, tmp_path / "other.pem")


def trust(monkeypatch, bundle):
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(local_files, "BUNDLES", (str(bundle),))


def test_the_systems_authorities_are_trusted_for_registry_and_tokens(tls, tmp_path, monkeypatch):
    trust(monkeypatch, tmp_path / "ca.pem")
    with running_stub(tls) as registry, identity_provider(tls) as provider:
        assert register(registry.url, **oauth(provider)) == 1


def test_the_option_for_an_authority_is_of_registry_and_tokens(tls, tmp_path, another_authority):
    with running_stub(tls) as registry, identity_provider(tls) as provider:
        trusting = {"ssl_ca_location": str(tmp_path / "ca.pem")}
        assert register(registry.url, **trusting, **oauth(provider)) == 1


def test_a_proxy_that_cannot_be_used_is_rejected_without_its_password(registry, monkeypatch):
    monkeypatch.setitem(sys.modules, "socksio", None)  # as if it were not installed
    with pytest.raises(
        LibraryUnavailable, match=r"schema\.registry\.proxy names a SOCKS"
    ) as caught:
        register(registry.url, proxy="socks5://me:secret-word@127.0.0.1:1")
    assert "secret" not in str(caught.value)
    monkeypatch.setenv("http_proxy", "http://me:secret-word/x@127.0.0.1:1")
    with pytest.raises(RegistryUnavailable, match=r"HTTP_PROXY .*Invalid port: '\[hidden\]'"):
        register(registry.url)


def test_tls(tls, tmp_path):
    with running_stub(tls) as registry:
        assert register(registry.url, ssl_ca_location=str(tmp_path / "ca.pem")) == 1
        trustme.CA().cert_pem.write_to_path(str(tmp_path / "other.pem"))
        with pytest.raises(RegistryUnavailable, match=r"(?i)certificate.verify.failed"):
            register(registry.url, ssl_ca_location=str(tmp_path / "other.pem"))
    expected = r"^schema\.registry\.ssl\.ca\.location=.*/missing.pem does not exist here"
    with pytest.raises(InvalidOption, match=expected):
        register(registry.url, ssl_ca_location=str(tmp_path / "missing.pem"))


def test_a_certificate_of_an_unknown_authority_names_the_option(tls, another_authority, registry):
    advice = r"CERTIFICATE_VERIFY_FAILED.*\. Set schema\.registry\.ssl\.ca\.location to a PEM file"
    with running_stub(tls) as secure, pytest.raises(RegistryUnavailable, match=advice):
        register(secure.url)
    with identity_provider(tls) as provider:
        expected = f"no token .* from {provider.token_url}: .*{advice}"
        with pytest.raises(RegistryUnavailable, match=expected):
            register(registry.url, **oauth(provider))


def test_a_certificate_for_another_name_is_no_matter_of_authorities(authority, tmp_path):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("registry.example.org").configure_cert(tls)
    expected = "mismatch.*Connect with a host name that the certificate contains"
    with running_stub(tls) as registry, pytest.raises(RegistryUnavailable, match=expected):
        register(registry.url, ssl_ca_location=str(tmp_path / "ca.pem"))


def test_a_url_with_the_wrong_scheme_is_named_with_the_way_out(registry, tls):
    with pytest.raises(RegistryUnavailable, match="or begin it with http://"):
        register(registry.url.replace("http://", "https://"))
    with running_stub(tls) as secure, pytest.raises(RegistryUnavailable, match="URL with https://"):
        register(secure.url.replace("https://", "http://"))
    registry.failure = 400, b"The plain HTTP request was sent to HTTPS port"  # as nginx does
    with pytest.raises(RegistryRejected, match="begin the URL with https://"):
        register(registry.url)


@pytest.mark.parametrize("line_break", ["\n", " ", r"\n", r"\r\n"])
def test_mutual_tls(authority, tls, tmp_path, line_break):
    authority.configure_trust(tls)
    tls.verify_mode = ssl.CERT_REQUIRED
    client = authority.issue_cert("u@example.org")
    (tmp_path / "chain.pem").write_text(chain_pem(client))
    (tmp_path / "key.pem").write_text(key_pem(client, KEY_PASSWORD))
    for file in tmp_path.iterdir():
        file.write_text(file.read_text().replace("\n", line_break))
    settings = {
        "ssl_ca_location": str(tmp_path / "ca.pem"),
        "ssl_certificate_location": str(tmp_path / "chain.pem"),
        "ssl_key_location": str(tmp_path / "key.pem"),
        "ssl_key_password": KEY_PASSWORD,
    }
    with running_stub(tls) as registry:
        assert register(registry.url, **settings) == 1
        with pytest.raises(RegistryUnavailable):
            register(registry.url, ssl_ca_location=str(tmp_path / "ca.pem"))


def test_a_certificate_that_cannot_be_loaded_names_its_settings(authority, tmp_path):
    """Confluent's client itself would wait for somebody to type the password."""
    client = authority.issue_cert("u@example.org")
    (tmp_path / "chain.pem").write_text(chain_pem(client))
    (tmp_path / "key.pem").write_text(key_pem(client, KEY_PASSWORD))
    (tmp_path / "other.pem").write_text(key_pem(authority.issue_cert("v@example.org")))
    chain = {"ssl_certificate_location": str(tmp_path / "chain.pem")}
    expected = (
        r"Correct schema\.registry\.ssl\.certificate\.location, schema\.registry\.ssl\.key\."
        r"location or schema\.registry\.ssl\.key\.password, which a key with a password needs$"
    )
    for more in (
        {"ssl_key_location": str(tmp_path / "key.pem")},
        {"ssl_key_location": str(tmp_path / "key.pem"), "ssl_key_password": "secret-of-no-key"},
        {"ssl_key_location": str(tmp_path / "other.pem")},
        {"ssl_key_location": str(tmp_path)},
        {},
    ):
        with pytest.raises(InvalidOption, match=expected) as caught:
            client_of("http://127.0.0.1:1", **chain, **more)
        assert "secret" not in str(caught.value)


def test_a_file_without_authorities_names_its_setting(tmp_path):
    (tmp_path / "empty.pem").touch()
    with pytest.raises(InvalidOption, match=r"\(schema\.registry\.ssl\.ca\.location\): "):
        client_of("http://127.0.0.1:1", ssl_ca_location=str(tmp_path / "empty.pem"))


def test_a_trust_store_that_was_replaced_is_read_by_the_next_request(tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    old, new = trustme.CA(), trustme.CA()
    new.issue_cert("127.0.0.1").configure_cert(context)
    trusted = tmp_path / "ca.pem"
    with running_stub(context) as stub:
        registry = parse(
            {
                "kafka.bootstrap.servers": "127.0.0.1:1",
                "topic": "t",
                "value.format": "avro",
                "schema.registry.url": stub.url,
                "schema.registry.ssl.ca.location": str(trusted),
            }
        ).serialization.registry
        wanted = [WantedSchema("t-value", "avro", '"string"', auto_register=True, normalize=False)]
        old.cert_pem.write_to_path(str(trusted))
        with pytest.raises(RegistryUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            resolve(registry, wanted, None)
        new.cert_pem.write_to_path(str(trusted))
        assert resolve(registry, wanted, None)[wanted[0]].id == 1
