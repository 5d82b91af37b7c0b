"""A task without Spark: Arrow batches in, a report out; and the cache behind it."""

from __future__ import annotations

import pickle
import time
import weakref

import pyarrow as pa
import pytest
from another_python import run_python
from mock_cluster import PRODUCE
from mock_reader import last_offset, read
from serializing import forget_schemas
from stub_registry import running_stub

from spark_kafka_sink.config.option_table import TOPIC
from spark_kafka_sink.errors import DeliveryFailed, InvalidRecord
from spark_kafka_sink.librdkafka.error_codes import ErrorCode
from spark_kafka_sink.producer import cache as producer_cache
from spark_kafka_sink.producer.cache import process_cache
from spark_kafka_sink.schemas.formats import ColumnType
from spark_kafka_sink.schemas.preparation import prepare
from spark_kafka_sink.spark.task import write_partition


def batch(*values, topic=None):
    columns = {"value": pa.array(values, pa.string())}
    if topic is not None:
        columns["topic"] = pa.array(topic, pa.string())
    return pa.record_batch(columns)


@pytest.fixture
def topicless_options(options):
    return options().replace_value(TOPIC, None)


def test_all_batches_of_a_partition_arrive_in_order(options, cluster):
    batches = [batch("a", "b"), batch(), batch("c")]
    report = write_partition(batches, options())
    assert report.sent_records == {"t": 3}
    assert [m.value() for m in read(cluster.bootstrap_servers, "t", 3)] == [b"a", b"b", b"c"]


def test_a_task_that_never_waits_for_room_still_waits_for_metadata(options, cluster):
    cluster.set_round_trip(1, 200)
    cold = options(kafka_max_block_ms="0", kafka_client_id="cold")
    assert write_partition([batch("a")], cold).sent_records == {"t": 1}


def test_a_record_as_large_as_the_smallest_buffer_is_sent(options, cluster):
    largest = 1024 * 1024  # and the largest request, by default
    least = options(kafka_buffer_memory=str(largest), kafka_client_id="cold")
    cluster.set_round_trip(1, 200)  # so that it is buffered at first
    assert write_partition([batch("v" * (largest - 100))], least).sent_records == {"t": 1}


def test_a_broker_that_throttles_with_an_error_fails_only_this_attempt(options, cluster):
    """As Event Hubs does; a dead letter would lose a good record."""
    made = options(dead_letter_topic="dead", on_record_error="dead-letter")
    cluster.push_errors(PRODUCE, [44])
    with pytest.raises(DeliveryFailed, match=r"POLICY_VIOLATION.*throttle") as failed:
        write_partition([batch("a")], made)
    assert not failed.value.is_permanent
    report = write_partition([batch("a")], made)
    assert (report.sent_records, report.dead_letters) == ({"t": 1}, {})


@pytest.mark.parametrize("code", [ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD])
def test_brokers_that_do_not_say_which_record_is_bad_cost_no_good_one(options, cluster, code):
    """As Redpanda's checks of schema ids do not."""
    cluster.create_topic("dead")
    made = options(on_record_error="dead-letter", dead_letter_topic="dead", kafka_linger_ms="200")
    # all four, the first two, the last two, and both of these
    cluster.push_errors(PRODUCE, [code, 0, code, 0, code])
    report = write_partition([batch("a", "b", "c", "d")], made)
    assert report.dead_letters == {("t", code.name): 1}
    assert [m.value() for m in read(cluster.bootstrap_servers, "t", 3)] == [b"a", b"b", b"c"]
    assert [m.value() for m in read(cluster.bootstrap_servers, "dead", 1)] == [b"d"]


def test_an_empty_partition_reports_nothing(options):
    assert write_partition([], options()).total_sent == 0


def test_metadata_is_requested_before_the_first_batch(options, monkeypatch):
    order = []
    original = producer_cache.NonBlockingProducer

    class Watched(original):
        def prefetch(self, topics):
            order.append(topics := list(topics))
            super().prefetch(topics)

    def batches():
        order.append("batch")
        yield batch("a")

    monkeypatch.setattr(producer_cache, "NonBlockingProducer", Watched)
    write_partition(batches(), options(kafka_client_id="watched"))
    assert order == [["t"], "batch", ["t"], []]


