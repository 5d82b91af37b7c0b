"""What doctor says about servers; each test breaks one thing."""

from __future__ import annotations

import contextlib
import datetime
import socket
import ssl
import struct
import threading

import pytest
import trustme
from black_hole import black_hole
from certificates import write_pem

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.connection import sockets
from spark_kafka_sink.connection.sockets import Server
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.tools.doctor import connection, network
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.result import Outcome

DAY = datetime.timedelta(days=1)


def test_a_server_is_written_as_it_is_read():
    assert [str(each) for each in sockets.servers("a:1,[::1]:2")] == ["a:1", "[::1]:2"]


@contextlib.contextmanager
def serving(talk):
    """A loopback server that passes its first connection to ``talk``."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            with contextlib.suppress(OSError):
                connection, _ = server.accept()
                with connection:
                    talk(connection)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Server("127.0.0.1", server.getsockname()[1])
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        thread.join(30)


# --- TCP -----------------------------------------------------------------------------------------


def test_a_port_that_accepts_connections_passes():
    with serving(lambda connection: None) as server:
        finding = network.tcp(server, Deadline(30))
    assert finding.outcome is Outcome.PASSED
    assert finding.subject == str(server)


def test_a_wrong_port_fails():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    finding = network.tcp(Server("127.0.0.1", port), Deadline(30))
    assert finding.outcome is Outcome.FAILED
    assert "Connection refused" in finding.message
    assert "Check host and port" in finding.advice


def test_a_name_that_does_not_resolve_fails():
    finding = network.tcp(Server("nowhere.invalid", 9092), Deadline(30))
    assert finding.outcome is Outcome.FAILED
    assert "the name does not resolve" in finding.message
    assert "Correct the host name" in finding.advice


def test_a_server_that_does_not_answer_fails_at_the_deadline():
    with black_hole() as address:
        finding = network.tcp(sockets.server(address), Deadline(0.1))
    assert finding.outcome is Outcome.FAILED
    assert "no answer in time" in finding.message


# --- TLS -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def examine(authority, tmp_path):
    """The finding about a server with a certificate for ``name`` and the client's ``settings``."""

    def examine(
        name="127.0.0.1", not_after=None, trusted=authority, issuer=authority, option="", **settings
    ):
        certificate = issuer.issue_cert(name, not_after=not_after)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(write_pem(certificate, tmp_path / "server.pem"))

        def talk(connection):
            with context.wrap_socket(connection, server_side=True) as secured:
                secured.read()

        trusted.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
        settings = {"ssl.ca.location": str(tmp_path / "ca.pem")} | settings
        with serving(talk) as server:
            return network.tls(server, sockets.tls_context(settings), Deadline(30), option)

    return examine


def test_a_good_certificate_passes_and_its_days_are_counted(examine):
    not_after = datetime.datetime.now(datetime.timezone.utc) + 100 * DAY + DAY / 2
    finding = examine(not_after=not_after)
    assert finding.outcome is Outcome.PASSED
    assert "TLSv1.3, certificate trusted, expires in 100 days" in finding.message


def test_the_authority_may_be_given_as_text(examine, authority):
    text = authority.cert_pem.bytes().decode()
    assert examine(**{"ssl.ca.pem": text}).outcome is Outcome.PASSED


def test_a_folder_without_the_authority_fails(examine, tmp_path):
    (tmp_path / "empty").mkdir()
    finding = examine(**{"ssl.ca.location": str(tmp_path / "empty")})
    assert finding.outcome is Outcome.FAILED


def test_a_certificate_that_expires_soon_is_a_warning(examine):
    finding = examine(not_after=datetime.datetime.now(datetime.timezone.utc) + 2 * DAY + DAY / 2)
    assert finding.outcome is Outcome.WARNED
    assert "expires in 2 days" in finding.message
    assert finding.advice == "Renew the broker's certificate soon"


def test_an_expired_certificate_fails(examine):
    finding = examine(not_after=datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc))
    assert finding.outcome is Outcome.FAILED
    assert "certificate has expired" in finding.message
    assert "Renew the server's certificate" in finding.advice


def test_a_wrong_authority_fails(examine):
    finding = examine(trusted=trustme.CA())
    assert finding.outcome is Outcome.FAILED
    assert "the broker's certificate is refused" in finding.message
    assert "(trusted are the authorities of this machine, /" in finding.message
    assert "kafka.ssl.truststore.location" in finding.advice


@pytest.mark.parametrize(
    "option", ["kafka.ssl.truststore.location", "kafka.ssl.truststore.certificates"]
)
def test_an_intermediate_authority_without_its_root_fails_and_names_the_option(
    examine, authority, option
):
    intermediate = authority.create_child_ca()
    finding = examine(issuer=intermediate, trusted=intermediate, option=option)
    assert finding.outcome is Outcome.FAILED
    assert f"(trusted are the authorities of {option})" in finding.message
    assert finding.advice.startswith("Add the root's certificate to the store of ")


def test_a_certificate_for_another_host_fails(examine):
    finding = examine("kafka.example.org")
    assert finding.outcome is Outcome.FAILED
    assert "IP address mismatch" in finding.message
    assert "issue one for this host (subjectAltName)" in finding.advice


def test_another_host_passes_if_the_client_does_not_look(examine):
    finding = examine("kafka.example.org", **{"ssl.endpoint.identification.algorithm": "none"})
    assert finding.outcome is Outcome.PASSED


