"""[both] What Java's producer settings mean: librdkafka's names, and rules across settings.

Of those that are rejected, what to do instead.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from spark_kafka_sink.config.logins import INSTEAD_OF_LOGIN_CLASSES
from spark_kafka_sink.config.option import PREFIX, ContradictoryOption, Notices
from spark_kafka_sink.errors import InvalidOption

if TYPE_CHECKING:
    from spark_kafka_sink.librdkafka.setting_specs import SettingSpec

#: librdkafka's aliases -> Java's names, so that every setting has one name from here on
ALIASES: Mapping[str, str] = {
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

RENAMED: Mapping[str, str] = {
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "sasl.oauthbearer.assertion.template.file": "sasl.oauthbearer.assertion.jwt.template.file",
    **ALIASES,
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
_JVM_TLS = "it names Java classes, but this client uses OpenSSL; remove it"
_OURS = "the sink sets it itself"
_NATIVE_CODE = "an option may not name native code that the sink would run"
_PLACEMENT = (
    "keys choose partitions as in Java's default partitioner (murmur2); to choose them yourself, "
    "write a column `partition`"
)
_TRANSACTIONS = "set delivery.guarantee=exactly-once; the sink then begins and ends transactions"

_TLS = "Java's TLS; this client uses OpenSSL"
_METRICS = "Java's metrics"
_TUNING = "tunes only Java's client"

#: Settings that change nothing in what is written, where, and by whom -> whose they are.
IGNORED: Mapping[str, str] = {
    **dict.fromkeys(
        (
            "auto.include.jmx.reporter",
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
        ),
        _METRICS,
    ),
    **dict.fromkeys(
        (
            "ssl.enabled.protocols",
            "ssl.keymanager.algorithm",
            "ssl.protocol",
            "ssl.secure.random.implementation",
            "ssl.trustmanager.algorithm",
        ),
        _TLS,
    ),
    **dict.fromkeys(
        (
            "partitioner.adaptive.partitioning.enable",
            "partitioner.availability.timeout.ms",
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.ticket.renew.jitter",
            "sasl.kerberos.ticket.renew.window.factor",
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
            "sasl.oauthbearer.jwks.endpoint.refresh.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
            "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
            "sasl.oauthbearer.jwks.endpoint.url",
            "sasl.oauthbearer.scope.claim.name",
            "socket.connection.setup.timeout.max.ms",
        ),
        _TUNING,
    ),
    **dict.fromkeys(
        (
            "queue.buffering.max.kbytes",
            "queue.buffering.max.messages",
        ),
        "kafka.buffer.memory limits what waits",
    ),
    **dict.fromkeys(
        (
            "delivery.report.only.error",
            "log.queue",
            "enabled_events",
            "produce.offset.report",
            "statistics.interval.ms",
        ),
        _OURS,
    ),
}

#: Settings that would change what is written, where, or by whom -> what to do instead.
REJECTED: Mapping[str, str] = {
    "key.serializer": _BYTES,
    "value.serializer": _BYTES,
    "partitioner.class": _PLACEMENT,
    "partitioner": _PLACEMENT,
    "partitioner.ignore.keys": "to spread rows regardless of their keys, make the keys null",
    "config.providers": "pass the values themselves, for instance from dbutils.secrets",
    "interceptor.classes": "it names Java classes; transform the rows in Spark",
    "transactional.id": f"{_TRANSACTIONS}, whose names begin with transactional.id.prefix",
    "transaction.two.phase.commit.enable": _TRANSACTIONS,
    "topic.metadata.propagation.max.ms": "set kafka.max.block.ms: it bounds the wait for a "
    "topic that is still being created",
    "topic.metadata.refresh.interval.ms": "set kafka.metadata.max.age.ms",
    "security.providers": _JVM_TLS,
    "ssl.cipher.suites": "it would restrict only TLS 1.2, not TLS 1.3 as in Java, and OpenSSL "
    "has other names; set ssl.cipher.suites on the brokers, which restricts all versions",
    "ssl.provider": _JVM_TLS,
    "ssl.engine.factory.class": _JVM_TLS,
    "sasl.client.callback.handler.class": INSTEAD_OF_LOGIN_CLASSES,
    "sasl.login.callback.handler.class": INSTEAD_OF_LOGIN_CLASSES,
    "sasl.login.class": INSTEAD_OF_LOGIN_CLASSES,
    "sasl.oauthbearer.header.urlencode": "the client never encodes its id and secret so; remove it",
    "sasl.oauthbearer.jwt.retriever.class": INSTEAD_OF_LOGIN_CLASSES,
    "sasl.oauthbearer.jwt.validator.class": INSTEAD_OF_LOGIN_CLASSES,
    "enable.gapless.guarantee": "remove it; with it, a client could send nothing more after "
    "one failed record",
    "opaque": _OURS,
    "interceptors": _OURS,
    "plugin.library.paths": "librdkafka's plugins are not supported",
    "ssl.engine.location": _NATIVE_CODE,
    "ssl.engine.id": _NATIVE_CODE,
    "ssl.providers": f"{_NATIVE_CODE}; the configuration of OpenSSL may, which the environment "
    "variable OPENSSL_CONF names",
}

#: Values of those, in lower case, that mean what the sink does anyway.
SAME_AS_DEFAULT: Mapping[str, tuple[str, ...]] = {
    "config.providers": ("",),
    "interceptor.classes": ("",),
    "partitioner": ("murmur2_random",),
    "partitioner.class": (
        "",
        "org.apache.kafka.clients.producer.internals.defaultpartitioner",
        "null",
    ),
    "partitioner.ignore.keys": ("false",),
    "sasl.oauthbearer.header.urlencode": ("false",),
    "security.providers": ("",),
    "ssl.cipher.suites": ("",),
    "transaction.two.phase.commit.enable": ("false",),
}

# --- rules across settings: idempotence, order and timeouts ---------------------------------------

_IDEMPOTENCE = "enable.idempotence"
_IN_FLIGHT = "max.in.flight.requests.per.connection"
_DELIVERY, _LINGER, _REQUEST = "delivery.timeout.ms", "linger.ms", "request.timeout.ms"
_SOCKET = "socket.timeout.ms"
_SETUP, _API_VERSION = "socket.connection.setup.timeout.ms", "api.version.request.timeout.ms"

_MAX_INT = 2**31 - 1
_MOST_IN_FLIGHT = 5
_DUPLICATES = "retried records may be stored twice or out of order"


def guarantees(
    settings: Mapping[str, str], effective: Mapping[str, str], notices: Notices
) -> dict[str, str]:
    """``enable.idempotence`` as Java decides it, and a warning of what it costs to be without it.

    ``settings``: the user's. ``effective`` adds the defaults of all others. Raises InvalidOption if
    the user sets it to true, and others contradict that.
    """
    obstacles = _obstacles(effective)
    if settings.get(_IDEMPOTENCE) == "true" and obstacles:
        name, (needed, _) = next(iter(obstacles.items()))
        raise ContradictoryOption(
            f"{PREFIX}{_IDEMPOTENCE}=true needs {PREFIX}{name}{needed}, not {settings[name]}",
            option=f"{PREFIX}{_IDEMPOTENCE}",
        )
    is_off = effective[_IDEMPOTENCE] != "true"
    for name, (needed, effect) in ({} if is_off else obstacles).items():
        notices.warn(
            f"{PREFIX}{name}={effective[name]} switches idempotence off, as in Java: {effect}; "
            f"keep {PREFIX}{name}{needed}, or set {PREFIX}{_IDEMPOTENCE}=false to accept that"
        )
    if int(effective[_IN_FLIGHT]) == 1 and int(effective["retries"]) > 0 and (is_off or obstacles):
        # In Java this keeps the order. librdkafka builds the next request ahead and sends it
        # before the retry.
        notices.warn(
            f"{PREFIX}{_IN_FLIGHT}=1 does not keep the order of records without idempotence, "
            "unlike in Java: the client sends the next request before it retries a failed one; "
            f"{PREFIX}{_IDEMPOTENCE}=true keeps it with up to {_MOST_IN_FLIGHT} in flight"
        )
    return {_IDEMPOTENCE: "false"} if obstacles else {}


def without_idempotence(settings: Mapping[str, str]) -> str:
    """The setting that switches idempotence off, with its value; of a client's settings."""
    name = next(iter(_obstacles({"retries": "1", **settings})), _IDEMPOTENCE)
    return f"{PREFIX}{name}={settings[name]}"


