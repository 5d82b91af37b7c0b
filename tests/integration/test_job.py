"""jobs/stream_to_kafka.py, by python and by spark-submit, as users start it."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter

import pytest
from job_processes import (
    SECONDS,
    Job,
    answer_of,
    finished,
    jobs,
    wait_for_rows,
    wait_until,
    warm_java,
)

pytestmark = pytest.mark.timeout(2 * SECONDS)

SLOW_SQL = """
  SELECT string(value) AS value,
         java_method('java.lang.Thread', 'sleep', bigint(100)) AS key
  FROM source
"""


@pytest.fixture(scope="module")
def java():
    with warm_java() as java:
        yield java


@pytest.fixture
def start(tmp_path, bootstrap_servers, java):
    """Starts the job; it is killed if the test leaves it running."""
    with jobs(tmp_path, bootstrap_servers, java=java) as start_job:

        def start(how: str, configuration: str, *arguments: str) -> Job:
            file = tmp_path / "job.yaml"
            file.write_text(configuration)
            command = ["jobs/stream_to_kafka.py", "--config", str(file), *arguments]
            return start_job(how, *command)

        yield start


def words(tmp_path, topic, mode, sql, **keys):
    """A configuration that streams two files of JSON, each in its own micro-batch."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number, rows in enumerate([["a", "b"], ["c"]]):
        path = folder / f"{number}.json"
        path.write_text("\n".join(json.dumps({"word": word}) for word in rows))
        os.utime(path, (number + 1, number + 1))  # Spark takes the oldest file first
    options = {"kafka.bootstrap.servers": "${env:KAFKA_BOOTSTRAP_SERVERS}", "topic": topic}
    options = {name: value for name, value in options.items() if value is not None}
    source = {"path": str(folder), "maxFilesPerTrigger": "1"}
    document = {
        "name": "words",
        "source": {"format": "json", "schema": "word STRING", "options": source},
        "sql": sql,
        "sink": {"mode": mode, "options": options},
        "trigger": {"availableNow": "true"},
        "checkpoint": str(tmp_path / "checkpoint"),
    }
    return json.dumps({**document, **keys}, indent=1)  # JSON is YAML


@pytest.mark.parametrize(
    ("how", "mode"),
    [("python", "format"), pytest.param("spark-submit", "foreach_batch", marks=pytest.mark.slow)],
)
def test_files_arrive_in_kafka_and_every_micro_batch_is_a_line(how, mode, start, topics, tmp_path):
    topic = topics.create()
    sql = "SELECT upper(word) AS value, word AS key FROM source"
    configuration = words(tmp_path, topic, mode, sql, warm_up="true")
    guarantee = "at-least-once" if mode == "format" else "exactly-once"
    job = start(how, configuration, "--set", f"sink.options.delivery.guarantee={guarantee}")
    code, lines, said = finished(job, tmp_path)
    assert code == 0, said
    assert [(r.key, r.value) for r in topics.read(topic)] == [
        (b"a", b"A"),
        (b"b", b"B"),
        (b"c", b"C"),
    ]
    assert [(line["batch_id"], line["input_rows"]) for line in lines] == [(0, 2), (1, 1)]
    delivered = [line["records_by_topic"] for line in lines]
    assert delivered == [{topic: 2}, {topic: 1}]
    assert [line["outcome"] for line in lines] == ["delivered", "delivered"]
    assert all(line["duration_ms"] > 0 for line in lines)


def test_a_failed_query_ends_with_1_and_the_sinks_own_error(start, tmp_path):
    sql = "SELECT word AS value, string(null) AS topic FROM source"
    configuration = words(tmp_path, None, "foreach_batch", sql)
    code, lines, said = finished(start("warm", configuration), tmp_path)
    assert (code, lines) == (1, []), said
    place = "micro-batch 0, partition 0, row 0"
    assert f"the query failed: InvalidRecord: {place}: null topic" in said


def test_a_wrong_configuration_ends_spark_submit_with_2(start, tmp_path):
    configuration = words(tmp_path, "t", "both", "SELECT word AS value FROM source")
    code, lines, said = finished(start("spark-submit", configuration), tmp_path)
    assert (code, lines) == (2, []), said
    assert "job.yaml:13:3: sink.mode: allowed: foreach_batch or format" in said


@pytest.mark.needs_format
def test_a_dry_run_writes_nothing(start, topics, tmp_path):
    topic = topics.create()
    configuration = words(tmp_path, topic, "format", "SELECT word AS value FROM source")
    code, lines, said = finished(start("warm", configuration, "--dry-run"), tmp_path)
    assert (code, lines) == (0, []), said
    assert "passed   cluster" in said
    assert "passed   executors" in said
    assert topics.read(topic) == []
    assert not (tmp_path / "checkpoint").exists()


