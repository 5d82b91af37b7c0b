"""Logins with tokens of an identity provider, which librdkafka fetches."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_sink.errors import InvalidOption

_URL = "sasl.oauthbearer.token.endpoint.url"
_ID, _SECRET = "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"

_CREDENTIALS = "client_credentials"  # the default of sasl.oauthbearer.grant.type
#: the other grant type needs one of them
_ASSERTIONS = tuple(
    f"sasl.oauthbearer.assertion.{name}" for name in ("file", "private.key.file", "private.key.pem")
)


def check_endpoint(settings: Mapping[str, str]) -> None:
    """Raise InvalidOption if librdkafka lacks something to fetch tokens with.

    It would say so itself, but only where it also fetches the first token.
    """
    if settings.get("sasl.oauthbearer.metadata.authentication.type", "none").lower() != "none":
        return  # a cloud's own service, which knows its clients
    uses_secret = settings.get("sasl.oauthbearer.grant.type", _CREDENTIALS).lower() == _CREDENTIALS
    needed = (_URL, _ID, _SECRET) if uses_secret else (_URL,)
    missing = [f"kafka.{name}" for name in needed if not settings.get(name)]
    if not uses_secret and not any(settings.get(name) for name in _ASSERTIONS):
        missing.append(" or ".join(f"kafka.{name}" for name in _ASSERTIONS))
    if missing:
        raise InvalidOption(
            f"tokens of an identity provider need {', '.join(missing)}"
        )