def _obstacles(effective: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The settings that idempotence does not allow -> what it needs, and what the value means."""
    obstacles = {}
    acks = effective["acks"]
    if acks not in ("all", "-1"):
        lost = "records may be lost without an error" if acks == "0" else "records may be lost"
        obstacles["acks"] = ("=all", f"{lost} if a broker fails, and {_DUPLICATES}")
    if int(effective["retries"]) == 0:
        obstacles["retries"] = (" at 1 or more", "a single failed request fails the task")
    if int(effective[_IN_FLIGHT]) > _MOST_IN_FLIGHT:
        obstacles[_IN_FLIGHT] = (f" at {_MOST_IN_FLIGHT} or less", _DUPLICATES)
    return obstacles


def timeouts(
    settings: Mapping[str, str],
    effective: Mapping[str, str],
    specs: Mapping[str, SettingSpec],
    notices: Notices,
) -> dict[str, str]:
    """The timeouts of delivery, requests and connections that follow from the user's settings.

    Raises InvalidOption if ``delivery.timeout.ms`` is set but shorter than ``linger.ms`` plus
    ``request.timeout.ms``. If it is not set, it is raised to that sum if needed. Java does both;
    up to 3.9, its default of ``linger.ms`` is 0.
    """
    request = int(effective[_REQUEST])
    result: dict[str, str] = {}
    if _DELIVERY in settings:
        linger = float(settings.get(_LINGER, 0))
        _check_delivery_timeout(int(settings[_DELIVERY]), linger, request)
    else:
        shortest = min(math.ceil(float(effective[_LINGER]) + request), _MAX_INT)
        result[_DELIVERY] = str(max(int(effective[_DELIVERY]), shortest))
    if _REQUEST in settings:
        # In librdkafka this bounds only the broker's wait for its replicas; the client itself
        # waits for socket.timeout.ms. Both ranges are narrower than Java's.
        wanted = int(settings[_REQUEST])
        for name in (_REQUEST, _SOCKET):
            result[name] = str(specs[name].nearest(wanted))
        if _SOCKET in settings:
            del result[_SOCKET]
        elif int(result[_SOCKET]) < wanted:
            notices.warn(
                f"{PREFIX}{_REQUEST}={wanted} is more than this client waits for an answer, "
                f"{result[_SOCKET]}"
            )
    if _SETUP in settings and _API_VERSION not in settings:
        # The first request of a connection has a time-out of its own here, which Java's has not.
        longest = max(int(settings[_SETUP]), int(effective[_API_VERSION]))
        result[_API_VERSION] = str(specs[_API_VERSION].nearest(longest))
    return result


def _check_delivery_timeout(delivery: int, linger: float, request: int) -> None:
    option = PREFIX + _DELIVERY
    shortest = min(math.ceil(linger + request), _MAX_INT)
    if delivery == 0:
        raise InvalidOption(
            f"{option}=0 would let the client retry forever; set it to at least {shortest}",
            option=option,
        )
    if delivery < shortest:
        most = delivery - math.ceil(linger)
        lower = f", or {PREFIX}{_REQUEST} to at most {most}" if most > 0 else ""
        raise ContradictoryOption(
            f"{option}={delivery} is shorter than {PREFIX}{_LINGER} + {PREFIX}{_REQUEST}, "
            f"{linger:g} + {request}; set it to at least {shortest}{lower}",
            option=option,
        )
