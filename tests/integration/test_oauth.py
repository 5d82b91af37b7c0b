"""Logins with OAUTHBEARER at a real broker that takes tokens without a signature."""

from __future__ import annotations

import json
import sys
import time
import types
from contextlib import closing

import exactly_once_task
import pyarrow as pa
import pytest
import token_functions
from doctor_results import examined
from local_cluster import LocalCluster, Security
from streams import direct, exactly_once
from token_endpoint import token_endpoint
from waiting import wait_until

from spark_kafka_sink.clients import aws_signer
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.driver.options import read_options
from spark_kafka_sink.driver.preflight import check
from spark_kafka_sink.errors import AuthenticationFailed, MetadataTimeout, TokenUnavailable
from spark_kafka_sink.producer.cache import process_cache
from spark_kafka_sink.spark.micro_batch import write_batch_marker
from spark_kafka_sink.spark.task import write_partition
from spark_kafka_sink.tools.doctor.result import Outcome
from spark_kafka_sink.transactions.offset_calls import BrokerWait, GroupOffset, borrow_offset

SHORT_SECONDS = 5.0  # a token's life


@pytest.fixture(scope="module")
def kafka():
    settings = {
        **token_functions.BROKER_SETTINGS,
        # Connections end with the token that they began with, unless they log in again.
        "listener.name.client.oauthbearer.connections.max.reauth.ms": "3600000",
    }
    with LocalCluster(settings=settings, security=Security(users={"nobody": "unused"})) as kafka:
        yield kafka


@pytest.fixture
def options(kafka, topics, tmp_path):
    """Options of the sink; ``options.calls()`` says how often the function was called."""

    class Options(dict):
        def calls(self):
            return len(log.read_text().splitlines()) if log.exists() else 0

    log = tmp_path / "calls"
    configuration = {"sub": "alice", "seconds": 600, "log": str(log)}
    yield Options(
        {
            "kafka.bootstrap.servers": kafka.bootstrap_servers,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "OAUTHBEARER",
            "kafka.sasl.oauthbearer.config": json.dumps(configuration),
            "oauth.callback": "token_functions:unsecured",
            "topic": topics.create(),
        }
    )
    process_cache().close(5)


def batches(count, seconds=0.0):
    """Record batches of one row, the given time apart."""
    for number in range(count):
        if number:
            time.sleep(seconds)
        yield pa.record_batch({"value": [str(number)]})


def values(topics, options):
    return [int(record.value) for record in topics.read(options["topic"])]


def test_a_function_gives_the_token(options, topics):
    parsed = read_options(options)
    check(parsed)
    write_partition(batches(3), parsed)
    assert values(topics, options) == [0, 1, 2]
    assert options.calls() == 1  # for preflight and the producer


def test_a_task_that_outlasts_its_token_gets_new_ones(options, topics):
    configuration = json.loads(options["kafka.sasl.oauthbearer.config"])
    configuration["seconds"] = SHORT_SECONDS
    options["kafka.sasl.oauthbearer.config"] = json.dumps(configuration)
    write_partition(batches(9, seconds=1.0), read_options(options))
    assert values(topics, options) == list(range(9))
    assert options.calls() >= 9 / SHORT_SECONDS


def test_transactions_and_their_ledger_log_in_with_tokens(options, topics):
    options |= exactly_once("with-tokens")
    parsed = read_options(options)
    check(parsed)
    for batch_id in (0, 0, 1):
        exactly_once_task.write(options, batch_id, 0, [f"{batch_id}"])
        write_batch_marker(parsed, "a-query", batch_id, 1)
    assert topics.read_committed(options["topic"]) == [b"0", b"1"]


def test_all_clients_of_an_exactly_once_micro_batch_share_one_token(options):
    options |= exactly_once("with-one-token", partitions=3)
    parsed = read_options(options)
    check(parsed)
    for partition in range(3):
        exactly_once_task.write(options, 0, partition, [f"{partition}"])
    write_batch_marker(parsed, "a-query", 0, 3)
    assert options.calls() == 1  # in one process; 4 clients per task, and more for the claim


