"""What doctor says about a real Kafka; each test breaks one thing on purpose."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pytest
import trustme
from acls import Acls
from certificates import write_pem
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType
from doctor_results import SECONDS, examined
from local_cluster import LocalCluster, Security

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.librdkafka.group_offsets import CommittedOffset
from spark_kafka_sink.tools.doctor import Outcome, diagnose, workers
from spark_kafka_sink.tools.doctor.check_context import CheckContext
from spark_kafka_sink.transactions.ledger import BatchMarker, marker_group
from spark_kafka_sink.transactions.offset_calls import BrokerWait, GroupOffset

PASSWORD = "planted-secret-of-alice"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture(scope="module")
def kafka(folder):
    """TLS and logins; brokers that do not create topics."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate = write_pem(authority.issue_cert("127.0.0.1"), folder / "server.pem")
    security = Security(certificate, {"alice": PASSWORD})
    settings = {"auto.create.topics.enable": "false"}
    with LocalCluster(settings=settings, security=security) as kafka:
        yield kafka


@pytest.fixture
def acls(kafka):
    return Acls(kafka.internal_servers)


@pytest.fixture
def examine(kafka, folder):
    """All results by name, with an option replaced or left out (None). None holds the password."""

    def examine(options, **arguments):
        secured = {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.username": "alice",
            "kafka.sasl.password": PASSWORD,
            "kafka.ssl.ca.location": str(folder / "ca.pem"),
        }
        checked = {k: v for k, v in (secured | options).items() if v is not None}
        return examined(checked, **arguments)

    return examine


EXACTLY_ONCE = {
    "ledger_topic",
    "ledger_groups",
    "ledger",
    "broker_settings",
    "transaction_timeout",
    "coordinators",
    "transaction",
}
#: the only broker has no replica to spare
WITH_ONE_BROKER = {"in_sync_replicas", "coordinators"}


def not_passed(results, but_for=EXACTLY_ONCE):
    """Everything that did not pass, and was not left out, by name."""
    expected = {"columns", "dead_letter_topic", "executors", "kerberos_ticket", "report_path"}
    expected |= {"schema_registry", *but_for, *WITH_ONE_BROKER}
    return {
        name: f"{result.outcome.value}: {result.message}"
        for name, result in results.items()
        if result.outcome is not Outcome.PASSED and name not in expected
    }


WRITING = {"test_record", "transaction"}


def test_everything_passes_and_nothing_is_written(examine, topics):
    topic = topics.create()
    dead_letters = topics.create(config={"max.message.bytes": "2000000"})
    options = {"on.record.error": "dead-letter", "dead.letter.topic": dead_letters}
    results = examine({"topic": topic, **options})
    assert not_passed(results, WRITING | EXACTLY_ONCE) == {}
    assert results["dead_letter_topic"].outcome is Outcome.PASSED
    assert results["login"].message == "SCRAM-SHA-512 as User:alice"
    assert {results[name].outcome for name in WRITING} == {Outcome.SKIPPED}
    assert results["in_sync_replicas"].outcome is Outcome.WARNED
    assert "1 replica each, and min.insync.replicas=1" in results["in_sync_replicas"].message
    assert topics.read(topic) == []


def test_a_test_record_takes_the_way_of_the_sinks_records(examine, topics):
    topic = topics.create()
    results = examine({"topic": topic}, write_test_record=True)
    assert not_passed(results) == {}
    (record,) = topics.read(topic)
    assert record.key == b"spark-kafka-sink doctor"
    assert results["test_record"].message == "written, with the key 'spark-kafka-sink doctor'"


def test_a_wrong_password_fails(examine):
    results = examine({"kafka.sasl.password": "planted-secret-wrong"})
    assert results["login"].outcome is Outcome.FAILED
    assert "reject the login" in results["login"].message
    assert "Correct the user name, password" in results["login"].advice
    assert results["cluster"].message == "needs login"


def test_a_wrong_mechanism_fails_and_the_brokers_own_are_named(examine):
    results = examine({"kafka.sasl.mechanism": "SCRAM-SHA-256"})
    assert results["login"].outcome is Outcome.FAILED
    assert "supported mechanisms: PLAIN,SCRAM-SHA-512" in results["login"].message


def test_a_missing_login_fails(examine):
    options = dict.fromkeys(("kafka.sasl.mechanism", "kafka.sasl.username"))
    results = examine(options | {"kafka.security.protocol": "SSL", "kafka.sasl.password": None})
    assert results["login"].outcome is Outcome.FAILED
    assert "no broker accepts this client" in results["login"].message
    assert "The listener may require a login" in results["login"].advice


def test_a_trust_store_that_is_missing_fails(examine, tmp_path):
    results = examine({"kafka.ssl.ca.location": str(tmp_path / "nowhere.pem")})
    assert results["tls"].outcome is Outcome.FAILED
    assert "Check the files of kafka.ssl.truststore.location" in results["tls"].advice


