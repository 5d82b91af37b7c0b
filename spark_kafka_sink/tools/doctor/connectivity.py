"""Checks of options, report.path, addresses, TLS, authentication, and the brokers' versions."""

from __future__ import annotations

import dataclasses
import re
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from functools import partial

from spark_kafka_sink.advice import Advice, concerns_openssl, settings_rejected
from spark_kafka_sink.clients import sockets
from spark_kafka_sink.clients.kerberos import current_ticket
from spark_kafka_sink.clients.sockets import Server
from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.kerberos import is_kerberos
from spark_kafka_sink.config.options import review
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver.exactly_once_check import unsupported
from spark_kafka_sink.driver.inquirer import Inquirer
from spark_kafka_sink.driver.options import complete_options
from spark_kafka_sink.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    InvalidOption,
    KafkaSinkError,
    LibraryUnavailable,
)
from spark_kafka_sink.librdkafka import build
from spark_kafka_sink.report.storage import local_path, try_writing
from spark_kafka_sink.threads import call_all
from spark_kafka_sink.tools.doctor.brokers import Brokers
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.result import (
    Finding,
    Outcome,
    counted,
    failed,
    first_line,
    not_applicable,
    passed,
    warned,
)
from spark_kafka_sink.tools.doctor.topic import DESCRIBE_CLUSTER, PRODUCE
from spark_kafka_sink.tools.doctor.waits import unfitting

_CONNECTION = re.compile("bootstrap|oauth|sasl|security|ssl", re.IGNORECASE)
_NOT_MEANT = "Change or remove the option if that is not what you meant"
_UNFITTING = "Lower the first time, or raise the second"
_GRACE_SECONDS = 0.1
_STATISTICS_MS = 100
_SECONDS_PER_DAY = 86_400
_EXPIRES_SOON_DAYS = 30
_OTHERS_WORK = "Clients can start from the other servers, but only while one of them is up. "

# versions of the request Produce
_OLDEST_PRODUCE = 3  # Kafka 0.11, the first with headers and idempotence
_ZSTD_PRODUCE = 7  # Kafka 2.1


def options(context: CheckContext) -> list[Finding]:
    """The options are valid, as the sink reads them. Later checks use only the valid ones."""
    problems: list[KafkaSinkError] = []
    parsed = None
    try:
        reviewed = review(context.options)
        problems += reviewed.problems
        parsed = reviewed.options and complete_options(reviewed.options)
    except (InvalidOption, LibraryUnavailable) as error:
        problems.append(error)
    # Without one of these, the brokers would seem to be wrong.
    connects = not any(
        _CONNECTION.search(getattr(problem, "option", None) or str(problem)) for problem in problems
    )
    context.parsed = parsed if connects else None
    findings = [
        dataclasses.replace(
            failed(str(problem), _advice_on(problem)), blocks=context.parsed is None
        )
        for problem in problems
    ]
    if parsed is not None:
        findings += [warned(sentence, _NOT_MEANT) for sentence in parsed.warnings]
        findings += [warned(sentence, _UNFITTING) for sentence in unfitting(parsed)]
    count = sum(value is not None for value in context.options.values())
    return findings or [passed(f"{counted(count, 'option')}, all valid")]


def _advice_on(problem: KafkaSinkError) -> str:
    if isinstance(problem, LibraryUnavailable):
        return "Do what the message says; no option has caused this"
    return "Correct the option that the message names; docs/options.md lists all options"


def report_path(context: CheckContext) -> list[Finding]:
    """A file can be written to ``report.path`` and deleted. If not, jobs still run."""
    folder = context.sink.values[table.REPORT_PATH]
    if folder is None:
        return [not_applicable("no option report.path")]
    (call,) = call_all(try_writing, [folder], context.deadline)
    if call.error is not None:
        advice = "Correct report.path, its permissions, or this process's credentials"
        if isinstance(call.error, LibraryUnavailable):
            advice = "Do what the message says"
        elif isinstance(call.error, TimeoutError):
            advice = "Raise --timeout, or correct report.path"
        message = f"reports cannot be written there: {first_line(call.error)}"
        return [warned(message, advice, folder)]
    place = local_path(folder)
    if place is not None and not place.is_dir():
        return [passed("it does not exist yet, and can be created", folder)]
    message = "a file was written there and deleted"
    if place is not None and not call.value:
        message += "; files there cannot be appended to, so each report becomes a new file"
    return [passed(message, folder)]


