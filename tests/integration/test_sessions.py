"""Spark sessions that are not local ones: with executors of their own, and Connect."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import fastavro
import pytest
from stub_registry import running_stub

APP = Path(__file__).parent.parent / "support" / "session_app.py"
WORDS = ["stream-a", "stream-a", "stream-b", "stream-a=2", "stream-b=1"]


def expected(how):
    words = list(WORDS)
    if how == "found":
        words += [f"once-{word}" for word in WORDS]
        words += [f"driver-{word}" for word in ["batch", *WORDS[:3]]]
        words += [f"driver-once-{word}" for word in WORDS[:3]]
    return sorted(word.encode() for word in [f"batch-{i}" for i in range(500)] + words)


@pytest.mark.slow
@pytest.mark.timeout(420)
@pytest.mark.parametrize(
    ("kind", "how"),
    [("local-cluster[2,1,1024]", "found"), ("connect", "found"), ("connect", "registered")],
)
def test_batch_and_streams_arrive_in_other_sessions(bootstrap_servers, topics, tmp_path, kind, how):
    topic = topics.create(partitions=2)
    topics.create(name=f"{topic}-avro")
    command = [sys.executable, str(APP), kind, bootstrap_servers, topic, str(tmp_path), how]
    with running_stub() as registry:
        command.append(registry.url)
        answer = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert answer.returncode == 0, answer.stderr
    (entry,) = registry.subjects[f"{topic}-avro-value"]
    schema = fastavro.parse_schema(json.loads(entry["schema"]))
    avro = [BytesIO(record.value[5:]) for record in topics.read(f"{topic}-avro")]
    structs = [fastavro.schemaless_reader(message, schema) for message in avro]
    assert sorted(struct["word"] for struct in structs) == sorted(2 * WORDS[:3])
    assert sorted(r.value for r in topics.read(topic)) == expected(how)
    (report,) = tmp_path.glob("report-*")
    assert report.name == "report-0"
    assert json.loads(report.read_text())["records_by_topic"] == {topic: 2}
    files = [path for path in (tmp_path / "events").rglob("*") if path.is_file()]
    events = "".join(path.read_text() for path in files)
    assert "AppendData" in events
    assert "hunter2" not in events
    if how == "found":
        assert "row 0: null topic" in answer.stdout
        assert (tmp_path / "in-query").read_text() == str(kind == "connect")
        if kind == "connect":
            assert "MSG_SIZE_TOO_LARGE" in answer.stdout
            ticks = (tmp_path / "ticks").read_text()
            assert len(ticks) < 60, "Spark's job did not end with the query"
    else:
        assert re.search(r"session_app\.py:\d+: UserWarning: spark\.speculation", answer.stderr)
