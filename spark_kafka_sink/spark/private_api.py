"""[both] All that the sink knows about Spark's internals, from the sources of PySpark 3.5 to 4.3.

- ``pyspark.worker.main(infile, outfile)`` runs every task, and reads its rows from ``infile``, a
  file of a socket's descriptor.
- Properties of tasks: MicroBatchExecution's query id and batch id.
- A query's checkpoint keeps the number of shuffle partitions.
- The folder of the block manager is in the environment of Python workers.
- Only the main thread has an active session (``SparkSession._jsparkSession``), until Ctrl-C breaks
  its connection to Java (py4j's ``JavaClient._create_new_connection``).
- ``StreamExecution.isInterruptionException`` recognises ``query.stop()`` by an error's text.
- py4j's gateway to the driver's Java process: its signals, and the classes of its exceptions.
- PySpark's writers, classic and Connect: their classes, and how they keep frame and session.
- ``to_arrow_type``: the Arrow types in which Python gets columns.

A next version of Spark needs this file and tests/versions.py.
"""

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import re
import socket
import struct
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import IO, TYPE_CHECKING, Any

import pyspark

from spark_kafka_sink.errors import InvalidOption, KafkaSinkError, RowsIncomplete

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkContext, TaskContext
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.types import DataType, StructType

    from spark_kafka_sink.schemas.formats import ColumnType

#: Spark treats an error with this text as the interruption by ``query.stop()``, so the query ends
#: without an error. It must be short: Spark's regular expression recurses per character.
INTERRUPTION = (
    "py4j.protocol.Py4JJavaError: An error occurred while calling the sink\n"
    ": java.lang.InterruptedException"
)

# --- what this Spark has --------------------------------------------------------------------------

NO_FORMAT = (
    f"PySpark {pyspark.__version__} has no Python data sources, unlike Spark 4.0 and later, and so "
    'no format("kafka-nb"): use foreach_batch'
)

NO_CONTINUOUS_ROWS = (
    "trigger(continuous=...) is not supported: with it, Spark passes no rows to Python sinks"
)


def has_data_sources() -> bool:
    """Whether Spark has Python data sources that get Arrow batches, as the format needs them."""
    try:
        from pyspark.sql.datasource import DataSourceArrowWriter  # noqa: F401
    except ImportError:
        return False
    return True


def require_data_sources() -> None:
    """Raise KafkaSinkError if Spark has none."""
    if not has_data_sources():
        raise KafkaSinkError(NO_FORMAT)


def stream_writer() -> type:
    """The base class with which Spark passes a stream's rows as Arrow batches."""
    from pyspark.sql import datasource

    try:
        return datasource.DataSourceStreamArrowWriter
    except AttributeError:
        # Spark 4.0 passes Arrow batches to any DataSourceArrowWriter, and rows to others.
        bases = (datasource.DataSourceStreamWriter, datasource.DataSourceArrowWriter)
        return type("StreamWriter", bases, {})


def error_condition(error: PySparkException) -> str | None:
    """Spark's name of an error, such as PATH_NOT_FOUND."""
    is_renamed = hasattr(error, "getCondition")
    return error.getCondition() if is_renamed else error.getErrorClass()


def progress_values(progress: StreamingQueryProgress) -> Mapping[str, Any]:
    """A listener's progress as a mapping, which it is itself from Spark 4.0 on."""
    return progress if isinstance(progress, Mapping) else json.loads(progress.json)


# --- the session and its queries ------------------------------------------------------------------


def is_classic(spark: SparkSession) -> bool:
    """Whether the driver is in this process's session, rather than behind Spark Connect."""
    return hasattr(spark, "_jsparkSession")


def activate(spark: SparkSession) -> None:
    """Make a classic session the calling thread's active one; no public call does only this."""
    jvm_class = spark._get_j_spark_session_class(spark._jvm)  # noqa: SLF001
    jvm_class.setActiveSession(spark._jsparkSession)  # noqa: SLF001


#: .spark: the session that the calling thread keeps
_kept = threading.local()


