"""A KafkaSinkListener in a session of Spark Connect; run by test_listener.py.

Arguments: bootstrap servers, topic, folder. Prints what the listener knows as JSON.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from pathlib import Path

from local_session import session_builder
from streams import patiently

from spark_kafka_sink import KafkaSinkListener, foreach_batch
from spark_kafka_sink.deadline import Deadline

servers, topic, folder = sys.argv[1:]
spark = session_builder("connect").getOrCreate()
options = {"kafka.bootstrap.servers": servers, "topic": topic}
words = Path(folder) / "words"
words.mkdir()
(words / "1.txt").write_text("a\nb\nc")
stream = spark.readStream.format("text").load(str(words))

folders = [f"{folder}/of-format", f"{folder}/of-foreach-batch"]
listener = KafkaSinkListener(folders)
spark.streams.addListener(listener)


def finish(writer, name):
    writer = writer.queryName(name).option("checkpointLocation", f"{folder}/{name}")
    query = patiently(writer.trigger(availableNow=True).start)
    assert query.awaitTermination(60)
    if query.exception():
        raise query.exception()


writer = stream.writeStream.format("kafka-nb").options(**options)
finish(writer.option("report.path", folders[0]), "format")
sink = foreach_batch({**options, "report.path": folders[1]})
finish(stream.writeStream.foreachBatch(sink), "foreach_batch")

start_error = ""
try:
    stream.writeStream.foreachBatch(foreach_batch(options, listener.on_report))
except Exception:  # noqa: BLE001 - the test is about its text
    start_error = traceback.format_exc()  # PySpark hides our own behind one of its own


def values(name):
    """A metric's sum, by query."""
    return {
        query: sum(values.values())
        for (query, _), known in listener._values().items()
        for metric, values in known.by_metric.items()
        if metric.name == name
    }


deadline = Deadline(60)
while values("spark_streaming_query_active") != {"format": 0, "foreach_batch": 0}:
    assert not deadline.expired, values("spark_streaming_query_active")
    time.sleep(0.05)  # there is no event when Spark has called its listeners
spark.streams.removeListener(listener)
result = {"records": values("kafka_producer_record_send_total"), "rejection": start_error}
spark.stop()
print(json.dumps(result))