def bootstrap_servers(context: CheckContext) -> list[Finding]:
    """The names of the bootstrap servers resolve, and their ports accept connections."""
    servers = sockets.servers(context.settings["bootstrap.servers"])
    findings = _probe_all(servers, partial(probe_tcp, deadline=context.deadline), context)
    return _keep_usable(context, servers, findings)


def tls(context: CheckContext) -> list[Finding]:
    """The TLS handshake succeeds, and the certificate does not expire soon."""
    settings = context.settings
    if not sockets.uses_tls(settings):
        protocol = settings.get("security.protocol", "plaintext")
        return [not_applicable(f"kafka.security.protocol={protocol} does not use TLS")]
    try:
        tls_context = context.tls_context = sockets.tls_context(settings)
    except OSError as error:
        if concerns_openssl(str(error)):
            return [failed(*settings_rejected(str(error)))]
        return [
            failed(
                f"the configured certificate or key cannot be used: {error}",
                "Check the files of kafka.ssl.truststore.location and kafka.ssl.keystore.location",
            )
        ]
    findings = _probe_all(context.servers, _tls_probe(context, tls_context), context)
    return _keep_usable(context, context.servers, findings)


def librdkafka(context: CheckContext) -> list[Finding]:  # noqa: ARG001 - as all checks
    """Which librdkafka is in use, and what it was built with; the options need no more."""
    extras = ", ".join(sorted(build.features()))
    return [passed(f"{build.version()} with {extras}", build.path())]


def kerberos_ticket(context: CheckContext) -> list[Finding]:
    """Kerberos gives a ticket: kinit is there, and keytab, user, realm, clock and KDC are right."""
    if not is_kerberos(context.settings):
        return [not_applicable("not a login with Kerberos")]
    try:
        ticket = current_ticket(context.settings)
    except (AuthenticationFailed, InvalidOption) as error:
        advice = error.args[1] if len(error.args) > 1 else _advice_on(error)
        return [failed(error.args[0], advice)]
    until = f"renewed every {ticket.seconds:.0f} s" if ticket.command else "not renewed by the sink"
    return [passed(f"{ticket.principal}, {until}")]


def login(context: CheckContext) -> list[Finding]:
    """A client with the sink's settings can authenticate."""
    settings = context.settings
    working = {**settings, "bootstrap.servers": ",".join(map(str, context.servers))}
    try:
        inquirer = Inquirer(
            dataclasses.replace(settings, pairs=tuple(sorted(working.items()))),
            reports_versions=True,
            statistics_ms=_STATISTICS_MS,
        )
        context.brokers = Brokers(inquirer)
        addresses = context.brokers.authenticate(context.deadline)
    except (InvalidOption, LibraryUnavailable) as error:
        return [failed(str(error), _advice_on(error))]
    except (AuthenticationFailed, BrokerUnavailable) as error:
        return [failed(*error.args)]
    context.advertised = {node: sockets.server(text) for node, text in addresses.items()}
    protocol = settings.get("security.protocol", "plaintext")
    if protocol.startswith("sasl"):
        return [passed(f"{settings['sasl.mechanism']} as {context.user}")]
    return [passed(f"kafka.security.protocol={protocol}: without a user name")]


def broker_versions(context: CheckContext) -> list[Finding]:
    """The brokers have the requests that the sink needs, including those of exactly-once."""
    versions = context.client.newest_versions
    if not versions:
        return [not_applicable("the brokers' version is unknown")]
    produce = versions.get(PRODUCE, 0)
    if produce < _OLDEST_PRODUCE:
        return [
            failed(
                f"Produce only up to version {produce}: older than Kafka 0.11",
                "Upgrade the brokers: they support neither headers nor idempotence",
            )
        ]
    if context.sink.exactly_once is not None and (problem := unsupported(versions)):
        return [failed(problem, Advice.EXACTLY_ONCE_UNSUPPORTED.remedy)]
    if context.settings.get("compression.type") == "zstd" and produce < _ZSTD_PRODUCE:
        return [
            warned(
                "kafka.compression.type=zstd: to brokers before Kafka 2.1, the client sends "
                "records uncompressed",
                "Set kafka.compression.type=lz4, or upgrade the brokers",
            )
        ]
    age = "Kafka 2.8 or later" if DESCRIBE_CLUSTER in versions else "Kafka before 2.8"
    return [passed(f"{age}; Produce up to version {produce}")]


