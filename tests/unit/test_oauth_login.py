"""Tokens of an identity provider."""

from __future__ import annotations

from token_endpoint import token_endpoint

from spark_kafka_sink.config.options import parse

OAUTH = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
OIDC = {
    "sasl.oauthbearer.method": "oidc",
    "sasl.oauthbearer.client.id": "me",
    "sasl.oauthbearer.client.secret": "hunter2",
}


def test_options_are_checked_without_a_login_at_the_identity_provider():
    logins = []
    with token_endpoint(lambda: logins.append(1) or "no token") as url:
        settings = {**OAUTH, **OIDC, "sasl.oauthbearer.token.endpoint.url": url}
        options = {f"kafka.{name}": value for name, value in settings.items()}
        parse({"kafka.bootstrap.servers": "host:9092", **options})
    assert logins == []