def endless(tmp_path, topic, mode, **keys):
    """A configuration that writes ten rows a second until it is stopped."""
    keys = {
        "source": {"format": "rate", "options": {"rowsPerSecond": "10"}},
        "trigger": {"processingTime": "0 seconds"},
        **keys,
    }
    sql = "SELECT string(value) AS value FROM source"
    return words(tmp_path, topic, mode, sql, **keys)


def test_a_job_serves_its_metrics_and_its_health(start, topics, tmp_path):
    topic = topics.create()
    configuration = endless(tmp_path, topic, "foreach_batch", metrics={"port": "0"})
    create = "sink.create_topics={topic: {partitions: 3}}"
    job = start("warm", configuration, "--set", create)
    match = wait_until(
        lambda said: re.search(r"metrics: (http://\S+)/metrics", said), job, tmp_path
    )
    url = match[1]
    assert answer_of(f"{url}/health") == (503, "no query runs\n")
    sent = re.compile(rf'record_send_total{{query="words",.*topic="{topic}"}} [1-9]')
    wait_until(lambda _: sent.search(answer_of(f"{url}/metrics")[1]), job, tmp_path)
    assert answer_of(f"{url}/health") == (200, "ok\n")
    os.kill(job.pid, signal.SIGTERM)
    code, _, said = finished(job, tmp_path)
    assert code == 0, said
    assert f"topic {topic} exists, with 1 partition instead of 3; it is not changed" in said


@pytest.mark.needs_format
def test_a_failed_query_is_started_again_and_unhealthy_until_it_succeeds(start, topics, tmp_path):
    topic = topics.create()
    keys = {
        "metrics": {"port": "0"},
        "restart": {"attempts": "100", "initial_backoff_seconds": "1", "max_backoff_seconds": "1"},
    }
    configuration = words(tmp_path, topic, "format", "SELECT word AS value FROM source", **keys)
    file = tmp_path / "in" / "0.json"
    good = file.read_text()
    file.write_text("{")
    os.utime(file, (1, 1))
    job = start("warm", configuration, "--set", "source.options.mode=FAILFAST")
    wait_until(lambda said: "restarting the query in 1.0 s, 2 of 100" in said, job, tmp_path)
    url = re.search(r"metrics: (http://\S+)/metrics", (tmp_path / "stderr").read_text())[1]
    status, reason = answer_of(f"{url}/health")
    assert (status, reason.partition(" and runs again")[0].partition(":")[0]) == (
        503,
        "words has failed",
    )
    repaired = tmp_path / "repaired.txt"
    repaired.write_text(good)
    os.utime(repaired, (1, 1))
    repaired.rename(file)
    code, lines, said = finished(job, tmp_path)
    assert code == 0, said
    assert "the query failed: " in said
    assert [(line["batch_id"], line["input_rows"]) for line in lines] == [(0, 2), (1, 1)]
    assert Counter(record.value for record in topics.read(topic)) == Counter([b"a", b"b", b"c"])


@pytest.mark.parametrize(
    ("how", "mode", "send"),
    [
        ("warm", "foreach_batch", lambda job: os.kill(job.pid, signal.SIGTERM)),
        pytest.param(
            *("python", "format", lambda job: os.killpg(job.pid, signal.SIGINT)),  # Ctrl-C
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *("spark-submit", "foreach_batch", lambda job: os.kill(job.pid, signal.SIGTERM)),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            *("spark-submit", "foreach_batch", lambda job: os.killpg(job.pid, signal.SIGINT)),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_signal_ends_the_query_after_its_micro_batch(how, mode, send, start, topics, tmp_path):
    topic = topics.create()
    keys = {
        "source": {
            "format": "rate-micro-batch",
            "options": {"rowsPerBatch": "40", "numPartitions": "1"},
        },
        "trigger": {"processingTime": "0 seconds"},
        "stop_timeout_seconds": "120",
    }
    job = start(how, words(tmp_path, topic, mode, SLOW_SQL, **keys))
    # Ten rows arrive every second: then the micro-batch goes on for three seconds.
    wait_for_rows(topics.bootstrap_servers, topic)
    send(job)
    code, lines, said = finished(job, tmp_path)
    assert code == 0, said
    assert "stopping after the micro-batch, within 120 s" in said
    assert "terminated with error" not in said  # what Spark logs when a query fails
    assert [line["input_rows"] for line in lines] == [40] * len(lines)
    assert lines
    written = Counter(record.value for record in topics.read(topic))
    ended = {b"%d" % value for value in range(40 * len(lines))}
    # With the format, a further micro-batch may have begun before the stop.
    assert ended <= set(written)
    if mode == "foreach_batch":
        assert written == Counter(ended)
