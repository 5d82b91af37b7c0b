"""Trust stores as they are, with a stand-in for Java that prints what keytool would."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from spark_kafka_sink.config.client_settings import translate
from spark_kafka_sink.driver.options import complete_client_settings
from spark_kafka_sink.errors import InvalidOption

TRUSTED = """
Alias name: an alias
Creation date: Nov 22, 2026
Entry type: trustedCertEntry

-----BEGIN CERTIFICATE-----
{}
-----END CERTIFICATE-----


*******************************************
"""
KEY = """
Alias name: a key
Creation date: Nov 22, 2026
Entry type: PrivateKeyEntry
Certificate chain length: 2
Certificate[1]:
-----BEGIN CERTIFICATE-----
{}
-----END CERTIFICATE-----
Certificate[2]:
-----BEGIN CERTIFICATE-----
ABSENT
-----END CERTIFICATE-----
"""
PASSWORD = "hunter2"
JAVA = """#!{python}
import json, os, pathlib, sys
if "-m" in sys.argv:
    sys.exit("Unrecognized option: -m")  # Java 8
if "-version" in sys.argv:
    sys.exit(print('openjdk version "17.0.1"', file=sys.stderr))
variable = sys.argv[sys.argv.index("-storepass:env") + 1] if "-storepass:env" in sys.argv else ""
calls = pathlib.Path({calls!r})
before = json.loads(calls.read_text()) if calls.exists() else []
calls.write_text(json.dumps([*before, [sys.argv, os.environ.get(variable)]]))
print({output!r})
sys.exit({exit_code})
"""


TLS = {"security.protocol": "SSL"}


@pytest.fixture
def java(tmp_path, monkeypatch):
    """Installs a Java with that output; returns a function for arguments and passwords so far."""

    def install(output, exit_code=0):
        calls = tmp_path / "calls"
        executable = tmp_path / "bin" / "java"
        executable.parent.mkdir(exist_ok=True)
        script = JAVA.format(
            python=sys.executable, calls=str(calls), output=output, exit_code=exit_code
        )
        executable.write_text(script)
        executable.chmod(0o755)
        return lambda: json.loads(calls.read_text()) if calls.exists() else []

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    return install


@pytest.fixture
def store(tmp_path):
    """Settings for a store whose name has a space."""
    path = tmp_path / "trust store.jks"
    path.write_text("1")
    return {**TLS, "ssl.truststore.location": str(path), "ssl.truststore.password": PASSWORD}


def pem(settings):
    return complete_client_settings(translate(settings))["ssl.ca.pem"]


def rejection(settings):
    with pytest.raises(InvalidOption) as raised:
        complete_client_settings(translate(settings))
    assert PASSWORD not in str(raised.value)
    return str(raised.value)


def test_every_entry_is_trusted_by_its_first_certificate_as_in_java(java, store):
    java(TRUSTED.format("QUJD") + KEY.format("REVG"))
    assert [line for line in pem(store).splitlines() if line and "-" not in line] == [
        "QUJD",
        "REVG",
    ]


def test_the_store_is_read_again_only_if_it_changes(java, store):
    calls = java(TRUSTED.format("QUJD"))
    assert pem(store) == pem(store)
    assert len(calls()) == 1
    Path(store["ssl.truststore.location"]).write_text("22")
    java(TRUSTED.format("REVG"))
    assert "REVG" in pem(store)


def test_the_password_stays_on_the_driver_and_is_no_argument_of_a_process(java, store):
    calls = java(TRUSTED.format("QUJD"))
    assert PASSWORD not in complete_client_settings(translate(store)).values()
    ((arguments, password),) = calls()
    assert PASSWORD not in " ".join(arguments)
    assert password == PASSWORD


def test_a_store_without_a_password_is_read_without_one(java, store):
    calls = java(TRUSTED.format("QUJD"))
    del store["ssl.truststore.password"]
    pem(store)
    assert calls()[0][1] is None


@pytest.mark.parametrize(
    ("type_", "kind"), [({}, "JKS"), ({"ssl.truststore.type": "pkcs12"}, "PKCS12")]
)
def test_java_gets_the_type_that_the_options_name(java, store, type_, kind):
    calls = java(TRUSTED.format("QUJD"))
    pem(store | type_)
    arguments = calls()[0][0]
    assert arguments[arguments.index("-storetype") + 1] == kind


def test_a_pem_file_stays_a_file(java):
    calls = java("")
    client = translate({**TLS, "ssl.truststore.location": "/ca.pem", "ssl.truststore.type": "PEM"})
    assert client["ssl.ca.location"] == "/ca.pem"
    assert calls() == []


def conversion(settings):
    location = settings["ssl.truststore.location"]
    return f"keytool -list -rfc -keystore '{location}' -storetype JKS > store.pem; then set kafka."


@pytest.mark.parametrize(
    ("output", "exit_code", "reason"),
    [
        (
            "keytool error: java.io.IOException: Keystore was tampered with, or so",
            1,
            "Keystore was tampered with, or so",
        ),
        ("a crash", 134, "keytool failed"),
        ("Your keystore contains 0 entries", 0, "it has no certificate"),
    ],
)
def test_a_store_that_java_cannot_read_is_rejected_with_the_command_that_converts_it(
    java, store, output, exit_code, reason
):
    java(output, exit_code)
    message = rejection(store)
    assert message.startswith(f"kafka.ssl.truststore.location={store['ssl.truststore.location']}")
    assert f"Java: {reason}" in message
    assert conversion(store) in message


def test_without_java_the_command_that_converts_a_store_is_named_too(store, tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    message = rejection(store)
    assert "there is none: neither JAVA_HOME nor java on the PATH" in message
    assert conversion(store) in message
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "Java: keytool: No such file" in rejection(store)


@pytest.mark.parametrize(
    ("location", "reason"), [("/none.jks", "No such file"), ("/tmp", "it is not a file")]
)
def test_a_store_that_is_not_there_is_named(location, reason):
    message = rejection({**TLS, "ssl.truststore.location": location})
    assert f"location={location} cannot be read as JKS with the driver's Java: {reason}" in message


@pytest.mark.parametrize("other", ["ssl.truststore.certificates", "ssl.ca.pem", "ssl.ca.location"])
@pytest.mark.parametrize("kind", ["JKS", "PEM"])
def test_two_kinds_of_trust_are_rejected(store, other, kind):
    settings = store | {other: "x", "ssl.truststore.type": kind}
    assert "keep one" in rejection(settings)
