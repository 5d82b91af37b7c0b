"""What a program is: a function that writes to Kafka as Spark's own sink wants it, and a row."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from pyspark.sql import DataFrame, SparkSession
from streams import stream_of

# What Spark demands of a program whose sink is in Python, as edits of its text.
Edit = tuple[str, str]
MODE: Edit = (".save()", '.mode("append").save()')
UPDATE: Edit = ('format("kafka").options(**options)', "foreachBatch(foreach_batch(options))")

WAYS = ("plain", "patched")

# The literal is the sink's, except where a program reads.
_SINKS_NAME = re.compile(r'(?<!read\.format\()(?<!readStream\.format\()"kafka"', re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """Where a program runs: what it would have in constants, arguments or its environment.

    ``servers`` need no login; ``login_servers`` want one of ``USERS`` (SASL_PLAINTEXT) or a token
    of ``token_url``. ``source`` has records to read; ``topic`` and ``second_topic`` are empty.
    ``folder`` is empty and its own. ``preamble`` is what a process that the program starts does
    before anything else: nothing, or patch PySpark.
    """

    spark: SparkSession
    servers: str
    login_servers: str
    token_url: str
    source: str
    topic: str
    second_topic: str
    folder: Path
    preamble: str = ""

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    def rows(self) -> DataFrame:
        """Orders: id bigint, customer string, amount double."""
        return self.spark.range(0, 20, numPartitions=2).selectExpr(
            "id", "concat('customer-', id % 4) AS customer", "id * 1.5D AS amount"
        )

    def lines(self) -> DataFrame:
        """A stream of two micro-batches of lines of text: the column value. Call it once."""
        folder = self.folder / "lines"
        folder.mkdir()  # or a second call would add files while a query lists them
        return stream_of(self.spark, folder, ["a 1", "b 2", "a 3"], ["b 4", "c 5"])


@dataclass(frozen=True)
class Program:
    """One program.

    - ``run``: the program, as it was written for Spark's own sink.
    - ``demands``: edits that Spark demands for a sink in Python, with which the plain program
      runs. The patched one runs without them.
    - ``shaded``: the program is one of Databricks, whose Kafka classes begin with "kafkashaded.";
      Spark's own sink gets it without.
    - ``sets_partition``: rows say their partition.
    - ``has_own_process``: it writes in a process that it starts.
    - ``refused``: a part of this sink's error, if it does not run. ``reason``: why, if it runs with
      Spark's own sink.
    - ``is_fast``: it is among the few that every ``make test`` runs.
    - ``ways``: those that it can run in; a library may fix the format in its own code.
    """

    run: Callable[[Place], None]
    demands: tuple[Edit, ...] = ()
    shaded: bool = False
    sets_partition: bool = False
    has_own_process: bool = False
    refused: str = ""
    reason: str = ""
    is_fast: bool = False
    ways: tuple[str, ...] = WAYS

    @property
    def name(self) -> str:
        return self.run.__name__

    def text(self) -> str:
        """The function's source, without the row above it."""
        source = inspect.getsource(self.run)
        return source[source.index("\ndef ") + 1 :]


class Table(list[Program]):
    """The programs of one module; ``@table.row(...)`` adds the function below it."""

    def row(self, **fields: Any) -> Callable[[Callable[[Place], None]], Callable[[Place], None]]:
        """``fields``: those of Program."""

        def add(run: Callable[[Place], None]) -> Callable[[Place], None]:
            self.append(Program(run, **fields))
            return run

        return add

    def cases(self, is_fast: bool) -> list[ParameterSet]:
        """The programs that are fast, or the others, in all ways, as parameters of a test.

        Of the others, those that run alike in both ways are marked in one of them, in turn.
        """
        return [
            pytest.param(
                program,
                way,
                id=f"{program.name}-{way}",
                marks=[pytest.mark.other_way] if _is_other_way(program, number, way) else [],
            )
            for number, program in enumerate(self)
            if program.is_fast == is_fast
            for way in program.ways
        ]


def _is_other_way(program: Program, number: int, way: str) -> bool:
    """Whether ``make test-slow`` runs the program in its other way only."""
    is_alike = program.demands in ((), (MODE,)) and not program.refused and not program.is_fast
    return is_alike and way != program.ways[number % len(program.ways)]


def edited(text: str, edits: tuple[Edit, ...]) -> str:
    """The text with every edit, each of which must apply."""
    for old, new in edits:
        if old not in text:
            raise ValueError(f"nothing to edit: {old!r}")
        text = text.replace(old, new)
    return text


def plain_text(program: Program) -> str:
    """The program's text with the format changed, and with what Spark demands."""
    text = _SINKS_NAME.sub('"kafka-nb"', edited(program.text(), program.demands))
    if text == program.text():
        raise ValueError("nothing to edit: the program names no format")
    return text