def keep_active(spark: SparkSession) -> None:
    """Make a classic session the active one of this thread's later connections to Java, too.

    Ctrl-C breaks the connection that waits, and the thread of the next one in Java has no active
    session. Does nothing if py4j opens connections in another way than its versions up to 0.10.9.9,
    or if Spark does not pin threads (``PYSPARK_PIN_THREAD=false``).
    """
    client: Any = getattr(spark.sparkContext._gateway, "_gateway_client", None)  # noqa: SLF001
    connect = getattr(client, _CONNECT, None)
    if connect is None:
        return
    _kept.spark = spark
    if _CONNECT not in vars(client):  # or it is ours
        setattr(client, _CONNECT, partial(_connect_and_activate, client, connect))


_CONNECT = "_create_new_connection"


def _connect_and_activate(client: Any, connect: Callable[[], Any]) -> Any:
    """py4j's connection for the calling thread, whose kept session is the active one there."""
    connection = connect()
    spark: Any = getattr(_kept, "spark", None)
    if spark is None or spark.sparkContext._jsc is None:  # noqa: SLF001 - it has been stopped
        return connection
    _kept.spark = None  # if this connection fails now, the next one is left as it is
    try:
        # Not every call needs the session; the one that does says more than this one.
        with suppress(Exception):
            activate(spark)
        # The calls have put the connection among the idle ones; this takes it out again.
        return client._get_connection()  # noqa: SLF001
    finally:
        _kept.spark = spark


@contextmanager
def active(spark: SparkSession) -> Iterator[None]:
    """A classic session as the calling thread's active one, and afterwards the one of before.

    The thread of a query, which calls the functions for foreachBatch, has one with settings of its
    own; Spark Connect has none.
    """
    if not is_classic(spark):
        yield
        return
    jvm_class: Any = spark._get_j_spark_session_class(spark._jvm)  # noqa: SLF001
    before = jvm_class.getActiveSession()
    activate(spark)
    try:
        yield
    finally:
        if before.isDefined():
            jvm_class.setActiveSession(before.get())
        else:
            jvm_class.clearActiveSession()


def interruption(error: Exception, spark: SparkSession) -> InterruptedError | None:
    """What Spark treats as the end of the query that runs here, if its end has raised ``error``.

    ``query.stop()`` interrupts the query's thread and cancels its jobs; either may come first.
    """
    text = str(error).partition("\n\tat ")[0].rpartition("\n: ")[2]
    if text == "java.lang.InterruptedException":
        return InterruptedError(INTERRUPTION)
    run = running_run(spark)
    if run is not None and "cancelled" in text and run in text:
        return InterruptedError(f"{INTERRUPTION}: {text}")
    return None


def running_query_id(context: SparkContext | TaskContext) -> str | None:
    """Spark's id of the streaming query that runs here."""
    query_id: str | None = context.getLocalProperty("sql.streaming.queryId")
    return query_id


def is_in_query(query_id: str | None) -> bool:
    """Whether a function for foreachBatch runs in a query, whose id only classic Spark passes.

    Under Spark Connect, it then runs in a worker of the server, and Spark passes that the address
    of the server in this variable.
    """
    return query_id is not None or "SPARK_CONNECT_LOCAL_URL" in os.environ


def is_remote() -> bool:
    """Whether this process uses Spark Connect, as a client or as a worker of the server."""
    from pyspark.sql.utils import is_remote

    return bool(is_remote())


def pins_threads(spark: SparkSession) -> bool:
    """Whether each thread of Python has one in Java, as it has without PYSPARK_PIN_THREAD=false.

    Java's thread knows the query that runs in it, and whether that was stopped.
    """
    from py4j.clientserver import ClientServer

    return not is_classic(spark) or isinstance(spark.sparkContext._gateway, ClientServer)  # noqa: SLF001


def running_run(spark: SparkSession) -> str | None:
    """A name of the query's run, from one start to its end; None under Spark Connect.

    There, each run has a process of its own.
    """
    return spark.sparkContext.getLocalProperty("spark.jobGroup.id") if is_classic(spark) else None


def running_batch_id(context: TaskContext) -> str | None:
    """The number of the micro-batch that runs here."""
    return context.getLocalProperty("streaming.sql.batchId")


