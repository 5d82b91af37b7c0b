"""[both] Java's logins -> librdkafka's: JAAS, passwords, OAUTHBEARER, and Amazon's AWS_MSK_IAM."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

from spark_kafka_sink.config.option import PREFIX, Notices, most_similar
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import Secret, split_url

# --- kafka.sasl.jaas.config, read as Java reads it: its StreamTokenizer splits the text -----------

JAAS = "sasl.jaas.config"
JAAS_OPTION = PREFIX + JAAS

_JAVAS_TOKEN = re.compile(
    r"""
    "(?P<double>(?:[^"\\\r\n]|\\.)*)(?:"|(?=[\r\n]))  # a quotation ends with its line, too
  | '(?P<single>(?:[^'\\\r\n]|\\.)*)(?:'|(?=[\r\n]))
  | [\0-\x20]+ | /\*(?:.*?\*/|.*) | //[^\r\n]*
  | /.?[^\r\n]*  # a comment, to the end of the line that the next character is on
  | (?P<word>[A-Za-z_$\xa0-\U0010ffff][\w$.\xa0-\U0010ffff-]*)
  | (?P<sign>-?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]*)|.)  # a number is no text
    """,
    re.ASCII | re.DOTALL | re.VERBOSE,
)
# What Java refuses but means one thing: no-break spaces, quotations of several lines, and any text
# without quotation marks.
_FORGIVEN_TOKEN = re.compile(
    r"""
    "(?P<double>(?:[^"\\]|\\.)*)" | '(?P<single>(?:[^'\\]|\\.)*)'
  | [\0-\x20\s]+ | /\*.*?\*/ | //[^\r\n]*
  | (?P<word>[^\0-\x20\s;="']+)
  | (?P<sign>[;=])
    """,
    re.DOTALL | re.VERBOSE,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_END = (";", None)
_OPTION_TOKENS = 3  # name, =, value
_FLAGS = ("required", "requisite", "sufficient", "optional")

_SIMILARITY = 0.85
#: options that programs set beside those of a login
_PUBLIC_NAME = re.compile(
    r"aws[A-Z]|(debug|doNotPrompt|isInitiator|keyTab|principal|renewTGT|serviceName|storeKey"
    r"|refreshKrb5Config|tokenauth|useKeyTab|useTicketCache|username|metadataServerUrls)$"
    r"|(clientId|clientSecret|scope)$|extension_|oauth\.|sasl\.|ssl\.|unsecuredLogin|user_"
)


def parsed_jaas(text: str) -> tuple[str, dict[str, str]] | None:
    """Login module, without its package, and its options, whose values are Secrets.

    None if the text is malformed, or has several modules. Some texts that Java refuses are
    forgiven: those without the last semicolon, for instance. Raises nothing: a traceback with local
    variables would show the text.
    """
    tokens = _tokens(_JAVAS_TOKEN, text)
    parsed = _parsed(tokens[:-1]) if tokens[-1:] == [_END] else None
    if parsed is not None:
        return parsed
    tokens = _tokens(_FORGIVEN_TOKEN, text)
    return _parsed(tokens[:-1] if tokens[-1:] == [_END] else tokens)


def _tokens(pattern: re.Pattern[str], text: str) -> list[tuple[str, str | None]]:
    """A sign and None, or "" and the text of a word; nothing if a quotation does not end."""
    tokens: list[tuple[str, str | None]] = []
    position = 0
    while position < len(text):
        matched = pattern.match(text, position)
        kind = matched and matched.lastgroup
        if matched is None or (kind == "sign" and matched[kind] in ('"', "'")):
            return []
        position = matched.end()
        if kind == "sign":
            tokens.append((matched[kind], None))
        elif kind == "word":
            tokens.append(("", Secret(matched[kind])))
        elif kind is not None:
            tokens.append(("", Secret(_ESCAPE.sub(_unescaped, matched[kind]))))
    return tokens


def _unescaped(escape: re.Match[str]) -> str:
    text = escape[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _CONTROLS.get(text, text)


def _parsed(tokens: list[tuple[str, str | None]]) -> tuple[str, dict[str, str]] | None:
    """``tokens``: without the semicolon that ends them."""
    (_, module), (_, flag) = [*tokens[:2], ("", None), ("", None)][:2]
    starts = range(2, len(tokens), _OPTION_TOKENS)
    triples = [tokens[start : start + _OPTION_TOKENS] for start in starts]
    if not module or not flag or flag.lower() not in _FLAGS:
        return None
    options: dict[str, str] = {}
    for triple in triples:
        if len(triple) != _OPTION_TOKENS or triple[0] == _END or triple[1][0] != "=":
            return None
        (_, name), _, (_, value) = triple
        if value is None:
            return None
        if name is not None:  # Java reads a sign there as the name null
            options[str(name)] = value
    return str(module).rpartition(".")[2], options


def check_names(module: str, options: AbstractSet[str], known: AbstractSet[str]) -> None:
    """Raise InvalidOption for an option that is a misspelt known one, which Java would ignore."""
    for name in sorted(options - known):
        similar = most_similar(name, known - options, _SIMILARITY)
        if similar:
            raise InvalidOption(
                f"{JAAS_OPTION}: {module} does not read {name}; did you mean {similar}?",
                option=JAAS_OPTION,
            )


def ignore(name: str, reason: str, notices: Notices) -> None:
    """Note that an option of a login module has no effect.

    An unknown name may be a piece of a password that is not quoted; it is not shown.
    """
    shown = name if _PUBLIC_NAME.match(name) else "an option"
    notices.ignore(f"{shown} in {JAAS_OPTION}", reason)


# --- a login with a password, and which login there is --------------------------------------------

INSTEAD_OF_LOGIN_CLASSES = (
    "it names a Java class; for OAUTHBEARER set kafka.sasl.oauthbearer.token.endpoint.url with "
    "...client.id and ...client.secret, or oauth.callback, a function in Python"
)

_INSTEAD_OF_MODULES = (
    f"{INSTEAD_OF_LOGIN_CLASSES}; for PLAIN or SCRAM, kafka.sasl.username and kafka.sasl.password"
)

#: ``oidc``: librdkafka fetches tokens from an endpoint
TOKEN_METHOD = "sasl.oauthbearer.method"  # noqa: S105 - a setting's name
#: librdkafka makes tokens that nothing signs
UNSECURED = "enable.sasl.oauthbearer.unsecure.jwt"
OAUTH_MODULE = "OAuthBearerLoginModule"
KERBEROS_MODULE = "Krb5LoginModule"
_SCRAM_MODULE = "ScramLoginModule"
_TOKEN_LOGIN = "tokenauth"  # noqa: S105 - an option's name
#: what would be an error without a login
_LOGIN = (
    JAAS,
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
)

_JAAS_MECHANISMS: Mapping[str, tuple[str, ...]] = {
    "PlainLoginModule": ("PLAIN",),
    _SCRAM_MODULE: ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    OAUTH_MODULE: ("OAUTHBEARER",),  # ``translate_oauth`` reads it then
    "IAMLoginModule": ("AWS_MSK_IAM",),  # ``translate_msk_iam`` does
    KERBEROS_MODULE: ("GSSAPI",),  # ``kerberos.translate_kerberos`` does
}


def without_unused_login(
    settings: Mapping[str, str], oauth_callback: str, notices: Notices
) -> tuple[dict[str, str], str]:
    """``settings`` and ``oauth_callback`` without a login that the protocol does not use.

    Java does not even read it then.
    """
    protocol = settings.get("security.protocol", "PLAINTEXT")
    if protocol.lower().startswith("sasl"):
        return dict(settings), oauth_callback
    reason = f"kafka.security.protocol={protocol} has no login; SASL_SSL has one"
    if oauth_callback:
        notices.ignore("oauth.callback", reason)
    return notices.without(settings, settings.keys() & set(_LOGIN), reason), ""


def credentials(settings: Mapping[str, str], notices: Notices) -> dict[str, str]:
    """User name and password from the JAAS string; no InvalidOption shows the string."""
    if JAAS not in settings:
        return {}
    parsed = parsed_jaas(settings[JAAS])
    if parsed is None:
        raise InvalidOption(
            f"{JAAS_OPTION} is not of the form "
            '`<LoginModule> required username="..." password="...";`, with one login module (its '
            "text is not shown)",
            option=JAAS_OPTION,
        )
    module, options = parsed
    if module not in _JAAS_MECHANISMS:
        raise InvalidOption(
            f"{JAAS_OPTION}: only {', '.join(_JAAS_MECHANISMS)} are supported, not {module}; "
            f"{_INSTEAD_OF_MODULES}",
            option=JAAS_OPTION,
        )
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms"))
    # In Java, PLAIN takes what either of these modules provides.
    is_plain_of_scram = module == _SCRAM_MODULE and mechanism == "PLAIN"
    if mechanism not in _JAAS_MECHANISMS[module] and not is_plain_of_scram:
        raise InvalidOption(
            f"{JAAS_OPTION} uses {module}; set kafka.sasl.mechanism to "
            + " or ".join(_JAAS_MECHANISMS[module])
        )
    if module == _SCRAM_MODULE and options.get(_TOKEN_LOGIN, "").lower() == "true":
        raise InvalidOption(
            f"{JAAS_OPTION}: {_TOKEN_LOGIN}: this client does not support Kafka's delegation "
            "tokens; log in with the password of a user instead, or with OAUTHBEARER or a client "
            "certificate",
            option=JAAS_OPTION,
        )
    check_names(module, options.keys(), {"username", "password"})
    for name in ("username", "password"):
        if name not in options:
            raise InvalidOption(f"{JAAS_OPTION} has no {name}", option=JAAS_OPTION)
    for name in sorted(options.keys() - {"username", "password", _TOKEN_LOGIN}):
        ignore(name, f"Java's {module} does not read it", notices)
    # Only the password is secret: doctor's commands name the user.
    return {"sasl.username": str(options["username"]), "sasl.password": options["password"]}


def check_mechanism(settings: Mapping[str, str], oauth_callback: str) -> None:
    """Raise InvalidOption for SASL without a mechanism, or OAUTHBEARER without tokens."""
    protocol = settings.get("security.protocol", "plaintext").lower()
    if protocol.startswith("sasl") and "sasl.mechanism" not in settings:
        raise InvalidOption(
            f"kafka.security.protocol={protocol} needs kafka.sasl.mechanism, such as PLAIN, "
            "SCRAM-SHA-512, OAUTHBEARER, or GSSAPI for Kerberos, Java's default"
        )
    mechanism = settings.get("sasl.mechanism", "").upper() if protocol.startswith("sasl") else ""
    if oauth_callback and mechanism != "OAUTHBEARER":
        raise InvalidOption(
            "oauth.callback has an effect only with kafka.sasl.mechanism=OAUTHBEARER; set that, or "
            "remove it"
        )
    if mechanism.startswith(("PLAIN", "SCRAM")) and "sasl.username" not in settings:
        raise InvalidOption(
            f"kafka.sasl.mechanism={mechanism} needs a user name and a password: set {JAAS_OPTION}"
        )
    ways = ["a token endpoint (kafka.sasl.oauthbearer.*)"] * fetches_tokens(settings)
    ways += [f"kafka.{UNSECURED}=true"] * (settings.get(UNSECURED, "").lower() == "true")
    ways += ["oauth.callback"] * bool(oauth_callback)
    if mechanism == "OAUTHBEARER":
        if not ways:
            raise InvalidOption(
                "kafka.sasl.mechanism=OAUTHBEARER needs tokens: set "
                "kafka.sasl.oauthbearer.token.endpoint.url with ...client.id and "
                "...client.secret; or oauth.callback"
            )
        if len(ways) > 1:
            raise InvalidOption(f"{' and '.join(ways)} are two ways to get tokens; keep one")


def fetches_tokens(settings: Mapping[str, str]) -> bool:
    """Whether librdkafka fetches tokens from an endpoint."""
    is_oauth = settings.get("sasl.mechanism", "").upper() == "OAUTHBEARER"
    return is_oauth and settings.get(TOKEN_METHOD, "").lower() == "oidc"


# --- OAUTHBEARER: a token endpoint and a client's credentials -------------------------------------
#
# The JAAS options are those of Kafka's own login class, as Confluent Cloud and Event Hubs document
# it, and of Strimzi's.

#: what Java's String.trim removes
BLANKS = "".join(map(chr, range(ord(" ") + 1)))

_HANDLER = "sasl.login.callback.handler.class"
#: the package of its classes
KAFKAS_OAUTH = "org.apache.kafka.common.security.oauthbearer"
_HANDLERS = (
    f"{KAFKAS_OAUTH}.OAuthBearerLoginCallbackHandler",
    f"{KAFKAS_OAUTH}.secured.OAuthBearerLoginCallbackHandler",  # before Kafka 4.0
    "io.strimzi.kafka.oauth.client.JaasClientOauthLoginCallbackHandler",
)
_STRIMZIS = _HANDLERS[-1]
_SHADED = "kafkashaded."  # Databricks' prefix

_URL = "sasl.oauthbearer.token.endpoint.url"
_ID, _SECRET = "sasl.oauthbearer.client.id", "sasl.oauthbearer.client.secret"
_CLOUD = "sasl.oauthbearer.metadata.authentication.type"
_SCOPE, _EXTENSIONS = "sasl.oauthbearer.scope", "sasl.oauthbearer.extensions"
#: librdkafka's settings -> those of Java, since Kafka 4.1
_JAVAS_SETTINGS: Mapping[str, str] = {
    _ID: "sasl.oauthbearer.client.credentials.client.id",
    _SECRET: "sasl.oauthbearer.client.credentials.client.secret",
    _SCOPE: _SCOPE,
}
#: JAAS option -> librdkafka's setting
_OAUTH_OPTIONS: Mapping[str, str] = {
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
_REJECTED_IN_OAUTH: Mapping[str, str] = {
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


def is_oauth(settings: Mapping[str, str]) -> bool:
    """Whether the settings, named without ``kafka.``, may have Java's names for this login."""
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", ""))
    return mechanism.upper() == "OAUTHBEARER"


def translate_oauth(
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
        _add_login(options, result, handler, notices)
        _check_others(options, result, handler, notices, has_callback=bool(oauth_callback))
    if _URL in result:
        # In Java, only other login classes work without it.
        result.setdefault(TOKEN_METHOD, "oidc")
    return result


def _is_read(name: str, handler: str, notices: Notices) -> bool:
    """Whether the handler knows such names; "" may be any.

    Credentials have different names in Kafka's and Strimzi's handlers, and are taken from both.
    """
    is_read = not handler or name in _OAUTH_OPTIONS or name.startswith(_EXTENSIONS_OF_JAVA)
    is_read = is_read or name.startswith(_STRIMZI) == (handler == _STRIMZIS)
    if not is_read:
        ignore(name, f"Java's {handler.rpartition('.')[2]} does not read it", notices)
    return is_read


def _add_login(
    options: Mapping[str, str], result: dict[str, str], handler: str, notices: Notices
) -> None:
    """Add librdkafka's settings for the JAAS options that it has."""
    login: dict[str, str] = {}
    for name, text in options.items():
        if name not in _OAUTH_OPTIONS:
            continue
        # Java's JaasOptionsUtils does the same to the options that are Kafka's own.
        value = text if name.startswith(_STRIMZI) else text.strip(BLANKS)
        setting = _OAUTH_OPTIONS[name]
        javas = _JAVAS_SETTINGS.get(setting)
        if javas is not None and javas in result:
            if handler != _STRIMZIS:  # as in Java's ClientCredentialsJwtRetriever
                ignore(name, f"{PREFIX}{javas} wins", notices)
                continue
            del result[javas]
            notices.ignore(PREFIX + javas, f"{JAAS_OPTION} wins")
        if login.get(setting, value) != value:
            names = " and ".join(other for other in options if _OAUTH_OPTIONS.get(other) == setting)
            raise InvalidOption(
                f"{JAAS_OPTION}: {names} set the same thing; keep one", option=JAAS_OPTION
            )
        login[setting] = Secret(value) if setting == _SECRET else str(value)
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

    ``result`` gets the CA certificates to trust at the token endpoint, if they are PEM. None of
    these options has an effect on the tokens of a callback.
    """
    others = {
        name: value
        for name, value in options.items()
        if name not in _OAUTH_OPTIONS and not name.startswith(_EXTENSIONS_OF_JAVA)
    }
    check_names(OAUTH_MODULE, options.keys(), _OAUTH_OPTIONS.keys())
    has_tls = result.get(_URL, "").lower().startswith("https:")
    has_tokens = bool(handler) or _URL in result or result.get(UNSECURED, "").lower() == "true"
    _add_trust(others, result, has_tls)
    for name, value in sorted(others.items()):
        advice = _oauth_advice(name, value, has_tls=has_tls, has_tokens=has_tokens)
        if advice and not has_callback:
            raise InvalidOption(f"{JAAS_OPTION}: {name}: {advice}", option=JAAS_OPTION)
        reason = f"no effect on the login with {OAUTH_MODULE}"
        is_tls = name.removeprefix(_STRIMZI).startswith("ssl.")
        ignore(name, "it configures Java's TLS" if is_tls else reason, notices)


def _oauth_advice(name: str, value: str, *, has_tls: bool, has_tokens: bool) -> str:
    """What to do about an option with an effect that this client cannot have, else ""."""
    if name in _REJECTED_IN_OAUTH:
        return _REJECTED_IN_OAUTH[name]
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
    kind = settings.get(_CLOUD, "none").lower()
    if kind == "aws_iam":  # Confluent's Python client does this itself
        raise InvalidOption(
            f"kafka.{_CLOUD}={kind} is not supported: for Amazon MSK, set "
            "kafka.sasl.mechanism=AWS_MSK_IAM; for other brokers, oauth.callback, a function in "
            "Python that makes the tokens",
            option=f"kafka.{_CLOUD}",
        )
    if kind != "none":
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


# --- AWS_MSK_IAM: OAUTHBEARER with tokens signed by AWS credentials -------------------------------
#
# The options are those of Amazon's Java library, aws-msk-iam-auth.

AWS_MSK_IAM = "AWS_MSK_IAM"
#: the ``oauth.callback`` that signs the tokens
MSK_IAM_CALLBACK = "spark_kafka_sink.clients.aws_signer:token"

_MSK_MODULE = "IAMLoginModule"
_MSK_HANDLERS = ("sasl.client.callback.handler.class", "sasl.login.callback.handler.class")
#: Amazon's other way: the handler of Java's OAUTHBEARER that makes the same tokens
_MSK_OAUTH_HANDLER = "IAMOAuthBearerLoginCallbackHandler"
_MSK_OPTIONS = frozenset({"awsProfileName", "awsRoleArn", "awsRoleSessionName"})

_WHERE = "instead, where Spark's driver and executors start"
#: options with an effect beside awsRoleArn that the signer cannot have -> what to do instead
_INSTEAD_BESIDE_ROLE: Mapping[str, str] = {
    "awsRoleAccessKeyId": f"set the environment variable AWS_ACCESS_KEY_ID {_WHERE}",
    "awsRoleExternalId": "write a profile with role_arn, external_id and source_profile into "
    "the AWS configuration file of every machine, and set awsProfileName instead of awsRoleArn",
    "awsRoleSecretAccessKey": f"set the environment variable AWS_SECRET_ACCESS_KEY {_WHERE}",
    "awsRoleSessionToken": f"set the environment variable AWS_SESSION_TOKEN {_WHERE}",
    "awsStsRegion": "set the environment variables AWS_DEFAULT_REGION, to this region, and "
    f"AWS_STS_REGIONAL_ENDPOINTS=regional {_WHERE}",
}
_MSK_REGION_CLASS = "awsMskRegionProvider"
_FIPS = "awsShouldUseFips"


def is_msk_iam(settings: Mapping[str, str]) -> bool:
    """Whether the settings, named without ``kafka.``, name this mechanism, or Amazon's handler."""
    mechanism = settings.get("sasl.mechanism", settings.get("sasl.mechanisms", ""))
    handler = settings.get(_MSK_HANDLERS[1], "").rpartition(".")[2]
    is_oauth = mechanism.upper() == "OAUTHBEARER" and handler == _MSK_OAUTH_HANDLER
    return mechanism == AWS_MSK_IAM or is_oauth


def translate_msk_iam(
    settings: Mapping[str, str], oauth_callback: str, notices: Notices
) -> dict[str, str]:
    """The settings for OAUTHBEARER with our callback, without the region.

    Raises InvalidOption.
    """
    if oauth_callback or "sasl.oauthbearer.config" in settings:
        raise InvalidOption(
            f"kafka.sasl.mechanism={AWS_MSK_IAM} makes its tokens itself; remove oauth.callback "
            "and kafka.sasl.oauthbearer.config"
        )
    own = ("sasl.mechanism", "sasl.mechanisms", JAAS, *_MSK_HANDLERS)
    others = {name: value for name, value in settings.items() if name not in own}
    return {
        **others,
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.config": Secret(json.dumps(_msk_options(settings, notices))),
    }


def _msk_options(settings: Mapping[str, str], notices: Notices) -> dict[str, str]:
    text = settings.get(JAAS)
    if text is None:
        return {}
    parsed = parsed_jaas(text)
    if parsed is None or parsed[0] not in (_MSK_MODULE, OAUTH_MODULE):
        raise InvalidOption(
            f"{JAAS_OPTION}: for kafka.sasl.mechanism={AWS_MSK_IAM} it must be "
            f"`software.amazon.msk.auth.iam.{_MSK_MODULE} required;`, optionally with options (its "
            "text is not shown); or remove it",
            option=JAAS_OPTION,
        )
    options = parsed[1]
    check_names(_MSK_MODULE, options.keys(), _MSK_OPTIONS)
    for name, value in sorted(options.items()):
        advice = _msk_advice(name, value, has_role="awsRoleArn" in options)
        if advice:
            raise InvalidOption(f"{JAAS_OPTION}: {name}: {advice}", option=JAAS_OPTION)
        if name not in _MSK_OPTIONS:
            ignore(name, "no effect on the login of Amazon MSK", notices)
    return {name: str(options[name]) for name in options.keys() & _MSK_OPTIONS}


def _msk_advice(name: str, value: str, *, has_role: bool) -> str:
    """What to do about an option with an effect that this client cannot have, else ""."""
    if name == _MSK_REGION_CLASS:
        return (
            "it names a Java class; set the environment variable AWS_REGION on the driver instead"
        )
    if has_role and name == _FIPS and value == "true":
        return f"set the environment variable AWS_USE_FIPS_ENDPOINT=true {_WHERE}"
    return _INSTEAD_BESIDE_ROLE.get(name, "") if has_role else ""
