"""Java's producer settings under librdkafka's names, and those that are refused with advice."""

from __future__ import annotations

from collections.abc import Mapping

from spark_kafka_sink.config.java_security import INSTEAD_OF_KERBEROS, INSTEAD_OF_LOGIN_CLASSES

RENAMED: Mapping[str, str] = {
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

#: What Java allows, where librdkafka allows something else. ``translate`` makes it fit.
ALLOWED: Mapping[str, str] = {
    "acks": "all, -1, 0, 1",
    "request.timeout.ms": "0 .. 2147483647",
}

# Java's -1 and librdkafka's 0 both mean "as the system likes it" for these.
MINUS_ONE_IS_ZERO = frozenset(
    {"receive.buffer.bytes", "send.buffer.bytes", "connections.max.idle.ms"}
)

_BYTES = "rows carry bytes: make them in Spark, for instance with to_json, to_avro or cast"
_JVM_TLS = "it chooses a part of Java's TLS; the client here uses OpenSSL: leave it out"
_OURS = "the sink sets it itself"
_NO_SUCH_CHOICE = "the client has no such choice: leave it out"

REFUSED: Mapping[str, str] = {
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
    "topic.metadata.propagation.max.ms": "set kafka.max.block.ms, which bounds the wait for the "
    "metadata of a topic that is still being created",
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
