"""Every program of the tables, with Spark's own sink as the judge."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import batch_programs  # noqa: F401 - fills the table
import pytest
import stream_programs  # noqa: F401 - fills the table
from judging import BOTH, REFUSED, RUN, SAME, WAYS, Outcome, explanation, run_sparks_own, verdict
from program import PROGRAMS, Place, Program
from pyspark.sql import SparkSession
from topics import Topics

from spark_kafka_sink import register

# Years ago: such timestamps are beyond the retention of nearly every topic.
_OLD_MS = 1_500_000_000_000


@pytest.fixture(scope="module")
def source(brokers) -> Iterator[str]:
    """A topic of old records, with keys, headers and duplicates."""
    from confluent_kafka import Producer

    topics = Topics(brokers.servers)
    topic = topics.create(partitions=3)
    producer = Producer({"bootstrap.servers": brokers.servers})
    for number in range(12):
        producer.produce(
            topic,
            value=f"v{number % 5}",
            key=f"k{number % 5}",
            partition=number % 3,
            headers=[("n", b"%d" % (number % 5))],
            timestamp=_OLD_MS + number,
        )
    assert producer.flush(30) == 0
    yield topic
    topics.close()


@pytest.fixture(scope="module")
def judged() -> dict[str, Outcome]:
    """What Spark's own sink made of each program."""
    return {}


def place(spark: SparkSession, brokers, topics: Topics, source: str, folder: Path) -> Place:
    folder.mkdir()
    return Place(
        spark=spark,
        servers=brokers.servers,
        login_servers=brokers.login_servers,
        token_url=brokers.token_url,
        source=source,
        topic=topics.create(partitions=3),
        second_topic=topics.create(partitions=3),
        folder=folder,
    )


def named(programs: list[Program]) -> list:
    return [
        pytest.param(program, id=program.name, marks=() if program.is_fast else pytest.mark.slow)
        for program in programs
    ]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("program", named(PROGRAMS))
def test_a_program_writes_what_it_writes_with_sparks_own_sink(
    spark, brokers, topics, source, judged, tmp_path, program, way, record_property
):
    if program.name not in judged:
        here = place(spark, brokers, topics, source, tmp_path / "judge")
        judged[program.name] = run_sparks_own(program, here, topics)
    judge = judged[program.name]
    outcome = RUN[way](program, place(spark, brokers, topics, source, tmp_path / way), topics)
    register(spark)  # Ctrl-C may have taken the session away from this thread
    seen = verdict(judge, outcome)
    record_property("program", [program.shape, way, seen, len(program.demands)])
    expected = {REFUSED, BOTH} if program.refused else {SAME}
    assert seen in expected, explanation(judge, outcome)
    assert program.refused.lower() in outcome.error.lower(), explanation(judge, outcome)
