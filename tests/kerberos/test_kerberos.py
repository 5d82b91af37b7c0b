"""Logins with Kerberos: a real KDC, a real Kafka, Spark's driver and its executors."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import doctor_results
import pytest
from realm import BROKER, JAVAS_MODULE, REALM, USER, granting_ticket
from standalone import submit
from topics import Topics

from spark_kafka_sink.clients import kerberos
from spark_kafka_sink.driver import preflight
from spark_kafka_sink.driver.options import read_options
from spark_kafka_sink.errors import AuthenticationFailed, TokenUnavailable
from spark_kafka_sink.tools.doctor import Outcome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

APP = Path(__file__).with_name("kerberos_app.py")
SUPPORT = Path(__file__).parent.parent / "support"
WAYS = ("format", "foreach_batch", "from_driver")
# Longer than two tickets last. The brokers require a new login every 20 s.
LONG_SECONDS = 150


@pytest.fixture
def topics(request):
    """Of the cluster that the test uses."""
    (name,) = {"plaintext", "tls"} & set(request.fixturenames)
    topics = Topics(request.getfixturevalue(name).internal_servers)
    yield topics
    topics.close()


def jaas(options):
    return f"{JAVAS_MODULE} required serviceName=kafka {options};"


def by_keytab(keytab):
    return jaas(f'useKeyTab=true storeKey=true keyTab="{keytab}" principal="{USER}"')


def options_for(kafka, login, **more):
    return {
        "kafka.bootstrap.servers": kafka.bootstrap_servers,
        "kafka.security.protocol": kafka.protocol,
        "kafka.sasl.jaas.config": login,
        **more,
    }


def run_app(folder, master, options, topics, *shipped, seconds=0, **variables):
    """Run the program in that folder; its executors get the variables, too."""
    folder.mkdir()
    names = ("KRB5_CONFIG", "LD_LIBRARY_PATH")
    path = f"{SUPPORT}:{os.environ.get('PYTHONPATH', '')}"
    variables |= {name: os.environ[name] for name in names} | {"PYTHONPATH": path}
    arguments = {"folder": str(folder), "options": options, "topics": topics, "seconds": seconds}
    settings = {f"spark.executorEnv.{name}": value for name, value in variables.items()}
    settings |= {
        "spark.pyspark.python": str(Path(sys.executable).parent / "kafka-nb-python"),
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    conf = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    files = ["--files", ",".join(map(str, shipped))] if shipped else []
    for file in shipped:
        shutil.copy(file, folder)  # the driver's own
    ended = subprocess.run(
        submit(master, *conf, *files, APP, json.dumps(arguments)),
        cwd=folder,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=840,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


def check_exactly_once(topics, by_way):
    expected = Counter(f"{batch}-{number}".encode() for batch in range(2) for number in range(500))
    for topic in by_way.values():
        assert Counter(topics.read_committed(topic)) == expected


@pytest.fixture
def by_way(topics):
    return {way: topics.create(partitions=2) for way in WAYS}


def test_driver_and_executors_log_in_with_a_keytab(
    realm, plaintext, master, topics, by_way, tmp_path
):
    options = options_for(plaintext, by_keytab(realm.keytab))
    run_app(tmp_path / "app", master, options, by_way)
    check_exactly_once(topics, by_way)


def test_a_shipped_keytab_needs_no_folder(realm, tls, authority, master, topics, by_way, tmp_path):
    options = options_for(tls, by_keytab("alice.keytab"))
    options["kafka.ssl.truststore.certificates"] = authority.cert_pem.bytes().decode()
    run_app(tmp_path / "app", master, options, by_way, realm.keytab)
    check_exactly_once(topics, by_way)


def test_a_cache_of_tickets_is_used_and_renewed(realm, plaintext, master, topics, tmp_path):
    cache = tmp_path / "tickets"
    realm.kinit(cache)
    before = granting_ticket(cache)
    by_way = {"format": topics.create(partitions=2)}
    options = options_for(plaintext, jaas("useTicketCache=true renewTGT=true"))
    run_app(tmp_path / "app", master, options, by_way, seconds=90, KRB5CCNAME=f"FILE:{cache}")
    assert granting_ticket(cache) != before
    check_numbers(topics, by_way["format"], 50)


def test_tickets_are_renewed_while_streams_run(realm, plaintext, master, topics, by_way, tmp_path):
    options = options_for(plaintext, by_keytab(realm.keytab))
    text = run_app(tmp_path / "app", master, options, by_way, seconds=LONG_SECONDS)
    for topic in by_way.values():
        check_numbers(topics, topic, LONG_SECONDS // 2)
    assert "Kerberos ticket refresh failed" not in text


def check_numbers(topics, topic, least):
    """The stopped query may have written a part of its last micro-batch."""
    numbers = {int(value) for value in topics.read_committed(topic)}
    assert set(range(least)) <= numbers


# --- what is said if something is missing ---------------------------------------------------------


@pytest.fixture
def fresh_process(monkeypatch, tmp_path):
    """As if this process had no ticket."""
    monkeypatch.setattr(kerberos, "_ticket", None)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{tmp_path / 'nobodys-tickets'}")


def examine(kafka, topic, login, **more):
    return doctor_results.examined(options_for(kafka, login, **more) | {"topic": topic})


@pytest.mark.usefixtures("fresh_process")
def test_doctor_shows_the_library_and_the_ticket(realm, plaintext, topics):
    results = examine(plaintext, topics.create(), by_keytab(realm.keytab))
    assert "sasl_gssapi" in results["librdkafka"].message
    assert results["librdkafka"].subject.endswith("librdkafka.so.1")
    assert results["kerberos_ticket"].message == f"{USER}, renewed every 20 s"
    assert results["login"].message == "GSSAPI as User:alice"
    assert results["write_permission"].outcome is Outcome.PASSED


def keytab_of_elsewhere(folder):
    keytab = folder / "elsewhere.keytab"
    lines = "addent -password -p alice@NOWHERE.ORG -k 1 -e aes256-cts-hmac-sha1-96\nword\n"
    subprocess.run(
        ["ktutil"], input=f"{lines}wkt {keytab}\n", text=True, check=True, capture_output=True
    )
    return keytab


@pytest.mark.usefixtures("fresh_process")
@pytest.mark.parametrize(
    ("check", "change", "problem", "advice"),
    [
        ("kerberos_ticket", ("alice.keytab", "none.keytab"), "none.keytab cannot be read: No such",
         "Ship it with spark-submit --files"),
        ("kerberos_ticket", ("alice@", "bob@"), "no suitable keys for bob",
         "Correct the principal"),
        ("kerberos_ticket", ("elsewhere", ""), "realm", "/etc/krb5.conf"),
        ("login", ("serviceName=kafka", "serviceName=kafca"), "Server kafca/localhost@.* not",
         "Set kafka.sasl.kerberos.service.name"),
    ],
)  # fmt: skip
def test_doctor_names_what_is_wrong(
    realm, plaintext, topics, tmp_path, check, change, problem, advice
):
    login = by_keytab(realm.keytab).replace(*change)
    if change[0] == "elsewhere":
        login = by_keytab(keytab_of_elsewhere(tmp_path)).replace(REALM, "NOWHERE.ORG")
    result = examine(plaintext, topics.create(), login)[check]
    assert result.outcome is Outcome.FAILED
    assert re.search(problem, result.message)
    assert advice in result.advice


@pytest.mark.usefixtures("fresh_process")
def test_doctor_misses_kinit(realm, plaintext, topics):
    kinit = {"kafka.sasl.kerberos.kinit.cmd": "/nowhere/kinit"}
    result = examine(plaintext, topics.create(), by_keytab(realm.keytab), **kinit)
    assert "/nowhere/kinit cannot be run" in result["kerberos_ticket"].message


@pytest.mark.usefixtures("fresh_process")
def test_doctor_knows_what_else_brokers_may_have_against_a_ticket(realm, plaintext, topics):
    topic, login = topics.create(), by_keytab(realm.keytab)
    realm.change_key(BROKER)
    try:
        result = examine(plaintext, topic, login)["login"]
    finally:
        realm.export(BROKER, realm.brokers_keytab)
    assert "reject the login" in result.message
    assert "export the brokers' keytab again" in result.advice


@pytest.mark.usefixtures("fresh_process")
def test_without_a_ticket_nothing_is_written(realm, plaintext, topics):
    options = options_for(plaintext, jaas("useTicketCache=true")) | {"topic": topics.create()}
    with pytest.raises(AuthenticationFailed, match=r"no Kerberos ticket: klist: No cred.*found"):
        preflight.check(read_options(options))


@pytest.mark.usefixtures("fresh_process")
def test_a_kdc_that_is_away_may_come_back(realm, plaintext, topics):
    topic, login = topics.create(), by_keytab(realm.keytab)
    realm.stop()
    try:
        result = examine(plaintext, topic, login)["kerberos_ticket"]
        assert "Cannot contact any KDC" in result.message
        assert "Check that it is running" in result.advice
        with pytest.raises(TokenUnavailable, match="Cannot contact any KDC"):
            preflight.check(read_options(options_for(plaintext, login) | {"topic": topic}))
    finally:
        realm.start()
    assert examine(plaintext, topic, login)["login"].outcome is Outcome.PASSED
