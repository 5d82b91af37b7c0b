"""A stream that fails and starts again with other options, for tests of faults in mid-stream."""

from __future__ import annotations

import time

import pytest
from pyspark.errors import StreamingQueryException
from streams import direct

from spark_kafka_sink.errors import sink_error

FORMAT, FOREACH_BATCH, EXACTLY_ONCE = "format", "foreach_batch", "exactly-once"
# A task's own waits are shorter; Spark is slow on a busy machine.
SECONDS = 90.0
TOLERANT = {"kafka.max.block.ms": "15000", "close.timeout.ms": "15000"}


class RestartedStream:
    """A stream of words to a topic, whose query ends and starts again in one session."""

    def __init__(self, spark, folder, api):
        self._source, self._checkpoint = folder / "words", folder / "checkpoint"
        self._source.mkdir()
        self._words = spark.readStream.format("text").load(str(self._source)).coalesce(1)
        self._api = api
        self.query = None

    def start(self, options):
        options = TOLERANT | options
        writer = self._words.writeStream.option("checkpointLocation", str(self._checkpoint))
        self.query = direct(writer, self._api, options).start()

    def write(self, word):
        part = self._source.parent / "part"
        part.write_text(word)
        part.rename(self._source / f"{word}.txt")
        self.query.processAllAvailable()

    def error(self, write):
        """The sink's own error that ends the query while this is done."""
        started = time.monotonic()
        with pytest.raises(StreamingQueryException) as raised:
            write()
        assert time.monotonic() - started < SECONDS
        return sink_error(str(raised.value))

    def stop(self):
        if self.query is not None:
            self.query.stop()
