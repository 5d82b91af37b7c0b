"""StopCheck: blocks foreachBatch's next micro-batch once a stop was requested."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.spark.private_api import INTERRUPTION
from spark_kafka_sink.tools.job.stop import Query, QueryStop

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_POLL_SECONDS = 0.02
_BLOCK_SECONDS = 30.0  # the query's main loop stops the query as soon as it sees it blocked


class StopCheck:
    """Blocks before a micro-batch while its query is being stopped, then ends the query.

    With ``mode: format`` nothing can: a micro-batch that begins before the stop is interrupted.
    """

    def __init__(self, stop: QueryStop) -> None:
        self._stop = stop
        self.query: Query | None = None

    def wait_if_stopping(self) -> None:
        """Return at once, or raise InterruptedError when the query is being stopped."""
        if not self._stop.requested.is_set():
            return
        self._stop.is_blocking = True
        deadline = Deadline(_BLOCK_SECONDS)
        while (self.query is None or self.query.isActive) and not deadline.expired:
            time.sleep(_POLL_SECONDS)
        raise InterruptedError(INTERRUPTION)

    def guarded(self, write: Any) -> Any:
        """``write``, a function for foreachBatch, preceded by the check."""

        def guarded(batch: DataFrame, batch_id: int) -> None:
            self.wait_if_stopping()
            write(batch, batch_id)

        return guarded
