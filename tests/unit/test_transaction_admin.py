"""python -m spark_kafka_sink transactions: whose an id is, what the tables say, how it logs in."""

from __future__ import annotations

import io
import ssl
import sys
import threading

import pytest
from rich.console import Console

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.errors import InvalidOption, LedgerLost, TransactionFailed
from spark_kafka_sink.librdkafka.group_offsets import CommittedOffset
from spark_kafka_sink.tools.transactions import command, login, tables
from spark_kafka_sink.tools.transactions.state import (
    ActiveProducer,
    BlockedPartition,
    LedgerRow,
    Partition,
    TransactionalId,
    belongs_to,
    in_order,
    ledger_rows,
)
from spark_kafka_sink.transactions.ledger import BatchMarker, CommitEntry

SERVERS = ["--option", "kafka.bootstrap.servers=127.0.0.1:1"]


def transactional_id(name, state="Ongoing", started_at=1_000.0, partitions=()):
    return TransactionalId(name, state, 4_000, 3, 600_000, started_at, partitions)


def rows(table):
    console = Console(file=io.StringIO(), width=300, record=True)
    console.print(table)
    lines = [line.split("│")[1:-1] for line in console.export_text().splitlines()]
    return [[cell.strip() for cell in line] for line in lines if line]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("orders.0", True),
        ("orders.12", True),
        ("orders-eu.0", False),
        ("orders.eu.0", False),
        ("orders.driver", False),
        ("orders.", False),
        ("orders", False),
    ],
)
def test_a_query_has_the_ids_of_its_prefix_and_a_number(name, expected):
    assert belongs_to(name, "orders") is expected


def test_ids_are_in_the_order_of_their_numbers():
    names = ["b.0", "a.10", "a.9", "c"]
    ordered = in_order(transactional_id(name) for name in names)
    assert [each.name for each in ordered] == ["c", "a.9", "a.10", "b.0"]


@pytest.mark.parametrize("state", ["PrepareCommit", "PrepareAbort", "PrepareEpochFence"])
def test_a_transaction_that_is_being_ended_is_open(state):
    assert transactional_id("a.0", state).is_open


def test_only_of_open_transactions_age_and_partitions_are_shown():
    parts = (Partition("t", 0), Partition("t", 2), Partition("__consumer_offsets", 7))
    ids = [
        transactional_id("a.0", partitions=parts),
        transactional_id("a.1", "CompleteCommit", started_at=None),
    ]
    assert rows(tables.transactions(ids, 1_200.0)) == [
        ["a.0", "Ongoing", "3 min 20 s", "10 min", "4000", "3", "t 0, 2; __consumer_offsets 7"],
        ["a.1", "CompleteCommit", "", "10 min", "4000", "3", ""],
    ]


def test_the_blocking_producer_may_be_unknown():
    blocked = [
        BlockedPartition(Partition("t", 0), 10, 1_012, ActiveProducer(4_000, 3, 10)),
        BlockedPartition(Partition("t", 1), 10, 12, ActiveProducer(5_000, 0, 10)),
        BlockedPartition(Partition("t", 2), 10, 12, None),
    ]
    assert [row[2:] for row in rows(tables.blocked(blocked, {4_000: "a.0"}))] == [
        ["10", "1,012", "1,002", "a.0 (producer 4000, epoch 3)"],
        ["10", "12", "2", "an unknown id (producer 5000, epoch 0)"],
        ["10", "12", "2", "a transaction that has just ended"],
    ]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "0 s"),
        (0.44, "0.4 s"),
        (12.7, "12 s"),
        (60.0, "1 min"),
        (200.0, "3 min 20 s"),
        (7_509.0, "2 h 5 min"),
        (259_200.0, "72 h"),
    ],
)
def test_durations(seconds, expected):
    assert tables.duration(seconds) == expected


def test_the_ledger_is_read_as_tasks_read_it():
    marker, entry = BatchMarker(7, 2), CommitEntry(8, 2, 3, "abc")
    topic = Partition("t", 0)
    offsets = {
        "a.driver": {topic: marker.to_offset()},
        "a.0": {topic: entry.to_offset(), Partition("former", 0): entry.to_offset()},
        "a.1": {},
    }
    assert ledger_rows("a", offsets) == [
        LedgerRow("a.driver", "t", marker),
        LedgerRow("a.0", "former", entry),
        LedgerRow("a.0", "t", entry),
    ]
    with pytest.raises(LedgerLost, match=r"consumer group a\.1 .*without metadata"):
        ledger_rows("a", {"a.1": {topic: CommittedOffset(3, "")}})


# --- login ----------------------------------------------------------------------------------------


