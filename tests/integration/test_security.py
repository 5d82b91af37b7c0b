"""Secured brokers: every way to log in, and what is said when it or a right is missing."""

from __future__ import annotations

import re
import shutil
import ssl
import time
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import doctor_results
import exactly_once_task
import pyarrow as pa
import pytest
import streams
import trustme
from acls import Acls
from certificates import (
    chain_pem,
    key_pem,
    write_jks,
    write_listing,
    write_pem,
    write_pkcs12,
    write_trust_store,
)
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType
from http_stub import served
from local_cluster import LocalCluster, Security
from topics import Topics

from spark_kafka_sink.driver import exactly_once_check, inquirer
from spark_kafka_sink.driver.options import read_options
from spark_kafka_sink.driver.preflight import check
from spark_kafka_sink.errors import InvalidOption, TransactionFailed
from spark_kafka_sink.spark.micro_batch import write_batch_marker
from spark_kafka_sink.spark.task import write_partition
from spark_kafka_sink.tools.doctor import Outcome

FEW = 5  # attempts
AT_ONCE_SECONDS = 15.0  # Spark's own start included; a budget would be 30 s or 60 s
examined = partial(doctor_results.examined, secret="password-of")
# Java keeps white space in them; librdkafka's rd_kafka_conf_set does not.
USERS = {"alice": " password-of-alice", "bob": "password-of-bob"}
KEY_PASSWORD = "password-of-the-key"
STORE_PASSWORD = "password-of-the-store"
LOGIN = "org.apache.kafka.common.security"
# Like most clusters in production, and unlike LocalKafka's default.
ONLY_WITH_ACL = {"allow.everyone.if.no.acl.found": "false"}


class Store:
    """Certificates in a folder, and what clients need of them: files, and PEM as text."""

    def __init__(self, folder):
        self._folder = folder
        brokers, self._clients, other = trustme.CA(), trustme.CA(), trustme.CA()
        self.ca_text = brokers.cert_pem.bytes().decode()
        self.ca = self._written("ca.pem", brokers)
        self.other_ca = self._written("other-ca.pem", other)
        self.client_ca = self._written("client-ca.pem", self._clients)
        self.jks = self._trust_store("trust.jks", "JKS")
        self.listing = write_listing(self.jks, folder / "trust.pem", "JKS", STORE_PASSWORD)
        self.trust_pkcs12 = self._trust_store("trust.p12", "PKCS12")
        self.broker = write_pem(brokers.issue_cert("127.0.0.1"), folder / "broker.pem")
        yesterday = datetime.now(timezone.utc) - timedelta(days=1)
        past = {"not_before": yesterday - timedelta(days=1), "not_after": yesterday}
        expired = brokers.issue_cert("127.0.0.1", **past)
        self.expired_broker = write_pem(expired, folder / "expired-broker.pem")
        alice = self._clients.issue_cert("alice@example.org", common_name="alice")
        self.key, self.locked_key = key_pem(alice), key_pem(alice, KEY_PASSWORD)
        self.chain = chain_pem(alice)
        self.client = write_pem(alice, folder / "client.pem")
        self.locked_client = write_pem(alice, folder / "locked-client.pem", KEY_PASSWORD)
        self.pkcs12 = write_pkcs12(alice, folder / "client.p12", KEY_PASSWORD)
        self.key_jks = write_jks(self.pkcs12, folder / "client.jks", KEY_PASSWORD)
        self.pkcs12_named_jks = shutil.copy(self.pkcs12, folder / "pkcs12.jks")
        self.expired_client = write_pem(
            self._clients.issue_cert("alice@example.org", common_name="alice", **past),
            folder / "expired-client.pem",
        )
        self.other_client = write_pem(
            other.issue_cert("alice@example.org", common_name="alice"), folder / "other-client.pem"
        )

    def _written(self, name, authority):
        path = self._folder / name
        authority.cert_pem.write_to_path(str(path))
        return path

    def _trust_store(self, name, kind):
        return write_trust_store(self.ca, self._folder / name, kind, STORE_PASSWORD)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return Store(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def sasl_ssl(store):
    """TLS and logins. Alice may write to all topics, Bob to none."""
    with LocalCluster(settings=ONLY_WITH_ACL, security=Security(store.broker, USERS)) as kafka:
        yield ready(kafka)


@pytest.fixture(scope="module")
def sasl_plaintext():
    with LocalCluster(settings=ONLY_WITH_ACL, security=Security(users=USERS)) as kafka:
        yield ready(kafka)


@pytest.fixture(scope="module")
def mutual_tls(store):
    security = Security(store.broker, client_ca=store.client_ca)
    names = {"ssl.principal.mapping.rules": "RULE:^.*CN=([^,]*).*$/$1/"}
    with LocalCluster(settings=ONLY_WITH_ACL | names, security=security) as kafka:
        yield ready(kafka)


def ready(kafka):
    kafka.acls = Acls(kafka.internal_servers)
    kafka.acls.allow("alice", "*", AclOperation.ALL)
    return kafka


@pytest.fixture
def topics(request):
    """Topics of a broker, by the name of its fixture."""
    made = []

    def topics(name):
        made.append(Topics(request.getfixturevalue(name).internal_servers))
        return made[-1]

    yield topics
    for broker_topics in made:
        broker_topics.close()


def jaas(module, user="alice", password=None, quote='"'):
    word = USERS.get(user, "unknown") if password is None else password
    login = f"username={quote}{user}{quote} password={quote}{word}{quote}"
    return f"{LOGIN}.{module} required {login};"


def scram(**login):
    return {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas("scram.ScramLoginModule", **login),
    }


def plain(**login):
    return {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas("plain.PlainLoginModule", **login)}


def trusting(path):
    return {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(path)}


def trusting_store(path, password=STORE_PASSWORD, **more):
    return {"ssl.truststore.location": str(path), "ssl.truststore.password": password, **more}


def trusting_text(text):
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": text}


def key_file(path, kind="PEM", **more):
    return {"ssl.keystore.type": kind, "ssl.keystore.location": str(path), **more}


def key_text(key, chain):
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": key,
        "ssl.keystore.certificate.chain": chain,
    }


