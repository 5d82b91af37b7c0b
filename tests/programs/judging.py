"""Runs a program with Spark's own sink and with this one, and compares the records."""

from __future__ import annotations

import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from program import WAYS, Place, Program, edited, plain_text
from pyspark.sql import SparkSession
from topics import Record, Topics
from waiting import wait_until

import spark_kafka_sink

SAME, REFUSED, LOST, BOTH = "same", "refused", "lost", "refused by both"
DIFFERENT, ONLY_HERE = "different", "refused by Spark's own sink only"
# What a process of a program's own does first.
PREAMBLE = {"patched": "import spark_kafka_sink; spark_kafka_sink.patch_pyspark()"}
# Records that are older are deleted at the broker's next check, with the default retention.ms.
RETENTION_MS = 7 * 24 * 60 * 60 * 1000

# topic (0: the first), key, value, headers, and the partition if the program or the key sets it
Written = tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int | None]


@dataclass(frozen=True)
class Outcome:
    """What became of a program: the records that stay in its topics, or its error.

    ``is_sent_by_java``: a producer of Spark's own sink in this process has sent some of them.
    """

    records: Counter[Written] = field(default_factory=Counter)
    error: str = ""
    is_sent_by_java: bool = False
    warnings: tuple[str, ...] = ()


def run_sparks_own(program: Program, place: Place, topics: Topics) -> Outcome:
    text = program.text()
    if program.shaded:
        text = edited(text, (("kafkashaded.", ""),))
    return _run(program, text, place, topics)


def run_plain(program: Program, place: Place, topics: Topics) -> Outcome:
    """With the format changed, and what Spark demands of a sink in Python."""
    return _run(program, plain_text(program), place, topics)


def run_patched(program: Program, place: Place, topics: Topics) -> Outcome:
    """Not one letter changed, after ``patch_pyspark``."""
    with patched():
        return _run(program, program.text(), place, topics)


RUN: dict[str, Callable[[Program, Place, Topics], Outcome]] = {
    "plain": run_plain,
    "patched": run_patched,
}


@contextmanager
def patched() -> Iterator[None]:
    spark_kafka_sink.patch_pyspark()
    try:
        yield
    finally:
        spark_kafka_sink.unpatch_pyspark()


def verdict(judge: Outcome, outcome: Outcome) -> str:
    if outcome.error:
        return BOTH if judge.error else REFUSED
    if judge.error:
        return ONLY_HERE
    if outcome.records == judge.records:
        return SAME
    return LOST if judge.records - outcome.records else DIFFERENT


@dataclass(frozen=True)
class Seen:
    """A verdict. ``has_demands``: Spark demands more of the plain program than the format."""

    name: str
    way: str
    verdict: str
    has_demands: bool


def table(seen: list[Seen]) -> str:
    """How many programs are the same, in Markdown, and which are not."""
    ways = {way: [row for row in seen if row.way == way] for way in WAYS}
    plain = ways["plain"]
    lines = [
        "| | the format changed | not one letter changed, after `patch_pyspark()` |",
        "|---|---|---|",
        f"| programs | {len(plain)} | {len(ways['patched'])} |",
    ]
    for text in (SAME, REFUSED, LOST, DIFFERENT, ONLY_HERE, BOTH):
        counts = [sum(row.verdict == text for row in rows) for rows in ways.values()]
        if any(counts):
            lines.append(f"| {text} | {counts[0]} | {counts[1]} |")
    demanding = sum(row.verdict == SAME and row.has_demands for row in plain)
    lines.append(f"| of the same: only after what Spark demands | {demanding} | 0 |")
    others = sorted(
        f"{row.name}, {row.way}: {row.verdict}" for row in seen if row.verdict not in (SAME, BOTH)
    )
    return "\n".join([*lines, "", *others])


def expected_verdict(program: Program) -> str:
    if not program.refused:
        return SAME
    return REFUSED if program.reason else BOTH


def explanation(judge: Outcome, outcome: Outcome) -> str:
    """What differs, for a failed test."""
    lines = [f"Spark's own sink: {judge.error or f'{judge.records.total()} records'}"]
    lines.append(f"this sink: {outcome.error or f'{outcome.records.total()} records'}")
    lines += [f"  missing: {record}" for record in [*(judge.records - outcome.records)][:5]]
    lines += [f"  too many: {record}" for record in [*(outcome.records - judge.records)][:5]]
    return "\n".join([*lines, *(f"  warning: {text}" for text in outcome.warnings)])


def _run(program: Program, text: str, place: Place, topics: Topics) -> Outcome:
    """Run the program's text where its module's names are known."""
    names = dict(program.run.__globals__)
    exec(compile(text, f"<{program.name}>", "exec"), names)
    started_ms = int(time.time() * 1000)
    sent_before = _sent_by_java(place.spark)
    with warnings.catch_warnings(record=True) as issued:
        warnings.simplefilter("always")
        try:
            names[program.name](place)
        except Exception as error:  # noqa: BLE001 - whatever it is, the program has failed
            return Outcome(error=f"{type(error).__name__}: {error}")
    texts = tuple(str(warning.message) for warning in issued)
    names_of_topics = [place.topic, place.second_topic]
    if re.search(r"kafka\.acks\W+0\b", text):
        # Then a program ends before brokers have stored its records.
        count = place.rows().count()
        wait_until(lambda: len(topics.read(*names_of_topics)) >= count)
    records = [r for r in topics.read(*names_of_topics) if _stays(r, started_ms)]
    written = Counter(_written(r, names_of_topics, program.sets_partition) for r in records)
    is_sent = any(n > sent_before.get(k, 0) for k, n in _sent_by_java(place.spark).items())
    return Outcome(written, is_sent_by_java=is_sent, warnings=texts)


def _sent_by_java(spark: SparkSession) -> dict[str, float]:
    """How many records each producer in Spark's Java process has sent, ever."""
    java, new_array = spark._jvm, spark.sparkContext._gateway.new_array
    beans = java.java.lang.management.ManagementFactory.getPlatformMBeanServer()
    kind = java.java.lang.Class.forName("javax.management.MBeanServer")

    def call(name: str, *arguments: object) -> Any:
        # The server's own class is not public, so Python cannot call it in the ordinary way.
        (method,) = (m for m in kind.getMethods() if m.getName() == name)
        values = new_array(java.java.lang.Object, len(arguments))
        for number, argument in enumerate(arguments):
            values[number] = argument
        return method.invoke(beans, values)

    producers = java.javax.management.ObjectName("kafka.producer:type=producer-metrics,client-id=*")
    return {
        bean.toString(): call("getAttribute", bean, "record-send-total")
        for bean in call("queryNames", producers, None)
    }


def _stays(record: Record, now_ms: int) -> bool:
    return record.timestamp_ms >= now_ms - RETENTION_MS


def _written(record: Record, topics: list[str], sets_partition: bool) -> Written:
    has_place = sets_partition or record.key is not None
    partition = record.partition if has_place else None
    return topics.index(record.topic), record.key, record.value, record.headers, partition
