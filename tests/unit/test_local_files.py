"""Settings that depend on the files of the machine where a client is created."""

from __future__ import annotations

import os
import re
import ssl

import pytest
import trustme
from certificates import chain_pem, key_pem
from fake_client import FakeClient

from spark_kafka_sink.clients import local_files
from spark_kafka_sink.clients.local_files import FILE_ENDINGS, add_local_files, ca_certificates
from spark_kafka_sink.clients.session import Session
from spark_kafka_sink.clients.sockets import tls_context
from spark_kafka_sink.config.producer_options import ClientSettings
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.librdkafka import setting_specs
from spark_kafka_sink.librdkafka.client import Client

PASSWORD = "secret-of-the-key"


@pytest.fixture(autouse=True)
def no_authorities(monkeypatch):
    """A machine without any; certifi is not installed."""
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    nowhere = ssl.DefaultVerifyPaths(None, None, "SSL_CERT_FILE", "/none", "SSL_CERT_DIR", "/none")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: nowhere)
    monkeypatch.setattr(local_files, "BUNDLES", ())
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
def bundle(authority, tmp_path):
    path = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


# --- authorities ---------------------------------------------------------------------------------


def debian(path, monkeypatch):
    monkeypatch.setattr(local_files, "BUNDLES", ("/none", str(path), "/etc"))


def red_hat(path, monkeypatch):
    monkeypatch.setattr(local_files, "BUNDLES", (str(path), "/etc"))


def own_python(path, monkeypatch):
    paths = ssl.DefaultVerifyPaths(None, None, "SSL_CERT_FILE", str(path), "SSL_CERT_DIR", "/none")
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)


def slim(path, monkeypatch):
    monkeypatch.undo()
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(local_files, "BUNDLES", ())
    own_python("/none", monkeypatch)
    monkeypatch.setattr("certifi.where", lambda: str(path))


def variable_for_a_file(path, monkeypatch):
    debian("/etc", monkeypatch)
    monkeypatch.setenv("SSL_CERT_FILE", str(path))


def variable_for_a_folder(path, monkeypatch):
    debian("/etc", monkeypatch)
    monkeypatch.setenv("SSL_CERT_FILE", "/none")
    monkeypatch.setenv("SSL_CERT_DIR", str(path.parent))


def variable_for_folders(path, monkeypatch):
    debian("/etc", monkeypatch)
    monkeypatch.setenv("SSL_CERT_DIR", os.pathsep.join(["", "/none", str(path.parent), "/etc"]))


FOLDERS = [variable_for_a_folder, variable_for_folders]
MACHINES = [debian, red_hat, own_python, slim, variable_for_a_file, *FOLDERS]


@pytest.mark.parametrize("machine", MACHINES)
def test_the_authorities_of_a_machine_are_found(machine, bundle, monkeypatch):
    machine(bundle, monkeypatch)
    expected = bundle.parent if machine in FOLDERS else bundle
    assert ca_certificates() == str(expected)


@pytest.mark.parametrize("location", [{}, {"ssl.ca.location": "probe"}])
def test_they_are_for_brokers_unless_the_options_name_others(location, bundle, monkeypatch):
    debian(bundle, monkeypatch)
    tls = {"security.protocol": "ssl"}
    assert add_local_files(tls | location) == tls | {"ssl.ca.location": str(bundle)}
    for others in ({"ssl.ca.location": "/mine"}, {"ssl.ca.pem": "mine"}):
        assert add_local_files(tls | others) == tls | others
    assert add_local_files({"security.protocol": "plaintext"} | location) == {
        "security.protocol": "plaintext",
        **location,
    }


def test_a_machine_without_authorities_changes_nothing():
    settings = {"security.protocol": "sasl_ssl"}
    assert add_local_files(settings) == settings


# --- PEM files -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def store(authority):
    """A key, and the chain of its certificate."""
    certificate = authority.issue_cert("me@example.org")
    return lambda password=None: key_pem(certificate, password) + chain_pem(certificate)