def running_stage(context: TaskContext) -> str:
    """A name of the task's stage, which a restarted query does not have.

    A query's job group is its run; the ids of stages begin again with each application.
    """
    return f"{context.getLocalProperty('spark.jobGroup.id')} {context.stageId()}"


def checkpointed_partitions(spark: SparkSession) -> int:
    """Inside foreachBatch: ``spark.sql.shuffle.partitions`` as it was when the query first started.

    Its checkpoint keeps the number, and Spark shows it in an internal option, for the state of its
    own operators; the public option is the session's. If the internal option is absent, a session
    with another number fails like any other change of it (PartitionsChanged).
    """
    kept = spark.conf.get("spark.sql.streaming.internal.stateStore.partitions", None)
    return int(str(kept or spark.conf.get("spark.sql.shuffle.partitions")))


def application_folder() -> Path | None:
    """The folder of Spark's block manager in a Python worker, on the driver or on an executor.

    Spark creates that folder for the application, removes it at the end, and names it in the
    environment of every Python worker. In other processes that variable may name another folder.
    """
    folder = os.environ.get("SPARK_LOCAL_DIRS", "").partition(",")[0]
    return Path(folder) if folder else None


# --- writers --------------------------------------------------------------------------------------


def writers() -> list[type]:
    """The classes of ``DataFrame.write`` and ``writeStream``, with Connect's if it can be used.

    Since Spark 4.1, these include the one through which a declarative pipeline defines its sinks.
    """
    from pyspark.sql.readwriter import DataFrameWriter
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    classes: list[type] = [DataFrameWriter, DataStreamWriter]
    try:
        from pyspark.sql.connect import readwriter
        from pyspark.sql.connect.streaming import readwriter as stream_readwriter
    except (Exception, SystemExit):  # noqa: BLE001 - whatever the packages that it needs raise
        # In `python -c` PySpark takes itself for its own doctests,
        # and would end the process.
        return classes
    classes += [readwriter.DataFrameWriter, stream_readwriter.DataStreamWriter]
    try:
        from pyspark.pipelines import spark_connect_graph_element_registry as registry
    except ImportError:  # before Spark 4.1
        return classes
    return [*classes, registry.SparkConnectGraphElementRegistry]


def session_of(writer: Any) -> SparkSession:
    """The session of a writer's frame."""
    is_connect_stream = hasattr(writer, "_session")
    session: SparkSession = writer._session if is_connect_stream else writer._spark  # noqa: SLF001
    return session


def frame_of(writer: Any) -> DataFrame:
    """What a DataFrameWriter writes; Connect's has only the plan."""
    frame: Any = writer._df  # noqa: SLF001
    if not is_classic(session_of(writer)):
        from pyspark.sql.connect import dataframe

        connect: Any = dataframe.DataFrame
        make = getattr(connect, "withPlan", connect)  # Spark 3.5 has it
        frame = make(frame, session_of(writer))
    result: DataFrame = frame
    return result


def option_text(value: object) -> str | None:
    """The value of an option as writers pass it on; None: not set."""
    from pyspark.sql.utils import to_str

    return to_str(value)


def is_unknown_format(error: Exception, name: str) -> bool:
    """Whether Spark has not found the format; before it does anything else."""
    text = str(error)
    return "[DATA_SOURCE_NOT_FOUND]" in text and name in text


# --- the types of columns -------------------------------------------------------------------------


def names_of_columns(frame: DataFrame) -> list[str] | None:
    """The names without the types, which PySpark may not know; None under Spark Connect."""
    java_frame: Any = getattr(frame, "_jdf", None)
    return None if java_frame is None else [str(name) for name in java_frame.columns()]


def column_types(schema: StructType, names: Sequence[str]) -> dict[str, ColumnType]:
    """The types of the columns that the schema has; one that Arrow lacks is null in Arrow."""
    import pyarrow as pa
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import to_arrow_type

    from spark_kafka_sink.schemas.formats import ColumnType

    # Spark converts times to the session's zone, whose name does not matter for the schema. PySpark
    # 4.1 names no zone.
    has_zone = "timezone" in inspect.signature(to_arrow_type).parameters
    zone: Any = {"timezone": "UTC"} if has_zone else {}
    types = {}
    for field in schema.fields:
        if field.name not in names:
            continue
        try:
            arrow = to_arrow_type(_replace_char_types(field.dataType), **zone)
        except PySparkTypeError:
            arrow = pa.null()  # no format has such a type either, and says so
        types[field.name] = ColumnType(field.dataType.jsonValue(), arrow)
    return types


