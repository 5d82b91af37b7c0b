"""[both] Java's logins with a password, key stores and trust stores -> librdkafka's settings."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Mapping

from spark_kafka_sink.config.jaas import JAAS, JAAS_OPTION, check_names, ignore, parsed_jaas
from spark_kafka_sink.config.option import Notices
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import Secret

_KEY_STORE = "ssl.keystore.location"

#: settings, named without ``kafka.``, that these functions replace
REPLACED = frozenset(
    {
        JAAS,
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.keystore.type",
        _KEY_STORE,
    }
)

INSTEAD_OF_LOGIN_CLASSES = (
    "it names a Java class; for OAUTHBEARER set kafka.sasl.oauthbearer.token.endpoint.url with "
    "...client.id and ...client.secret, or oauth.callback, a function in Python"
)

_INSTEAD_OF_MODULES = (
    f"{INSTEAD_OF_LOGIN_CLASSES}; for PLAIN or SCRAM, kafka.sasl.username and kafka.sasl.password"
)

INSTEAD_OF_KERBEROS = (
    "the client in the wheel confluent-kafka does not support Kerberos (GSSAPI, Java's default)"
)

#: ``oidc``: librdkafka fetches tokens from an endpoint
TOKEN_METHOD = "sasl.oauthbearer.method"  # noqa: S105 - a setting's name
#: librdkafka makes tokens that nothing signs
UNSECURED = "enable.sasl.oauthbearer.unsecure.jwt"
OAUTH_MODULE = "OAuthBearerLoginModule"
_SCRAM_MODULE = "ScramLoginModule"
_TOKEN_LOGIN = "tokenauth"  # noqa: S105 - an option's name
#: what librdkafka has no use for, unlike the mechanism
_JAVAS_LOGIN = (JAAS, "sasl.client.callback.handler.class", "sasl.login.callback.handler.class")

_TRUST_STORE = "ssl.truststore.location"
#: settings that say whom to trust, the user names one of them
TRUST = (_TRUST_STORE, "ssl.truststore.certificates", "ssl.ca.location", "ssl.ca.pem")

#: of the key store, and of the key in it, which may have the same
KEY_STORE_PASSWORDS = ("ssl.keystore.password", "ssl.key.password")

#: settings for a key or its certificate without a store
_KEYS = (
    "ssl.keystore.key",
    "ssl.keystore.certificate.chain",
    "ssl.key.pem",
    "ssl.certificate.pem",
)

_PKCS12_NAMES = (".p12", ".pfx")
_PEM = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----)([A-Za-z0-9+/=\s]*)(-----END [A-Z0-9 ]+-----)")
_PEM_LINE = 64
_ESCAPED_BREAK = re.compile(r"\\[rn]")  # as secrets in JSON or in quotes have them

_JAAS_MECHANISMS: Mapping[str, tuple[str, ...]] = {
    "PlainLoginModule": ("PLAIN",),
    _SCRAM_MODULE: ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    OAUTH_MODULE: ("OAUTHBEARER",),  # oauth_login reads it then
    "IAMLoginModule": ("AWS_MSK_IAM",),  # msk_iam reads it then
}


def without_unused_login(
    settings: Mapping[str, str], oauth_callback: str, notices: Notices
) -> dict[str, str]:
    """``settings`` without a login in Java's names that the protocol does not use.

    Java does not even read it then.
    """
    protocol = settings.get("security.protocol", "PLAINTEXT")
    if protocol.lower().startswith("sasl"):
        return dict(settings)
    names = _JAVAS_LOGIN if oauth_callback else (*_JAVAS_LOGIN, "sasl.mechanism", "sasl.mechanisms")
    reason = f"kafka.security.protocol={protocol} has no login; SASL_SSL has one"
    return _without(settings, settings.keys() & set(names), reason, notices)


def without_unused_tls(settings: Mapping[str, str], notices: Notices) -> dict[str, str]:
    """``settings`` without those for TLS, if the protocol has none: Java does not read them."""
    protocol = settings.get("security.protocol", "PLAINTEXT")
    if protocol.lower().endswith("ssl"):
        return dict(settings)
    with_tls = "SASL_SSL" if protocol.lower().startswith("sasl") else "SSL"
    reason = f"kafka.security.protocol={protocol} has no TLS; {with_tls} has"
    return _without(settings, {n for n in settings if n.startswith("ssl.")}, reason, notices)


def _without(
    settings: Mapping[str, str], names: Collection[str], reason: str, notices: Notices
) -> dict[str, str]:
    """``settings`` without these, which are noted as ignored."""
    for name in sorted(names):
        notices.ignore(f"kafka.{name}", reason)
    return {name: value for name, value in settings.items() if name not in names}


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
        is_kerberos = module.startswith("Krb5")
        raise InvalidOption(
            f"{JAAS_OPTION}: only {', '.join(_JAAS_MECHANISMS)} are supported, not {module}; "
            + (INSTEAD_OF_KERBEROS if is_kerberos else _INSTEAD_OF_MODULES),
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
            f"SCRAM-SHA-512 or OAUTHBEARER; {INSTEAD_OF_KERBEROS}"
        )
    mechanism = settings.get("sasl.mechanism", "").upper() if protocol.startswith("sasl") else ""
    if mechanism.startswith(("PLAIN", "SCRAM")) and "sasl.username" not in settings:
        raise InvalidOption(
            f"kafka.sasl.mechanism={mechanism} needs a user name and a password: set {JAAS_OPTION}"
        )
    ways = ["a token endpoint (kafka.sasl.oauthbearer.*)"] * fetches_tokens(settings)
    ways += [f"kafka.{UNSECURED}=true"] * (settings.get(UNSECURED, "").lower() == "true")
    ways += ["oauth.callback"] * bool(oauth_callback)
    if settings.get("sasl.mechanism", "").upper() == "OAUTHBEARER":
        if not ways:
            raise InvalidOption(
                "kafka.sasl.mechanism=OAUTHBEARER needs tokens: set "
                "kafka.sasl.oauthbearer.token.endpoint.url with ...client.id and "
                "...client.secret; or oauth.callback"
            )
        if len(ways) > 1:
            raise InvalidOption(f"{' and '.join(ways)} are two ways to get tokens; keep one")
    elif oauth_callback:
        raise InvalidOption(
            "oauth.callback has an effect only with kafka.sasl.mechanism=OAUTHBEARER"
        )


def fetches_tokens(settings: Mapping[str, str]) -> bool:
    """Whether librdkafka fetches tokens from an endpoint."""
    is_oauth = settings.get("sasl.mechanism", "").upper() == "OAUTHBEARER"
    return is_oauth and settings.get(TOKEN_METHOD, "").lower() == "oidc"


def trust_store(settings: Mapping[str, str], _notices: Notices) -> dict[str, str]:
    """Settings for a PEM trust store; of other types, see ``java_trust_store``.

    Raises InvalidOption.
    """
    location = settings.get(_TRUST_STORE)
    if location is not None:
        for name in sorted(settings.keys() & set(TRUST[1:])):
            raise InvalidOption(f"kafka.{_TRUST_STORE} and kafka.{name}: keep one")
        if java_trust_store(settings):
            return {}
    if "ssl.truststore.password" in settings:
        raise InvalidOption(
            "kafka.ssl.truststore.password: a PEM trust store has no password; remove it"
        )
    return {} if location is None else {"ssl.ca.location": location}


def java_trust_store(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a trust store that only Java reads, which the driver replaces.

    They are its location, its type in any case, and perhaps its password.
    """
    kind = _store_type(settings, "truststore")
    if _TRUST_STORE not in settings or kind == "PEM":
        return {}
    names = (_TRUST_STORE, "ssl.truststore.password")
    named = {name: settings[name] for name in names if name in settings}
    return {**named, "ssl.truststore.type": kind}


