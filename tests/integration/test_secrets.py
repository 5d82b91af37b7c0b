"""Secrets appear nowhere: not in logs, errors, plans, reprs, the UI, doctor's results or files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import secret_tokens
import trustme
from certificates import chain_pem, key_pem, write_jks, write_pem, write_pkcs12, write_trust_store
from local_cluster import LocalCluster, Security
from token_endpoint import token_endpoint
from token_functions import BROKER_SETTINGS
from topics import Topics

from spark_kafka_sink.driver.key_store import read_jks

ROOT = Path(__file__).parents[2]
SUPPORT = ROOT / "tests" / "support"
KEY_PASSWORD = "planted-hunter2-of-the-key"
PASSWORD = "planted-hunter2-login"
STORE_PASSWORD = "planted-hunter2-of-the-store"
WAYS = ("batch,", "stream,", "foreach_batch,")
pytestmark = pytest.mark.slow
WORKING = 8
SECONDS = 580


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    """Brokers that want a certificate and a login; what ``secrets_app.py`` needs for them."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    broker = write_pem(authority.issue_cert("127.0.0.1"), folder / "broker.pem")
    client = authority.issue_cert("u@example.org", common_name="u")
    security = Security(broker, {"u": PASSWORD}, folder / "ca.pem")
    with (
        LocalCluster(settings=BROKER_SETTINGS, security=security) as kafka,
        token_endpoint(secret_tokens.token) as endpoint,
    ):
        pkcs12 = write_pkcs12(client, folder / "client.p12", KEY_PASSWORD)
        yield {
            "options": {
                "kafka.bootstrap.servers": kafka.bootstrap_servers,
                "kafka.security.protocol": security.protocol,
                "kafka.ssl.truststore.type": "PEM",
                "kafka.ssl.truststore.location": str(folder / "ca.pem"),
            },
            "internal_servers": kafka.internal_servers,
            "key": key_pem(client, KEY_PASSWORD),
            "chain": chain_pem(client),
            "pkcs12": str(pkcs12),
            "jks": str(write_jks(pkcs12, folder / "client.jks", KEY_PASSWORD)),
            "trust_store": str(
                write_trust_store(folder / "ca.pem", folder / "trust.jks", "JKS", STORE_PASSWORD)
            ),
            "token_endpoint": endpoint,
        }


@pytest.fixture
def leaks(secured):
    """What of the secrets is in a text or in the files of a folder."""
    keys = [secured["key"], read_jks(Path(secured["jks"]).read_bytes(), *[KEY_PASSWORD] * 2).key]
    whole_lines = [line for key in keys for line in key.splitlines() if len(line) == 64]
    assert all(any(line in key for line in whole_lines) for key in keys)
    traces = ["planted-hunter2", secret_tokens.TRACE, *whole_lines]

    def leaks(output, folder):
        shown = [trace for trace in traces if trace in output]
        lines = [line[:500] for line in output.splitlines() if any(t in line for t in shown)]
        files = [path for path in folder.rglob("*") if path.is_file()]
        assert any("eventlog" in str(path) for path in files)
        return lines[:5] + [str(path) for path in files if holds_a_trace(path.read_bytes())]

    def holds_a_trace(content):
        return any(trace.encode() in content for trace in traces)

    return leaks


@pytest.fixture
def topic(secured, topics):
    """A topic of the secured brokers and of the others."""
    return Topics(secured["internal_servers"]).create(name=topics.create())


