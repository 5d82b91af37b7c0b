"""Writes with format("kafka") after Ctrl-C and patch_pyspark(); run by test_patch.py.

Arguments: bootstrap servers, topic, folder.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from pathlib import Path

import pytest
from local_session import session_builder
from streams import run, stream_of

from spark_kafka_sink import patch_pyspark

servers, topic, folder = sys.argv[1:]
spark = session_builder("local[2]").getOrCreate()
options = {"kafka.bootstrap.servers": servers, "topic": topic}
session_class = spark._get_j_spark_session_class(spark._jvm)
query = spark.readStream.format("rate").load().writeStream.format("noop").start()

for _ in range(20):
    # It may arrive just before the call, which it must interrupt.
    with contextlib.suppress(KeyboardInterrupt):
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        query.awaitTermination(60)
    if not session_class.getActiveSession().isDefined():
        break
else:
    raise SystemExit("this Spark keeps the thread's active session after Ctrl-C")
query.stop()

batch = spark.range(1).selectExpr("'batch' AS value")
with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
    batch.write.format("kafka-nb").options(**options).mode("append").save()
patch_pyspark()
batch.write.format("kafka").options(**options).save()
words = stream_of(spark, Path(folder) / "words", ["a"])
run(words.writeStream.format("kafka").options(**options), Path(folder))
spark.stop()
