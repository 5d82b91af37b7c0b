"""The command line of jobs/stream_to_kafka.py, as far as it needs no Spark."""

from __future__ import annotations

import os
import re
from contextlib import nullcontext
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest
from another_python import run_python
from job_output import Said
from pyspark.sql.types import StructType, YearMonthIntervalType

from spark_kafka_sink.errors import KafkaSinkError
from spark_kafka_sink.librdkafka import build
from spark_kafka_sink.tools.job import command, replay, run
from spark_kafka_sink.tools.job.command import main
from spark_kafka_sink.tools.job.configuration import load
from spark_kafka_sink.tools.job.stop import Stop

JOBS = Path(__file__).parents[2] / "jobs"


def test_a_wrong_configuration_ends_with_2_and_all_mistakes(tmp_path, capsys):
    file = tmp_path / "job.yaml"
    file.write_text("name: numbers\nsoruce: {}\n")
    assert main(["--config", str(file), "--set", "sink.mode=both"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert f"{file}:2:1: soruce: unknown key; did you mean source?" in err
    assert "--set sink.mode: sink.mode: allowed: foreach_batch or format" in err


@pytest.mark.parametrize("main", [main, replay.main])
def test_a_librdkafka_without_what_options_need_ends_with_2(main, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(build, "features", frozenset)
    file = tmp_path / "job.yaml"
    file.write_text(
        "name: numbers\nsource: {format: rate}\ncheckpoint: /c\nsink: {options: "
        "{kafka.bootstrap.servers: 'a:1', topic: t, kafka.security.protocol: SSL}}\n"
    )
    checkpoint = ["--checkpoint", "/c"] * (main is replay.main)
    assert main(["--config", str(file), *checkpoint]) == 2
    assert "SSL needs a librdkafka with ssl" in capsys.readouterr().err


def test_a_spark_that_does_not_start_ends_with_1_and_says_what_to_check(tmp_path):
    file = tmp_path / "job.yaml"
    file.write_text(
        "name: numbers\nsource: {format: rate}\nsink: {options: "
        "{kafka.bootstrap.servers: '127.0.0.1:1', topic: t}}\ncheckpoint: /nowhere\n"
    )
    program, java = JOBS / "stream_to_kafka.py", {"JAVA_HOME": str(tmp_path)}
    done = run_python(program, "--config", file, env=os.environ | java, check=False)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    *_, said = done.stderr.splitlines()
    assert said.startswith("KafkaSinkError: Spark does not start: [JAVA_GATEWAY_EXITED]")
    assert "Check JAVA_HOME" in said


def test_a_dry_run_checks_the_columns_against_the_formats(tmp_path, monkeypatch):
    registry = "schema.registry.url: 'http://127.0.0.1:1', value.format: avro"
    file = tmp_path / "job.yaml"
    file.write_text(
        "name: audit\nsource: {format: rate}\ncheckpoint: /c\nsink: {options: "
        f"{{kafka.bootstrap.servers: '127.0.0.1:1', topic: audit, {registry}}}}}\n"
    )
    rows = SimpleNamespace(schema=StructType().add("value", YearMonthIntervalType()))
    monkeypatch.setattr(run, "session", lambda name, output: nullcontext())
    monkeypatch.setenv("COLUMNS", "300")
    output = Said()
    assert run.dry_run(load(file), output, lambda spark, configuration: rows) == 1
    said = "\n".join(output.messages)
    assert re.search("failed +columns .*the column value has no Avro schema", said)


def test_a_missing_config_is_rejected_with_the_usage(capsys):
    with pytest.raises(SystemExit) as raised:
        main([])
    assert raised.value.code == 2
    assert "--config" in capsys.readouterr().err


@pytest.mark.parametrize(
    "command", [["stream_to_kafka.py"], ["replay_dead_letters.py", "--checkpoint", "c"]]
)
def test_a_wrong_configuration_is_reported_before_pyspark_is_loaded(command, tmp_path):
    script, *arguments = command
    words = [str(JOBS / script), "--config", str(tmp_path / "no.yaml"), *arguments]
    code = (
        "import runpy, sys\n"
        f"sys.argv = {words!r}\n"
        "try:\n"
        "    runpy.run_path(sys.argv[0], run_name='__main__')\n"
        "except SystemExit as end:\n"
        "    print(end.code, 'pyspark' in sys.modules)\n"
    )
    done = run_python("-c", code, cwd=tmp_path)
    assert done.stdout == "2 False\n"
    assert "no.yaml: the file cannot be read" in done.stderr


@pytest.fixture
def warming(tmp_path, monkeypatch):
    """A job that warms up; ``stuck``: until this is set, at most."""
    file = tmp_path / "job.yaml"
    file.write_text(
        "name: numbers\nsource: {format: rate}\nwarm_up: true\ncheckpoint: /c\n"
        "sink: {options: {kafka.bootstrap.servers: '127.0.0.1:1', topic: t}}\n"
    )
    stuck, warm = Event(), Event()

    def warm_up(spark, options):
        stuck.wait(60)
        warm.set()

    monkeypatch.setattr(run, "session", lambda name, output: nullcontext())
    monkeypatch.setattr(run, "warm_up", warm_up)
    yield SimpleNamespace(job=load(file), stuck=stuck, warm=warm)
    stuck.set()


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (KeyboardInterrupt(), 0, "stopped before the query started; no records were written"),
        (KafkaSinkError("away"), 1, "KafkaSinkError: away"),
    ],
)
def test_neither_a_signal_nor_an_error_waits_for_the_warm_up(
    warming, monkeypatch, error, code, said
):
    output = Said()
    monkeypatch.setattr(command, "open_output", lambda name, console: nullcontext(output))
    monkeypatch.setattr(command, "handle_signals", lambda stop: None)

    def fail(spark, configuration):
        raise error

    def act(stop, output):
        return run.run(warming.job, stop, output, fail)

    assert command.run_supervised(warming.job.job, act, is_dry=False) == code
    assert not warming.warm.is_set()
    assert output.messages == [said]


@pytest.mark.parametrize("is_stuck", [False, True])
def test_rows_wait_for_the_warm_up_until_its_deadline(warming, monkeypatch, is_stuck):
    is_warm = []

    def build(spark, configuration):
        if is_stuck:
            monkeypatch.setattr(run, "_WARM_UP_SECONDS", 0.01)
        else:
            warming.stuck.set()

    def start(*arguments):
        is_warm.append(warming.warm.is_set())
        raise KafkaSinkError("enough is seen")

    monkeypatch.setattr(run, "start", start)
    monkeypatch.setattr(run._QueryRun, "_handle_signals", lambda self: None)
    with pytest.raises(KafkaSinkError, match="enough is seen"):
        run.run(warming.job, Stop(60), Said(), build)
    assert is_warm == [not is_stuck]
