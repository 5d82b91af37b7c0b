"""Java's standard OAuth login -> librdkafka's: a token endpoint and a client's credentials.

The JAAS options are those of Kafka's own login class, as Confluent Cloud and Event Hubs document
it, and of Strimzi's.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_sink.config.java_security import (
    OAUTH_MODULE,
    TOKEN_METHOD,
    parsed_jaas,
)
from spark_kafka_sink.config.option import Notices
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import split_url

_JAAS, _HANDLER = "sasl.jaas.config", "sasl.login.callback.handler.class"
_KAFKAS = "org.apache.kafka.common.security.oauthbearer"
_HANDLERS = (
    f"{_KAFKAS}.OAuthBearerLoginCallbackHandler",
    f"{_KAFKAS}.secured.OAuthBearerLoginCallbackHandler",  # before Kafka 4.0
    "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler",
)
_SHADED = "kafkashaded."  # Databricks' prefix

_URL = "sasl.oauthbearer.token.endpoint.url"
_ID, _SECRET = "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"
_SCOPE, _EXTENSIONS = "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions"
#: JAAS option -> librdkafka's setting
_OPTIONS: Mapping[str, str] = {
    "clientId": _ID,
    "clientSecret": _SECRET,
    "scope": _SCOPE,
    "oauth.client.id": _ID,
    "oauth.client.secret": _SECRET,
    "oauth.scope": _SCOPE,
    "oauth.token.endpoint.uri": _URL,
}
_EXTENSION = "extension_"

_CREDENTIALS = "client_credentials"  # the default of sasl.oauthbearer.grant.type
#: the other grant type needs one of them
_ASSERTIONS = tuple(
    f"sasl.oauthbearer.assertion.{name}" for name in ("file", "private.key.file", "private.key.pem")
)


def is_wanted(settings: Mapping[str, str]) -> bool:
    """Whether the settings, named without ``kafka.``, may have Java's names for this login."""
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", ""))
    return mechanism.upper() == "OAUTHBEARER"


def translate_login(settings: Mapping[str, str], _notices: Notices) -> dict[str, str]:
    """``settings`` in librdkafka's names; raises InvalidOption, which shows no JAAS string.

    A JAAS string of another login module stays as it is.
    """
    result = dict(settings)
    handler = result.pop(_HANDLER, _HANDLERS[0])
    if handler.removeprefix(_SHADED) not in _HANDLERS:
        raise InvalidOption(
            f"kafka.{_HANDLER}={handler} is not supported: name Java's own, {_HANDLERS[0]}; or "
            "remove it, and set oauth.callback, a function in Python that makes the tokens",
            option=f"kafka.{_HANDLER}",
        )
    parsed = parsed_jaas(result.get(_JAAS, ""))
    if parsed is not None and parsed[0] == OAUTH_MODULE:
        del result[_JAAS]
        for name, value in _login(parsed[1]).items():
            if name in result:
                raise InvalidOption(f"kafka.{name} and kafka.{_JAAS} set the same thing; keep one")
            result[name] = value
    if _URL in result:
        # In Java, only other login classes work without it.
        result.setdefault(TOKEN_METHOD, "oidc")
    return result


def _login(options: Mapping[str, str]) -> dict[str, str]:
    """librdkafka's settings for JAAS options, whose values are all Secrets."""
    result: dict[str, str] = {}
    extensions: list[str] = []
    for name, value in options.items():
        if name in _OPTIONS:
            setting = _OPTIONS[name]
            result[setting] = value if setting == _SECRET else str(value)
        elif name.startswith(_EXTENSION):
            extensions.append(f"{name.removeprefix(_EXTENSION)}={_escaped(value)}")
        else:
            raise InvalidOption(
                f"kafka.{_JAAS}: {name} is not supported with {OAUTH_MODULE}; allowed: "
                f"{', '.join(_OPTIONS)}, {_EXTENSION}... (trust for the token endpoint: "
                "kafka.https.ca.location)"
            )
    if extensions:
        result[_EXTENSIONS] = ",".join(extensions)
    return result


def _escaped(extension: str) -> str:
    return extension.replace("\\", "\\\\").replace(",", "\\,")


def check_endpoint(settings: Mapping[str, str]) -> None:
    """Raise InvalidOption if librdkafka lacks something to fetch tokens with.

    It would say so itself, but only where it also fetches the first token.
    """
    if settings.get("sasl.oauthbearer.metadata.authentication.type", "none").lower() != "none":
        return  # a cloud's own service, which identifies its clients itself
    uses_secret = settings.get("sasl.oauthbearer.grant.type", _CREDENTIALS).lower() == _CREDENTIALS
    needed = (_URL, _ID, _SECRET) if uses_secret else (_URL,)
    missing = [f"kafka.{name}" for name in needed if not settings.get(name)]
    if not uses_secret and not any(settings.get(name) for name in _ASSERTIONS):
        missing.append(" or ".join(f"kafka.{name}" for name in _ASSERTIONS))
    if missing:
        raise InvalidOption(
            f"tokens of an identity provider need {', '.join(missing)}; kafka.{_JAAS} with "
            f"{OAUTH_MODULE} may have clientId and clientSecret instead"
        )
    if settings[_URL].lower().startswith("file:"):
        raise InvalidOption(
            f"kafka.{_URL} is a file, which only Java's client reads as a token; set "
            "oauth.callback instead, a function that reads it",
            option=f"kafka.{_URL}",
        )
    try:
        has_credentials = "@" in split_url(settings[_URL]).netloc
    except ValueError as error:
        raise InvalidOption(f"kafka.{_URL}={error}", option=f"kafka.{_URL}") from None
    if has_credentials:
        raise InvalidOption(
            f"kafka.{_URL}=[hidden] contains credentials, which logs would show; set "
            f"kafka.{_ID} and kafka.{_SECRET} instead",
            option=f"kafka.{_URL}",
        )
