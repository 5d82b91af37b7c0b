"""Streams whose micro-batches start on demand, each in new Python workers; for test_outage.py.

Arguments: folder, then bootstrap servers and topic of each stream. For every line on standard input
each stream runs a micro-batch of that one line, all at once. For each it then prints "done", or why
its query ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

from local_session import session_builder

folder, *sinks = sys.argv[1:]
builder = session_builder("local[2]")
spark = builder.config("spark.python.worker.reuse", "false").getOrCreate()

source = Path(folder, "source")
source.mkdir()
lines = spark.readStream.format("text").load(str(source))


def start(servers, topic):
    writer = lines.writeStream.format("kafka-nb").option("kafka.bootstrap.servers", servers)
    writer = writer.option("topic", topic)
    return writer.option("checkpointLocation", f"{folder}/checkpoint-{topic}").start()


queries = [start(*sink) for sink in zip(sinks[::2], sinks[1::2], strict=True)]
for number, line in enumerate(sys.stdin):
    # A file appears all at once, so that Spark never sees half of it.
    Path(folder, "next").write_text(line)
    Path(folder, "next").rename(source / f"{number:03}.txt")
    for query in queries:
        try:
            query.processAllAvailable()
            print("done", flush=True)
        except Exception as error:  # noqa: BLE001 - the test is about whatever ended the query
            print(" ".join(str(error).split()), flush=True)
for query in queries:
    query.stop()
spark.stop()
