"""The table of columns, and what must never change in it."""

from __future__ import annotations

import re
from dataclasses import fields

from markdown_pages import ROOT

from spark_kafka_sink.records.column_table import COLUMNS, RECORD_COLUMNS
from spark_kafka_sink.records.columns import RecordColumns


def test_ledgers_hold_fingerprints_so_factors_never_change():
    factors = {column.name: column.factor for column in RECORD_COLUMNS}
    first = {"value": 0, "key": 1, "partition": 2, "timestamp": 3, "headers": 4}
    assert first.items() <= factors.items()
    assert sorted(factors.values()) == list(range(len(factors)))


def test_every_column_but_the_topic_is_a_field_of_the_records():
    names = {field.name for field in fields(RecordColumns)}
    assert {column.field for column in RECORD_COLUMNS} <= names
    assert set(COLUMNS) - {column.name for column in RECORD_COLUMNS} == {"topic"}


def test_the_page_lists_the_columns():
    page = (ROOT / "docs" / "format.md").read_text(encoding="utf-8")
    table = page.split("| Column | Type | Null means |\n")[1].split("\n\n")[0]
    named = set(COLUMNS) - {"timestamp"} | {"timestamp.column"}
    assert set(re.findall(r"^\| .*?`([\w.]+)`", table, re.MULTILINE)) == named