def test_a_certificate_that_nobody_checks_is_a_warning(examine):
    setting = {"enable.ssl.certificate.verification": "false"}
    finding = examine("kafka.example.org", trusted=trustme.CA(), **setting)
    assert finding.outcome is Outcome.WARNED
    assert "Leave out kafka.enable.ssl.certificate.verification=false" in finding.advice


def test_a_server_without_tls_fails():
    with serving(lambda connection: connection.recv(9)) as server:
        finding = network.tls(server, sockets.tls_context({}), Deadline(30))
    assert finding.outcome is Outcome.FAILED
    assert "the TLS handshake failed" in finding.message
    assert "Check that kafka.security.protocol matches the listener" in finding.advice


def test_an_encrypted_key_with_a_wrong_password_is_an_error_and_no_question(authority, tmp_path):
    from cryptography.hazmat.primitives import serialization

    certificate = authority.issue_cert("client")
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    encryption = serialization.BestAvailableEncryption(b"right")
    kind = serialization.PrivateFormat.PKCS8
    (tmp_path / "key").write_bytes(key.private_bytes(serialization.Encoding.PEM, kind, encryption))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "certificate"))
    settings = {
        "ssl.certificate.location": str(tmp_path / "certificate"),
        "ssl.key.location": str(tmp_path / "key"),
    }
    sockets.tls_context({**settings, "ssl.key.password": "right"})
    for password in ({}, {"ssl.key.password": "wrong"}):
        with pytest.raises(OSError, match="PEM"):
            sockets.tls_context({**settings, **password})


def test_a_missing_client_certificate_fails_with_the_setting_for_it(authority, tmp_path):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate = authority.issue_cert("127.0.0.1")
    context.load_cert_chain(write_pem(certificate, tmp_path / "server.pem"))
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    trusting = sockets.tls_context({"ssl.ca.location": str(tmp_path / "ca.pem")})

    def talk(connection):
        with contextlib.suppress(OSError):
            context.wrap_socket(connection, server_side=True).close()

    with serving(talk) as server:
        finding, _ = network.api_versions(server, trusting, Deadline(30))
    assert finding.outcome is Outcome.FAILED
    assert "Set or correct kafka.ssl.keystore.*" in finding.advice


@pytest.mark.parametrize(
    ("settings", "is_hidden"),
    [
        ({}, False),
        ({"ssl.key.location": "k", "ssl.certificate.location": "c"}, False),
        ({"ssl.keystore.location": "k"}, True),
        ({"ssl.key.pem": "k", "ssl.certificate.pem": "c"}, True),
    ],
)
def test_python_reads_only_keys_in_pem_files(settings, is_hidden):
    assert sockets.has_hidden_certificate(settings) == is_hidden


# --- Kafka's protocol ----------------------------------------------------------------------------


def answer(versions, error=0):
    body = struct.pack(">ihi", 0, error, len(versions))
    body += b"".join(struct.pack(">hhh", *each) for each in versions)
    return struct.pack(">i", len(body)) + body


def replying(reply):
    def talk(connection):
        connection.recv(1024)
        connection.sendall(reply)

    return talk


def asked(reply):
    with serving(replying(reply)) as server:
        return network.api_versions(server, None, Deadline(30))


def test_the_versions_of_a_broker_are_read():
    finding, versions = asked(answer([(0, 0, 13), (60, 0, 2)]))
    assert finding.outcome is Outcome.PASSED
    assert finding.message == "Kafka 2.8 or later; Produce 0 to 13"
    assert versions == {0: (0, 13), 60: (0, 2)}


def test_a_broker_without_describe_cluster_is_older():
    finding, _ = asked(answer([(0, 0, 8)]))
    assert finding.message == "Kafka before 2.8; Produce 0 to 8"


@pytest.mark.parametrize(
    ("compression", "produce", "warns"), [("zstd", 6, True), ("zstd", 7, False), ("lz4", 6, False)]
)
def test_zstd_is_a_warning_before_kafka_2_1(compression, produce, warns):
    with serving(replying(answer([(0, 0, produce)]))) as server:
        given = {"kafka.bootstrap.servers": str(server), "kafka.compression.type": compression}
        context = CheckContext(given, False, None, Deadline(30))
        context.parsed, context.servers = parse(given), [server]
        findings = connection.api_versions(context)
    assert [each.outcome for each in findings] == [Outcome.PASSED] + [Outcome.WARNED] * warns
    assert not warns or "uncompressed" in findings[1].message


def test_a_broker_without_headers_fails():
    finding, _ = asked(answer([(0, 0, 2)]))
    assert finding.outcome is Outcome.FAILED
    assert "older than Kafka 0.11" in finding.message
    assert "Upgrade the brokers" in finding.advice


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (b"", "it closed the connection"),
        (answer([(0, 0, 13)])[:-1], "it closed the connection"),
        (b"\x15\x03\x03\x00\x02\x02\x50", "it expects TLS"),
        (b"HTTP/1.1 400 Bad Request\r\n", "it uses another protocol"),
        (struct.pack(">iihi", 10, 0, 0, 7), "error 0"),
        (answer([], error=35), "error 35"),
    ],
)
def test_whatever_else_answers_is_no_broker(reply, reason):
    finding, versions = asked(reply)
    assert finding.outcome is Outcome.FAILED
    assert finding.message == f"no answer from a Kafka broker: {reason}"
    assert "Check that kafka.security.protocol" in finding.advice
    assert versions == {}
