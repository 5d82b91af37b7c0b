"""[both] Java's standard OAuth login -> librdkafka's: a token endpoint and a client's credentials.

The JAAS options are those of Kafka's own login class, as Confluent Cloud and Event Hubs document
it, and of Strimzi's.
"""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_sink.config.jaas import JAAS, JAAS_OPTION, check_names, ignore, parsed_jaas
from spark_kafka_sink.config.java_security import OAUTH_MODULE, TOKEN_METHOD, UNSECURED
from spark_kafka_sink.config.option import Notices
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import split_url

_HANDLER = "sasl.login.callback.handler.class"
_KAFKAS = "org.apache.kafka.common.security.oauthbearer"
_HANDLERS = (
    f"{_KAFKAS}.OAuthBearerLoginCallbackHandler",
    f"{_KAFKAS}.secured.OAuthBearerLoginCallbackHandler",  # before Kafka 4.0
    "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler",
)
_STRIMZIS = _HANDLERS[-1]
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
_EXTENSIONS_OF_JAVA = ("extension_", "oauth.sasl.extension.")
#: Strimzi's names begin so.
_STRIMZI = "oauth."
#: Options of Java's handler for tests
_UNSECURED_PREFIX = "unsecuredLogin"

_BY_CALLBACK = "set oauth.callback instead, a function in Python that "
_ANOTHER_GRANT = _BY_CALLBACK + "asks for tokens in this way"
_NOT_JWT = _BY_CALLBACK + "gets the tokens: the client fetches JWTs only"
_NO_CLIENT_CERTIFICATE = (
    "the client shows no certificate to the token endpoint; remove it if the endpoint needs none, "
    "or " + _BY_CALLBACK + "gets the tokens"
)
_OPENSSL = "the client uses OpenSSL, which does not know Java's names; remove it"
#: JAAS options with an effect that this client cannot have -> what to do
_REJECTED: Mapping[str, str] = {
    "metadataServerUrls": "logins at Confluent's metadata service are not supported; "
    + _BY_CALLBACK
    + "gets a token there, or log in with another mechanism",
    "oauth.access.token": _BY_CALLBACK + "returns the token",
    "oauth.access.token.location": _BY_CALLBACK + "reads the token from its file",
    "oauth.audience": _ANOTHER_GRANT,
    "oauth.client.assertion": _ANOTHER_GRANT,
    "oauth.client.assertion.location": _ANOTHER_GRANT,
    "oauth.password.grant.password": _ANOTHER_GRANT,
    "oauth.password.grant.username": _ANOTHER_GRANT,
    "oauth.refresh.token": _ANOTHER_GRANT,
    "oauth.refresh.token.location": _ANOTHER_GRANT,
}
#: the same of the connection to a token endpoint, if that has TLS
_REJECTED_WITH_TLS: Mapping[str, str] = {
    "ssl.cipher.suites": _OPENSSL,
    "ssl.engine.factory.class": _OPENSSL,
    "ssl.key.password": _NO_CLIENT_CERTIFICATE,
    "ssl.keystore.certificate.chain": _NO_CLIENT_CERTIFICATE,
    "ssl.keystore.key": _NO_CLIENT_CERTIFICATE,
    "ssl.keystore.location": _NO_CLIENT_CERTIFICATE,
    "ssl.provider": _OPENSSL,
}
_ENDPOINT_TRUST = ("https.ca.location", "https.ca.pem")

_CREDENTIALS = "client_credentials"  # the default of sasl.oauthbearer.grant.type
#: the other grant type needs one of them
_ASSERTIONS = tuple(
    f"sasl.oauthbearer.assertion.{name}" for name in ("file", "private.key.file", "private.key.pem")
)


def is_wanted(settings: Mapping[str, str]) -> bool:
    """Whether the settings, named without ``kafka.``, may have Java's names for this login."""
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", ""))
    return mechanism.upper() == "OAUTHBEARER"


def translate_login(
    settings: Mapping[str, str], oauth_callback: str, notices: Notices
) -> dict[str, str]:
    """``settings`` in librdkafka's names; raises InvalidOption, which shows no JAAS string.

    A JAAS string of another login module stays as it is.
    """
    result = dict(settings)
    handler = result.pop(_HANDLER, "").removeprefix(_SHADED)
    if handler and handler not in _HANDLERS:
        raise InvalidOption(
            f"kafka.{_HANDLER}={handler} is not supported: name Java's own, {_HANDLERS[0]}; or "
            "remove it, and set oauth.callback, a function in Python that makes the tokens",
            option=f"kafka.{_HANDLER}",
        )
    parsed = parsed_jaas(result.get(JAAS, ""))
    if parsed is not None and parsed[0] == OAUTH_MODULE:
        del result[JAAS]
        options = {
            name: value for name, value in parsed[1].items() if _is_read(name, handler, notices)
        }
        _add_login(options, result)
        _check_others(options, result, handler, notices, has_callback=bool(oauth_callback))
    if _URL in result:
        # In Java, only other login classes work without it.
        result.setdefault(TOKEN_METHOD, "oidc")
    return result


