"""Options, files and headings that the pages name exist; the script draws the picture."""

from __future__ import annotations

import re
import runpy
from xml.etree import ElementTree

import pytest
from markdown_pages import API, GUIDE, PAGES, ROOT, anchors, blocks, code_in_text, links, name

from spark_kafka_sink.config.client_settings import known_names
from spark_kafka_sink.config.option import PREFIX
from spark_kafka_sink.config.option_table import OPTIONS
from spark_kafka_sink.config.unknown_options import owner

PICTURE = ROOT / "docs" / "path_of_a_row.svg"
ALIASES = {"bash", "console", "shell", "py", "python3", "yml"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_targets_of_links_exist(page):
    dead = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if link.startswith("https://"):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert dead == []


@pytest.mark.parametrize("page", [*GUIDE, API], ids=name)
def test_client_settings_in_the_text_exist(page):
    known = {name for option in OPTIONS for name in option.names}
    known |= {PREFIX + name for name in known_names()}
    named = {re.sub(r"=.*", "", code) for code in code_in_text(page)}
    settings = {name for name in named if re.fullmatch(r"kafka\.[a-z0-9.]*[a-z0-9]", name)}
    unknown = settings - known
    assert {name for name in unknown if owner(name.removeprefix(PREFIX)) is None} == set()


@pytest.mark.parametrize("page", [*GUIDE, API], ids=name)
def test_every_page_of_the_guide_is_in_its_index(page):
    index = ROOT / "docs" / "README.md"
    listed = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    assert page in listed | {index}


@pytest.mark.parametrize("page", GUIDE, ids=name)
def test_blocks_have_a_language_that_the_tests_recognize(page):
    """tests/integration/test_docs.py looks for python, sh and yaml."""
    assert not {block.language for block in blocks(page)} & ALIASES


def test_the_page_on_security_names_the_function_that_opens_a_port():
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    assert "`serve_metrics`" in page.split("## What runs where")[1]


def test_the_picture_matches_its_script():
    script = runpy.run_path(str(PICTURE.with_suffix(".py")))
    assert texts(script["drawing"]().as_svg()) == texts(PICTURE.read_text(encoding="utf-8"))


def texts(svg: str) -> list[str]:
    texts = (element.text for element in ElementTree.fromstring(svg).iter())
    return [text.strip() for text in texts if text and text.strip()]
