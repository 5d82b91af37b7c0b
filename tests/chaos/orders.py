"""The orders of faults to the streams: how many Spark partitions to have, and rows at which Spark's
own side of a task pauses or fails.

A row that is armed has a property of the driver's Java, which runs the tasks too. Spark takes the
order from there when it comes to the row, so one attempt obeys it. Replays give the same rows.
"""

from __future__ import annotations

from pathlib import Path

from query_kinds import KEYS, ROWS_PER_ARROW_BATCH, ROWS_PER_BATCH, SPARK_PARTITIONS

_REASON = "chaos: upstream fails"
#: in the text of a failure that an order explains; the text also has the query's plan
FAILED = f"[USER_RAISED_EXCEPTION] {_REASON}"

_FAIL, _GO_ON = "fail", "go on"


def fail(after_milliseconds: int = 0) -> str:
    return f"{after_milliseconds} {_FAIL}"


def pause(milliseconds: int) -> str:
    return f"{milliseconds} {_GO_ON}"


def property_name(topic: str, row: int | str) -> str:
    """``row``: its place in its micro-batch, from 0."""
    return f"chaos.{topic}.{row}"


def obeying(rows, topic: str):
    """A data frame with the column ``id``, and a column ``obeyed`` that must be used."""
    name = f"concat('{property_name(topic, '')}', id % {ROWS_PER_BATCH})"
    ordered = f"nullif(java_method('java.lang.System', 'clearProperty', {name}), 'null')"
    milliseconds = "cast(split(ordered, ' ')[0] as bigint)"
    slept = f"java_method('java.lang.Thread', 'sleep', {milliseconds})"
    # One column after another: Spark would repeat an expression that two others use.
    rows = rows.selectExpr("id", f"{ordered} as ordered")
    rows = rows.selectExpr(
        "id", "ordered", f"case when ordered is null then '' else {slept} end as slept"
    )
    fails = f"slept <> '' and ordered like '%{_FAIL}'"
    return rows.selectExpr(
        "id", f"case when {fails} then raise_error('{_REASON}') else 'yes' end as obeyed"
    )


def rows_of(spark_partition: int, spark_partition_of_key: list[int]) -> list[int]:
    """The rows of a micro-batch that a Spark partition has, in the order in which they come."""
    return [
        row
        for row in range(ROWS_PER_BATCH)
        if spark_partition_of_key[row % KEYS] == spark_partition
    ]


def around_borders(rows: list[int]) -> list[int]:
    """The last row of every Arrow batch but the last one, and the first row of the next one."""
    places = range(ROWS_PER_ARROW_BATCH, len(rows), ROWS_PER_ARROW_BATCH)
    return [rows[place - before] for place in places for before in (1, 0)]


def partitions(folder: Path, topic: str) -> int:
    """How many Spark partitions the stream is to have when it starts."""
    try:
        return int(_file(folder, topic).read_text())
    except FileNotFoundError:
        return SPARK_PARTITIONS


def set_partitions(folder: Path, topic: str, number: int) -> None:
    draft = _file(folder, topic).with_suffix(".new")
    draft.write_text(str(number))
    draft.rename(_file(folder, topic))


def _file(folder: Path, topic: str) -> Path:
    return folder / f"partitions-{topic}"
