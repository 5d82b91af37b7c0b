"""[driver] Names the format, checks options and schema, builds the writers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.errors import PySparkException

from spark_kafka_sink.config.options import (
    SinkOptions,
    all_in_one,
    check_for_format,
    check_for_format_batch,
    review,
)
from spark_kafka_sink.errors import KafkaSinkError, UnsupportedSaveMode, headline
from spark_kafka_sink.libraries import importing
from spark_kafka_sink.secret import Secret
from spark_kafka_sink.spark.micro_batch import (
    prepare_reports,
    prepare_serializer,
    warn_of_columns,
    warn_of_log_append_time,
    warn_of_options,
    warn_of_session,
)
from spark_kafka_sink.spark.private_api import (
    activate,
    application_folder,
    check_worker,
    error_condition,
    has_data_sources,
    is_classic,
    keep_active,
    require_data_sources,
)
from spark_kafka_sink.spark.schema_check import (
    check_schema,
    check_schema_for_format,
)

if TYPE_CHECKING or has_data_sources():
    from pyspark.sql.datasource import DataSource
else:
    DataSource = object

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_kafka_sink.schemas.serializer import Serializer
    from spark_kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter

FORMAT = "kafka-nb"


class KafkaSink(DataSource):
    """``format("kafka-nb")``: writes rows to Apache Kafka, in streaming and batch queries.

    For ``spark.dataSource.register``, which ``register`` calls; its methods are for Spark.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        require_data_sources()
        # Spark keeps this mapping in a local variable, and may print local variables.
        for name in list(options):
            options[name] = Secret(options[name])
        super().__init__(options)
        self._is_planning = True

    def __setstate__(self, state: dict[str, Any]) -> None:
        # This copy is unpickled to commit; the planning instance already ran preflight.
        self.__dict__.update(state)
        self._is_planning = False

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> NoReturn:
        raise UnsupportedSaveMode(
            f'format("{FORMAT}") only writes; read topics with Spark\'s own format("kafka")'
        )

    def writer(self, schema: StructType, overwrite: bool) -> KafkaBatchWriter:
        if overwrite:
            raise UnsupportedSaveMode(
                'mode("overwrite") is not supported: this sink never empties a topic; '
                'use mode("append")'
            )
        with importing():
            from spark_kafka_sink.spark.writer import KafkaBatchWriter

        return KafkaBatchWriter(*self._checked(schema, check_for_format_batch))

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:
        del overwrite  # complete mode writes the whole result each time, as Spark's own sink does
        with importing():
            from spark_kafka_sink.spark.writer import KafkaStreamWriter

        return KafkaStreamWriter(*self._checked(schema, check_for_format))

    def _checked(
        self, schema: StructType, check: Callable[[SinkOptions], None]
    ) -> tuple[SinkOptions, Serializer | None]:
        """The options, and what the tasks need to serialize key and value."""
        # Imported here: finding the format must not load librdkafka.
        with importing():
            from spark_kafka_sink.driver.options import complete_options

        serializer = None
        try:
            options = complete_options(_parsed(self.options, schema, check))
            if self._is_planning:
                from spark_kafka_sink.driver import preflight

                folder = application_folder()
                warn_of_options(options, folder)
                warn_of_columns(schema, options, folder)
                if options.exactly_once is not None:
                    check_worker()
                serializer = prepare_serializer(schema, options, folder)
                preflight.check(options, folder)
                warn_of_log_append_time(options, folder)
                prepare_reports(options)
        except KafkaSinkError as error:
            raise error.with_traceback(None) from headline(error)
        return options, serializer


def _parsed(
    options: Mapping[str, str], schema: StructType, check: Callable[[SinkOptions], None]
) -> SinkOptions:
    """The options; raises one error for all that is wrong with them and with the columns."""
    reviewed = review(options)
    problems: list[KafkaSinkError] = list(reviewed.problems)
    parsed = reviewed.options
    checks = [partial(check_schema_for_format, schema)]
    if parsed is not None and not problems:
        topic, serialized = parsed.topic, parsed.serialized_columns
        checks += [
            partial(check, parsed),
            partial(check_schema, schema, topic, serialized, parsed.timestamp_column),
        ]
    else:
        # A wrong option may be the one that names the topic, or the format of a column.
        formatted = tuple(name for name in ("key", "value") if name in schema.names)
        checks.append(partial(check_schema, schema, FORMAT, formatted))
    for check_one in checks:
        try:
            check_one()
        except KafkaSinkError as error:
            problems.append(error)
    if parsed is None or problems:
        raise all_in_one(problems, "the options and columns")
    return parsed


def register(spark: SparkSession) -> None:
    """Register ``format("kafka-nb")`` with a session, and activate it in the calling thread.

    Call it where the wheel is not installed, and once in every thread of your own that writes:
    Spark looks for Python data sources in the calling thread's active session. Only the main thread
    has one, and loses it when Ctrl-C interrupts a call of Spark, unless it has called this. After
    ``patch_pyspark`` it is not necessary.

    Issues a UserWarning if the session has ``spark.speculation``, or kills Python workers that wait
    for brokers (``spark.python.worker.killOnIdleTimeout``). Raises KafkaSinkError before Spark 4.0:
    use ``foreach_batch``.
    """
    require_data_sources()
    ensure_registered(spark)
    if is_classic(spark):
        keep_active(spark)
    warn_of_session(spark)


def ensure_registered(spark: SparkSession) -> None:
    """``register`` without the warning; does nothing before Spark 4.0."""
    if not has_data_sources():
        return
    try:
        spark.dataSource.register(KafkaSink)
    except PySparkException as error:
        # Of Spark 4.0, once it has found the installed module: then the format is known.
        if error_condition(error) != "DATA_SOURCE_ALREADY_EXISTS":
            raise
    if is_classic(spark):
        activate(spark)
