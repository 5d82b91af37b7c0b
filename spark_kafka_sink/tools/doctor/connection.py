"""Checks of the connection to the brokers: options, addresses, TLS, protocol, login."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial

from confluent_kafka import KafkaException

from spark_kafka_sink.advice import Advice, settings_refused
from spark_kafka_sink.bounded import call_each
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.connection import sockets
from spark_kafka_sink.connection.oauth_token import TokenFunction, token_remedy
from spark_kafka_sink.connection.session import login_failure
from spark_kafka_sink.connection.sockets import Server
from spark_kafka_sink.connection.tls_failure import concerns_clients_certificate
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    InvalidOption,
    LibraryUnavailable,
)
from spark_kafka_sink.tools.doctor import network
from spark_kafka_sink.tools.doctor.brokers import Brokers, error_text
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.result import (
    Finding,
    Outcome,
    counted,
    failed,
    not_applicable,
    passed,
    warned,
)

_GRACE_SECONDS = 0.1
_OTHERS_WORK = "Clients can start from the other servers, but only while one of them is up. "


def options(context: CheckContext) -> list[Finding]:
    """The options are valid, as the sink reads them."""
    try:
        context.parsed = parse(context.given)
    except (InvalidOption, LibraryUnavailable) as error:
        advice = "Correct the option that the message names; docs/options.md lists all options"
        return [failed(str(error), advice)]
    count = sum(value is not None for value in context.given.values())
    return [passed(f"{counted(count, 'option')}, all valid")]


def bootstrap_servers(context: CheckContext) -> list[Finding]:
    """The names of the bootstrap servers resolve, and their ports accept connections."""
    named = sockets.servers(context.settings["bootstrap.servers"])
    findings = _probe_each(named, partial(network.tcp, deadline=context.deadline), context)
    return _keep_usable(context, named, findings)


def tls(context: CheckContext) -> list[Finding]:
    """The TLS handshake succeeds, and the certificate does not expire soon."""
    settings = context.settings
    if not sockets.uses_tls(settings):
        protocol = settings.get("security.protocol", "plaintext")
        return [not_applicable(f"kafka.security.protocol={protocol} does not use TLS")]
    try:
        tls_context = context.tls_context = sockets.tls_context(settings)
    except OSError as error:
        return [
            failed(
                f"the configured certificate or key cannot be used: {error}",
                "Check the files of kafka.ssl.truststore.location and kafka.ssl.keystore.location",
            )
        ]
    probe = partial(
        network.tls,
        context=tls_context,
        deadline=context.deadline,
        trust_option=settings.trust_option,
    )
    findings = _probe_each(context.servers, probe, context)
    return _keep_usable(context, context.servers, findings)


def api_versions(context: CheckContext) -> list[Finding]:
    """Kafka answers, in versions of its protocol that the sink needs."""
    tls_context, deadline = context.tls_context, context.deadline
    if tls_context is not None and sockets.has_hidden_certificate(context.settings):
        return [
            not_applicable(
                "doctor can present the client's certificate only if it and its key are PEM files"
            )
        ]

    def probe(server: Server) -> Finding:
        finding, versions = network.api_versions(server, tls_context, deadline)
        if finding.outcome is Outcome.PASSED:
            context.api_versions = versions
        return finding

    findings = _probe_each(context.servers, probe, context)
    findings = _keep_usable(context, context.servers, findings)
    _, newest = context.api_versions.get(network.PRODUCE, (0, network.ZSTD_PRODUCE))
    if context.settings.get("compression.type") == "zstd" and newest < network.ZSTD_PRODUCE:
        findings.append(
            warned(
                "kafka.compression.type=zstd: to brokers before Kafka 2.1, the client sends "
                "records uncompressed",
                "Set kafka.compression.type=lz4, or upgrade the brokers",
            )
        )
    return findings


def login(context: CheckContext) -> list[Finding]:
    """A client with the sink's settings can authenticate."""
    settings = context.settings
    working = ",".join(map(str, context.servers))
    if settings.oauth_callback:
        # First, because confluent_kafka waits for a token, and does not say why there is none.
        problem = TokenFunction(settings).problem(context.deadline.remaining() / 2)
        if problem:
            return [failed(problem, token_remedy(settings))]
    try:
        context.brokers = Brokers({**context.login, "bootstrap.servers": working})
        context.advertised = context.brokers.log_in(context.deadline)
    except KafkaException as error:
        return [failed(*settings_refused(error_text(error)))]
    except AuthenticationFailed as error:
        problem, remedy = login_failure(str(error), settings)
        if concerns_clients_certificate(str(error)):
            remedy = Advice.CLIENT_CERTIFICATE.remedy
        return [failed(problem, remedy)]
    except BrokerUnavailable as error:
        return [
            failed(
                f"no broker accepts this client: {error}",
                "The listener may require a login, TLS or a client's certificate: check "
                "kafka.security.protocol, kafka.sasl.* and kafka.ssl.keystore.*",
            )
        ]
    protocol = settings.get("security.protocol", "plaintext")
    if protocol.startswith("sasl"):
        return [passed(f"{settings['sasl.mechanism']} as {context.user}")]
    return [passed(f"kafka.security.protocol={protocol}: without a user name")]


def advertised_listeners(context: CheckContext) -> list[Finding]:
    """Clients can connect to the address that each broker advertises."""
    tls_context, deadline = context.tls_context, context.deadline

    def probe(server: Server) -> Finding:
        finding = network.tcp(server, deadline)
        if finding.outcome is Outcome.PASSED and tls_context is not None:
            trust_option = context.settings.trust_option
            finding = network.tls(server, tls_context, deadline, trust_option)
        return finding

    addresses = list(context.advertised.values())
    ids = list(context.advertised)
    findings = []
    for node_id, finding in zip(ids, _probe_each(addresses, probe, context), strict=True):
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
    found = context.cluster = context.client.cluster(context.deadline)
    if found.controller is None:
        return [failed("no controller", "Check the brokers' logs: they cannot elect one")]
    size = counted(len(found.nodes), "broker")
    return [passed(f"{found.cluster_id}: {size}, controller {found.controller.id}")]


def _probe_each(
    servers: Sequence[Server], probe: Callable[[Server], Finding], context: CheckContext
) -> list[Finding]:
    findings = []
    # A little more than each has, so that each can report its own timeout.
    deadline = Deadline(context.deadline.remaining() + _GRACE_SECONDS)
    calls = call_each(probe, servers, deadline)
    for server, call in zip(servers, calls, strict=True):
        finding = call.value or failed(
            str(call.error), "Check this machine's DNS and network", str(server)
        )
        findings.append(dataclasses.replace(finding, seconds=call.seconds))
    return findings


def _keep_usable(
    context: CheckContext, servers: Sequence[Server], findings: list[Finding]
) -> list[Finding]:
    """Continue with the servers that work. If there is one, the others are only warnings."""
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