def _replace_char_types(data_type: DataType) -> DataType:
    """The type with string for char and varchar, as Spark passes them; PySpark cannot tell."""
    from pyspark.sql import types

    convert = _replace_char_types
    if isinstance(data_type, types.CharType | types.VarcharType):
        return types.StringType()
    if isinstance(data_type, types.ArrayType):
        return types.ArrayType(convert(data_type.elementType), data_type.containsNull)
    if isinstance(data_type, types.MapType):
        key, value = convert(data_type.keyType), convert(data_type.valueType)
        return types.MapType(key, value, data_type.valueContainsNull)
    if isinstance(data_type, types.StructType):
        fields = [(field.name, convert(field.dataType), field.nullable) for field in data_type]
        return types.StructType([types.StructField(*field) for field in fields])
    return data_type


# --- the driver's Java process --------------------------------------------------------------------


def handle_java_signals(
    spark: SparkSession, signals: Sequence[str], handle: Callable[[], object]
) -> None:
    """Call ``handle``, in a thread of py4j, for each of these signals of Spark's Java process.

    By default Java then ends the session at once. Signals reach it with spark-submit, where it is
    the parent process. ``signals``: names such as ``TERM``.
    """
    from pyspark.java_gateway import ensure_callback_server_started

    context: Any = spark.sparkContext
    # As PySpark's own listeners do; it has no types.
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call] # noqa: SLF001
    java: Any = context._jvm.sun.misc  # noqa: SLF001
    handler = _JavaSignalHandler(handle)
    for name in signals:
        java.Signal.handle(java.Signal(name), handler)


class _JavaSignalHandler:
    def __init__(self, handle: Callable[[], object]) -> None:
        self._handle = handle

    def handle(self, _signal: object) -> None:
        self._handle()

    class Java:
        implements = ("sun.misc.SignalHandler",)


def scala_version(spark: SparkSession) -> str:
    """``2.12`` or ``2.13``, which the names of Spark's JARs contain."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    return str(jvm.scala.util.Properties.versionNumberString()).rpartition(".")[0]


def is_java_instance(java_object: Any, class_name: str) -> bool:
    """Whether an object of the driver's Java process, such as py4j's exception, has this class."""
    from py4j.java_gateway import is_instance_of

    gateway = pyspark.SparkContext._gateway  # noqa: SLF001
    return bool(is_instance_of(gateway, java_object, class_name))


# --- a frame's rows on the driver -----------------------------------------------------------------


def is_interrupted(spark: SparkSession) -> bool:
    """Whether ``query.stop()`` has interrupted Java's thread of the query that calls this one."""
    if not is_classic(spark):
        return False
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    return bool(jvm.java.lang.Thread.currentThread().isInterrupted())


def heap_bytes(spark: SparkSession) -> int | None:
    """The memory of the driver's Java process; None under Spark Connect."""
    return _java_heap_bytes() if is_classic(spark) else None


@cache  # a process has one Java process, and every name in the call is a question to it
def _java_heap_bytes() -> int:
    jvm: Any = pyspark.SparkContext._jvm  # noqa: SLF001
    return int(jvm.java.lang.Runtime.getRuntime().maxMemory())


def max_result_bytes(spark: SparkSession) -> int:
    """``spark.driver.maxResultSize`` of a classic session; 0: not bounded."""
    text = spark.sparkContext.getConf().get("spark.driver.maxResultSize", "1g")
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    return int(jvm.org.apache.spark.network.util.JavaUtils.byteStringAsBytes(text))


