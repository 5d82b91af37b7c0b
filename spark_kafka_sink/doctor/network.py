"""Servers as the network shows them: names, TCP, TLS, and the versions of Kafka's protocol."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.doctor.result import Finding, failed, passed, warned

_DEFAULT_PORT = 9092
_SECONDS_PER_DAY = 86_400
_EXPIRES_SOON_DAYS = 30
_PROTOCOL_ADVICE = (
    "Check that kafka.security.protocol is that of this listener (PLAINTEXT, SSL, SASL_PLAINTEXT "
    "or SASL_SSL), and that the port is Kafka's"
)
#: how the message of ``tls`` begins then
CERTIFICATE_REFUSED = "the broker's certificate is refused"
_KEY_ADVICE = "If the brokers require certificates of clients, set kafka.ssl.keystore.*. "

# OpenSSL's verification codes (x509_vfy.h)
_EXPIRED, _NOT_YET_VALID = 10, 9
_OTHER_HOST = (62, 64)

# Kafka's protocol
PRODUCE, API_VERSIONS, DESCRIBE_CLUSTER = 0, 18, 60
_OLDEST_PRODUCE = 3  # the first with headers and idempotence: Kafka 0.11
_TLS_ALERT = 0x15
_LARGEST_ANSWER = 1024 * 1024

ApiVersions = Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Server:
    """A host and its port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def servers(bootstrap_servers: str) -> list[Server]:
    """The servers of ``host:port,...``; raises ValueError with a sentence."""
    found = [_server(each.strip()) for each in bootstrap_servers.split(",") if each.strip()]
    return list(dict.fromkeys(found))


def _server(text: str) -> Server:
    address = text.rpartition("://")[2]
    host, colon, port = address.rpartition(":")
    if not colon or address.endswith("]"):
        host, port = address, str(_DEFAULT_PORT)
    if not port.isdigit() or not 0 < int(port) < 2**16:
        raise ValueError(f"{text!r} is not of the form host:port")
    return Server(host.strip("[]"), int(port))


def uses_tls(settings: Mapping[str, str]) -> bool:
    return settings.get("security.protocol", "plaintext") in ("ssl", "sasl_ssl")


# --- TCP -----------------------------------------------------------------------------------------


def tcp(server: Server, deadline: Deadline) -> Finding:
    """Whether the name resolves and the port accepts connections."""
    try:
        with _connected(server, deadline) as connection:
            return passed(f"accepts connections ({connection.getpeername()[0]})", str(server))
    except socket.gaierror as error:
        return failed(
            f"the name does not resolve: {error.strerror}",
            "Correct the host name, or make it known to this machine (DNS, /etc/hosts)",
            str(server),
        )
    except OSError as error:
        return failed(
            f"accepts no connection: {_reason(error)}",
            "Check host and port, that the broker runs, and that no firewall is in between",
            str(server),
        )


def _connected(server: Server, deadline: Deadline) -> socket.socket:
    return socket.create_connection((server.host, server.port), timeout=_seconds(deadline))


def _seconds(deadline: Deadline) -> float:
    return max(0.001, deadline.remaining())  # 0 would mean: do not block


def _reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error)


# --- TLS -----------------------------------------------------------------------------------------


def tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """What librdkafka's settings mean to Python's TLS. Raises OSError if a file is unusable.

    It presents the client's own certificate unless ``has_hidden_certificate``.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.get("enable.ssl.certificate.verification") == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    location, text = settings.get("ssl.ca.location", "probe"), settings.get("ssl.ca.pem")
    if text is not None:
        context.load_verify_locations(cadata=str(text))
    elif location == "probe":
        context.load_default_certs()
    else:
        kind = "capath" if Path(location).is_dir() else "cafile"
        context.load_verify_locations(**{kind: location})
    if "ssl.certificate.location" in settings:
        context.load_cert_chain(
            settings["ssl.certificate.location"],
            settings.get("ssl.key.location"),
            # Without a function, Python would ask at the terminal.
            lambda: settings.get("ssl.key.password", ""),
        )
    return context


def has_hidden_certificate(settings: Mapping[str, str]) -> bool:
    """Whether the client has a certificate that Python cannot read without writing it to disk."""
    return any(each in settings for each in ("ssl.keystore.location", "ssl.key.pem"))


def tls(server: Server, context: ssl.SSLContext, deadline: Deadline) -> Finding:
    """Whether the handshake succeeds, who signed the certificate, and when it expires."""
    try:
        with _wrapped(server, context, deadline) as connection:
            return _about_certificate(server, connection)
    except ssl.SSLCertVerificationError as error:
        return failed(
            f"{CERTIFICATE_REFUSED}: {error.verify_message.rstrip('.')}",
            _certificate_advice(error, server),
            str(server),
        )
    except OSError as error:
        return failed(f"no TLS handshake: {_reason(error)}", _PROTOCOL_ADVICE, str(server))


def _wrapped(server: Server, context: ssl.SSLContext, deadline: Deadline) -> ssl.SSLSocket:
    connection = _connected(server, deadline)
    try:
        return context.wrap_socket(connection, server_hostname=server.host)
    except BaseException:
        connection.close()
        raise


def _about_certificate(server: Server, connection: ssl.SSLSocket) -> Finding:
    certificate = connection.getpeercert()
    if not certificate:
        return warned(
            f"{connection.version()}, but the broker's certificate is not checked",
            "Leave out kafka.enable.ssl.certificate.verification=false: anybody could pose as the "
            "broker and read the password",
            str(server),
        )
    until = ssl.cert_time_to_seconds(str(certificate["notAfter"]))
    days = int((until - time.time()) // _SECONDS_PER_DAY)
    message = f"{connection.version()}, certificate trusted, expires in {days} days"
    if days < _EXPIRES_SOON_DAYS:
        return warned(message, "Renew the broker's certificate in time", str(server))
    return passed(message, str(server))


def _certificate_advice(error: ssl.SSLCertVerificationError, server: Server) -> str:
    if error.verify_code == _EXPIRED:
        return "Renew the broker's certificate, or the expired one of its chain"
    if error.verify_code == _NOT_YET_VALID:
        return "Check the clocks of this machine and of the one that issued the certificate"
    if error.verify_code in _OTHER_HOST:
        return (
            f"Connect under a name that the certificate contains, or issue one for {server.host} "
            "(subjectAltName)"
        )
    return (
        "Point kafka.ssl.truststore.location (with kafka.ssl.truststore.type=PEM) to the "
        "certificate of the authority that signed the broker's"
    )


# --- Kafka's protocol ----------------------------------------------------------------------------


def api_versions(
    server: Server, context: ssl.SSLContext | None, deadline: Deadline
) -> tuple[Finding, ApiVersions]:
    """Whether this is a Kafka broker, and which versions of which requests it takes."""
    try:
        connect = _wrapped(server, context, deadline) if context else _connected(server, deadline)
        with connect as connection:
            versions = _ask_versions(connection)
    except (OSError, ValueError) as error:
        reason = _reason(error) if isinstance(error, OSError) else str(error)
        # TLS 1.3 tells the client only after the handshake that its certificate is missing.
        advice = (_KEY_ADVICE if context else "") + _PROTOCOL_ADVICE
        return failed(f"no answer of a Kafka broker: {reason}", advice, str(server)), {}
    oldest, newest = versions.get(PRODUCE, (0, 0))
    if newest < _OLDEST_PRODUCE:
        return failed(
            f"takes Produce only up to version {newest}: older than Kafka 0.11",
            "Upgrade the brokers: they have neither headers nor idempotence",
            str(server),
        ), versions
    age = "Kafka 2.8 or later" if DESCRIBE_CLUSTER in versions else "Kafka before 2.8"
    return passed(f"{age}; Produce {oldest} to {newest}", str(server)), versions


def _ask_versions(connection: socket.socket) -> ApiVersions:
    """Send ApiVersions version 0, which brokers take before a login. Raises OSError, ValueError."""
    client = b"spark-kafka-sink-doctor"
    request = struct.pack(">hhih", API_VERSIONS, 0, 0, len(client)) + client
    connection.sendall(struct.pack(">i", len(request)) + request)
    with connection.makefile("rb") as answers:
        head = answers.read(4)
        if len(head) < 4:
            raise ValueError("it closed the connection")
        if head[0] == _TLS_ALERT:
            raise ValueError("it speaks TLS")
        (size,) = struct.unpack(">i", head)
        if not 10 <= size <= _LARGEST_ANSWER:
            raise ValueError("it speaks another protocol")
        answer = answers.read(size)
    if len(answer) < size:
        raise ValueError("it closed the connection")
    _, error, count = struct.unpack_from(">ihi", answer)
    if error or size < 10 + 6 * count:
        raise ValueError(f"error {error}")
    entries = struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])
    return {key: (oldest, newest) for key, oldest, newest in entries}