@pytest.mark.timeout(SECONDS + 20)  # three ways to write, with Spark's most verbose logs
def test_secrets_appear_in_no_output_of_working_and_failing_queries(
    bootstrap_servers, topic, secured, leaks, tmp_path, tmp_path_factory
):
    file = tmp_path_factory.mktemp("secured") / "secured.json"
    file.write_text(json.dumps(secured))
    command = [sys.executable, str(SUPPORT / "secrets_app.py"), bootstrap_servers, topic]
    # The stand-in hides the signer, if that is installed.
    modules = [SUPPORT / "msk_stand_in", SUPPORT, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {
        **os.environ,
        "SPARK_TRACEBACK_WITH_LOCALS": "1",
        "PYTHONPATH": os.pathsep.join(map(str, modules)),
    }
    answer = subprocess.run(
        [*command, str(tmp_path), str(file)],
        capture_output=True,
        timeout=SECONDS,
        check=False,
        env=environment,
    )
    output = (answer.stdout + answer.stderr).decode(errors="replace")
    assert answer.returncode == 0, output[-3000:]
    outcomes = [line[:300] for line in output.splitlines() if line.startswith(WAYS)]
    worked = [line for line in outcomes if line.endswith(": no error")]
    assert len(worked) == len(WAYS) * WORKING, outcomes
    assert all(" works" in line for line in worked)
    assert len(outcomes) > 2 * len(worked)
    assert "DeliveryReport(" in output
    assert "InvalidOption" in output
    examined = [line for line in output.splitlines() if line.startswith("doctor, ")]
    assert [line[-1] for line in examined] == ["0", "0", "0", "0", "1", "1", "1", "1"], examined
    for page in ("environment", "sql", "jobs", "stages"):
        assert f"UI, {page}" in output
    leaked = leaks(output, tmp_path)
    assert not leaked, leaked


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize(
    ("mode", "password", "arguments", "code", "said"),
    [
        ("format", PASSWORD, [], 0, '"batch_id":'),
        ("foreach_batch", "planted-hunter2-wrong", [], 1, "the query failed: AuthenticationFailed"),
        ("format", PASSWORD, ["--dry-run"], 0, "passed   login"),
    ],
)
def test_secrets_appear_in_no_output_of_a_job(
    secured, topic, leaks, tmp_path, tmp_path_factory, mode, password, arguments, code, said
):
    apart = tmp_path_factory.mktemp("job")
    for name in ("key", "chain"):
        (apart / f"{name}.pem").write_text(secured[name])
    options = {
        **secured["options"],
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": "u",
        "kafka.sasl.password": "${env:KAFKA_PASSWORD}",
        "kafka.ssl.keystore.key": f"${{file:{apart / 'key.pem'}}}",
        "kafka.ssl.keystore.certificate.chain": f"${{file:{apart / 'chain.pem'}}}",
        "kafka.ssl.key.password": "${env:KAFKA_KEY_PASSWORD}",
        "topic": topic,
    }
    for name in ("in", "eventlog"):
        (tmp_path / name).mkdir()
    (tmp_path / "in" / "words.txt").write_text("word")
    document = {
        "name": "words",
        "source": {"format": "text", "options": {"path": str(tmp_path / "in")}},
        "sink": {"mode": mode, "options": options},
        "trigger": {"availableNow": "true"},
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    file = tmp_path / "job.yaml"
    file.write_text(json.dumps(document))  # JSON is YAML
    settings = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": f"file://{tmp_path / 'eventlog'}",
        "spark.log.level": "DEBUG",
        "spark.sql.ui.explainMode": "extended",
    }
    conf = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    environment = {
        **os.environ,
        "KAFKA_PASSWORD": password,
        "KAFKA_KEY_PASSWORD": KEY_PASSWORD,
        "PYSPARK_SUBMIT_ARGS": f"--properties-file conf/spark.conf {conf} pyspark-shell",
    }
    answer = subprocess.run(
        [sys.executable, "jobs/stream_to_kafka.py", "--config", str(file), *arguments],
        cwd=ROOT,
        capture_output=True,
        timeout=SECONDS - 20,
        check=False,
        env=environment,
    )
    output = (answer.stdout + answer.stderr).decode(errors="replace")
    assert answer.returncode == code, output[-3000:]
    assert said in output
    leaked = leaks(output, tmp_path)
    assert not leaked, leaked
