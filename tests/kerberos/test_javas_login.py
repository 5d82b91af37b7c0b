"""Which JAAS strings log in at a real KDC: with Java's producer, and here."""

from __future__ import annotations

import os
from unittest.mock import patch

import pytest
from java_classes import java_classes, newest_class_path
from realm import JAVAS_MODULE, USER

from spark_kafka_sink.clients import kerberos
from spark_kafka_sink.driver.options import read_options
from spark_kafka_sink.errors import AuthenticationFailed, InvalidOption

pytestmark = pytest.mark.slow

KEYTAB = f"useKeyTab=true keyTab='{{keytab}}' principal='{USER}'"
CACHE = "useTicketCache=true ticketCache='{cache}'"


@pytest.fixture(scope="module")
def java(realm):
    options = f"-Djava.security.krb5.conf={realm.configuration}"
    with (
        patch.dict(os.environ, {"JDK_JAVA_OPTIONS": options}),
        java_classes(newest_class_path()) as classes,
    ):
        yield classes


@pytest.fixture
def cache(realm, tmp_path):
    realm.kinit(tmp_path / "tickets")
    return tmp_path / "tickets"


def logs_in(options):
    try:
        kerberos.add_ticket(read_options(options).producer.client)
    except (AuthenticationFailed, InvalidOption):
        return False
    return True


@pytest.mark.parametrize(
    "login",
    [
        KEYTAB,
        f"{KEYTAB} storeKey=true doNotPrompt=true refreshKrb5Config=true debug=false",
        f"{KEYTAB} useTicketCache=true renewTGT=true",
        f"{KEYTAB} {CACHE}",
        f"{KEYTAB} isInitiator=false",
        f"{KEYTAB} user_bob=x",
        f"{KEYTAB} renewTGT=true",
        f"{KEYTAB} ticketCache='{{cache}}'",
        KEYTAB.replace("'{", "'FILE:{"),
        KEYTAB.replace("'{", "'SRVTAB:{"),
        KEYTAB.replace("true", "TRUE"),
        KEYTAB.replace("true", "yes"),
        KEYTAB.replace("useKeyTab=true", ""),
        KEYTAB.replace("useKeyTab", "useTicketCache"),
        KEYTAB.replace("{keytab}", "/nowhere/alice.keytab"),
        KEYTAB.replace("alice@", "bob@"),
        KEYTAB.replace("@EXAMPLE.ORG", ""),
        KEYTAB.replace("@EXAMPLE.ORG", "@NOWHERE.ORG"),
        f"useKeyTab=true principal='{USER}'",
        "useKeyTab=true keyTab='{keytab}'",
        CACHE,
        f"{CACHE} principal='{USER}' renewTGT=true doNotPrompt=true storeKey=false",
        f"{CACHE} principal=alice",
        f"{CACHE} principal=bob",
        CACHE.replace("'{", "'FILE:{"),
        CACHE.replace("{cache}", "{cache}-none"),
        f"principal='{USER}'",
        "doNotPrompt=true",
        "",
    ],
)
def test_what_logs_in_with_java_logs_in_here(realm, java, cache, monkeypatch, login):
    monkeypatch.setattr(kerberos, "_ticket", None)
    monkeypatch.setenv("KRB5CCNAME", f"FILE:{cache}-of-nobody")
    login = login.replace("{keytab}", str(realm.keytab)).replace("{cache}", str(cache))
    options = {
        "kafka.bootstrap.servers": "localhost:1",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "GSSAPI",
        "kafka.sasl.kerberos.service.name": "kafka",
        "kafka.sasl.jaas.config": f"{JAVAS_MODULE} required {login};",
        "topic": "topic1",
    }
    verdict = java.verdict(options)
    assert logs_in(options) == (verdict.outcome == "accepted"), verdict.message


def test_java_takes_one_name_of_the_service(realm, java, monkeypatch):
    """It needs one; here librdkafka's default is kafka."""
    monkeypatch.setattr(kerberos, "_ticket", None)
    login = KEYTAB.replace("{keytab}", str(realm.keytab))
    options = {
        "kafka.bootstrap.servers": "localhost:1",
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.jaas.config": f"{JAVAS_MODULE} required serviceName=kafka {login};",
        "topic": "topic1",
    }
    name = "kafka.sasl.kerberos.service.name"
    for service, is_accepted in ((None, True), ("kafka", True), ("broker", False)):
        of_service = options if service is None else options | {name: service}
        assert (java.verdict(of_service).outcome == "accepted") == is_accepted
        assert logs_in(of_service) == is_accepted
