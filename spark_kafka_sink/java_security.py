"""JAAS strings, key stores and trust stores of Java -> librdkafka's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping

from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.secret import Secret

#: settings, named without ``kafka.``, that these functions replace
REPLACED = frozenset(
    {
        "sasl.jaas.config",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.keystore.type",
        "ssl.keystore.location",
    }
)

INSTEAD_OF_LOGIN_CLASSES = (
    "it names a Java class; for OAUTHBEARER set kafka.sasl.oauthbearer.method=oidc with "
    "kafka.sasl.oauthbearer.client.id, ...client.secret and ...token.endpoint.url"
)

INSTEAD_OF_KERBEROS_COMMANDS = (
    "set kafka.sasl.kerberos.service.name, ...principal and ...keytab instead"
)

_JKS = (
    "JKS stores need Java; convert once and set {instead}: "
    "keytool -importkeystore -srckeystore store.jks -destkeystore store.p12 "
    "-deststoretype PKCS12 && openssl pkcs12 -in store.p12 -nodes -out store.pem"
)

_JAAS = re.compile(
    r"""\s* (?P<module>[\w.$]+) \s+ (?P<flag>\w+)
        (?P<options>(?: [^;"'] | "(?:[^"\\]|\\.)*" | '[^']*' )*) ;? \s* $""",
    re.VERBOSE,
)
_JAAS_OPTION = re.compile(r"\s*([\w.]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([^\s;\"']+))")
_JAAS_MECHANISMS: Mapping[str, tuple[str, ...]] = {
    "PlainLoginModule": ("PLAIN",),
    "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
}


def credentials(given: Mapping[str, str]) -> dict[str, str]:
    if "sasl.jaas.config" not in given:
        return {}
    option = "kafka.sasl.jaas.config"
    matched = _JAAS.match(given["sasl.jaas.config"])
    if not matched:
        raise InvalidOption(
            f"{option} is not of the form "
            '`<LoginModule> required username="..." password="...";` (its text is not shown)'
        )
    module = matched["module"].rpartition(".")[2]
    if module not in _JAAS_MECHANISMS:
        raise InvalidOption(
            f"{option}: only PlainLoginModule and ScramLoginModule can be translated, not {module}; "
            + (
                INSTEAD_OF_KERBEROS_COMMANDS
                if module.startswith("Krb5")
                else INSTEAD_OF_LOGIN_CLASSES
            )
        )
    mechanism = given.get("sasl.mechanism", "").upper()
    if mechanism not in _JAAS_MECHANISMS[module]:
        raise InvalidOption(
            f"{option} uses {module}; set kafka.sasl.mechanism to "
            + " or ".join(_JAAS_MECHANISMS[module])
        )
    options = {
        name: Secret(re.sub(r"\\(.)", r"\1", double) or single or bare)
        for name, double, single, bare in _JAAS_OPTION.findall(matched["options"])
    }
    for name in ("username", "password"):
        if name not in options:
            raise InvalidOption(f"{option} has no {name}")
        if f"sasl.{name}" in given:
            raise InvalidOption(f"{option} and kafka.sasl.{name} are both set; keep one")
    return {"sasl.username": options["username"], "sasl.password": options["password"]}


def trust_store(given: Mapping[str, str]) -> dict[str, str]:
    location = given.get("ssl.truststore.location")
    kind = given.get("ssl.truststore.type", "JKS").upper()
    if location is None:
        return {}
    if kind == "PEM":
        return {"ssl.ca.location": location}
    raise InvalidOption(
        f"kafka.ssl.truststore.location: a {kind} trust store cannot be read here. "
        + _JKS.format(
            instead="kafka.ssl.truststore.type=PEM and kafka.ssl.truststore.location=store.pem"
        )
    )


def key_store(given: Mapping[str, str]) -> dict[str, str]:
    location = given.get("ssl.keystore.location")
    kind = given.get("ssl.keystore.type", "JKS").upper()
    if location is None:
        return {}
    if kind == "PEM":  # Java's PEM key store is one file with the key and its certificates
        return {"ssl.key.location": location, "ssl.certificate.location": location}
    if kind == "PKCS12":
        return {"ssl.keystore.location": location}
    raise InvalidOption(
        f"kafka.ssl.keystore.location: a {kind} key store cannot be read here. "
        + _JKS.format(
            instead="kafka.ssl.keystore.type=PEM and kafka.ssl.keystore.location=store.pem"
        )
    )
