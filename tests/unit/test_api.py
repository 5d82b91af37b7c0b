"""docs/api.md is what `make api` writes, and the pages import only what it lists as public."""

from __future__ import annotations

import ast
import importlib
import runpy

import pytest
from markdown_pages import API, GUIDE, ROOT, blocks, name

import spark_kafka_sink

PACKAGE = "spark_kafka_sink"


def test_the_page_is_current():
    script = runpy.run_path(str(ROOT / "docs" / "api.py"))
    assert script["PAGE"].read_text(encoding="utf-8") == script["written"](), "run `make api`"


def test_every_public_name_is_on_the_page():
    page = API.read_text(encoding="utf-8")
    names = set(spark_kafka_sink.__all__) - {"__version__"}
    assert {name for name in names if f"### `{name}`\n" not in page} == set()


@pytest.mark.parametrize("page", GUIDE, ids=name)
def test_snippets_import_only_public_names(page):
    private = []
    for block in blocks(page, "python"):
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(PACKAGE):
                public = getattr(importlib.import_module(node.module), "__all__", [])
                private += [alias.name for alias in node.names if alias.name not in public]
    assert private == []
