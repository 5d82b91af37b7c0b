"""jobs/replay_dead_letters.py on a real Kafka, by python and by spark-submit."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter

import pyarrow as pa
import pyspark
import pytest
import trustme
from certificates import write_pem
from dead_letters import dead_letter, produce
from job_processes import PROPERTIES, SECONDS, finished, jobs, warm_java
from local_cluster import LocalCluster, Security
from spark_jars import kafka_jars
from stub_registry import running_stub
from topics import Topics
from waiting import wait_until

from spark_kafka_sink.config.options import parse
from spark_kafka_sink.producer.cache import process_cache
from spark_kafka_sink.spark.task import write_partition

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3 * SECONDS)]

JOB = "jobs/replay_dead_letters.py"
ROW_BY_ROW = "spark.sql.execution.arrow.maxRecordsPerBatch=1"
PASSWORD = "planted-secret"
NOON_MS = 1_767_268_800_000  # 2026-01-01T12:00:00Z
HOUR_MS = 3_600_000


class Replays:
    """The replays of one dead letter topic."""

    def __init__(self, start, folder, dead_letters, servers="", login=None):
        self._start = start
        self._folder = folder
        self._servers = servers
        self.dead_letters = dead_letters
        self.checkpoint = folder / "checkpoint"
        self.config = folder / "stream.yaml"
        options = {
            "kafka.bootstrap.servers": "${env:KAFKA_BOOTSTRAP_SERVERS}",
            "topic": "not-of-the-replay",
            "on.record.error": "dead-letter",
            "dead.letter.topic": self.dead_letters,
            **(login or {}),
        }
        document = {
            "name": "orders",
            "source": {"format": "json", "options": {"path": "${env:NOT_SET_IN_A_REPLAY}"}},
            "sql": "SELECT not AS written FROM source",
            "sink": {"mode": "format", "options": options},
            "checkpoint": "of the stream",
        }
        self.config.write_text(json.dumps(document))

    def add(self, *letters):
        produce(self._servers, self.dead_letters, letters)

    def start(self, *arguments, how="warm"):
        files = ["--config", str(self.config), "--checkpoint", str(self.checkpoint)]
        return self._start(how, JOB, *files, *arguments)

    def run(self, *arguments, how="warm"):
        """The exit code, the micro-batches, and everything that was said."""
        return self.end(self.start(*arguments, how=how))

    def end(self, job):
        return finished(job, self._folder)


@pytest.fixture(scope="module")
def add_jars():
    return [*PROPERTIES, "--conf", ROW_BY_ROW, "--jars", kafka_jars()]


@pytest.fixture(scope="module")
def java(add_jars):
    with warm_java(add_jars) as java:
        yield java


@pytest.fixture
def replays(tmp_path, topics, add_jars, java):
    servers = topics.bootstrap_servers
    with jobs(tmp_path, servers, add_jars, java) as start:
        yield Replays(start, tmp_path, topics.create(2), servers)


def summary(read, **sent):
    """The last sentence of a replay; ``sent``: records by topic."""
    by_topic = ", ".join(f"{topic} {records}" for topic, records in sorted(sent.items()))
    in_all = f"{sum(sent.values())} sent" + (f" ({by_topic})" if sent else "")
    return f"{read} records read from the dead letter topic, {in_all}\n"


def test_what_the_sink_rejected_is_replayed(replays, topics):
    orders = topics.create()
    header = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch(
        {
            "value": [b"null topic", b"partition", b"time", b"header"],
            "key": [b"k", None, b"k", b"k"],
            "topic": [None, orders, orders, orders],
            "partition": pa.array([None, -3, None, None], pa.int32()),
            "timestamp": pa.array([NOON_MS, NOON_MS, -5, NOON_MS], pa.timestamp("ms")),
            "headers": pa.array([[("h", b"1")], [], None, [(None, b"x"), ("h", b"2")]], header),
        }
    )
    options = {
        "kafka.bootstrap.servers": topics.bootstrap_servers,
        "on.record.error": "dead-letter",
        "dead.letter.topic": replays.dead_letters,
        "timestamp.column": "timestamp",
    }
    write_partition([batch], parse(options))
    process_cache().close(5)
    repair = f"""
        SELECT coalesce(topic, '{orders}') AS topic, key, value,
               filter(headers, header -> header.key IS NOT NULL) AS headers,
               if(unix_millis(timestamp) > 0, timestamp, timestamp_millis(1)) AS timestamp
        FROM dead_letters
    """
    code, _, said = replays.run("--sql", repair)
    assert code == 0, said
    assert summary(4, **{orders: 4}) in said
    assert {(r.key, r.value, r.headers, r.timestamp_ms) for r in topics.read(orders)} == {
        (b"k", b"null topic", (("h", b"1"),), NOON_MS),
        (None, b"partition", (), NOON_MS),
        (b"k", b"time", (), 1),
        (b"k", b"header", (("h", b"2"),), NOON_MS),
    }


def test_what_has_no_schema_is_serialized_and_the_rest_stays(tmp_path, topics, add_jars, java):
    orders, dead_letters = topics.create(), topics.create()
    servers = topics.bootstrap_servers
    avro = b"\0\0\0\0\1\2\2x"  # the id of a schema, a union's second branch, and a text
    with running_stub() as registry, jobs(tmp_path, servers, add_jars, java) as start:
        formats = {"value.format": "avro", "schema.registry.url": registry.url}
        replays = Replays(start, tmp_path, dead_letters, servers, formats)
        replays.add(
            dead_letter("_UNKNOWN_PARTITION", orders, value=avro, partition="0"),
            dead_letter("SERIALIZATION_FAILED", orders, value=b'{"word": "y"}'),
        )
        code, _, said = replays.run()
        assert code == 0, said
        assert summary(2, **{orders: 1}) in said
        assert registry.requests == []
        chosen = ("--error", "SERIALIZATION_FAILED")
        repair = """
            SELECT topic, from_json(cast(value AS STRING), 'word STRING') AS value
            FROM dead_letters"""
        code, _, said = replays.run(*chosen, "--sql", repair)
        assert code == 0, said
        assert summary(2, **{orders: 1}) in said
    assert [record.value for record in topics.read(orders)] == [avro, avro[:-1] + b"y"]


def test_selected_dead_letters_go_to_their_topics_once(replays, topics):
    """A dry run, a replay, and a second one with the same checkpoint."""
    orders, other = topics.create(), topics.create()
    headers = [("trace", b"\x00\xff"), ("empty", b""), ("null", None), ("trace", b"again")]

    def letter(value, error="TOPIC_AUTHORIZATION_FAILED", topic=orders, at_ms=NOON_MS):
        return dead_letter(error, topic, key=b"k", value=value, timestamp=at_ms, headers=headers)

    replays.add(
        letter(b"first"),
        letter(b"too early", at_ms=NOON_MS - 1),
        letter(b"last", at_ms=NOON_MS + HOUR_MS - 1),
        letter(b"too late", at_ms=NOON_MS + HOUR_MS),
        letter(b"other topic", topic=other),
        letter(b"other error", error="MSG_SIZE_TOO_LARGE"),
        letter(b"also selected", error="INVALID_RECORD"),
        {"value": b"no dead letter", "timestamp": NOON_MS},
    )
    selection = ["--error", "TOPIC_AUTHORIZATION_FAILED", "--error", "INVALID_RECORD"]
    selection += ["--topic", orders]
    selection += ["--since", "2026-01-01T12:00:00Z", "--until", "2026-01-01T14:00:00+01:00"]
    code, lines, said = replays.run(*selection, "--dry-run")
    assert (code, lines) == (0, []), said
    assert "passed   cluster" in said
    assert topics.read(orders, other) == []
    assert not replays.checkpoint.exists()

    code, lines, said = replays.run(*selection)
    assert code == 0, said
    assert summary(8, **{orders: 3}) in said
    assert sum(line["records"] for line in lines) == 3
    written = topics.read(orders, other)
    assert {(r.topic, r.key, r.value, r.timestamp_ms) for r in written} == {
        (orders, b"k", b"first", NOON_MS),
        (orders, b"k", b"last", NOON_MS + HOUR_MS - 1),
        (orders, b"k", b"also selected", NOON_MS),
    }
    assert {r.headers for r in written} == {tuple(headers)}

    replays.add(letter(b"new"))
    code, _, said = replays.run(*selection)
    assert code == 0, said
    assert summary(1, **{orders: 1}) in said
    code, _, said = replays.run("--error", "MSG_SIZE_TOO_LARGE")  # has a checkpoint of its own
    assert code == 0, said
    assert summary(9, **{orders: 1}) in said
    values = Counter(record.value for record in topics.read(orders))
    assert values == Counter([b"first", b"last", b"also selected", b"new", b"other error"])


def test_what_could_not_be_kept_is_restored_and_sql_repairs(replays, topics):
    repaired, kept = topics.create(), topics.create(3)
    headers = [
        {"key": "a", "value": "AP8="},
        {"key": None, "value": "YQ=="},
        {"key": "b", "value": None},
        {"key": "c", "value": ""},
    ]
    replays.add(
        dead_letter("NULL_TOPIC", None, value=b"no topic"),
        dead_letter("_UNKNOWN_TOPIC", kept, key=b"null value"),
        dead_letter("_UNKNOWN_TOPIC", kept, value=b"null key", timestamp=NOON_MS),
        dead_letter("_UNKNOWN_PARTITION", kept, value=b"to 2", partition="2"),
        dead_letter("_UNKNOWN_PARTITION", kept, value=b"to 9", partition="9"),
        dead_letter("INVALID_TIMESTAMP", kept, value=b"old", timestamp_="-86400000"),
        dead_letter("INVALID_HEADER", kept, value=b"headers", headers_=json.dumps(headers)),
    )
    sql = f"""
        SELECT coalesce(topic, '{repaired}') AS topic,
               value,
               CASE WHEN error = 'NULL_TOPIC'
                    THEN to_json(struct(message, query_id, batch_id, task_partition, row))
                    ELSE string(key) END AS key,
               filter(headers, header -> header.key IS NOT NULL) AS headers,
               CASE WHEN timestamp < '1970-01-01' THEN timestamp + INTERVAL 2 DAYS
                    ELSE timestamp END AS timestamp,
               CASE WHEN partition < 3 THEN partition END AS partition
        FROM dead_letters"""
    code, _, said = replays.run("--sql", sql, how="spark-submit")
    assert code == 0, said
    assert summary(7, **{repaired: 1, kept: 6}) in said
    (record,) = topics.read(repaired)
    assert (record.value, json.loads(record.key)) == (
        b"no topic",
        {
            "message": "refused: NULL_TOPIC",
            "query_id": "a-query",
            "batch_id": 7,
            "task_partition": 1,
            "row": 42,
        },
    )
    records = {record.value: record for record in topics.read(kept)}
    assert len(records) == 6
    assert (records[None].key, records[None].headers) == (b"null value", ())
    assert (records[b"null key"].key, records[b"null key"].timestamp_ms) == (None, NOON_MS)
    assert records[b"to 2"].partition == 2
    assert records[b"old"].timestamp_ms == 86_400_000
    assert records[b"headers"].headers == (("a", b"\x00\xff"), ("b", None), ("c", b""))


def wait_for_records(topics, topic, count):
    wait_until(lambda: sum(topics.ends(topic)[1].values()) >= count, SECONDS)


def test_a_killed_replay_goes_on_and_repeats_at_most_a_micro_batch(replays, topics):
    """Killed in its third micro-batch; the next one is ended by SIGTERM; the last one ends."""
    topic, total, batch = topics.create(), 30, 5
    replays.add(*(dead_letter("A", topic, value=b"%d" % n) for n in range(total)))
    slow = "java_method('java.lang.Thread', 'sleep', bigint(200))"
    sql = f"SELECT topic, value, {slow} AS key FROM dead_letters"
    arguments = ["--sql", sql, "--set", f"source.options.maxOffsetsPerTrigger={batch}"]

    job = replays.start(*arguments, how="python")
    wait_for_records(topics, topic, 2 * batch + 1)
    os.killpg(job.pid, signal.SIGKILL)
    assert job.wait(SECONDS) == -signal.SIGKILL
    killed_at = len(topics.read(topic))
    assert killed_at < total

    job = replays.start(*arguments)
    # Workers outlive the first job by a moment, and may send a record more.
    wait_for_records(topics, topic, killed_at + 3)
    job.send_signal(signal.SIGTERM)
    code, lines, said = replays.end(job)
    assert code == 0, said
    assert "stopping after the micro-batch" in said
    # What the first one did is not done again.
    sent = sum(line["records"] for line in lines)
    assert sent <= total - 2 * (batch - 1)
    assert summary(sent, **{topic: sent}) in said

    code, lines, said = replays.run(*arguments)
    assert code == 0, said
    assert sum(line["records"] for line in lines) <= total - 2 * (batch - 1) - sent
    written = Counter(record.value for record in topics.read(topic))
    assert set(written) == {b"%d" % n for n in range(total)}
    assert written.total() - total <= batch
    assert set(written.values()) <= {1, 2}


def test_a_record_that_is_rejected_again_ends_the_replay_until_it_is_repaired(replays, topics):
    topic = topics.create()
    replays.add(dead_letter("NULL_TOPIC", None, value=b"bad"), dead_letter("A", topic, value=b"ok"))
    code, lines, said = replays.run()
    assert (code, lines) == (1, []), said
    assert "the query failed: InvalidRecord: " in said
    assert "null topic" in said
    assert "a restarted replay repeats the micro-batch that failed" in said
    assert summary(0) in said
    sql = f"SELECT coalesce(topic, '{topic}') AS topic, value FROM dead_letters"
    code, _, said = replays.run("--sql", sql)
    assert code == 0, said
    assert summary(2, **{topic: 2}) in said
    assert {record.value for record in topics.read(topic)} == {b"bad", b"ok"}


def test_dead_letters_that_expired_end_the_replay_until_it_may_skip_them(replays, topics):
    topic = topics.create()
    replays.add(dead_letter("A", topic, value=b"read"))
    code, _, said = replays.run()
    assert code == 0, said
    replays.add(*(dead_letter("A", topic, value=b"expired") for _ in range(9)))
    topics.delete_records(replays.dead_letters)
    replays.add(dead_letter("A", topic, value=b"new"))
    code, _, said = replays.run()
    assert code == 1, said
    advice = "--set source.options.failOnDataLoss=false"
    assert f"skip them once with {advice}\n" in said
    failure = said.partition("the query failed: ")[2].partition("\n")[0]
    assert "Some data may have been lost" in failure
    code, _, said = replays.run(*advice.split())
    assert code == 0, said
    assert [record.value for record in topics.read(topic)] == [b"read", b"new"]


def test_dead_letters_are_read_with_the_login_of_the_sink(tmp_path, add_jars, java):
    """User name, password and librdkafka's name for the certificates, which Java lacks."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate = write_pem(authority.issue_cert("127.0.0.1"), tmp_path / "server.pem")
    (tmp_path / "password").write_text(PASSWORD)
    login = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.username": "alice",
        "kafka.sasl.password": f"${{file:{tmp_path / 'password'}}}",
        "kafka.ssl.ca.location": str(tmp_path / "ca.pem"),
    }
    with LocalCluster(security=Security(certificate, {"alice": PASSWORD})) as kafka:
        topics = Topics(kafka.internal_servers)
        topic, dead_letters = topics.create(), topics.create()
        with jobs(tmp_path, kafka.bootstrap_servers, add_jars, java) as start:
            replays = Replays(start, tmp_path, dead_letters, kafka.internal_servers, login)
            replays.add(dead_letter("A", topic, value=b"v"))
            code, _, said = replays.run()
        assert code == 0, said
        assert summary(1, **{topic: 1}) in said
        assert [record.value for record in topics.read(topic)] == [b"v"]
    assert PASSWORD not in said


def test_without_its_jar_the_replay_says_what_to_do(tmp_path):
    with jobs(tmp_path, "127.0.0.1:1", PROPERTIES) as start:
        code, lines, said = Replays(start, tmp_path, "dead-letters").run(how="python")
    assert (code, lines) == (2, []), said
    assert "source: Spark's Kafka source is missing" in said
    assert f"--packages org.apache.spark:spark-sql-kafka-0-10_2.13:{pyspark.__version__}" in said
    assert not (tmp_path / "checkpoint").exists()
