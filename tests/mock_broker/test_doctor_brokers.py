"""doctor's client on librdkafka's mock broker."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from contextlib import ExitStack

import pytest
from kafka_proxy import API_VERSIONS, KafkaProxy
from mock_cluster import INIT_PRODUCER_ID, OFFSET_FETCH

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.advice import Advice
from spark_kafka_sink.config.client_settings import DEFAULTS
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver.inquirer import asking
from spark_kafka_sink.errors import BrokerUnavailable, DeadlineExceeded
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.librdkafka.group_offsets import CommittedOffset
from spark_kafka_sink.tools.doctor import Outcome, diagnose, writing
from spark_kafka_sink.tools.doctor.brokers import Brokers


@pytest.fixture
def inquirer(options):
    """Makes one for these options."""
    with ExitStack() as stack:
        yield lambda **changed: stack.enter_context(asking(options(**changed).producer.client))


def test_a_user_who_may_write_nothing_is_accepted(cluster, inquirer):
    """The sink's settings enable idempotence; a client that sends nothing needs no permission."""
    cluster.push_errors(INIT_PRODUCER_ID, [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 10)
    brokers = Brokers(inquirer(kafka_enable_idempotence="true"))
    for _ in range(20):  # a rejection would come after the authentication
        assert brokers.authenticate(Deadline(10))


def test_brokers_that_keep_connections_waiting_did_not_close_them(inquirer):
    with socket.create_server(("127.0.0.1", 0)) as server:
        host, port = server.getsockname()
        brokers = Brokers(inquirer(kafka_bootstrap_servers=f"{host}:{port}"))
        with pytest.raises(BrokerUnavailable, match="and keep them waiting") as raised:
            brokers.authenticate(Deadline(8))
    assert raised.value.args[1] == str(Advice.CONNECTIONS_ARE_LATE)


def test_an_answer_that_comes_late_is_not_taken_for_that_to_the_next_question(inquirer):
    asked = inquirer()
    asked.client.describe_topics(["late"], 10)
    asked.client.describe_topic_configs(["late"], 10)
    assert asked.topic("t", Deadline(10)).partitions
    assert asked.topic_configuration("t", Deadline(10)).resource == "t"


def test_doctor_makes_no_more_connections_to_a_bootstrap_server_than_one_client(cluster):
    with KafkaProxy() as proxy:
        proxy.kafka, servers = cluster, f"127.0.0.1:{proxy.port}"
        with asking(parse({"kafka.bootstrap.servers": servers}).producer.client) as client:
            assert client.cluster(Deadline(60))
        once = proxy.requests[DEFAULTS["client.id"], API_VERSIONS]
        proxy.reset()
        options = {"kafka.bootstrap.servers": servers, "topic": "t"}
        outcomes = {result.name: result.outcome for result in diagnose(options, timeout_seconds=60)}
        assert proxy.requests[DEFAULTS["client.id"], API_VERSIONS] == once
    assert outcomes["topic"] is outcomes["broker_versions"] is Outcome.PASSED


EXACTLY_ONCE = {"delivery.guarantee": "exactly-once", "transactional.id.prefix": "p"}


@pytest.mark.parametrize("options", [{}, EXACTLY_ONCE], ids=["at-least-once", "exactly-once"])
def test_brokers_that_are_not_apache_kafkas_and_say_little_make_no_job_ill(
    cluster, monkeypatch, capsys, options
):
    """The mock broker describes neither settings nor operations, like the Kafkas of some clouds."""
    cluster.set_newest_version(OFFSET_FETCH, 7)
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    checked = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "t", **options}
    arguments = [f"--option={name}={value}" for name, value in checked.items()]
    assert main(["doctor", "--json", "--timeout=120", *arguments]) == 0
    results = json.loads(capsys.readouterr().out)["results"]
    not_reported = {
        result["name"]
        for result in results
        if result["message"] == "the brokers do not report this"
    }
    expected = {"topic_settings", "in_sync_replicas", "record_size", "record_format"}
    expected |= {"write_permission", "idempotent_write"}
    if options:
        expected |= {"ledger_topic", "ledger_groups", "broker_settings", "transaction_timeout"}
        expected |= {"coordinators"}
    assert not_reported == expected


@pytest.fixture
def transaction_result(cluster):
    """What doctor says about a transaction."""

    def transaction_result(options=EXACTLY_ONCE):
        servers = {"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "t"}
        results = diagnose(servers | options, timeout_seconds=120, write_test_record=True)
        (result,) = [result for result in results if result.name == "transaction"]
        return result

    return transaction_result


@pytest.mark.parametrize(
    ("options", "subject"),
    [
        (EXACTLY_ONCE, r"p\.doctor"),
        ({"delivery.guarantee": "exactly-once"}, r"kafka-nb-.+\.doctor"),
    ],
)
def test_brokers_that_only_claim_to_hold_back_offsets_fail(
    cluster, transaction_result, options, subject
):
    """The mock broker answers while a transaction is open."""
    cluster.set_newest_version(OFFSET_FETCH, 7)
    result = transaction_result(options)
    assert result.outcome is Outcome.FAILED
    assert "do not hold back the offset of an open transaction" in result.message
    assert re.fullmatch(subject, result.subject)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "--transactional-id p --resource"),
        (ErrorCode.INVALID_TRANSACTION_TIMEOUT, "kafka.transaction.timeout.ms=600000 is more"),
    ],
)
def test_a_transaction_that_is_rejected_fails(cluster, transaction_result, code, text):
    cluster.push_errors(INIT_PRODUCER_ID, [ErrorCode.NO_ERROR, code])
    result = transaction_result()
    assert result.outcome is Outcome.FAILED
    assert text in result.message + result.advice


@pytest.mark.parametrize("drops_metadata", [True, False])
def test_brokers_that_drop_the_metadata_of_offsets_fail(
    transaction_result, monkeypatch, drops_metadata
):
    class HoldsBack(writing.GroupOffset):
        """The mock broker holds nothing back, and forgets what a transaction commits."""

        is_open = True

        def read(self, wait):
            if self.is_open:
                self.is_open = False
                raise DeadlineExceeded("not stable")
            return CommittedOffset(1, "" if drops_metadata else sent[0].metadata)

    sent = []
    send_offset = writing.Transaction.send_offset
    monkeypatch.setattr(
        writing.Transaction, "send_offset", lambda *args: (sent.append(args[3]), send_offset(*args))
    )
    monkeypatch.setattr(writing, "GroupOffset", HoldsBack)
    result = transaction_result()
    assert result.outcome is (Outcome.FAILED if drops_metadata else Outcome.PASSED)
    assert ("do not keep the metadata of offsets" in result.message) == drops_metadata


@pytest.mark.parametrize("lines", [1, 12])
def test_the_command_ends_when_nobody_reads_its_output_any_more(cluster, lines):
    """As with ``| head``, before and after doctor has connected; the test record takes longer."""
    cluster.set_round_trip(1, 500)
    option = f"--option=kafka.bootstrap.servers={cluster.bootstrap_servers}"
    command = [sys.executable, "-m", "spark_kafka_sink", "doctor", option, "--option=topic=t"]
    command += ["--write-test-record"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as doctor:
        for _ in range(lines):
            doctor.stdout.readline()
        doctor.stdout.close()
        said = doctor.stderr.read().decode()
        doctor.wait(60)
    assert (said, doctor.returncode) == ("", 1)
