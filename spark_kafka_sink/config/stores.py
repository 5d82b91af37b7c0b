"""[both] Java's key stores and trust stores -> librdkafka's settings; PEM text in lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from spark_kafka_sink.config.option import Notices
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import Secret

_KEY_STORE = "ssl.keystore.location"

#: settings, named without ``kafka.``, that these functions replace
REPLACED = frozenset(
    {
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.keystore.type",
        _KEY_STORE,
    }
)

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


def without_unused_tls(settings: Mapping[str, str], notices: Notices) -> dict[str, str]:
    """``settings`` without those for TLS, if the protocol has none: Java does not read them."""
    protocol = settings.get("security.protocol", "PLAINTEXT")
    if protocol.lower().endswith("ssl"):
        return dict(settings)
    with_tls = "SASL_SSL" if protocol.lower().startswith("sasl") else "SSL"
    reason = f"kafka.security.protocol={protocol} has no TLS; {with_tls} has"
    names = [name for name in settings if name.startswith("ssl.")]
    return notices.without(settings, names, reason)


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
        of_what = "no trust store is named" if location is None else "a PEM trust store has none"
        raise InvalidOption(
            f"kafka.ssl.truststore.password: {of_what}; remove it",
            option="kafka.ssl.truststore.password",
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

    Raises InvalidOption for other types, which says how to convert the store, and for the password
    of no store.
    """
    location = settings.get(_KEY_STORE)
    if location is None:
        if "ssl.keystore.password" in settings:
            raise InvalidOption(
                f"kafka.ssl.keystore.password: no key store is named; set kafka.{_KEY_STORE}, or "
                "remove it (that of a key in PEM is kafka.ssl.key.password)",
                option="kafka.ssl.keystore.password",
            )
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
