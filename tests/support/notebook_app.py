"""Runs jobs/databricks_notebook.py in one kind of Spark session; see test_databricks_notebook.py.

Arguments: kind of session; the runs, as JSON: the widgets' values and the secrets of each. Prints
what the cells print, and after each run a line of JSON: what they displayed, and whether the query
is still active. A run that fails is the last one.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

from databricks_stand_in import Notebook
from local_session import session_builder
from streams import patiently

from spark_kafka_sink.deadline import Deadline

NOTEBOOK = Path(__file__).parents[2] / "jobs" / "databricks_notebook.py"
MICRO_BATCHES = 2
# The test need not wait for the second micro-batch as long as a user.
TRIGGER, SOONER = 'processingTime="10 seconds"', 'processingTime="1 second"'
SECONDS = 150.0


def wait_for_micro_batches(query):
    """Wait as a user would, who looks at the query's progress; returns early if it fails."""
    deadline = Deadline(SECONDS)
    while query.isActive:
        progress = query.lastProgress
        if progress is not None and progress["batchId"] >= MICRO_BATCHES - 1:
            return
        assert not deadline.expired, f"no {MICRO_BATCHES} micro-batches after {SECONDS:g} s"
        time.sleep(0.5)


def run(spark, parameters, secrets):
    notebook = Notebook(NOTEBOOK, spark, parameters, secrets)
    cells = [cell for cell in notebook.cells if not cell.magic]
    cells = [replace(cell, text=cell.text.replace(TRIGGER, SOONER)) for cell in cells]
    assert any(SOONER in cell.text for cell in cells)
    is_started = False
    for cell in cells:
        patiently(partial(notebook.run, cell))
        if "query" in notebook.names and not is_started:
            is_started = True
            wait_for_micro_batches(notebook.names["query"])
    unknown = parameters.keys() - notebook.widgets.values.keys()
    assert not unknown, f"the notebook has no widgets {unknown}"
    is_active = notebook.names["query"].isActive
    print(json.dumps({"displayed": notebook.displayed, "is_active": is_active}))


kind, runs = sys.argv[1], json.loads(sys.argv[2])
spark = session_builder(kind).getOrCreate()
try:
    for parameters, secrets in runs:
        run(spark, parameters, secrets)
finally:
    spark.stop()
