"""Every snippet of README.md and docs/ runs, and every command and configuration is checked.

The Python blocks of a page run one after another. The tests replace ``localhost:9092`` with their
own Kafka and ``/tmp/`` with their own folder. The programs for which sh (commands), ini (systemd
units) and yaml (configurations of jobs) blocks are meant, or their parsers, check these blocks.
A block that cannot run has a comment above it, ``<!-- not run: the reason -->``. Then at least the
sink's options in it are checked.
"""

from __future__ import annotations

import argparse
import ast
import logging
import re
import shlex
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.metadata import metadata
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from job_files import checked
from kafka_topics import new_topic
from markdown_pages import GUIDE, ROOT, Block, blocks, name
from packaging.requirements import Requirement
from pyspark.sql.streaming.listener import StreamingQueryListener
from snippets import SECONDS, Snippets
from topics import Topics

import spark_kafka_sink.__main__ as spark_kafka_sink_command
from spark_kafka_sink.config.option import PREFIX
from spark_kafka_sink.config.option_table import (
    BOOTSTRAP_SERVERS,
    CLIENT_SETTINGS,
    OPTIONS,
    REGISTRY_SETTINGS,
)
from spark_kafka_sink.driver.options import read_options
from spark_kafka_sink.errors import LibraryUnavailable
from spark_kafka_sink.tools.job import command as job_command
from spark_kafka_sink.tools.job import replay
from spark_kafka_sink.tools.local_kafka import LocalKafka

pytestmark = pytest.mark.timeout(400)
BIN = Path(sys.executable).parent
#: what the reader's shell makes of it
VARIABLE, SERVER = "$KAFKA_BOOTSTRAP_SERVERS", "localhost:9092"
JOBS = {"jobs/replay_dead_letters.py": replay, "jobs/stream_to_kafka.py": job_command}
MARKED = [block for page in GUIDE for block in blocks(page) if block.why_not_run]
_PATTERNS = (CLIENT_SETTINGS, REGISTRY_SETTINGS)
OWN_OPTIONS = {name for option in OPTIONS if option not in _PATTERNS for name in option.names}


def runnable(language: str) -> list[Block]:
    snippets = [block for page in GUIDE for block in blocks(page, language)]
    return [block for block in snippets if not block.why_not_run]


# --- Python ---------------------------------------------------------------------------------------

# These pages have tests of their own, which look at what each snippet has written.
_OTHERS = {ROOT / "docs" / "recipes.md", ROOT / "docs" / "schema_registry.md"}
PYTHON_PAGES = sorted({block.page for block in runnable("python")} - _OTHERS)


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """A separate Kafka, because the pages choose the names of their topics."""
    with LocalKafka() as kafka:
        yield kafka.bootstrap_servers


@pytest.mark.slow
@pytest.mark.parametrize("page", PYTHON_PAGES, ids=name)
def test_the_snippets_of_a_page_run_in_order(page, spark, servers, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.NOTSET, "spark_kafka_sink")  # what a snippet sets ends with the test
    page_blocks = [block for block in runnable("python") if block.page == page]
    everything = "".join(block.text for block in page_blocks)
    for variable in re.findall(r'os\.environ\["(\w+)"\]', everything):
        monkeypatch.setenv(variable, "example")
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", servers)
    topics = Topics(servers)
    named = set(re.findall(r'"topic"[,:]\s*"([\w.-]+)"', everything))
    before = {topic: records(topics, topic) for topic in named}
    replacements = {"/tmp/": f"{tmp_path}/", "localhost:9092": servers}
    snippets = Snippets({"spark": spark}, replacements, monkeypatch)
    for block in page_blocks:
        snippets.run(block)
    for value in snippets.namespace.values():
        if isinstance(value, StreamingQueryListener):
            spark.streams.removeListener(value)
        elif isinstance(value, dict) and any(map(is_option, value)):
            read_options({BOOTSTRAP_SERVERS.name: "example:9092", **value})
    assert [topic for topic in sorted(named) if records(topics, topic) == before[topic]] == []


def records(topics: Topics, topic: str) -> int:
    return len(topics.read(topic)) if topics.exists(topic) else 0


