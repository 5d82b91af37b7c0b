"""Java's JAAS strings, key stores and trust stores -> librdkafka's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spark_kafka_sink.config.option import Notices
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import Secret

#: settings, named without ``kafka.``, that these functions replace
REPLACED = frozenset(
    {
        "sasl.jaas.config",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.keystore.type",
        "ssl.keystore.location",
    }
)

INSTEAD_OF_LOGIN_CLASSES = (
    "it names a Java class; for OAUTHBEARER set kafka.sasl.oauthbearer.token.endpoint.url with "
    "...client.id and ...client.secret, or oauth.callback, a function in Python"
)

INSTEAD_OF_KERBEROS = (
    "the client in the wheel confluent-kafka does not support Kerberos (GSSAPI, Java's default)"
)

_CONVERSION = (
    "keytool -importkeystore -srckeystore store.jks -destkeystore store.p12 "
    "-deststoretype PKCS12 && openssl pkcs12 -in store.p12 -nodes -out store.pem"
)

#: ``oidc``: librdkafka fetches tokens from an endpoint
TOKEN_METHOD = "sasl.oauthbearer.method"  # noqa: S105 - a setting's name
_UNSECURED = "enable.sasl.oauthbearer.unsecure.jwt"
OAUTH_MODULE = "OAuthBearerLoginModule"

_TRUST_STORE = "ssl.truststore.location"
#: settings that say whom to trust, the user names one of them
TRUST = (_TRUST_STORE, "ssl.truststore.certificates", "ssl.ca.location", "ssl.ca.pem")

_PKCS12_NAMES = (".p12", ".pfx")
_PEM = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----)([A-Za-z0-9+/=\s]*)(-----END [A-Z0-9 ]+-----)")
_PEM_LINE = 64
_ESCAPED_BREAK = re.compile(r"\\[rn]")  # as secrets in JSON or in quotes have them

_QUOTED = r"""(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"'=]+))"""
_JAAS_OPTION = re.compile(rf"\s+([\w.]+)\s*=\s*{_QUOTED}")
_JAAS = re.compile(rf"\s*([\w.$]+)\s+\w+((?:{_JAAS_OPTION.pattern})*)\s*;?\s*")
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_CONTROLS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_JAAS_MECHANISMS: Mapping[str, tuple[str, ...]] = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
    OAUTH_MODULE: ("OAUTHBEARER",),  # oauth_login reads it then
}


def credentials(settings: Mapping[str, str], _notices: Notices) -> dict[str, str]:
    """User name and password from the JAAS string; no InvalidOption shows the string."""
    if "sasl.jaas.config" not in settings:
        return {}
    option = "kafka.sasl.jaas.config"
    parsed = parsed_jaas(settings["sasl.jaas.config"])
    if parsed is None:
        raise InvalidOption(
            f"{option} is not of the form "
            '`<LoginModule> required username="..." password="...";` (its text is not shown)',
            option=option,
        )
    module, options = parsed
    if module not in _JAAS_MECHANISMS:
        is_kerberos = module.startswith("Krb5")
        raise InvalidOption(
            f"{option}: only {', '.join(_JAAS_MECHANISMS)} are supported, not {module}; "
            + (INSTEAD_OF_KERBEROS if is_kerberos else INSTEAD_OF_LOGIN_CLASSES),
            option=option,
        )
    if (
        settings.get("sasl.mechanism", settings.get("sasl.mechanisms"))
        not in _JAAS_MECHANISMS[module]
    ):
        raise InvalidOption(
            f"{option} uses {module}; set kafka.sasl.mechanism to "
            + " or ".join(_JAAS_MECHANISMS[module])
        )
    others = sorted(options.keys() - {"username", "password"})
    if others:
        raise InvalidOption(
            f"{option}: only username and password are supported; remove {', '.join(others)}",
            option=option,
        )
    for name in ("username", "password"):
        if name not in options:
            raise InvalidOption(f"{option} has no {name}", option=option)
    # Only the password is secret: doctor's commands name the user.
    return {"sasl.username": str(options["username"]), "sasl.password": options["password"]}


def parsed_jaas(text: str) -> tuple[str, dict[str, str]] | None:
    """Login module, without its package, and its options; None if the text is malformed.

    Raises nothing: a traceback with local variables would show the text.
    """
    matched = _JAAS.fullmatch(text)
    if matched is None:
        return None
    options: dict[str, str] = {
        name: Secret(_ESCAPE.sub(_unescaped, double or single) or bare)
        for name, double, single, bare in _JAAS_OPTION.findall(matched[2])
    }
    return matched[1].rpartition(".")[2], options


def _unescaped(escape: re.Match[str]) -> str:
    # As java.io.StreamTokenizer does, which Java uses to read JAAS.
    text = escape[1]
    return chr(int(text, 8)) if text[0] in "01234567" else _CONTROLS.get(text, text)


def check_mechanism(settings: Mapping[str, str], oauth_callback: str) -> None:
    """Raise InvalidOption for SASL without a mechanism, or OAUTHBEARER without tokens."""
    protocol = settings.get("security.protocol", "plaintext").lower()
    if protocol.startswith("sasl") and "sasl.mechanism" not in settings:
        raise InvalidOption(
            f"kafka.security.protocol={protocol} needs kafka.sasl.mechanism, such as PLAIN, "
            f"SCRAM-SHA-512 or OAUTHBEARER; {INSTEAD_OF_KERBEROS}"
        )
    ways = ["a token endpoint (kafka.sasl.oauthbearer.*)"] * fetches_tokens(settings)
    ways += [f"kafka.{_UNSECURED}=true"] * (settings.get(_UNSECURED, "").lower() == "true")
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
    """Settings for a PEM or PKCS12 key store. For others, InvalidOption says how to convert."""
    location = settings.get("ssl.keystore.location")
    if location is None:
        return {}
    kind = _store_type(settings, "keystore")
    if kind == "PEM":  # Java's PEM key store is one file with the key and its certificates
        return {"ssl.key.location": location, "ssl.certificate.location": location}
    if kind == "PKCS12":
        return {"ssl.keystore.location": location}
    raise InvalidOption(
        f"kafka.ssl.keystore.location: this client cannot read a keystore of type {kind} (Java's "
        f"default type is JKS). Convert it once: {_CONVERSION}; then set "
        "kafka.ssl.keystore.type=PEM, kafka.ssl.keystore.location=store.pem and no "
        "kafka.ssl.keystore.password"
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
