"""What users are warned of at their own line: speculation, and options that do nothing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink import foreach_batch, register, warm_up
from spark_kafka_sink.application_files import mark
from spark_kafka_sink.errors import InvalidOption, InvalidSchema
from spark_kafka_sink.spark import datasource
from spark_kafka_sink.spark.datasource import KafkaSink

OPTIONS = {"kafka.bootstrap.servers": "host:9092", "topic": "t", "preflight": "false"}
WARNING = "spark.speculation is true: .* duplicated"


class Session:
    """The part of a Spark Connect session that the calls need."""

    def __init__(self, speculation: str | None, **worker: str) -> None:
        settings = {f"spark.python.worker.{name}": value for name, value in worker.items()}
        settings["spark.speculation"] = speculation
        self.conf = SimpleNamespace(get=lambda name, default: settings.get(name) or default)
        self.dataSource = SimpleNamespace(register=lambda source: None)


def batch_of(session: Session) -> SimpleNamespace:
    """The part of a DataFrame without partitions that foreach_batch needs."""
    return SimpleNamespace(
        schema=StructType([StructField("value", StringType())]),
        sparkSession=session,
        mapInArrow=lambda function, schema: SimpleNamespace(collect=list),
    )


@pytest.mark.needs_format
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


@pytest.mark.needs_format
@pytest.mark.parametrize("speculation", ["false", None])
def test_without_speculation_there_is_no_warning(speculation):
    session = Session(speculation)
    register(session)
    foreach_batch(OPTIONS)(batch_of(session), 0)


@pytest.mark.needs_format
def test_a_session_that_hides_the_setting_gets_no_warning():
    def reject(name, default):
        raise PySparkException("CONFIG_NOT_AVAILABLE")

    session = Session(None)
    session.conf.get = reject
    register(session)


@pytest.mark.needs_format
@pytest.mark.parametrize(
    ("seconds", "is_warned"), [("5", True), ("60", True), ("61", False), ("0", False)]
)
@pytest.mark.parametrize("kills", ["true", "false"])
def test_workers_that_spark_kills_while_they_wait_are_warned_of(seconds, is_warned, kills):
    session = Session(None, killOnIdleTimeout=kills, idleTimeoutSeconds=seconds)
    for call in (
        lambda: register(session),
        lambda: warm_up(session, {}),
        lambda: foreach_batch(OPTIONS)(batch_of(session), 0),
    ):
        if is_warned and kills == "true":
            with pytest.warns(
                UserWarning, match=r"kills a task .*kafka\.max\.block\.ms=60000"
            ) as warned:
                call()
            assert warned[0].filename == __file__
        else:
            call()  # a warning would be an error


def test_the_longest_wait_of_the_options_decides():
    session = Session(None, killOnIdleTimeout="true", idleTimeoutSeconds="61")
    with pytest.warns(UserWarning, match=r"close\.timeout\.ms=120000"):
        foreach_batch({**OPTIONS, "close.timeout.ms": "120000"})(batch_of(session), 0)


# --- options -------------------------------------------------------------------------------------

VALUE = StructType([StructField("value", StringType())])
FOREIGN = {"subscribe": "t", "kafka.group.id": "g", "kafka.acks": "1"}
IGNORED = r"no effect on this sink: subscribe .*; kafka\.group\.id .*kafka\.acks=1 switches"


def test_one_warning_of_foreach_batch_names_all_options_without_effect_at_the_users_line(caplog):
    with caplog.at_level("INFO"), pytest.warns(UserWarning, match=IGNORED) as warned:
        foreach_batch({**OPTIONS, **FOREIGN})
    assert [warning.filename for warning in warned] == [__file__]
    assert caplog.messages == [str(warned[0].message)]


@pytest.mark.needs_format
def test_the_format_warns_while_it_plans_and_not_when_it_commits():
    sink = KafkaSink({**OPTIONS, **FOREIGN})
    with pytest.warns(UserWarning, match=IGNORED) as warned:
        sink.streamWriter(VALUE, overwrite=False)
    assert len(warned) == 1
    sink.__setstate__({})  # as Spark's process for commits unpickles it
    sink.streamWriter(VALUE, overwrite=False)  # a warning would be an error


@pytest.mark.needs_format
def test_an_application_is_warned_once_whichever_process_plans(tmp_path, monkeypatch):
    monkeypatch.setattr(datasource, "application_folder", lambda: tmp_path)
    with pytest.warns(UserWarning, match=IGNORED):
        KafkaSink({**OPTIONS, **FOREIGN}).streamWriter(VALUE, overwrite=False)
    KafkaSink({**OPTIONS, **FOREIGN}).streamWriter(VALUE, overwrite=False)
    with pytest.warns(UserWarning, match=r"truncate \(Spark's console\)"):
        KafkaSink({**OPTIONS, "truncate": "false"}).streamWriter(VALUE, overwrite=False)


def test_a_folder_that_cannot_be_written_to_hides_no_warning(tmp_path):
    assert [mark(tmp_path / "none", "said", "a") for _ in range(2)] == [True, True]
    assert [mark(tmp_path, "said", "a") for _ in range(2)] == [True, False]


@pytest.mark.needs_format
@pytest.mark.parametrize("missing", ["kafka.bootstrap.servers", None])
def test_one_error_of_the_format_names_all_that_is_wrong_with_options_and_columns(missing):
    options = {**OPTIONS, "kafka.lingers.ms": "5", "on.record.error": "never"}
    options.pop(missing, None)
    wrong = StructType([StructField("vaule", StringType())])
    with pytest.raises(InvalidOption) as raised:
        KafkaSink(options).streamWriter(wrong, overwrite=False)
    assert "did you mean kafka.linger.ms?" in str(raised.value)
    assert "on.record.error='never' is not fail or dead-letter" in str(raised.value)
    assert "column value (string or binary) is required" in str(raised.value)
    assert ("kafka.bootstrap.servers is required" in str(raised.value)) is bool(missing)


@pytest.mark.needs_format
def test_columns_alone_are_an_error_of_the_schema():
    with pytest.raises(InvalidSchema, match=r"^column value .* is required but missing"):
        KafkaSink({**OPTIONS}).streamWriter(StructType([]), overwrite=False)


@pytest.mark.needs_format
def test_a_misspelt_topic_does_not_make_the_column_missing():
    options = {**OPTIONS, "topik": "t"}
    del options["topic"]
    with pytest.raises(InvalidOption, match=r"^topik: .*did you mean topic\?$"):
        KafkaSink(options).streamWriter(VALUE, overwrite=False)


@pytest.mark.needs_format
def test_a_format_without_a_registry_does_not_hide_the_columns():
    with pytest.raises(InvalidOption) as raised:
        KafkaSink({**OPTIONS, "value.format": "avro"}).streamWriter(StructType([]), overwrite=False)
    assert "value.format=avro needs schema.registry.url" in str(raised.value)
    assert "column value (string or binary) is required" in str(raised.value)