def test_the_new_topics_of_a_batch_are_requested_together(topicless_options, asked_topics):
    batches = [batch("a", "b", topic=["t", "u"]), batch("c", "d", "e", topic=["v", "t", "w"])]
    report = write_partition(batches, topicless_options)
    assert report.sent_records == {"t": 2, "u": 1, "v": 1, "w": 1}
    assert asked_topics[:2] == [["t", "u"], ["v", "w"]]


def test_a_bad_row_stops_the_task_before_anything_of_its_batch_is_sent(topicless_options, cluster):
    batches = [batch("a", topic=["t"]), batch("b", "c", topic=["t", None])]
    with pytest.raises(InvalidRecord, match=r"row 2: null topic"):
        write_partition(batches, topicless_options)
    write_partition([batch("end", topic=["t"])], topicless_options)
    written = last_offset(cluster.bootstrap_servers, "t")
    values = [m.value() for m in read(cluster.bootstrap_servers, "t", written)]
    assert values in ([b"a", b"end"], [b"end"])


@pytest.mark.parametrize("column", ["timestamp", "at", None])
def test_records_have_the_time_of_the_column_that_the_option_names(options, cluster, column):
    milliseconds = {"timestamp": [3_000, None, 2_000], "at": [50_000, 70_000, -1]}
    times = {name: pa.array(ms, pa.timestamp("ms")) for name, ms in milliseconds.items()}
    before_ms = time.time() * 1000 - 1
    rows = pa.record_batch({"value": ["a", "b", "c"], **times})
    report = write_partition([rows], options(**({"timestamp_column": column} if column else {})))
    written = [m.timestamp()[1] for m in read(cluster.bootstrap_servers, "t", 3)]
    expected = [ms if ms and ms > 0 else None for ms in milliseconds.get(column, [None] * 3)]
    for ms, expected_ms in zip(written, expected, strict=True):
        assert ms == expected_ms or (expected_ms is None and before_ms <= ms <= time.time() * 1000)
    assert report.oldest_timestamp_ms == min(filter(None, expected), default=None)