def join_lines(pem):
    """As it arrives from an environment variable or a YAML file."""
    return " ".join(pem.split("\n"))


LOCKED = {"ssl.key.password": KEY_PASSWORD}
PKCS12 = {"ssl.keystore.password": KEY_PASSWORD}
UNCHECKED = {"ssl.endpoint.identification.algorithm": ""}

#: what Java takes: name, broker, and the settings for a Store
CONFIGURATIONS = {
    "SCRAM, PEM file": ("sasl_ssl", lambda s: scram() | trusting(s.ca)),
    "SCRAM, PEM text": ("sasl_ssl", lambda s: scram(quote="'") | trusting_text(s.ca_text)),
    "PLAIN, PEM file": ("sasl_ssl", lambda s: plain() | trusting(s.ca)),
    "PLAIN, PEM on one line": (
        "sasl_ssl",
        lambda s: plain() | trusting_text(join_lines(s.ca_text)),
    ),
    "SCRAM, JKS trust store": ("sasl_ssl", lambda s: scram() | trusting_store(s.jks)),
    "JKS trust store without its password": (
        "sasl_ssl",
        lambda s: scram() | {"ssl.truststore.location": str(s.jks)},
    ),
    "JKS trust store, converted as its error says": (
        "sasl_ssl",
        lambda s: scram() | trusting(s.listing),
    ),
    "PKCS12 trust store": (
        "sasl_ssl",
        lambda s: scram() | trusting_store(s.trust_pkcs12, **{"ssl.truststore.type": "PKCS12"}),
    ),
    "PKCS12 trust store without its type": (
        "sasl_ssl",
        lambda s: scram() | trusting_store(s.trust_pkcs12),
    ),
    "JKS trust store and PKCS12 key store": (
        "mutual_tls",
        lambda s: trusting_store(s.jks) | key_file(s.pkcs12, "PKCS12") | PKCS12 | LOCKED,
    ),
    "no check of the host name": (
        "sasl_ssl",
        lambda s: scram() | trusting(s.ca) | UNCHECKED | {"bootstrap.servers": "localhost"},
    ),
    "SCRAM without TLS": ("sasl_plaintext", lambda s: scram()),
    "PLAIN without TLS": ("sasl_plaintext", lambda s: plain()),
    "PLAIN with the login module of SCRAM": (
        "sasl_plaintext",
        lambda s: plain() | {"sasl.jaas.config": jaas("scram.ScramLoginModule")},
    ),
    "options that the login module ignores": (
        "sasl_plaintext",
        lambda s: (
            scram()
            | {
                "sasl.jaas.config": jaas("scram.ScramLoginModule").replace(
                    ";", " tokenauth='false' serviceName=kafka user_schema-registry=\"s\";"
                )
            }
        ),
    ),
    "PEM key store": ("mutual_tls", lambda s: trusting(s.ca) | key_file(s.client)),
    "PEM key store with a password": (
        "mutual_tls",
        lambda s: trusting(s.ca) | key_file(s.locked_client) | LOCKED,
    ),
    "PEM key as text": ("mutual_tls", lambda s: trusting(s.ca) | key_text(s.key, s.chain)),
    "PEM key on one line, with a password": (
        "mutual_tls",
        lambda s: (
            trusting_text(join_lines(s.ca_text))
            | key_text(join_lines(s.locked_key), join_lines(s.chain))
            | LOCKED
        ),
    ),
    "PKCS12 key store": (
        "mutual_tls",
        lambda s: trusting(s.ca) | key_file(s.pkcs12, "PKCS12") | PKCS12 | LOCKED,
    ),
    "PKCS12 key store without its type": (
        "mutual_tls",
        lambda s: trusting(s.ca) | {"ssl.keystore.location": str(s.pkcs12)} | PKCS12 | LOCKED,
    ),
    "JKS key store": (
        "mutual_tls",
        lambda s: trusting(s.ca) | {"ssl.keystore.location": str(s.key_jks)} | PKCS12,
    ),
    "JKS key store that is PKCS12": (
        "mutual_tls",
        lambda s: trusting_store(s.jks) | key_file(s.pkcs12_named_jks, "JKS") | PKCS12 | LOCKED,
    ),
}
#: of each kind one, to see that Spark's own sink takes it too
THROUGH_SPARK = {
    "SCRAM, PEM file",
    "SCRAM, JKS trust store",
    "PLAIN with the login module of SCRAM",
    "options that the login module ignores",
    "PKCS12 key store",
    "JKS key store",
}
PROTOCOLS = {"sasl_ssl": "SASL_SSL", "sasl_plaintext": "SASL_PLAINTEXT", "mutual_tls": "SSL"}