def key_store(settings: Mapping[str, str], _notices: Notices) -> dict[str, str]:
    """Settings for a PEM or PKCS12 key store; of type JKS, see ``java_key_store``.

    Raises InvalidOption for other types, which says how to convert the store.
    """
    location = settings.get(_KEY_STORE)
    if location is None:
        return {}
    kind = _store_type(settings, "keystore")
    if kind == "PEM":  # Java's PEM key store is one file with the key and its certificates
        return {"ssl.key.location": location, "ssl.certificate.location": location}
    if kind == "PKCS12":
        return {_KEY_STORE: location}
    if kind == "JKS":
        return {}
    raise InvalidOption(
        f"kafka.{_KEY_STORE}: this client cannot read a keystore of type {kind}. Convert it once: "
        f"{key_store_conversion(location, kind)}",
        option=f"kafka.{_KEY_STORE}",
    )


def java_key_store(settings: Mapping[str, str]) -> dict[str, str]:
    """The settings of a key store of type JKS, Java's default, which the driver replaces.

    They are its location and type, and its passwords. Raises InvalidOption if it has no password.
    """
    if _KEY_STORE not in settings or _store_type(settings, "keystore") != "JKS":
        return {}
    if "ssl.keystore.password" not in settings:
        raise InvalidOption(
            f"kafka.{_KEY_STORE}: a keystore of type JKS needs kafka.ssl.keystore.password, as in "
            "Java; set it, or set kafka.ssl.keystore.type=PEM if the file is PEM",
            option=f"kafka.{_KEY_STORE}",
        )
    for name in _KEYS:
        if name in settings:
            raise InvalidOption(
                f"kafka.{_KEY_STORE} and kafka.{name}: keep one", option=f"kafka.{name}"
            )
    named = {name: settings[name] for name in KEY_STORE_PASSWORDS if name in settings}
    return {**named, _KEY_STORE: settings[_KEY_STORE], "ssl.keystore.type": "JKS"}


def key_store_conversion(location: str, kind: str) -> str:
    """The command that converts a key store, and the settings for the result."""
    return (
        f"keytool -importkeystore -srckeystore {shlex.quote(location)} -srcstoretype {kind} "
        "-destkeystore store.p12 -deststoretype PKCS12; then set kafka.ssl.keystore.type=PKCS12 "
        f"and kafka.{_KEY_STORE}=store.p12, a file that all executors have"
    )


def _store_type(settings: Mapping[str, str], store: str) -> str:
    # Java's default is JKS, but its reader of JKS also reads PKCS12.
    is_pkcs12 = settings.get(f"ssl.{store}.location", "").lower().endswith(_PKCS12_NAMES)
    return settings.get(f"ssl.{store}.type", "PKCS12" if is_pkcs12 else "JKS").upper()


def pem_in_lines(text: str) -> str:
    r"""PEM text with the line breaks that OpenSSL needs and Java does not, and those of ``\n``."""
    result = _PEM.sub(_block_in_lines, _ESCAPED_BREAK.sub("\n", text))
    return Secret(result) if isinstance(text, Secret) else result


def _block_in_lines(block: re.Match[str]) -> str:
    body = "".join(block[2].split())
    lines = [body[start : start + _PEM_LINE] for start in range(0, len(body), _PEM_LINE)]
    return "\n".join(["", block[1], *lines, block[3], ""])