# --- commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", runnable("sh"), ids=str)
def test_its_program_accepts_each_command(block):
    subprocess.run(["sh", "-n"], input=block.text, text=True, timeout=60, check=True)
    for words in commands(block.text):
        check = CHECKS.get(words[0])
        assert check, f"{words[0]}: add a check, or say above the block why it is not run"
        check(words[1:])


@pytest.mark.parametrize("block", runnable("ini"), ids=str)
def test_spark_submit_accepts_the_arguments_in_a_systemd_unit(block):
    ((program, arguments),) = re.findall(r"^ExecStart=(\S+) (.*)$", block.text, re.MULTILINE)
    assert Path(program).name == "spark-submit"
    check_submit(shlex.split(arguments))


def commands(text: str) -> Iterator[list[str]]:
    """The words of each simple command, also of those in ``$(...)``."""
    for line in text.replace("\\\n", " ").splitlines():
        # To a shell, unlike to shlex, a comment begins only where a word does.
        lexer = shlex.shlex(re.sub(r"(^|\s)#.*", "", line), posix=True, punctuation_chars=True)
        lexer.commenters = ""
        lexer.whitespace_split = True
        words: list[str] = []
        for word in lexer:
            if set(word) <= set("();&|"):
                yield from [words] if words else []
                words = []
            else:
                words.append(word)
        yield from [words] if words else []


def check_python(words: list[str]) -> None:
    if words[:2] == ["-m", "spark_kafka_sink"]:
        check_kafka_nb(words[2:])
    elif words[:2] == ["-m", "pip"]:
        check_pip(words[2:])
    elif words[0] == "-c":
        subprocess.run([sys.executable, *words], timeout=170, check=True)
    else:
        check_application(words)


def check_kafka_nb(words: list[str]) -> None:
    choice = spark_kafka_sink_command._parser().parse_args(words)
    if getattr(choice, "options", None):
        read_options({name: text.replace(VARIABLE, SERVER) for name, text in choice.options})
    if getattr(choice, "config", None):
        check_file(str(choice.config))


def check_application(words: list[str]) -> None:
    """A Python program of this project, with its arguments, or one that belongs to the user."""
    if words[0] in JOBS:
        check_file(words[0])
        choice = JOBS[words[0]]._parser().parse_args(words[1:])
        check_file(str(choice.config))
    else:
        check_file(words[0])


def check_file(path: str) -> None:
    """Files of the project exist. Others belong to the user, and are not checked."""
    if path.partition("/")[0] in ("bin", "conf", "docs", "jobs", "tests"):
        assert (ROOT / path).exists(), path


def check_pip(words: list[str]) -> None:
    assert words[0] in ("install", "wheel", "download")
    for word in words[1:]:
        if word.startswith(("-", ".", "/")):
            continue
        requirement = Requirement(re.sub(r"\$\(.*?\)", "1", word))  # what a command prints
        if requirement.name == "spark-kafka-sink":
            assert requirement.extras <= set(metadata("spark-kafka-sink").get_all("Provides-Extra"))


def check_submit(words: list[str]) -> None:
    parser = argparse.ArgumentParser("spark-submit", add_help=False, allow_abbrev=False)
    for option, takes_value in submit_options().items():
        parser.add_argument(option, action="append" if takes_value else "store_true")
    parser.add_argument("application", nargs=argparse.REMAINDER)
    choice = parser.parse_args(words)
    for file in choice.properties_file or []:
        check_file(file)
    check_application(choice.application)


@cache
def submit_options() -> dict[str, bool]:
    """The options in spark-submit's own help, and whether each has a value."""
    help_text = subprocess.run(
        [BIN / "spark-submit", "--help"], capture_output=True, text=True, timeout=170, check=False
    ).stderr
    arguments = re.findall(r"^ +(--[a-z-]+)(?:, -\w)?,?( [A-Z])?", help_text, re.MULTILINE)
    assert ("--properties-file", " F") in arguments, help_text
    return {option: bool(value) for option, value in arguments}


