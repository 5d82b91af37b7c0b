"""Key stores as real files, which the client opens or rejects with the way out."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import traceback
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import trustme
from certificates import keytool, write_pem, write_pkcs12, write_trust_store
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    load_pem_private_key,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import serialize_key_and_certificates
from cryptography.x509 import Certificate, load_pem_x509_certificate, load_pem_x509_certificates

from spark_kafka_sink.clients.session import Session
from spark_kafka_sink.config.client_settings import translate
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver.key_store import _PROTECTION, _unprotected
from spark_kafka_sink.driver.options import complete_client_settings, read_options
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.secret import Secret

PASSWORD = "hunter2"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with key stores of one certificate."""
    folder = tmp_path_factory.mktemp("stores")
    certificate = trustme.CA().issue_cert("me@example.org")
    write_pem(certificate, folder / "plain.pem")
    write_pem(certificate, folder / "encrypted.pem", PASSWORD)
    write_pkcs12(certificate, folder / "new.p12", PASSWORD)
    for name, encryption in (("java_8.p12", "PBE-SHA1-RC2-40"), ("des.p12", "PBE-SHA1-3DES")):
        command = (
            "openssl pkcs12 -export -legacy -keypbe PBE-SHA1-3DES -macalg sha1 -name client "
            f"-certpbe {encryption} -in plain.pem -out {name} -passout pass:{PASSWORD}"
        )
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    (folder / "other.pem").write_text("not PEM")
    return folder


@dataclass
class JavaStore:
    """A file of Java's, and the private key and the certificates that it was made of."""

    path: Path
    key: PrivateKeyTypes
    chain: list[Certificate]
    key_password: str = PASSWORD


@pytest.fixture(scope="module")
def java_stores(tmp_path_factory):
    """Stores that keytool has written, by their kind. Each of its runs starts a Java."""
    folder = tmp_path_factory.mktemp("java")
    authority = trustme.CA()

    def made(
        name, kind="JKS", key_type=trustme.KeyType.ECDSA, key_password=PASSWORD, alias="alice"
    ):
        leaf = authority.issue_cert(f"{alias}@example.org", key_type=key_type)
        key = load_pem_private_key(leaf.private_key_pem.bytes(), None)
        pems = (*leaf.cert_chain_pems, authority.cert_pem)
        chain = [load_pem_x509_certificate(pem.bytes()) for pem in pems]
        source = folder / "source.p12"
        protection = BestAvailableEncryption(PASSWORD.encode())
        source.write_bytes(
            serialize_key_and_certificates(alias.encode(), key, chain[0], chain[1:], protection)
        )
        keytool(
            "-importkeystore", "-srckeystore", source, "-srcstorepass", PASSWORD,
            "-srcalias", alias, "-destkeystore", folder / name, "-deststoretype", kind,
            "-deststorepass", PASSWORD, "-destkeypass", key_password, "-noprompt",
        )  # fmt: skip
        return JavaStore(folder / name, key, chain, key_password)

    stores = {
        "RSA": made("rsa.jks", key_type=trustme.KeyType.RSA),
        "two passwords": made("two.jks", key_password="another"),
        "several keys": made("several.jks"),
        "PKCS12": made("client.jks", "PKCS12"),
        "JCEKS": made("client.jceks", "JCEKS"),
    }
    made("several.jks", alias="bob")
    certificate = folder / "ca.pem"
    authority.cert_pem.write_to_path(str(certificate))
    trusted = write_trust_store(certificate, folder / "trust.jks", "JKS", PASSWORD)
    stores["no key"] = replace(stores["RSA"], path=trusted)
    write_trust_store(certificate, stores["RSA"].path, "JKS", PASSWORD)  # beside the key
    return stores


def jks_settings(path, password=PASSWORD, **more):
    return {
        "security.protocol": "SSL",
        "ssl.keystore.location": str(path),
        "ssl.keystore.password": password,
        **{name.replace("_", "."): value for name, value in more.items()},
    }


def jks_rejection(settings):
    with pytest.raises(InvalidOption) as raised:
        complete_client_settings(translate(settings))
    message = str(raised.value)
    assert PASSWORD not in message
    return message