def advertised_listeners(context: CheckContext) -> list[Finding]:
    """Clients can connect to the address that each broker advertises."""
    tls_context, deadline = context.tls_context, context.deadline
    tls_probe = None if tls_context is None else _tls_probe(context, tls_context)

    def probe(server: Server) -> Finding:
        finding = probe_tcp(server, deadline)
        if finding.outcome is Outcome.PASSED and tls_probe is not None:
            finding = tls_probe(server)
        return finding

    addresses = list(context.advertised.values())
    ids = list(context.advertised)
    findings = []
    for node_id, finding in zip(ids, _probe_all(addresses, probe, context), strict=True):
        message = f"broker {node_id}: {finding.message}"
        advice = finding.advice
        if finding.outcome is Outcome.FAILED:
            advice = (
                f"The brokers advertise this address. Correct advertised.listeners of "
                f"broker {node_id}, or make the address reachable from here. {advice}"
            )
        findings.append(dataclasses.replace(finding, message=message, advice=advice))
    return findings


def cluster(context: CheckContext) -> list[Finding]:
    """Brokers answer at an advertised address, and have a controller."""
    description = context.cluster = context.client.cluster(context.deadline)
    if description.controller_id is None:
        return [failed("no controller", "Check the brokers' logs: they cannot elect one")]
    size = counted(len(description.broker_ids), "broker")
    return [passed(f"{description.cluster_id}: {size}, controller {description.controller_id}")]


# --- servers --------------------------------------------------------------------------------------


def probe_tcp(server: Server, deadline: Deadline) -> Finding:
    """Whether the name resolves and the port accepts connections."""
    try:
        with sockets.connect(server, deadline) as connection:
            return passed(f"accepts connections ({connection.getpeername()[0]})", str(server))
    except socket.gaierror as error:
        return failed(
            f"the name does not resolve: {error.strerror}",
            "Correct the host name, or make it resolvable from this machine (DNS, /etc/hosts)",
            str(server),
        )
    except OSError as error:
        return failed(
            f"does not accept connections: {sockets.reason(error)}",
            "Check host and port, that the broker is running, and that no firewall blocks it",
            str(server),
        )


def _tls_probe(context: CheckContext, tls_context: ssl.SSLContext) -> Callable[[Server], Finding]:
    return partial(
        probe_tls,
        context=tls_context,
        deadline=context.deadline,
        trust_option=context.settings.trust_option,
        presents_certificate=sockets.presents_certificate(context.settings),
    )


def probe_tls(
    server: Server,
    context: ssl.SSLContext,
    deadline: Deadline,
    trust_option: str = "",
    presents_certificate: bool = True,
) -> Finding:
    """Whether the handshake succeeds, who signed the certificate, and when it expires.

    ``presents_certificate``: see ``sockets``. If False, a broker that requires a certificate ends
    the handshake (TLS 1.2), though the Kafka client would present one.
    """
    try:
        with sockets.connect_tls(server, context, deadline) as connection:
            return _check_certificate(server, connection)
    except ssl.SSLCertVerificationError as error:
        return failed(*sockets.certificate_rejected(error, trust_option), str(server))
    except OSError as error:
        what = f"the TLS handshake failed: {sockets.reason(error)}"
        if not presents_certificate:
            what += "; this check cannot present the client's certificate"
            return warned(what, "See the check login, which presents it", str(server))
        return failed(what, Advice.TLS_FAILED.remedy, str(server))


def _check_certificate(server: Server, connection: ssl.SSLSocket) -> Finding:
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


def _probe_all(
    servers: Sequence[Server], probe: Callable[[Server], Finding], context: CheckContext
) -> list[Finding]:
    findings = []
    # A little longer than the deadline of a call, so that it can report its own timeout.
    deadline = Deadline(context.deadline.remaining() + _GRACE_SECONDS)
    calls = call_all(probe, servers, deadline)
    for server, call in zip(servers, calls, strict=True):
        finding = call.value or failed(
            str(call.error), "Check this machine's DNS and network", str(server)
        )
        findings.append(dataclasses.replace(finding, seconds=call.seconds))
    return findings


def _keep_usable(
    context: CheckContext, servers: Sequence[Server], findings: list[Finding]
) -> list[Finding]:
    """Continue with the servers that work. If any works, failures of the others are warnings."""
    context.servers = [
        server
        for server, finding in zip(servers, findings, strict=True)
        if finding.outcome is not Outcome.FAILED
    ]
    if not context.servers:
        return findings
    return [
        dataclasses.replace(
            warned(finding.message, _OTHERS_WORK + finding.advice, finding.subject),
            seconds=finding.seconds,
        )
        if finding.outcome is Outcome.FAILED
        else finding
        for finding in findings
    ]
