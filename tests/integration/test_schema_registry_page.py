"""docs/schema_registry.md, from zero to a consumer; its output is that of the page."""

from __future__ import annotations

import ast

import pytest
from markdown_pages import ROOT, Block, blocks
from snippets import Snippets
from topics import Topics

from spark_kafka_sink.tools.local_kafka import LocalKafka
from spark_kafka_sink.tools.local_registry import LocalRegistry

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]
PAGE = ROOT / "docs" / "schema_registry.md"


@pytest.fixture(scope="module")
def kafka():
    """A Kafka of its own, because the page chooses the names of its topics."""
    with LocalKafka() as kafka:
        yield Topics(kafka.bootstrap_servers)


@pytest.fixture(scope="module")
def own_registry():
    with LocalRegistry() as registry:
        yield registry.url


@pytest.fixture
def page(spark, kafka, own_registry, tmp_path, monkeypatch):
    replacements = {
        "/tmp/": f"{tmp_path}/",
        "localhost:9092": kafka.bootstrap_servers,
        "http://localhost:8081": own_registry,
    }
    snippets = Snippets({"spark": spark}, replacements, monkeypatch)
    yield snippets
    if "registry" in snippets.namespace:
        snippets.namespace["registry"].__exit__()


def section(heading: str) -> list[Block]:
    snippets = [block for block in blocks(PAGE) if block.heading == heading]
    assert snippets, f"{PAGE.name} has no section {heading!r}"
    return snippets


def run(page: Snippets, heading: str) -> None:
    for block in section(heading):
        if block.language == "python":
            page.run(block)


def objects(text: str) -> list[dict]:
    """Printed dicts, in the order of their ids: topics have no order over tasks."""
    names = {"Decimal": lambda text: text}
    rows = [eval(line, names) for line in text.splitlines() if line.startswith("{")]
    return sorted(rows, key=lambda row: row["id"])


def test_the_page_runs_from_zero_to_a_consumer_and_on_with_a_changed_schema(page, kafka, capsys):
    heading = "From zero to a consumer"
    run(page, heading)
    (on_page,) = [block.text for block in section(heading) if not block.language]
    assert objects(capsys.readouterr().out) == objects(on_page)

    heading = "Change the schema of a running query"
    run(page, heading)
    (on_page,) = [ast.literal_eval(line) for line in section(heading)[-1].text.splitlines()[:1]]
    printed = objects(capsys.readouterr().out)
    assert len(printed) == 3
    assert all(row.keys() == on_page.keys() and row["at"] is None for row in printed)
    everything = kafka.read("sales")
    ids = {int.from_bytes(record.value[1:5], "big") for record in everything}
    assert len(ids) == 2  # of both versions
