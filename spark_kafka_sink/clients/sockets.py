"""[driver] TCP and TLS connections to servers without the Kafka client, to explain its errors."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from spark_kafka_sink.advice import (
    CERTIFICATE_ALERT,
    Advice,
    advice_on_text,
    concerns_openssl,
    openssl_variables,
)
from spark_kafka_sink.clients.local_files import add_local_files, ca_certificates
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.threads import call_all

_CERTIFICATES = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")
_ABOUT_TRUST = (Advice.CERTIFICATE_OF_UNKNOWN_AUTHORITY, Advice.CERTIFICATE_OF_ROOT_IS_MISSING)

_HANDSHAKE_SECONDS = 3.0
_BROKER = re.compile(r"\w+://([^/]+)/")  # the beginning of the client's errors about a broker


@dataclass(frozen=True)
class Server:
    """A host and its port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def servers(bootstrap_servers: str) -> list[Server]:
    """The servers of ``host:port,...``, as the option table reads it; or raises ValueError."""
    return [server(text) for text in bootstrap_servers.split(",")]


def server(text: str) -> Server:
    """The server of ``host:port``; raises ValueError."""
    host, _, port = text.rpartition(":")
    return Server(host.strip("[]"), int(port))


def uses_tls(settings: Mapping[str, str]) -> bool:
    return settings.get("security.protocol", "plaintext") in ("ssl", "sasl_ssl")


def connect(server: Server, deadline: Deadline) -> socket.socket:
    return socket.create_connection((server.host, server.port), timeout=_seconds(deadline))


def _seconds(deadline: Deadline) -> float:
    return max(0.001, deadline.remaining())  # 0 would mean: do not block


def reason(error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    return error.strerror or str(error)


def tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """librdkafka's settings as Python's TLS. Raises OSError if a file is unusable.

    It presents the client's own certificate only if that and its key are PEM files
    (``presents_certificate``).
    """
    settings = add_local_files(settings)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if settings.get("enable.ssl.certificate.verification") == "false":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if settings.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    location, text = settings.get("ssl.ca.location", "probe"), settings.get("ssl.ca.pem")
    if text is not None:
        context.load_verify_locations(cadata=text.encode("ascii", "ignore").decode())
    elif location == "probe":  # nothing that ``add_local_files`` knows
        context.load_default_certs()
    else:
        kind = "capath" if Path(location).is_dir() else "cafile"
        context.load_verify_locations(**{kind: location})
    if _are_pem_files(settings):
        context.load_cert_chain(
            settings["ssl.certificate.location"],
            settings.get("ssl.key.location"),
            # Without a function, Python would ask at the terminal.
            lambda: settings.get("ssl.key.password", ""),
        )
    return context


def presents_certificate(settings: Mapping[str, str]) -> bool:
    """Whether the context of ``tls_context`` presents the client's certificate, if there is one."""
    return _are_pem_files(add_local_files(settings)) or settings.keys().isdisjoint(_CERTIFICATES)


def _are_pem_files(settings: Mapping[str, str]) -> bool:
    return "ssl.certificate.location" in settings and "ssl.key.pem" not in settings


def connect_tls(server: Server, context: ssl.SSLContext, deadline: Deadline) -> ssl.SSLSocket:
    connection = connect(server, deadline)
    try:
        return context.wrap_socket(connection, server_hostname=server.host)
    except BaseException:
        connection.close()
        raise


def certificate_rejected(
    error: ssl.SSLCertVerificationError, trust_option: str = ""
) -> tuple[str, str]:
    """Why the server's certificate is rejected, and what to do.

    ``trust_option``: of ``ClientSettings``.
    """
    problem = f"the broker's certificate is rejected: {error.verify_message.rstrip('.')}"
    advice = advice_on_text(problem, Advice.CERTIFICATE_OF_UNKNOWN_AUTHORITY)
    if advice in _ABOUT_TRUST:
        own_file = ca_certificates() or "which has no file of them"
        trusted = trust_option or f"this machine, {own_file}"
        problem += f" (trusted are the authorities of {trusted})"
    return problem, advice.remedy


def concerns_clients_certificate(text: str) -> bool:
    """Whether the client's ``text`` says that a broker requires or rejects its certificate.

    With TLS 1.3 it arrives after the handshake, and so with the code of a lost connection.
    """
    return CERTIFICATE_ALERT.search(text) is not None


def tls_explanation(text: str, settings: ClientSettings) -> tuple[str, str]:
    """What is wrong, and what to do, from the client's ``text`` and a handshake with the broker."""
    problem = f"no TLS connection to {settings['bootstrap.servers']}: {text}"
    problem += openssl_variables(text)
    if concerns_openssl(text):
        return problem, Advice.OPENSSL_CONFIGURATION.remedy
    if concerns_clients_certificate(text):
        return problem, str(Advice.CLIENT_CERTIFICATE)
    return _certificate_problem(text, settings) or (problem, Advice.TLS_FAILED.remedy)


def _certificate_problem(text: str, settings: ClientSettings) -> tuple[str, str] | None:
    """What a handshake shows about the broker's certificate, if anything."""
    address = _BROKER.match(text)
    if address is None:
        return None
    try:
        context = tls_context(settings)
        broker = server(address[1])
    except (OSError, ValueError):
        return None

    def handshake(server: Server) -> tuple[str, str] | None:
        try:
            connect_tls(server, context, Deadline(_HANDSHAKE_SECONDS)).close()
        except ssl.SSLCertVerificationError as error:
            problem, remedy = certificate_rejected(error, settings.trust_option)
            return f"no TLS connection to {server}: {problem}", remedy
        return None

    (call,) = call_all(handshake, [broker], Deadline(_HANDSHAKE_SECONDS))
    return call.value