def test_a_schema_is_asked_for_once_by_the_workers_of_an_executor(options, tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    with running_stub() as stub:
        made = options(value_format="avro", schema_registry_url=stub.url)
        of_column = made.replace_value(TOPIC, None)
        types = {"value": ColumnType("string", pa.string())}
        prepared = pickle.dumps(prepare(of_column, types, tmp_path / "of the driver's machine"))
        for _ in range(2):
            forget_schemas(monkeypatch)  # as in another worker
            write_partition([batch("a", topic=["t"])], of_column, pickle.loads(prepared))
        assert len(stub.requests) == 1


def test_dead_letters_of_rows_wait_for_room_in_the_buffer(options, cluster):
    cluster.set_round_trip(1, 100)
    alive = most = 0

    def ended():
        nonlocal alive
        alive -= 1

    def batches():
        nonlocal alive, most
        for _ in range(40):
            yield (bad := batch("x" * 300_000, topic=[None]))
            weakref.finalize(bad, ended)
            del bad
            alive += 1
            most = max(most, alive)

    dead_lettered = {"on_record_error": "dead-letter", "dead_letter_topic": "u"}
    small = options(kafka_buffer_memory=str(2**20), **dead_lettered)
    report = write_partition(batches(), small.replace_value(TOPIC, None))
    assert report.sent_records == {"u": 40}
    assert report.dead_letters == {("", "NULL_TOPIC"): 40}
    assert most < 10


def test_a_dead_letter_that_is_larger_than_the_buffer_names_its_option(options):
    dead_lettered = {"on_record_error": "dead-letter", "dead_letter_topic": "u"}
    small = options(kafka_buffer_memory=str(2**20), **dead_lettered)
    said = r"dead letter of .*and kafka\.buffer\.memory is 1048576\. .* or kafka\.buffer\.memory if"
    with pytest.raises(DeliveryFailed, match=said) as raised:
        write_partition([batch("x" * 2**20)], small)
    assert "Broker: " not in str(raised.value)


def test_dead_letters_of_rows_need_no_room_beside_the_records_of_their_batch(options, cluster):
    cluster.set_round_trip(1, 100)
    topics = ["t", None, "no topic", "t", "nor this", None]
    dead_lettered = {"on_record_error": "dead-letter", "dead_letter_topic": "u"}
    # One batch is larger than the buffer, and no send may wait for room.
    small = options(kafka_buffer_memory=str(2**20), kafka_max_block_ms="0", **dead_lettered)
    report = write_partition(
        [batch(*["x" * 500_000] * 6, topic=topics)], small.replace_value(TOPIC, None)
    )
    assert report.sent_records == {"t": 2, "u": 4}
    assert 6 * 500_000 < report.buffer_peak_bytes < 6 * 500_000 + 50_000


def test_tasks_with_the_same_options_use_the_same_producer_one_after_another(options):
    with process_cache().borrow(options()) as first:
        pass
    # The topic and the batch id belong to the task, not to the producer.
    with process_cache().borrow(options(topic="u", batch_id="7")) as again:
        assert again.producer is first.producer
    with process_cache().borrow(options(kafka_client_id="other")) as other:
        assert other.producer is not first.producer


def test_of_two_producers_in_use_at_the_same_time_one_is_kept(options):
    with process_cache().borrow(options()) as first, process_cache().borrow(options()) as second:
        assert second.producer is not first.producer
    with process_cache().borrow(options()) as again:
        assert again.producer is second.producer
    assert not first.producer.is_idle


def test_a_failed_tasks_producer_is_never_used_again(options, cluster):
    cluster.push_errors(PRODUCE, [ErrorCode.TOPIC_AUTHORIZATION_FAILED])
    with process_cache().borrow(options()) as first:
        pass
    with pytest.raises(DeliveryFailed):
        write_partition([batch("a")], options())
    with process_cache().borrow(options()) as second:
        assert second.producer is not first.producer


REPORTING = """
import pickle, sys
from array import array
import pyarrow as pa
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.spark.map_in_arrow import WriteToKafka
already = set(sys.modules)  # PySpark 4.1 itself loads much
task = WriteToKafka(parse({"kafka.bootstrap.servers": sys.argv[1], "topic": "t"}), None)
# pa.array would load pandas itself.
buffers = [None, pa.py_buffer(array("i", [0, 1, 2])), pa.py_buffer(b"ab")]
(row,) = task([pa.record_batch([pa.Array.from_buffers(pa.string(), 2, buffers)], ["value"])])
assert "pandas" not in set(sys.modules) - already
row.validate(full=True)
report = pickle.loads(row.column("report")[0].as_py())
assert (row.num_rows, dict(report.sent_records), report.sent_bytes) == (1, {"t": 2}, 2)
"""


def test_a_task_of_foreach_batch_returns_one_row_with_its_report_and_loads_no_pandas(cluster):
    run_python("-c", REPORTING, cluster.bootstrap_servers)


FORKING = """
import os, sys
import pyarrow as pa
from spark_kafka_sink.producer import cache as producer_cache
from spark_kafka_sink.config.options import parse
from spark_kafka_sink.spark.task import write_partition

options = parse({"kafka.bootstrap.servers": sys.argv[1], "topic": "t"})
write_partition([pa.record_batch({"value": pa.array(["from the parent"])})], options)
child = os.fork()
if child == 0:
    write_partition([pa.record_batch({"value": pa.array(["from the child"])})], options)
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
write_partition([pa.record_batch({"value": pa.array(["from the parent again"])})], options)
"""


def test_a_forked_worker_makes_its_own_producer(cluster):
    # In a process of its own: a fork copies the locks that other tests' threads may hold.
    run_python("-c", FORKING, cluster.bootstrap_servers)
    values = [m.value() for m in read(cluster.bootstrap_servers, "t", 3)]
    assert values == [b"from the parent", b"from the child", b"from the parent again"]
