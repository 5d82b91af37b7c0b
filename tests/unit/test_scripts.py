"""Benchmarks and other scripts that `make test` does not run import only what the package has."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [path for folder in ("tests", "jobs", "docs") for path in (ROOT / folder).rglob("*.py")]


def imported_names(script):
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spark_kafka_sink"):
            yield from ((node.module, alias.name) for alias in node.names)


def is_there(module_name, name):
    module = importlib.import_module(module_name)
    is_package = hasattr(module, "__path__")
    return hasattr(module, name) or (is_package and find_spec(f"{module_name}.{name}"))


@pytest.mark.skipif(
    find_spec("pyspark.sql.datasource") is None, reason="Spark 3.5 has no Python data sources"
)
def test_scripts_import_what_there_is():
    names = {(script, *pair) for script in SCRIPTS for pair in imported_names(script)}
    assert len(names) > 500
    assert [str(name) for name in names if not is_there(*name[1:])] == []
