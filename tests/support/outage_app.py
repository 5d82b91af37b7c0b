"""A stream whose micro-batches start on demand, each in new Python workers; for test_outage.py.

Arguments: bootstrap servers, topic, folder. For every line on standard input it runs a micro-batch
of that one line and prints "done", or why the query ended.
"""

from __future__ import annotations

import sys
from pathlib import Path

from local_session import session_builder

servers, topic, folder = sys.argv[1:]
builder = session_builder("local[2]")
spark = builder.config("spark.python.worker.reuse", "false").getOrCreate()

source = Path(folder, "source")
source.mkdir()
writer = spark.readStream.format("text").load(str(source)).writeStream.format("kafka-nb")
writer = writer.option("kafka.bootstrap.servers", servers).option("topic", topic)
query = writer.option("checkpointLocation", f"{folder}/checkpoint").start()
for number, line in enumerate(sys.stdin):
    # A file appears all at once, so that Spark never sees half of it.
    Path(folder, "next").write_text(line)
    Path(folder, "next").rename(source / f"{number:03}.txt")
    try:
        query.processAllAvailable()
        print("done", flush=True)
    except Exception as error:  # noqa: BLE001 - the test is about whatever ended the query
        print(" ".join(str(error).split()), flush=True)
query.stop()
spark.stop()
