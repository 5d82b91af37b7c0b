"""Exactly-once queries with send.from=driver, each of which is held at a step of a micro-batch.

Arguments: bootstrap servers, folder, and JSON with a step and a micro-batch for each topic. Prints
the process id of its Java when all queries have come to their steps. After a line of standard
input, they go on; then it prints their errors.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from pathlib import Path

from held_drivers import STEPS, options, words_of
from local_session import session_builder
from streams import stream_of

from spark_kafka_sink import foreach_batch
from spark_kafka_sink.deadline import Deadline
from spark_kafka_sink.spark import foreach_batch as module
from spark_kafka_sink.transactions.claim import LedgerReader
from spark_kafka_sink.transactions.partition import PartitionTransaction
from spark_kafka_sink.transactions.transaction import Transaction

SECONDS = 400.0

servers, folder, held = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])
assert {step for step, _ in held.values()} <= set(STEPS)
#: topics, and the micro-batches that their queries are at
running: dict[str, int] = {}
arrived: set[str] = set()
may_go_on = threading.Event()


def is_at(topic, step):
    return topic not in arrived and held.get(topic) == [step, running.get(topic)]


def hold(topic, step):
    """Hold the thread that calls here, if this is the step of the topic's query."""
    if is_at(topic, step):
        arrived.add(topic)
        may_go_on.wait()


def hold_before(owner, name, step, topic_of):
    call = getattr(owner, name)

    def held_call(*args):
        hold(topic_of(*args), step)
        return call(*args)

    setattr(owner, name, held_call)


def hold_sends():
    """Before the first record batch is sent, or when the brokers have it, before the second."""
    send, sent = PartitionTransaction.send, set()

    def held_send(transaction, records):
        topic = transaction._group.removesuffix(".0")
        hold(topic, "before the first row")
        if (topic, running[topic]) in sent and is_at(topic, "between two record batches"):
            transaction._transaction.flush(SECONDS)
            hold(topic, "between two record batches")
        sent.add((topic, running[topic]))
        send(transaction, records)

    PartitionTransaction.send = held_send


def start(topic, batch):
    source = folder / topic
    sink = foreach_batch(options(servers, topic))

    def write(frame, batch_id):
        running[topic] = batch_id
        sink(frame, batch_id)
        hold(topic, "before Spark's commit file")

    words = stream_of(spark, source / "words", *map(words_of, range(batch + 1)))
    writer = words.writeStream.foreachBatch(write).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(source / "checkpoint")).start()


hold_before(
    LedgerReader,
    "read_or_assume_claim",
    "before the ledger is read",
    lambda reader, _: reader._layout.group.removesuffix(".layout"),
)
hold_sends()
hold_before(Transaction, "commit", "before the commit", lambda it, _: it._id.removesuffix(".0"))
hold_before(
    module,
    "write_batch_marker",
    "before the marker",
    lambda options, *_: options.exactly_once.prefix,
)

spark = session_builder("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "2")
spark.sparkContext.setLogLevel("OFF")
queries = {topic: start(topic, batch) for topic, (_, batch) in held.items()}
deadline = Deadline(SECONDS)
while arrived != set(held):
    ended = [str(query.exception()) for query in queries.values() if not query.isActive]
    assert not ended, ended
    assert not deadline.expired, set(held) - arrived
    time.sleep(0.05)
print(json.dumps(spark.sparkContext._gateway.proc.pid), flush=True)
sys.stdin.readline()
may_go_on.set()
deadline = Deadline(SECONDS)
while any(query.isActive for query in queries.values()):
    assert not deadline.expired
    time.sleep(0.05)
print(json.dumps({topic: str(query.exception() or "") for topic, query in queries.items()}))
spark.stop()
