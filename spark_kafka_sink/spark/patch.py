"""[driver] patch_pyspark: sends what PySpark's writers write with format("kafka") to this sink."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.config.option import PREFIX
from spark_kafka_sink.config.options import asks_for_driver
from spark_kafka_sink.config.registry_options import REGISTRY_PREFIX
from spark_kafka_sink.errors import InvalidOption, UnsupportedSaveMode
from spark_kafka_sink.secret import Secret
from spark_kafka_sink.spark import private_api
from spark_kafka_sink.spark.datasource import FORMAT, ensure_registered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMATS = frozenset({"kafka", FORMAT})
# Spark's own sink accepts them all and appends; errorifexists is what no mode means.
_APPENDING = frozenset({"append", "error", "errorifexists", "default"})
_REQUEST = "_kafka_nb_request"
_CHECKPOINT = "checkpointLocation"
_CHECKPOINT_FOLDER = "spark.sql.streaming.checkpointLocation"  # with a folder in it for each query
_PRINTED = (PREFIX, REGISTRY_PREFIX)  # some of these are secrets that Spark does not recognise

_lock = threading.Lock()  # guards _originals, and that no other thread sees half a patch
# what unpatch_pyspark puts back
_originals: dict[tuple[type, str], Callable[..., Any]] = {}


def patch_pyspark() -> None:
    """Send what this process writes with ``format("kafka")`` or ``"kafka-nb"`` to this sink.

    It changes ``DataFrame.write`` and ``DataFrame.writeStream``, classic and Connect, in every
    thread: a batch without a mode appends; a stream in update mode uses ``foreach_batch``, and so
    does every write with ``send.from=driver`` or before Spark 4.0. Sinks that a declarative
    pipeline defines after the call go to this sink, too. ``mode("overwrite")`` and
    ``mode("ignore")`` raise UnsupportedSaveMode. docs/patch.md says what stays as it is.

    Call it before a program creates its writers; calling it twice is harmless. Under Spark Connect,
    it also patches the server's process that runs functions for foreachBatch.
    """
    with _lock:
        if _originals:
            return
        for writer in private_api.writers():
            for name in _REPLACEMENTS.keys() & vars(writer).keys():
                original = vars(writer)[name]
                _originals[writer, name] = original
                setattr(writer, name, wraps(original)(_REPLACEMENTS[name](original)))


def unpatch_pyspark() -> None:
    """Undo ``patch_pyspark``. Running queries go on."""
    with _lock:
        while _originals:
            (writer, name), original = _originals.popitem()
            setattr(writer, name, original)


# --- what a program has set on a writer -----------------------------------------------------------


@dataclass
class _Request:
    """What the writer's methods were called with; only Spark's Java process knows it otherwise."""

    format: str | None = None
    mode: str | None = None  # of a stream, its output mode
    is_continuous: bool = False
    options: dict[str, str] = field(default_factory=dict)  # the names in the case they were typed

    def set_format(self, source: str) -> None:
        self.format = source

    def set_save_mode(self, saveMode: str | None) -> None:  # noqa: N803 - PySpark's name
        self.mode = self.mode if saveMode is None else saveMode

    def set_output_mode(self, outputMode: str) -> None:  # noqa: N803 - PySpark's name
        self.mode = outputMode

    def set_trigger(self, *, continuous: str | None = None, **_: object) -> None:
        self.is_continuous = continuous is not None

    def set_option(self, key: str, value: object) -> None:
        text = private_api.option_text(value)
        if text is not None:
            others = {n: v for n, v in self.options.items() if n.lower() != key.lower()}
            self.options = {**others, key: Secret(text)}

    def forget_format(self, *_: object, **__: object) -> None:
        """A function takes its place, as in Spark."""
        self.format = None


def _request(writer: Any) -> _Request:
    request: _Request = writer.__dict__.setdefault(_REQUEST, _Request())
    return request


def _recorded(record: Callable[..., None], original: Callable[..., Any]) -> Callable[..., Any]:
    def call(writer: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(writer, *args, **kwargs)
        record(_request(writer), *args, **kwargs)
        return result

    return call


def _is_dropped(writer: Any, value: object) -> bool:
    """None in a stream, as PySpark 4.3 does for every format; with earlier ones ours fails later.

    A batch of ours has another writer, without it; other formats get what they got.
    """
    is_stream = hasattr(writer, "start")
    is_other_format = _request(writer).format is not None and not _is_ours(writer)
    return is_stream and value is None and not is_other_format


def _option(original: Callable[..., Any]) -> Callable[..., Any]:
    def option(self: Any, key: str, value: object) -> Any:
        if _is_dropped(self, value):
            return self
        result = original(self, key, value)
        _request(self).set_option(key, value)
        return result

    return option


def _options(original: Callable[..., Any]) -> Callable[..., Any]:
    def options(self: Any, **options: object) -> Any:
        kept = {key: value for key, value in options.items() if not _is_dropped(self, value)}
        result = original(self, **kept)
        for key, value in kept.items():
            _request(self).set_option(key, value)
        return result

    return options


def _partition_by(original: Callable[..., Any]) -> Callable[..., Any]:
    """Nothing, after the format: topics have no such partitions, and foreachBatch rejects it."""

    def partition_by(self: Any, *cols: Any) -> Any:
        return self if _is_ours(self) else original(self, *cols)

    return partition_by


# --- what is written ------------------------------------------------------------------------------


def _is_ours(writer: Any, source: str | None = None) -> bool:
    source = source or _request(writer).format
    return source is not None and source.lower() in _FORMATS


def _save(original: Callable[..., None]) -> Callable[..., None]:
    def save(
        self: Any,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - PySpark's name
        mode: str | None = None,
        partitionBy: Any = None,  # noqa: N803 - PySpark's name
        **options: Any,
    ) -> None:
        if not _is_ours(self, format):
            return original(self, path, format, mode, partitionBy, **options)
        self.mode(mode).options(**options)
        request = _request(self)
        if request.mode is not None and request.mode.lower() not in _APPENDING:
            raise UnsupportedSaveMode(
                f'mode("{request.mode}") is not supported: this sink only appends to topics; '
                'use mode("append")'
            )
        # Another writer, so that this one keeps its own mode and partitions.
        _write_batch(private_api.frame_of(self), request.options, original)
        return None

    return save


def _needs_foreach_batch(options: dict[str, str]) -> bool:
    """Whether Spark's formats cannot write with these options."""
    return asks_for_driver(options) or not private_api.has_data_sources()


