"""Writes after Ctrl-C, with patch_pyspark() and with register(spark); run by test_patch.py.

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

from spark_kafka_sink import patch_pyspark, register, unpatch_pyspark

servers, topic = sys.argv[1:3]
folder = Path(sys.argv[3])
spark = session_builder("local[2]").getOrCreate()
options = {"kafka.bootstrap.servers": servers, "topic": topic}
client = spark.sparkContext._gateway._gateway_client


def press_ctrl_c():
    """Interrupt a call of Spark as Ctrl-C does, which costs the thread its connection to Java."""
    query = spark.readStream.format("rate").load().writeStream.format("noop").start()
    for _ in range(20):
        connection = client.get_thread_connection()
        # It may arrive just before the call, which it must interrupt.
        with contextlib.suppress(KeyboardInterrupt):
            threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
            query.awaitTermination(60)
        if client.get_thread_connection() is not connection:
            break
    else:
        raise SystemExit("this Spark keeps the thread's connection after Ctrl-C")
    query.stop()


def write_both(name, **mode):
    frame = spark.range(1).selectExpr("'batch' AS value")
    frame.write.format(name).options(**options).save(**mode)
    folder.joinpath(name).mkdir()
    words = stream_of(spark, folder / name / "words", ["a"])
    run(words.writeStream.format(name).options(**options), folder / name)


press_ctrl_c()
with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
    write_both("kafka-nb", mode="append")
patch_pyspark()
write_both("kafka")
unpatch_pyspark()
register(spark)
press_ctrl_c()
write_both("kafka-nb", mode="append")
assert all(connection.socket for connection in client.deque)
spark.stop()
