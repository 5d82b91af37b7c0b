"""Passwords, certificates and rights that change under a cached producer, in mid-stream."""

from __future__ import annotations

import time

import pytest
import trustme
from acls import Acls
from certificates import write_pem
from confluent_kafka.admin import (
    AclOperation,
    AdminClient,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from local_cluster import LocalCluster, Security
from restarted_stream import EXACTLY_ONCE, FOREACH_BATCH, FORMAT, SECONDS, RestartedStream
from topics import Topics

from spark_kafka_sink.deadline import Deadline

REAUTHENTICATION_MS = 2000
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"

pytestmark = pytest.mark.slow


@pytest.fixture
def stream(spark, tmp_path, api):
    stream = RestartedStream(spark, tmp_path, api)
    yield stream
    stream.stop()


def values(kafka, topic):
    return sorted(value.decode() for value in kafka.topics.read_committed(topic))


# --- passwords ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def reauthenticating():
    """Brokers that ask for the password again and again on a connection (KIP-368)."""
    settings = {"connections.max.reauth.ms": str(REAUTHENTICATION_MS)}
    with LocalCluster(settings=settings, security=Security(users={"alice": "first"})) as kafka:
        kafka.topics = Topics(kafka.internal_servers)
        yield kafka


def scram(kafka, topic, password):
    login = f'username="alice" password="{password}"'
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f"{SCRAM_MODULE} required {login};",
        "topic": topic,
    }


def set_password(kafka, password):
    admin = AdminClient({"bootstrap.servers": kafka.internal_servers, "log_level": 2})
    how = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    new = UserScramCredentialUpsertion("alice", how, password.encode())
    for future in admin.alter_user_scram_credentials([new]).values():
        future.result(30)


@pytest.mark.parametrize("api", [EXACTLY_ONCE])
def test_a_query_fails_by_name_when_its_password_changes_and_goes_on(reauthenticating, stream, api):
    topic, words = reauthenticating.topics.create(), []
    set_password(reauthenticating, "first")

    def write():
        words.append(f"word-{len(words)}")
        stream.write(words[-1])

    def write_until_it_fails():
        deadline = Deadline(SECONDS)
        while not deadline.expired:
            write()

    stream.start(scram(reauthenticating, topic, "first"))
    write()
    time.sleep(2 * REAUTHENTICATION_MS / 1000)  # the producer logs in again, while it is idle
    write()
    set_password(reauthenticating, "second")
    error = stream.error(write_until_it_fails)
    assert error.startswith(("DeadlineExceeded: ", "AuthenticationFailed: "))
    assert "reject the login" in error
    assert "kafka.sasl.*" in error
    assert '"first"' not in error
    stream.start(scram(reauthenticating, topic, "second"))
    write()
    assert values(reauthenticating, topic) == sorted(words)


# --- rights ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def mutual_tls(authority, tmp_path_factory):
    """Users are what their certificates say, and may do nothing without a rule."""
    folder = tmp_path_factory.mktemp("mutual-tls")
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    broker = write_pem(authority.issue_cert("127.0.0.1"), folder / "broker.pem")
    security = Security(broker, client_ca=folder / "ca.pem")
    settings = {
        "allow.everyone.if.no.acl.found": "false",
        "ssl.principal.mapping.rules": "RULE:^.*CN=([^,]*).*$/$1/",
    }
    with LocalCluster(settings=settings, security=security) as kafka:
        kafka.topics, kafka.acls = Topics(kafka.internal_servers), Acls(kafka.internal_servers)
        for user in ("alice", "bob"):
            for kind in (ResourceType.TRANSACTIONAL_ID, ResourceType.GROUP):
                kafka.acls.allow(user, "*", AclOperation.ALL, kind=kind)
        kafka.acls.allow("alice", "*", AclOperation.READ)
        kafka.acls.allow("bob", "*", AclOperation.READ)
        kafka.authority, kafka.certificate, kafka.ca = authority, broker, folder / "ca.pem"
        yield kafka


def certificate(kafka, user, path):
    leaf = kafka.authority.issue_cert(f"{user}@example.org", common_name=user)
    return write_pem(leaf, path)


def tls(kafka, topic, key_store):
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.ca),
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.location": str(key_store),
        "topic": topic,
    }


@pytest.fixture
def alice(mutual_tls, tmp_path):
    """A topic that she may write to, the options to do it, and the file with her certificate."""
    topic = mutual_tls.topics.create()
    mutual_tls.acls.allow("alice", topic, AclOperation.WRITE)
    path = certificate(mutual_tls, "alice", tmp_path / "client.pem")
    return topic, tls(mutual_tls, topic, path), path


@pytest.mark.parametrize("api", [FOREACH_BATCH])
def test_a_query_without_its_right_goes_on_when_it_has_it_again(mutual_tls, alice, stream, api):
    topic, options, _ = alice
    stream.start(options)
    stream.write("before")
    mutual_tls.acls.take_away("alice", topic, AclOperation.WRITE)
    error = stream.error(lambda: stream.write("rejected"))
    # Spark may choose a worker whose producer is new: brokers then reject it a producer id.
    assert "TOPIC_AUTHORIZATION_FAILED" in error or "Cluster authorization failed" in error
    assert "Grant this user" in error
    mutual_tls.acls.allow("alice", topic, AclOperation.WRITE)
    stream.start(options)
    stream.write("after")
    assert values(mutual_tls, topic) == ["after", "before", "rejected"]


# --- certificates ---------------------------------------------------------------------------------


@pytest.mark.parametrize("api", [FOREACH_BATCH, EXACTLY_ONCE])
def test_a_replaced_certificate_is_used_by_the_next_micro_batch(mutual_tls, alice, stream, api):
    topic, options, path = alice
    stream.start(options)
    stream.write("as alice")
    certificate(mutual_tls, "bob", path)
    mutual_tls.acls.allow("bob", topic, AclOperation.WRITE)
    mutual_tls.acls.take_away("alice", topic, AclOperation.WRITE)
    stream.write("as bob")
    assert values(mutual_tls, topic) == ["as alice", "as bob"]


@pytest.mark.parametrize("api", [FORMAT])
def test_brokers_with_a_certificate_of_another_authority_end_the_query_until_they_have_their_own(
    mutual_tls, alice, stream, api
):
    topic, options, _ = alice
    stream.start(options)
    stream.write("before")
    own = mutual_tls.certificate.read_text()
    try:
        write_pem(trustme.CA().issue_cert("127.0.0.1"), mutual_tls.certificate)
        mutual_tls.restart(1)
        error = stream.error(lambda: stream.write("rejected"))
        # Which one depends on what a task knows of the topic, and on when a connection is rejected.
        names = ("AuthenticationFailed: ", "DeadlineExceeded: ", "MetadataTimeout: ")
        assert error.startswith(names)
        assert "certificate" in error
    finally:
        mutual_tls.certificate.write_text(own)
        mutual_tls.restart(1)
    stream.start(options)
    stream.write("after")
    assert values(mutual_tls, topic) == ["after", "before", "rejected"]
