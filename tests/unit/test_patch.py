from __future__ import annotations

import inspect
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql.readwriter import DataFrameWriter

from spark_kafka_sink import InvalidOption, patch_pyspark, unpatch_pyspark
from spark_kafka_sink.spark import private_api
from spark_kafka_sink.spark.private_api import writers


@pytest.fixture
def unpatched():
    yield
    unpatch_pyspark()


def functions():
    """Of all writers, by class and name."""
    return {
        (writer, name): function
        for writer in writers()
        for name, function in vars(writer).items()
        if inspect.isfunction(function)
    }


def test_patching_twice_and_undoing_once_leaves_the_classes_as_they_were(unpatched):
    before = functions()
    patch_pyspark()
    once = functions()
    patch_pyspark()
    assert functions() == once
    changed = {(key[0].__module__, key[1]) for key in once if once[key] is not before[key]}
    batch = {"format", "mode", "option", "options", "partitionBy", "save"}
    stream = {"format", "outputMode", "option", "options", "partitionBy", "foreach"}
    stream |= {"foreachBatch", "trigger", "start"}
    assert changed == {
        (f"pyspark.sql.{place}readwriter", name)
        for kind, names in (("", batch), ("streaming.", stream))
        for place in (kind, f"connect.{kind}")
        for name in names
    } | {("pyspark.pipelines.spark_connect_graph_element_registry", "register_output")}
    unpatch_pyspark()
    after = functions()
    assert all(after[key] is function for key, function in before.items())
    unpatch_pyspark()
    assert functions() == before


def test_threads_that_patch_and_undo_at_the_same_time_leave_the_classes_as_they_were(unpatched):
    before = functions()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for call in (patch_pyspark, unpatch_pyspark) * 100:
                threads.submit(call)
    finally:
        sys.setswitchinterval(interval)
    unpatch_pyspark()
    assert functions() == before


def test_the_patched_methods_have_the_signatures_and_docstrings_of_pyspark(unpatched):
    before = {key: (inspect.signature(f), f.__doc__) for key, f in functions().items()}
    patch_pyspark()
    assert {key: (inspect.signature(f), f.__doc__) for key, f in functions().items()} == before


class JavaWriter:
    """Remembers the calls; a writer of Spark's Java process returns itself."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        def call(*arguments):
            self.calls.append((name, *arguments))
            return self

        return call


def csv(writer, path):
    writer.option("emptyValue", None).option("nullValue", None).csv(path)


def format_in_save(writer, path):
    writer.mode("append").save(path, "csv", emptyValue=None, header=True)


def format_last(writer, path):
    writer.options(nullValue=None, sep="|").format("kafka").format("csv").save(path)


def table(writer, path):
    writer.option("path", path).option("emptyValue", None).saveAsTable("t", "csv", "ignore")


@pytest.mark.parametrize("write", [csv, format_in_save, format_last, table])
def test_other_formats_get_what_they_got(unpatched, monkeypatch, write):
    def option(writer, key, value):  # PySpark 4.3 leaves None out, earlier ones do not
        writer._jwrite = writer._jwrite.option(key, private_api.option_text(value))
        return writer

    def options(writer, **options):
        for key, value in options.items():
            option(writer, key, value)
        return writer

    monkeypatch.setattr(DataFrameWriter, "option", option)
    monkeypatch.setattr(DataFrameWriter, "options", options)

    def calls():
        writer = DataFrameWriter.__new__(DataFrameWriter)
        writer._jwrite = java_writer = JavaWriter()
        write(writer, "/tmp/out")
        return java_writer.calls

    before = calls()
    assert any(call[0] == "option" and call[2] is None for call in before)
    patch_pyspark()
    assert calls() == before
    unpatch_pyspark()


def test_what_was_set_on_a_writer_is_hidden_in_reprs(unpatched):
    from pyspark.sql.connect.readwriter import DataFrameWriter

    patch_pyspark()
    writer = DataFrameWriter(None, None).option("kafka.sasl.jaas.config", "a password")
    shown = repr(vars(writer)["_kafka_nb_request"])
    assert "kafka.sasl.jaas.config" in shown
    assert "a password" not in shown


@pytest.mark.parametrize("options", [{}, {"outputMode": "update"}, {"send.from": "driver"}])
def test_a_continuous_stream_raises_an_error_before_it_starts(unpatched, monkeypatch, options):
    stream_writer = writers()[3]
    started = []
    monkeypatch.setattr(stream_writer, "start", lambda *_, **options: started.append(options))
    patch_pyspark()

    def writer():
        return stream_writer(None, None).trigger(continuous="1 second")

    with pytest.raises(InvalidOption, match=r"trigger\(continuous=\.\.\.\) is not supported"):
        writer().format("kafka").start(**options)
    with pytest.raises(InvalidOption, match="with another checkpoint if"):
        writer().start(format="kafka", **options)
    writer().format("console").start(**options)
    writer().trigger(availableNow=True).format("kafka").start()
    assert len(started) == 2
    unpatch_pyspark()


def test_sinks_of_pipelines_come_here_and_their_tables_stay(unpatched, monkeypatch):
    outputs = pytest.importorskip("pyspark.pipelines.output")
    registry = writers()[-1]
    seen = []
    monkeypatch.setattr(registry, "register_output", lambda _, output: seen.append(output))
    patch_pyspark()
    for source in ("kafka", "KAFKA", "noop"):
        registry.register_output(None, outputs.Sink("s", None, None, source, {"topic": "t"}))
    table = outputs.StreamingTable("t", None, None, {}, None, None, None, "kafka")
    registry.register_output(None, table)
    assert [output.format for output in seen] == ["kafka-nb", "kafka-nb", "noop", "kafka"]
    assert seen[0].options == {"topic": "t"}
    unpatch_pyspark()
