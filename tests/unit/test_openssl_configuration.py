"""An OpenSSL that a machine configures so that it can do nothing is no option's fault."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import trustme
from another_python import run_python

import spark_kafka_sink
from spark_kafka_sink.clients.session import Session
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.errors import KafkaSinkError, LibraryUnavailable
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.schemas.registry_client import RegistryClient

KAFKA = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}
REGISTRY = {"value.format": "avro", "schema.registry.url": "https://127.0.0.1:1"}
PROVIDERS = """openssl_conf = init
[init]
providers = provided
alg_section = algorithms
[provided]
{0} = section
[section]
activate = 1
[algorithms]
default_properties = {1}
"""
LEVEL = """openssl_conf = init
[init]
ssl_conf = section
[section]
system_default = defaults
[defaults]
CipherString = DEFAULT:@SECLEVEL=5
"""

# Each line: an error and its text. The first is the sink's, the second that of preflight.
PROGRAM = """
import sys
from spark_kafka_sink.driver import preflight
from spark_kafka_sink.driver.options import read_options
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.schemas.registry_client import RegistryClient
from spark_kafka_sink.tools.doctor import diagnose
kafka = {"kafka.bootstrap.servers": sys.argv[1], "topic": "t", "kafka.security.protocol": "SSL",
         "kafka.enable.ssl.certificate.verification": "false"}
registry = {"value.format": "avro", "schema.registry.url": "https://127.0.0.1:1"}
for act in (
    lambda: preflight.authenticated(read_options(kafka)).__enter__(),
    lambda: RegistryClient(parse({**kafka, **registry}).serialization.registry),
):
    try:
        act()
    except KafkaSinkError as error:
        print(f"{type(error).__name__}: {error}")
for result in diagnose(kafka, timeout_seconds=20):
    if result.outcome.value == "failed":
        print(f"{result.name}: {result.message}. {result.advice}")
"""


@pytest.fixture(scope="module")
def tls_server():
    """Shakes hands, and hangs up."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost", "127.0.0.1").configure_cert(context)
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):  # the listener is closed
            while True:
                connection, _ = listener.accept()
                with suppress(OSError), context.wrap_socket(connection, server_side=True):
                    pass

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            PROVIDERS.format("fips", "fips=yes"),
            "LibraryUnavailable: the Kafka client cannot set up",
        ),
        (
            PROVIDERS.format("default", "fips=yes"),
            "LibraryUnavailable: the Kafka client cannot set",
        ),
        (PROVIDERS.format("legacy", ""), "LibraryUnavailable: the Kafka client cannot set up TLS"),
        (LEVEL, "AuthenticationFailed: no TLS connection to 127.0.0.1"),
    ],
    ids=["fips", "default", "legacy", "level"],
)
def test_the_variable_that_configures_openssl_is_named(tmp_path, tls_server, text, error):
    file = tmp_path / "openssl.cnf"
    file.write_text(text)
    path = str(Path(spark_kafka_sink.__file__).parents[1])
    variables = os.environ | {"PYTHONPATH": path, "OPENSSL_CONF": str(file)}
    done = run_python("-c", PROGRAM, tls_server, env=variables, check=False)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith(error)
    assert len(lines) >= 2
    for line in lines:
        assert f"OPENSSL_CONF={file}" in line, line
        assert "orrect the option" not in line
        assert "preflight=false" not in line


def test_a_variable_that_names_no_certificates_is_named(tmp_path, monkeypatch):
    file = tmp_path / "authorities.pem"
    file.write_text("none")
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    with pytest.raises(KafkaSinkError) as kafkas:
        Session(Client, parse({**KAFKA, "kafka.security.protocol": "SSL"}).producer.client)
    with pytest.raises(LibraryUnavailable) as registrys:
        RegistryClient(parse({**KAFKA, **REGISTRY}).serialization.registry)
    for caught in (kafkas, registrys):
        assert f"SSL_CERT_FILE={file}" in str(caught.value)
        assert "orrect SSL_CERT_FILE" in str(caught.value)