@pytest.mark.parametrize("act", [check, lambda options: write_partition(batches(1), options)])
def test_a_token_that_brokers_reject_is_replaced_at_once(options, act):
    options["oauth.callback"] = "token_functions:rejected_at_first"
    act(read_options(options))
    assert options.calls() == 2


def ends_early(options):
    """Let brokers reject the first token soon after they have accepted it, long before its end."""
    configuration = json.loads(options["kafka.sasl.oauthbearer.config"])
    configuration["first_seconds"] = 2.0
    options["kafka.sasl.oauthbearer.config"] = json.dumps(configuration)
    options["oauth.callback"] = "token_functions:ends_early_at_first"
    return options


def test_a_token_that_ends_during_a_task_earlier_than_it_claims_is_replaced(options, topics):
    write_partition(batches(5, seconds=1.0), read_options(ends_early(options)))
    assert values(topics, options) == list(range(5))
    assert options.calls() >= 2


def test_a_token_that_ends_while_no_task_runs_is_replaced_then(options, topics):
    parsed = read_options(ends_early(options))
    write_partition(batches(1), parsed)
    wait_until(lambda: options.calls() >= 2)
    assert write_partition(batches(1), parsed).producers_reused == 1
    assert values(topics, options) == [0, 0]


def test_a_transaction_survives_that_its_token_ends_earlier_than_it_claims(options, topics):
    options = ends_early(options) | exactly_once("with-a-short-token")
    exactly_once_task.write_batches(options, 0, 0, batches(5, seconds=1.0))
    assert topics.read_committed(options["topic"]) == [b"%d" % number for number in range(5)]


def test_the_ledger_is_read_with_another_token_if_brokers_reject_the_first(options):
    options["oauth.callback"] = "token_functions:rejected_at_first"
    settings = read_options(options).producer.client
    with closing(GroupOffset(settings, options["topic"], "a-group")) as offset:
        assert offset.read(BrokerWait(Deadline(60), "a minute", "reading")) is None
    assert options.calls() == 2


def test_an_idle_reader_of_the_ledger_gets_another_token_when_its_first_has_ended(options):
    parsed = read_options(ends_early(options))
    wait = BrokerWait(Deadline(60), "a minute", "reading")
    deadline = Deadline(60)
    for _ in range(2):
        with borrow_offset(parsed, options["topic"], "a-group") as offset:
            assert offset.read(wait) is None
        while options.calls() < 2:  # the cache reads the idle client's events
            assert not deadline.expired
            time.sleep(0.1)


@pytest.mark.parametrize(
    ("function", "error", "reason"),
    [
        (
            "token_functions:fails",
            TokenUnavailable,
            "raised RuntimeError: the token service is closed",
        ),
        ("token_functions:missing", AuthenticationFailed, "raised AttributeError: "),
        ("no_such_module:make", AuthenticationFailed, "raised ModuleNotFoundError: No module "),
    ],
)
def test_the_driver_says_why_there_is_no_token(options, function, error, reason):
    options["oauth.callback"] = function
    with pytest.raises(AuthenticationFailed) as raised:
        check(read_options(options))
    assert type(raised.value) is error
    assert f"oauth.callback={function} {reason}" in str(raised.value)
    assert "Correct oauth.callback or what it needs" in str(raised.value)


def test_brokers_that_reject_the_token_are_named(options, kafka):
    options["oauth.callback"] = "token_functions:rejected"
    with pytest.raises(AuthenticationFailed, match="reject the login") as raised:
        check(read_options(options))
    assert kafka.bootstrap_servers in str(raised.value)


def test_a_task_without_a_token_fails_and_says_why(options):
    options |= {"oauth.callback": "token_functions:fails", "kafka.max.block.ms": "3000"}
    with pytest.raises(MetadataTimeout, match="the token service is closed"):
        write_partition(batches(1), read_options(options))


