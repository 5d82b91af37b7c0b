"""The sink's client settings for kafka-python, or an error that names what it does not support."""

from __future__ import annotations

import ssl
from typing import Any

from confluent_kafka import KafkaException
from kafka.net.sasl.oauth import AbstractTokenProvider

from spark_kafka_sink.advice import settings_refused
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.connection.oauth_token import Token, TokenFunction
from spark_kafka_sink.connection.sockets import has_hidden_certificate, tls_context, uses_tls
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import AuthenticationFailed, BrokerUnavailable, InvalidOption
from spark_kafka_sink.tools.doctor.brokers import Brokers, error_text, for_confluent_kafka

# Without them, Python's TLS would accept servers that librdkafka's refuses.
_TLS_SETTINGS_THAT_PYTHON_LACKS = ("ssl.crl.location",)


def login(settings: ClientSettings, deadline: Deadline) -> dict[str, Any]:
    """kafka-python's settings for the same brokers, TLS and user, after librdkafka's login.

    Raises InvalidOption for what kafka-python does not support; AuthenticationFailed, also if there
    is no token; BrokerUnavailable.
    """
    protocol = settings.get("security.protocol", "plaintext").upper()
    result: dict[str, Any] = {
        "bootstrap_servers": settings["bootstrap.servers"].split(","),
        "client_id": settings["client.id"],
        "security_protocol": protocol,
    }
    if uses_tls(settings):
        result["ssl_context"] = _tls(settings)
    if protocol.startswith("SASL"):
        result |= _sasl(settings, deadline)
    _log_in(settings, deadline)
    return result


def _log_in(settings: ClientSettings, deadline: Deadline) -> None:
    """With librdkafka first: kafka-python retries a wrong password until its timeout."""
    try:
        brokers = Brokers(for_confluent_kafka(settings))
    except KafkaException as error:
        raise InvalidOption(". ".join(settings_refused(error_text(error)))) from None
    try:
        brokers.log_in(deadline)
    except AuthenticationFailed as error:
        raise AuthenticationFailed(f"the brokers refuse the login: {error}. Run doctor") from None
    except BrokerUnavailable as error:
        servers = settings["bootstrap.servers"]
        raise BrokerUnavailable(f"no broker answers at {servers}: {error}. Run doctor") from None
    finally:
        brokers.close()


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
        raise InvalidOption(f"a TLS file cannot be used: {error}") from None


def _sasl(settings: ClientSettings, deadline: Deadline) -> dict[str, Any]:
    mechanism = settings["sasl.mechanism"].upper()
    if mechanism != "OAUTHBEARER":
        # With files among the settings, nothing has checked them together.
        for name in ("sasl.username", "sasl.password"):
            if name not in settings:
                raise InvalidOption(
                    f"kafka.{name} is missing: kafka.sasl.mechanism={mechanism} needs "
                    "kafka.sasl.username and kafka.sasl.password"
                )
        return {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": settings["sasl.username"],
            "sasl_plain_password": settings["sasl.password"],
        }
    if not settings.oauth_callback:
        raise InvalidOption(
            "transactions does not request tokens from an identity provider; set oauth.callback to "
            "a function that returns one, and leave out the provider's settings"
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
