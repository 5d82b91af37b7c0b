"""Benchmarks and other scripts that `make test` does not run use only what the package has."""

from __future__ import annotations

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [path for folder in ("tests", "jobs", "docs") for path in (ROOT / folder).rglob("*.py")]


def used_names(script):
    """The modules and names of the package that a script imports, and what it uses of modules."""
    tree = ast.parse(script.read_text())
    imported = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("spark_kafka_sink"):
            for alias in node.names:
                yield node.module, alias.name
                imported[alias.asname or alias.name] = node.module, alias.name
    for node in ast.walk(tree):  # such a name is not always the module
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            imported.pop(node.id, None)
        elif isinstance(node, ast.arg):
            imported.pop(node.arg, None)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = imported.get(node.value.id)
            if module and is_module(*module):
                yield ".".join(module), node.attr


def is_module(package, name):
    is_package = hasattr(importlib.import_module(package), "__path__")
    return is_package and find_spec(f"{package}.{name}") is not None


def is_there(module, name):
    return hasattr(importlib.import_module(module), name) or is_module(module, name)


@pytest.mark.skipif(
    find_spec("pyspark.sql.datasource") is None, reason="Spark 3.5 has no Python data sources"
)
def test_scripts_use_what_there_is():
    names = {(script, *pair) for script in SCRIPTS for pair in used_names(script)}
    assert len(names) > 500
    assert [str(name) for name in names if not is_there(*name[1:])] == []
