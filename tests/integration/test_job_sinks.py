"""Jobs with several sinks, as users start them: one session, one query for each sink."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter
from pathlib import Path

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
from stub_registry import running_stub

pytestmark = pytest.mark.timeout(2 * SECONDS)

ALL = "SELECT word AS value FROM source"
ONCE = {"availableNow": "true"}
CONTINUOUS = {"processingTime": "0 seconds"}
AWAY = "SELECT word AS value, string(null) AS topic FROM source"  # no restart would help


@pytest.fixture(scope="module")
def java():
    with warm_java() as java:
        yield java


@pytest.fixture
def start(tmp_path, bootstrap_servers, java):
    """Starts the job; it is killed if the test leaves it running."""
    with jobs(tmp_path, bootstrap_servers, java=java) as start_job:

        def start(configuration: dict[str, object], *arguments: str) -> Job:
            file = tmp_path / "job.yaml"
            file.write_text(json.dumps(configuration, indent=1))  # JSON is YAML
            return start_job("warm", "jobs/stream_to_kafka.py", "--config", str(file), *arguments)

        yield start


@pytest.fixture
def source(tmp_path):
    """A folder of files; each is a micro-batch."""
    folder = tmp_path / "in"
    folder.mkdir()
    return Source(folder)


class Source:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.words: list[str] = []

    def add(self, *words: str) -> None:
        number = len(list(self._folder.iterdir()))
        file = self._folder.parent / "next"
        file.write_text("\n".join(json.dumps({"word": word}) for word in words))
        os.utime(file, (number + 1, number + 1))  # Spark takes the oldest file first
        file.rename(self._folder / f"{number}.json")
        self.words += words

    @property
    def keys(self) -> dict[str, object]:
        options = {"path": str(self._folder), "maxFilesPerTrigger": "1"}
        return {"format": "json", "schema": "word STRING", "options": options}


def sink(tmp_path, name, topic, sql=ALL, trigger=ONCE, options=(), **keys):
    """One of the sinks. ``topic`` None: the rows name it."""
    options = {"kafka.bootstrap.servers": "${env:KAFKA_BOOTSTRAP_SERVERS}", **dict(options)}
    if topic is not None:
        options["topic"] = topic
    own = {"sql": sql, "options": options, "trigger": trigger}
    return {**own, "checkpoint": str(tmp_path / "checkpoints" / name), **keys}


def shop(source, sinks, **keys):
    return {"name": "shop", "source": source.keys, "sinks": sinks, **keys}


def values(topics, topic):
    return Counter(record.value.decode() for record in topics.read(topic))


def rows_of(lines):
    """The rows of each micro-batch, by query and in order."""
    found = {}
    for line in lines:
        found.setdefault(line["query"], []).append((line["batch_id"], line["input_rows"]))
    return found


@pytest.fixture
def registry():
    with running_stub() as stub:
        yield stub


def test_every_sink_gets_every_record_one_exactly_once_and_one_as_avro(
    start, source, topics, tmp_path, registry
):
    source.add("a", "b")
    source.add("c")
    orders, audit, events = topics.create(partitions=2), topics.create(), topics.create()
    once = {"delivery.guarantee": "exactly-once", "transactional.id.prefix": orders}
    sinks = {
        "orders": sink(tmp_path, "orders", orders, "SELECT upper(word) AS value FROM source"),
        "audit": sink(tmp_path, "audit", audit, mode="format"),
        "events": sink(tmp_path, "events", events, "SELECT struct(word) AS value FROM source"),
    }
    sinks["orders"]["options"] |= once
    sinks["events"]["options"] |= {"value.format": "avro", "schema.registry.url": registry.url}
    code, lines, said = finished(start(shop(source, sinks)), tmp_path)
    assert code == 0, said
    assert Counter(each.decode() for each in topics.read_committed(orders)) == Counter("ABC")
    assert values(topics, audit) == Counter("abc")
    assert list(registry.subjects) == [f"{events}-value"]
    # The id of the schema, a union's second branch, and the text's length.
    avro = Counter(f"\0\0\0\0\1\2\2{word}" for word in "abc")
    assert values(topics, events) == avro
    assert rows_of(lines) == {f"shop.{name}": [(0, 2), (1, 1)] for name in sinks}
    delivered = Counter()
    for line in lines:
        delivered.update(line["records_by_topic"])
    assert delivered == {orders: 3, audit: 3, events: 3}


def test_a_query_that_has_failed_for_good_stops_the_others(start, source, topics, tmp_path):
    source.add("a", "b")
    topic = topics.create()
    sinks = {
        "good": sink(tmp_path, "good", topic, trigger=CONTINUOUS),
        "bad": sink(tmp_path, "bad", None, AWAY),
    }
    code, lines, said = finished(start(shop(source, sinks)), tmp_path)
    assert code == 1, said
    assert "shop.bad has failed: stopping shop.good" in said
    assert "shop.good: stopping after the micro-batch, within 60 s" in said
    error = "the query failed: InvalidRecord: micro-batch 0, partition 0, row 0: null topic"
    assert f"shop.bad: {error}" in said
    assert f"shop.bad has failed: {error}" in said
    # In an orderly way: what was written is what has ended.
    ended = sum(rows for _, rows in rows_of(lines).get("shop.good", []))
    assert values(topics, topic) == Counter(source.words[:ended])


def test_a_query_that_has_failed_for_good_leaves_the_others(start, source, topics, tmp_path):
    source.add("a", "b")
    topic = topics.create()
    sinks = {
        "bad": sink(tmp_path, "bad", None, AWAY),
        "good": sink(tmp_path, "good", topic, trigger=CONTINUOUS),
    }
    keys = {"on_failure": "leave_others", "metrics": {"port": "0"}, "restart": {}}
    job = start(shop(source, sinks, **keys))
    url = wait_until(lambda said: re.search(r"metrics: (\S+)/metrics", said), job, tmp_path)[1]
    lasting = "shop.bad: InvalidRecord: restarting the query would not help"
    wait_until(lambda said: lasting in said, job, tmp_path)
    source.add("c")  # only a query that goes on reads it
    sent = re.compile(rf'record_send_total{{query="shop.good",.*topic="{topic}"}} 3')
    wait_until(lambda _: sent.search(answer_of(f"{url}/metrics")[1]), job, tmp_path)
    status, why = answer_of(f"{url}/health")
    assert (status, why.splitlines()[0].partition(": ")[0]) == (503, "shop.bad has failed")
    os.kill(job.pid, signal.SIGTERM)
    code, lines, said = finished(job, tmp_path)
    assert code == 1, said
    assert "shop.bad has failed: the query failed: InvalidRecord: " in said
    assert rows_of(lines) == {"shop.good": [(0, 2), (1, 1)]}
    assert values(topics, topic) == Counter("abc")


def test_a_signal_ends_all_queries_and_a_restart_goes_on_where_each_was(
    start, source, topics, tmp_path
):
    first = [f"{number:02}" for number in range(40)]
    source.add(*first)
    quick, slow = topics.create(), topics.create()
    sleep = "java_method('java.lang.Thread', 'sleep', bigint(100)) AS key"
    sinks = {
        "quick": sink(tmp_path, "quick", quick, trigger=CONTINUOUS),
        "slow": sink(tmp_path, "slow", slow, f"SELECT word AS value, {sleep} FROM source"),
    }
    sinks["slow"]["trigger"] = CONTINUOUS
    document = shop(source, sinks, stop_timeout_seconds="120")
    job = start(document)
    wait_for_rows(topics.bootstrap_servers, slow)  # its micro-batch goes on for some seconds
    os.kill(job.pid, signal.SIGTERM)
    code, lines, said = finished(job, tmp_path)
    assert code == 0, said
    for name in sinks:
        assert f"shop.{name}: stopping after the micro-batch, within 120 s" in said
    assert "has failed" not in said
    assert rows_of(lines)["shop.slow"] == [(0, 40)]
    assert values(topics, slow) == Counter(first)
    source.add("x", "y")
    for each in sinks.values():
        each["trigger"] = ONCE
    code, lines, said = finished(start(document), tmp_path)
    assert code == 0, said
    assert rows_of(lines)["shop.slow"] == [(1, 2)]
    assert values(topics, slow) == values(topics, quick) == Counter(source.words)


def test_one_query_is_started_again_while_the_other_goes_on(start, source, topics, tmp_path):
    source.add("a")
    steady, late = topics.create(), topics.create()
    in_the_way = tmp_path / "checkpoints-of-late"
    in_the_way.write_text("")  # so that its storage is away
    sinks = {
        "late": sink(tmp_path, "late", late, checkpoint=str(in_the_way / "late")),
        "steady": sink(tmp_path, "steady", steady, trigger=CONTINUOUS),
    }
    restart = {"attempts": "1000", "initial_backoff_seconds": "1", "max_backoff_seconds": "1"}
    job = start(shop(source, sinks, restart=restart, metrics={"port": "0"}))
    url = wait_until(lambda said: re.search(r"metrics: (\S+)/metrics", said), job, tmp_path)[1]
    again = "shop.late: restarting the query in"
    wait_until(lambda said: said.count(again) > 1, job, tmp_path)
    steadily = re.compile(rf'record_send_total{{query="shop.steady",.*topic="{steady}"}} 1')
    wait_until(lambda _: steadily.search(answer_of(f"{url}/metrics")[1]), job, tmp_path)
    assert answer_of(f"{url}/health") == (503, "shop.late has not started\n")
    in_the_way.unlink()
    source.add("b")
    both = re.compile(rf'record_send_total{{query="shop.late",.*topic="{late}"}} [12]')
    wait_until(lambda _: both.search(answer_of(f"{url}/metrics")[1]), job, tmp_path)
    assert answer_of(f"{url}/health") == (200, "ok\n")
    os.kill(job.pid, signal.SIGTERM)
    code, _, said = finished(job, tmp_path)
    assert code == 0, said
    assert "shop.steady: restarting the query" not in said
    assert values(topics, late) <= Counter("ab")
    assert values(topics, late)["a"] == values(topics, steady)["a"] == 1


def test_a_dry_run_checks_every_sink_and_creates_nothing(start, source, topics, tmp_path):
    source.add("a")
    missing = topics.new_name()
    create = {"topic": {"partitions": "3"}}
    sinks = {
        "wrong": sink(tmp_path, "wrong", topics.create(), "SELECT no_such AS value FROM source"),
        "right": sink(tmp_path, "right", missing, create_topics=create),
    }
    code, lines, said = finished(start(shop(source, sinks), "--dry-run"), tmp_path)
    assert (code, lines) == (2, []), said
    wrong, right = " ".join(said.split()).split("checking shop.right")
    assert "checking shop.wrong" in wrong
    assert "sinks.wrong.sql: [UNRESOLVED_COLUMN" in wrong
    assert f"{missing}: it does not exist; the job creates it, with 3 partitions" in right
    assert "failed" not in right
    assert not topics.exists(missing)
    assert not (tmp_path / "checkpoints").exists()