def options(kafka, protocol, settings: Mapping[str, str], topic):
    """Options of the sink. ``bootstrap.servers``: the host, if not that of the certificate."""
    host = settings.get("bootstrap.servers", "127.0.0.1")
    servers = kafka.bootstrap_servers.replace("127.0.0.1", host)
    client_settings = {"security.protocol": protocol, **settings, "bootstrap.servers": servers}
    return {**{f"kafka.{name}": value for name, value in client_settings.items()}, "topic": topic}


def save(spark, sink, sink_options, value="v"):
    """Write one row in a task. ``sink``: foreach_batch, a format's name, or "no Spark"."""
    if sink == "no Spark":
        parsed = read_options(sink_options)
        check(parsed)
        write_partition([pa.record_batch({"value": [value]})], parsed)
        return
    streams.save(spark.createDataFrame([(value,)], "value string").coalesce(1), sink, sink_options)


@pytest.mark.filterwarnings("ignore:these options have no effect on this sink")
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_a_configuration_of_javas_works(spark, request, store, topics, name):
    broker, settings = CONFIGURATIONS[name]
    made = topics(broker)
    topic = made.create()
    kafka = request.getfixturevalue(broker)
    sink_options = options(kafka, PROTOCOLS[broker], settings(store), topic)
    sinks = ["kafka-nb", "kafka", "foreach_batch"] if name in THROUGH_SPARK else ["no Spark"]
    for sink in sinks:
        save(spark, sink, sink_options, value=sink)
    assert [record.value.decode() for record in made.read(topic)] == sinks


@pytest.mark.parametrize("sink", ["kafka-nb", "foreach_batch"])
def test_tasks_do_not_need_the_trust_store(spark, store, sasl_ssl, topics, tmp_path, sink):
    file = tmp_path / "trust.jks"
    shutil.copy(store.jks, file)
    made = topics("sasl_ssl")
    topic = made.create()
    sink_options = options(sasl_ssl, "SASL_SSL", scram() | trusting_store(file), topic)
    path = str(file)

    def delete_the_file(batches):
        Path(path).unlink()
        yield from batches

    rows = spark.createDataFrame([("v",)], "value string").coalesce(1)
    rows = rows.mapInArrow(delete_the_file, rows.schema)
    streams.save(rows, sink, sink_options)
    assert [record.value for record in made.read(topic)] == [b"v"]
    assert not file.exists()


