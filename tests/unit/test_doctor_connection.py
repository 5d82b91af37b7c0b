"""What doctor says about servers, brokers' versions and report.path; each test breaks one thing."""

from __future__ import annotations

import contextlib
import datetime
import re
import socket
import ssl
import threading
from types import SimpleNamespace

import pytest
import trustme
from black_hole import black_hole
from certificates import chain_pem, key_pem, write_pem, write_pkcs12

from spark_kafka_sink.clients import sockets
from spark_kafka_sink.clients.sockets import Server
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.report.storage import LocalFolder
from spark_kafka_sink.tools.doctor import connectivity
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.tools.doctor.result import Outcome

DAY = datetime.timedelta(days=1)


def test_a_server_is_written_as_it_is_read():
    assert list(map(str, sockets.servers("a:1,[::1]:2"))) == ["a:1", "[::1]:2"]


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
        finding = connectivity.probe_tcp(server, Deadline(30))
    assert finding.outcome is Outcome.PASSED
    assert finding.subject == str(server)


def test_a_wrong_port_fails():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    finding = connectivity.probe_tcp(Server("127.0.0.1", port), Deadline(30))
    assert finding.outcome is Outcome.FAILED
    assert "Connection refused" in finding.message
    assert "Check host and port" in finding.advice


def test_a_name_that_does_not_resolve_fails():
    finding = connectivity.probe_tcp(Server("nowhere.invalid", 9092), Deadline(30))
    assert finding.outcome is Outcome.FAILED
    assert "the name does not resolve" in finding.message
    assert "Correct the host name" in finding.advice


def test_a_server_that_does_not_answer_fails_at_the_deadline():
    with black_hole() as address:
        finding = connectivity.probe_tcp(sockets.server(address), Deadline(0.1))
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
            tls = sockets.tls_context(settings)
            return connectivity.probe_tls(server, tls, Deadline(30), option)

    return examine


NOW = datetime.datetime.now(datetime.timezone.utc)
ANOTHER_HOST = {"name": "kafka.example.org"}
ANOTHER_AUTHORITY = {"trusted": trustme.CA()}
NOT_CHECKED = {**ANOTHER_HOST, **ANOTHER_AUTHORITY, "enable.ssl.certificate.verification": "false"}


@pytest.mark.parametrize(
    ("changes", "outcome", "message", "advice"),
    [
        ({"not_after": NOW + 100.5 * DAY}, "passed",
         r"TLSv1\.3, certificate trusted, expires in 100 days", ""),
        ({"not_after": NOW + 2.5 * DAY}, "warned", "expires in 2 days",
         "^Renew the broker's certificate soon$"),
        ({"not_after": NOW - DAY}, "failed", "certificate has expired",
         "Renew the server's certificate"),
        (ANOTHER_AUTHORITY, "failed",
         r"the broker's certificate is rejected.*\(trusted are the authorities of this machine, /",
         r"kafka\.ssl\.truststore\.location"),
        (ANOTHER_HOST, "failed", "IP address mismatch",
         r"issue one for this host \(subjectAltName\)"),
        ({**ANOTHER_HOST, "ssl.endpoint.identification.algorithm": "none"}, "passed", "", ""),
        (NOT_CHECKED, "warned", "",
         r"Leave out kafka\.enable\.ssl\.certificate\.verification=false"),
    ],
)  # fmt: skip
def test_a_certificate_is_judged_as_the_client_does(examine, changes, outcome, message, advice):
    finding = examine(**changes)
    assert finding.outcome.value == outcome
    assert re.search(message, finding.message)
    assert re.search(advice, finding.advice)


def test_the_authority_may_be_given_as_text(examine, authority):
    text = authority.cert_pem.bytes().decode()
    assert examine(**{"ssl.ca.pem": text}).outcome is Outcome.PASSED


def test_a_folder_without_the_authority_fails(examine, tmp_path):
    (tmp_path / "empty").mkdir()
    finding = examine(**{"ssl.ca.location": str(tmp_path / "empty")})
    assert finding.outcome is Outcome.FAILED


