from __future__ import annotations

import contextlib
import importlib.util
import os
import select
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyspark
import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import types
from spark_worker import connected, run_as_worker

from spark_kafka_sink.errors import InvalidOption, RowsIncomplete
from spark_kafka_sink.spark import private_api
from spark_kafka_sink.spark.private_api import (
    FrameRows,
    check_worker,
    column_types,
    error_condition,
    has_data_sources,
    is_in_query,
    keep_active,
    progress_values,
    require_end_of_rows,
    rows_socket,
    stream_writer,
)

#: of a stream of Arrow batches
END = b"\xff\xff\xff\xff" + bytes(4)
BATCHES = [pa.record_batch({"value": [str(n)]}) for n in range(3)]


def read(rows):
    """As PySpark's ArrowStreamSerializer reads them."""
    return list(pa.ipc.open_stream(rows))


def send(sparks_end, batches, *, mark):
    """As Spark sends rows, with or without the marker of their end."""
    messages = [BATCHES[0].schema.serialize(), *(batch.serialize() for batch in batches)]
    sparks_end.sendall(b"".join(m.to_pybytes() for m in messages) + (END if mark else b""))


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("following", [b"", b"\xff\xff\xff\xfc"], ids=["nothing", "more"])
def test_rows_that_end_with_the_marker_are_complete(number, following):
    with connected() as (spark, rows):
        send(spark, BATCHES[:number], mark=True)
        spark.sendall(following)
        assert len(read(rows)) == number
        run_as_worker(require_end_of_rows, rows)
        assert rows.read(len(following)) == following


@pytest.mark.parametrize("number", range(4))
def test_rows_that_end_with_the_connection_are_not(number):
    with connected() as (spark, rows):
        send(spark, BATCHES[:number], mark=False)
        spark.shutdown(socket.SHUT_WR)
        # pyarrow does not see the difference.
        assert len(read(rows)) == number
        with pytest.raises(RowsIncomplete, match="nothing was committed"):
            run_as_worker(require_end_of_rows, rows)


def test_a_worker_without_daemon_says_what_to_leave_out():
    rejected = pytest.raises(InvalidOption, match=r"remove spark\.python\.use\.daemon")
    with connected("rwb") as (_, rows), rejected:
        run_as_worker(require_end_of_rows, rows)


def test_a_connection_that_is_reset_after_the_last_row_is_no_end():
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname()) as worker:
        spark, _ = server.accept()
        with worker.makefile("rb") as rows:
            worker.sendall(b"what Spark does not read any more")
            send(spark, BATCHES, mark=True)
            assert len(read(rows)) == 3
            spark.close()
            assert select.select([worker], [], [], 30)[0]
            with pytest.raises(RowsIncomplete):
                run_as_worker(require_end_of_rows, rows)


def test_a_thread_that_reads_ahead_makes_no_difference():
    with connected() as (spark, rows):
        send(spark, BATCHES, mark=False)
        spark.shutdown(socket.SHUT_WR)
        reader = threading.Thread(target=read, args=(rows,))
        reader.start()
        reader.join()
        with pytest.raises(RowsIncomplete):
            run_as_worker(require_end_of_rows, rows)


def test_looking_leaves_sparks_connection_open():
    with connected() as (spark, rows):
        run_as_worker(lambda: rows_socket().close(), rows)
        spark.sendall(b"row")
        assert rows.read(3) == b"row"


def test_where_the_rows_come_from_elsewhere_exactly_once_is_rejected(tmp_path):
    with pytest.raises(InvalidOption, match="not supported with this PySpark"):
        rows_socket()
    (tmp_path / "rows").write_bytes(b"")
    with (tmp_path / "rows").open("rb") as file:
        with pytest.raises(InvalidOption, match="not supported with this PySpark"):
            run_as_worker(rows_socket, file)
        assert len(list(descriptors(file))) == 1


def descriptors(file):
    """The open descriptors of a file."""
    for path in Path("/dev/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the listing is closed
            if os.path.sameopenfile(int(path.name), file.fileno()):
                yield path


def test_the_installed_pyspark_is_supported():
    check_worker()


@pytest.mark.parametrize("source", ["", "def main(rows, out): ...", "def run(infile): ..."])
def test_a_pyspark_with_another_worker_is_rejected_on_the_driver(monkeypatch, tmp_path, source):
    (tmp_path / "other_worker.py").write_text(source)
    spec = importlib.util.spec_from_file_location("pyspark.worker", tmp_path / "other_worker.py")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: spec)
    with pytest.raises(InvalidOption, match=r"delivery\.guarantee=at-least-once"):
        check_worker()


