"""[both] The format's writers: Spark calls them in tasks, and to commit or abort."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from spark_kafka_sink.config.options import SinkOptions
from spark_kafka_sink.errors import InvalidOption
from spark_kafka_sink.libraries import importing
from spark_kafka_sink.report.delivery_report import DeliveryReport, total
from spark_kafka_sink.spark.private_api import NO_CONTINUOUS_ROWS, application_folder, stream_writer

with importing():  # in a task, nothing of the sink is loaded before
    from spark_kafka_sink.spark.task import write_partition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamWriter

    from spark_kafka_sink.schemas.serializer import Serializer
else:
    StreamWriter = stream_writer()


@dataclass
class KafkaCommitMessage(WriterCommitMessage):
    """A task's message to the driver."""

    report: DeliveryReport


def _total(messages: Sequence[WriterCommitMessage | None], batch_id: int | None) -> DeliveryReport:
    """The report of a micro-batch; tasks without a message have failed or did not end."""
    return replace(
        total(m.report for m in messages if isinstance(m, KafkaCommitMessage)),
        failed_tasks=sum(message is None for message in messages),
        tasks=len(messages),
        batch_id=batch_id,
    )


def _keep_failed(report: DeliveryReport, options: SinkOptions) -> None:
    # Imported here, as in commit: tasks need only what is above.
    from spark_kafka_sink.spark import micro_batch

    micro_batch.keep_report(replace(report, outcome="failed"), options)


class _InTasks:
    """What is the same for batches and streams."""

    def __init__(self, options: SinkOptions, serializer: Serializer | None = None) -> None:
        self._options = options
        self._serializer = serializer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> KafkaCommitMessage:
        return KafkaCommitMessage(write_partition(iterator, self._options, self._serializer))


class KafkaBatchWriter(_InTasks, DataSourceArrowWriter):
    """``df.write``: Spark calls ``write`` in every task, ``commit`` or ``abort`` on the driver."""

    def __init__(self, options: SinkOptions, serializer: Serializer | None = None) -> None:
        super().__init__(options.with_write_id(), serializer)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        from spark_kafka_sink.spark import micro_batch

        report = micro_batch.keep_report(_total(messages, None), self._options)
        micro_batch.warn_of_old_records(report, self._options)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        _keep_failed(_total(messages, None), self._options)


class KafkaStreamWriter(_InTasks, StreamWriter):
    """``df.writeStream``: like KafkaBatchWriter, for every micro-batch."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        if None in messages:
            # Continuous processing, which the sink cannot see before. Spark's EpochCoordinator logs
            # this error, and commits nothing.
            raise InvalidOption(
                f"{NO_CONTINUOUS_ROWS}. Stop the query, and start it with another checkpoint and "
                "trigger(processingTime=...) or trigger(availableNow=True)"
            )
        from spark_kafka_sink.spark import micro_batch

        report = _total(messages, batchId)
        micro_batch.write_batch_marker(self._options, report.query_id, batchId, len(messages))
        report = micro_batch.keep_report(report, self._options)
        micro_batch.warn_of_old_records(report, self._options, application_folder())

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        _keep_failed(_total(messages, batchId), self._options)