@pytest.mark.parametrize(
    "option", ["kafka.ssl.truststore.location", "kafka.ssl.truststore.certificates"]
)
def test_an_intermediate_authority_without_its_root_fails(examine, authority, option):
    intermediate = authority.create_child_ca()
    finding = examine(issuer=intermediate, trusted=intermediate, option=option)
    assert finding.outcome is Outcome.FAILED
    assert f"(trusted are the authorities of {option})" in finding.message
    assert finding.advice.startswith("Add the root's certificate to the store of ")


def test_a_server_without_tls_fails():
    with serving(lambda connection: connection.recv(9)) as server:
        finding = connectivity.probe_tls(server, sockets.tls_context({}), Deadline(30))
    assert finding.outcome is Outcome.FAILED
    assert "the TLS handshake failed" in finding.message
    assert "Check that kafka.security.protocol matches the listener" in finding.advice


@pytest.fixture
def examine_mutual(authority, tmp_path):
    """What tls says about a server that speaks TLS 1.2 and requires a client's certificate."""

    def examine_mutual(**options):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(write_pem(authority.issue_cert("127.0.0.1"), tmp_path / "server"))
        authority.configure_trust(context)
        context.verify_mode, context.maximum_version = ssl.CERT_REQUIRED, ssl.TLSVersion.TLSv1_2

        def talk(connection):
            with context.wrap_socket(connection, server_side=True) as secured:
                secured.read()

        pem = authority.cert_pem.bytes().decode()
        with serving(talk) as server:
            tls = {
                "kafka.bootstrap.servers": str(server),
                "kafka.security.protocol": "SSL",
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.truststore.certificates": pem,
            }
            check = CheckContext(tls | options, False, None, Deadline(30))
            check.parsed, check.servers = parse(check.options), [server]
            (finding,) = connectivity.tls(check)
            assert (check.servers == []) == (finding.outcome is Outcome.FAILED)
            return finding

    return examine_mutual


def test_what_python_cannot_present_is_left_to_the_login(examine_mutual, authority, tmp_path):
    client = authority.issue_cert("client")
    text = {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.key": key_pem(client),
        "kafka.ssl.keystore.certificate.chain": chain_pem(client),
    }
    store = {
        "kafka.ssl.keystore.type": "PKCS12",
        "kafka.ssl.keystore.location": str(write_pkcs12(client, tmp_path / "c.p12", "secret")),
        "kafka.ssl.keystore.password": "secret",
    }
    (tmp_path / "chain.pem").write_text(chain_pem(client))
    both = {
        "kafka.ssl.certificate.location": str(tmp_path / "chain.pem"),
        "kafka.ssl.key.pem": key_pem(client),
    }
    for options in (text, store, both):
        finding = examine_mutual(**options)
        assert finding.outcome is Outcome.WARNED
        assert "this check cannot present the client's certificate" in finding.message
        assert "the check login" in finding.advice


def test_no_certificate_for_a_server_that_requires_one_fails(examine_mutual):
    assert examine_mutual().outcome is Outcome.FAILED


def test_a_certificate_in_a_file_is_presented(examine_mutual, authority, tmp_path):
    pem = write_pem(authority.issue_cert("client"), tmp_path / "client.pem")
    location = {"kafka.ssl.keystore.type": "PEM", "kafka.ssl.keystore.location": str(pem)}
    assert examine_mutual(**location).outcome is Outcome.PASSED


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


# --- versions -------------------------------------------------------------------------------------


#: of Kafka 2.5
VERSIONS = {0: 8, 9: 7, **dict.fromkeys((22, 24, 25, 26, 28), 3)}


@pytest.fixture
def versions():
    """The finding about brokers with these versions of requests."""

    def versions(newest, **options):
        sink_options = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
        sink_options |= {name.replace("_", "."): value for name, value in options.items()}
        parsed = parse(sink_options)
        context = CheckContext(sink_options, False, None, Deadline(30), parsed=parsed)
        context.brokers = SimpleNamespace(newest_versions=newest)
        (finding,) = connectivity.broker_versions(context)
        return finding

    return versions


