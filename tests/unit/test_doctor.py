"""The table of checks, its time, its secrets, and its command."""

from __future__ import annotations

import json
import re
import threading
import time

import pytest

from spark_kafka_sink.__main__ import main
from spark_kafka_sink.tools.doctor import Outcome, Result, diagnose, diagnosis
from spark_kafka_sink.tools.doctor.brokers import RequestRejected
from spark_kafka_sink.tools.doctor.diagnosis import CHECKS, Check
from spark_kafka_sink.tools.doctor.result import (
    _NAME_WIDTH,
    failed,
    not_applicable,
    passed,
    say_json,
    say_text,
)

SERVERS = "--option=kafka.bootstrap.servers=127.0.0.1:1"


def check_named(name, answer, needs=(), share=1.0):
    def run(context):
        return answer(context) if callable(answer) else [answer]

    run.__name__ = name
    return Check(run, needs, share)


@pytest.fixture
def run(monkeypatch):
    """The results of a table made by the test."""

    def run(*checks, **arguments):
        monkeypatch.setattr(diagnosis, "CHECKS", checks)
        return list(diagnose({}, **arguments))

    return run


def fail(error):
    def answer(context):
        raise error

    return answer


def test_every_check_needs_only_checks_before_it():
    names = [check.name for check in CHECKS]
    assert len(names) == len(set(names))
    for number, check in enumerate(CHECKS):
        assert set(check.needs) <= set(names[:number])


def test_checks_after_a_failure_are_skipped_with_the_reason_and_others_run(run):
    results = run(
        check_named("a", failed("broken", "mend it")),
        check_named("b", passed("fine"), ("a",)),
        check_named("c", passed("fine"), ("b",)),
        check_named("d", passed("fine")),
    )
    lines = [(result.name, result.outcome.value, result.message) for result in results]
    assert lines == [
        ("a", "failed", "broken"),
        ("b", "skipped", "needs a"),
        ("c", "skipped", "needs a"),
        ("d", "passed", "fine"),
    ]


def test_what_does_not_apply_stops_nothing(run):
    results = run(
        check_named("a", not_applicable("no TLS")), check_named("b", passed("fine"), ("a",))
    )
    assert [result.outcome for result in results] == [Outcome.SKIPPED, Outcome.PASSED]


def test_a_check_that_hangs_fails_and_the_whole_ends_in_time(run):
    released = threading.Event()
    started = time.monotonic()
    results = run(
        check_named("hangs", lambda context: released.wait(60)),
        check_named("after", passed("fine")),
        timeout_seconds=0.5,
    )
    assert time.monotonic() - started < 30
    released.set()
    assert [result.outcome for result in results] == [Outcome.FAILED, Outcome.SKIPPED]
    # The time that it was given or took, which the machine's load changes.
    assert re.fullmatch(r"no answer after \d+\.\d s", results[0].message)
    assert "--timeout" in results[0].advice
    assert results[1].message == "no time left: 0.5 s have passed"


def test_a_check_that_hangs_leaves_time_for_others(run):
    released = threading.Event()
    results = run(
        check_named("hangs", lambda context: released.wait(60), share=0.01),
        check_named("after", passed("fine")),
    )
    released.set()
    assert [result.outcome for result in results] == [Outcome.FAILED, Outcome.PASSED]


def test_errors_of_brokers_and_defects_are_results(run):
    first, second = run(
        check_named("a", fail(RequestRejected(41, "Not controller"))),
        check_named("b", fail(KeyError("x"))),
    )
    assert first.outcome is second.outcome is Outcome.FAILED
    assert "Not controller" in first.message
    assert second.message == "KeyError: 'x'"


@pytest.fixture
def say(monkeypatch):
    """What doctor says for a check that fails with the context's ``message`` and ``advice``."""

    def say(message, advice, **settings):
        def answer(context):
            return [failed(message(context), advice(context))]

        checks = (CHECKS[0], check_named("b", answer, ("options",)))
        monkeypatch.setattr(diagnosis, "CHECKS", checks)
        options = {f"kafka.{name.replace('_', '.')}": value for name, value in settings.items()}
        _, result = diagnose({"kafka.bootstrap.servers": "a:1", **options})
        return result.message, result.advice

    return say


PLAIN = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "u"}


def password(context):
    return context.settings["sasl.password"]


def key_password(context):
    return context.settings["ssl.key.password"]


def test_a_secret_that_a_library_quotes_is_hidden(say):
    said = say(lambda c: f"refused {password(c)}", password, **PLAIN, sasl_password="planted")
    assert said == ("refused [hidden]", "[hidden]")


@pytest.mark.parametrize("secrets", [("planted", "planted-secret"), ("planted-secret", "planted")])
def test_a_secret_that_contains_another_is_hidden_whole(say, secrets):
    passwords = dict(zip(("sasl_password", "ssl_key_password"), secrets, strict=True))
    assert say(password, key_password, **PLAIN, **passwords) == ("[hidden]", "[hidden]")


def test_the_user_of_a_jaas_login_is_named(say):
    jaas = 'PlainLoginModule required username="kafka" password="planted-secret";'
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    _, advice = say(str, lambda context: context.user, **login, sasl_jaas_config=jaas)
    assert advice == "User:kafka"


def test_values_are_read_as_the_sink_reads_them(monkeypatch):
    monkeypatch.setattr(diagnosis, "CHECKS", CHECKS[:1])
    options = {"kafka.bootstrap.servers": "a:1,\n b:2", "topic": None, "preflight": False}
    (result,) = diagnose(options)
    assert result.message == "2 options, all valid"
    (result,) = diagnose({**options, "kafka.sasl.password": b"planted-secret"})
    assert result.message.startswith("the value of kafka.sasl.password is of type bytes; allowed:")