def test_plain_text_to_a_tls_listener_fails(examine):
    results = examine({"kafka.security.protocol": "SASL_PLAINTEXT"})
    assert results["login"].outcome is Outcome.FAILED
    assert "they closed every connection" in results["login"].message
    assert "check kafka.security.protocol" in results["login"].advice


def test_one_wrong_bootstrap_server_of_two_is_a_warning(examine, kafka):
    servers = f"127.0.0.1:1,{kafka.bootstrap_servers}"
    results = examine({"kafka.bootstrap.servers": servers})
    assert results["login"].outcome is Outcome.PASSED
    checks = list(diagnose({"kafka.bootstrap.servers": servers}, timeout_seconds=SECONDS))
    servers = [result.outcome for result in checks if result.name == "bootstrap_servers"]
    assert servers == [Outcome.WARNED, Outcome.PASSED]


def test_a_missing_topic_fails(examine, topics):
    name = topics.new_name()
    results = examine({"topic": name})
    assert results["topic"].outcome is Outcome.FAILED
    assert f"kafka-topics.sh --create --topic {name}" in results["topic"].advice
    assert results["write_permission"].message == "needs topic"
    assert not topics.exists(name)


def test_a_missing_right_to_write_fails_with_the_command_that_grants_it(examine, acls, topics):
    topic = topics.create()
    acls.allow("alice", topic, AclOperation.DESCRIBE)
    results = examine({"topic": topic}, write_test_record=True)
    assert results["write_permission"].outcome is Outcome.FAILED
    assert results["write_permission"].advice == (
        "Grant it: kafka-acls.sh --add --allow-principal User:alice --operation Write "
        f"--topic {topic}"
    )
    assert results["topic_settings"].outcome is Outcome.SKIPPED
    assert results["test_record"].outcome is Outcome.FAILED
    assert "authorization failed" in results["test_record"].message
    assert topics.read(topic) == []


def test_a_topic_that_others_may_use_fails(examine, acls, topics):
    topic = topics.create()
    acls.allow("bob", topic, AclOperation.ALL)
    results = examine({"topic": topic})
    assert results["topic"].outcome is Outcome.FAILED
    assert "--operation Describe --operation Write" in results["topic"].advice


def test_what_brokers_say_of_a_topics_limits_is_understood(examine, topics):
    topic = topics.create(config={"min.insync.replicas": "2", "max.message.bytes": "5000"})
    results = examine({"topic": topic})
    assert results["in_sync_replicas"].outcome is Outcome.FAILED
    assert "there are only 1" in results["in_sync_replicas"].message
    assert results["record_size"].outcome is Outcome.WARNED
    assert "above max.message.bytes=5000" in results["record_size"].message


def test_a_session_shows_its_executors_and_what_kills_their_tasks(spark):
    context = CheckContext({}, write_test_record=False, spark=spark, deadline=Deadline(SECONDS))
    idle = "spark.sql.execution.pyspark.udf"
    spark.conf.set(f"{idle}.killOnIdleTimeout", "true")
    spark.conf.set(f"{idle}.idleTimeoutSeconds", "60")
    try:
        kills, executor = workers.executors(context)
    finally:
        spark.conf.unset(f"{idle}.killOnIdleTimeout")
        spark.conf.unset(f"{idle}.idleTimeoutSeconds")
    assert kills.outcome is Outcome.WARNED
    assert "Spark kills a task that waits for brokers" in kills.message
    assert executor.outcome is Outcome.PASSED
    _, _, path = executor.subject.partition(":")
    assert Path(path).parent == Path(sys.executable).parent


@pytest.mark.parametrize("has_program", [False, True])
def test_a_python_that_executors_cannot_start_is_named(spark, monkeypatch, tmp_path, has_program):
    program = tmp_path / "python"
    if has_program:
        program.write_text("#!/bin/sh\necho starting >&2\necho no such interpreter >&2\nexit 1\n")
        program.chmod(0o755)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(program))
    context = CheckContext({}, write_test_record=False, spark=spark, deadline=Deadline(SECONDS))
    (finding,) = workers.executors(context)
    assert finding.outcome is Outcome.FAILED
    expected = "no such interpreter" if has_program else f'Cannot run program "{program}"'
    assert finding.message.startswith(f"a task that only inspects its Python fails: {expected}")
    assert "\n" not in finding.message
    assert "installed on every executor" in finding.advice


# --- exactly-once ---------------------------------------------------------------------------------


@pytest.fixture
def exactly_once(topics):
    """Options with a prefix and a ledger topic of the test's own."""
    return {
        "topic": topics.create(),
        "delivery.guarantee": "exactly-once",
        "exactly.once.ledger.topic": topics.create(),
        "transactional.id.prefix": topics.new_name(),
    }


PREFIXED = ResourcePatternType.PREFIXED


