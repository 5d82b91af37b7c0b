"""What PySpark's writers do between patch_pyspark() and unpatch_pyspark()."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from streams import counts, run, stream_of

from spark_kafka_sink import InvalidOption, UnsupportedSaveMode, patch_pyspark, unpatch_pyspark
from spark_kafka_sink.spark import private_api

SUPPORT = Path(__file__).parent.parent / "support"


@pytest.fixture
def patched():
    patch_pyspark()
    yield
    unpatch_pyspark()


class Target:
    """A topic, and the reports that only this sink leaves behind."""

    def __init__(self, servers, topics, folder):
        self.topic = topics.create(partitions=2)
        self.options = {
            "kafka.bootstrap.servers": servers,
            "topic": self.topic,
            "report.path": str(folder),
        }
        self._topics = topics
        self._folder = folder

    def reports(self):
        texts = [file.read_text() for file in self._folder.rglob("*.json*")]
        return [json.loads(line) for text in texts for line in text.splitlines()]

    def values(self):
        """Of all records, if this sink has written them."""
        values = sorted(record.value.decode() for record in self._topics.read(self.topic))
        assert sum(report["records"] for report in self.reports()) == len(values)
        return values


@pytest.fixture
def target(bootstrap_servers, topics, tmp_path):
    return Target(bootstrap_servers, topics, tmp_path / "reports")


@pytest.fixture
def frame(spark):
    return spark.createDataFrame([("a",), ("b",)], "value string").coalesce(1)


def in_thread(call):
    """What a thread of its own returns or raises."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(call).result(120)


def no_mode(frame, options):
    frame.write.format("kafka").options(**options).save()


def format_last(frame, options):
    frame.write.options(**options).mode("ErrorIfExists").format("KAFKA").save()


def all_in_save(frame, options):
    frame.write.save(format="kafka-nb", mode="append", **options)


def path_and_odd_values(frame, options):
    writer = frame.write.format("kafka").partitionBy("value").option("TOPIC", "replaced")
    writer.options(preflight=True, topic=None).option("kafka.linger.ms", 7)
    writer.options(**options).save("ignored")


@pytest.mark.parametrize("write", [no_mode, format_last, all_in_save, path_and_odd_values])
def test_a_batch_in_any_notation_is_appended_by_this_sink(patched, frame, target, write):
    write(frame, target.options)
    write(frame, target.options)
    assert target.values() == ["a", "a", "b", "b"]
    assert {report["batch_id"] for report in target.reports()} == {None}


@pytest.mark.parametrize("mode", ["overwrite", "Ignore"])
def test_modes_that_sparks_own_sink_refuses_are_refused(patched, frame, target, mode):
    with pytest.raises(UnsupportedSaveMode, match=f'mode."{mode}".*use mode."append"'):
        frame.write.format("kafka").options(**target.options).save(mode=mode)
    assert target.values() == []


def test_a_stream_with_all_that_a_writer_has_uses_this_sink(patched, spark, target, tmp_path):
    words = stream_of(spark, tmp_path / "in", ["a", "b"], ["c"])
    writer = words.writeStream.outputMode("append").format("kafka").partitionBy("value")
    writer.option("truncate", None).trigger(availableNow=True)
    checkpoint = str(tmp_path / "checkpoint")
    query = writer.start(
        "ignored", queryName="patched", checkpointLocation=checkpoint, **target.options
    )
    assert query.name == "patched"
    assert query.awaitTermination(60)
    assert query.exception() is None
    assert target.values() == ["a", "b", "c"]
    assert [report["batch_id"] for report in target.reports()] == [0, 1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "expected"), [("Update", ["1", "1", "2"]), ("complete", ["1", "1", "1", "2"])]
)
def test_output_modes_write_what_sparks_sink_does(patched, spark, target, tmp_path, mode, expected):
    words = counts(stream_of(spark, tmp_path / "in", ["a", "b"], ["b"]))
    writer = words.writeStream.queryName("counts").format("Kafka").partitionBy("key")
    writer.trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).options(**target.options)
    query = writer.start("ignored", outputMode=mode)
    assert query.awaitTermination(60)
    assert query.name == "counts"
    assert target.values() == expected


@pytest.mark.slow
def test_a_writer_can_be_started_again(patched, spark, target, tmp_path):
    words = stream_of(spark, tmp_path / "in", ["a"])
    writer = words.writeStream.format("kafka").options(**target.options).outputMode("update")
    run(writer, tmp_path)
    stream_of(spark, tmp_path / "in", ["b"])
    run(writer, tmp_path)
    stream_of(spark, tmp_path / "in", ["c"])
    run(writer.outputMode("append"), tmp_path)
    assert target.values() == ["a", "b", "c"]