LAYOUTS = {
    "on one line": lambda pem: pem.replace("\n", " "),
    "without any break": lambda pem: pem.replace("\n", ""),
    "indented": lambda pem: pem.replace("\n", "\n  "),
    "without breaks between blocks": lambda pem: pem.replace("-----\n-----", "----------"),
    "after a byte order mark": lambda pem: f"\ufeff{pem}",
    "from Windows, and among text": lambda pem: f"Bag 1\r\n{pem}".replace("\n", "\r\n"),
}


@pytest.mark.parametrize("password", [None, PASSWORD])
@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_pem_files_are_read_as_java_reads_them(layout, password, store, authority, tmp_path):
    files = {"ca": authority.cert_pem.bytes().decode() * 2, "store": store(password)}
    for name, pem in files.items():
        (tmp_path / name).write_text(layout(pem))
    settings = {
        "security.protocol": "ssl",
        "ssl.ca.location": str(tmp_path / "ca"),
        "ssl.certificate.location": str(tmp_path / "store"),
        "ssl.key.location": str(tmp_path / "store"),
        **({} if password is None else {"ssl.key.password": password}),
    }
    local = add_local_files(settings)
    assert "PRIVATE" not in repr(local)
    Client(local).close(Deadline(5))
    assert len(tls_context(settings).get_ca_certs()) == 1


def test_the_key_of_an_assertion_is_such_a_file(store, tmp_path):
    (tmp_path / "key.pem").write_text(store().replace("\n", " "))
    file = "sasl.oauthbearer.assertion.private.key.file"
    local = add_local_files({file: str(tmp_path / "key.pem")})
    (text,) = local.values()
    assert list(local) == [file.replace(".file", ".pem")]
    assert text.count("\n-----BEGIN") == len(text.split("-----BEGIN")) - 1


@pytest.mark.parametrize("content", [None, "", "no certificate", "\x00\xff"])
def test_what_is_no_pem_stays_a_file_for_the_client_to_name(content, tmp_path):
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_text(content)
    settings = {"security.protocol": "ssl", "ssl.ca.location": str(path)}
    assert add_local_files(settings) == settings


# --- files that are replaced ----------------------------------------------------------------------


def test_every_setting_that_the_client_describes_as_a_file_counts_as_one():
    rows = [
        [cell.strip() for cell in line.split("|")] for line in setting_specs._manual().splitlines()
    ]
    names = {
        row[0]
        for row in rows
        if len(row) > 5 and row[1] in "P*" and re.search(r"Path to|directory path", row[-1])
    }
    assert {"ssl.key.location", "ssl.ca.location", "sasl.kerberos.keytab"} <= names
    assert [name for name in sorted(names) if not name.endswith(FILE_ENDINGS)] == []


@pytest.fixture
def renewable(tmp_path):
    return tmp_path / "client.pem"


def in_place(path, text):
    path.write_text(text)


def renamed(path, text):
    other = path.with_name("new.pem")
    other.write_text(text)
    os.utime(other, ns=(0, path.stat().st_mtime_ns))  # as long and as old
    other.rename(path)


def linked(path, text):
    """As Kubernetes does with a secret."""
    target = path.with_name("data")
    target.write_text(text)
    path.unlink()
    path.symlink_to(target)


@pytest.mark.parametrize("replace", [in_place, renamed, linked])
def test_a_session_is_outdated_once_a_file_of_its_settings_was_replaced(renewable, replace):
    renewable.write_text("first")
    settings = ClientSettings((("ssl.keystore.location", str(renewable)),))
    session = Session(lambda *_, **__: FakeClient(), settings)
    assert not session.is_outdated
    replace(renewable, "later" if replace is renamed else "renewed")
    assert session.is_outdated
    assert not Session(lambda *_, **__: FakeClient(), settings).is_outdated


def test_a_file_that_was_missing_and_still_is_makes_no_session_outdated():
    settings = ClientSettings((("ssl.crl.location", "/none/crl.pem"),))
    assert not Session(lambda *_, **__: FakeClient(), settings).is_outdated