@pytest.mark.skipif(not has_data_sources(), reason="this Spark has no Python data sources")
def test_without_arrow_writers_for_streams_the_writer_is_one_for_both(monkeypatch):
    """Spark 4.0 looks for the one class to accept the writer, for the other to pass Arrow."""
    from pyspark.sql import datasource

    monkeypatch.delattr(datasource, "DataSourceStreamArrowWriter", raising=False)
    bases = datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter
    assert all(issubclass(stream_writer(), base) for base in bases)


def test_a_worker_of_spark_connect_runs_a_query(monkeypatch):
    """Connect passes no id of the query; every PySpark runs this module, and reads the variable."""
    assert is_in_query("an-id")
    assert not is_in_query(None)
    worker = "sql/connect/streaming/worker/foreach_batch_worker.py"
    source = Path(pyspark.__file__).parent.joinpath(worker).read_text()
    assert 'os.environ["SPARK_CONNECT_LOCAL_URL"]' in source
    monkeypatch.setenv("SPARK_CONNECT_LOCAL_URL", "sc://localhost")
    assert is_in_query(None)


@pytest.mark.parametrize("method", ["getCondition", "getErrorClass"])
def test_the_method_for_an_errors_condition_has_had_two_names(method):
    error = SimpleNamespace(**{method: lambda: "PATH_NOT_FOUND"})
    assert error_condition(error) == "PATH_NOT_FOUND"


def test_the_progress_of_any_spark_is_a_mapping():
    assert progress_values({"batchId": 1}) == {"batchId": 1}
    assert progress_values(SimpleNamespace(json='{"batchId": 1}')) == {"batchId": 1}


def test_char_and_varchar_are_strings_at_every_depth():
    """With spark.sql.preserveCharVarcharTypeInfo=true; PySpark has no Arrow types for them."""

    def column(text):
        inner = types.StructType().add("c", text).add("n", types.LongType(), nullable=False)
        inner.add("list", types.ArrayType(text, containsNull=False))
        return inner.add("map", types.MapType(text, types.ArrayType(text), False))

    def arrow(*kinds):
        schema = types.StructType()
        for i, kind in enumerate(kinds):
            schema.add(f"{i}", kind, nullable=True)
        return [kind.arrow for kind in column_types(schema, schema.names).values()]

    (text,) = arrow(column(types.StringType()))
    assert arrow(column(types.CharType(3)), column(types.VarcharType(3))) == [text, text]
    assert arrow(types.CharType(3), types.VarcharType(3)) == [pa.string(), pa.string()]


def test_times_have_a_zone_in_arrow_and_times_without_one_have_none():
    schema = (
        types.StructType().add("at", types.TimestampType()).add("ntz", types.TimestampNTZType())
    )
    kinds = {name: kind.arrow for name, kind in column_types(schema, schema.names).items()}
    assert kinds == {"at": pa.timestamp("us", "UTC"), "ntz": pa.timestamp("us")}


class Java:
    """py4j's client with connections that are only counted, and the session's side in Java."""

    def __init__(self):
        self.connections = []
        self.idle = []
        self.active = {}

    def _create_new_connection(self):
        self.connections.append(len(self.connections))
        return self.connections[-1]

    def _get_connection(self):
        return self.idle.pop() if self.idle else self.connections[-1]

    def setActiveSession(self, session):  # noqa: N802 - Spark's name
        self.idle.append(self.connections[-1])
        self.active[self.connections[-1]] = session


def session_of(client, name="session"):
    context = SimpleNamespace(_gateway=SimpleNamespace(_gateway_client=client), _jsc=object())
    return SimpleNamespace(
        sparkContext=context,
        _jvm=None,
        _jsparkSession=name,
        _get_j_spark_session_class=lambda _jvm: client,
    )


def test_a_threads_later_connections_have_its_session_as_the_active_one():
    java = Java()
    keep_active(session_of(java, "first"))
    keep_active(session_of(java, "second"))
    assert [java._create_new_connection() for _ in range(2)] == [0, 1]
    assert java.active == {0: "second", 1: "second"}
    assert java.idle == []
    other = threading.Thread(target=java._create_new_connection)
    other.start()
    other.join(10)
    assert java.connections == [0, 1, 2]
    assert 2 not in java.active


def test_a_stopped_session_is_not_activated_again():
    java = Java()
    spark = session_of(java)
    keep_active(spark)
    spark.sparkContext._jsc = None
    assert java._create_new_connection() == 0
    assert java.active == {}


def test_a_connection_without_the_session_is_better_than_none():
    java = Java()
    spark = session_of(java)
    keep_active(spark)
    spark._get_j_spark_session_class = None  # as if Java had gone
    assert java._create_new_connection() == 0


def test_another_py4j_is_left_as_it_is():
    keep_active(session_of(object()))
    keep_active(session_of(None))


# --- a frame's rows on the driver -----------------------------------------------------------------


