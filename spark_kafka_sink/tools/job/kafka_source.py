"""The sink's options -> those of Spark's Kafka source, whose client is Java's consumer."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_sink.config.client_settings import read_setting
from spark_kafka_sink.config.msk_iam import MECHANISM as AWS_MSK_IAM
from spark_kafka_sink.config.option import PREFIX, server_list
from spark_kafka_sink.config.secret import Secret

# The settings for connections and logins are the same for producers and consumers.
_SHARED = ("bootstrap.servers", "client.", "sasl.", "security.protocol", "ssl.")

_JAAS = "sasl.jaas.config"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
_LOGIN_MODULES: Mapping[str, str] = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": _SCRAM,
    "SCRAM-SHA-512": _SCRAM,
}
# Of Amazon's library, which has to be among Spark's JARs.
_OF_MSK_IAM: Mapping[str, str] = {
    _JAAS: "software.amazon.msk.auth.iam.IAMLoginModule required;",
    "sasl.client.callback.handler.class": "software.amazon.msk.auth.iam.IAMClientCallbackHandler",
}

#: librdkafka's names for files and texts, and Java's
_INSTEAD: Mapping[str, str] = {
    "ssl.ca.pem": "ssl.truststore.location",
    "ssl.certificate.location": "ssl.keystore.location",
    "ssl.certificate.pem": "ssl.keystore.location",
    "ssl.key.location": "ssl.keystore.location",
    "ssl.key.pem": "ssl.keystore.location",
}


def source_options(
    sink_options: Mapping[str, str], own_options: Mapping[str, str]
) -> dict[str, str]:
    """Options of ``format("kafka")`` for reading with the sink's login; names in lower case.

    ``own_options``: the source's own; they win. Raises ValueError with a sentence that begins with
    an option of the sink which Java's client cannot use.
    """
    own = {name.lower(): value for name, value in own_options.items()}
    shared = {
        name: read_setting(name, value)
        for option, value in sink_options.items()
        if (name := option.lower().removeprefix(PREFIX)) != option.lower()
        and name.startswith(_SHARED)
    }
    if "bootstrap.servers" in shared:
        shared["bootstrap.servers"] = server_list(shared["bootstrap.servers"])
    given = {name.removeprefix(PREFIX) for name in own}
    for name in shared.keys() & _INSTEAD.keys():
        if _INSTEAD[name] not in given:
            raise ValueError(
                f"{PREFIX}{name} is not supported by Java's client, with which Spark reads "
                f"Kafka; use {PREFIX}{_INSTEAD[name]} with a PEM file, which this sink accepts too"
            )
    settings = {name: each for name, each in shared.items() if name not in _INSTEAD}
    for convert in (_with_login, _with_trust_store, _with_endpoint_check):
        settings = convert(settings, given)
    return {**{PREFIX + name: value for name, value in settings.items()}, **own}


def _with_login(settings: Mapping[str, str], given: set[str]) -> dict[str, str]:
    """The login as Java's JAAS string, unless there is one."""
    result = dict(settings)
    mechanism = result.pop("sasl.mechanisms", None) or result.get("sasl.mechanism")
    name, password = result.pop("sasl.username", None), result.pop("sasl.password", None)
    if mechanism is None:
        return result
    result["sasl.mechanism"] = mechanism
    if _JAAS in result or _JAAS in given:
        return result
    if mechanism == AWS_MSK_IAM:
        return {**result, **_OF_MSK_IAM}
    if mechanism not in _LOGIN_MODULES:
        raise ValueError(
            f"{PREFIX}sasl.mechanism={mechanism}: this login works in Python only, but Spark reads "
            "Kafka with Java's client. Set a login for the source, such as --set "
            f"'source.options.{PREFIX}{_JAAS}=${{env:READER_JAAS}}'"
        )
    login = f"username={_quoted(name or '')} password={_quoted(password or '')}"
    result[_JAAS] = Secret(f"{_LOGIN_MODULES[mechanism]} required {login};")
    return result


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return Secret(f'"{escaped}"')


def _with_trust_store(settings: Mapping[str, str], _: set[str]) -> dict[str, str]:
    result = dict(settings)
    location = result.pop("ssl.ca.location", None)
    if location is not None:
        result |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": location}
    return result


def _with_endpoint_check(settings: Mapping[str, str], _: set[str]) -> dict[str, str]:
    """In Java an empty string switches the check off."""
    name = "ssl.endpoint.identification.algorithm"
    is_off = settings.get(name, "").lower() == "none"
    return {**settings, name: ""} if is_off else dict(settings)
