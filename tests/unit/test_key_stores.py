"""Key stores as real files, which the client opens or rejects with the way out."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess

import pytest
import trustme
from certificates import keytool, write_pem, write_pkcs12

from spark_kafka_sink.config.client_settings import translate
from spark_kafka_sink.connection.driver_options import read_options
from spark_kafka_sink.connection.session import Session
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.librdkafka.client import Client

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
def test_a_store_that_the_client_cannot_read_is_rejected_with_the_way_out(
    files, name, kind, passwords, advice
):
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