class FrameRows:
    """The rows of a frame as Arrow batches, in the order in which Spark has computed them.

    Those of a Spark partition arrive in their order, when the last of them is computed. Spark
    computes from the beginning on, in a job of the query of the thread that creates this object.
    Another thread may read, and call Java no more: each such thread costs a connection. Used once.
    """

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame
        self._server: Any = None
        self._has_ended = False
        self._tag = f"kafka-nb-{uuid.uuid4()}"
        if is_classic(frame.sparkSession):
            context = frame.sparkSession.sparkContext
            java_frame: Any = frame._jdf  # noqa: SLF001
            context.addJobTag(self._tag)
            try:
                *connection, self._server = java_frame.collectAsArrowToPython()
            finally:
                context.removeJobTag(self._tag)
            self._file, self._socket = _local_socket(connection)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Also ends when Spark fails: then call ``check_end``. It may raise Spark's error, too."""
        return self._rows_of_connect() if self._server is None else self._rows_of_java()

    def _rows_of_connect(self) -> Iterator[pa.RecordBatch]:
        frame: Any = self._frame
        client = frame.sparkSession.client
        plan = frame._plan  # noqa: SLF001
        observations = [plan.observations] if has_data_sources() else []  # since Spark 4.0
        client.add_tag(self._tag)  # for what this thread begins
        try:
            for part in client.to_table_as_iterator(plan.to_proto(client), *observations):
                if hasattr(part, "to_batches"):  # the first one is the schema
                    yield from part.to_batches()
        except Exception:
            self._has_ended = True
            raise
        finally:
            client.remove_tag(self._tag)
        self._has_ended = True

    def _rows_of_java(self) -> Iterator[pa.RecordBatch]:
        """As PySpark's ArrowCollectSerializer reads them, but each when it arrives."""
        import pyarrow as pa
        from pyspark.errors import PySparkException

        with self._socket, self._file, suppress(pa.ArrowInvalid, struct.error, OSError):
            arrived = 0
            # It takes a connection that is closed for the end of the stream, too.
            with pa.ipc.open_stream(self._file) as batches:
                for batch in batches:
                    arrived += 1
                    yield batch
            # How many batches there were, and in which order the partitions have them; or -1 and
            # the text of an error. Java may write either after an error.
            sent = self._read_int()
            if sent == -1:
                raise PySparkException(self._file.read(self._read_int()).decode())
            # Java fails if the connection is closed before it has written the order, too.
            order = self._file.read(4 * sent)
            self._has_ended = sent == arrived and len(order) == 4 * sent

    def _read_int(self) -> int:
        number: int = struct.unpack(">i", self._file.read(4))[0]
        return number

    def check_end(self) -> None:
        """Raise Spark's error if the iteration has ended before the last row."""
        if self._server is None:
            return
        self._raise_java_error()
        if not self._has_ended:
            raise ConnectionError("Spark has not passed all rows")

    def awaits_lost_results(self) -> bool:
        """Whether tasks have ended, no other one runs, and Spark has not handled their results.

        It never does if its thread that fetches results has run out of memory. Called by the thread
        that has created this object.
        """
        if self._server is None:
            return False
        context: Any = self._frame.sparkSession.sparkContext
        # To the status tracker, a task runs until its result is handled; to the scheduler, it has
        # ended before that.
        scala = context._jsc.sc()  # noqa: SLF001
        counts = scala.taskScheduler().runningTasksByExecutors().valuesIterator()
        while counts.hasNext():
            if counts.next():
                return False
        # Other queries may have results that are just being handled.
        tracker = context.statusTracker()
        jobs = map(tracker.getJobInfo, scala.statusTracker().getJobIdsForTag(self._tag))
        ids = {stage for job in jobs if job is not None for stage in job.stageIds}
        stages = map(tracker.getStageInfo, ids)
        return any(stage is not None and stage.numActiveTasks for stage in stages)

    def _raise_java_error(self) -> None:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException
        from pyspark.errors.exceptions.captured import unwrap_spark_exception

        try:
            with unwrap_spark_exception():
                self._server.getResult()
        except Py4JJavaError as error:
            # Without py4j's words and Java's frames: in a long text with both, Spark's regular
            # expression for interruptions overflows the stack of the query's thread.
            lines = re.findall(r"^(?:: |Caused by: )(.*)", str(error), re.MULTILINE)
            raise PySparkException("\n".join(lines)) from None

    def stop(self) -> None:
        """Let Spark compute no more rows, and the iteration fail, unless it has ended."""
        if self._has_ended:
            return
        if self._server is None:
            with suppress(Exception):  # the error that ends the micro-batch says more
                self._frame.sparkSession.interruptTag(self._tag)
            return
        with suppress(Exception):  # the session may be stopped
            self._frame.sparkSession.sparkContext.cancelJobsWithTag(self._tag)
        # Spark may just be about to begin the job.
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)


