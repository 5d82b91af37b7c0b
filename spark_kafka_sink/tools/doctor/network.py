"""Servers on the network: names, TCP, TLS, and the versions of Kafka's protocol."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Mapping

from spark_kafka_sink.advice import Advice
from spark_kafka_sink.connection.sockets import (
    Server,
    certificate_refused,
    connect,
    connect_tls,
    reason,
)
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.tools.doctor.result import Finding, failed, passed, warned

_SECONDS_PER_DAY = 86_400
_EXPIRES_SOON_DAYS = 30

# Kafka's protocol
PRODUCE, API_VERSIONS, INIT_PRODUCER_ID, DESCRIBE_CLUSTER = 0, 18, 22, 60
_OLDEST_PRODUCE = 3  # the first with headers and idempotence: Kafka 0.11
ZSTD_PRODUCE = 7  # Kafka 2.1
REASON_PRODUCE = 8  # Kafka 2.4, KIP-467: the first that says which records are rejected, and why
_TLS_ALERT = 0x15
_LARGEST_ANSWER = 1024 * 1024

ApiVersions = Mapping[int, tuple[int, int]]

# --- TCP -----------------------------------------------------------------------------------------


def tcp(server: Server, deadline: Deadline) -> Finding:
    """Whether the name resolves and the port accepts connections."""
    try:
        with connect(server, deadline) as connection:
            return passed(f"accepts connections ({connection.getpeername()[0]})", str(server))
    except socket.gaierror as error:
        return failed(
            f"the name does not resolve: {error.strerror}",
            "Correct the host name, or make it resolvable from this machine (DNS, /etc/hosts)",
            str(server),
        )
    except OSError as error:
        return failed(
            f"does not accept connections: {reason(error)}",
            "Check host and port, that the broker is running, and that no firewall blocks it",
            str(server),
        )


# --- TLS -----------------------------------------------------------------------------------------


def tls(
    server: Server, context: ssl.SSLContext, deadline: Deadline, trust_option: str = ""
) -> Finding:
    """Whether the handshake succeeds, who signed the certificate, and when it expires."""
    try:
        with connect_tls(server, context, deadline) as connection:
            return _about_certificate(server, connection)
    except ssl.SSLCertVerificationError as error:
        return failed(*certificate_refused(error, trust_option), str(server))
    except OSError as error:
        what = f"the TLS handshake failed: {reason(error)}"
        return failed(what, Advice.TLS_FAILED.remedy, str(server))


def _about_certificate(server: Server, connection: ssl.SSLSocket) -> Finding:
    certificate = connection.getpeercert()
    if not certificate:
        return warned(
            f"{connection.version()}, but the broker's certificate is not checked",
            "Leave out kafka.enable.ssl.certificate.verification=false: anyone could impersonate "
            "the broker and read the password",
            str(server),
        )
    until = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    days = int((until - time.time()) // _SECONDS_PER_DAY)
    message = f"{connection.version()}, certificate trusted, expires in {days} days"
    if days < _EXPIRES_SOON_DAYS:
        return warned(message, "Renew the broker's certificate soon", str(server))
    return passed(message, str(server))


# --- Kafka's protocol ----------------------------------------------------------------------------


def api_versions(
    server: Server, context: ssl.SSLContext | None, deadline: Deadline
) -> tuple[Finding, ApiVersions]:
    """Whether this is a Kafka broker, and which versions of which requests it supports."""
    try:
        with _opened(server, context, deadline) as connection:
            versions = _ask_versions(connection)
    except (OSError, ValueError) as error:
        problem = reason(error) if isinstance(error, OSError) else str(error)
        # With TLS 1.3, a client learns only after the handshake that its certificate is missing.
        of_client = f"If brokers require it: {Advice.CLIENT_CERTIFICATE.remedy}. "
        return failed(
            f"no answer from a Kafka broker: {problem}",
            f"{of_client if context else ''}{Advice.TLS_FAILED.remedy}",
            str(server),
        ), {}
    oldest, newest = versions.get(PRODUCE, (0, 0))
    if newest < _OLDEST_PRODUCE:
        return failed(
            f"supports Produce only up to version {newest}: older than Kafka 0.11",
            "Upgrade the brokers: they support neither headers nor idempotence",
            str(server),
        ), versions
    age = "Kafka 2.8 or later" if DESCRIBE_CLUSTER in versions else "Kafka before 2.8"
    return passed(f"{age}; Produce {oldest} to {newest}", str(server)), versions


def _opened(server: Server, context: ssl.SSLContext | None, deadline: Deadline) -> socket.socket:
    if context is None:
        return connect(server, deadline)
    return connect_tls(server, context, deadline)


def _ask_versions(connection: socket.socket) -> ApiVersions:
    """Send ApiVersions version 0, which needs no login. Raises OSError, ValueError."""
    client = b"spark-kafka-sink-doctor"
    request = struct.pack(">hhih", API_VERSIONS, 0, 0, len(client)) + client
    connection.sendall(struct.pack(">i", len(request)) + request)
    with connection.makefile("rb") as answers:
        head = answers.read(4)
        if len(head) < 4:
            raise ValueError("it closed the connection")
        if head[0] == _TLS_ALERT:
            raise ValueError("it expects TLS")
        (size,) = struct.unpack(">i", head)
        if not 10 <= size <= _LARGEST_ANSWER:
            raise ValueError("it uses another protocol")
        answer = answers.read(size)
    if len(answer) < size:
        raise ValueError("it closed the connection")
    _, error, count = struct.unpack_from(">ihi", answer)
    if error or size < 10 + 6 * count:
        raise ValueError(f"error {error}")
    entries = struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])
    return {key: (oldest, newest) for key, oldest, newest in entries}
