"""What a KafkaSinkListener gets, made up: reports of the sink, and Spark's own events."""

from __future__ import annotations

import json

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
)

QUERY_ID = "11111111-2222-3333-4444-555555555555"
RUN_ID = "66666666-7777-8888-9999-000000000000"


class MadeUpReport:
    """Has the only method of a DeliveryReport that a listener calls."""

    def __init__(self, **fields):
        self.fields = {
            "version": 1,
            "query_id": QUERY_ID,
            "batch_id": 0,
            "outcome": "delivered",
            "ended_at": "2026-11-22T08:00:00.125Z",
            "tasks": 2,
            "failed_tasks": 0,
            "records": 7,
            "sent_bytes": 90,
            "records_by_topic": {"a": 4, "b": 3},
            "sent_bytes_by_topic": {"a": 50, "b": 40},
            "busiest_partition": "a-1",
            "busiest_partition_records": 3,
            "failed_records_by_topic": {},
            "failed_records_by_error": {},
            "dead_letters_by_topic": {},
            "unsent_records": 0,
            "possibly_persisted_records": 0,
            "retried_requests": 1,
            "task_ms": 1000,
            "longest_task_ms": 600,
            "rows_wait_ms": 100,
            "metadata_wait_ms": 20,
            "buffer_wait_ms": 30,
            "acknowledgement_wait_ms": 40,
            "first_acknowledgement_ms": 25,
            "metadata_requests": 2,
            "buffer_peak_bytes": 5_000,
            "buffer_memory_bytes": 10_000,
            "producers_created": 1,
            "producers_reused": 1,
            "round_trip_p50_ms": 1.5,
            "round_trip_p99_ms": 4.0,
            "broker_error": "",
            **fields,
        }

    def to_json(self):
        return json.dumps(self.fields)


def failed_report(**fields):
    """A micro-batch of which one task failed."""
    return MadeUpReport(
        **{
            "outcome": "failed",
            "failed_tasks": 1,
            "failed_records_by_topic": {"a": 2},
            "failed_records_by_error": {"MSG_TIMED_OUT": 2},
            "unsent_records": 1,
            "possibly_persisted_records": 1,
            **fields,
        }
    )


def started(name="orders", query_id=QUERY_ID, run_id=RUN_ID):
    return QueryStartedEvent.fromJson(
        {"id": query_id, "runId": run_id, "name": name, "timestamp": "2026-11-22T07:59:00.000Z"}
    )


def progressed(batch_id=0, name="orders", query_id=QUERY_ID, behind=None, **fields):
    """The progress of a micro-batch; ``behind``: what a Kafka source reports."""
    metrics = {} if behind is None else {"maxOffsetsBehindLatest": str(behind)}
    source = {
        "description": "KafkaV2[Subscribe[in]]",
        "startOffset": "0",
        "endOffset": "1",
        "latestOffset": "1",
        "numInputRows": 8,
        "inputRowsPerSecond": 8.0,
        "processedRowsPerSecond": 4.0,
        "metrics": metrics,
    }
    progress = {
        "id": query_id,
        "runId": RUN_ID,
        "name": name,
        "timestamp": "2026-11-22T07:59:59.000Z",
        "batchId": batch_id,
        "batchDuration": 2000,
        "durationMs": {"addBatch": 1500, "triggerExecution": 2000},
        "stateOperators": [],
        "sources": [source],
        "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
        "numInputRows": 8,
        "inputRowsPerSecond": 8.0,
        "processedRowsPerSecond": 4.0,
        **fields,
    }
    return QueryProgressEvent.fromJson({"progress": progress})


def idle(batch_id=1, **fields):
    """The progress of a query without new rows, under the id of the next micro-batch."""
    durations = {"latestOffset": 1, "triggerExecution": 2}
    return progressed(batch_id, durationMs=durations, numInputRows=0, **fields)


def awaits_data(query_id=QUERY_ID, run_id=RUN_ID):
    """The event of a query that has had no new rows for some time."""
    return QueryIdleEvent.fromJson(
        {"id": query_id, "runId": run_id, "timestamp": "2026-11-22T08:01:00.000Z"}
    )


def terminated(exception=None, query_id=QUERY_ID, run_id=RUN_ID):
    return QueryTerminatedEvent.fromJson(
        {"id": query_id, "runId": run_id, "exception": exception, "errorClassOnException": None}
    )
