"""A KDC, two brokers that log in with it, and Spark's executors in processes of their own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from certificates import write_pem
from realm import KerberosCluster, Realm, javas_configuration
from standalone import standalone_cluster

from spark_kafka_sink.librdkafka import build

TICKET_SECONDS = 60


@pytest.fixture(scope="session")
def realm() -> Iterator[Realm]:
    if "sasl_gssapi" not in build.features():
        pytest.skip("this librdkafka has no Kerberos; make test-kerberos builds one")
    with (
        tempfile.TemporaryDirectory() as folder,
        Realm(Path(folder), TICKET_SECONDS) as realm,
        javas_configuration(realm),
    ):
        yield realm


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="session")
def plaintext(realm: Realm) -> Iterator[KerberosCluster]:
    with KerberosCluster(realm) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def tls(realm: Realm, authority: trustme.CA, tmp_path_factory) -> Iterator[KerberosCluster]:
    folder = tmp_path_factory.mktemp("certificates")
    certificate = write_pem(authority.issue_cert("localhost"), folder / "broker.pem")
    with KerberosCluster(realm, certificate) as kafka:
        yield kafka


@pytest.fixture(scope="session")
def master(tmp_path_factory) -> Iterator[str]:
    with standalone_cluster(tmp_path_factory.mktemp("cluster"), ["127.0.0.1", "127.0.0.2"]) as url:
        yield url
