"""A stream's configuration -> its replay, as far as it needs no Spark."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from types import SimpleNamespace

import pytest
from pyspark.sql import Column

from spark_kafka_sink import restore_dead_letters
from spark_kafka_sink.config.logins import parsed_jaas
from spark_kafka_sink.config.option_table import REPORT_PATH
from spark_kafka_sink.errors import InvalidConfiguration, LibraryUnavailable
from spark_kafka_sink.secret import Secret
from spark_kafka_sink.tools.job.replay import (
    Selection,
    _parser,
    _with_timestamp,
    load_replay,
    main,
    source_options,
)

EVERYTHING = Selection()


@pytest.fixture
def load(tmp_path):
    """The replay of a stream with these options."""

    def load(selection=EVERYTHING, overrides=(), sql=None, **options):
        options = {
            "kafka.bootstrap.servers": "broker:9092",
            "topic": "orders",
            "on.record.error": "dead-letter",
            "dead.letter.topic": "dead",
            **{name.replace("_", "."): value for name, value in options.items()},
        }
        options = {name: value for name, value in options.items() if value is not None}
        document = {
            "name": "orders",
            "source": {"table": "orders"},
            "sql": "SELECT 1 AS value FROM source",
            "sink": {"mode": "format", "options": options},
            "trigger": {"processingTime": "1 second"},
            "checkpoint": "${env:NOT_SET}",
            "warm_up": "true",
        }
        file = tmp_path / "stream.yaml"
        file.write_text(json.dumps(document, indent=1))
        return load_replay(file, "/replays", selection, sql, overrides)

    return load


# --- the job --------------------------------------------------------------------------------------


def test_a_replay_reads_the_dead_letter_topic_and_writes_with_the_streams_options(load):
    replay = load(kafka_linger_ms="7", kafka_client_id="me", timestamp_column="ordered_at")
    job = replay.configuration.job
    assert job.source.options == {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.client.id": "me",
        "subscribe": "dead",
        "startingoffsets": "earliest",
        "includeheaders": "true",
        "maxoffsetspertrigger": "10000",
        "kafka.isolation.level": "read_committed",
    }
    # Neither a topic for all rows nor a second round of dead letters.
    assert job.sink.options == {
        "kafka.bootstrap.servers": "broker:9092",
        "kafka.linger.ms": "7",
        "kafka.client.id": "me",
        "timestamp.column": "timestamp",  # as restore_dead_letters calls it
    }
    assert replay.configuration.sink_options.topic is None
    assert (job.name, job.sink.mode, job.sql, job.warm_up) == (
        "replay of orders",
        "foreach_batch",
        None,
        False,
    )
    assert job.trigger is not None
    assert job.trigger.available_now


def test_set_changes_the_source_of_the_replay_and_the_sink(load):
    overrides = [
        "source.options.maxOffsetsPerTrigger=5",
        "source.options.subscribe=another",
        "source.options.kafka.bootstrap.servers=mirror:9092",
        "sink.options.kafka.linger.ms=9",
    ]
    job = load(overrides=overrides).configuration.job
    assert job.source.options["maxoffsetspertrigger"] == "5"
    assert job.source.options["kafka.bootstrap.servers"] == "mirror:9092"
    assert job.source.options["subscribe"] == "dead"
    assert job.sink.options["kafka.bootstrap.servers"] == "broker:9092"
    assert job.sink.options["kafka.linger.ms"] == "9"


def test_what_a_replay_replaces_may_have_no_value(load, tmp_path):
    load()
    document = json.loads((tmp_path / "stream.yaml").read_text())
    file = tmp_path / "template.yaml"
    file.write_text(json.dumps(document | dict.fromkeys(("source", "sql", "checkpoint"))))
    assert load_replay(file, "/replays", EVERYTHING, "SELECT 1").configuration.job.sql == "SELECT 1"


def test_a_replay_writes_no_reports_into_the_streams_folder(load):
    configuration = load(report_path="/data/reports/orders").configuration
    assert configuration.sink_options.values[REPORT_PATH] is None
    assert "report.path" not in configuration.job.sink.options


def test_a_replay_leaves_the_ledger_to_the_stream(load):
    sink = load(
        delivery_guarantee="exactly-once",
        exactly_once_partitions="2",
        transactional_id_prefix="orders",
        kafka_transaction_timeout_ms="60000",
    ).configuration.sink_options
    assert sink.exactly_once is None


def test_dead_letters_that_are_not_serialized_are_selected_alone_and_repaired(load):
    formats = {"value_format": "avro", "schema_registry_url": "http://registry"}
    unserialized = Selection(errors=frozenset({"NULL_TOPIC"}))
    mixed = Selection(errors=frozenset({"NULL_TOPIC", "INVALID_RECORD"}))
    assert load(**formats).configuration.sink_options.serialization is None
    assert "NULL_TOPIC" in load(**formats).excluded_errors
    sql = "SELECT 'orders' AS topic, from_json(value, 'id BIGINT') AS value FROM dead_letters"
    assert load(unserialized, sql=sql, **formats).configuration.sink_options.serialization
    for selection, repair in ((unserialized, None), (mixed, sql)):
        with pytest.raises(InvalidConfiguration, match=r"--error: NULL_TOPIC: .* are JSON"):
            load(selection, sql=repair, **formats)
    # Without formats, all dead letters are bytes.
    assert load(mixed).excluded_errors == frozenset()


def test_without_a_dead_letter_topic_there_is_nothing_to_replay(load):
    with pytest.raises(InvalidConfiguration, match=r"dead\.letter\.topic is required"):
        load(dead_letter_topic=None, on_record_error=None)


def test_a_login_that_java_lacks_is_rejected_with_advice(load):
    with pytest.raises(InvalidConfiguration, match="Set a login for the source") as raised:
        load(
            kafka_security_protocol="SASL_SSL",
            kafka_sasl_mechanism="OAUTHBEARER",
            oauth_callback="package.module:token",
        )
    assert "stream.yaml:9:3: sink.options: kafka.sasl.mechanism=OAUTHBEARER" in str(raised.value)


# --- the login ------------------------------------------------------------------------------------


def source(own=None, **settings):
    options = {f"kafka.{name.replace('_', '.')}": value for name, value in settings.items()}
    read = source_options(options, own or {})
    return {name.removeprefix("kafka."): value for name, value in read.items()}


def test_only_what_a_consumer_knows_is_passed_on():
    shared = {
        "bootstrap_servers": "broker:9092",
        "client_id": "me",
        "security_protocol": "SSL",
        "ssl_truststore_type": "PEM",
        "ssl_truststore_location": "/ca.pem",
        "ssl_endpoint_identification_algorithm": "https",
    }
    read = source(**shared, acks="all", linger_ms="5", buffer_memory="1")
    assert read == {name.replace("_", "."): value for name, value in shared.items()}


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", "plain.PlainLoginModule"), ("SCRAM-SHA-512", "scram.ScramLoginModule")],
)
@pytest.mark.parametrize("name", ["sasl_mechanism", "sasl_mechanisms"])
def test_user_name_and_password_become_javas_login(mechanism, module, name):
    password = "a\"b\\c d;='$"
    read = source(**{name: mechanism, "sasl_username": "$user", "sasl_password": password})
    jaas = read.pop("sasl.jaas.config")
    assert read == {"sasl.mechanism": mechanism}
    assert jaas.startswith(f"org.apache.kafka.common.security.{module} required ")
    login = {"username": "$user", "password": password}
    assert parsed_jaas(jaas) == (module.partition(".")[2], login)
    assert isinstance(jaas, Secret)


@pytest.mark.parametrize(
    ("named", "login"),
    [
        (
            {"sasl_kerberos_keytab": "/etc/a.keytab", "sasl_kerberos_principal": "a@X"},
            {"useKeyTab": "true", "storeKey": "true", "keyTab": "/etc/a.keytab"}
            | {"principal": "a@X"},
        ),
        ({"sasl_kerberos_principal": "a@X"}, {"useTicketCache": "true", "principal": "a@X"}),
        ({}, {"useTicketCache": "true"}),
    ],
)
def test_a_login_with_kerberos_becomes_javas(named, login):
    read = source(sasl_mechanism="GSSAPI", **named)
    assert parsed_jaas(read.pop("sasl.jaas.config")) == ("Krb5LoginModule", login)
    assert read == {"sasl.mechanism": "GSSAPI", "sasl.kerberos.service.name": "kafka"}


def test_a_login_with_kerberos_needs_no_mechanism():
    options = {"useKeyTab": "true", "storeKey": "true", "keyTab": "/a.keytab", "principal": "a@X"}
    read = source(
        security_protocol="SASL_SSL",
        sasl_kerberos_keytab="/a.keytab",
        sasl_kerberos_principal="a@X",
        sasl_kerberos_service_name="brokers",
    )
    assert parsed_jaas(read.pop("sasl.jaas.config")) == ("Krb5LoginModule", options)
    assert read == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "GSSAPI",
        "sasl.kerberos.service.name": "brokers",
    }


def test_servers_and_a_password_are_what_the_sink_reads():
    login = {"sasl_mechanism": "PLAIN", "sasl_username": " user ", "sasl_password": " pass \n"}
    read = source(bootstrap_servers="a,\n b:1", **login)
    assert read["bootstrap.servers"] == "a:9092,b:1"
    options = {"username": "user", "password": " pass "}
    assert parsed_jaas(read["sasl.jaas.config"]) == ("PlainLoginModule", options)


def test_a_jaas_string_is_passed_on():
    login = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": "the string"}
    assert source_options(login, {}) == login


def test_amazons_login_is_that_of_its_java_library():
    read = source(sasl_mechanism="AWS_MSK_IAM")
    assert read["sasl.jaas.config"] == "software.amazon.msk.auth.iam.IAMLoginModule required;"
    handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    assert read["sasl.client.callback.handler.class"] == handler


@pytest.mark.parametrize("is_sinks", [True, False])
def test_amazons_login_by_jaas_has_its_callback_handler(is_sinks):
    jaas = 'software.amazon.msk.auth.iam.IAMLoginModule required awsProfileName="p";'
    if is_sinks:
        read = source(sasl_mechanism="AWS_MSK_IAM", sasl_jaas_config=jaas)
    else:
        read = source({"kafka.sasl.jaas.config": jaas}, sasl_mechanism="AWS_MSK_IAM")
    assert read["sasl.jaas.config"] == jaas
    handler = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
    assert read["sasl.client.callback.handler.class"] == handler
    own = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": "own"}
    assert "sasl.client.callback.handler.class" not in source(own, sasl_mechanism="AWS_MSK_IAM")


def test_the_sources_own_login_wins():
    own = {"kafka.sasl.jaas.config": "own", "kafka.sasl.login.callback.handler.class": "Handler"}
    read = source(own, sasl_mechanism="OAUTHBEARER")
    assert read == {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": "own",
        "sasl.login.callback.handler.class": "Handler",
    }


def test_librdkafkas_names_become_javas_or_are_rejected_with_them():
    assert source(ssl_ca_location="/ca.pem", ssl_endpoint_identification_algorithm="none") == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "",
    }
    with pytest.raises(ValueError, match=r"kafka\.ssl\.key\.location .* kafka\.ssl\.keystore"):
        source(ssl_key_location="/key.pem")
    own = {"kafka.ssl.keystore.location": "/both.pem", "kafka.ssl.keystore.type": "PEM"}
    assert source(own, ssl_key_location="/key.pem") == {
        "ssl.keystore.location": "/both.pem",
        "ssl.keystore.type": "PEM",
    }


def test_pem_as_text_has_the_type_of_store_that_java_needs():
    texts = {
        "ssl_truststore_certificates": "authority",
        "ssl_keystore_key": "key",
        "ssl_keystore_certificate_chain": "chain",
    }
    types = {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM"}
    passed_on = {name.replace("_", "."): text for name, text in texts.items()}
    assert source(**texts) == passed_on | types


# --- the selection --------------------------------------------------------------------------------


def test_every_selection_has_a_checkpoint_of_its_own(load):
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    selections = [
        EVERYTHING,
        Selection(errors=frozenset({"A"})),
        Selection(topics=frozenset({"A"})),
        Selection(since=noon),
        Selection(until=noon),
    ]
    checkpoints = {load(selection).configuration.job.checkpoint for selection in selections}
    checkpoints.add(load(dead_letter_topic="dead2").configuration.job.checkpoint)
    assert len(checkpoints) == 6
    assert all(checkpoint.startswith("/replays/") for checkpoint in checkpoints)
    same = [Selection(errors=frozenset(errors)).checkpoint("/r/", "t") for errors in ("AB", "BA")]
    assert same == ["/r/aa1e8c597a502b5f"] * 2  # the same in every release


@pytest.mark.parametrize(
    ("text", "hour"),
    [
        ("2026-01-01", 0),
        ("2026-01-01T12:00:00", 12),
        ("2026-01-01T12:00:00Z", 12),
        ("2026-01-01T12:00:00+02:00", 10),
    ],
)
def test_a_time_is_in_utc_unless_it_says_otherwise(text, hour):
    choice = _parser().parse_args(["--config", "c", "--checkpoint", "c", "--since", text])
    assert choice.since == datetime(2026, 1, 1, hour, tzinfo=timezone.utc)


# --- the command ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--config", "c"], "--checkpoint"),
        (["--checkpoint", "c"], "--config"),
        (["--config", "c", "--checkpoint", "c", "--since", "noon"], "noon is not a time such as"),
    ],
)
def test_a_wrong_command_is_rejected_with_the_usage(arguments, expected, capsys):
    with pytest.raises(SystemExit) as raised:
        main(arguments)
    assert raised.value.code == 2
    assert expected in capsys.readouterr().err


def test_before_spark_4_the_way_out_is_named_before_anything_else(load, monkeypatch):
    monkeypatch.delattr(Column, "try_cast")
    replay = load()
    with pytest.raises(LibraryUnavailable, match="in another environment, and replay them there"):
        replay.rows(None, replay.configuration)
    with pytest.raises(LibraryUnavailable, match="cannot restore or replay dead letters"):
        restore_dead_letters(None)


@pytest.mark.parametrize("name", ["timestamp", "TIMESTAMP"])
def test_a_restored_time_is_never_replaced(name):
    rows = SimpleNamespace(columns=["value", name])  # without withColumn
    assert _with_timestamp(rows) is rows