def _is_read(name: str, handler: str, notices: Notices) -> bool:
    """Whether the handler knows such names; "" may be any.

    Credentials have different names in Kafka's and Strimzi's handlers, and are taken from both.
    """
    is_read = not handler or name in _OPTIONS or name.startswith(_EXTENSIONS_OF_JAVA)
    is_read = is_read or name.startswith(_STRIMZI) == (handler == _STRIMZIS)
    if not is_read:
        ignore(name, f"Java's {handler.rpartition('.')[2]} does not read it", notices)
    return is_read


def _add_login(options: Mapping[str, str], result: dict[str, str]) -> None:
    """Add librdkafka's settings for the JAAS options that it has."""
    login: dict[str, str] = {}
    for name, value in options.items():
        if name not in _OPTIONS:
            continue
        setting = _OPTIONS[name]
        if login.get(setting, value) != value:
            names = " and ".join(other for other in options if _OPTIONS.get(other) == setting)
            raise InvalidOption(
                f"{JAAS_OPTION}: {names} set the same thing; keep one", option=JAAS_OPTION
            )
        login[setting] = value if setting == _SECRET else str(value)
    extensions = [
        f"{name.removeprefix(prefix)}={_escaped(value)}"
        for name, value in options.items()
        for prefix in _EXTENSIONS_OF_JAVA
        if name.startswith(prefix)
    ]
    if extensions:
        login[_EXTENSIONS] = ",".join(extensions)
    for name, value in login.items():
        if name in result:
            raise InvalidOption(f"kafka.{name} and {JAAS_OPTION} set the same thing; keep one")
        result[name] = value


def _check_others(
    options: Mapping[str, str],
    result: dict[str, str],
    handler: str,
    notices: Notices,
    *,
    has_callback: bool,
) -> None:
    """Note the options that Java ignores, or that only tune it; raise InvalidOption for others.

    ``result`` gets the authorities to trust at the token endpoint, if they are PEM. None of these
    options has an effect on the tokens of a callback.
    """
    others = {
        name: value
        for name, value in options.items()
        if name not in _OPTIONS and not name.startswith(_EXTENSIONS_OF_JAVA)
    }
    check_names(OAUTH_MODULE, options.keys(), _OPTIONS.keys())
    has_tls = result.get(_URL, "").lower().startswith("https:")
    has_tokens = bool(handler) or _URL in result or result.get(UNSECURED, "").lower() == "true"
    _add_trust(others, result, has_tls)
    for name, value in sorted(others.items()):
        advice = _advice(name, value, has_tls=has_tls, has_tokens=has_tokens)
        if advice and not has_callback:
            raise InvalidOption(f"{JAAS_OPTION}: {name}: {advice}", option=JAAS_OPTION)
        reason = f"no effect on the login with {OAUTH_MODULE}"
        is_tls = name.removeprefix(_STRIMZI).startswith("ssl.")
        ignore(name, "it configures Java's TLS" if is_tls else reason, notices)


def _advice(name: str, value: str, *, has_tls: bool, has_tokens: bool) -> str:
    """What to do about an option with an effect that this client cannot have, else ""."""
    if name in _REJECTED:
        return _REJECTED[name]
    if has_tls and name in _REJECTED_WITH_TLS:
        return _REJECTED_WITH_TLS[name]
    opposite = {"oauth.access.token.is.jwt": "false", "oauth.tokens.not.jwt": "true"}
    if opposite.get(name) == value.lower():
        return _NOT_JWT
    if name == "oauth.client.credentials.grant.type" and value != _CREDENTIALS:
        return _ANOTHER_GRANT
    if name.startswith(_UNSECURED_PREFIX) and not has_tokens:
        return (
            "Java's client makes tokens of this that nothing signs, for tests. To do so here, set "
            f"kafka.{UNSECURED}=true and kafka.sasl.oauthbearer.config=principal=<user name>; "
            f"for signed ones, set kafka.{_URL} or oauth.callback"
        )
    return ""


def _add_trust(others: dict[str, str], result: dict[str, str], has_tls: bool) -> None:
    """Move a PEM trust store from ``others`` to ``result``; raises InvalidOption for others."""
    if not has_tls or not result.keys().isdisjoint(_ENDPOINT_TRUST):
        return
    for prefix in ("", _STRIMZI):
        store = f"{prefix}ssl.truststore"
        location, text = (others.get(f"{store}.{name}") for name in ("location", "certificates"))
        if location is None and text is None:
            continue
        if others.get(f"{store}.type", "").upper() != "PEM":
            raise InvalidOption(
                f"{JAAS_OPTION}: {store}.*: the client reads only PEM for the token "
                "endpoint. Convert the store once: keytool -list -rfc -keystore store.jks > "
                f"store.pem; then set kafka.{_ENDPOINT_TRUST[0]}=store.pem; they have no effect "
                "beside it",
                option=JAAS_OPTION,
            )
        for name in ("location", "certificates", "type"):
            others.pop(f"{store}.{name}", None)
        setting = _ENDPOINT_TRUST[0] if text is None else _ENDPOINT_TRUST[1]
        result[setting] = str(location if text is None else text)


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
            f"tokens of an identity provider need {', '.join(missing)}; {JAAS_OPTION} with "
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
