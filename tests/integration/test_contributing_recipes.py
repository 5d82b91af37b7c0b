"""CONTRIBUTING.md's recipes, carried out in a copy of the project."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from textwrap import dedent, indent

import pytest
from markdown_pages import ROOT

SECONDS = 600.0
pytestmark = pytest.mark.slow
_STEP = re.compile(r"<!-- (\S+), (before|after): (.+?) -->\n *```\w+\n(.*?)```", re.DOTALL)

OPTION = """
from spark_kafka_sink import InvalidOption
from spark_kafka_sink.config import option_table as table
from spark_kafka_sink.config.options import parse

options = {"kafka.bootstrap.servers": "b:9092"}
assert parse(options).values[table.START_DELAY_MS] == 0
assert parse(options | {"start.delay.ms": "7"}).values[table.START_DELAY_MS] == 7
try:
    parse(options | {"start.delay.ms": "-1"})
except InvalidOption as error:
    assert "start.delay.ms" in str(error)
else:
    raise AssertionError("accepted")
"""

COLUMN = """
import numpy as np
import pyarrow as pa
from pyspark.sql.types import StructType

from spark_kafka_sink import InvalidSchema
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.dead_letter import dead_letters
from spark_kafka_sink.records.fingerprint import record_hashes
from spark_kafka_sink.records.rejection import UNKNOWN_ORIGIN
from spark_kafka_sink.records.rejection import RejectedRecords
from spark_kafka_sink.spark.schema_check import check_schema, used_columns

def schema(type_of_shard):
    return StructType().add("value", "string").add("shard", type_of_shard)

assert "shard" in used_columns("t")
check_schema(schema("integer"), "t")
try:
    check_schema(schema("string"), "t")
except InvalidSchema as error:
    assert "column shard has type string; allowed: int" in str(error)
else:
    raise AssertionError("accepted")

def records(**columns):
    batch = pa.record_batch({"value": ["a", "a", "b"], **columns})
    (sharded,) = split_by_topic(batch, "t").records
    return sharded

sharded = records(shard=pa.array([5, None, 7], pa.int32()))
assert sharded.shards.tolist() == [5, -1, 7]
assert sharded.take(np.array([2, 0])).shards.tolist() == [7, 5]
without = records()
assert without.shards is None and without.take(np.array([1])).shards is None
assert (record_hashes(sharded) == record_hashes(without)).tolist() == [False, True, False]

(letters,) = dead_letters(RejectedRecords(sharded, "X", "", b"t"), "dead", UNKNOWN_ORIGIN, 0)
assert letters.shards is None
headers = letters.headers
named = [headers.unique_names[name] == b"kafka-nb.shard" for name in headers.names.tolist()]
lengths = headers.values.lengths[named]
assert lengths.tolist() == [1, 0, 1] and headers.values.addresses[named][1] == 0
"""

FIGURE = """
import json

import pyarrow as pa

from spark_kafka_sink.producer.sends import IncompleteSends
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.report.delivery_report import DeliveryReport
from spark_kafka_sink.report.metrics import REPORT_METRICS, QueryValues
from spark_kafka_sink.report.reading import parse
from spark_kafka_sink.tools.report.formatting import rows
from spark_kafka_sink.tools.report.history import History

sends = IncompleteSends(1_000)
(records,) = split_by_topic(pa.record_batch({"value": ["v"]}), "t").records
sends.admit(records)
task = sends.collect_report()
assert task.sends == 1
task = DeliveryReport.from_plain(json.loads(json.dumps(task.to_plain())))
report = parse((task + task).to_json().encode())
assert report.sends == 2

values = QueryValues()
values.add(REPORT_METRICS, report)
values.add(REPORT_METRICS, report)
(metric,) = (figure for figure in REPORT_METRICS if figure.name == "spark_kafka_sink_sends_total")
assert values.by_metric[metric] == {(): 4}

history = History(report)
history.add(report)
assert ("sends", "2", "4") in list(rows(history.latest[-1], history.total))
earlier = {name: value for name, value in (task + task).to_dict().items() if name != "sends"}
history = History(parse(json.dumps(earlier).encode()))
assert history.total.sends is None
history.add(report)
assert history.total.sends == 2
"""

ERROR = """
import pickle

import spark_kafka_sink

error = pickle.loads(pickle.dumps(spark_kafka_sink.QuotaExceeded("throttled")))
assert str(error) == "throttled"
"""


def inserted(text: str, place: str, anchor: str, block: str) -> str:
    """With the block before or after the only line that begins with the anchor."""
    lines = text.splitlines()
    (number,) = [n for n, line in enumerate(lines) if line.strip().startswith(anchor)]
    margin = lines[number][: len(lines[number]) - len(lines[number].lstrip())]
    at = number + (place == "after")
    block = dedent(block.rstrip(" "))
    return "\n".join([*lines[:at], *indent(block, margin).split("\n")[:-1], *lines[at:], ""])


@pytest.fixture(scope="module")
def followed(tmp_path_factory):
    """A copy of the project in which every recipe was followed; runs Python there."""
    copy = tmp_path_factory.mktemp("recipes") / "project"
    others = shutil.ignore_patterns("benchmark", "bench", "chaos", "integration", "__pycache__")
    for folder in ("spark_kafka_sink", "docs", "tests", "conf", "jobs"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=others)
    for file in [*ROOT.glob("*.md"), *ROOT.glob("*.toml"), ROOT / "setup.cfg"]:
        shutil.copy(file, copy)
    steps = _STEP.findall((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))
    assert len(steps) == 9
    for name, place, anchor, block in steps:
        file = copy / name
        file.write_text(inserted(file.read_text(encoding="utf-8"), place, anchor, block))

    def run(*arguments: str) -> None:
        variables = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, *arguments],
            check=False,
            cwd=copy,
            env=variables,
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert done.returncode == 0, done.stdout[-5_000:] + done.stderr[-5_000:]

    run("docs/figures.py")  # make figures
    run("docs/api.py")  # make api
    return run


@pytest.mark.parametrize(
    "script", [OPTION, COLUMN, FIGURE, ERROR], ids=str.split("option column figure error")
)
def test_a_recipe_is_all_that_it_takes(followed, script):
    followed("-c", script)


def test_the_projects_own_tests_pass_with_what_the_recipes_added(followed):
    """Those that compare pages and tables, and those that count what there is."""
    names = (
        "reference_tables",
        "column_table",
        "report_format",
        "report_reading",
        "api",
        "metrics",
    )
    files = [f"tests/unit/test_{name}.py" for name in names]
    followed("-m", "pytest", "-q", "-p", "no:cacheprovider", *files)