@pytest.mark.parametrize("name", ["RSA", "two passwords"])
def test_the_client_gets_the_key_and_the_chain_of_a_jks_store(java_stores, name):
    store = java_stores[name]
    more = {"ssl_key_password": store.key_password} if name == "two passwords" else {}
    client = complete_client_settings(translate(jks_settings(store.path, **more)))
    key = load_pem_private_key(client["ssl.key.pem"].encode(), None)
    assert key.private_numbers() == store.key.private_numbers()
    assert load_pem_x509_certificates(client["ssl.certificate.pem"].encode()) == store.chain
    assert isinstance(client["ssl.key.pem"], Secret)
    assert not {name for name in client if "keystore" in name or "password" in name}
    Session(Client, client).client.close(Deadline(5))


def test_a_store_of_type_jks_may_be_pkcs12_as_in_java(java_stores):
    path = java_stores["PKCS12"].path
    client = complete_client_settings(translate(jks_settings(path)))
    assert client["ssl.keystore.location"] == str(path)
    assert "ssl.keystore.type" not in client
    Session(Client, client).client.close(Deadline(5))


@pytest.mark.parametrize(
    ("name", "password", "reason"),
    [
        ("RSA", "wrong", "its password is wrong, or the file is damaged"),
        ("two passwords", PASSWORD, "the password of its private key is wrong"),
        ("several keys", PASSWORD, "it has several private keys: alice, bob"),
        ("JCEKS", PASSWORD, "it is JCEKS"),
        ("no key", PASSWORD, "it has no private key"),
    ],
)
def test_an_unusable_jks_store_is_rejected_with_the_reason(java_stores, name, password, reason):
    path = java_stores[name].path
    message = jks_rejection(jks_settings(path, password))
    start = f"kafka.ssl.keystore.location={path} cannot be read as JKS on the driver: "
    assert message.startswith(f"{start}{reason}. Correct ")
    assert f"keytool -importkeystore -srckeystore {path} -srcstoretype JKS" in message


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("other.pem", "it is neither JKS nor PKCS12"),
        ("none.jks", "No such file or directory"),
        ("", "Is a directory"),
    ],
)
def test_a_file_that_is_no_jks_store_is_rejected_with_the_reason(files, name, reason):
    assert f"on the driver: {reason}. Correct " in jks_rejection(jks_settings(files / name))


def test_a_jks_store_that_is_cut_is_rejected(java_stores, tmp_path):
    content = java_stores["two passwords"].path.read_bytes()
    cut = tmp_path / "cut.jks"
    for end in range(0, len(content), 97):
        cut.write_bytes(content[:end])
        message = jks_rejection(jks_settings(cut))
        assert re.search("or the file is damaged|neither JKS nor", message)


def test_the_command_for_several_keys_makes_a_store_of_one(java_stores, tmp_path):
    message = jks_rejection(jks_settings(java_stores["several keys"].path))
    command = re.search(r"keytool (-importkeystore [^;]*);", message)[1]
    words = [str(tmp_path / word) if word == "store.p12" else word for word in shlex.split(command)]
    passwords = ("-srcstorepass", PASSWORD, "-deststorepass", PASSWORD)
    keytool(*words, "-srcalias", "bob", *passwords)
    opened(tmp_path, "store.p12", keystore=PASSWORD)


def test_no_failure_shows_the_passwords_of_a_jks_store_even_with_local_variables(java_stores):
    settings = translate(jks_settings(java_stores["several keys"].path))
    with pytest.raises(InvalidOption) as raised:
        complete_client_settings(settings)
    # The first entry is this function.
    error = raised.value.with_traceback(raised.tb.tb_next)
    lines = traceback.TracebackException.from_exception(error, capture_locals=True).format()
    text = "".join(lines)
    assert "[hidden]" in text
    for shown in (PASSWORD, str(PASSWORD.encode("utf-16-be"))):
        assert shown not in text


def test_a_jks_store_beside_a_key_as_text_is_rejected(java_stores):
    settings = jks_settings(java_stores["RSA"].path, ssl_keystore_key="k")
    message = jks_rejection(settings)
    assert message == "kafka.ssl.keystore.location and kafka.ssl.keystore.key: keep one"


def test_a_key_that_is_protected_in_an_unknown_way_has_a_name():
    with pytest.raises(ValueError, match=r"protected in an unknown way"):
        _unprotected(_PROTECTION + b"\x04", b"")