def _local_socket(connection: Sequence[Any]) -> tuple[IO[bytes], socket.socket]:
    name = "pyspark.util" if has_data_sources() else "pyspark.java_gateway"
    module: Any = importlib.import_module(name)
    file, connected = module.local_connect_and_auth(*connection)
    connected.settimeout(None)  # Spark may compute for a long time
    return file, connected


# --- the end of a task's rows ---------------------------------------------------------------------

_WORKER, _MAIN, _ROWS = "pyspark.worker", "main", "infile"
# A worker that no daemon has forked is a program of its own.
_WORKER_NAMES = (_WORKER, "__main__")


def check_worker() -> None:
    """Raise InvalidOption if tasks of this PySpark could not see where rows end; on the driver."""
    spec = importlib.util.find_spec(_WORKER)
    # Loaders of folders and of zip files have this method, but share no class.
    get_code = getattr(spec and spec.loader, "get_code", None)
    code = None if get_code is None else get_code(_WORKER)
    constants = () if code is None else code.co_consts
    mains = [c for c in constants if isinstance(c, CodeType) and c.co_name == _MAIN]
    if not any(_ROWS in main.co_varnames[: main.co_argcount] for main in mains):
        raise _unsupported()


def rows_socket() -> socket.socket:
    """The socket that brings a task's rows; the caller closes it.

    Raises InvalidOption if this PySpark's workers have none.
    """
    frame: FrameType | None = sys._getframe()  # noqa: SLF001 - no public call has it
    while frame is not None:
        is_main = frame.f_code.co_name == _MAIN and frame.f_globals["__name__"] in _WORKER_NAMES
        if is_main and _ROWS in frame.f_locals:
            try:
                sparks = socket.socket(fileno=frame.f_locals[_ROWS].fileno())
            except OSError as error:
                # Without the daemon, the file is a BufferedRWPair, which shows no descriptor.
                raise _unsupported() from error
            try:
                return sparks.dup()  # closing it does not close Spark's
            finally:
                sparks.detach()
        frame = frame.f_back
    raise _unsupported()


def require_end_of_rows() -> None:
    """Raise RowsIncomplete unless Spark has marked the end of the rows; after the last row.

    Rows come as an Arrow stream. If the query fails or is stopped, Spark closes the socket in the
    middle of it; pyarrow treats that as the end of the stream, and so does Spark's
    ``ArrowStreamSerializer``. At the marker, pyarrow does not read on, so the socket is still open.
    """
    with rows_socket() as rows:
        try:
            is_closed = rows.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
        except BlockingIOError:
            is_closed = False
        except ConnectionError:
            is_closed = True
    if is_closed:
        raise rows_incomplete()


def rows_incomplete() -> RowsIncomplete:
    return RowsIncomplete(
        "Spark ended the task before it had passed all rows: the query was stopped, or another "
        "part of it has failed. Look for that error; this one only says that nothing was committed"
    )


def marks_any_end(spark: SparkSession) -> bool:
    """Whether Spark also marks the end of the rows of a task that it interrupts.

    Spark 3.5 does: a thread of its own writes the rows (WriterThread), and takes a task that is
    interrupted for one without more rows (ContextAwareIterator).
    """
    if not is_classic(spark):
        return not has_data_sources()  # nothing else tells that Spark from later ones
    from py4j.protocol import Py4JJavaError

    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    try:
        jvm.java.lang.Class.forName("org.apache.spark.api.python.BasePythonRunner$WriterThread")
    except Py4JJavaError:
        return False
    return True


def _unsupported() -> InvalidOption:
    return InvalidOption(
        "delivery.guarantee=exactly-once is not supported with this PySpark "
        f"({pyspark.__version__}): its workers do not show whether Spark has passed all rows of a "
        "task. Use PySpark 3.5 to 4.3, remove spark.python.use.daemon=false, or set "
        "delivery.guarantee=at-least-once"
    )
