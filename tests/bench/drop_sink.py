"""A Python sink that drops everything: what Spark itself costs, the floor for any such sink."""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

FORMAT = "drop"


class DropSink(DataSource):
    @classmethod
    def name(cls):
        return FORMAT

    def writer(self, schema, overwrite):
        return DropWriter()

    def streamWriter(self, schema, overwrite):  # noqa: N802 - Spark's name
        return DropStreamWriter()


class DropWriter(DataSourceArrowWriter):
    def write(self, iterator):
        for _ in iterator:
            pass
        return WriterCommitMessage()


class DropStreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator):
        for _ in iterator:
            pass
        return WriterCommitMessage()