def _write_batch(frame: DataFrame, options: dict[str, str], save: Callable[..., None]) -> None:
    if not _needs_foreach_batch(options):
        writer = frame.write.format(FORMAT).mode("append").options(**options)
        _with_format(frame.sparkSession, partial(save, writer))
    else:
        from spark_kafka_sink.spark.foreach_batch import foreach_batch

        foreach_batch(options)(frame, None)


def _start(original: Callable[..., Any]) -> Callable[..., Any]:
    def start(
        self: Any,
        path: str | None = None,
        format: str | None = None,  # noqa: A002 - PySpark's name
        outputMode: str | None = None,  # noqa: N803 - PySpark's name
        partitionBy: Any = None,  # noqa: N803 - PySpark's name
        queryName: str | None = None,  # noqa: N803 - PySpark's name
        **options: Any,
    ) -> Any:
        if not _is_ours(self, format):
            return original(self, path, format, outputMode, partitionBy, queryName, **options)
        request = _request(self)
        _check_trigger(request)
        request.format = FORMAT
        self.options(**options)
        if outputMode is not None:
            self.outputMode(outputMode)
        is_update = request.mode is not None and request.mode.lower() == "update"
        if is_update or _needs_foreach_batch(request.options):
            from spark_kafka_sink.spark.foreach_batch import foreach_batch

            options = request.options
            _check_checkpoint(private_api.session_of(self), options)
            self.foreachBatch(foreach_batch(options))
            request.format = FORMAT  # to be started again
            # The function has the options; what the writer has, Spark prints in its plans.
            clients = [name for name in options if name.lower().startswith(_PRINTED)]
            self.options(**dict.fromkeys(clients, ""))
            try:
                return original(self, queryName=queryName)
            finally:
                self.options(**options)
        self.format(FORMAT)
        start = partial(original, self, path, partitionBy=partitionBy, queryName=queryName)
        return _with_format(private_api.session_of(self), start)

    return start


def _check_trigger(request: _Request) -> None:
    """Raise InvalidOption for a trigger with which Spark would only log an error."""
    if request.is_continuous:
        raise InvalidOption(
            f"{private_api.NO_CONTINUOUS_ROWS}. Use trigger(processingTime=...) or "
            "trigger(availableNow=True), with another checkpoint if this one was continuous"
        )


def _check_checkpoint(spark: SparkSession, options: dict[str, str]) -> None:
    """Raise InvalidOption where Spark would use a temporary checkpoint, as it does for functions.

    With formats it raises an error: a restarted query would write all rows again.
    """
    is_set = _CHECKPOINT.lower() in map(str.lower, options)
    if not is_set and not spark.conf.get(_CHECKPOINT_FOLDER, None):
        raise InvalidOption(
            f"{_CHECKPOINT} is missing: set it as an option, or {_CHECKPOINT_FOLDER} in the "
            "session, so that a restarted query goes on where it has stopped",
            option=_CHECKPOINT,
        )


def _register_output(original: Callable[..., None]) -> Callable[..., None]:
    def register_output(self: Any, output: Any) -> None:
        is_sink = type(output).__name__ == "Sink"  # tables have a format too
        if is_sink and output.format.lower() in _FORMATS:
            output = replace(output, format=FORMAT)
        return original(self, output)

    return register_output


def _with_format(spark: SparkSession, write: Callable[[], Any]) -> Any:
    """Write where Spark finds the format: it asks the thread's active session.

    Registering takes a tenth of a second, and is necessary only if the wheel is not installed.
    """
    with private_api.active(spark):
        try:
            return write()
        except Exception as error:
            if not private_api.is_unknown_format(error, FORMAT):
                raise
        ensure_registered(spark)
        return write()


def _foreach_batch(original: Callable[..., Any]) -> Callable[..., Any]:
    def foreach_batch(self: Any, func: Callable[[DataFrame, int], None]) -> Any:
        # Under Spark Connect the function runs in a process of the server.
        if not private_api.is_classic(private_api.session_of(self)):
            func = partial(_call_patched, func)
        return original(self, func)

    return _recorded(_Request.forget_format, foreach_batch)


def _call_patched(func: Callable[[DataFrame, int], None], frame: DataFrame, batch_id: int) -> None:
    patch_pyspark()
    func(frame, batch_id)


_REPLACEMENTS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "format": partial(_recorded, _Request.set_format),
    "mode": partial(_recorded, _Request.set_save_mode),
    "outputMode": partial(_recorded, _Request.set_output_mode),
    "trigger": partial(_recorded, _Request.set_trigger),
    "option": _option,
    "options": _options,
    "partitionBy": _partition_by,
    "foreach": partial(_recorded, _Request.forget_format),
    "foreachBatch": _foreach_batch,
    "save": _save,
    "start": _start,
    "register_output": _register_output,
}
