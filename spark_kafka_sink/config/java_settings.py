"""What Java's producer settings mean: librdkafka's names for them, and rules across settings.

Of those that are rejected, what to do instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from spark_kafka_sink.config.java_security import INSTEAD_OF_KERBEROS, INSTEAD_OF_LOGIN_CLASSES
from spark_kafka_sink.config.option import PREFIX
from spark_kafka_sink.errors import InvalidOption

if TYPE_CHECKING:
    from spark_kafka_sink.librdkafka.setting_specs import SettingSpec

RENAMED: Mapping[str, str] = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "sasl.oauthbearer.assertion.template.file": "sasl.oauthbearer.assertion.jwt.template.file",
    # librdkafka's aliases, so that every setting has one name from here on
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

#: Values that Java allows, where librdkafka allows others.
ALLOWED: Mapping[str, str] = {
    "acks": "all, -1, 0, 1",
    "request.timeout.ms": "0 .. 2147483647",
}

# For these, Java's -1 means the same as librdkafka's 0.
MINUS_ONE_IS_ZERO = frozenset(
    {"receive.buffer.bytes", "send.buffer.bytes", "connections.max.idle.ms"}
)

_BYTES = "the sink writes bytes; serialize in Spark, for instance with to_json, to_avro or cast"
_JVM_TLS = "it configures Java's TLS, but this client uses OpenSSL; remove it"
_OURS = "the sink sets it itself"
_NATIVE_CODE = "an option may not name native code that the sink would run"
_JAVA_METRICS = "it configures Java's metrics; remove it"
_NO_SUCH_SETTING = "the client has no such setting; remove it"
_PLACEMENT = (
    "keys choose partitions as in Java's default partitioner (murmur2); to choose them yourself, "
    "write a column `partition`"
)
_TRANSACTIONS = "set delivery.guarantee=exactly-once; the sink then begins and ends transactions"

REJECTED: Mapping[str, str] = {
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "partitioner.class": _PLACEMENT,
    "partitioner": _PLACEMENT,
    "partitioner.ignore.keys": "to spread rows regardless of their keys, make the keys null",
    "partitioner.adaptive.partitioning.enable": _NO_SUCH_SETTING,
    "partitioner.availability.timeout.ms": _NO_SUCH_SETTING,
    "config.providers": "pass the values themselves, for instance from dbutils.secrets",
    "interceptor.classes": "it names Java classes; transform the rows in Spark",
    "metric.reporters": "it names Java classes; remove it",
    "metrics.num.samples": _JAVA_METRICS,
    "metrics.recording.level": _JAVA_METRICS,
    "metrics.sample.window.ms": _JAVA_METRICS,
    "auto.include.jmx.reporter": _JAVA_METRICS,
    "transactional.id": f"{_TRANSACTIONS}, whose names begin with transactional.id.prefix",
    "transaction.two.phase.commit.enable": _TRANSACTIONS,
    "topic.metadata.propagation.max.ms": "set kafka.max.block.ms: it bounds the wait for a "
    "topic that is still being created",
    "topic.metadata.refresh.interval.ms": "set kafka.metadata.max.age.ms",
    "socket.connection.setup.timeout.max.ms": "set kafka.socket.connection.setup.timeout.ms",
    "security.providers": _JVM_TLS,
    "ssl.cipher.suites": "it would restrict only TLS 1.2, not TLS 1.3 as in Java, and OpenSSL "
    "has other names; set ssl.cipher.suites on the brokers, which restricts all versions",
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
        _NO_SUCH_SETTING,
    ),
    "enable.gapless.guarantee": "remove it; with it, a client could send nothing more after "
    "one failed record",
    "queue.buffering.max.kbytes": "set kafka.buffer.memory (bytes)",
    "queue.buffering.max.messages": "set kafka.buffer.memory (bytes)",
    "delivery.report.only.error": _OURS,
    "log.queue": _OURS,
    "enabled_events": _OURS,
    "opaque": _OURS,
    "interceptors": _OURS,
    "plugin.library.paths": "librdkafka's plugins are not supported",
    "ssl.engine.location": _NATIVE_CODE,
    "ssl.engine.id": _NATIVE_CODE,
    "ssl.providers": _NATIVE_CODE,
    "statistics.interval.ms": "the sink itself reports what it delivered",
    "produce.offset.report": _OURS,
}

# --- rules across settings: idempotence, order and timeouts ---------------------------------------

_IDEMPOTENCE = "enable.idempotence"
_IN_FLIGHT = "max.in.flight.requests.per.connection"
_DELIVERY, _LINGER, _REQUEST = "delivery.timeout.ms", "linger.ms", "request.timeout.ms"
_SOCKET = "socket.timeout.ms"

_MAX_INT = 2**31 - 1
_MOST_IN_FLIGHT = 5


def check_guarantees(settings: Mapping[str, str], effective: Mapping[str, str]) -> None:
    """Raise InvalidOption if the user's settings silently weaken ordering or idempotence.

    ``effective`` adds the defaults of all other settings.
    """
    if effective[_IDEMPOTENCE] == "true":
        _check_idempotent(settings, effective)
    elif int(effective[_IN_FLIGHT]) == 1 and int(effective["retries"]) > 0:
        # In Java this keeps the order. librdkafka builds the next request ahead and sends it
        # before the retry.
        raise InvalidOption(
            f"{PREFIX}{_IN_FLIGHT}=1 does not keep the order of records without idempotence: the "
            "client sends the next request before it retries a failed one. Keep "
            f"{PREFIX}{_IDEMPOTENCE}=true, which keeps the order with up to {_MOST_IN_FLIGHT} "
            f"requests in flight; or set {PREFIX}retries=0; or, if order does not matter, set "
            f"{PREFIX}{_IN_FLIGHT} to 2 or more"
        )


def _check_idempotent(settings: Mapping[str, str], effective: Mapping[str, str]) -> None:
    if effective["acks"] not in ("all", "-1"):
        effect = "retried records may be stored twice or out of order"
        raise _no_idempotence(settings, "acks", "=all", effect)
    if int(effective["retries"]) == 0:
        effect = "a single failed request fails the task"
        raise _no_idempotence(settings, "retries", " at 1 or more", effect)
    in_flight = effective[_IN_FLIGHT]
    if int(in_flight) > _MOST_IN_FLIGHT:
        raise InvalidOption(
            f"{PREFIX}{_IN_FLIGHT}={in_flight} is more than {_MOST_IN_FLIGHT}, the most with "
            f"which idempotence keeps the order; lower it or set {PREFIX}{_IDEMPOTENCE}=false"
        )


def _no_idempotence(
    settings: Mapping[str, str], name: str, needed: str, effect: str
) -> InvalidOption:
    if _IDEMPOTENCE in settings:
        return InvalidOption(
            f"{PREFIX}{_IDEMPOTENCE}=true needs {PREFIX}{name}{needed}, not {settings[name]}"
        )
    return InvalidOption(
        f"{PREFIX}{name}={settings[name]} switches idempotence off, so that {effect}; set "
        f"{PREFIX}{_IDEMPOTENCE}=false to accept that, or keep {PREFIX}{name}{needed}"
    )


def timeouts(
    settings: Mapping[str, str], effective: Mapping[str, str], specs: Mapping[str, SettingSpec]
) -> dict[str, str]:
    """The delivery, request and socket timeouts that follow from the user's settings.

    Raises InvalidOption if ``delivery.timeout.ms`` is set but shorter than ``linger.ms`` plus
    ``request.timeout.ms``. If it is not set, it is raised to that sum if needed. Java does both.
    """
    shortest = min(math.ceil(float(effective[_LINGER]) + int(effective[_REQUEST])), _MAX_INT)
    result: dict[str, str] = {}
    if _DELIVERY in settings:
        _check_delivery_timeout(int(settings[_DELIVERY]), shortest, effective)
    else:
        result[_DELIVERY] = str(max(int(effective[_DELIVERY]), shortest))
    if _REQUEST in settings:
        # In librdkafka this bounds only the broker's wait for its replicas; the client itself
        # waits for socket.timeout.ms. Both ranges are narrower than Java's.
        for name in (_REQUEST, _SOCKET):
            result[name] = str(specs[name].nearest(int(settings[_REQUEST])))
        if _SOCKET in settings:
            del result[_SOCKET]
    return result


def _check_delivery_timeout(delivery: int, shortest: int, effective: Mapping[str, str]) -> None:
    if delivery == 0:
        raise InvalidOption(
            f"{PREFIX}{_DELIVERY}=0 would let the client retry forever; set it to at least "
            f"{shortest}"
        )
    if delivery < shortest:
        request = delivery - math.ceil(float(effective[_LINGER]))
        lower = f", or {PREFIX}{_REQUEST} to at most {request}" if request > 0 else ""
        raise InvalidOption(
            f"{PREFIX}{_DELIVERY}={delivery} is shorter than {PREFIX}{_LINGER} + "
            f"{PREFIX}{_REQUEST}, {effective[_LINGER]} + {effective[_REQUEST]}; set it to at "
            f"least {shortest}{lower}"
        )
