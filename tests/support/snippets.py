"""Runs the Python blocks of a page one after another, and waits for the queries they start."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future

import pytest
from markdown_pages import Block
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from spark_kafka_sink.deadline import Deadline

SECONDS = 120.0  # for a micro-batch with rows, on a very busy machine


class Snippets:
    """``namespace``: the blocks' globals. ``replacements``: text on the page -> in the test."""

    def __init__(
        self,
        namespace: dict[str, object],
        replacements: Mapping[str, str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        self.namespace = {"__name__": "__main__", **namespace}
        self.replacements = replacements
        self._started = _started(monkeypatch)

    def run(self, block: Block) -> None:
        """Returns when every query that the block started has written rows, and is stopped."""
        text = block.text
        for old, new in self.replacements.items():
            text = text.replace(old, new)
        # Tracebacks then show the line of the page.
        padded = "\n" * (block.line - 1) + text
        exec(compile(padded, str(block.page), "exec", dont_inherit=True), self.namespace)
        for value in self.namespace.values():
            if isinstance(value, Future):
                value.result(SECONDS)
        for query in self._started:
            _wait_for_rows(query)
            query.stop()
            error = query.exception()
            if error is not None:
                raise error
        self._started.clear()


def _started(monkeypatch: pytest.MonkeyPatch) -> list[StreamingQuery]:
    """The queries that start from now on. Waiting for one ends when it has written rows."""
    queries: list[StreamingQuery] = []
    start = DataStreamWriter.start

    def remembered(writer, *arguments, **keywords):
        queries.append(start(writer, *arguments, **keywords))
        return queries[-1]

    def shortened(query, timeout=None):
        return _wait_for_rows(query)

    monkeypatch.setattr(DataStreamWriter, "start", remembered)
    monkeypatch.setattr(StreamingQuery, "awaitTermination", shortened)
    return queries


def _wait_for_rows(query: StreamingQuery) -> None:
    """Returns when the query has written rows, or has ended."""
    deadline = Deadline(SECONDS)
    while query.isActive and not any(trigger["numInputRows"] for trigger in query.recentProgress):
        assert not deadline.expired, "the query wrote no rows"
        time.sleep(0.05)  # a snippet's query reports its progress to no listener
