"""The cells of the notebook for Databricks that only Databricks can run, and their order."""

from __future__ import annotations

from email import message_from_string
from importlib.metadata import distribution
from itertools import pairwise
from pathlib import Path, PurePath

from databricks_stand_in import read_cells

CELLS = read_cells(Path(__file__).parents[2] / "jobs" / "databricks_notebook.py")


def test_pip_installs_the_wheel_of_this_version():
    (pip,) = [cell.text for cell in CELLS if cell.magic == "pip"]
    command, wheel = pip.split()
    installed = distribution("spark-kafka-sink")
    (tag,) = message_from_string(installed.read_text("WHEEL")).get_all("Tag")
    assert command == "install"
    assert PurePath(wheel).name == f"spark_kafka_sink-{installed.version}-{tag}.whl"


def test_python_restarts_after_the_installation_and_before_any_other_code():
    commands = [cell for cell in CELLS if cell.magic != "md"]
    assert commands[0].magic == "pip"
    assert commands[1].text.strip() == "dbutils.library.restartPython()"


def test_a_line_of_markdown_introduces_every_other_cell():
    assert {cell.magic for cell in CELLS} == {"", "md", "pip"}
    assert CELLS[0].magic == "md"
    for before, cell in pairwise(CELLS):
        assert "md" in {before.magic, cell.magic}, f"line {cell.line}: no Markdown before it"