def opened(files, name, kind="PKCS12", **passwords):
    settings = {
        "security.protocol": "SSL",
        "ssl.keystore.type": kind,
        "ssl.keystore.location": str(files / name),
        **{f"ssl.{store}.password": value for store, value in passwords.items()},
    }
    Session(Client, translate(settings)).client.close(Deadline(5))


def rejection(files, name, kind="PKCS12", **passwords):
    with pytest.raises(InvalidOption) as raised:
        opened(files, name, kind, **passwords)
    message = str(raised.value)
    assert PASSWORD not in message
    assert message.startswith("the Kafka client rejects its settings: ")
    return message


@pytest.mark.parametrize(
    ("name", "kind", "passwords"),
    [
        ("new.p12", "PKCS12", {"keystore": PASSWORD}),
        ("des.p12", "PKCS12", {"keystore": PASSWORD}),
        ("plain.pem", "PEM", {}),
        ("encrypted.pem", "PEM", {"key": PASSWORD}),
    ],
)
def test_a_good_store_is_read(files, name, kind, passwords):
    opened(files, name, kind, **passwords)


@pytest.mark.parametrize(
    ("name", "kind", "passwords", "advice"),
    [
        ("new.p12", "PKCS12", {"keystore": "x"}, r"Correct kafka\.ssl\.keystore\.password$"),
        ("java_8.p12", "PKCS12", {"keystore": "x"}, r"Correct kafka\.ssl\.keystore\.password$"),
        ("des.p12", "PKCS12", {"keystore": ""}, r"Correct kafka\.ssl\.keystore\.password$"),
        ("java_8.p12", "PKCS12", {"keystore": PASSWORD}, "Convert the key store once"),
        ("plain.pem", "PKCS12", {"keystore": PASSWORD}, r"or set kafka\.ssl\.keystore\.type$"),
        ("none.p12", "PKCS12", {"keystore": PASSWORD}, "keystore.location: /.*/none.p12"),
        ("encrypted.pem", "PEM", {}, r"Correct kafka\.ssl\.key\.password"),
        ("encrypted.pem", "PEM", {"key": "x"}, r"Correct kafka\.ssl\.key\.password"),
        ("new.p12", "PEM", {"key": PASSWORD}, r"or kafka\.ssl\.keystore\.type$"),
        ("other.pem", "PEM", {}, r"or kafka\.ssl\.keystore\.type$"),
    ],
)
def test_a_store_that_the_client_cannot_read_is_rejected(files, name, kind, passwords, advice):
    assert re.search(advice, rejection(files, name, kind, **passwords))


def test_both_commands_convert_a_store_of_java_8(files, tmp_path):
    message = rejection(files, "java_8.p12", keystore=PASSWORD)
    of_java = re.search(r"keytool (-importkeystore [^;]*);", message)[1]
    of_openssl = re.search(r"openssl pkcs12 [^;]*;", message)[0].rstrip(";")
    shutil.copy(files / "java_8.p12", tmp_path / "store.p12")
    paths = {name: str(tmp_path / name) for name in ("store.p12", "new.p12")}
    words = [paths.get(word, word) for word in shlex.split(of_java)]
    keytool(*words, "-srcstorepass", PASSWORD, "-deststorepass", PASSWORD)
    opened(tmp_path, "new.p12", keystore=PASSWORD)
    words = [*shlex.split(of_openssl), "-passin", f"pass:{PASSWORD}"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    opened(tmp_path, "store.pem", "PEM")


def test_an_encrypted_key_as_text_is_checked_on_the_driver(files):
    text = (files / "encrypted.pem").read_text()
    settings = {
        "security.protocol": "SSL",
        "ssl.keystore.key": text,
        "ssl.keystore.certificate.chain": text,
    }
    options = {f"kafka.{name}": value for name, value in settings.items()}
    options["kafka.bootstrap.servers"] = "a:1"
    read_options(options | {"kafka.ssl.key.password": PASSWORD})
    for password in ({}, {"kafka.ssl.key.password": "x"}):
        with pytest.raises(InvalidOption, match=r"Correct kafka\.ssl\.key\.password"):
            read_options(options | password)
