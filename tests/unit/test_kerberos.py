"""Kerberos logins: Java's settings and JAAS strings, kinit and its errors, one user a process."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from public_options import jaas_strings

from spark_kafka_sink.advice import Advice
from spark_kafka_sink.clients import kerberos
from spark_kafka_sink.clients.kerberos import add_ticket, kerberos_error
from spark_kafka_sink.config import client_settings
from spark_kafka_sink.config.option import Notices
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import (
    AuthenticationFailed,
    InvalidOption,
    LibraryUnavailable,
    TokenUnavailable,
)
from spark_kafka_sink.librdkafka import build

MODULE = "com.sun.security.auth.module.Krb5LoginModule"
USER = "alice@EXAMPLE.ORG"
KEYTAB = f'useKeyTab=true keyTab="/etc/alice.keytab" principal="{USER}"'
LISTED = """Ticket cache: FILE:/tmp/tickets
Default principal: alice@EXAMPLE.ORG

Valid starting     Expires            Service principal
11/28/26 03:21:05  11/28/26 03:22:05  krbtgt/EXAMPLE.ORG@EXAMPLE.ORG
"""
RENEWABLE = LISTED + "\trenew until 11/29/26 03:21:05\n"


@pytest.fixture(autouse=True)
def library(monkeypatch):
    """As if librdkafka had Kerberos, and this process had no ticket."""
    monkeypatch.setattr(build, "features", lambda: frozenset({"sasl_gssapi", "ssl"}))
    monkeypatch.setattr(kerberos, "_ticket", None)
    monkeypatch.setenv("KRB5CCNAME", "FILE:/nobody/tickets")


def translate(settings, notices=None):
    protocol = {"bootstrap.servers": "localhost:9092", "security.protocol": "SASL_PLAINTEXT"}
    return client_settings.translate(protocol | settings, "", notices)


def jaas(options):
    return {"sasl.mechanism": "GSSAPI", "sasl.jaas.config": f"{MODULE} required {options};"}


def login(settings, notices=None):
    """The settings of the login."""
    translated = translate(settings, notices)
    return {k.removeprefix("sasl."): v for k, v in translated.items() if k.startswith("sasl.")}


BY_KEYTAB = {
    "mechanism": "GSSAPI",
    "kerberos.keytab": "/etc/alice.keytab",
    "kerberos.principal": USER,
    "kerberos.min.time.before.relogin": "0",
}


# --- settings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        KEYTAB,
        f"{KEYTAB} storeKey=true useTicketCache=false doNotPrompt=true refreshKrb5Config=true",
        f"{KEYTAB} debug=true isInitiator=false",
        # Java takes a ticket of the same user, if there is one.
        f"{KEYTAB} useTicketCache=true renewTGT=true ticketCache='/tmp/tickets'",
        KEYTAB.replace('"/etc', '"file:/etc').replace("true", "TRUE"),
    ],
)
def test_a_keytab_is_taken_from_the_jaas_string(options):
    notices = Notices()
    assert login(jaas(options), notices) == BY_KEYTAB
    assert not notices.warnings


def test_the_names_of_librdkafka_mean_the_same():
    settings = {"sasl.kerberos.keytab": "/etc/alice.keytab", "sasl.kerberos.principal": USER}
    assert login({"sasl.mechanism": "GSSAPI"} | settings) == BY_KEYTAB
    assert login(settings) == BY_KEYTAB  # it is Java's default


def test_without_a_keytab_the_cache_of_tickets_is_used():
    cache = {"mechanism": "GSSAPI", "kerberos.min.time.before.relogin": "0"}
    assert login(jaas("useTicketCache=true renewTGT=true")) == cache
    named = login(jaas(f"useTicketCache=true ticketCache='/tmp/tickets' principal='{USER}'"))
    own = {"kerberos.ticket.cache": "/tmp/tickets", "kerberos.principal": USER}
    assert named == cache | own
    # The file of java.security.auth.login.config has the rest, in Java.
    by_service = {"kerberos.service.name": "kafka"}
    assert login({"sasl.kerberos.service.name": "kafka"}) == cache | by_service


def test_what_people_write_is_accepted_without_a_warning():
    texts = [text for text in jaas_strings() if "Krb5LoginModule" in text]
    assert len(texts) > 10
    for text in (text for text in texts if r"\n" not in text):
        notices = Notices()
        translate(jaas("") | {"sasl.jaas.config": text}, notices)
        assert not notices.warnings


@pytest.mark.parametrize(
    ("option", "setting"),
    [
        ("serviceName=k", {}),
        ("", {"sasl.kerberos.service.name": "k"}),
        ("serviceName=k", {"sasl.kerberos.service.name": "k"}),
    ],
)
def test_the_service_has_its_name_from_either_place(option, setting):
    assert login(jaas(f"{KEYTAB} {option}") | setting)["kerberos.service.name"] == "k"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (f"{KEYTAB} serviceName=broker", "service.name=kafka and serviceName=broker in .* differ"),
        (KEYTAB.replace("useKeyTab=true", "useTicketCache=true"), "keyTab needs useKeyTab=true"),
        (KEYTAB.replace("useKeyTab=true", ""), "keyTab needs useKeyTab=true"),
        ("useKeyTab=true principal=alice", "useKeyTab=true needs keyTab"),
        ("useKeyTab=true keyTab='/etc/alice.keytab'", "useKeyTab=true needs principal"),
        (f"{KEYTAB} renewTGT=true", "renewTGT need useTicketCache=true"),
        (f"{KEYTAB} ticketCache=tickets", "ticketCache and renewTGT need useTicketCache=true"),
        ("principal=alice", "would ask for a password; set useKeyTab=true"),
        ("doNotPrompt=true", "would ask for a password; set useKeyTab=true"),
        (f"{KEYTAB} storekey=true", "does not read storekey; did you mean storeKey"),
        (KEYTAB.replace("alice@", "%{sasl.password}@"), "are not supported"),
    ],
)
def test_what_java_does_not_log_in_with_is_rejected(options, problem):
    with pytest.raises(InvalidOption, match=problem):
        translate(jaas(options) | {"sasl.kerberos.service.name": "kafka"})


def test_a_keytab_without_a_principal_is_rejected():
    with pytest.raises(InvalidOption, match=r"keytab needs kafka\.sasl\.kerberos\.principal"):
        translate({"sasl.mechanism": "GSSAPI", "sasl.kerberos.keytab": "/etc/alice.keytab"})


def test_a_jaas_string_wins_over_names_that_java_does_not_have():
    notices = Notices()
    others = {"sasl.kerberos.keytab": "/etc/bob.keytab", "sasl.kerberos.principal": "bob"}
    assert login(jaas(KEYTAB) | others, notices) == BY_KEYTAB
    (warning,) = notices.warnings
    assert "kafka.sasl.kerberos.keytab, kafka.sasl.kerberos.principal (kafka.sasl.jaas" in warning


def test_what_java_tunes_and_does_not_read_is_ignored():
    notices = Notices()
    tuning = {
        "sasl.kerberos.ticket.renew.jitter": "0.1",
        "sasl.kerberos.min.time.before.relogin": "9",
    }
    assert login(jaas(f"{KEYTAB} user_bob=x") | tuning, notices) == BY_KEYTAB
    (warning,) = notices.warnings
    assert "user_bob in kafka.sasl.jaas.config (Java's Krb5LoginModule does not read it)" in warning


def test_kinit_is_a_program_as_in_java(monkeypatch):
    kinit = {"sasl.kerberos.kinit.cmd": "/opt/bin/kinit"}
    assert login(jaas(KEYTAB) | kinit)["kerberos.kinit.cmd"] == "/opt/bin/kinit"
    with pytest.raises(InvalidOption, match="name only the program, as in Java"):
        translate(jaas(KEYTAB) | {"sasl.kerberos.kinit.cmd": "kinit -k alice; rm file"})
    notices = Notices()
    plain = {"sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}
    monkeypatch.setattr(build, "features", lambda: {"sasl_plain"})
    assert login(plain | kinit, notices).keys() == {"mechanism", "username", "password"}
    assert "kafka.sasl.kerberos.kinit.cmd (this login is not with Kerberos)" in notices.warnings[0]


def test_another_mechanism_does_not_take_the_module(monkeypatch):
    monkeypatch.setattr(build, "features", lambda: {"sasl_plain"})
    with pytest.raises(InvalidOption, match=r"uses Krb5LoginModule; set .* to GSSAPI"):
        translate(jaas(KEYTAB) | {"sasl.mechanism": "PLAIN"})


# --- the librdkafka in use ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (jaas(KEYTAB), "kafka.sasl.mechanism=GSSAPI needs a librdkafka with sasl_gssapi"),
        ({"security.protocol": "SSL"}, "kafka.security.protocol=SSL needs a librdkafka with ssl"),
        ({"sasl.mechanism": "SCRAM-SHA-512"}, "SCRAM-SHA-512 needs a librdkafka with sasl_scram"),
        (
            {"security.protocol": "PLAINTEXT", "compression.codec": "zstd"},
            "compression.type=zstd needs a librdkafka with zstd",
        ),
    ],
)
def test_what_librdkafka_was_built_without_is_named(monkeypatch, settings, message):
    monkeypatch.setattr(build, "features", frozenset)
    with pytest.raises(LibraryUnavailable) as raised:
        translate(settings)
    assert message in str(raised.value)
    assert build.path() in str(raised.value)
    assert ("--no-binary confluent-kafka" in str(raised.value)) == ("GSSAPI" in message)


def test_the_library_says_what_it_is(monkeypatch):
    monkeypatch.undo()
    assert {"ssl", "lz4", "sasl_scram"} <= build.features()
    assert "librdkafka" in Path(build.path()).name
    assert build.version().startswith("2.")


# --- tickets --------------------------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A kinit and a klist that write down how they are called; returns their folder."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    write(tmp_path / "kinit", 'echo "$*" >>calls; for last; do :; done; touch "$5"')
    (tmp_path / "listed").write_text(LISTED)
    write(tmp_path / "klist", f"cat {tmp_path}/listed")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "alice.keytab").touch()
    return tmp_path


def write(path, script):
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def local(options):
    return add_ticket(translate(jaas(options)))


SHIPPED = KEYTAB.replace("/etc/", "")


def test_a_keytab_is_looked_for_in_the_working_folder(programs):
    settings = local(SHIPPED)
    keytab, cache = programs / "alice.keytab", os.environ["KRB5CCNAME"].removeprefix("FILE:")
    called = f"-k -t {keytab} -c {cache}"
    assert (programs / "calls").read_text() == f"{called}.new {USER}\n"
    command = f"timeout 10 kinit {called}.$$ {USER} && mv -f {cache}.$$ {cache}"
    assert settings["sasl.kerberos.kinit.cmd"] == command
    assert settings["sasl.kerberos.min.time.before.relogin"] == "20000"  # of a minute
    assert stat.S_IMODE(Path(cache).parent.stat().st_mode) == 0o700


def test_a_ticket_serves_all_clients_of_the_process(programs):
    assert local(SHIPPED) == local(SHIPPED)
    assert len((programs / "calls").read_text().splitlines()) == 1


def test_a_ticket_outlives_a_kdc_that_is_away(programs):
    settings = local(SHIPPED)
    kerberos._ticket = replace(kerberos._ticket, next_check=Deadline(0))
    write(programs / "kinit", "echo Cannot contact any KDC >&2; exit 1")
    assert local(SHIPPED) == settings
    kerberos._ticket = replace(kerberos._ticket, end=Deadline(0))
    with pytest.raises(TokenUnavailable, match="no Kerberos ticket: Cannot contact any KDC"):
        local(SHIPPED)


def test_a_process_has_one_user(programs):
    local(SHIPPED)
    with pytest.raises(InvalidOption, match=f"is logged in with Kerberos as {USER}"):
        local(SHIPPED.replace("alice@", "bob@"))


def test_a_cache_without_a_renewable_ticket_is_only_read(programs):
    settings = local("useTicketCache=true ticketCache=tickets")
    assert os.environ["KRB5CCNAME"] == "tickets"
    assert settings["sasl.kerberos.min.time.before.relogin"] == "0"
    assert settings.keys().isdisjoint({"sasl.kerberos.kinit.cmd", "sasl.kerberos.ticket.cache"})


def test_a_renewable_ticket_is_replaced_at_once(programs, monkeypatch):
    (programs / "listed").write_text(RENEWABLE)
    command = local("useTicketCache=true")["sasl.kerberos.kinit.cmd"]
    renewal = "timeout 10 kinit -R -c /tmp/tickets.$$"
    assert command.startswith(f"cp -p /tmp/tickets /tmp/tickets.$$ && {renewal}")
    assert os.environ["KRB5CCNAME"] == "FILE:/nobody/tickets"
    (programs / "listed").write_text(RENEWABLE.replace("FILE:/tmp", "KCM:0:"))
    kerberos._ticket = None
    monkeypatch.setattr(shutil, "which", {}.get)  # as on macOS
    assert local("useTicketCache=true")["sasl.kerberos.kinit.cmd"] == "kinit -R"


def test_librdkafka_does_not_wait_for_a_kdc_that_is_silent(programs):
    command = local(SHIPPED)["sasl.kerberos.kinit.cmd"].replace("timeout 10", "timeout 0.1")
    write(programs / "kinit", "exec sleep 600")
    ended = subprocess.run(command, shell=True, timeout=60, check=False)
    assert ended.returncode == 124  # of the program timeout


def test_a_cache_of_another_user_is_not_used(programs):
    local("useTicketCache=true principal=alice")
    kerberos._ticket = None
    with pytest.raises(AuthenticationFailed, match=r"is of alice@EXAMPLE\.ORG, not of bob"):
        local("useTicketCache=true principal=bob")


def test_a_missing_keytab_is_named(programs):
    with pytest.raises(AuthenticationFailed, match=r"/etc/alice\.keytab cannot be read: No such"):
        local(KEYTAB)


def test_a_missing_program_is_named(programs):
    kinit = {"sasl.kerberos.kinit.cmd": "/nowhere/kinit"}
    with pytest.raises(AuthenticationFailed, match="/nowhere/kinit cannot be run"):
        add_ticket(translate(jaas(SHIPPED) | kinit))


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("Cannot contact any KDC for realm 'EXAMPLE.ORG'", Advice.KDC_AWAY),
        ("Client 'bob' not found in Kerberos database", Advice.KERBEROS_PRINCIPAL),
        ("Server kafca/localhost@X not found in Kerberos database", Advice.KERBEROS_SERVICE),
        ("Keytab contains no suitable keys for bob", Advice.KEYTAB_WITHOUT_KEY),
        ("Preauthentication failed", Advice.KEYTAB_WITHOUT_KEY),
        ("Cannot find KDC for realm 'X'", Advice.KERBEROS_REALM),
        ("Clock skew too great", Advice.KERBEROS_CLOCK),
        ("Ticket expired", Advice.TICKET_HAS_EXPIRED),
        ("No Kerberos credentials available", Advice.NO_TICKET),
    ],
)
def test_an_error_of_kerberos_says_what_to_do(text, advice):
    error = kerberos_error("no Kerberos ticket: ", f"kinit: {text} while it ran")
    assert error.args[1] == advice.remedy
    assert isinstance(error, TokenUnavailable) == (advice is Advice.KDC_AWAY)
