"""Names the format, checks options and schema, builds the writers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSource

from spark_kafka_sink.config.options import SinkOptions, check_for_format, parse
from spark_kafka_sink.config.secret import Secret
from spark_kafka_sink.errors import (
    InvalidOption,
    InvalidSchema,
    KafkaSinkError,
    UnsupportedSaveMode,
)
from spark_kafka_sink.records.column_table import COLUMNS, TEXT
from spark_kafka_sink.spark.private_api import (
    activate,
    application_folder,
    check_worker,
    is_classic,
)
from spark_kafka_sink.spark.speculation import warn_of_speculation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from spark_kafka_sink.serialization.serializer import Serializer
    from spark_kafka_sink.spark.writer import KafkaBatchWriter, KafkaStreamWriter

FORMAT = "kafka-nb"


class KafkaSink(DataSource):
    """``format("kafka-nb")``: writes rows to Apache Kafka, in streaming and batch queries.

    For ``spark.dataSource.register``, which ``register`` calls; its methods are for Spark.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
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
        from spark_kafka_sink.spark.writer import KafkaBatchWriter

        return KafkaBatchWriter(*self._checked(schema, _refuse_exactly_once))

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:
        del overwrite  # complete mode writes the whole result each time, as Spark's own sink does
        from spark_kafka_sink.spark.writer import KafkaStreamWriter

        return KafkaStreamWriter(*self._checked(schema, check_for_format))

    def _checked(
        self, schema: StructType, check: Callable[[SinkOptions], None]
    ) -> tuple[SinkOptions, Serializer | None]:
        """The options, and what the tasks need to serialize key and value."""
        serializer = None
        try:
            options = parse(self.options)
            check(options)
            check_schema(schema, options.topic, options.serialized_columns)
            if self._is_planning:
                if options.exactly_once is not None:
                    check_worker()
                serializer = prepare_serializer(schema, options)
                _preflight(options)
                prepare_reports(options)
        except KafkaSinkError as error:
            # Spark shows users the whole traceback; our frames would not help them.
            raise error.with_traceback(None) from None
        return options, serializer


def _refuse_exactly_once(options: SinkOptions) -> None:
    if options.exactly_once is not None:
        raise InvalidOption(
            "delivery.guarantee=exactly-once needs a streaming query, whose checkpoint gives "
            "every micro-batch an id; a batch write has none. Use writeStream with "
            "trigger(availableNow=True), and inside foreachBatch the function foreach_batch"
        )


def _preflight(options: SinkOptions) -> None:
    from spark_kafka_sink.connection.preflight import check

    check(options, application_folder())


def prepare_serializer(schema: StructType, options: SinkOptions) -> Serializer | None:
    """On the driver, before the tasks; raises what ``serialization.preparation`` raises."""
    if options.serialization is None:
        return None
    from spark_kafka_sink.serialization.preparation import prepare
    from spark_kafka_sink.spark.arrow_type import column_types

    types = column_types(schema, options.serialized_columns)
    return prepare(options, types, application_folder())


def prepare_reports(options: SinkOptions) -> None:
    """On the driver, before the tasks."""
    if options.report_path is not None:
        from spark_kafka_sink.report.folder import prepare

        prepare(options.report_path)


def _cast(column: str, given: str) -> str:
    if COLUMNS[column].types != TEXT:
        return ""
    is_nested = given.startswith(("struct", "array", "map"))
    return f", for instance {'to_json' if is_nested else 'string'}({column})"


def check_schema(schema: StructType, topic: str | None, serialized: Collection[str] = ()) -> None:
    """Raise InvalidSchema, with one message for all problems, if rows cannot become records.

    ``serialized``: the columns of any type, which a format turns into bytes.
    """
    types = {field.name: field.dataType.simpleString() for field in schema.fields}
    used = used_columns(topic)
    problems = [
        f"column {column} has type {types[column]}; allowed: {' or '.join(COLUMNS[column].types)}"
        f"{_cast(column, types[column])}"
        for column in used
        if column in types
        and column not in serialized
        and types[column] not in COLUMNS[column].types
    ]
    problems += [
        f"column {column}, which {column}.format serializes, is missing{_other_case(types)}"
        for column in serialized
        if column not in types and column != "value"
    ]
    if "value" not in types:
        problems.append(
            f"column value ({' or '.join(TEXT)}) is required but missing{_other_case(types)}"
        )
    if "topic" not in types and topic is None:
        problems.append("no topic: set the option topic, or add a column topic (string)")
    repeated = sorted(name for name in used if schema.names.count(name) > 1)
    if repeated:
        problems.append(f"more than one column is named {', '.join(repeated)}")
    if problems:
        raise InvalidSchema("; ".join(problems))


def used_columns(topic: str | None) -> list[str]:
    """The columns that make up a record; the option ``topic`` replaces the column ``topic``."""
    return [column for column in COLUMNS if column != "topic" or topic is None]


def _other_case(types: Mapping[str, str]) -> str:
    similar = [name for name in types if name.lower() == "value"]
    return f" (found {similar[0]}; names are case-sensitive)" if similar else ""


def register(spark: SparkSession) -> None:
    """Register ``format("kafka-nb")`` with a session, and activate it in the calling thread.

    Call it where the wheel is not installed (otherwise Spark finds the format through the installed
    module ``pyspark_kafka_nb``), and once in every thread of your own that writes: Spark looks for
    Python data sources in the calling thread's active session, and only the main thread has one.

    Issues a UserWarning if the session has ``spark.speculation``.
    """
    make_known(spark)
    warn_of_speculation(spark)


def make_known(spark: SparkSession) -> None:
    """``register`` without the warning."""
    spark.dataSource.register(KafkaSink)
    if is_classic(spark):
        activate(spark)
