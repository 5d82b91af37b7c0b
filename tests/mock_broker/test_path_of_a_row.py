"""How many files a row enters on its way from Spark's Arrow batch to librdkafka."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest
from mock_cluster import MockCluster

import spark_kafka_sink
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.spark.task import write_partition

PACKAGE = Path(spark_kafka_sink.__file__).parent


def file_of(frame):
    """The file below the package that a frame runs in, or that has called it."""
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if PACKAGE in path.parents:
            return path.relative_to(PACKAGE).with_suffix("").as_posix()
        frame = frame.f_back
    return None


class Profiler:
    """Notes each call into another file, until the records are passed to librdkafka."""

    def __init__(self):
        self.calls = []

    def __call__(self, frame, event, _argument):
        if event != "call":
            return
        file = file_of(frame)
        if file is not None and file != file_of(frame.f_back):
            self.calls.append(f"{file}.{frame.f_code.co_name}")
        if frame.f_code is Client._enqueue_groups.__code__:
            sys.setprofile(None)


@pytest.fixture
def calls():
    """The calls for a row of a warm task, with a topic that is known."""
    profiler = Profiler()

    def rows(is_profiled):
        if is_profiled:
            sys.setprofile(profiler)
        yield pa.record_batch({"value": ["v"]})

    with MockCluster() as cluster:
        options = parse({"kafka.bootstrap.servers": cluster.bootstrap_servers, "topic": "t"})
        try:
            for is_profiled in (False, True):
                write_partition(rows(is_profiled), options)
        finally:
            sys.setprofile(None)
    print("\n".join(profiler.calls))
    return profiler.calls


def test_a_row_enters_at_most_20_files(calls):
    assert len({call.partition(".")[0] for call in calls}) <= 20


def test_a_send_has_access_once_and_visits_metadata_at_most_four_times(calls):
    send = calls[calls.index("producer/producer.send") :]
    assert send.count("producer/lifecycle.acquire") == 1
    assert 0 < len([call for call in send if call.startswith("producer/topic_metadata.")]) <= 4
