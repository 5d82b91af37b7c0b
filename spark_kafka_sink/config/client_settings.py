"""Java client settings -> librdkafka settings, or an error that says what to write instead."""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from spark_kafka_sink.config.java_security import (
    INSTEAD_OF_KERBEROS,
    INSTEAD_OF_LOGIN_CLASSES,
    REPLACED,
    credentials,
    key_store,
    trust_store,
)
from spark_kafka_sink.config.secret import Secret
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import InvalidOption

PREFIX = "kafka."
_NUMBER = re.compile(r"-?[0-9]+|all")
_CLOSE_SECONDS = 5.0
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

# --- what Java calls otherwise -------------------------------------------------------------------

_RENAMED: Mapping[str, str] = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "sasl.oauthbearer.assertion.template.file": "sasl.oauthbearer.assertion.jwt.template.file",
    # librdkafka's second names, so that one setting has one name from here on
    "compression.codec": "compression.type",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "message.send.max.retries": "retries",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}

# Java's -1 and librdkafka's 0 both mean "as the system likes it" for these.
_MINUS_ONE_IS_ZERO = frozenset(
    {"receive.buffer.bytes", "send.buffer.bytes", "connections.max.idle.ms"}
)

_BYTES = "rows carry bytes: make them in Spark, for instance with to_json, to_avro or cast"
_JVM_TLS = "it chooses a part of Java's TLS; the client here uses OpenSSL: leave it out"
_OURS = "the sink sets it itself"
_NO_SUCH_CHOICE = "the client has no such choice: leave it out"

_REFUSED: Mapping[str, str] = {
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "partitioner.class": "keys are placed as Java's default does (murmur2); "
    "for a placement of your own give a column `partition`",
    "partitioner": "keys are placed as Java's default does (murmur2); "
    "for a placement of your own give a column `partition`",
    "partitioner.ignore.keys": "to spread rows without regard to keys give them a null key",
    "partitioner.adaptive.partitioning.enable": _NO_SUCH_CHOICE,
    "partitioner.availability.timeout.ms": _NO_SUCH_CHOICE,
    "config.providers": "write the values themselves, for instance from dbutils.secrets",
    "interceptor.classes": "it names Java classes; transform the rows in Spark",
    "metric.reporters": "it names Java classes: leave it out",
    "metrics.num.samples": "it tunes Java's metrics: leave it out",
    "metrics.recording.level": "it tunes Java's metrics: leave it out",
    "metrics.sample.window.ms": "it tunes Java's metrics: leave it out",
    "auto.include.jmx.reporter": "it tunes Java's metrics: leave it out",
    "transactional.id": "delivery is at-least-once; transactions are not offered yet",
    "transaction.timeout.ms": "delivery is at-least-once; transactions are not offered yet",
    "transaction.two.phase.commit.enable": "transactions are not offered yet",
    "topic.metadata.refresh.interval.ms": "set kafka.metadata.max.age.ms",
    "socket.connection.setup.timeout.max.ms": "set kafka.socket.connection.setup.timeout.ms",
    "security.providers": _JVM_TLS,
    "ssl.protocol": _JVM_TLS,
    "ssl.enabled.protocols": _JVM_TLS,
    "ssl.provider": _JVM_TLS,
    "ssl.keymanager.algorithm": _JVM_TLS,
    "ssl.trustmanager.algorithm": _JVM_TLS,
    "ssl.secure.random.implementation": _JVM_TLS,
    "ssl.engine.factory.class": _JVM_TLS,
    "sasl.client.callback.handler.class": INSTEAD_OF_LOGIN_CLASSES,
    "sasl.login.callback.handler.class": INSTEAD_OF_LOGIN_CLASSES,
    "sasl.login.class": INSTEAD_OF_LOGIN_CLASSES,
    "sasl.oauthbearer.jwt.retriever.class": INSTEAD_OF_LOGIN_CLASSES,
    "sasl.oauthbearer.jwt.validator.class": INSTEAD_OF_LOGIN_CLASSES,
    "sasl.kerberos.kinit.cmd": INSTEAD_OF_KERBEROS,
    "sasl.kerberos.ticket.renew.jitter": INSTEAD_OF_KERBEROS,
    "sasl.kerberos.ticket.renew.window.factor": INSTEAD_OF_KERBEROS,
    **dict.fromkeys(
        (
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
            "sasl.login.retry.backoff.max.ms",
            "sasl.login.retry.backoff.ms",
            "sasl.oauthbearer.clock.skew.seconds",
            "sasl.oauthbearer.expected.audience",
            "sasl.oauthbearer.expected.issuer",
            "sasl.oauthbearer.header.urlencode",
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.scope.claim.name",
        ),
        _NO_SUCH_CHOICE,
    ),
    "queue.buffering.max.kbytes": "set kafka.buffer.memory (bytes)",
    "queue.buffering.max.messages": "set kafka.buffer.memory (bytes)",
    "delivery.report.only.error": _OURS,
    "log.queue": _OURS,
    "enabled_events": _OURS,
    "opaque": _OURS,
    "interceptors": _OURS,
    "plugin.library.paths": "plugins of librdkafka are not loaded",
    "statistics.interval.ms": "the sink reports what it delivered by itself",
    "produce.offset.report": _OURS,
}


def redact_unless_public(name: str, value: str) -> str:
    """``value``, hidden if ``name`` is a secret, or unknown and so perhaps a misspelt one."""
    return Secret(value) if name in _SECRETS or name not in known_names() else value


@dataclass(frozen=True)
class ClientSettings(Mapping[str, str]):
    """Checked librdkafka settings: hashable, picklable, shows no secret in its repr."""

    pairs: tuple[tuple[str, str], ...]

    def __getitem__(self, name: str) -> str:
        for known, value in self.pairs:
            if known == name:
                return value
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.pairs)

    def __len__(self) -> int:
        return len(self.pairs)


def translate(settings: Mapping[str, str]) -> ClientSettings:
    """Java's producer settings, named without ``kafka.``, as librdkafka's, with our defaults.

    Raises InvalidOption, which names the setting and what to write instead, for names unknown,
    values out of range and settings that contradict each other. Must run where librdkafka is.
    """
    given = {name: redact_unless_public(name, value.strip()) for name, value in settings.items()}
    result: dict[str, str] = {}
    for name in given:
        _check_name(name)
    for name, value in _expanded(given).items():
        target = _RENAMED.get(name, name)
        if target in result:
            raise InvalidOption(f"{PREFIX}{name} says {PREFIX}{target} once more; keep one")
        result[target] = "0" if name in _MINUS_ONE_IS_ZERO and value == "-1" else value
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
        _allowed_values().keys() | _RENAMED.keys() | _REFUSED.keys() | _CONVERTED | _SECRETS
    )


def _check_name(name: str) -> None:
    if name in _REFUSED:
        raise InvalidOption(f"{PREFIX}{name} is not supported: {_REFUSED[name]}")
    if name not in known_names():
        raise InvalidOption(
            f"{PREFIX}{name} is no setting of a Kafka producer"
            + did_you_mean(name, known_names() - _REFUSED.keys(), PREFIX)
        )


def did_you_mean(name: str, known: Iterable[str], prefix: str = "") -> str:
    """``; did you mean ...?`` for the most similar known name, or nothing."""
    similar = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {prefix}{similar[0]}?" if similar else ""


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