@pytest.mark.parametrize("name", ["SCRAM, PEM file", "PKCS12 key store", "PEM key as text"])
def test_the_driver_learns_the_brokers_version(request, store, topics, name, monkeypatch):
    broker, settings = CONFIGURATIONS[name]
    topic = topics(broker).create()
    sink_options = options(
        request.getfixturevalue(broker), PROTOCOLS[broker], settings(store), topic
    )
    once = {"delivery.guarantee": "exactly-once", "exactly.once.partitions": "1"}
    monkeypatch.setattr(exactly_once_check, "_REQUESTS", {9: ("OffsetFetch", 99)})
    with pytest.raises(InvalidOption, match="OffsetFetch only up to version"):
        check(read_options(sink_options | once))
    monkeypatch.undo()
    check(read_options(sink_options | once))


# --- what is wrong, said by the driver ------------------------------------------------------------

REJECTED = "AuthenticationFailed: the brokers at .* reject the login: .*"
NO_TLS = "AuthenticationFailed: no TLS connection to "
NO_CERTIFICATE = rf"{NO_TLS}.*alert .*certificate.*Set or correct kafka\.ssl\.keystore"

#: name: broker, settings for a Store, and the error
MISTAKES = {
    "wrong password, SCRAM": (
        "sasl_ssl",
        lambda s: scram(password="wrong") | trusting(s.ca),
        f"{REJECTED}invalid credentials with SASL mechanism SCRAM-SHA-512",
    ),
    "unknown user, PLAIN": (
        "sasl_ssl",
        lambda s: plain(user="eve") | trusting(s.ca),
        f"{REJECTED}Invalid username or password",
    ),
    "wrong password without TLS": (
        "sasl_plaintext",
        lambda s: scram(password="wrong"),
        f"{REJECTED}invalid credentials",
    ),
    "mechanism that the brokers lack": (
        "sasl_ssl",
        lambda s: scram() | {"sasl.mechanism": "SCRAM-SHA-256"} | trusting(s.ca),
        f"{REJECTED}supported mechanisms: PLAIN,SCRAM-SHA-512",
    ),
    "wrong authority": (
        "sasl_ssl",
        lambda s: scram() | trusting(s.other_ca),
        rf"{NO_TLS}127.0.0.1:\d+: .*local issuer .*truststore\.location\)\. Add the certificate",
    ),
    "wrong password of the trust store": (
        "sasl_ssl",
        lambda s: scram() | trusting_store(s.jks, password="wrong-password"),
        r"InvalidOption: kafka\.ssl\.truststore\.location=.*password was incorrect\. Correct",
    ),
    "wrong host name": (
        "sasl_ssl",
        lambda s: scram() | trusting(s.ca) | {"bootstrap.servers": "localhost"},
        rf"{NO_TLS}localhost:\d+: .*not valid for 'localhost'. Connect with a host name that",
    ),
    "wrong password of a JKS key store": (
        "mutual_tls",
        lambda s: trusting(s.ca) | key_file(s.key_jks, "JKS", **{"ssl.keystore.password": "wrong"}),
        r"InvalidOption: kafka\.ssl\.keystore\.location=.*its password is wrong, or .* Correct",
    ),
    "no certificate": ("mutual_tls", lambda s: trusting(s.ca), NO_CERTIFICATE),
    "certificate of another authority": (
        "mutual_tls",
        lambda s: trusting(s.ca) | key_file(s.other_client),
        NO_CERTIFICATE,
    ),
    "expired certificate": (
        "mutual_tls",
        lambda s: trusting(s.ca) | key_file(s.expired_client),
        NO_CERTIFICATE,
    ),
    "no right to see the topic": (
        "sasl_ssl",
        lambda s: scram(user="bob") | trusting(s.ca),
        "TopicUnavailable: topic .*TOPIC_AUTHORIZATION_FAILED.. .*Grant this user permission",
    ),
}


def failure(call) -> str:
    """The error of a call, with its name."""
    with pytest.raises(Exception, match=r"\w") as raised:
        call()
    return f"{type(raised.value).__name__}: {raised.value}"


@pytest.mark.parametrize("name", MISTAKES)
def test_the_driver_says_at_once_what_is_wrong(request, store, topics, name, monkeypatch):
    """The driver's check, which the format and foreach_batch share."""
    # Otherwise it does not wait for the answer of busy brokers.
    monkeypatch.setattr(inquirer, "_ANSWER_SECONDS", 10.0)
    broker, settings, error = MISTAKES[name]
    topic = topics(broker).create()
    sink_options = options(
        request.getfixturevalue(broker), PROTOCOLS[broker], settings(store), topic
    )
    started = time.monotonic()
    said = failure(lambda: check(read_options(sink_options)))
    assert time.monotonic() - started < AT_ONCE_SECONDS
    assert re.search(error, said), said[:2000]
    assert "password-of" not in said