@pytest.fixture
def translated(monkeypatch):
    """kafka-python's settings for options, without their ``kafka.``; no broker is asked."""
    monkeypatch.setattr(login, "_log_in", lambda settings, deadline: None)

    def translated(given):
        options = {f"kafka.{name}": value for name, value in given.items()}
        options.setdefault("kafka.bootstrap.servers", "a:1, b:2")
        return login.login(parse(options).producer.client, Deadline(5))

    return translated


def test_a_login_without_security(translated):
    assert translated({}) == {
        "bootstrap_servers": ["a:1", "b:2"],
        "client_id": "spark-kafka-sink",
        "security_protocol": "PLAINTEXT",
    }


def test_a_password_is_passed_on_and_stays_hidden(translated):
    word = 'username="alice" password="planted-secret";'
    found = translated(
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": f"org.apache.kafka.common.security.scram.ScramLoginModule required "
            f"{word}",
        }
    )
    assert (found["sasl_mechanism"], found["sasl_plain_username"]) == ("SCRAM-SHA-512", "alice")
    assert found["sasl_plain_password"] == "planted-secret"
    assert "planted-secret" not in repr(found)
    assert found["ssl_context"].verify_mode is ssl.CERT_REQUIRED


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"ssl.crl.location": "/tmp/crl.pem"}, r"does not support kafka\.ssl\.crl\.location"),
        ({"ssl.keystore.location": "/tmp/client.p12"}, "only from a PEM file"),
        ({"ssl.ca.location": "/no/such/file"}, "a TLS file cannot be used"),
        (
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "ssl.ca.location": "/no/such/file",
            },
            r"kafka\.sasl\.username is missing: .* needs .* and kafka\.sasl\.password",
        ),
        (
            {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": "i",
                "sasl.oauthbearer.client.secret": "planted-secret",
                "sasl.oauthbearer.token.endpoint.url": "http://127.0.0.1:1/",
            },
            r"set oauth\.callback to a function",
        ),
    ],
)
def test_what_kafka_python_lacks_or_cannot_do_without_is_refused(translated, settings, error):
    with pytest.raises(InvalidOption, match=error):
        translated({"security.protocol": "SSL", **settings})


# --- the command ----------------------------------------------------------------------------------


def test_wrong_options_exit_with_2(capsys):
    assert main(["transactions", "list", *SERVERS, "--option", "topik=t"]) == 2
    assert capsys.readouterr().err.startswith("error: unknown option topik")


def test_one_that_cannot_be_ended_keeps_no_other_open(monkeypatch, capsys):
    def abort(options, transaction, wait):
        if transaction.name == "a.0":
            raise TransactionFailed(f"{wait.purpose}: not allowed", code="X")

    ids = [transactional_id("a.0"), transactional_id("a.1"), transactional_id("a.2", "Empty")]
    monkeypatch.setattr(command, "_find", lambda *_: command._Found(ids, [], {}))
    monkeypatch.setattr(command, "abort", abort)
    assert main(["transactions", "abort", *SERVERS, "--prefix", "a"]) == 0
    printed = capsys.readouterr()
    assert "Dry run: nothing was ended" in printed.out
    assert "ended: " not in printed.out
    assert main(["transactions", "abort", *SERVERS, "--prefix", "a", "--yes"]) == 1
    printed = capsys.readouterr()
    assert printed.err == "error: ending a.0: not allowed\n"
    assert [line for line in printed.out.splitlines() if "ended" in line] == ["ended: a.1"]


def test_brokers_that_do_not_answer_are_not_waited_for(monkeypatch, capsys):
    go_on = threading.Event()
    monkeypatch.setattr(command, "_find", lambda *_: go_on.wait(60))
    try:
        assert main(["transactions", "list", *SERVERS, "--timeout", "0.05"]) == 1
    finally:
        go_on.set()
    said = capsys.readouterr().err
    assert said.startswith("error: the brokers do not answer: no end after ")


@pytest.mark.parametrize("action", ["describe", "abort"])
def test_a_query_has_to_be_named(action, capsys):
    assert main(["transactions", action, *SERVERS]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {action} needs --prefix, the transactional.id.prefix of one")


@pytest.mark.parametrize(
    "arguments", [[], ["list"], ["list", *SERVERS, "--yes"], ["end", *SERVERS]]
)
def test_wrong_usage_exits_with_2(arguments, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["transactions", *arguments])


def test_a_missing_configuration_exits_with_2(tmp_path, capsys):
    assert main(["transactions", "list", "--config", str(tmp_path / "no.yaml")]) == 2
    assert "no.yaml: the file cannot be read" in capsys.readouterr().err


def test_without_the_libraries_it_says_what_to_install(capsys, monkeypatch):
    package = "spark_kafka_sink.tools.transactions"
    for name in [each for each in sys.modules if each.startswith(package)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "kafka", None)
    assert main(["transactions", "list", *SERVERS]) == 2
    assert "pip install 'spark-kafka-sink[transactions]'" in capsys.readouterr().err