@pytest.fixture
def rows_from_java(monkeypatch):
    """FrameRows of a connection on which Java sends batches and then these bytes, and closes it.

    ``error``: raised by the call that waits for the end of Spark's job.
    """

    def make(after, batches=BATCHES, error=None, java_closes=True):
        def get_result():
            if error is not None:
                raise error

        ours, javas = socket.socketpair()
        messages = [BATCHES[0].schema.serialize(), *(batch.serialize() for batch in batches)]
        javas.sendall(b"".join(message.to_pybytes() for message in messages) + after)
        make.javas = javas
        if java_closes:
            javas.close()
        monkeypatch.setattr(SparkContext, "_gateway", object())  # PySpark wants to see one
        monkeypatch.setattr(private_api, "_local_socket", lambda _: (ours.makefile("rb"), ours))
        context = SimpleNamespace(
            addJobTag=lambda _: None, removeJobTag=lambda _: None, cancelJobsWithTag=lambda _: None
        )
        session = SimpleNamespace(_jsparkSession=None, sparkContext=context)
        answer = (1, "secret", SimpleNamespace(getResult=get_result))
        java_frame = SimpleNamespace(collectAsArrowToPython=lambda: answer)
        return FrameRows(SimpleNamespace(sparkSession=session, _jdf=java_frame))

    return make


@pytest.mark.parametrize("number", range(4))
def test_rows_of_a_frame_end_with_how_many_batches_there_were(rows_from_java, number):
    order = struct.pack(f">{number + 1}i", number, *range(number))
    rows = rows_from_java(END + order, BATCHES[:number])
    assert list(rows) == BATCHES[:number]
    rows.check_end()


@pytest.mark.parametrize(
    ("running", "active", "expected"), [(0, 1, True), (0, 0, False), (1, 1, False)]
)
def test_only_results_of_its_own_tasks_are_lost(rows_from_java, running, active, expected):
    rows = rows_from_java(b"")
    left = [running, 0]
    counts = SimpleNamespace(hasNext=lambda: bool(left), next=left.pop)
    others, own = SimpleNamespace(numActiveTasks=1), SimpleNamespace(numActiveTasks=active)
    tracker = SimpleNamespace(
        getActiveStageIds=lambda: [1, 2],
        getJobInfo={20: SimpleNamespace(stageIds=[2, 3])}.get,
        getStageInfo={1: others, 2: own}.get,
    )
    scala = SimpleNamespace(
        taskScheduler=lambda: SimpleNamespace(
            runningTasksByExecutors=lambda: SimpleNamespace(valuesIterator=lambda: counts)
        ),
        statusTracker=lambda: SimpleNamespace(getJobIdsForTag={rows._tag: [20, 21]}.get),
    )
    context = rows._frame.sparkSession.sparkContext
    context._jsc, context.statusTracker = SimpleNamespace(sc=lambda: scala), lambda: tracker
    assert rows.awaits_lost_results() is expected
    list(rows)  # closes the connection


def test_the_connection_is_open_until_java_has_written_the_order_of_the_batches(rows_from_java):
    rows = rows_from_java(END + struct.pack(">i", 3), java_closes=False)

    def write_later():
        with rows_from_java.javas as javas:
            time.sleep(0.2)
            javas.sendall(struct.pack(">3i", 0, 1, 2))

    with ThreadPoolExecutor() as pool:
        writing = pool.submit(write_later)
        assert list(rows) == BATCHES
        writing.result()
    rows.check_end()


@pytest.mark.parametrize(
    "after",
    [
        b"",
        END,
        END + b"\0\0\0",
        END + struct.pack(">3i", 2, 0, 1),
        END + struct.pack(">5i", 4, 0, 1, 2, 3),
        END + struct.pack(">2i", 3, 0),
    ],
    ids=["cut", "no number", "half a number", "a batch too many", "a batch lost", "half the order"],
)
def test_rows_of_a_frame_that_end_otherwise_are_not_all(rows_from_java, after):
    rows = rows_from_java(after)
    assert list(rows) == BATCHES
    with pytest.raises(ConnectionError, match="has not passed all rows"):
        rows.check_end()


def test_an_error_that_java_writes_behind_the_rows_is_raised(rows_from_java):
    text = b"a row cannot be computed"
    rows = rows_from_java(END + struct.pack(">2i", -1, len(text)) + text)
    with pytest.raises(PySparkException, match="a row cannot be computed"):
        list(rows)


def test_java_may_end_the_rows_as_if_they_were_complete_and_then_name_an_error(rows_from_java):
    rows = rows_from_java(END + struct.pack(">4i", 3, 0, 1, 2), error=RuntimeError("out of disk"))
    assert list(rows) == BATCHES
    with pytest.raises(RuntimeError, match="out of disk"):
        rows.check_end()
