"""The cost per row in one process, without Spark: from rows in memory to the last acknowledgement.

- confluent_kafka.Producer, called row by row.
- librdkafka alone: its batch call on prepared arrays. Either librdkafka chooses each record's
  partition, or the records are already grouped by partition.
- this sink's ``write_partition`` on Arrow batches.

All have the same settings and send the same rows, each in its own process, interleaved.
Argument: rounds (default 3).
"""

from __future__ import annotations

import hashlib
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable

import pyarrow as pa
from common import AS_THEY_COME, argument, create_topics, run_in_process, spread, table, write_table
from confluent_kafka import Producer

from spark_kafka_sink.config.options import SinkOptions, parse
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.librdkafka import _prototypes as c
from spark_kafka_sink.librdkafka.client import Client
from spark_kafka_sink.librdkafka.messages import prepare
from spark_kafka_sink.records.arrow import split_by_topic
from spark_kafka_sink.records.partitioner import group_by_partition, unpartitioned
from spark_kafka_sink.spark.task import write_partition
from spark_kafka_sink.tools.local_kafka import LocalKafka

ROW_BY_ROW = "confluent_kafka.Producer"
LIBRDKAFKA = "librdkafka alone"
GROUPED = "librdkafka alone, records already grouped by partition"
OURS = "this sink, Arrow batches in memory"
PEERS = (ROW_BY_ROW, LIBRDKAFKA, GROUPED, OURS)
TOPIC, PARTITIONS = "alone", 4
ROWS = {100: 2_000_000, 1000: 500_000}
ROWS_A_BATCH, BATCHES = 10_000, 10
MAX_UNREPORTED_ROWS = 100_000
TIMES = 3  # in each process, after one for warming up


def main() -> None:
    rounds = argument(1, 3)
    figures: dict[str, dict[str, list[dict[str, float]]]] = {
        str(size): {peer: [] for peer in PEERS} for size in ROWS
    }
    with LocalKafka(settings={"log.retention.bytes": str(2**28)}) as kafka:
        create_topics(kafka.bootstrap_servers, [TOPIC], PARTITIONS)
        for _ in range(rounds):
            for size in ROWS:
                for peer in PEERS:
                    done = run_in_process(__file__, peer, kafka.bootstrap_servers, str(size))
                    figures[str(size)][peer].append(done)
                    print(size, peer, done, flush=True)
    rows = []
    for size, peers in figures.items():
        for peer, done in peers.items():
            microseconds = [run["cpu_microseconds_a_row"] for run in done]
            floor = [run["cpu_microseconds_a_row"] for run in peers[GROUPED]]
            more = [a - b for a, b in zip(microseconds, floor, strict=True)]
            speeds = [run["rows_a_second"] / 1e6 for run in done]
            rows.append((f"{size} B", peer, spread(speeds), spread(microseconds), spread(more)))
    head = ("Rows", "Writer", "M rows/s", "CPU us per row", f"more than {GROUPED}, us")
    write_table("single_process", table(head, rows))


def one_process(peer: str, servers: str, size: int) -> None:
    options = parse({"kafka.bootstrap.servers": servers, "topic": TOPIC, **AS_THEY_COME})
    make = {ROW_BY_ROW: row_by_row, OURS: ours}.get(peer)
    batches = [batch_of(size, number) for number in range(BATCHES)]
    rounds = ROWS[size] // ROWS_A_BATCH // BATCHES
    send = make(options, batches) if make else alone(options, batches, peer == GROUPED)
    figures = []
    for _ in range(TIMES + 1):
        cpu, started = cpu_seconds(), time.monotonic()
        send(rounds)
        seconds = time.monotonic() - started
        figures.append((ROWS[size] / seconds, (cpu_seconds() - cpu) / ROWS[size] * 1e6))
    speeds, microseconds = zip(*figures[1:], strict=True)
    result = {
        "rows_a_second": statistics.median(speeds),
        "cpu_microseconds_a_row": statistics.median(microseconds),
    }
    print(json.dumps(result))


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def batch_of(size: int, number: int) -> pa.RecordBatch:
    ids = range(number * ROWS_A_BATCH, (number + 1) * ROWS_A_BATCH)
    values = [value_of(i, size) for i in ids]
    return pa.record_batch({"key": [f"key-{i % 10_000}".encode() for i in ids], "value": values})


def value_of(number: int, size: int) -> bytes:
    """Half compressible text, half not, as in the throughput benchmark."""
    digests = [hashlib.sha256(f"{number}-{n}".encode()).hexdigest() for n in range(size // 64 + 1)]
    whole = "".join(f"{digest[:32]}, and a few words of plain text. " for digest in digests)
    return whole[:size].encode()


def row_by_row(options: SinkOptions, batches: list[pa.RecordBatch]) -> Callable[[int], None]:
    producer = Producer(dict(options.producer.client))
    rows = [
        pair
        for batch in batches
        for pair in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
    ]
    acknowledged = 0

    def on_delivery(error, message):
        nonlocal acknowledged
        assert error is None
        acknowledged += 1

    def send(rounds: int) -> None:
        nonlocal acknowledged
        acknowledged = 0
        for _ in range(rounds):
            for key, value in rows:
                while True:
                    try:
                        producer.produce(TOPIC, value, key, on_delivery=on_delivery)
                        break
                    except BufferError:
                        producer.poll(0.1)
                producer.poll(0)
        producer.flush()
        assert acknowledged == rounds * len(rows)

    return send


def alone(
    options: SinkOptions, batches: list[pa.RecordBatch], is_grouped: bool
) -> Callable[[int], None]:
    client = Client(options.producer.client)
    topic = client.open_topic(TOPIC)
    deadline = Deadline(30)
    client.describe_topics([TOPIC], 10)
    while not list(client.poll(0.1)):
        assert not deadline.expired
    arrays = []
    for number, batch in enumerate(batches):
        (records,) = split_by_topic(batch, TOPIC).records
        grouped = (
            group_by_partition(records, PARTITIONS, 0) if is_grouped else unpartitioned(records)
        )
        arrays.append(prepare(topic, grouped, number))

    def reports(seconds: float) -> int:
        """How many rows were reported: only the count of each event is read."""
        count, event = 0, c.queue_poll(client._queue, int(seconds * 1000))
        while event:
            if c.event_type(event) == c.EVENT_DR:
                count += c.event_message_count(event)
            c.event_destroy(event)
            event = c.queue_poll(client._queue, 0)
        return count

    def send(rounds: int) -> None:
        left, unreported = rounds * BATCHES * ROWS_A_BATCH, 0
        for array in arrays * rounds:
            client._enqueue_groups(array)
            unreported += ROWS_A_BATCH
            while unreported > MAX_UNREPORTED_ROWS:  # the client's queue has no bound
                reported = reports(0.005)
                unreported, left = unreported - reported, left - reported
        deadline = Deadline(60)
        while left:
            assert not deadline.expired
            client.flush(0.001)
            left -= reports(0.02)

    return send


def ours(options: SinkOptions, batches: list[pa.RecordBatch]) -> Callable[[int], None]:
    def send(rounds: int) -> None:
        # A new batch object each time, as from Spark, because the buffer counts batches.
        fresh = (pa.RecordBatch.from_arrays(b.columns, schema=b.schema) for b in batches * rounds)
        report = write_partition(fresh, options)
        assert report.total_sent == rounds * BATCHES * ROWS_A_BATCH

    return send


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in PEERS:
        one_process(sys.argv[1], sys.argv[2], int(sys.argv[3]))
    else:
        main()
