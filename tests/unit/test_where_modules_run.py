"""The first line of a module says if the driver runs it, a task, or both: as its imports do."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PACKAGE = "spark_kafka_sink"

#: what Spark loads in its workers: what it unpickles there, and what a setting names
TASK_MODULES = {"spark.writer", "spark.map_in_arrow", "schemas.serializer", "clients.aws_signer"}
#: imports of the driver to pass something to Spark, which only tasks call
PASSED_TO_SPARK = {("spark.foreach_batch", "spark.map_in_arrow"), ("spark.writer", "spark.task")}
#: classes for both sides, whose functions for the driver import what they need
TWO_SIDED = {"spark.writer", "report.delivery_report"}


@cache
def modules() -> dict[str, str]:
    """The source of each module of the sink, by its name inside the package."""
    files = (PROJECT / PACKAGE).rglob("*.py")
    sources = {file.relative_to(PROJECT / PACKAGE): file.read_text() for file in files}
    return {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__"): text
        for path, text in sources.items()
        if text and path.parts[0] not in ("tools", "__init__.py")
    }


def imports(node: ast.AST, *, in_functions: bool = True) -> Iterator[str]:
    """The modules that a module imports, except for types."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and (child.module or "").startswith(PACKAGE):
            room = child.module.removeprefix(PACKAGE).removeprefix(".")
            for alias in child.names:
                name = f"{room}.{alias.name}".removeprefix(".")
                yield name if name in modules() else room
        elif in_functions or not isinstance(child, ast.FunctionDef):
            yield from imports(child, in_functions=in_functions)


def reached(starts: set[str], graph: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    rest = list(starts)
    while rest:
        module = rest.pop()
        if module not in found:
            found.add(module)
            rest += graph.get(module, ())
    return found


@cache
def sides() -> dict[str, str]:
    """Where each module runs, from what imports it."""
    trees = {name: ast.parse(text) for name, text in modules().items()}
    all_imports = {name: {*imports(tree)} & trees.keys() for name, tree in trees.items()}
    of_tasks = all_imports | {
        name: {*imports(trees[name], in_functions=False)} & trees.keys() for name in TWO_SIDED
    }
    of_driver = {
        name: {other for other in others if (name, other) not in PASSED_TO_SPARK}
        for name, others in all_imports.items()
    }
    # The user's process, Spark's planner, a tool or the docs load what the sink does not.
    begins = trees.keys() - {other for others in all_imports.values() for other in others}
    tasks = reached(TASK_MODULES, of_tasks)
    driver = reached(begins - TASK_MODULES, of_driver)
    names = {(True, True): "both", (True, False): "task", (False, True): "driver"}
    return {name: names[name in tasks, name in driver] for name in trees}


def test_the_first_line_of_each_module_says_where_it_runs():
    said = {name: re.match(r'"""\[(\w+)\] ', text) for name, text in modules().items()}
    assert {name: match and match[1] for name, match in said.items()} == sides()


def test_the_map_says_where_each_folder_runs():
    by_room = defaultdict(set)
    for name, side in sides().items():
        by_room[name.partition(".")[0]].add(side)
    design = (PROJECT / "DESIGN.md").read_text()
    rows = re.findall(r"^\| (`[\w/`, ]+) \| (driver|task|both) \|", design, re.MULTILINE)
    said = {room: {side} for names, side in rows for room in re.findall(r"\w+", names)}
    del said["tools"]
    for room, found in by_room.items():
        expected = found if len(found) == 1 else {"both"}
        assert said.pop(room, expected if room == "__main__" else None) == expected, room
    assert not said


def test_what_tasks_load_is_no_more_than_it_has_to_be():
    """Every module that a task loads at once costs each cold worker time."""
    graph = {
        name: {*imports(ast.parse(text), in_functions=False)} for name, text in modules().items()
    }
    loaded = reached({"spark.map_in_arrow"}, graph)
    assert not {name for name in loaded if name.startswith(("driver", "producer", "librdkafka"))}
