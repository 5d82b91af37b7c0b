"""The notebook for Databricks writes to a real Kafka, in classic and Spark Connect sessions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from topics import Topics

from spark_kafka_sink.tools.local_kafka import LocalKafka, Security

APP = Path(__file__).parent.parent / "support" / "notebook_app.py"
PASSWORD = "planted-secret-of-alice"
ROWS = 100  # in each micro-batch
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
PROGRESS = re.compile(rf"^micro-batch (\d+): {ROWS} rows in \d+\.\d s$", re.MULTILINE)


@pytest.fixture(scope="module")
def kafka():
    with LocalKafka(security=Security(users={"alice": PASSWORD})) as kafka:
        yield kafka


@pytest.fixture
def topics(kafka):
    topics = Topics(kafka.internal_servers)
    yield topics
    topics.close()


@pytest.fixture
def run(kafka, topics, tmp_path):
    """Runs the notebook in a session of that kind; returns what it printed and its exit code."""

    def run(kind, mode, topic, password=PASSWORD):
        parameters = {
            "mode": mode,
            "bootstrap_servers": kafka.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "secret_scope": "kafka-test",
            "topic": topic,
            "folder": str(tmp_path),
            "run_seconds": "1",
        }
        secrets = {"kafka-test": {"username": "alice", "password": password}}
        command = [sys.executable, str(APP), kind, json.dumps(parameters), json.dumps(secrets)]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=380, check=False)
        assert "planted-secret" not in answer.stdout + answer.stderr
        return answer

    return run


@pytest.mark.parametrize("mode", ["format", "foreach_batch"])
@pytest.mark.parametrize("kind", ["local[2]", "connect"])
def test_the_cells_write_a_stream_show_its_reports_and_stop_it(run, topics, kind, mode):
    topic = topics.create(partitions=2)
    answer = run(kind, mode, topic)
    assert answer.returncode == 0, answer.stdout + answer.stderr[-5000:]
    assert re.search(r"^WarmUpResult\(.*problem=''\)$", answer.stdout, re.MULTILINE), answer.stdout
    batch_ids = [int(batch_id) for batch_id in PROGRESS.findall(answer.stdout)]
    assert batch_ids == list(range(len(batch_ids))), answer.stdout
    assert len(batch_ids) >= 2, answer.stdout + answer.stderr[-5000:]

    written = {int(record.key): record for record in topics.read(topic)}
    assert written.keys() >= set(range(ROWS * len(batch_ids)))
    assert all(record.value == b'{"number":%d}' % number for number, record in written.items())

    result = json.loads(answer.stdout.splitlines()[-1])
    assert result["is_active"] is False
    (reports,) = result["displayed"]
    if mode == "format":
        assert reports == []
        return
    assert len(reports) >= len(batch_ids)
    for batch_id, report in enumerate(reports):
        numbers = range(ROWS * batch_id, ROWS * (batch_id + 1))
        assert report == {
            "file": f"{batch_id:08}.json",
            "records": ROWS,
            "sent_bytes": sum(len(written[n].key + written[n].value) for n in numbers),
            "records_by_topic": {topic: ROWS},
        }


@pytest.mark.parametrize("kind", ["local[2]", "connect"])
def test_a_refused_login_fails_the_cell_that_waits_for_the_stream(run, topics, kind):
    answer = run(kind, "foreach_batch", topics.create(), "planted-secret-of-nobody")
    assert answer.returncode == 1, answer.stdout + answer.stderr[-5000:]
    assert re.search(r"^WarmUpResult\(.*problem=.*refuse the login", answer.stdout, re.MULTILINE)
    where = "in <module>\n    query.awaitTermination("
    assert where in answer.stderr, answer.stdout + answer.stderr[-5000:]
    assert "AuthenticationFailed: the brokers at" in answer.stderr