def test_the_driver_says_that_a_brokers_certificate_has_expired(store):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(store.expired_broker)
    with served(lambda *_: (404, ""), context) as url:  # no broker: TLS fails before Kafka's bytes
        broker = SimpleNamespace(bootstrap_servers=url.removeprefix("https://"))
        sink_options = options(broker, "SSL", trusting(store.ca), "t")
        said = failure(lambda: check(read_options(sink_options)))
    assert re.search(f"{NO_TLS}.*certificate has expired. Renew the server's certificate", said)


@pytest.mark.parametrize("sink", ["kafka-nb", "foreach_batch"])
def test_the_driver_says_that_a_right_to_write_is_missing(spark, store, sasl_ssl, topics, sink):
    topic = topics("sasl_ssl").create()
    sasl_ssl.acls.allow("bob", topic, AclOperation.DESCRIBE)
    sink_options = options(sasl_ssl, "SASL_SSL", scram(user="bob") | trusting(store.ca), topic)
    # The driver does not wait for the answer of busy brokers, and asks once for equal options.
    for number in range(FEW):
        named = sink_options | {"kafka.client.id": f"driver-{number}"}
        said = failure(lambda named=named: save(spark, sink, named))
        if "TopicUnavailable" in said:
            break
    assert re.search(f"TopicUnavailable: topic {topic}: .*Grant this user permission to", said)


# --- what is wrong, said by the tasks -------------------------------------------------------------


def test_a_task_says_that_its_login_is_rejected(spark, store, sasl_ssl, topics):
    sink_options = options(
        sasl_ssl,
        "SASL_SSL",
        scram(password="wrong") | trusting(store.ca),
        topics("sasl_ssl").create(),
    )
    started = time.monotonic()
    said = failure(
        lambda: save(
            spark, "kafka-nb", sink_options | {"preflight": "false", "close.timeout.ms": "5000"}
        )
    )
    assert time.monotonic() - started < 5 + AT_ONCE_SECONDS
    assert re.search("DeadlineExceeded: .*last broker error: .*invalid credentials", said)


@pytest.mark.parametrize(
    ("idempotence", "may_describe", "error"),
    [
        ("true", True, "DeliveryFailed: topic {}.*Cluster authorization failed.*IdempotentWrite"),
        ("false", True, "DeliveryFailed: topic {}.*TOPIC_AUTHORIZATION_FAILED.. .*Grant this user"),
        ("false", False, "TopicUnavailable: topic {}: .*TOPIC_AUTHORIZATION_FAILED"),
    ],
)
def test_a_task_says_which_right_is_missing(
    spark, store, sasl_ssl, topics, idempotence, may_describe, error
):
    """Brokers give producer ids to whoever may write to any topic; Bob may not (KIP-679)."""
    made = topics("sasl_ssl")
    topic = made.create()
    if may_describe:
        sasl_ssl.acls.allow("bob", topic, AclOperation.DESCRIBE)
    sink_options = options(sasl_ssl, "SASL_SSL", scram(user="bob") | trusting(store.ca), topic)
    sink_options |= {"preflight": "false", "kafka.enable.idempotence": idempotence}
    started = time.monotonic()
    said = failure(lambda: save(spark, "kafka-nb", sink_options))
    assert time.monotonic() - started < AT_ONCE_SECONDS
    assert re.search(error.format(topic), said), said[:2000]
    assert made.read(topic) == []


def test_a_right_that_is_taken_away_ends_the_stream(spark, store, sasl_ssl, topics, tmp_path):
    made = topics("sasl_ssl")
    topic = made.create()
    sasl_ssl.acls.allow("bob", topic, AclOperation.WRITE)
    sink_options = options(sasl_ssl, "SASL_SSL", plain(user="bob") | trusting(store.ca), topic)
    words = streams.stream_of(spark, tmp_path / "in", ["before"])
    writer = words.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.format("kafka-nb").options(**sink_options).start()
    try:
        query.processAllAvailable()
        sasl_ssl.acls.take_away("bob", topic, AclOperation.WRITE)
        started = time.monotonic()
        streams.stream_of(spark, tmp_path / "in", ["after"])
        said = failure(lambda: query.awaitTermination(60))
    finally:
        query.stop()
    assert time.monotonic() - started < AT_ONCE_SECONDS
    assert re.search(f"topic {topic}.*AUTHORIZATION_FAILED.. .*Grant this user perm", said), said[
        :2000
    ]
    assert [record.value for record in made.read(topic)] == [b"before"]