def test_all_wrong_options_are_listed_and_the_other_checks_use_the_right_ones():
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "kafka.lingr.ms": "5",
        "close.timeout.ms": "-1",
        "topic": "security events",
        "subscribe": "t",
    }
    results = list(diagnose(options))
    assert [result.outcome for result in results[:4]] == [Outcome.FAILED] * 3 + [Outcome.WARNED]
    assert "did you mean kafka.linger.ms?" in results[0].message
    wrong = " ".join(result.message for result in results[1:3])
    assert "close.timeout.ms=-1" in wrong
    assert "topic='security events' is not a valid topic name" in wrong
    assert "subscribe (Spark's Kafka source)" in results[3].message
    (servers,) = (result for result in results if result.name == "bootstrap_servers")
    assert servers.message != "needs options"


@pytest.mark.parametrize(
    "wrong", [{"kafka.ssl.truststore.locaton": "s"}, {"kafka.bootstrap.servers": ":1"}], ids=str
)
def test_without_the_options_of_connections_only_spark_is_looked_at(wrong):
    results = list(diagnose({"kafka.bootstrap.servers": "a:1", **wrong}))
    assert results[0].outcome is Outcome.FAILED
    ran = {result.name for result in results if result.message != "needs options"}
    assert "spark_python" in ran
    assert "bootstrap_servers" not in ran
    assert {result.message for result in results if result.name == "transaction"} == {
        "needs options"
    }


def test_no_broker_fails_and_the_rest_is_skipped():
    results = {
        result.name: result for result in diagnose({"kafka.bootstrap.servers": "127.0.0.1:1"})
    }
    assert results["bootstrap_servers"].outcome is Outcome.FAILED
    assert results["bootstrap_servers"].subject == "127.0.0.1:1"
    assert results["login"].message == "needs bootstrap_servers"


# --- the command ---------------------------------------------------------------------------------

RESULTS = [
    Result("options", "", Outcome.PASSED, 0.25, "2 options, all valid", ""),
    Result("login", "", Outcome.FAILED, 1.0, "refused: " + "long " * 20, "Correct it"),
]


def test_text_fits_the_terminal_and_counts(monkeypatch):
    assert max(len(check.name) for check in CHECKS) == _NAME_WIDTH
    monkeypatch.setenv("COLUMNS", "90")
    said = []
    assert not say_text(RESULTS, said.append)
    lines = "\n".join(said).splitlines()
    assert lines[0] == "passed   options                0.25 s  2 options, all valid"
    assert lines[1].startswith("failed   login                  1.00 s  refused: long")
    assert lines[-2] == " " * 40 + "-> Correct it"
    assert lines[-1] == "1 passed, 1 failed"
    assert max(map(len, lines)) <= 90


def test_what_was_skipped_for_one_reason_is_one_line_at_the_end():
    skipped = [
        Result(name, "", Outcome.SKIPPED, 0.0, "needs login", "") for name in ("cluster", "topic")
    ]
    said = []
    say_text([skipped[0], RESULTS[0], skipped[1]], said.append)
    assert said[1:] == ["skipped  needs login: cluster, topic", "1 passed, 2 skipped"]


def test_without_a_command_there_is_help(capsys):
    assert main([]) == 2
    assert "check what a job needs" in capsys.readouterr().out


def test_json_has_stable_names():
    said = []
    assert say_json(RESULTS[:1], said.append)
    assert json.loads(said[0]) == {
        "ok": True,
        "is_well": True,
        "results": [
            {
                "name": "options",
                "subject": "",
                "outcome": "passed",
                "seconds": 0.25,
                "message": "2 options, all valid",
                "advice": "",
            }
        ],
    }


def test_the_command_fails_if_a_check_does(capsys):
    assert main(["doctor", SERVERS, "--json"]) == 1
    output = json.loads(capsys.readouterr().out)
    assert output["ok"] is output["is_well"] is False
    assert len({result["name"] for result in output["results"]}) == len(CHECKS)


def test_ctrl_c_ends_the_command_with_130_and_without_a_traceback(monkeypatch, capsys):
    def interrupted(results, say):
        next(results)
        raise KeyboardInterrupt

    monkeypatch.setattr("spark_kafka_sink.tools.doctor.result.say_text", interrupted)
    assert main(["doctor", SERVERS]) == 130
    assert capsys.readouterr() == ("", "")


def test_the_command_takes_the_options_of_a_jobs_configuration(tmp_path, capsys):
    file = tmp_path / "job.yaml"
    options = "{kafka.bootstrap.servers: '127.0.0.1:1', topic: words}"
    file.write_text(
        f"name: words\nsource: {{format: rate}}\nsink: {{options: {options}}}\ncheckpoint: c\n"
    )
    assert main(["doctor", "--config", str(file)]) == 1
    out = capsys.readouterr().out
    assert "2 options, all valid" in out
    assert "127.0.0.1:1: " in out


def test_mistakes_in_a_jobs_configuration_exit_with_2(tmp_path, capsys):
    assert main(["doctor", "--config", str(tmp_path / "no.yaml")]) == 2
    assert "no.yaml: the file cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--option", "planted-secret"],
        ["--option", "=planted-secret"],
        [SERVERS, "--timeout", "soon"],
        [SERVERS, "--timeout", "0"],
        [SERVERS, "--timeout", "nan"],
        [SERVERS, "--unknown"],
        [SERVERS, "--config", "job.yaml"],
    ],
)
def test_wrong_usage_exits_with_2_and_quotes_no_option(arguments, capsys):
    with pytest.raises(SystemExit) as exited:
        main(["doctor", *arguments])
    assert exited.value.code == 2
    assert "planted-secret" not in capsys.readouterr().err