@pytest.mark.parametrize("prefix_is_given", [True, False])
def test_exactly_once_passes_and_leaves_no_transaction(examine, exactly_once, prefix_is_given):
    if not prefix_is_given:
        del exactly_once["transactional.id.prefix"]
    results = examine(exactly_once, write_test_record=True)
    assert not_passed(results, set() if prefix_is_given else {"ledger"}) == {}
    coordinators = results["coordinators"]
    assert coordinators.outcome is Outcome.WARNED
    assert examine(exactly_once)["transaction"].message.startswith("needs --write-test-record")


def test_rights_on_the_querys_prefix_are_enough_and_are_advised(examine, exactly_once, acls):
    """Others have rights on the same names, so nobody else has any."""
    prefix, ledger = (
        exactly_once[name] for name in ("transactional.id.prefix", "exactly.once.ledger.topic")
    )
    ids = ResourceType.TRANSACTIONAL_ID
    acls.allow("bob", ledger, AclOperation.READ)
    rejected = examine(exactly_once, write_test_record=True)["ledger_topic"]
    assert (rejected.outcome, rejected.subject) == (Outcome.FAILED, ledger)
    assert f"--operation Describe --operation Read --topic {ledger}" in rejected.advice
    acls.allow("alice", ledger, AclOperation.READ, AclOperation.DESCRIBE)

    acls.allow("bob", prefix, AclOperation.READ, kind=ResourceType.GROUP, pattern=PREFIXED)
    rejected = examine(exactly_once, write_test_record=True)["ledger_groups"]
    assert rejected.outcome is Outcome.FAILED
    assert f"--operation Read --group {prefix} --resource-pattern-type prefixed" in rejected.advice
    acls.allow("alice", prefix, AclOperation.READ, kind=ResourceType.GROUP, pattern=PREFIXED)

    acls.allow("bob", prefix, AclOperation.WRITE, kind=ids, pattern=PREFIXED)
    rejected = examine(exactly_once, write_test_record=True)["transaction"]
    assert rejected.outcome is Outcome.FAILED
    rights = "--operation Write --operation Describe"
    assert f"{rights} --transactional-id {prefix} --resource-pattern-type" in rejected.advice
    acls.allow(
        "alice", prefix, AclOperation.WRITE, AclOperation.DESCRIBE, kind=ids, pattern=PREFIXED
    )

    results = examine(exactly_once, write_test_record=True)
    assert not_passed(results, {"topic_settings"}) == {}


def test_what_the_ledger_holds_is_read_as_the_sink_does(examine, exactly_once, kafka):
    prefix = exactly_once["transactional.id.prefix"]
    assert "none yet" in examine(exactly_once)["ledger"].message
    client = parse({"kafka.bootstrap.servers": kafka.internal_servers}).producer.client
    group = marker_group(prefix)
    wait = BrokerWait(Deadline(SECONDS), "the test", "writing")
    with closing(GroupOffset(client, exactly_once["exactly.once.ledger.topic"], group)) as offset:
        offset.write(BatchMarker(6, 0).to_offset(), wait)
        assert "has begun micro-batch 6" in examine(exactly_once)["ledger"].message
        offset.write(BatchMarker(7, 2).to_offset(), wait)
        assert "entry is missing" in examine(exactly_once)["ledger"].message
        offset.write(CommittedOffset(8, "of somebody else"), wait)
    ledger = examine(exactly_once)["ledger"]
    assert ledger.outcome is Outcome.FAILED
    assert "which this version of the sink did not write" in ledger.message


def result_of(check, options):
    results = diagnose(options, timeout_seconds=SECONDS)
    result = next(result for result in results if result.name == check)
    results.close()
    return result


def test_no_missing_topic_is_created(proxied):
    options = {"kafka.bootstrap.servers": proxied.bootstrap_servers, "topic": proxied.new_name()}
    topic = result_of("topic", options)
    assert topic.outcome is Outcome.WARNED
    assert "the first record creates it" in topic.message
    assert not proxied.exists(options["topic"])
    other = proxied.create(name=f"{options['topic']}_raw")
    topic = result_of("topic", options | {"topic": f"{options['topic']}.raw"})
    proxied.delete(other)
    assert topic.outcome is Outcome.FAILED
    assert f"collides with existing topic: {other} (TOPIC_EXCEPTION)" in topic.message


def test_a_wrong_advertised_listener_fails(proxy):
    options = {"kafka.bootstrap.servers": proxy.kafka.bootstrap_servers, "topic": "t"}
    with proxy.refusing():
        results = examined(options)
    assert results["login"].outcome is Outcome.PASSED
    listeners = results["advertised_listeners"]
    assert listeners.outcome is Outcome.FAILED
    assert listeners.subject == f"127.0.0.1:{proxy.port}"
    assert "broker 1: does not accept connections" in listeners.message
    assert "Correct advertised.listeners of broker 1" in listeners.advice
    assert results["topic"].message == "needs advertised_listeners"
