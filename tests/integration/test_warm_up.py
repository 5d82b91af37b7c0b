"""A session is warm before its first micro-batch, and nothing in Kafka has changed."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from topics import Topics

from spark_kafka_sink import warm_up
from spark_kafka_sink.config.client_settings import DEFAULTS

#: a fresh session, on a busy machine
LONG_SECONDS = 150.0

APP = Path(__file__).parent.parent / "support" / "warm_up_app.py"


@pytest.mark.slow
def test_the_first_micro_batch_finds_producers_with_the_topics_metadata(proxy):
    topics = Topics(f"127.0.0.1:{proxy.port}")
    topic = topics.create(partitions=2)
    command = [sys.executable, str(APP), topics.bootstrap_servers, topic]
    with subprocess.Popen(
        command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as app:
        done = json.loads(app.stdout.readline())
        assert (done["problem"], done["topic"]) == ("", topic)
        assert 0 < done["micro_batch_seconds"] < done["seconds"]
        assert topics.read(topic) == []
        proxy.reset()
        app.communicate("go on\n", timeout=90)
    assert app.returncode == 0
    by_producers = [r for r in proxy.metadata_requests if r.client_id == DEFAULTS["client.id"]]
    assert by_producers == []
    assert len(topics.read(topic)) == 100
    topics.close()


def test_problems_are_reported_and_never_raised(spark, caplog):
    done = warm_up(spark, {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"})
    assert "no broker answered at 127.0.0.1:1" in done.problem
    assert "no broker answered at 127.0.0.1:1" in caplog.text
    assert done.micro_batch_seconds == 0.0


@pytest.mark.parametrize("sender", ["executors", "driver"])
def test_a_missing_topic_is_not_created(spark, bootstrap_servers, topics, sender):
    topic = topics.new_name()
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topic, "send.from": sender}
    done = warm_up(spark, options, LONG_SECONDS)
    assert (done.problem, done.topic) == ("", "")
    assert not topics.exists(topic)


def test_the_stream_gets_no_report_and_no_offsets_of_the_warm_up(
    spark, bootstrap_servers, tmp_path
):
    options = {
        "kafka.bootstrap.servers": bootstrap_servers,
        "Report.path": str(tmp_path),
        "CheckpointLocation": str(tmp_path),
        "timestamp.column": "event_time",
    }
    assert warm_up(spark, options, LONG_SECONDS).problem == ""
    assert list(tmp_path.iterdir()) == []


def test_the_wait_has_a_deadline(spark, bootstrap_servers, topics):
    options = {"kafka.bootstrap.servers": bootstrap_servers, "topic": topics.create()}
    done = warm_up(spark, options, timeout_seconds=0.01)
    assert done.problem == "not finished in time"


def test_a_look_up_of_the_topic_that_hangs_does_not_outlast_the_deadline(spark, monkeypatch):
    is_over = threading.Event()
    # The package's own attribute of that name is the function.
    module = importlib.import_module("spark_kafka_sink.spark.warm_up")
    monkeypatch.setattr(module, "_existing_topic", lambda _: is_over.wait() and "")
    try:
        done = warm_up(spark, {"topic": "t"}, timeout_seconds=0.1)
    finally:
        is_over.set()
    assert done.problem == "not finished in time"
    assert done.micro_batch_seconds == 0.0
