"""Reads a notebook in Databricks' source format, and runs its Python cells as Databricks would."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

from pyspark.errors import IllegalArgumentException

_HEADER = "# Databricks notebook source"
_SEPARATOR = "# COMMAND ----------"
_MAGIC = "# MAGIC"


@dataclass(frozen=True)
class Cell:
    """``magic``: md, pip, or "" for Python. ``text``: what follows it, or the Python code.

    ``line``: where the cell begins in the file.
    """

    magic: str
    text: str
    line: int


def read_cells(path: Path) -> list[Cell]:
    header, *lines = path.read_text(encoding="utf-8").splitlines()
    assert header == _HEADER
    cells: list[Cell] = []
    begun: list[str] = []
    for number, line in enumerate([*lines, _SEPARATOR], start=2):
        if line == _SEPARATOR:
            cells.append(_cell(begun, number - len(begun)))
            begun = []
        else:
            begun.append(line)
    return cells


def _cell(lines: list[str], first: int) -> Cell:
    magic = [line.removeprefix(_MAGIC).removeprefix(" ") for line in lines if _is_magic(line)]
    if not magic:
        return Cell("", "\n".join(lines), first)
    assert all(_is_magic(line) for line in lines if line), f"line {first}: both magic and Python"
    command, text = "\n".join(magic).split(maxsplit=1)
    assert command.startswith("%"), f"line {first}: no magic command"
    return Cell(command.removeprefix("%"), text, first)


def _is_magic(line: str) -> bool:
    return line.startswith(_MAGIC)


class Notebook:
    """Runs cells in one namespace, which has what Databricks defines: spark, dbutils and display.

    ``parameters``: values of widgets, as a job passes them. ``secrets``: by scope and key.
    ``displayed``: the rows of every frame that ``display`` was called with.
    """

    def __init__(self, path: Path, spark, parameters: dict[str, str], secrets) -> None:
        self.cells = read_cells(path)
        self.names: dict[str, object] = {}
        self.displayed: list[list[dict[str, object]]] = []
        self.widgets = Widgets(parameters)
        self._path = path
        self._spark = spark
        self._secrets = secrets
        self._start_python()

    def run(self, cell: Cell) -> None:
        # The empty lines make tracebacks name the line of the file.
        exec(compile("\n" * (cell.line - 1) + cell.text, str(self._path), "exec"), self.names)

    def _start_python(self) -> None:
        """Forget the variables of all cells so far."""
        dbutils = SimpleNamespace(
            library=SimpleNamespace(restartPython=self._start_python),
            secrets=SimpleNamespace(get=lambda scope, key: self._secrets[scope][key]),
            widgets=self.widgets,
        )
        self.names.clear()
        # Functions of a notebook belong to __main__, so Spark pickles them by value.
        self.names.update(
            __name__="__main__", spark=self._spark, dbutils=dbutils, display=self._display
        )

    def _display(self, frame) -> None:
        self.displayed.append([row.asDict(recursive=True) for row in frame.collect()])


class DBUtils:
    """``pyspark.dbutils.DBUtils`` of Databricks' own PySpark, as far as a job uses it.

    ``known``: the secrets, by scope and key, of all sessions.
    """

    known: Mapping[str, Mapping[str, str]] = {}

    def __init__(self, spark) -> None:
        assert spark is not None
        self.secrets = SimpleNamespace(get=self._secret)

    def _secret(self, scope: str, key: str) -> str:
        try:
            return self.known[scope][key]
        except KeyError:
            what = f"Secret does not exist with scope: {scope} and key: {key}"
            raise IllegalArgumentException(what) from None


class Widgets:
    """``dbutils.widgets``: a parameter of the job replaces a widget's default."""

    def __init__(self, parameters: dict[str, str]) -> None:
        self.values: dict[str, str] = {}
        self._parameters = parameters

    def text(self, name: str, default: str) -> None:
        self.values[name] = self._parameters.get(name, default)

    def dropdown(self, name: str, default: str, choices: list[str]) -> None:
        assert default in choices
        self.text(name, default)
        assert self.values[name] in choices

    def get(self, name: str) -> str:
        return self.values[name]
