"""A declarative pipeline (``spark-pipelines``) that writes to Kafka."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest
import yaml
from markdown_pages import ROOT, blocks
from standalone import BIN
from stub_registry import running_stub

PAGE = ROOT / "docs" / "pipelines.md"
SECONDS = 150
RUNS = 3  # at most, of one test
pytestmark = [pytest.mark.slow, pytest.mark.timeout(RUNS * SECONDS + 60)]

DEFINITIONS = """
import os
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
servers = {"kafka.bootstrap.servers": os.environ["SERVERS"]}
exactly_once = {"delivery.guarantee": "exactly-once", "exactly.once.partitions": "2"}
fixed = {**exactly_once, "transactional.id.prefix": os.environ["FIXED"]}
dp.create_sink("a", "kafka-nb", {**servers, "topic": os.environ["AT_LEAST_ONCE"]})
dp.create_sink("b", "kafka-nb", {**servers, **exactly_once, "topic": os.environ["EXACTLY_ONCE"]})
dp.create_sink("c", "kafka-nb", {**servers, **fixed, "topic": os.environ["FIXED"]})
avro = {"value.format": "avro", "schema.registry.url": os.environ["REGISTRY"]}
dp.create_sink("d", "kafka-nb", {**servers, **avro, "topic": os.environ["AVRO"]})


def rows():
    return spark.readStream.format("text").load(os.environ["ROWS"])


@dp.append_flow(target="a")
def rows_of_a():
    return rows()


@dp.append_flow(target="b")
def rows_of_b():
    return rows().repartition(2, "value")


@dp.append_flow(target="c")
def rows_of_c():
    return rows().repartition(2, "value")


@dp.append_flow(target="d")
def rows_of_d():
    return rows().selectExpr("named_struct('word', value) AS value")
"""


def run(folder: Path, environment: dict[str, str], *arguments: str):
    command = [BIN / "spark-pipelines", "run", *arguments]
    # The variable gives Spark Connect a free port, so that other tests can run beside it.
    own = {"SPARK_TESTING": "1"}
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | own | environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


def test_a_pipeline_appends_and_a_full_refresh_sends_all_again(topics, tmp_path):
    with running_stub() as registry:
        appends_and_refreshes(topics, tmp_path, registry)


def appends_and_refreshes(topics, tmp_path, registry):
    names = ("AT_LEAST_ONCE", "EXACTLY_ONCE", "FIXED", "AVRO")
    environment = {name: topics.create(2) for name in names}
    rows = tmp_path / "rows"
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "flows.py").write_text(DEFINITIONS)
    pipeline = {
        "name": "orders",
        "storage": (tmp_path / "storage").as_uri(),
        "libraries": [{"glob": {"include": "transformations/**"}}],
        "configuration": {
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.pipelines.maxFlowRetryAttempts": "0",
        },
    }
    (tmp_path / "spark-pipeline.yml").write_text(yaml.safe_dump(pipeline))
    variables = environment | {"SERVERS": topics.bootstrap_servers, "ROWS": str(rows)}
    variables["REGISTRY"] = registry.url

    def counts():
        return [Counter(topics.read_committed(environment[name])) for name in names]

    def and_avro(values):
        """With the id of the schema, a union's second branch and the text's length."""
        return Counter({b"\0\0\0\0\1\2\2" + value: n for value, n in values.items()})

    rows.mkdir()
    expected: Counter[bytes] = Counter()
    for value in ("a", "b"):
        (rows / f"{value}.txt").write_text(f"{value}\n")
        expected[value.encode()] = 1
        done = run(tmp_path, variables)
        assert done.returncode == 0, done.stdout + done.stderr
        assert counts() == [*[expected] * 3, and_avro(expected)]

    refreshed = run(tmp_path, variables, "--full-refresh-all")
    assert "LedgerAhead" in refreshed.stdout + refreshed.stderr
    assert refreshed.returncode != 0
    twice = Counter(dict.fromkeys(expected, 2))
    assert counts() == [twice, twice, expected, and_avro(twice)]


def test_the_example_of_the_page_writes_its_rows(topics, tmp_path):
    topic = topics.create()
    sequence = [block for block in blocks(PAGE) if block.heading == "Declarative pipelines"]
    for block in sequence:
        name, text = block.text.split("\n", 1)
        if name.startswith("# "):
            path = tmp_path / name.removeprefix("# ")
            path.parent.mkdir(exist_ok=True)
            text = text.replace("/tmp/orders", str(tmp_path))
            path.write_text(text.replace('"topic": "orders"', f'"topic": "{topic}"'))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"id": "a", "amount": 1.5}\n')
    done = run(tmp_path, {"KAFKA_BOOTSTRAP_SERVERS": topics.bootstrap_servers})
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(value) for value in topics.read_committed(topic)]
    assert rows == [{"id": "a", "amount": 1.5}]