def test_the_age_of_brokers_is_named(versions):
    assert versions(VERSIONS).message == "Kafka before 2.8; Produce up to version 8"
    assert versions(VERSIONS | {60: 0}).message == "Kafka 2.8 or later; Produce up to version 8"
    unknown = versions({})
    assert (unknown.outcome, unknown.blocks) == (Outcome.SKIPPED, False)


def test_brokers_without_headers_fail(versions):
    finding = versions({0: 2})
    assert finding.outcome is Outcome.FAILED
    assert "older than Kafka 0.11" in finding.message
    assert "Upgrade the brokers" in finding.advice


def test_zstd_is_a_warning_before_kafka_2_1(versions):
    finding = versions({0: 6}, kafka_compression_type="zstd")
    assert finding.outcome is Outcome.WARNED
    assert "uncompressed" in finding.message
    assert versions({0: 7}, kafka_compression_type="zstd").outcome is Outcome.PASSED
    assert versions({0: 6}, kafka_compression_type="lz4").outcome is Outcome.PASSED


@pytest.mark.parametrize(
    ("key", "newest", "lacking"),
    [
        (9, 6, "OffsetFetch only up to version 6"),
        (22, None, "no InitProducerId"),
        (24, None, "no AddPartitionsToTxn"),
        (25, None, "no AddOffsetsToTxn"),
        (26, None, "no EndTxn"),
        (28, None, "no TxnOffsetCommit"),
    ],
)
def test_brokers_that_lack_what_exactly_once_needs_fail(versions, key, newest, lacking):
    changed = {**VERSIONS, key: newest}
    if newest is None:
        del changed[key]
    exactly_once = {"delivery_guarantee": "exactly-once", "exactly_once_ledger_topic": "ledger"}
    finding = versions(changed, **exactly_once)
    assert finding.outcome is Outcome.FAILED
    assert finding.message.endswith(f"these brokers have {lacking}")
    assert "delivery.guarantee=at-least-once" in finding.advice
    assert versions(VERSIONS, **exactly_once).outcome is Outcome.PASSED
    assert versions(changed).outcome is Outcome.PASSED


# --- report.path ----------------------------------------------------------------------------------


def examine_path(folder, seconds=30.0):
    options = {"kafka.bootstrap.servers": "a:1"} | ({"report.path": str(folder)} if folder else {})
    context = CheckContext(options, False, None, Deadline(seconds))
    context.parsed = parse(options)
    (finding,) = connectivity.report_path(context)
    return finding


def test_without_the_option_there_is_nothing_to_check():
    assert examine_path(None).outcome is Outcome.SKIPPED


def test_a_file_is_written_and_deleted(tmp_path):
    finding = examine_path(tmp_path)
    assert (finding.outcome, finding.subject) == (Outcome.PASSED, str(tmp_path))
    assert finding.message == "a file was written there and deleted"
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_can_be_created_is_left_to_the_job(tmp_path):
    """It would belong to the wrong user."""
    finding = examine_path(tmp_path / "a" / "reports")
    assert (finding.outcome, "can be created" in finding.message) == (Outcome.PASSED, True)
    assert list(tmp_path.iterdir()) == []


def test_files_that_cannot_be_appended_to_are_reported(tmp_path, monkeypatch):
    def reject(self, name, line):
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(LocalFolder, "append_line", reject)
    finding = examine_path(tmp_path)
    assert finding.outcome is Outcome.PASSED
    assert finding.message.endswith("each report becomes a new file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("folder", ["file/reports", "file"])
def test_a_place_that_cannot_be_written_to_is_a_warning(tmp_path, folder):
    (tmp_path / "file").touch()
    finding = examine_path(tmp_path / folder)
    assert finding.outcome is Outcome.WARNED  # the job runs all the same
    assert "reports cannot be written there: " in finding.message
    assert "Correct report.path" in finding.advice


def test_storage_that_does_not_answer_is_a_warning(monkeypatch):
    released = threading.Event()
    monkeypatch.setattr(connectivity, "try_writing", lambda folder: released.wait(60))
    finding = examine_path("/reports", seconds=0.05)
    released.set()
    assert (finding.outcome, "no end after 0." in finding.message) == (Outcome.WARNED, True)
    assert finding.advice.startswith("Raise --timeout")
