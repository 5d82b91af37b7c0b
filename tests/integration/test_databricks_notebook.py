"""The notebook for Databricks writes to a real Kafka, in classic and Spark Connect sessions."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from local_cluster import LocalCluster, Security
from topics import Topics

APP = Path(__file__).parent.parent / "support" / "notebook_app.py"
MODES = ["format", "foreach_batch"]
PASSWORD = "planted-secret-of-alice"
ROWS = 100  # in each micro-batch
SECONDS = 600  # for three runs in one session
pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 60)]
PROGRESS = re.compile(rf"^micro-batch (\d+): {ROWS} rows in \d+\.\d s$", re.MULTILINE)
RESULT = re.compile(r"^({.*})\n", re.MULTILINE)


@pytest.fixture(scope="module")
def kafka():
    with LocalCluster(security=Security(users={"alice": PASSWORD})) as kafka:
        yield kafka


@pytest.fixture(scope="module")
def topics(kafka):
    topics = Topics(kafka.internal_servers)
    yield topics
    topics.close()


class Session(NamedTuple):
    """A session in which the notebook ran in both modes, and then with a wrong password.

    ``topics``: of the two modes. ``printed``: by each run. ``results``: lines of JSON after the
    runs that did not fail.
    """

    answer: subprocess.CompletedProcess[str]
    topics: dict[str, str]
    printed: list[str]
    results: list[dict[str, Any]]


@pytest.fixture(scope="module", params=["local[2]", "connect"])
def session(kafka, topics, tmp_path_factory, request):
    def run(mode, topic, password=PASSWORD):
        parameters = {
            "mode": mode,
            "bootstrap_servers": kafka.bootstrap_servers,
            "security_protocol": "SASL_PLAINTEXT",
            "secret_scope": "kafka-test",
            "topic": topic,
            "folder": str(tmp_path_factory.mktemp("volume")),
            "run_seconds": "1",
        }
        return parameters, {"kafka-test": {"username": "alice", "password": password}}

    written = {mode: topics.create(partitions=2) for mode in MODES}
    runs = [run(mode, topic) for mode, topic in written.items()]
    runs.append(run("foreach_batch", topics.create(), "planted-secret-of-nobody"))
    command = [sys.executable, str(APP), request.param, json.dumps(runs)]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert "planted-secret" not in answer.stdout + answer.stderr
    parts = RESULT.split(answer.stdout)
    assert len(parts) == 5, answer.stdout + answer.stderr
    return Session(answer, written, parts[::2], [json.loads(line) for line in parts[1::2]])


@pytest.mark.parametrize("mode", MODES)
def test_the_cells_write_a_stream_show_its_reports_and_stop_it(session, topics, mode):
    run, topic = MODES.index(mode), session.topics[mode]
    printed, result = session.printed[run], session.results[run]
    assert re.search(r"^WarmUpResult\(.*problem=''\)$", printed, re.MULTILINE), printed
    batch_ids = [int(batch_id) for batch_id in PROGRESS.findall(printed)]
    assert batch_ids == list(range(len(batch_ids))), printed
    assert len(batch_ids) >= 2, printed

    written = {int(record.key): record for record in topics.read(topic)}
    assert written.keys() >= set(range(ROWS * len(batch_ids)))
    assert all(record.value == b'{"number":%d}' % number for number, record in written.items())

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


def test_a_rejected_login_fails_the_cell_that_waits_for_the_stream(session):
    answer, printed = session.answer, session.printed[-1]
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert re.search(r"^WarmUpResult\(.*problem=.*reject the login", printed, re.MULTILINE)
    where = "in <module>\n    query.awaitTermination("
    assert where in answer.stderr, answer.stdout + answer.stderr
    assert "AuthenticationFailed: the brokers at" in answer.stderr