@pytest.mark.parametrize("mode", ["format", "foreach_batch"])
def test_spark_writes_with_tokens_of_a_function(spark, options, topics, tmp_path, mode):
    spark.sparkContext.addPyFile(token_functions.__file__)
    stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
    rows = stream.selectExpr("string(value) AS value")
    writer = rows.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
    writer = direct(writer, mode, options)
    writer.trigger(availableNow=True).start().awaitTermination()
    assert sorted(values(topics, options)) == list(range(10))


def test_doctor_logs_in_with_a_function(options):
    outcomes_by_check = examined(options, write_test_record=True)
    for name in ("login", "topic", "write_permission", "test_record"):
        assert outcomes_by_check[name].outcome is Outcome.PASSED, outcomes_by_check[name]


def test_doctor_says_why_there_is_no_token(options):
    options["oauth.callback"] = "token_functions:fails"
    login = examined(options, write_test_record=True)["login"]
    assert login.outcome is Outcome.FAILED
    assert "the token service is closed" in login.message


def test_amazons_mechanism_logs_in_with_what_its_signer_gives(options, topics, monkeypatch):
    """With a stand-in for the signer, whose tokens the tests' broker understands."""
    made = {"sub": "alice", "iat": time.time(), "exp": time.time() + 600}

    class Signer:
        @staticmethod
        def generate_auth_token(region):
            assert region == "eu-west-1"
            return token_functions.unsecured_jwt(made), int(made["exp"] * 1000)

    stand_in = types.ModuleType("aws_msk_iam_sasl_signer")
    stand_in.MSKAuthTokenProvider = Signer
    monkeypatch.setitem(sys.modules, "aws_msk_iam_sasl_signer", stand_in)
    monkeypatch.setattr(aws_signer, "_expiry", lambda _: made["exp"])  # not in a URL
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    for name in ("oauth.callback", "kafka.sasl.oauthbearer.config"):
        del options[name]
    parsed = read_options(options | {"kafka.sasl.mechanism": "AWS_MSK_IAM"})
    check(parsed)
    write_partition(batches(3), parsed)
    assert values(topics, options) == [0, 1, 2]


# --- a token endpoint -----------------------------------------------------------------------------


def token():
    now = time.time()
    return token_functions.unsecured_jwt({"sub": "alice", "iat": now, "exp": now + 600})


@pytest.fixture
def endpoint():
    with token_endpoint(token) as url:
        yield url


def use_endpoint(options, url):
    for name in ("oauth.callback", "kafka.sasl.oauthbearer.config"):
        del options[name]
    options |= {
        "kafka.sasl.oauthbearer.method": "oidc",
        "kafka.sasl.oauthbearer.client.id": "alice",
        "kafka.sasl.oauthbearer.client.secret": "planted-secret",
        "kafka.sasl.oauthbearer.token.endpoint.url": url,
    }


def test_a_token_endpoint_gives_the_token(options, topics, endpoint):
    use_endpoint(options, endpoint)
    parsed = read_options(options)
    check(parsed)
    write_partition(batches(3), parsed)
    assert values(topics, options) == [0, 1, 2]


@pytest.mark.slow
def test_a_token_of_an_endpoint_that_brokers_reject_is_replaced_after_ten_seconds(options, topics):
    now = time.time()
    early = token_functions.unsecured_jwt({"sub": "alice", "iat": now + 600, "exp": now + 900})
    tokens = iter([early])
    with token_endpoint(lambda: next(tokens, token())) as url:
        use_endpoint(options, url)
        write_partition(batches(1), read_options(options))
    assert values(topics, options) == [0]


def test_an_endpoint_that_is_away_is_named_on_the_driver(options):
    use_endpoint(options, "http://127.0.0.1:1/token")
    with pytest.raises(TokenUnavailable) as raised:
        check(read_options(options))
    assert "planted-secret" not in str(raised.value)
