"""The sink's client settings as kafka-python takes them, or an error that says what it lacks."""

from __future__ import annotations

import ssl
from typing import Any

from kafka.net.sasl.oauth import AbstractTokenProvider

from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.doctor.network import has_hidden_certificate, tls_context, uses_tls
from spark_kafka_sink.errors import AuthenticationFailed, InvalidOption
from spark_kafka_sink.producer.oauth_token import Token, TokenFunction

# Without them, Python's TLS would accept what librdkafka's refuses.
_TLS_SETTINGS_THAT_PYTHON_LACKS = ("ssl.crl.location", "ssl.engine.location")


def login(settings: ClientSettings, deadline: Deadline) -> dict[str, Any]:
    """kafka-python's settings for the same brokers, TLS and user.

    Raises InvalidOption for what it does not support, AuthenticationFailed if there is no token.
    """
    protocol = settings.get("security.protocol", "plaintext").upper()
    servers = (each.strip() for each in settings["bootstrap.servers"].split(","))
    result: dict[str, Any] = {
        "bootstrap_servers": [each for each in servers if each],
        "client_id": settings["client.id"],
        "security_protocol": protocol,
    }
    if uses_tls(settings):
        result["ssl_context"] = _tls(settings)
    if protocol.startswith("SASL"):
        result |= _sasl(settings, deadline)
    return result


def _tls(settings: ClientSettings) -> ssl.SSLContext:
    for name in _TLS_SETTINGS_THAT_PYTHON_LACKS:
        if name in settings:
            raise InvalidOption(f"transactions does not support kafka.{name}; leave it out here")
    if has_hidden_certificate(settings):
        raise InvalidOption(
            "transactions reads the client's certificate and its key only from a PEM file: set "
            "kafka.ssl.keystore.type=PEM and kafka.ssl.keystore.location"
        )
    try:
        return tls_context(settings)
    except OSError as error:
        raise InvalidOption(f"a file for TLS is unusable: {error}") from None


def _sasl(settings: ClientSettings, deadline: Deadline) -> dict[str, Any]:
    mechanism = settings["sasl.mechanism"].upper()
    if mechanism != "OAUTHBEARER":
        return {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": settings["sasl.username"],
            "sasl_plain_password": settings["sasl.password"],
        }
    if not settings.oauth_callback:
        raise InvalidOption(
            "transactions cannot fetch tokens by kafka.sasl.oauthbearer.method; set "
            "oauth.callback instead, a function that returns one"
        )
    token = TokenFunction(settings).fetch(deadline.remaining())
    if isinstance(token, str):
        raise AuthenticationFailed(token)
    return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": _OneToken(token)}


class _OneToken(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
    """The same token for every connection: they are made within seconds."""

    def __init__(self, token: Token) -> None:
        self._token = token

    def token(self) -> str:
        return self._token.value

    def extensions(self) -> dict[str, str]:
        return dict(self._token.extensions)
