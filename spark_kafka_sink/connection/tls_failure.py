"""Why TLS fails: the Kafka client's error can mean a wrong name or an expired certificate."""

from __future__ import annotations

import re
import ssl

from spark_kafka_sink.advice import Advice
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline

_SECONDS = 3.0
_SERVER = re.compile(r"\w+://([^/]+)/")  # the beginning of the client's errors about a broker
_ALERT = re.compile(r"alert (bad certificate|certificate \w+|unknown ca)")


def concerns_clients_certificate(text: str) -> bool:
    """Whether the client's ``text`` says that a broker requires or rejects its certificate.

    With TLS 1.3 it arrives after the handshake, and so with the code of a lost connection.
    """
    return _ALERT.search(text) is not None


def explanation(text: str, settings: ClientSettings) -> str:
    """What is wrong, and what to do, from the client's ``text`` and a handshake with the broker."""
    problem = f"no TLS connection to {settings['bootstrap.servers']}: {text}"
    if concerns_clients_certificate(text):
        return f"{problem}. {Advice.CLIENT_CERTIFICATE}"
    return _certificate_problem(text, settings) or f"{problem}. {Advice.TLS_FAILED.remedy}"


def _certificate_problem(text: str, settings: ClientSettings) -> str:
    """What a handshake shows about the broker's certificate, or nothing."""
    # Imported here: only a failure needs it.
    from spark_kafka_sink.connection import sockets
    from spark_kafka_sink.threads import call_all

    address = _SERVER.match(text)
    if address is None:
        return ""
    try:
        context = sockets.tls_context(settings)
        broker = sockets.server(address[1])
    except (OSError, ValueError):
        return ""

    def handshake(server: sockets.Server) -> str:
        try:
            sockets.connect_tls(server, context, Deadline(_SECONDS)).close()
        except ssl.SSLCertVerificationError as error:
            problem, advice = sockets.certificate_rejected(error, settings.trust_option)
            return f"no TLS connection to {server}: {problem}. {advice}"
        return ""

    (call,) = call_all(handshake, [broker], Deadline(_SECONDS))
    return call.value or ""