@pytest.mark.parametrize("mode", ["append", "update"])
def test_a_stream_needs_a_checkpoint_as_with_sparks_own_sink(
    patched, spark, target, tmp_path, mode
):
    words = stream_of(spark, tmp_path / "in", ["a"])
    writer = words.writeStream.format("kafka").options(**target.options).outputMode(mode)
    writer.trigger(availableNow=True)
    with pytest.raises((AnalysisException, InvalidOption), match="checkpointLocation"):
        writer.start()
    spark.conf.set("spark.sql.streaming.checkpointLocation", str(tmp_path / "checkpoints"))
    try:
        assert writer.start().awaitTermination(60)
    finally:
        spark.conf.unset("spark.sql.streaming.checkpointLocation")
    assert target.values() == ["a"]


def test_any_thread_writes_batches_and_streams(patched, spark, frame, target, tmp_path):
    in_thread(lambda: no_mode(frame, target.options))
    words = stream_of(spark, tmp_path / "in", ["c"])
    in_thread(lambda: run(words.writeStream.format("kafka").options(**target.options), tmp_path))
    assert target.values() == ["a", "b", "c"]


@pytest.mark.skipif(not private_api.has_data_sources(), reason="foreach_batch asks no thread")
def test_a_write_leaves_the_threads_active_session_as_it_was(patched, spark, frame, target):
    jvm_class = spark._get_j_spark_session_class(spark._jvm)

    def is_any_active():
        no_mode(frame, target.options)
        return jvm_class.getActiveSession().isDefined()

    assert not in_thread(is_any_active)
    other = spark.newSession()
    private_api.activate(other)
    try:
        no_mode(frame, target.options)
        assert jvm_class.getActiveSession().get().equals(other._jsparkSession)
    finally:
        private_api.activate(spark)


def test_functions_for_foreach_batch_write_too(patched, spark, target, tmp_path):
    words = stream_of(spark, tmp_path / "in", ["a", "b"], ["c"])
    own = spark.createDataFrame([("own",)], "value string").coalesce(1)

    def write(batch, batch_id):
        batch.write.format("kafka").options(**target.options).save()
        own.write.format("kafka").options(**target.options).save()

    # Here the format is not used.
    run(words.writeStream.format("kafka").foreachBatch(write), tmp_path)
    assert target.values() == ["a", "b", "c", "own", "own"]


@pytest.mark.slow
def test_other_formats_tables_and_reading_are_untouched(
    patched, spark, frame, target, bootstrap_servers, tmp_path
):
    no_mode(frame, target.options)
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap_servers)
    records = reader.option("subscribe", target.topic).load()
    assert sorted(bytes(row.value) for row in records.collect()) == [b"a", b"b"]
    writer = frame.write.format("kafka").options(**target.options)
    writer.format("json").save(str(tmp_path / "json"))
    with pytest.raises(PySparkException, match="ALREADY_EXISTS"):
        frame.write.save(str(tmp_path / "json"), "json")
    assert spark.read.json(str(tmp_path / "json")).count() == 2
    words = stream_of(spark, tmp_path / "in", ["a"])
    query = run(words.writeStream.format("memory").queryName("in_memory"), tmp_path)
    assert query.exception() is None
    assert spark.table("in_memory").count() == 1
    assert target.values() == ["a", "b"]


def test_errors_are_those_of_the_sink(patched, frame, target):
    with pytest.raises(PySparkException, match=r"InvalidRecord.*null topic") as raised:
        frame.selectExpr("value", "cast(null as string) AS topic").write.format("kafka").option(
            "kafka.bootstrap.servers", target.options["kafka.bootstrap.servers"]
        ).save()
    assert "ErrorIfExists" not in str(raised.value)


def test_undone_the_format_goes_to_sparks_own_sink(frame, target, topics):
    patch_pyspark()
    unpatch_pyspark()
    no_mode(frame, target.options)
    assert target.reports() == []
    assert len(topics.read(target.topic)) == 2


@pytest.mark.slow
def test_many_threads_at_once_write_every_row(patched, frame, target):
    barrier = threading.Barrier(4)

    def write():
        barrier.wait(60)
        no_mode(frame, target.options)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(write) for _ in range(4)]:
            done.result(120)
    assert target.values() == ["a"] * 4 + ["b"] * 4


def run_app(name, target, tmp_path):
    """What the program prints; in a session without the JAR of Spark's own sink."""
    servers, topic = target.options["kafka.bootstrap.servers"], target.topic
    command = [sys.executable, str(SUPPORT / name), servers, topic, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_under_connect_writers_and_foreach_batch_functions_use_this_sink(target, topics, tmp_path):
    output = run_app("patch_app.py", target, tmp_path)
    assert output.count("is not supported: this sink only appends") == 2
    values = sorted(record.value.decode() for record in topics.read(target.topic))
    assert values == ["a", "b", "batch", "batch", "in-0-a", "in-1-b", "update-a", "update-b"]


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_after_ctrl_c_the_main_thread_writes_on(target, topics, tmp_path):
    run_app("interrupted_app.py", target, tmp_path)
    values = sorted(record.value for record in topics.read(target.topic))
    assert values == [b"a", b"a", b"batch", b"batch"]
