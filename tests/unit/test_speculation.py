"""Speculation duplicates records without any failure: the user's calls warn about it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink import foreach_batch, register, warm_up

OPTIONS = {"kafka.bootstrap.servers": "host:9092", "topic": "t", "preflight": "false"}
WARNING = "spark.speculation is true: .* duplicated"


class Session:
    """The part of a Spark Connect session that the calls need."""

    def __init__(self, speculation: str | None) -> None:
        self.conf = SimpleNamespace(get=lambda name, default: speculation or default)
        self.dataSource = SimpleNamespace(register=lambda source: None)


def batch_of(session: Session) -> SimpleNamespace:
    """The part of a DataFrame without partitions that foreach_batch needs."""
    return SimpleNamespace(
        schema=StructType([StructField("value", StringType())]),
        sparkSession=session,
        mapInArrow=lambda function, schema: SimpleNamespace(collect=list),
    )


def test_registering_warns_at_the_users_line():
    with pytest.warns(UserWarning, match=WARNING) as warned:
        register(Session("true"))
    assert warned[0].filename == __file__


def test_warming_up_warns_at_the_users_line():
    with pytest.warns(UserWarning, match=WARNING) as warned:
        warm_up(Session("true"), {})
    assert warned[0].filename == __file__


def test_warming_up_never_raises_even_where_warnings_are_errors():
    assert "spark.speculation" in warm_up(Session("true"), {}).problem


def test_a_foreach_batch_function_warns_at_its_first_micro_batch():
    batch, write = batch_of(Session("true")), foreach_batch(OPTIONS)
    with pytest.warns(UserWarning, match=WARNING):
        write(batch, 0)
    write(batch, 1)


@pytest.mark.parametrize("speculation", ["false", None])
def test_without_speculation_there_is_no_warning(speculation):
    session = Session(speculation)
    register(session)
    foreach_batch(OPTIONS)(batch_of(session), 0)


def test_a_session_that_hides_the_setting_gets_no_warning():
    def reject(name, default):
        raise PySparkException("CONFIG_NOT_AVAILABLE")

    session = Session(None)
    session.conf.get = reject
    register(session)
