"""Runs a declarative pipeline, with Spark's own sink at hand."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap

from program import Place
from spark_jars import kafka_jars
from standalone import BIN

_SECONDS = 280
_HEAD = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
"""


def run_pipeline(at: Place, definitions: str) -> None:
    """Run the definitions, in which ``dp`` and ``spark`` are known, in a process of their own."""
    folder = at.folder / "pipeline"
    (folder / "transformations").mkdir(parents=True)
    text = at.preamble + _HEAD + textwrap.dedent(definitions)
    (folder / "transformations" / "flows.py").write_text(text)
    pipeline = {
        "name": "orders",
        "storage": (at.folder / "storage").as_uri(),
        "libraries": [{"glob": {"include": "transformations/**"}}],
        "configuration": {"spark.sql.pipelines.maxFlowRetryAttempts": "0"},
    }
    # JSON is YAML.
    (folder / "spark-pipeline.yml").write_text(json.dumps(pipeline))
    (folder / "spark-defaults.conf").write_text(f"spark.jars {kafka_jars()}\n")
    done = subprocess.run(
        [BIN / "spark-pipelines", "run"],
        cwd=folder,
        # The first variable gives Spark Connect a free port, so that others can run beside it.
        env=os.environ | {"SPARK_TESTING": "1", "SPARK_CONF_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
