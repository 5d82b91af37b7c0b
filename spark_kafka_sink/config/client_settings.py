"""Java client settings -> librdkafka settings, or an error that says what to write instead."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import cache

from spark_kafka_sink.config.java_security import (
    INSTEAD_OF_KERBEROS,
    REPLACED,
    credentials,
    key_store,
    trust_store,
)
from spark_kafka_sink.config.java_settings import MINUS_ONE_IS_ZERO, REFUSED, RENAMED
from spark_kafka_sink.config.option import PREFIX
from spark_kafka_sink.config.producer_options import BYTES_PER_RECORD, ClientSettings
from spark_kafka_sink.config.secret import Secret
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import InvalidOption

_NUMBER = re.compile(r"-?[0-9]+|all")
_CLOSE_SECONDS = 5.0
_MAX_INT = 2**31 - 1
_TRUE = ("true", "t", "1")

_log = logging.getLogger("spark_kafka_sink")

DEFAULTS: Mapping[str, str] = {
    "client.id": "spark-kafka-sink",
    "acks": "all",
    "enable.idempotence": "true",
    "delivery.timeout.ms": "120000",
    "max.in.flight.requests.per.connection": "5",
    "enable.metrics.push": "false",  # its last report delays every close by up to 1 s
    "partitioner": "murmur2_random",  # no option changes it
}

_SECRETS = frozenset(
    {
        "sasl.jaas.config",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.private.key.pem",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.password",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.key",
        "ssl.keystore.password",
        "ssl.truststore.password",
    }
)


def redact_unless_public(name: str, value: str) -> str:
    """``value``, hidden if ``name`` is a secret, or unknown and so perhaps a misspelt one."""
    return Secret(value) if name in _SECRETS or name not in known_names() else value


def producer_settings(translated: Mapping[str, str], buffer_memory_bytes: int) -> ClientSettings:
    """All that the producer hands to librdkafka: ``translated``, and what its own work requires.

    The producer bounds its buffer and fetches metadata itself, so that librdkafka's limits must
    not come first, and its refresh is off.
    """
    kibibytes = -(-buffer_memory_bytes // 1024)
    records = min(buffer_memory_bytes // BYTES_PER_RECORD, _MAX_INT)
    settings = {
        **translated,
        "queue.buffering.max.kbytes": str(kibibytes),
        "queue.buffering.max.messages": str(records),
        # librdkafka fails the rows of a missing topic after this time. The budget of the send ends
        # first, with an error that names it. An int times 1000 in librdkafka: more would overflow.
        "topic.metadata.propagation.max.ms": "2000000",
        "topic.metadata.refresh.interval.ms": "-1",
        # When librdkafka drops metadata that was not refreshed: the most that it allows.
        "metadata.max.age.ms": "86400000",
    }
    return ClientSettings(tuple(sorted(settings.items())))


def translate(settings: Mapping[str, str]) -> ClientSettings:
    """Java's producer settings, named without ``kafka.``, as librdkafka's, with our defaults.

    Raises InvalidOption, which names the setting and what to write instead, for names unknown,
    values out of range and settings that contradict each other. Must run where librdkafka is.
    """
    given = {name: redact_unless_public(name, value.strip()) for name, value in settings.items()}
    result: dict[str, str] = {}
    for name in given:
        if name in REFUSED:
            raise InvalidOption(f"{PREFIX}{name} is not supported: {REFUSED[name]}")
    for name, value in _expanded(given).items():
        target = RENAMED.get(name, name)
        if target in result:
            raise InvalidOption(f"{PREFIX}{name} says {PREFIX}{target} once more; keep one")
        result[target] = "0" if name in MINUS_ONE_IS_ZERO and value == "-1" else value
        _check_value(name, target, result[target])
    defaults = dict(DEFAULTS)
    if not _allows_idempotence(result) and "enable.idempotence" not in given:
        defaults["enable.idempotence"] = "false"  # as the Java producer does
    merged = defaults | result
    _check_contradictions(merged)
    translated = ClientSettings(tuple(sorted(merged.items())))
    _check_together(translated)
    return translated


@cache
def _allowed_values() -> Mapping[str, str]:
    # Imported here: librdkafka is needed only where options are checked or rows are sent.
    from spark_kafka_sink.librdkafka.configuration import producer_setting_specs

    return {name: spec.allowed for name, spec in producer_setting_specs().items()}


@cache
def known_names() -> frozenset[str]:
    """All names that ``translate`` understands, if only to refuse them with advice."""
    return frozenset(
        _allowed_values().keys() | RENAMED.keys() | REFUSED.keys() | _CONVERTED | _SECRETS
    )


def _check_value(name: str, target: str, value: str) -> None:
    from spark_kafka_sink.librdkafka.configuration import refusal_of

    refusal = refusal_of(target, value)
    allowed = _allowed_values().get(target)
    # librdkafka itself takes 16k for 16.
    is_no_number = allowed and ".." in allowed and not _NUMBER.fullmatch(value)
    if refusal is None and not is_no_number:
        return
    if isinstance(value, Secret):
        raise InvalidOption(f"{PREFIX}{name}: the client refuses its value (not shown here)")
    raise InvalidOption(
        f"{PREFIX}{name}={value!r} is refused: "
        + (f"allowed is {allowed}" if allowed else str(refusal).strip())
    )


def _allows_idempotence(settings: Mapping[str, str]) -> bool:
    return settings.get("acks", "all") in ("all", "-1") and settings.get("retries") != "0"


def _check_contradictions(settings: Mapping[str, str]) -> None:
    if settings["enable.idempotence"].lower() in _TRUE:
        for name, allowed in (("acks", "all"), ("retries", "1 or more")):
            if not _allows_idempotence({name: settings[name]} if name in settings else {}):
                raise InvalidOption(
                    f"{PREFIX}enable.idempotence=true needs {PREFIX}{name}={allowed}, "
                    f"not {settings[name]}"
                )
        in_flight = settings["max.in.flight.requests.per.connection"]
        if int(in_flight) > 5:
            raise InvalidOption(
                f"{PREFIX}max.in.flight.requests.per.connection={in_flight} is more than 5, the "
                "most at which idempotence keeps the order; lower it or set "
                f"{PREFIX}enable.idempotence=false"
            )
    delivery, linger = settings["delivery.timeout.ms"], settings.get("linger.ms", "5")
    if 0 < int(delivery) <= int(linger):
        raise InvalidOption(
            f"{PREFIX}delivery.timeout.ms={delivery} is not longer than {PREFIX}linger.ms={linger}"
        )
    protocol = settings.get("security.protocol", "plaintext").lower()
    if protocol.startswith("sasl") and "sasl.mechanism" not in settings:
        raise InvalidOption(
            f"{PREFIX}security.protocol={protocol} needs {PREFIX}sasl.mechanism, such as "
            f"PLAIN, SCRAM-SHA-512 or OAUTHBEARER; {INSTEAD_OF_KERBEROS}"
        )


@cache  # Spark asks for a writer several times a micro-batch, in a process that it keeps
def _check_together(settings: ClientSettings) -> None:
    """Let the client itself look at all settings at once, unless it would look for files.

    Files may be on the executors alone, and are looked at there.
    """
    from spark_kafka_sink.librdkafka.client import Client

    _warn_of_reordering(settings)
    if any(name.endswith((".location", ".file", ".keytab")) for name in settings):
        return
    try:
        client = Client({**settings, "bootstrap.servers": "", "log_level": "0"})
    except ValueError as error:
        raise InvalidOption(f"the Kafka client refuses its settings: {error}") from None
    client.close(Deadline(_CLOSE_SECONDS))


def _warn_of_reordering(settings: Mapping[str, str]) -> None:
    # Java keeps the order with one request in flight; librdkafka builds the next one ahead, and
    # sends it before the repeated one.
    is_idempotent = settings["enable.idempotence"].lower() in _TRUE
    if not is_idempotent and settings.get("retries") != "0":
        _log.warning(
            "without %senable.idempotence a request that is retried may come after a later one, "
            "so that rows change their order, or be stored twice, whatever "
            "%smax.in.flight.requests.per.connection is; switch idempotence on to keep the order",
            PREFIX,
            PREFIX,
        )


# --- settings that take another form -------------------------------------------------------------


def _expanded(given: Mapping[str, str]) -> dict[str, str]:
    """``given`` with JAAS strings, key and trust stores and the like spelled out."""
    result = {name: value for name, value in given.items() if name not in _CONVERTED}
    for convert in (credentials, trust_store, key_store, _compression_level, _endpoint_check):
        for name, value in convert(given).items():
            if name in result:
                raise InvalidOption(f"{PREFIX}{name} is set in two ways; keep one")
            result[name] = value
    return result


_CONVERTED = REPLACED | frozenset(
    {
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "ssl.endpoint.identification.algorithm",
    }
)


def _compression_level(given: Mapping[str, str]) -> dict[str, str]:
    codec = given.get("compression.type", given.get("compression.codec", "none"))
    name = f"compression.{codec.lower()}.level"
    if name not in given:
        return {}
    _check_value(name, "compression.level", given[name])
    return {"compression.level": given[name]}


def _endpoint_check(given: Mapping[str, str]) -> dict[str, str]:
    algorithm = given.get("ssl.endpoint.identification.algorithm")
    if algorithm is None:
        return {}
    # Java switches the check off with an empty string.
    return {"ssl.endpoint.identification.algorithm": algorithm or "none"}