def test_doctor_says_which_rights_exactly_once_lacks(store, sasl_ssl, topics):
    topic = topics("sasl_ssl").create()
    sink_options = options(sasl_ssl, "SASL_SSL", scram() | trusting(store.ca), topic)
    prefix = f"query-of-{topic}"
    sink_options |= {"delivery.guarantee": "exactly-once", "transactional.id.prefix": prefix}
    results = examined(sink_options, write_test_record=True)
    for name in ("ledger_topic", "test_record"):
        assert results[name].outcome is Outcome.PASSED
    groups = results["ledger_groups"]
    assert (groups.outcome, results["transaction"].message) == (
        Outcome.FAILED,
        "needs ledger_groups",
    )
    assert f"--operation Read --group {prefix} --resource-pattern-type prefixed" in groups.advice
    by_prefix = ResourcePatternType.PREFIXED
    group = {"kind": ResourceType.GROUP, "pattern": by_prefix}
    sasl_ssl.acls.allow("alice", prefix, AclOperation.READ, **group)
    results = examined(sink_options, write_test_record=True)
    assert results["ledger_groups"].outcome is Outcome.PASSED
    transaction = results["transaction"]
    assert transaction.outcome is Outcome.FAILED
    assert "Transactional Id authorization failed" in transaction.message
    assert f"--operation Describe --transactional-id {prefix} --resource" in transaction.advice


@pytest.mark.parametrize("name", ["PEM key store", "PKCS12 key store", "JKS key store"])
def test_doctor_knows_clients_certificates(store, mutual_tls, topics, name):
    topic = topics("mutual_tls").create()
    results = examined(options(mutual_tls, "SSL", CONFIGURATIONS[name][1](store), topic))
    assert results["login"].outcome is Outcome.PASSED
    assert results["write_permission"].outcome is Outcome.PASSED


@pytest.mark.parametrize("kind", ["none", "text"])
def test_doctor_says_that_brokers_want_another_certificate(store, mutual_tls, kind):
    settings = trusting(store.ca)
    if kind == "text":  # which only the client itself can present
        text = store.other_client.read_text()
        start = text.index("-----BEGIN CERTIFICATE")
        settings |= key_text(text[:start], text[start:])
    results = examined(options(mutual_tls, "SSL", settings, "t"))
    assert results["login"].outcome is Outcome.FAILED
    assert "kafka.ssl.keystore.*" in results["login"].advice


def test_exactly_once_names_each_right_that_is_missing_and_needs_no_other(sasl_plaintext, topics):
    made = topics("sasl_plaintext")
    topic = made.create()
    login = scram(user="bob")
    sink_options = options(sasl_plaintext, "SASL_PLAINTEXT", login, topic)
    sink_options |= streams.exactly_once(f"of-{topic}")
    prefixed = {"pattern": ResourcePatternType.PREFIXED}
    groups = prefixed | {"kind": ResourceType.GROUP}
    transactional_ids = prefixed | {"kind": ResourceType.TRANSACTIONAL_ID}
    write, describe, read = AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.READ
    allow = sasl_plaintext.acls.allow
    allow("bob", topic, write)
    with pytest.raises(TransactionFailed, match="Grant this user Write and Describe on trans"):
        exactly_once_task.write(sink_options, 0, 0, ["a"])
    allow("bob", f"of-{topic}", write, describe, **transactional_ids)
    with pytest.raises(TransactionFailed, match="Grant this user Read on consumer groups"):
        exactly_once_task.write(sink_options, 0, 0, ["a"])
    allow("bob", f"of-{topic}", read, **groups)
    with pytest.raises(TransactionFailed, match="Grant this user Read on the topic of the ledger"):
        exactly_once_task.write(sink_options, 0, 0, ["a"])
    allow("bob", topic, read)
    parsed = read_options(sink_options)
    check(parsed)
    exactly_once_task.write(sink_options, 0, 0, ["a"])
    write_batch_marker(parsed, "a-query", 0, 1)
    assert made.read_committed(topic) == [b"a"]