def check_make(words: list[str]) -> None:
    targets = re.findall(r"^([a-z%-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for word in (word for word in words if "=" not in word):
        assert any(re.fullmatch(target.replace("%", ".+"), word) for target in targets), word


def check_look_up(words: list[str]) -> None:
    assert words[0] == "-v"
    assert shutil.which(words[1], path=BIN), words[1]


def check_nothing(_: list[str]) -> None:
    """A shell builtin, whose syntax ``sh -n`` has checked."""


CHECKS: Mapping[str, Callable[[list[str]], object]] = {
    "command": check_look_up,
    "export": check_nothing,
    "kafka-nb": check_kafka_nb,
    "kafka-topics.sh": new_topic,
    "make": check_make,
    "pip": check_pip,
    "python": check_python,
    "spark-submit": check_submit,
}


# --- configurations -------------------------------------------------------------------------------


@pytest.mark.parametrize("block", runnable("yaml"), ids=str)
def test_a_configuration_is_valid_for_a_job(block, tmp_path):
    checked(block.text, str(block), tmp_path)


# --- blocks that cannot run -----------------------------------------------------------------------


@pytest.mark.parametrize("block", MARKED, ids=str)
def test_the_options_in_a_block_that_is_not_run_are_valid(block):
    options = OPTIONS_IN.get(block.language, no_options)(block.text)
    assert options or block.language not in OPTIONS_IN or PREFIX not in block.text
    with suppress(LibraryUnavailable):  # Kerberos, which the wheel's librdkafka lacks
        read_options({BOOTSTRAP_SERVERS.name: "example:9092", **options})


def no_options(_: str) -> dict[str, str]:
    return {}


def options_in_python(text: str) -> dict[str, str]:
    """Of ``.option(name, value)`` and of dictionaries."""
    names: dict[str, str] = {}
    pairs: list[tuple[ast.AST | None, ast.AST]] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names[node.targets[0].id] = value_of(node.value, names)
        elif isinstance(node, ast.Dict):
            pairs += zip(node.keys, node.values, strict=True)
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "option":
            pairs.append((node.args[0], node.args[1]))
    named = [(key.value, value) for key, value in pairs if isinstance(key, ast.Constant)]
    return {option: value_of(value, names) for option, value in named if is_option(option)}


def value_of(node: ast.AST, names: Mapping[str, str]) -> str:
    """A literal's value, or an example where only a running program has one."""
    if isinstance(node, ast.JoinedStr):
        return "".join(value_of(value, names) for value in node.values)
    if isinstance(node, ast.FormattedValue):
        return value_of(node.value, names)
    if isinstance(node, ast.Name):
        return names.get(node.id, "example")
    return str(node.value) if isinstance(node, ast.Constant) else "example"


def options_in_yaml(text: str) -> dict[str, str]:
    texts: dict[str, str] = {}
    waiting = list(yaml.load_all(text, yaml.BaseLoader))
    while waiting:
        mapping = waiting.pop()
        if isinstance(mapping, dict):
            texts |= {option: str(value) for option, value in mapping.items() if is_option(option)}
            waiting += mapping.values()
        elif isinstance(mapping, list):
            waiting += mapping
    return texts


def is_option(text: object) -> bool:
    return isinstance(text, str) and (text.startswith(PREFIX) or text in OWN_OPTIONS)


OPTIONS_IN: Mapping[str, Callable[[str], dict[str, str]]] = {
    "python": options_in_python,
    "yaml": options_in_yaml,
}


# --- what the pages promise -----------------------------------------------------------------------


def test_a_column_keeps_the_partitions_of_confluent_kafka(spark, bootstrap_servers, topics):
    """The expression in docs/migration.md, for keys that confluent_kafka has placed."""
    partitions = 6
    expression = f"int(crc32(key) % {partitions}) AS partition"
    assert expression in (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")
    theirs, ours = topics.create(partitions), topics.create(partitions)
    keys = [f"key-{number}" for number in range(200)]
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for key in keys:
        producer.produce(theirs, key=key, value="v")
    assert producer.flush(SECONDS) == 0
    rows = spark.createDataFrame([(key,) for key in keys], "key string")
    writer = rows.selectExpr("key", "'v' AS value", expression).write.format("kafka-nb")
    writer = writer.option("kafka.bootstrap.servers", bootstrap_servers).option("topic", ours)
    writer.mode("append").save()
    placed = [Counter((r.key, r.partition) for r in topics.read(topic)) for topic in (theirs, ours)]
    assert placed[0] == placed[1]
